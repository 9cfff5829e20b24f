"""Run the Spark query of the demo job as a process that can be killed: ``python -m afflux.demo.query``.

Reads the flights with ``format("afflux")``. Each batch writes, under its number, the flights (``flights/batch=N``) and
their delays by carrier and hour (``delays/batch=N``). A batch that is repeated after a crash overwrites its files;
together with a replayable source this gives exactly-once results. After the last row, the delays are summed into
``by_carrier`` and ``by_hour``. Events are printed to stdout, one JSON object per line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afflux.demo import flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SCHEMA", "main"]

SCHEMA = ", ".join(f"{name} {'STRING' if name in flights.TEXT else 'INT'}" for name in flights.COLUMNS)
"The columns of a flight as a Spark schema."

CHECK_S = 1
"Seconds between checks of the query's progress."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until ``--rows`` rows are written."""
    parser = argparse.ArgumentParser(prog="python -m afflux.demo.query")
    parser.add_argument("--uri", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--rows", required=True, type=int)
    parser.add_argument("--batch", required=True, type=int)
    asked = parser.parse_args(arguments)
    started = time.monotonic()
    spark = _session()
    _report("session", seconds=round(time.monotonic() - started, 3))
    try:
        _watch(_start(spark, asked.uri, asked.out, asked.rows, asked.batch), asked.rows)
        _add_up(spark, asked.out)
        _report("done")
    finally:
        spark.stop()


def _session() -> SparkSession:
    from afflux.spark.session import build

    return build("afflux-demo", **{"spark.sql.shuffle.partitions": "2"})


def _start(spark: SparkSession, uri: str, out: Path, rows: int, batch: int) -> StreamingQuery:
    stream = (
        spark.readStream.format("afflux")
        .option("uri", uri)
        .option("route", "flights")
        .option("requestData", json.dumps({"count": rows}))
        .option("startingOffsets", "earliest")
        .option("maxRowsPerBatch", batch)
        .load()
    )
    return (
        stream.writeStream.foreachBatch(_Writer(out))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )


class _Writer:
    """Write one batch under its number. A repeated batch replaces it."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __call__(self, batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as f

        parsed = f.from_json(batch["data"].cast("string"), SCHEMA)
        table = batch.select("offset", parsed.alias("flight")).select("offset", "flight.*").persist()
        try:
            if number == 0 and table.isEmpty():
                return  # the first batch of a new checkpoint may only fix where to start
            table.write.mode("overwrite").parquet(str(self._out / "flights" / f"batch={number}"))
            delays = table.groupBy("carrier", "hour").agg(
                f.count("*").alias("flights"),
                f.count("dep_delay").alias("departures"),
                f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("minutes"),
                f.max("offset").alias("last"),
            )
            delays.persist()
            delays.coalesce(1).write.mode("overwrite").parquet(str(self._out / "delays" / f"batch={number}"))
            totals = delays.agg(f.sum("flights"), f.max("last")).collect()[0]
            delays.unpersist()
            _report("written", batch=number, rows=totals[0] or 0, end=-1 if totals[1] is None else totals[1] + 1)
        finally:
            table.unpersist()


def _watch(query: StreamingQuery, rows: int) -> None:
    """Report each finished batch, and stop the query after the last row."""
    seen = -1
    while not query.awaitTermination(CHECK_S):
        for progress in query.recentProgress:
            number, source = progress["batchId"], progress["sources"][0]
            begin, end = _position(source["startOffset"]), _position(source["endOffset"])
            if number <= seen or begin == end:
                continue
            seen = number
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            _report("finished", batch=number, rows=end - begin, end=end, seconds=seconds)
            if end >= rows:
                query.stop()
                return
    raise RuntimeError("the query ended before all rows were written")


def _position(offset: Any) -> int:
    """Return the items before an offset ``{"<shard>": {"epoch": e, "pos": p}}``, as text or parsed; None is 0."""
    shards = json.loads(offset) if isinstance(offset, str) else offset
    return sum(int(shard["pos"]) for shard in (shards or {}).values())


def _add_up(spark: SparkSession, out: Path) -> None:
    """Sum the delays of all batches by carrier and by hour."""
    from pyspark.sql import functions as f

    delays = spark.read.parquet(str(out / "delays")).persist()
    for column in ("carrier", "hour"):
        (
            delays.groupBy(column)
            .agg(*(f.sum(name).alias(name) for name in ("flights", "departures", "minutes")))
            .withColumn("mean_delay", f.try_divide("minutes", "departures"))
            .orderBy(column)
            .coalesce(1)
            .write.mode("overwrite")
            .parquet(str(out / f"by_{column}"))
        )


def _report(event: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
