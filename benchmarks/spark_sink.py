"""Measure Spark writing rows of 128 bytes to a receiver of afflux: rows and MB per second.

``python -m benchmarks.spark_sink`` starts ``afflux serve --sink`` on loopback, stores the rows once as Parquet, so that
making them costs little, and writes them several times each way, alternating: to the receiver, discarded (noop), and
with Spark's own Parquet writer. Medians count. The rows at the receiver are counted at the end. ``--out`` writes the
figures as JSON.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["main"]

SIZE = 128
"Bytes of data per row."
BAR = 300_000
"Rows per second that the receiver must get."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if the bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_sink")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a write (2,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of each way (5)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory, _receiver(Path(directory) / "sink") as uri:
        figures = _measure(uri, Path(directory), asked.rows, asked.runs)
    for way, figure in figures.items():
        print(f"{way:<22} {figure['rows_per_s'] / 1e6:6.2f} M rows/s {figure['mb_per_s']:8.0f} MB/s")
    if asked.out:
        about = {"rows": asked.rows, "size": SIZE, "cpus": os.cpu_count()}
        asked.out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return 0 if figures["receiver"]["rows_per_s"] >= BAR else 1


@contextmanager
def _receiver(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "afflux", "serve", "tcp://127.0.0.1:0", "--sink", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


def _measure(uri: str, directory: Path, rows: int, runs: int) -> dict[str, dict[str, Any]]:
    from afflux.spark.session import build

    spark = build("afflux-bench", "local[2]")
    numbers = spark.range(0, rows, 1, 2).selectExpr(f"cast(lpad(cast(id as string), {SIZE}, '.') as binary) data")
    numbers.write.parquet(str(directory / "input"))
    frame = spark.read.parquet(str(directory / "input"))
    to_receiver = frame.write.format("afflux").option("uri", uri).mode("append")
    ways: dict[str, Callable[[], object]] = {
        "receiver": to_receiver.save,
        "noop": lambda: frame.write.format("noop").mode("overwrite").save(),
        "parquet": lambda: frame.write.mode("overwrite").parquet(str(directory / "table")),
    }
    to_receiver.save()  # starts the Python workers
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, work in ways.items():
            begun = time.perf_counter()
            work()
            seconds[way].append(time.perf_counter() - begun)
    found = (
        spark.read.parquet(str(directory / "sink")).selectExpr("count(*) n", "count(distinct data) values").collect()
    )
    if (found[0].n, found[0]["values"]) != (rows * (runs + 1), rows):
        raise SystemExit(f"{found[0].n} rows arrived instead of {rows * (runs + 1)}")
    spark.stop()
    return {way: _figure(rows, taken) for way, taken in seconds.items()}


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
