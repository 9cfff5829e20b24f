"""Measure Spark reading a journalled stream: rows per second, discarded by a batch and by a query, into Parquet, and
without Spark.

``python -m benchmarks.spark_source`` starts a server process with a journal on loopback, fills it once, and reads it
several times each way, alternating; medians count. Spark counts the rows (the offsets are summed once, to check that
all rows arrived). ``--references`` measures other sources of Spark in the same session (spark_references.py). ``--out``
writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from afflux import sync
from afflux.protocols.rsocket.cursor import Head, State, state_of

__all__ = ["BARS", "main"]

SIZE = 128
"Bytes of data per item."
JOURNAL_BYTES = "16GB"
"The size of the journal, which must have room for all items."
STREAMING = "noop, streaming"
"A query that discards the rows. Its rate is that of its batches; the time that a query needs to start is beside it."
BARS = {"noop": 3_500_000, STREAMING: 3_000_000, "parquet": 2_000_000}
"Rows per second that must be reached."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_source")
    parser.add_argument("--rows", type=int, default=4_000_000, help="items in the stream (4,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of each way (5)")
    parser.add_argument("--partitions", type=int, default=2, help="ranges that a read is cut into (2)")
    parser.add_argument("--references", action="store_true", help="measure other sources, too")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory, _server(Path(directory)) as uri:
        figures = _measure(uri, Path(directory), asked)
    for way, figure in figures.items():
        bar = f"   bar {BARS[way] / 1e6:.1f} M" if way in BARS else ""
        print(f"{way:<22} {figure['rows_per_s'] / 1e6:6.2f} M rows/s {figure['mb_per_s']:8.0f} MB/s{bar}")
    if asked.out:
        about = {"rows": asked.rows, "size": SIZE, "partitions": asked.partitions, "cpus": os.cpu_count()}
        asked.out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return 0 if all(figures[way]["rows_per_s"] >= bar for way, bar in BARS.items()) else 1


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "afflux", "serve", "tcp://127.0.0.1:0", "--demo", "--journal-bytes", JOURNAL_BYTES]
    journal = ["--journal", str(directory / "journal")]
    with subprocess.Popen([*command, *journal], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


def _measure(uri: str, directory: Path, asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    from afflux.spark.session import active, build

    rows = asked.rows
    given = {"uri": uri, "requestData": json.dumps({"count": rows, "size": SIZE}), "partitions": str(asked.partitions)}
    started = time.perf_counter()
    _settled(given, rows)
    print(f"filled in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    fresh = not active()
    spark = build("afflux-bench", "local[2]")
    frame = spark.read.format("afflux").options(**given).load()
    sums = frame.selectExpr("count(*) n", "sum(offset) total").collect()[0]
    if (sums.n, sums.total) != (rows, rows * (rows - 1) // 2):
        raise SystemExit(f"{sums.n} rows came instead of {rows}")
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "one process, no Spark": (rows, lambda: _pull(given, rows)),
        "noop": (rows, lambda: frame.write.format("noop").mode("overwrite").save()),
        STREAMING: (rows, lambda: _stream(spark, given, directory)),
        "parquet": (rows, lambda: frame.write.mode("overwrite").parquet(str(directory / "table"))),
    }
    if asked.references:
        from benchmarks.spark_references import references

        ways |= references(spark, rows, directory)
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(asked.runs):
        for way, (_, work) in ways.items():
            begun = time.perf_counter()
            batches = work()
            seconds[way].append(time.perf_counter() - begun)
            if isinstance(batches, float):
                seconds[f"{way}, with its start"].append(seconds[way].pop())
                seconds[way].append(batches)
    if fresh:
        spark.stop()
    ways[f"{STREAMING}, with its start"] = ways[STREAMING]
    return {way: _figure(ways[way][0], taken) for way, taken in seconds.items()}


def _settled(given: dict[str, str], rows: int) -> State:
    """Start the stream if necessary, wait for its end, and return the state of its journal."""
    with sync.connect(given["uri"]) as peer:
        while True:
            (answer,) = peer.stream(given["requestData"], cursor=Head(after=rows, wait_ms=60_000))
            if (state := state_of(answer.metadata)).sealed:
                return state


def _stream(spark: Any, given: dict[str, str], directory: Path) -> float:
    """Read the stream with a query of its own. Returns the seconds of its batches, as Spark reports them."""
    with tempfile.TemporaryDirectory(dir=directory) as checkpoint:
        reader = spark.readStream.format("afflux").options(**given)
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress) / 1e3


def _pull(given: dict[str, str], rows: int) -> None:
    """Read the same stream in the same batches, without Spark."""
    import pyarrow as pa

    from afflux.spark.arrow import Batches
    from afflux.spark.offsets import Span
    from afflux.spark.options import Options
    from afflux.spark.reading import SpanReader

    options = Options.parse(given)
    epoch = _settled(given, rows).epoch
    schema = pa.schema([("data", pa.binary()), ("offset", pa.int64())])
    span = Span(shard=0, epoch=epoch, first=0, end=rows)
    if sum(len(batch) for batch in Batches(schema, 0).of(SpanReader(options, span))) != rows:
        raise SystemExit("rows are missing")


def _figure(rows: int, seconds: list[float]) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {
        "rows_per_s": round(rows / median),
        "mb_per_s": round(rows * SIZE / median / 1e6, 1),
        "best_rows_per_s": round(rows / min(seconds)),
        "seconds": [round(each, 3) for each in seconds],
    }


if __name__ == "__main__":
    sys.exit(main())
