"""What a case is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from interop.conversation import Conversation, Failed, Setting, check

__all__ = ["CASES", "Case", "by_name", "case", "echoes", "fails"]

Body = Callable[[Conversation], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the matrix."""

    name: str
    'Group and name, such as "stream.items".'
    title: str
    "What it shows, in a few words."
    body: Body
    setting: Setting
    limit: float
    "Seconds."
    smoke: bool
    "Part of the short run."
    audited: bool
    "The recording is looked over; not where the runner itself speaks on the wire."
    transports: tuple[str, ...]
    "Over what it makes sense."

    @property
    def group(self) -> str:
        """The first part of its name."""
        return self.name.partition(".")[0]


CASES: list[Case] = []
"Every case, in order."


def case(
    name: str,
    title: str,
    *,
    limit: float = 5,
    smoke: bool = False,
    audited: bool = True,
    transports: tuple[str, ...] = ("tcp", "ws"),
    **setting: Any,
) -> Callable[[Body], Body]:
    """Declare a case. ``setting`` is how the sides are set up."""

    def add(body: Body) -> Body:
        CASES.append(Case(name, title, body, Setting(**setting), limit, smoke, audited, transports))
        return body

    return add


def by_name() -> dict[str, Case]:
    """The cases by name."""
    return {case.name: case for case in CASES}


async def fails(call: Awaitable[Any], code: int | None, message: str | None = None) -> None:
    """The call ends with an error of that code and text."""
    try:
        got = await call
    except Failed as failed:
        check(failed.code == code, f"expected the code {code and hex(code)}, got {failed}")
        check(message is None or failed.message == message, f"expected the text {message!r}, got {failed.message!r}")
    else:
        raise AssertionError(f"expected the code {code and hex(code)}, got {got}")


async def echoes(c: Conversation, data: bytes = b"still here") -> None:
    """The connection works."""
    item = await c.asker.request(data)
    check(item is not None and item.data == "h:" + data.hex(), f"the echo came back as {item}")
