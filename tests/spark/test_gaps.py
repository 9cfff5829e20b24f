"""SP-12: gaps that a relay has recorded are data loss, not rows."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from afflux.spark.arrow import data_column
from afflux.spark.offsets import Span
from afflux.spark.options import Options
from afflux.spark.reading import DataLost, Driver, SpanReader
from tests.spark.conftest import asked
from tests.spark.serving import GAPS, item

ROUTES = ("gaps", "older-gaps")
"A server that sends stored blocks, and one that sends items."


def span_of(options: Options) -> Span:
    """The whole stream."""
    with Driver(options) as driver:
        state = driver.settled()[0]
    return Span(shard=0, epoch=state.epoch, first=0, end=state.head)


def options(uri: str, route: str, **more: str) -> Options:
    return Options.parse({"uri": uri, "route": route, "requestData": asked(), "pollTimeoutMs": "30000"} | more)


@pytest.mark.parametrize("route", ROUTES)
def test_a_gap_is_data_loss_after_the_items_before_it(uri: str, route: str) -> None:
    span = span_of(options(uri, route))
    cause = (
        "records a gap: 90 items are missing from epoch 77, offset 10 to epoch 77, offset 100: the remote has dropped"
    )
    for first, gap in ((0, 0), (1, 41), (42, 42), (43, 777), (990, 999)):
        reader = SpanReader(options(uri, route), Span(shard=0, epoch=span.epoch, first=first, end=1000))
        found: list[int] = []
        with pytest.raises(DataLost, match=f"offset {gap} of shard 0 of .*, epoch {span.epoch}, {cause}"):
            for chunk in reader:
                found += range(chunk.first, chunk.first + len(chunk))
        assert found == list(range(first, gap))


@pytest.mark.parametrize("route", ROUTES)
def test_a_permitted_gap_is_a_warning_without_a_row(uri: str, route: str, caplog: Any) -> None:
    lenient = options(uri, route, failOnDataLoss="false", includeMetadata="true")
    found: list[tuple[int, bytes, bytes | None]] = []
    with caplog.at_level(logging.WARNING, "afflux.spark"):
        for chunk in SpanReader(lenient, span_of(lenient)):
            items = zip(data_column(chunk).to_pylist(), chunk.metadata(), strict=True)
            found += [(chunk.first + place, *each) for place, each in enumerate(items)]
    wanted = [(number, item(route, number, 0)) for number in range(1000) if number not in GAPS]
    assert found == [(number, each.data, each.metadata) for number, each in wanted if not isinstance(each, bytes)]
    assert len(caplog.records) == len(GAPS) and "data loss accepted: offset 777 of shard 0" in caplog.text


@pytest.mark.spark
def test_a_gap_fails_a_query_or_is_left_out(spark: Any, uri: str) -> None:
    reader = spark.read.format("afflux").options(uri=uri, route="gaps", requestData=asked(), pollTimeoutMs=30_000)
    with pytest.raises(Exception, match=r"DataLost: offset 0 of shard 0 of .* records a gap: 90 items are missing"):
        reader.load().count()
    rows = reader.option("failOnDataLoss", False).option("partitions", 2).load().select("offset").collect()
    assert sorted(row.offset for row in rows) == [number for number in range(1000) if number not in GAPS]
