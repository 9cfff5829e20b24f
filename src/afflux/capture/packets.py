"""Hold the index of some packets of a capture as arrays: where each is, when it was captured, how long it is.

Each column is a numpy array with one element per packet. No object is made for a packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["NO_TIME", "PAD", "Fields", "Ints", "Packets"]

Ints: TypeAlias = npt.NDArray[np.int64]

NO_TIME = -1
"The time of a packet whose record has none."
PAD = bytes(128)
"Bytes after the last one of every block: a header may be read before it is known that it is cut off."


@dataclass(frozen=True, slots=True)
class Packets:
    """Some consecutive packets of a file."""

    block: bytes
    "A part of the file that contains the packets, followed by ``PAD``."
    offset: int
    "Where ``block`` begins in the decompressed file, in bytes."
    number: int
    "The number of the first packet in the file, counted from 0."
    time: Ints
    "Nanoseconds since 1970; ``NO_TIME`` for none."
    interface: Ints
    "The interface, as numbered in the section; 0 in a pcap file."
    linktype: Ints
    "The LINKTYPE of the packet's interface."
    start: Ints
    "Where the packet begins in ``block``."
    captured: Ints
    "Bytes of the packet in the file."
    original: Ints
    "Bytes of the packet on the network."
    numbers: Ints | None = None
    "The number of each packet, if they are not consecutive."

    def __len__(self) -> int:
        return len(self.start)

    def numbered(self, index: int) -> int:
        """Return the number of a packet in its file, counted from 1."""
        return 1 + (self.number + index if self.numbers is None else int(self.numbers[index]))


class Fields:
    """Reads big-endian fields of a block at many positions with one call."""

    __slots__ = ("_u8", "_u16", "_u32", "_u64")

    def __init__(self, block: bytes) -> None:
        # Overlapping views with a stride of one byte: an index is a position, at any alignment.
        self._u8 = np.frombuffer(block, np.uint8)
        self._u16 = np.ndarray((len(block) - 1,), ">u2", block, 0, (1,))
        self._u32 = np.ndarray((len(block) - 3,), ">u4", block, 0, (1,))
        self._u64 = np.ndarray((len(block) - 7,), ">u8", block, 0, (1,))

    def u8(self, at: Ints) -> Ints:
        """Return the byte at each position."""
        return self._u8[at].astype(np.int64)

    def u16(self, at: Ints) -> Ints:
        """Return the 16-bit number at each position."""
        return self._u16[at].astype(np.int64)

    def u32(self, at: Ints) -> Ints:
        """Return the 32-bit number at each position."""
        return self._u32[at].astype(np.int64)

    def u64(self, at: Ints) -> npt.NDArray[np.uint64]:
        """Return the 64-bit number at each position."""
        return self._u64[at].astype(np.uint64)
