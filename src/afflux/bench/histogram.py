"""A histogram of a fixed relative precision, in the layout of HdrHistogram. Counting only: no clock, no files.

1. Values are whole numbers from 0. ``digits`` significant digits of each are kept: with 3, two values share a count
   only if they differ by less than a thousandth.
2. Memory depends on the range and the digits, never on how much is recorded: ``slots`` counts of 8 bytes at most, and
   no more of them than the largest value so far needs.
3. Two histograms of one layout add up: merging them equals recording everything in one.
4. The layout: values below ``2 ** (h + 1)`` have a count each, where that is the least power of two that is not below
   ``2 * 10 ** digits``. Each doubling of the range above has ``2 ** h`` counts more, twice as wide as those before.
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
    """How often each value was seen.

    Args:
        highest: the largest value that is told apart; larger ones count as this one, and in ``clipped``.
        digits: significant digits that are kept, 1 to 5.
        lowest: the smallest difference worth telling; it is rounded down to a power of two.
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
            raise ValueError(f"1 to 5 digits, of 1 or more up to 2^62, not {digits} of {lowest} to {highest}")
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
            ValueError: it is negative.
        """
        if value > self.highest:
            self.clipped += count
            value = self.highest
        elif value < 0 or count < 0:
            raise ValueError(f"values and counts are 0 or more, not {value}, {count} times")
        # The index, written out: this is what a load tool does for every request.
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
        """Add what ``other`` has counted.

        Raises:
            ValueError: its layout is another.
        """
        if (other.digits, other.lowest, other.highest) != (self.digits, self.lowest, self.highest):
            raise ValueError("histograms of different layouts do not add up")
        self._grow(len(other._counts) - 1)
        counts = self._counts
        for index, count in enumerate(other._counts):
            if count:
                counts[index] += count
        self.count += other.count
        self.clipped += other.clipped
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)

    # -- asking ---------------------------------------------------------------------------------------------

    @property
    def min(self) -> int:
        """The least value recorded, exactly; 0 when there is none."""
        return self._min if self.count else 0

    @property
    def max(self) -> int:
        """The greatest value recorded, exactly, but for those above ``highest``; 0 when there is none."""
        return self._max

    def percentile(self, percent: float) -> int:
        """A value that at least ``percent`` % of all values do not exceed: the least one, by the precision kept. It is
        never more than ``max``; 0 when nothing was recorded.

        Raises:
            ValueError: ``percent`` is not 0 to 100.
        """
        return self.percentiles([percent])[0]

    def percentiles(self, percents: Iterable[float]) -> list[int]:
        """Several percentiles for the price of one."""
        found = []
        sums = list(accumulate(self._counts))
        for percent in percents:
            if not 0 <= percent <= 100:
                raise ValueError(f"a percentile is 0 to 100, not {percent:g}")
            rank = max(1, math.ceil(round(percent * self.count / 100, 6)))
            index = bisect_left(sums, rank)
            found.append(min(self.range_at(index)[1], self.max) if self.count else 0)
        return found

    @property
    def mean(self) -> float:
        """The mean, by the precision kept; 0.0 when nothing was recorded."""
        return min(max(self._rough_mean(), self.min), self.max)

    @property
    def stddev(self) -> float:
        """The standard deviation of all values, by the precision kept; 0.0 when nothing was recorded."""
        if not self.count:
            return 0.0
        mean = self._rough_mean()
        squares = sum((_middle(least, greatest) - mean) ** 2 * count for least, greatest, count in self.buckets())
        return math.sqrt(squares / self.count)

    def buckets(self) -> Iterator[tuple[int, int, int]]:
        """``(least, greatest, count)`` for each range of values that were seen, in order."""
        for index, count in enumerate(self._counts):
            if count:
                yield (*self.range_at(index), count)

    # -- the layout -----------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Counts that there may be at most."""
        return self.index_of(self.highest) + 1

    def index_of(self, value: int) -> int:
        """Which count a value has."""
        bucket = (value | self._mask).bit_length() - self._width
        return int((bucket << self._half) + (value >> bucket + self._shift))

    def range_at(self, index: int) -> tuple[int, int]:
        """The least and the greatest value of a count."""
        bucket = max(0, (index >> self._half) - 1)
        width = bucket + self._shift
        least = (index - (bucket << self._half)) << width
        return least, least + (1 << width) - 1

    def counts(self) -> list[int]:
        """Every count, up to the last one that is not 0."""
        return self._counts[: self.index_of(self._max) + 1].tolist() if self.count else []

    def set_counts(self, counts: Iterable[int]) -> None:
        """Record by index: what ``counts`` of another histogram gave. Least and greatest are known by the precision
        kept.

        Raises:
            ValueError: more counts than the layout has.
        """
        for index, count in enumerate(counts):
            if count:
                if index >= self.slots:
                    raise ValueError(f"more counts than {self.slots}")
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

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __bool__(self) -> bool:
        return self.count > 0

    # -- inside ---------------------------------------------------------------------------------------------

    def _rough_mean(self) -> float:
        """The mean of the ranges' middles; it may lie a little beside all that was seen."""
        return sum(_middle(*bucket) for bucket in self.buckets()) / self.count if self.count else 0.0

    def _grow(self, index: int) -> None:
        """Have room for an index: by whole doublings of the range, so that it seldom happens."""
        missing = (((index >> self._half) + 1) << self._half) - len(self._counts)
        if missing > 0:
            self._counts.frombytes(bytes(8 * missing))


def _middle(least: int, greatest: int, count: int = 1) -> int:
    """What stands for a range in a mean: its middle, rounded up."""
    return (least + greatest + 1) // 2 * count
