"""Find the frames in bytes, one after the other: what numpy cannot do for all of them at once.

The functions are plain Python that numba compiles (extra ``fast``). The import of numba takes longer than the frames of
a small capture, so it waits, unless another part of the process has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.packets import PAD, Ints

__all__ = ["PATIENCE", "SHARED", "Boundaries", "boundaries", "compiled", "gather", "records"]

PATIENCE: Final = 800_000
"Frames that are found in plain Python, which takes about as long as the import of numba."


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


def gather(block: Any, at: Any, sizes: Any, out: Any) -> None:
    """Copy pieces of ``block`` one after the other.

    Args:
        block: the bytes.
        at: where each piece begins; negative for none.
        sizes: the bytes of each piece.
        out: receives the pieces.
    """
    place = 0
    for row in range(len(at)):
        start = at[row]
        if start >= 0:
            size = sizes[row]
            piece, target = block[start : start + size], out[place : place + size]
            for octet in range(size):  # compiled, this is fast because both begin at 0
                target[octet] = piece[octet]
            place += size


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

    def find(
        self, data: bytes, starts: Ints, stops: Ints, *, width: int, own: int, mask: int, largest: int
    ) -> tuple[Ints, Ints, Ints]:
        """Return where the frames begin, their sizes, and the tail of each region; see ``boundaries``."""
        most = int((stops - starts).sum()) // width
        at, sizes, tails = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(len(starts), np.int64)
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
        return at[:count].copy(), sizes[:count].copy(), tails  # views would keep all of the arrays

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
        starts = np.empty(max(0, end - at) // 16, np.int64)
        count, rest, wrong = function(np.frombuffer(block, np.uint8), at, end, big, swapped, most, starts)
        return starts[:count], rest, wrong

    def pieces(self, block: bytes, at: Ints, sizes: Ints, total: int) -> npt.NDArray[np.uint8] | bytes:
        """Return pieces of a block, ``total`` bytes, one after the other; see ``gather``."""
        function = self.compiled(gather)
        if function is None:
            places = zip(at.tolist(), sizes.tolist(), strict=True)
            return b"".join([block[start : start + size] for start, size in places if start >= 0])
        out = np.empty(total, np.uint8)
        function(np.frombuffer(block, np.uint8), at, sizes, out)
        return out

    def joined(self, block: bytes, at: Ints, sizes: Ints, total: int) -> bytes:
        """Return pieces of a block as ``pieces`` does, and ``PAD`` after them."""
        pieces: list[Any] = [self.pieces(block, at, sizes, total), PAD]
        return b"".join(pieces)


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
