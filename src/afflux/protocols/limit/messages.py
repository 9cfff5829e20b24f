"""Define the payloads of sessions beyond plain ones: the opening of a session, choices, and values of a session type.

They are payloads, so every driver carries them as items of a channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, overload

from afflux.core.payload import Payload, Plain, Run
from afflux.protocols.limit.integers import packed

if TYPE_CHECKING:
    from afflux.protocols.limit.steps import Steps

__all__ = ["Choice", "Opening", "Value", "Values", "VariedValues"]


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
        self.value = value
        self.metadata = metadata
        self.data = data

    def __repr__(self) -> str:
        return f"Value({self.value!r})"


class Values(Run):
    """Consecutive values of one size in received bytes, decoded: a sequence that creates each :class:`Value` when it is
    accessed."""

    __slots__ = ("values",)

    def __init__(self, block: bytes, start: int, head: int, size: int, values: list[Any]) -> None:
        """In ``block`` from ``start``: for each value ``head`` bytes of header, and ``size`` bytes."""
        super().__init__(block, start, head, size, len(values))
        self.values = values

    def __iter__(self) -> Iterator[Value]:
        return map(Value, self.values, repeat(None), self.parts())

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Values: ...
    def __getitem__(self, index: int | slice) -> Value | Values:
        """Return one value, or for a slice, whose step is ignored, a part of the sequence."""
        if isinstance(index, slice):
            first, stop, _ = index.indices(len(self))
            start = self._start + first * (self._head + self._size)
            return Values(self._block, start, self._head, self._size, self.values[first:stop])
        return Value(self.values[index], None, super().__getitem__(index).data)


class VariedValues(Plain):
    """Consecutive values that may differ in size, decoded: a sequence as :class:`Values`."""

    __slots__ = ("values",)

    def __init__(self, datas: list[bytes], values: list[Any]) -> None:
        super().__init__(datas)
        self.values = values

    def __iter__(self) -> Iterator[Value]:
        return map(Value, self.values, repeat(None), self._datas)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> VariedValues: ...
    def __getitem__(self, index: int | slice) -> Value | VariedValues:
        """Return one value, or for a slice a part of the sequence."""
        if isinstance(index, slice):
            return VariedValues(self._datas[index], self.values[index])
        return Value(self.values[index], None, self._datas[index])
