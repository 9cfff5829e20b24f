"""Count values in a histogram of fixed relative precision, in the layout of HdrHistogram.

1. Values are integers from 0, recorded with ``digits`` significant digits: with 3, two values share a count only if
   they differ by less than a thousandth.
2. Memory depends on the range and the digits, not on the number of values: at most ``slots`` counts of 8 bytes, and
   only as many as the largest value so far requires.
3. Histograms of the same layout can be merged: the result equals recording everything in one.
4. Layout: values below ``2 ** (h + 1)``, the smallest power of two not below ``2 * 10 ** digits``, have one count each.
   Each doubling of the range above adds ``2 ** h`` counts, each twice as wide as those before.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

__all__ = ["HOUR_NS", "Histogram"]

HOUR_NS = 3_600_000_000_000
"An hour in nanoseconds."


class Histogram:
    """Count how often each value was recorded.

    Args:
        highest: the largest distinct value; larger ones count as this one, and in ``clipped``.
        digits: significant digits, 1 to 5.
        lowest: the smallest distinguishable difference; rounded down to a power of two.
    """

    __slots__ = (
        "_counts",
        "_half",
        "_mask",
        "_max",
        "_min",
        "_shift",
        "_width",
        "clipped",
        "count",
        "digits",
        "highest",
        "lowest",
    )

    def __init__(self, highest: int = HOUR_NS, digits: int = 3, lowest: int = 1) -> None:
        if not (1 <= digits <= 5 and lowest >= 1 and 2 * lowest <= highest < 1 << 62):
            raise ValueError(f"invalid histogram: {digits} digits (1 to 5) of {lowest} to {highest} (1 to 2^62)")
        self.highest = highest
        self.digits = digits
        self.lowest = lowest
        self.count = 0
        "Values recorded."
        self.clipped = 0
        "Values above ``highest``."
        self._shift = lowest.bit_length() - 1
        self._half = (2 * 10**digits - 1).bit_length() - 1
        self._width = self._half + 1 + self._shift
        self._mask = (1 << self._width) - 1
        self._min = highest
        self._max = 0
        self._counts = array("Q", bytes(8 << self._half + 1))

    # -- recording ------------------------------------------------------------------------------------------

    def record(self, value: int, count: int = 1) -> None:
        """Count ``value``, ``count`` times.

        Raises:
            ValueError: ``value`` or ``count`` is negative.
        """
        if value > self.highest:
            self.clipped += count
            value = self.highest
        elif value < 0 or count < 0:
            raise ValueError(f"negative value or count: {value}, {count} times")
        # index_of, inlined: a load test runs this for every request.
        bucket = (value | self._mask).bit_length() - self._width
        index = (bucket << self._half) + (value >> bucket + self._shift)
        try:
            self._counts[index] += count
        except IndexError:
            self._grow(index)
            self._counts[index] += count
        self.count += count
        if count:
            if value > self._max:
                self._max = value
            if value < self._min:
                self._min = value

    def record_many(self, values: Iterable[int]) -> None:
        """Count each of ``values`` once."""
        record = self.record
        for value in values:
            record(value)

    def merge(self, other: Histogram) -> None:
        """Add the counts of ``other``.

        Raises:
            ValueError: the layouts differ.
        """
        if (other.digits, other.lowest, other.highest) != (self.digits, self.lowest, self.highest):
            raise ValueError("cannot merge histograms of different layouts")
        self._grow(len(other._counts) - 1)
        counts = self._counts
        for index, count in enumerate(other._counts):
            if count:
                counts[index] += count
        self.count += other.count
        self.clipped += other.clipped
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)

    # -- results --------------------------------------------------------------------------------------------

    @property
    def min(self) -> int:
        """The exact minimum; 0 if nothing was recorded."""
        return self._min if self.count else 0

    @property
    def max(self) -> int:
        """The exact maximum, up to ``highest``; 0 if nothing was recorded."""
        return self._max

    def percentile(self, percent: float) -> int:
        """Return the smallest value that at least ``percent`` % of all values do not exceed, within the precision and
        never above ``max``; 0 if nothing was recorded.

        Raises:
            ValueError: ``percent`` is not 0 to 100.
        """
        return self.percentiles([percent])[0]

    def percentiles(self, percents: Iterable[float]) -> list[int]:
        """Return several percentiles in one pass."""
        found = []
        sums = list(accumulate(self._counts))
        for percent in percents:
            if not 0 <= percent <= 100:
                raise ValueError(f"invalid percentile {percent:g}: expected 0 to 100")
            rank = max(1, math.ceil(round(percent * self.count / 100, 6)))
            index = bisect_left(sums, rank)
            found.append(min(self.range_at(index)[1], self.max) if self.count else 0)
        return found

    @property
    def mean(self) -> float:
        """The mean, within the precision; 0.0 if nothing was recorded."""
        return min(max(self._rough_mean(), self.min), self.max)

    @property
    def stddev(self) -> float:
        """The standard deviation of all values, within the precision; 0.0 if nothing was recorded."""
        if not self.count:
            return 0.0
        mean = self._rough_mean()
        squares = sum((_middle(least, greatest) - mean) ** 2 * count for least, greatest, count in self.buckets())
        return math.sqrt(squares / self.count)

    def buckets(self) -> Iterator[tuple[int, int, int]]:
        """Yield ``(least, greatest, count)`` for each range with recorded values, in order."""
        for index, count in enumerate(self._counts):
            if count:
                yield (*self.range_at(index), count)

    # -- the layout -----------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Maximum number of counts."""
        return self.index_of(self.highest) + 1

    def index_of(self, value: int) -> int:
        """Return the index of a value's count."""
        bucket = (value | self._mask).bit_length() - self._width
        return int((bucket << self._half) + (value >> bucket + self._shift))

    def range_at(self, index: int) -> tuple[int, int]:
        """Return the least and the greatest value of the count at ``index``."""
        bucket = max(0, (index >> self._half) - 1)
        width = bucket + self._shift
        least = (index - (bucket << self._half)) << width
        return least, least + (1 << width) - 1

    def counts(self) -> list[int]:
        """Return every count, up to the last one that is not 0."""
        return self._counts[: self.index_of(self._max) + 1].tolist() if self.count else []

    def set_counts(self, counts: Iterable[int]) -> None:
        """Record the result of another histogram's ``counts``. Minimum and maximum are rounded to the precision.

        Raises:
            ValueError: there are more counts than the layout has.
        """
        for index, count in enumerate(counts):
            if count:
                if index >= self.slots:
                    raise ValueError(f"more than {self.slots} counts")
                least, greatest = self.range_at(index)
                self.record(min(greatest, self.highest), count)
                self._min = min(self._min, least)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine, theirs = (
            (each.lowest, each.highest, each.digits, each.count, each.clipped, each.min, each.max, each.counts())
            for each in (self, other)
        )
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __bool__(self) -> bool:
        return self.count > 0

    # -- internals ------------------------------------------------------------------------------------------

    def _rough_mean(self) -> float:
        """Return the mean of the ranges' midpoints, which may be slightly outside of the recorded values."""
        return sum(_middle(*bucket) for bucket in self.buckets()) / self.count if self.count else 0.0

    def _grow(self, index: int) -> None:
        """Extend the counts to an index, by whole doublings of the range so that it is rare."""
        missing = (((index >> self._half) + 1) << self._half) - len(self._counts)
        if missing > 0:
            self._counts.frombytes(bytes(8 * missing))


def _middle(least: int, greatest: int, count: int = 1) -> int:
    """Return the midpoint of a range, rounded up, times its count."""
    return (least + greatest + 1) // 2 * count
