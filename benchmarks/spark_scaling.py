"""Measure how reading a journalled stream scales with executors, each a JVM with one core: rows per second, discarded.

``python -m benchmarks.spark_scaling`` starts a server with a journal on loopback, fills it once, and reads it with
``local-cluster[1,1,1024]`` and ``local-cluster[2,1,1024]``, each in a driver of its own. All share the cores of this
machine with the server, so two executors need at least four cores. ``--out`` writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.spark_source import SIZE, _server, _settled

__all__ = ["EXECUTORS", "main"]

EXECUTORS: Final = (1, 2)
"Executors of the runs."
_RANGES: Final = 4
"Ranges of a read: more than executors, so that none waits long for the last one."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0. Scaling has no bar, because it depends on the cores of the machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scaling")
    parser.add_argument("--rows", type=int, default=12_000_000, help="items in the stream (12,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="runs with each number of executors (5)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--driver", metavar="URI", help=argparse.SUPPRESS)
    parser.add_argument("--executors", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.driver:
        print(json.dumps(_read(asked.driver, asked.executors, asked.rows, asked.runs)))
        return 0
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory, _server(Path(directory)) as uri:
        _settled({"uri": uri, "requestData": _data(asked.rows)}, asked.rows)
        for executors in EXECUTORS:
            command = [sys.executable, "-m", "benchmarks.spark_scaling", "--driver", uri, "--rows", str(asked.rows)]
            command += ["--runs", str(asked.runs), "--executors", str(executors)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            seconds = json.loads(ran.stdout.splitlines()[-1])
            figures[str(executors)] = {"rows_per_s": round(asked.rows / median(seconds)), "seconds": seconds}
    for executors, figure in figures.items():
        over = figure["rows_per_s"] / figures["1"]["rows_per_s"]
        print(f"{executors} executors {figure['rows_per_s'] / 1e6:6.2f} M rows/s   {over:.2f} of one")
    if asked.out:
        about = {"rows": asked.rows, "size": SIZE, "runs": asked.runs, "cpus": os.cpu_count()}
        asked.out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return 0


def _data(rows: int) -> str:
    return json.dumps({"count": rows, "size": SIZE})


def _read(uri: str, executors: int, rows: int, runs: int) -> list[float]:
    """Return the seconds of each run, after one that starts the workers and is checked."""
    from afflux.spark.session import build

    spark = build("afflux-bench", f"local-cluster[{executors},1,1024]")
    try:
        options = {"uri": uri, "requestData": _data(rows), "partitions": str(_RANGES)}
        frame = spark.read.format("afflux").options(**options).load()
        found = frame.selectExpr("count(*) n", "sum(offset) total").collect()[0]
        if (found.n, found.total) != (rows, rows * (rows - 1) // 2):
            raise SystemExit(f"{found.n} rows came instead of {rows}")
        seconds = []
        for _ in range(runs):
            begun = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            seconds.append(round(time.perf_counter() - begun, 3))
        return seconds
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
