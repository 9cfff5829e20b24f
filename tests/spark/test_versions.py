"""What differs between versions of Spark, in a few dense tests: ``make spark-versions`` runs them with each."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import asked, running
from tests.spark.serving import item

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.long]

from afflux import sync  # noqa: E402
from afflux.core.errors import Unsupported  # noqa: E402
from afflux.protocols.rsocket.cursor import Head  # noqa: E402
from afflux.spark.format import AffluxFormat  # noqa: E402

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
ROWS = 700


def writing(frame: Any, directory: Path) -> Any:
    """A query into a table, with the batches of what there is now."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "table"))
    query.awaitTermination()
    return query


def test_this_is_the_version_that_is_tried(spark: Any) -> None:
    assert spark.version == pyspark.__version__ == os.environ.get("AFFLUX_SPARK", pyspark.__version__)


def test_a_query_continues_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    """The server has more items at the second start."""
    options: dict[str, Any] = {
        "pollTimeoutMs": 200,
        "maxRowsPerBatch": 300,
        "requestData": asked(count=ROWS, open=True, every_ms=10),
    }
    ends = []
    with running(tmp_path / "journals") as uri:
        with sync.connect(uri) as peer:  # until the server has stored the rows that come at once
            list(peer.stream(options["requestData"], cursor=Head(after=ROWS - 1, wait_ms=30_000)))
        for _ in range(2):
            query = writing(spark.readStream.format("afflux").options(**options, uri=uri).load(), tmp_path)
            progress = [each for each in query.recentProgress if each["numInputRows"]]
            assert progress and all(VERSION < (4, 2) or each["numInputRows"] <= 300 for each in progress)
            ends.append(spark.read.parquet(str(tmp_path / "table")).count())
    assert ends[1] > ends[0] >= ROWS
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [(row.offset, bytes(row.data)) for row in rows] == [(n, item(None, n, 16)) for n in range(ends[1])]


def test_the_latest_items_are_all_that_follow_the_start(spark: Any, tmp_path: Path) -> None:
    data = asked(count=ROWS, open=True, every_ms=10)
    with running(tmp_path / "journals") as uri:
        options = {"uri": uri, "requestData": data, "pollTimeoutMs": 50}
        before = spark.read.format("afflux").options(**options).load().count()
        frame = spark.readStream.format("afflux").options(**options, startingOffsets="latest").load().select("offset")
        for _ in range(2):
            writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.start(str(tmp_path / "table"))
            while not any(each["numInputRows"] for each in query.recentProgress):
                assert not query.awaitTermination(0.05), "the query has ended"
            query.stop()
    offsets = sorted(row.offset for row in spark.read.parquet(str(tmp_path / "table")).collect())
    assert offsets == list(range(offsets[0], offsets[-1] + 1))
    assert offsets[0] >= before > 0


def test_columns_of_the_data_and_sql(spark: Any, uri: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        options = {"uri": uri, "route": "format-json", "format": "json", "requestData": asked(count=250)}
        reader = spark.read.format("afflux").schema("id INT, at TIMESTAMP, by MAP<STRING, ARRAY<INT>>")
        rows = (
            reader.options(**options, pollTimeoutMs=30_000)
            .load()
            .selectExpr("id", "unix_seconds(at) t", "by")
            .collect()
        )
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    good = {row.id: (row.t, row.by) for row in rows if row.id is not None}
    assert good == {n: (1_372_648_500, {"k": [n]}) for n in range(250) if n % 100 != 7}
    spark.sql(f"CREATE TABLE versions USING afflux OPTIONS (uri '{uri}', requestData '{asked(count=9)}')")
    try:
        assert spark.sql("SELECT count(*) n, max(offset) last FROM versions").collect()[0].asDict() == {
            "n": 9,
            "last": 8,
        }
    finally:
        spark.sql("DROP TABLE versions")


def test_a_query_writes_its_rows_once(spark: Any, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    for name in ("a", "b"):
        (lines / name).write_text("".join(f"{name}{number}\n" for number in range(100)))
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(lines))
    frame = frame.selectExpr("cast(value as binary) data")
    if VERSION < (4, 1):
        with pytest.raises(Unsupported, match=r"writing needs Spark 4\.1 or newer; this is 4\.0"):
            AffluxFormat({"uri": "tcp://127.0.0.1:1"}).streamWriter(frame.schema, False)
        return
    from tests.spark.test_sink import Receiving, rows

    receiving = Receiving(tmp_path / "received")
    try:
        for _ in range(2):
            writer = frame.writeStream.format("afflux").options(uri=receiving.uri)
            writer = writer.option("checkpointLocation", str(tmp_path / "out")).trigger(availableNow=True)
            writer.start().awaitTermination()
        assert Counter(rows(receiving.directory)) == Counter(f"{name}{n}".encode() for name in "ab" for n in range(100))
    finally:
        receiving.kill()
