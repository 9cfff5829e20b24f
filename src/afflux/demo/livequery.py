"""Run the Spark queries of the live job as a process that can be killed: ``python -m afflux.demo.livequery``.

Both read the flights from the relay. One counts them in windows of an hour of scheduled departures, with a watermark,
and appends the closed windows to a Parquet table. The other one sends each flight to the sink. Spark's checkpoints make
both exactly once. Events are printed to stdout, one JSON object per line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afflux.demo.expected import LATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["main"]

SCHEMA = "year INT, month INT, day INT, hour INT, minute INT, dep_delay INT, carrier STRING, origin STRING"
CHECK_S = 0.25
"Seconds between checks of the queries' progress."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the sink has ``--rows`` rows and the windows before ``--until`` are closed."""
    parser = argparse.ArgumentParser(prog="python -m afflux.demo.livequery")
    parser.add_argument("--relay", required=True)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--rows", required=True, type=int)
    parser.add_argument("--batch", required=True, type=int)
    parser.add_argument("--until", required=True, help="the last watermark, as Spark's progress has it")
    asked = parser.parse_args(arguments)
    from afflux.spark.session import build

    started = time.monotonic()
    spark = build("afflux-demo-live", **{"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"})
    _report("session", seconds=round(time.monotonic() - started, 3))
    try:
        flights = _flights(spark, asked.relay, asked.batch)
        rows = _rows(flights, asked.out, asked.sink)
        _until_planned(spark, rows)
        _watch(_windows(flights, asked.out), rows, asked.rows, asked.until)
        _report("done")
    finally:
        spark.stop()


def _flights(spark: SparkSession, uri: str, batch: int) -> DataFrame:
    """Return the stream of flights, each with its number and its scheduled departure."""
    from pyspark.sql import functions as f

    stream = (
        spark.readStream.format("afflux")
        .option("uri", uri)
        .option("format", "json")
        .option("metadataColumns", "offset AS number")
        .option("maxRowsPerBatch", batch)
        .schema(f"{SCHEMA}, number BIGINT")
        .load()
    )
    return stream.withColumn("scheduled", f.make_timestamp("year", "month", "day", "hour", "minute", f.lit(0)))


def _windows(flights: DataFrame, out: Path) -> StreamingQuery:
    from pyspark.sql import functions as f

    hours = (
        flights.withWatermark("scheduled", f"{LATE.total_seconds():.0f} seconds")
        .groupBy(f.window("scheduled", "1 hour"), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departures"),
            f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("minutes"),
        )
        .select(f.col("window.start").alias("begin"), "origin", "flights", "departures", "minutes")
    )
    writer = hours.writeStream.format("parquet").option("checkpointLocation", str(out / "windows-checkpoint"))
    return writer.start(str(out / "windows"))


def _rows(flights: DataFrame, out: Path, sink: str) -> StreamingQuery:
    rows = flights.select("number", "scheduled", "carrier", "origin", "dep_delay")
    writer = rows.writeStream.format("afflux").option("uri", sink).option("format", "columns")
    return writer.option("checkpointLocation", str(out / "sink-checkpoint")).start()


def _until_planned(spark: SparkSession, query: StreamingQuery) -> None:
    """Wait until the first query runs tasks. Spark sends a map with them that the start of the first Python source
    changes, so a second query that serializes its tasks at that moment would fail with "Task not serializable"."""
    tracker = spark.sparkContext.statusTracker()
    while query.isActive and query.lastProgress is None and not tracker.getActiveJobsIds():
        time.sleep(CHECK_S)


def _watch(windows: StreamingQuery, rows: StreamingQuery, count: int, until: str) -> None:
    """Report figures of the running queries, and stop them at the end."""
    closed = False
    position = 0
    while position < count or not closed:
        time.sleep(CHECK_S)
        for query in (windows, rows):
            if not query.isActive:
                query.awaitTermination()  # raises the query's error
                raise RuntimeError("a query ended before all rows were written")
        if progress := windows.lastProgress:
            # A query that had closed all windows before it was killed runs no batch again: it has no watermark.
            idle = not _ran(progress) and _position(progress) >= count
            closed = idle or progress["eventTime"].get("watermark", "") >= until
        if progress := rows.lastProgress:
            position = max(position, _position(progress))
            latest = _parsed(progress["sources"][0]["latestOffset"])
            figures = {"credit": latest.get("0", {}).get("credit", 0), "stalls": latest.get("stalls", {})}
            _report("figures", rows=position, batch=progress["batchId"], closed=closed, **figures)
    for query in (windows, rows):
        query.stop()


def _parsed(offset: Any) -> dict[str, Any]:
    """Return an offset of the source, which Spark passes as text or parsed; None is an empty one."""
    parsed: dict[str, Any] = (json.loads(offset) if isinstance(offset, str) else offset) or {}
    return parsed


def _ran(progress: Any) -> bool:
    """Whether a batch has ended, and not only a look for new rows."""
    return "addBatch" in progress["durationMs"]


def _position(progress: Any) -> int:
    """Return how many items are in batches that have ended."""
    offset = progress["sources"][0]["endOffset" if _ran(progress) else "startOffset"]
    return int(_parsed(offset).get("0", {}).get("pos", 0))


def _report(event: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
