"""Add amounts over time in a bounded number of intervals. The intervals double when the time range outgrows them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Timeline"]

_PIECE: Final = 1024
"Durations that are spread over the intervals at once; bounds the memory of that."


class Timeline:
    """Sums per interval of time and series. Times are microseconds since 1970, in any order.

    Args:
        series: how many amounts an interval has.
        most: how many intervals there are at most.
        width: the first width of an interval, in microseconds.
    """

    __slots__ = ("_first", "_most", "_sums", "width")

    def __init__(self, series: int, most: int, width: int = 1000) -> None:
        self._most = most
        self._first = 0
        self._sums = np.zeros((series, 0))
        self.width = width

    def __len__(self) -> int:
        return self._sums.shape[1]

    def rows(self) -> list[tuple[int, list[float]]]:
        """Return the start of each interval, in microseconds since 1970, and its sums."""
        return [((self._first + at) * self.width, sums) for at, sums in enumerate(self._sums.T.tolist())]

    def add(self, series: int, times: NDArray[np.int64], amounts: NDArray[Any]) -> None:
        """Add an amount at each of the times."""
        if len(times):
            self._cover(int(times.min()), int(times.max()))
            places = times // self.width - self._first
            self._sums[series] += np.bincount(places, weights=amounts, minlength=len(self))

    def spread(self, series: int, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Add the microseconds that each duration spends in each interval."""
        if not len(starts):
            return
        self._cover(int(starts.min()), int(stops.max()))
        edges = (self._first + np.arange(len(self) + 1)) * self.width
        for at in range(0, len(starts), _PIECE):
            low, high = starts[at : at + _PIECE, None], stops[at : at + _PIECE, None]
            self._sums[series] += np.diff(np.clip(edges, low, high), axis=1).sum(axis=0)

    def _cover(self, low: int, high: int) -> None:
        """Extend the intervals so that they include both times."""
        while True:
            first, last = low // self.width, high // self.width
            if len(self):
                first, last = min(first, self._first), max(last, self._first + len(self) - 1)
            if last - first < self._most:
                break
            self._double()
        if len(self):
            before, after = self._first - first, last - (self._first + len(self) - 1)
        else:
            before, after = 0, last - first + 1
        self._sums = np.pad(self._sums, ((0, 0), (before, after)))
        self._first = first

    def _double(self) -> None:
        """Merge each two intervals into one."""
        self.width *= 2
        if not len(self):
            return
        odd = self._first % 2
        sums = np.pad(self._sums, ((0, 0), (odd, (odd + len(self)) % 2)))
        self._sums = sums[:, ::2] + sums[:, 1::2]
        self._first //= 2
