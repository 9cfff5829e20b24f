"""Find the frames in bytes, one after the other: what numpy cannot do for all of them at once.

The functions are plain Python that numba compiles (extra ``fast``). The import of numba takes longer than the frames of
a small capture, so it waits, unless another part of the process has imported it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.packets import PAD, Ints

__all__ = ["PATIENCE", "SHARED", "Boundaries", "Room", "boundaries", "compiled", "gather", "records"]

PATIENCE: Final = 800_000
"Frames that are found in plain Python, which takes about as long as the import of numba."
_MOST_KEPT: Final = 0x40_0000
"Numbers whose memory is used again, at most: enough for the frames of a batch of a file (see ``tables.CHUNK``)."
_COPIED: Final = 0x2_0000
"Bytes that are copied at once: the processor may write longer pieces past its caches, and these are read next."


def boundaries(
    data: Any,
    starts: Any,
    stops: Any,
    at: Any,
    sizes: Any,
    tails: Any,
    width: int,
    own: int,
    mask: int,
    largest: int,
) -> int:
    """Find the length-prefixed frames in some regions of ``data``; return how many.

    Args:
        data: the bytes.
        starts: where each region begins.
        stops: where each region ends.
        at: receives where each frame begins, without its prefix.
        sizes: receives the bytes of each frame.
        tails: receives where the last, incomplete frame of each region begins: its prefix. -1 for a region with a
            length that is illegal or above ``largest``; no frames of such a region are returned.
        width: bytes of the prefix.
        own: bytes of the prefix that a length includes.
        mask: the bits of the prefix that are the length.
        largest: the longest frame.
    """
    count = 0
    for region in range(len(starts)):
        here, stop, first = starts[region], stops[region], count
        while stop - here >= width:
            length = data[here] << 16 | data[here + 1] << 8 | data[here + 2]
            for place in range(3, width):
                length = length << 8 | data[here + place]
            length = (length & mask) - own
            if length < 0 or length > largest:
                count, here = first, -1
                break
            if length > stop - here - width:
                break
            here += width
            at[count] = here
            sizes[count] = length
            count += 1
            here += length
        tails[region] = here
    return count


def gather(block: Any, at: Any, sizes: Any, places: Any, out: Any) -> None:
    """Copy pieces of ``block``.

    Args:
        block: the bytes.
        at: where each piece begins; negative for none.
        sizes: the bytes of each piece.
        places: where in ``out`` each piece is copied to.
        out: receives the pieces.
    """
    for row in range(len(at)):
        start = at[row]
        if start >= 0:
            size, place = sizes[row], places[row]
            piece, target = block[start : start + size], out[place : place + size]
            for octet in range(size):  # compiled, this is fast because both begin at 0
                target[octet] = piece[octet]


def records(data: Any, at: int, end: int, big: bool, swapped: bool, most: int, starts: Any) -> tuple[int, int, bool]:
    """Find the records of a pcap file in ``data[at:end]``.

    Args:
        data: the bytes.
        at: where the first record begins.
        end: the end of the bytes.
        big: numbers are big-endian.
        swapped: the length of the packet is before the length that was captured.
        most: the longest record.
        starts: receives where each record begins.

    Returns:
        How many there are, where the rest begins, and whether the record there has a wrong length.
    """
    count = 0
    while end - at >= 16:
        first, second = 0, 0
        for place in range(4):
            octet = place if big else 3 - place
            first = first << 8 | data[at + 8 + octet]
            second = second << 8 | data[at + 12 + octet]
        captured, original = (second, first) if swapped else (first, second)
        if captured > most or captured > original:
            return count, at, True
        if at + 16 + captured > end:
            break
        starts[count] = at
        count += 1
        at += 16 + captured
    return count, at, False


class Room(threading.local):
    """Memory that a thread uses again and again, for what is needed until the next batch. The system has to clear the
    pages of fresh memory, which can take longer than to fill them."""

    def __init__(self) -> None:
        self._kept: Ints = np.empty(0, np.int64)

    def numbers(self, count: int) -> Ints:
        """Return numbers without content, which are valid until the next call in this thread."""
        if count > _MOST_KEPT:
            return np.empty(count, np.int64)
        if count > len(self._kept):
            self._kept = np.empty(_MOST_KEPT, np.int64)  # it takes pages only as they are filled
        return self._kept[:count]

    def octets(self, count: int) -> npt.NDArray[np.uint8]:
        """Return bytes without content, which are valid until the next call in this thread."""
        return self.numbers(-(-count // 8)).view(np.uint8)[:count]


class Boundaries:
    """Calls ``boundaries``, compiled if that is worth it.

    Args:
        patience: frames that are found before numba is imported.
    """

    def __init__(self, patience: int = PATIENCE) -> None:
        self._left = patience
        self._patient = patience > 0
        self._compiled: Callable[..., Any] | None = None
        self._functions: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.room = Room()
        "Memory for what is of no use after the next call."

    def find(
        self, data: bytes, starts: Ints, stops: Ints, *, width: int, own: int, mask: int, largest: int
    ) -> tuple[Ints, Ints, Ints]:
        """Return where the frames begin, their sizes, and the tail of each region; see ``boundaries``."""
        at, sizes = self.room.numbers(int((stops - starts).sum()) // width * 2).reshape(2, -1)
        tails: Ints = np.empty(len(starts), np.int64)
        if self._compiled is None and (self._left <= 0 or (self._patient and "numba" in sys.modules)):
            made = compiled(boundaries)
            self._compiled = None if made is boundaries else made
            self._left, self._patient = PATIENCE, False
        if self._compiled is not None:
            octets: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
            count = self._compiled(octets, starts, stops, at, sizes, tails, width, own, mask, largest)
        else:
            out: list[Any] = [column.data for column in (at, sizes, tails)]  # faster than the array, item by item
            count = boundaries(data, starts.tolist(), stops.tolist(), out[0], out[1], out[2], width, own, mask, largest)
            self._left -= count
        return at[:count].copy(), sizes[:count].copy(), tails

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return a function compiled, once ``boundaries`` is; None before."""
        if self._compiled is None:
            return None
        made = self._functions.get(function)
        if made is None:
            made = self._functions[function] = compiled(function)
        return made

    def records(
        self, block: bytes, at: int, end: int, *, big: bool, swapped: bool, most: int
    ) -> tuple[Ints, int, bool] | None:
        """Return where records begin, and what ``records`` does; None if that is not compiled, so that there are faster
        ways."""
        function = self.compiled(records)
        if function is None:
            return None
        starts = self.room.numbers(max(0, end - at) // 16)
        count, rest, wrong = function(np.frombuffer(block, np.uint8), at, end, big, swapped, most, starts)
        return starts[:count].copy(), rest, wrong

    def pieces(self, block: bytes, at: Ints, sizes: Ints, places: Ints, total: int) -> npt.NDArray[np.uint8] | bytes:
        """Return pieces of a block, ``total`` bytes without a gap; see ``gather``."""
        function = self.compiled(gather)
        if function is None:
            listed = zip(at.tolist(), sizes.tolist(), strict=True)
            return b"".join([block[start : start + size] for start, size in listed if start >= 0])
        out = np.empty(total, np.uint8)
        function(np.frombuffer(block, np.uint8), at, sizes, places, out)
        return out

    def joined(
        self, block: bytes, at: Ints, sizes: Ints, places: Ints, total: int, others: Sequence[tuple[int, bytes]] = ()
    ) -> bytes:
        """Return ``total`` bytes, and ``PAD`` after them: pieces of a block, and other bytes at other places."""
        function = self.compiled(gather)
        if function is None:
            return _copied(block, zip(at.tolist(), sizes.tolist(), places.tolist(), strict=True), total, others)
        out = self.room.octets(total + len(PAD))
        function(np.frombuffer(block, np.uint8), at, sizes, places, out)
        for place, other in others:
            out[place : place + len(other)] = np.frombuffer(other, np.uint8)
        out[total:] = 0
        view = out.data
        return b"".join([view[begin : begin + _COPIED] for begin in range(0, len(out), _COPIED)])


def _copied(
    block: bytes, pieces: Iterable[tuple[int, int, int]], total: int, others: Sequence[tuple[int, bytes]]
) -> bytes:
    """Return what ``Boundaries.joined`` does."""
    out, view = bytearray(total + len(PAD)), memoryview(block)
    for start, size, place in pieces:
        out[place : place + size] = view[start : start + size]
    for place, other in others:
        out[place : place + len(other)] = other
    return bytes(out)


SHARED: Final = Boundaries()
"For all captures of the process."


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled by numba, or the function itself if numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return function
    try:
        made: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no directory for the cache
        made = njit(nogil=True)(function)
    return made
