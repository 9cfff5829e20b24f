"""Decode many messages of one basic type together, such as those of a loop. Rule numbers are Limit-Stream's.

Most functions take messages that are alike: of one size and form. They return None for others, which values.py decodes
one by one, so that this module knows no errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final

from afflux.sessions.types import Basic

__all__ = ["TOGETHER", "Messages", "texts"]


class Messages:
    """Messages of one size in received bytes, each after a header of ``skip`` bytes. There is at least one."""

    __slots__ = ("_block", "_first", "_stop", "count", "size", "skip")

    def __init__(self, block: bytes, start: int, skip: int, size: int, count: int) -> None:
        self._block = block
        self._first = start + skip
        self._stop = start + (skip + size) * count
        self.skip = skip
        self.size = size
        self.count = count

    @property
    def first(self) -> bytes:
        """The first message."""
        return self._block[self._first : self._first + self.size]

    def octets(self, at: int) -> bytes:
        """Return one octet of each message."""
        return self._block[self._first + at : self._stop : self.skip + self.size]

    def begin_with(self, head: bytes) -> bool:
        """Whether each message begins with ``head``."""
        return all(self.octets(at) == head[at : at + 1] * self.count for at in range(len(head)))

    def unpack(self, form: str) -> chain[Any]:
        """Iterate over the parts of each message that a format of ``struct`` names."""
        with memoryview(self._block) as block:
            span = block[self._first - self.skip : self._stop]
            return chain.from_iterable(struct.iter_unpack(f">{self.skip}x{form}", span))


Together = Callable[[Messages], list[Any] | None]
"Decodes messages that are alike; None if they are not."


def _strings(messages: Messages) -> list[Any] | None:
    size = messages.size
    length = next((length for length, most in _LENGTHS if length <= size <= most), 0)
    if not length or not messages.begin_with(_HEADS[length](size - length)):
        return None
    try:
        return list(map(bytes.decode, messages.unpack(f"{length}x{size - length}s")))
    except UnicodeDecodeError:
        return None


_LENGTHS: Final = ((1, 0x20), (2, 0x101), (3, 0x10002))
"Bytes before a text, and the largest message that has so many."
_HEADS: Final[Mapping[int, Callable[[int], bytes]]] = {
    1: lambda size: bytes((0xA0 | size,)),
    2: lambda size: bytes((0xD9, size)),
    3: lambda size: struct.pack(">BH", 0xDA, size),
}


def texts(messages: list[bytes]) -> list[Any] | None:
    """Decode texts of any sizes up to 65,535 bytes; None if they are something else."""
    found: list[Any] = []
    try:
        for message in messages:
            size = len(message)
            if size <= 0x20 and message[0] == 0x9F + size:
                found.append(message[1:].decode())
            elif size <= 0x101 and message[0] == 0xD9 and message[1] == size - 2:
                found.append(message[2:].decode())
            elif size > 0x102 and message[0] == 0xDA and message[1] << 8 | message[2] == size - 3:
                found.append(message[3:].decode())
            else:
                return None
    except (IndexError, UnicodeDecodeError):
        return None
    return found


def _integers(least: int, most: int) -> Together:
    def together(messages: Messages) -> list[Any] | None:
        values = _small(messages) or _numbers(messages, _INTEGERS)
        return values if values and least <= min(values) and max(values) <= most else None

    return together


def _small(messages: Messages) -> list[Any] | None:
    """Return numbers that are a byte each."""
    octets = messages.octets(0) if messages.size == 1 else b"\xff"
    return list(octets) if max(octets) < 0x80 else None


def _numbers(messages: Messages, forms: Mapping[bytes, str]) -> list[Any] | None:
    """Return numbers of one format."""
    head = messages.first[:1]
    form = forms.get(head)
    if form is None or struct.calcsize(form) != messages.size or not messages.begin_with(head):
        return None
    return list(messages.unpack(form[1:]))


_INTEGERS: Final = {bytes((head,)): f">x{kind}" for head, kind in zip(range(0xCC, 0xD4), "BHIQbhiq", strict=True)}
_FLOATS: Final = {b"\xca": ">xf", b"\xcb": ">xd"}

TOGETHER: Final[Mapping[Basic, Together]] = {
    Basic.INT: _integers(-(1 << 63), (1 << 63) - 1),
    Basic.UINT: _integers(0, (1 << 64) - 1),
    Basic.FLOAT: lambda messages: _numbers(messages, _FLOATS),
    Basic.DOUBLE: lambda messages: _numbers(messages, _FLOATS),
    Basic.STRING: _strings,
}
"How messages of a basic type are decoded together."
