"""A full journal shows in log and progress of a query, and items of earlier versions are read whatever their size."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from afflux.core.limits import Limits
from afflux.journal import Journal
from afflux.protocols.rsocket.cursor import Acknowledge
from afflux.spark.arrow import data_column
from afflux.spark.offsets import Mark, Span
from afflux.spark.options import Options
from afflux.spark.reading import Driver, SpanReader
from tests.spark.conftest import asked, running, until

SMALL = "200000"
"journal_bytes: room for some 8,000 items of 16 bytes."


def stored(directory: Path, data: str, blocks: Iterable[tuple[int, list[bytes]]]) -> tuple[str, Journal]:
    """Put blocks, each with its time, into the journal of a stream; return the address of its server, and the journal.
    Neither is open."""
    with running(directory) as uri, Driver(Options.parse({"uri": uri, "requestData": data})) as one:
        one.settled()
    [path] = directory.glob("*.journal")
    with sqlite3.connect(path) as database:
        [key] = database.execute("SELECT key FROM state").fetchone()
    database.close()
    for file in directory.glob(f"{path.name}*"):
        file.unlink()
    with Journal(path, key=key, limits=Limits.trusted()) as journal:
        for time_us, items in blocks:
            journal.append(items, time_us)
            journal.commit()
        journal.seal()
    return uri, journal


def test_an_item_above_the_limit_that_an_earlier_version_stored(tmp_path: Path) -> None:
    items = [b"before", b"large".ljust(30 << 20, b"."), b"after"]
    data = asked(count=0)
    uri, journal = stored(tmp_path, data, [(0, [item]) for item in items])
    options = Options.parse({"uri": uri, "requestData": data})
    with running(tmp_path, at=uri):
        span = Span(shard=0, epoch=journal.epoch, first=0, end=3)
        assert [data for chunk in SpanReader(options, span) for data in data_column(chunk).to_pylist()] == items
        with Driver(options) as one:
            assert one.item_bytes([span]) == pytest.approx((len(items[0]) + 2 * len(items[1]) + 3 * len(items[2])) / 6)


def reads_all(full: bool) -> Callable[[dict[str, Any]], bool]:
    """Whether a progress says that the query has read all there is of a journal that is full, or is not."""

    def said(progress: dict[str, Any]) -> bool:
        latest, end = (json.loads(progress["sources"][0][name] or "{}") for name in ("latestOffset", "endOffset"))
        if "0" not in latest or latest["0"].get("full", False) is not full or latest["0"]["lag"]:
            return False
        assert full or not end.get("full", False)
        return full or latest["0"]["pos"] == 12_000

    return said


def acknowledge(uri: str, data: str, offset: int) -> None:
    with Driver(Options.parse({"uri": uri, "requestData": data})) as driver:
        epoch = driver.heads()[0].epoch
        done = Acknowledge(epoch=epoch, offset=offset, owner=1, name="test")
        driver.states({0: Mark(epoch, 0)}, acknowledge=[done])


@pytest.mark.spark
def test_a_full_journal_shows_in_the_progress(spark: Any, tmp_path: Path) -> None:
    data = asked(count=12_000, open=True)
    with running(tmp_path / "journals", SMALL) as uri:
        frame = spark.readStream.format("afflux").options(uri=uri, requestData=data, pollTimeoutMs=50).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            head = json.loads(until(query, reads_all(full=True))["sources"][0]["latestOffset"])["0"]["pos"]
            assert 0 < head < 12_000
            acknowledge(uri, data, head)
            until(query, reads_all(full=False))
        finally:
            query.stop()


def test_a_full_journal_is_logged_once(tmp_path: Path, caplog: Any) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from afflux.spark.source import AffluxSource

    data = asked(count=12_000, open=True)
    schema = StructType([StructField("data", BinaryType())])
    with running(tmp_path / "journals", SMALL) as uri, caplog.at_level(logging.WARNING, "afflux.spark"):
        reader = AffluxSource({"uri": uri, "requestData": data, "pollTimeoutMs": "50"}).streamReader(schema)
        end = reader.initialOffset()
        while not end.get("full"):
            end = reader.latestOffset(end)
        assert reader.latestOffset(end) == end
        acknowledge(uri, data, end["0"]["pos"])
        while "full" in end or end["0"]["pos"] < 12_000:
            end = reader.latestOffset(end)
        reader.stop()
    full, room = (record.getMessage() for record in caplog.records)
    assert "shard 0 is full: its producer waits at offset" in full and "shard 0 is not full any more" in room
