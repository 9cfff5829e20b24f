"""Split and join length-prefixed frames in a stream of bytes.

Engines read and write frames with prefixes. A transport that preserves message boundaries removes the prefix of each
message and adds it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["LengthPrefix"]


@dataclass(frozen=True, slots=True)
class LengthPrefix:
    """A frame's length before the frame, a big-endian number of ``width`` bytes (RSocket R-2: 3 bytes)."""

    width: int
    "Bytes of the length field."
    inclusive: bool = False
    "True if the length includes its own field."
    reserved: int = 0
    "Bits of the length field that are not part of the number; they are masked when read."

    @property
    def own(self) -> int:
        """Bytes of its own field that the length includes; a limit on the length leaves the frame that much less."""
        return self.width if self.inclusive else 0

    @property
    def most(self) -> int:
        """The longest frame whose length fits, in bytes without the prefix."""
        return (1 << 8 * self.width) - 1 - self.reserved - self.own

    def size(self, data: bytes | memoryview, at: int = 0) -> int:
        """Read the whole length field at ``at``; return the bytes of the frame after it, negative if the length does
        not even cover its own field."""
        length = int.from_bytes(data[at : at + self.width], "big") & ~self.reserved
        return length - self.own

    def split(self, data: bytes) -> Iterator[memoryview]:
        """Yield the frames in ``data`` without their prefixes. ``data`` contains whole frames, as an engine returns."""
        view, at, end = memoryview(data), 0, len(data)
        own, width, number = self.own, self.width, int.from_bytes
        while at < end:
            start = at + width
            at = start + number(data[at:start], "big") - own
            yield view[start:at]

    def join(self, frame: bytes) -> bytes:
        """Return ``frame`` with its prefix.

        Raises:
            OverflowError: the frame is longer than ``most``.
        """
        length = len(frame) + self.own
        return length.to_bytes(self.width, "big") + frame
