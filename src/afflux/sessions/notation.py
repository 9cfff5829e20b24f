"""Write the steps of a session as items of a channel, and read the peer's. Rule numbers are Limit-Stream's.

``Monitored`` serves protocols without session types: a monitor checks each item. Where the engine checks the steps, the
protocol has its own notation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from afflux.core.payload import Payload, PayloadLike, Payloads
from afflux.sessions.errors import SessionTypeError
from afflux.sessions.machine import Kind, Machine
from afflux.sessions.monitor import CHOICE, Monitor, Received

__all__ = ["Monitored", "Notation"]


class Notation(Protocol):
    """The items of one session at one side. Own mistakes raise SessionTypeError, here or when the item is sent; those
    of the peer raise SessionViolation."""

    def value(self, value: Any) -> PayloadLike:
        """Return the item that carries a value."""

    def items(self, values: Iterable[Any]) -> Iterator[PayloadLike]:
        """Iterate over the items that carry the values of a loop. Raises as ``value`` does."""

    def choice(self, branch: int) -> PayloadLike | None:
        """Return the item that carries a choice, from 1; None if the next value implies it (R-27)."""

    def received(self, item: Payload) -> Received:
        """Return what an item of the peer means. A value that stands for the first branch may have no branch."""

    def values(self, items: Payloads) -> list[Any] | None:
        """Return the values of consecutive items if each is a value in a loop, read together; otherwise None, and
        nothing is read."""

    def first(self, item: Payload) -> bool:
        """Return whether the payload that opened the channel is also the client's first step."""

    def end(self) -> None:
        """Take this side's last step."""

    def ended(self) -> None:
        """The peer sends no more items."""


class Monitored:
    """The items of a channel of a protocol without session types: a value is MessagePack, and so is a choice, as an
    extension (``CHOICE``)."""

    __slots__ = ("monitor",)

    def __init__(self, machine: Machine) -> None:
        self.monitor = Monitor(machine)
        "The state of the session."

    def value(self, value: Any) -> bytes:
        """Take the step of sending a value, and return its item."""
        return self.monitor.send(value)

    def items(self, values: Iterable[Any]) -> Iterator[bytes]:
        """Iterate over the items of values, and take their steps."""
        return map(self.monitor.send, values)

    def choice(self, branch: int) -> bytes | None:
        """Take the step of choosing a branch, and return its item."""
        return self.monitor.choice_item(branch)

    def received(self, item: Payload) -> Received:
        """Take the peer's step."""
        return self.monitor.item(item.data)

    def values(self, items: Payloads) -> list[Any] | None:
        """Return None: the items are read one by one."""
        return None

    def first(self, item: Payload) -> bool:
        """Return whether the request has data: one without data only opens the channel."""
        return bool(item.data)

    def end(self) -> None:
        """Take this side's last step."""
        self.monitor.end()

    def ended(self) -> None:
        """The peer sends no more items: no-op at the end of the type, and after the own last step."""
        if not self.monitor.over:
            self.monitor.ended()

    # Items that a program writes itself

    def sent(self, data: bytes) -> None:
        """Take the step of an item that this side sends.

        Raises:
            SessionTypeError: the type expects another step, or the bytes are not one value of the type.
        """
        if data[:2] == CHOICE and len(data) == 3:
            self.monitor.choose(data[2] + 1, explicit=True)
        else:
            self.monitor.sent(data)

    def completed(self) -> None:
        """This side sends no more items.

        Raises:
            SessionTypeError: the type expects a step of this side.
        """
        if self.monitor.kind in (Kind.SEND, Kind.CHOOSE) and not self.monitor.over:
            raise SessionTypeError(self.monitor.state, self.monitor.expected, "the end of the items")
