"""Histograms in the form of HdrHistogram: its package for PyPI reads ours, and we read its."""

from __future__ import annotations

import base64
import random
import zlib
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("hdrh", reason="beside hdrhistogram of PyPI: pip install hdrhistogram")

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from afflux.bench import Histogram, decode, encode
from afflux.bench.hdrlog import HEADER, line
from afflux.bench.histogram import HOUR_NS
from tests.examples import share


def recorded(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


CHANCE = random.Random(1)
VALUES = [int(CHANCE.lognormvariate(12, 3)) for _ in range(2000)]


@settings(deadline=None, max_examples=share(0.5))
@given(st.lists(st.tuples(st.integers(0, HOUR_NS), st.integers(1, 1 << 40)), max_size=30))
def test_it_reads_what_we_write(values: list[tuple[int, int]]) -> None:
    histogram = Histogram()
    for value, count in values:
        histogram.record(value, count)
    theirs = HdrHistogram.decode(base64.b64encode(encode(histogram)))
    counts = histogram.counts()
    assert [theirs.get_count_at_index(index) for index in range(len(counts))] == counts
    assert (theirs.total_count, theirs.significant_figures) == (histogram.count, 3)
    assert decode(encode(histogram)).counts() == counts


@pytest.mark.parametrize("layout", [(1, HOUR_NS, 3), (1, 10**12, 2), (1000, HOUR_NS, 4)])
def test_we_read_what_it_writes(layout: tuple[int, int, int]) -> None:
    theirs = HdrHistogram(*layout)
    for value in VALUES:
        theirs.record_value(value)
    ours = decode(base64.b64decode(theirs.encode()))
    counts = ours.counts()
    assert counts == list(theirs.counts[: len(counts)])
    assert (ours.lowest, ours.highest, ours.digits) == layout
    assert ours.percentile(90) == theirs.get_value_at_percentile(90)


def test_the_log_is_read_by_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "run.hlog"
    histogram = recorded(VALUES)
    path.write_text(HEADER + line(histogram, "latency of, all", 1_700_000_000.5, 2.25))
    reader = HistogramLogReader(str(path), HdrHistogram(1, HOUR_NS, 3))
    found = reader.get_next_interval_histogram(absolute=True)
    reader.close()
    assert found.get_tag() == "latency_of_all"
    assert (found.get_start_time_stamp(), found.get_end_time_stamp()) == (1_700_000_000_500.0, 1_700_000_002_750.0)
    assert found.get_value_at_percentile(99) == histogram.percentile(99)


def packed(body: bytes, *, offset: int = 0, cookie: int = 0x1C849313, highest: int = HOUR_NS) -> bytes:
    inner = pack(">IIIIqqd", cookie, len(body), offset, 3, 1, highest, 1.0) + body
    data = zlib.compress(inner)
    return pack(">II", 0x1C849314, len(data)) + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode(recorded([1]))[:-1],
        b"\0" + encode(recorded([1]))[1:],
        pack(">II", 0x1C849314, 5) + b"plain",
        packed(b"\x80"),
        packed(b"\x02", offset=1),
        packed(b"\x02", cookie=0x1C849301),
        packed(b"\x02", highest=0),
        packed(b"\xff" * 8 + b"\x01"),  # 2^55 zeros and more
        packed(b"\x02" * 2048, highest=2),
    ],
    ids=["nothing", "cut", "cookie", "not packed", "cut number", "offset", "V1", "no range", "zeros", "too many"],
)
def test_what_is_no_histogram(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"histogram|digits|counts"):
        decode(data)


def test_a_small_input_does_not_become_a_large_one() -> None:
    bomb = zlib.compress(bytes(0x500_0000))
    with pytest.raises(ValueError, match="not a histogram"):
        decode(pack(">II", 0x1C849314, len(bomb)) + bomb)


def test_large_counts_and_zeros() -> None:
    assert decode(packed(b"\x80" * 8 + b"\x01" + b"\x02")).counts() == [1 << 55, 1]
    assert decode(packed(b"\x00\x02\x01\x04")).counts() == [0, 1, 0, 2]
