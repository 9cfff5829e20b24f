"""Measure whether the memory of every process is flat while a sink is slower than the source.

``python -m benchmarks.spark_memory`` runs a server with a small journal that sends items as fast as it may, a query of
Spark, and a peer that takes a few thousand rows per second. The journal fills, so credit stops the server. The resident
memory of each process is sampled from /proc; of several Python workers the largest counts. A line is fitted to the last
two thirds of the samples: memory is flat if it grows by at most 5 % of its mean, or 8 MiB. ``--out`` writes the figures
as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.relay import _process

__all__ = ["SHARE", "SPARE_MIB", "Slow", "descendants", "fitted", "kind_of", "main"]

SHARE: Final = 0.05
"The growth that counts as flat, as a share of the mean."
SPARE_MIB: Final = 8.0
"The growth in MiB that counts as flat in any case."
RATE: Final = 5_000
"Rows per second that the peer takes."
_SIZE: Final = 128
_BATCH: Final = 5_000
_JOURNAL: Final = "32MB"
_SAMPLES: Final = 600
_MIB: Final = 1 << 20
_LIMIT_S: Final = 120.0
_KINDS: Final = {
    "python_streaming_source": "reader of the query",
    "spark.daemon pyspark.": "Python worker",
    "java": "JVM",
}
"Parts of command lines, and what their processes are."


class Slow:
    """Takes the items of channels, all together at a rate."""

    def __init__(self) -> None:
        self._free = 0.0

    async def channel(self, items: Any) -> Any:
        """Take all items; answer none."""
        loop = asyncio.get_running_loop()
        async for batch in items.batches():
            self._free = max(self._free, loop.time()) + len(batch) / RATE
            await asyncio.sleep(self._free - loop.time())
        return
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if the memory of a process grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_memory")
    parser.add_argument("--seconds", type=float, default=600.0, help="duration (600)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory:
        samples, rows = _measure(Path(directory), asked.seconds)
    figures = {kind: fitted(each) for kind, each in sorted(samples.items())}
    print(f"{rows:,} rows reached the slow peer in ended batches")
    for kind, figure in figures.items():
        told = "flat" if figure["flat"] else "GROWS"
        print(
            f"{kind:<22} mean {figure['mean_mib']:7.1f} MiB   growth {figure['growth_mib']:+7.1f} MiB   "
            f"bar {figure['bar_mib']:.1f} MiB   {told}"
        )
    if asked.out:
        about = {"seconds": asked.seconds, "rate": RATE, "rows": rows, "journal": _JOURNAL}
        asked.out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return 0 if all(figure["flat"] for figure in figures.values()) else 1


def fitted(samples: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Fit a line to the last two thirds of samples: seconds, and bytes."""
    rest = samples[len(samples) // 3 :]
    times, sizes = [at for at, _ in rest], [size / _MIB for _, size in rest]
    middle, mean = fmean(times), fmean(sizes)
    spread = sum((at - middle) ** 2 for at in times)
    slope = (
        sum((at - middle) * (size - mean) for at, size in zip(times, sizes, strict=True)) / spread if spread else 0.0
    )
    growth = slope * (times[-1] - times[0])
    bar = max(SPARE_MIB, SHARE * mean)
    return {
        "mean_mib": round(mean, 1),
        "most_mib": round(max(sizes), 1),
        "mib_per_minute": round(slope * 60, 3),
        "growth_mib": round(growth, 2),
        "bar_mib": round(bar, 1),
        "flat": growth <= bar,
        "samples": len(samples),
    }


def _measure(directory: Path, seconds: float) -> tuple[dict[str, list[tuple[float, float]]], int]:
    from afflux.spark.session import active, build

    fresh = not active()
    journal = ("--journal", str(directory / "journal"), "--journal-bytes", _JOURNAL)
    with (
        _process("serve", "tcp://127.0.0.1:0", "--demo", *journal) as (uri, server),
        _process("serve", "tcp://127.0.0.1:0", "--handler", "benchmarks.spark_memory:Slow") as (sink, peer),
    ):
        spark = build("afflux-bench", "local[2]", **{"spark.driver.memory": "1g"})
        try:
            options = {"uri": uri, "requestData": json.dumps({"count": 1 << 40, "size": _SIZE})}
            options |= {"acknowledgeAs": "bench", "maxRowsPerBatch": str(_BATCH)}
            frame = spark.readStream.format("afflux").options(**options).load().select("data")
            writer = frame.writeStream.format("afflux").options(uri=sink, delivery="at-least-once")
            query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
            try:
                _until_running(query)
                named = {server: "server with the journal", peer: "slow peer", os.getpid(): "driver"}
                samples: dict[str, list[tuple[float, float]]] = {}
                rows = query.lastProgress["numInputRows"]
                begun = time.monotonic()
                last = query.lastProgress["batchId"]
                while (now := time.monotonic() - begun) < seconds or len(samples["driver"]) < 3:
                    for kind, size in _sizes(named).items():
                        samples.setdefault(kind, []).append((now, size))
                    if query.awaitTermination(max(0.1, seconds / _SAMPLES)):
                        raise SystemExit(f"the query has ended: {query.exception()}")
                    for progress in query.recentProgress:
                        if progress["batchId"] > last:
                            last, rows = progress["batchId"], rows + progress["numInputRows"]
                return samples, rows
            finally:
                query.stop()
        finally:
            if fresh:
                spark.stop()


def _until_running(query: Any) -> None:
    """Wait for the end of the first batch."""
    deadline = time.monotonic() + _LIMIT_S
    while query.lastProgress is None or not query.lastProgress["numInputRows"]:
        if query.awaitTermination(0.2) or time.monotonic() > deadline:
            raise SystemExit(f"the query has failed, or is too slow: {query.exception()}")


def _sizes(named: dict[int, str]) -> dict[str, float]:
    """Return the bytes of memory of the largest process of each kind: the named ones, and the descendants of this."""
    found: dict[str, float] = {}
    for pid, kind in [*named.items(), *((pid, kind_of(pid)) for pid in descendants(os.getpid()) if pid not in named)]:
        if kind:
            found[kind] = max(found.get(kind, 0.0), _resident(pid))
    return {kind: size for kind, size in found.items() if size}


def kind_of(pid: int) -> str:
    """Return what a process of Spark is; an empty text if it is none."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return next((kind for part, kind in _KINDS.items() if part in command), "")


def _resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, IndexError):
        return 0.0


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError):
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        yield from below


if __name__ == "__main__":
    sys.exit(main())
