"""Measure small micro-batches: what the source takes of each, and what Spark takes with any source.

``python -m benchmarks.spark_batches`` starts a server with a journal on loopback, fills it once, and reads it in
batches of 5,000 rows: by the source alone (``latestOffset``, ``partitions`` and ``read``, called as Spark calls them),
and by a query that discards the rows, with the log of each batch and without it (asynchronous progress tracking), and
with the class that writes files of a local checkpoint without starting commands. The same query with Spark's own
``rate-micro-batch`` is the floor of any source. Medians of the batches count. ``--out`` writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.spark_source import SIZE, _server

__all__ = ["main"]

ROWS = 5_000
"Rows per batch."
BAR = 150_000
"Rows per second that the source alone must reach."
_ASYNC = {"asyncProgressTrackingEnabled": "true"}
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"Spark's class for checkpoints on file systems without its newer interface. It starts no command on a local disk."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if the bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_batches")
    parser.add_argument("--batches", type=int, default=60, help="batches of each way (60)")
    parser.add_argument("--alone", action="store_true", help="measure the source alone, without Spark")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory, _server(Path(directory)) as uri:
        given = {"uri": uri, "requestData": json.dumps({"count": ROWS * asked.batches, "size": SIZE})}
        _fill(given)
        figures["source alone"] = _alone(given)
        if not asked.alone:
            figures |= _in_spark(given, Path(directory), asked.batches)
    for way, seconds in figures.items():
        print(f"{way:<52} {seconds * 1e3:7.1f} ms a batch {ROWS / seconds / 1e3:7.0f} k rows/s")
    if asked.out:
        about = {"rows": ROWS, "size": SIZE, "batches": asked.batches}
        told = {way: {"seconds": each, "rows_per_s": round(ROWS / each)} for way, each in figures.items()}
        asked.out.write_text(json.dumps({"about": about, "figures": told}, indent=1) + "\n")
    return 0 if ROWS / figures["source alone"] >= BAR else 1


def _fill(given: dict[str, str]) -> None:
    from afflux.spark.options import Options
    from afflux.spark.reading import Driver

    with Driver(Options.parse(given | {"pollTimeoutMs": "60000"})) as driver:
        while not driver.settled()[0].sealed:
            pass


def _alone(given: dict[str, str]) -> float:
    """Return the median seconds that the source takes for a batch."""
    from pyspark.sql.types import _parse_datatype_json_string

    from afflux.spark.source import AffluxSource

    source = AffluxSource(given | {"maxRowsPerBatch": str(ROWS)})
    fields = [column.split(" ") for column in source.schema().split(", ")]
    reader = source.streamReader(_parse_datatype_json_string(_as_json(fields)))
    seconds = []
    start = reader.initialOffset()
    while True:
        begun = time.perf_counter()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            break
        rows = sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part))
        seconds.append(time.perf_counter() - begun)
        if rows != ROWS:
            raise SystemExit(f"{rows} rows came instead of {ROWS}")
        start = end
    reader.stop()
    return statistics.median(seconds)


def _as_json(fields: list[list[str]]) -> str:
    """Return a schema in JSON, which is parsed without a session."""
    spelled = {"int": "integer", "bigint": "long"}
    typed = [(name, spelled.get(kind.lower(), kind.lower())) for name, kind in fields]
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in typed]
    return json.dumps({"type": "struct", "fields": described})


def _in_spark(given: dict[str, str], directory: Path, batches: int) -> dict[str, float]:
    from afflux.spark.session import build

    spark = build("afflux-bench", "local[2]")
    ours = spark.readStream.format("afflux").options(**given, maxRowsPerBatch=ROWS, pollTimeoutMs=1).load()
    floor = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    figures = {}
    for files, manager in (("", None), (", plain files", _PLAIN)):
        if manager:
            spark.conf.set(_MANAGER, manager)
        for way, frame in (("afflux", ours), ("rate-micro-batch", floor)):
            for kind, options in (("", {}), (", asynchronous log", _ASYNC)):
                checkpoint = directory / f"{way}{files}{kind}"
                figures[f"{way} in Spark{files}{kind}"] = _query(frame, checkpoint, batches, options)
    spark.stop()
    return figures


def _query(frame: Any, checkpoint: Path, batches: int, options: dict[str, str]) -> float:
    """Return the median seconds of a query's batches, without the first ten (a quarter of few)."""
    writer = frame.writeStream.format("noop").options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    try:
        while True:
            if (error := query.exception()) is not None:
                raise SystemExit(str(error))
            full = [one for one in query.recentProgress if one["numInputRows"] == ROWS]
            if len(full) >= batches - 5:
                warm = full[min(10, batches // 4) :]
                return statistics.median(one["durationMs"]["triggerExecution"] / 1e3 for one in warm)
            time.sleep(0.1)
    finally:
        query.stop()


if __name__ == "__main__":
    sys.exit(main())
