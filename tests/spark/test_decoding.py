"""Data into columns in a real Spark session: every format, the session's time zone, and what is counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import asked

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

SCHEMA = "id INT, at TIMESTAMP, by MAP<STRING, ARRAY<BIGINT>>, _corrupt_record"
FORMATS = [("json", "STRING"), ("msgpack", "BINARY"), ("cbor", "BINARY"), ("arrow", "BINARY")]
COUNT = 250
MALFORMED = 3


@pytest.fixture(autouse=True)
def new_york(spark: Any) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def load(spark: Any, uri: str, form: str, corrupt: str, **options: object) -> Any:
    given = {"uri": uri, "format": form, "route": f"format-{form}", "requestData": asked(count=COUNT)}
    reader = spark.read.format("afflux").schema(f"{SCHEMA} {corrupt}")
    return reader.options(**given | {"pollTimeoutMs": 30_000} | options).load()


def seconds(at: datetime) -> int:
    return (at.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


@pytest.mark.parametrize(("form", "corrupt"), FORMATS)
def test_formats(spark: Any, uri: str, form: str, corrupt: str) -> None:
    frame = load(spark, uri, form, corrupt).selectExpr("id", "unix_seconds(at) at", "by", "_corrupt_record bad")
    rows = frame.collect()
    good = sorted((row for row in rows if row.bad is None), key=lambda row: row.id)
    assert [row.id for row in good] == [number for number in range(COUNT) if number % 100 != 7]
    assert {row.at for row in good} == {seconds(datetime(2013, 7, 1, 9, 15))}
    assert all(row.by == {"k": [row.id]} for row in good)
    bad = [row for row in rows if row.bad is not None]
    assert len(bad) == MALFORMED and {(row.id, row.at, row.by) for row in bad} == {(None, None, None)}


def test_dropmalformed_and_the_option_time_zone(spark: Any, uri: str) -> None:
    rows = load(spark, uri, "json", "STRING", mode="dropmalformed", timeZone="+01:00")
    assert [(row.n, row.at) for row in rows.selectExpr("count(*) n", "max(unix_seconds(at)) at").collect()] == [
        (COUNT - MALFORMED, seconds(datetime(2013, 7, 1, 4, 15)))
    ]


def test_not_null_columns_are_refused(spark: Any, uri: str) -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    reader = spark.read.format("afflux").schema(StructType([StructField("id", IntegerType(), nullable=False)]))
    with pytest.raises(Exception, match="column id is NOT NULL"):
        reader.options(uri=uri, format="json", route="format-json").load().collect()


def test_malformed_items_are_in_the_progress(spark: Any, uri: str, tmp_path: Path) -> None:
    from pyspark.sql.functions import count, lit

    reader = spark.readStream.format("afflux").schema(f"{SCHEMA} STRING").option("uri", uri).option("format", "json")
    frame = reader.option("route", "format-json").option("requestData", asked(count=COUNT)).load()
    counted = frame.observe("items", count(lit(1)).alias("all"), count("_corrupt_record").alias("malformed"))
    writer = counted.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    metrics = [progress["observedMetrics"]["items"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(each["all"] for each in metrics) == COUNT
    assert sum(each["malformed"] for each in metrics) == MALFORMED
