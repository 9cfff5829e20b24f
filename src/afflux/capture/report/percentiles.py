"""Count durations in logarithmic bins, in constant memory, and read percentiles from the counts."""

from __future__ import annotations

from math import log
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRECISION", "Percentiles"]

_LOWEST: Final = 1e-7
"Seconds. Shorter durations are counted as this long."
_HIGHEST: Final = 1e6
_GROWTH: Final = 1.01
_BINS: Final = int(log(_HIGHEST / _LOWEST) / log(_GROWTH)) + 2
PRECISION: Final = (_GROWTH - 1) / 2
"The greatest relative error of a percentile, within the range of the bins."


class Percentiles:
    """Durations in seconds, in ``_BINS`` bins whose bounds grow by one percent."""

    __slots__ = ("_counts", "count", "highest", "lowest")

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        self.count = 0
        self.lowest = float("inf")
        self.highest = 0.0

    def add(self, seconds: NDArray[Any]) -> None:
        """Count durations; NaN counts as none."""
        seconds = seconds[~np.isnan(seconds)]
        if not len(seconds):
            return
        within = np.clip(seconds, _LOWEST, _HIGHEST)
        self._counts += np.bincount((np.log(within / _LOWEST) / log(_GROWTH)).astype(np.int64), minlength=_BINS)
        self.count += len(seconds)
        self.lowest = min(self.lowest, float(seconds.min()))
        self.highest = max(self.highest, float(seconds.max()))

    def at(self, share: float) -> float | None:
        """Return the duration that this share of the durations does not exceed; None if there are none."""
        if not self.count:
            return None
        rank = max(1, int(np.ceil(share * self.count - 1e-9)))
        if rank == self.count:
            return self.highest
        where = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = float(_LOWEST * _GROWTH ** (where + 0.5))
        return min(max(middle, self.lowest), self.highest)
