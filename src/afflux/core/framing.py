"""Length prefixes: how frames stand one behind the other in a stream of bytes. Engines read and write them so; a
transport that keeps message boundaries takes the prefix off each message and puts it back. No frames' contents here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["LengthPrefix"]


@dataclass(frozen=True, slots=True)
class LengthPrefix:
    """Each frame stands behind its length, a big-endian number of ``width`` bytes (RSocket R-2: 3 bytes)."""

    width: int
    "Bytes of the length field."
    inclusive: bool = False
    "The length counts its own field too."
    reserved: int = 0
    "Bits of the length that are no part of the number: whoever reads it leaves them out."

    @property
    def own(self) -> int:
        """What the length counts of its own field: a limit on it leaves so much less for the frame."""
        return self.width if self.inclusive else 0

    @property
    def most(self) -> int:
        """The longest frame that has a length, in bytes without the prefix."""
        return (1 << 8 * self.width) - 1 - self.reserved - self.own

    def size(self, data: bytes | memoryview, at: int = 0) -> int:
        """The length at ``at``, which is whole: bytes of the frame behind it; negative for one that is too small to
        count its own bytes."""
        length = int.from_bytes(data[at : at + self.width], "big") & ~self.reserved
        return length - self.own

    def split(self, data: bytes) -> Iterator[memoryview]:
        """The frames in ``data``, without their prefixes. What an engine hands out is always whole frames."""
        view, at, end = memoryview(data), 0, len(data)
        own = self.own
        while at < end:
            start = at + self.width
            at = start + int.from_bytes(view[at:start], "big") - own
            yield view[start:at]

    def join(self, frame: bytes) -> bytes:
        """``frame`` with its prefix.

        Raises:
            OverflowError: it is longer than ``most``.
        """
        length = len(frame) + self.own
        return length.to_bytes(self.width, "big") + frame
