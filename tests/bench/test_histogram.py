"""The histogram, beside HdrHistogram (PyPI) on the same values: the same counts, percentiles, mean and deviation."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("hdrh", reason="beside hdrhistogram of PyPI: pip install hdrhistogram")

from hdrh.histogram import HdrHistogram

from afflux.bench import Histogram
from afflux.bench.histogram import HOUR_NS
from tests.examples import share

PERCENTS = (0.1, 1, 5, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100)
LAYOUTS = [(1, HOUR_NS, 3), (1, 10**6, 1), (1, 10**9, 2), (1, 10**6, 4), (7, 10**9, 3), (1000, HOUR_NS, 3)]


def theirs(values: Sequence[int], lowest: int, highest: int, digits: int) -> Any:
    histogram = HdrHistogram(lowest, highest, digits)
    for value in values:
        assert histogram.record_value(value)
    return histogram


def ours(values: Sequence[int], lowest: int, highest: int, digits: int) -> Histogram:
    histogram = Histogram(highest, digits, lowest)
    histogram.record_many(values)
    return histogram


def compare(values: Sequence[int], layout: tuple[int, int, int]) -> tuple[Histogram, Any]:
    """Theirs rounds the rank of a percentile to the nearest, ours up: so theirs is asked for the rank itself."""
    mine, other = ours(values, *layout), theirs(values, *layout)
    counts = mine.counts()
    assert counts == list(other.counts[: len(counts)])
    assert sum(counts) == mine.count == other.total_count
    ranks = [max(1, math.ceil(round(percent * mine.count / 100, 6))) for percent in PERCENTS]
    found = other.get_percentile_to_value_dict([100 * rank / mine.count for rank in ranks])
    expected = [min(found[100 * rank / mine.count], max(values)) for rank in ranks]
    assert mine.percentiles(PERCENTS) == expected
    assert mine.mean == pytest.approx(min(max(other.get_mean_value(), min(values)), max(values)), rel=1e-12)
    assert (mine.min, mine.max) == (min(values), max(values))
    return mine, other


SHAPES: dict[str, Callable[[random.Random], float]] = {
    "even": lambda chance: chance.uniform(0, 1e6),
    "latencies": lambda chance: chance.lognormvariate(12, 1),
    "two humps": lambda chance: chance.gauss(2e5, 1e4) if chance.random() < 0.9 else chance.gauss(8e5, 1e4),
    "long tail": lambda chance: chance.paretovariate(1.1) * 1000,
    "one value": lambda chance: 777,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_counts_as_hdrhistogram_does(shape: str, layout: tuple[int, int, int]) -> None:
    chance = random.Random(shape)
    values = [min(layout[1], max(0, int(SHAPES[shape](chance)))) for _ in range(2000)]
    mine, other = compare(values, layout)
    assert mine.stddev == pytest.approx(other.get_stddev(), rel=1e-9)


@settings(deadline=None, max_examples=share(0.5))
@given(st.lists(st.integers(0, HOUR_NS), min_size=1, max_size=50), st.sampled_from([1, 2, 3]))
def test_it_counts_any_values_as_hdrhistogram_does(values: list[int], digits: int) -> None:
    compare(values, (1, HOUR_NS, digits))


@settings(deadline=None)
@given(st.lists(st.integers(0, HOUR_NS)), st.lists(st.integers(0, HOUR_NS)))
def test_two_merged_are_one_that_has_recorded_all(some: list[int], more: list[int]) -> None:
    layout = (1, HOUR_NS, 3)
    merged = ours(some, *layout)
    merged.merge(ours(more, *layout))
    assert merged == ours(some + more, *layout)


@settings(deadline=None)
@given(st.integers(0, HOUR_NS), st.integers(1, 5))
def test_a_value_keeps_its_digits(value: int, digits: int) -> None:
    histogram = Histogram(digits=digits)
    least, greatest = histogram.range_at(histogram.index_of(value))
    assert least <= value <= greatest
    assert greatest - least <= value * 10**-digits


def test_counts_of_many() -> None:
    one, many = Histogram(), Histogram()
    one.record(1234, 5)
    one.record(99, 0)
    many.record_many([1234] * 5)
    assert one == many
    assert list(one.buckets()) == [(1234, 1234, 5)]


def test_memory_depends_on_the_range_and_not_on_the_values() -> None:
    histogram = Histogram()
    histogram.record_many(10**power + step for power in range(13) for step in range(0, 10**power, 1 + 10**power // 50))
    histogram.record(5, 10**12)
    assert len(histogram.counts()) <= histogram.slots <= 33 * 1024
    assert len(Histogram().counts()) == 0


def test_what_is_too_large_counts_as_the_largest() -> None:
    histogram = Histogram(1000)
    histogram.record(1001)
    histogram.record(10**30, 2)
    assert (histogram.count, histogram.clipped, histogram.max, histogram.percentile(50)) == (3, 3, 1000, 1000)
    other = Histogram(1000)
    other.record(1000, 3)
    assert histogram != other
    other.merge(histogram)
    assert (other.count, other.clipped) == (6, 3)


def test_an_empty_one() -> None:
    histogram = Histogram()
    assert (histogram.min, histogram.max, histogram.mean, histogram.stddev, histogram.percentile(99)) == (0, 0, 0, 0, 0)
    assert not histogram
    assert list(histogram.buckets()) == []


def test_a_percentile_is_never_hidden_by_rounding() -> None:
    """60 values: 99 % of them are 59.4 values. The least that so many do not exceed is the last."""
    histogram = Histogram()
    histogram.record(1, 59)
    histogram.record(1000)
    assert histogram.percentile(99) == 1000
    assert histogram.percentiles([50, 98]) == [1, 1]


def test_figures_lie_within_what_was_seen() -> None:
    histogram = Histogram(digits=1)
    histogram.record(1_000_000)
    assert (histogram.percentile(50), histogram.mean, histogram.min) == (1_000_000, 1_000_000, 1_000_000)


@pytest.mark.parametrize("percent", [-0.1, 100.1, math.nan])
def test_a_percentile_is_a_percentage(percent: float) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        Histogram().percentile(percent)


@pytest.mark.parametrize(
    "layout", [(HOUR_NS, 0, 1), (HOUR_NS, 6, 1), (HOUR_NS, 3, 0), (1, 3, 1), (1 << 62, 3, 1), (10, 3, 6)]
)
def test_a_layout_that_can_not_be(layout: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="digits"):
        Histogram(*layout)


def test_values_that_can_not_be() -> None:
    for value, count in ((-1, 1), (1, -1)):
        with pytest.raises(ValueError, match="negative value or count"):
            Histogram().record(value, count)


def test_layouts_do_not_mix() -> None:
    for other in (Histogram(digits=2), Histogram(1000), Histogram(lowest=2)):
        with pytest.raises(ValueError, match="layouts"):
            Histogram().merge(other)
        assert other != Histogram()
    assert Histogram() != 1


def test_it_goes_through_a_pipe() -> None:
    histogram = Histogram()
    histogram.record_many([1, 10**9, 10**15])
    copy = pickle.loads(pickle.dumps(histogram))
    assert copy == histogram
    copy.record(10**12)
    assert copy.count == 4


def test_counts_by_index_come_back() -> None:
    histogram = ours([5, 70_000, HOUR_NS], 1, HOUR_NS, 3)
    copy = Histogram()
    copy.set_counts(histogram.counts())
    assert copy.counts() == histogram.counts()
    assert copy.min <= 5
    with pytest.raises(ValueError, match="more than 1001 counts"):
        Histogram(1000).set_counts([0] * 5000 + [1])
