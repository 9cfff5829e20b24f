"""Define the payloads of sessions beyond plain ones: the opening of a session, choices, and values of a session type.

They are payloads, so every driver carries them as items of a channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.payload import Payload
from afflux.protocols.limit.integers import packed

if TYPE_CHECKING:
    from afflux.protocols.limit.steps import Steps

__all__ = ["Choice", "Opening", "Value"]


class Opening(Payload):
    """The payload that opens a session of a channel.

    Args:
        channel: the channel's name.
        data: data for the channel's application.
        steps: this side's view of the session type; None for the type that the engine has for the name.
    """

    __slots__ = ("steps",)

    def __init__(self, channel: str, data: bytes = b"", steps: Steps | None = None) -> None:
        super().__init__(data, channel.encode())
        self.steps = steps

    @property
    def channel(self) -> str:
        """The channel's name."""
        return str(self.metadata or b"", "utf-8")


class Choice(Payload):
    """An item that picks a branch, counted from 0 (D-5), instead of carrying a value."""

    __slots__ = ("branch",)

    def __init__(self, branch: int, metadata: bytes | None = None) -> None:
        super().__init__(packed(branch), metadata)
        self.branch = branch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and (self.branch, self.metadata) == (other.branch, other.metadata)

    def __hash__(self) -> int:
        return hash((self.branch, self.metadata))

    def __repr__(self) -> str:
        return f"Choice({self.branch})"


class Value(Payload):
    """An item with a value of a session type. Received, it has the decoded value beside its bytes; to be sent, it needs
    no bytes: the session type encodes it."""

    __slots__ = ("value",)

    def __init__(self, value: Any, metadata: bytes | None = None, data: bytes = b"") -> None:
        super().__init__(data, metadata)
        self.value = value

    def __repr__(self) -> str:
        return f"Value({self.value!r})"
