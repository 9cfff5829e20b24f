"""Measure the delay from the production of an item to the end of the micro-batch that has it.

``python -m benchmarks.spark_delay`` starts a server with a journal on loopback. Its handler sends items at a rate, each
with the time at which it was made. A query discards them in batches as small as they come. The delay of an item ends
when Spark has ended its batch, log included. The floor is the time of a batch of a trivial query in the same session:
Spark's own ``rate-micro-batch``, as many rows, discarded. An item that comes during a batch waits for its end and for
the next one, so 1.5 times the floor is what a perfect source could reach. A batch of a new session takes twice as long
as one of a session that has run for a minute, so both first run for a while that does not count. Then they take turns,
each first as often as the other. ``--out`` writes the figures as JSON, with the phases of a batch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from afflux import sync
from afflux.core.payload import Payload
from afflux.protocols.rsocket.cursor import Head, Read, state_of
from benchmarks.relay import _process

__all__ = ["BAR", "Stamps", "main"]

BAR: Final = 2.0
"The most floors that the median delay may have."
_WARM: Final = 0.25
"The share of the batches at the start that does not count."
_ROUNDS: Final = 2
"How often both are measured in turn."
_WARM_S: Final = 60.0
"The most seconds that each runs before."
_LOOK_S: Final = 0.1
_TICK_S: Final = 0.001
"The least seconds between items; uvloop's timers are not finer, and it would be busy with waiting."
_LIMIT_S: Final = 60.0
"Seconds beyond the planned ones after which a query has failed."


class Stamps:
    """Sends the time in nanoseconds: ``{"count": n, "rate": items per second}``."""

    async def stream(self, payload: Payload) -> AsyncIterator[list[bytes]]:
        """Yield the items that are due, one by one unless the process was late."""
        asked = json.loads(payload.data)
        loop = asyncio.get_running_loop()
        start, sent = loop.time(), 0
        while sent < asked["count"]:
            await asyncio.sleep(max(_TICK_S, start + sent / asked["rate"] - loop.time()))
            if due := min(asked["count"], int((loop.time() - start) * asked["rate"]) + 1) - sent:
                yield [b"%d" % time.time_ns()] * due
                sent += due


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if the bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_delay")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the stream (60)")
    parser.add_argument("--rate", type=int, default=1000, help="items per second (1,000)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory:
        figures = _measure(Path(directory), asked.seconds, asked.rate)
    over = figures["p50"] / figures["floor"]
    print(f"floor: a batch of rate-micro-batch {figures['floor'] * 1e3:8.0f} ms, median of {figures['floor_batches']}")
    print(f"delay p50 {figures['p50'] * 1e3:8.0f} ms   {over:.2f} floors   bar {BAR:g}")
    print(f"delay p99 {figures['p99'] * 1e3:8.0f} ms   {figures['p99'] / figures['floor']:.2f} floors")
    for way, phases in figures["phases_ms"].items():
        print(f"{way}: " + ", ".join(f"{name} {each:.0f} ms" for name, each in phases.items()))
    if asked.out:
        about = {"seconds": asked.seconds, "rate": asked.rate}
        asked.out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return 0 if over <= BAR else 1


def _measure(directory: Path, seconds: float, rate: int) -> dict[str, Any]:
    from afflux.spark.session import active, build

    fresh = not active()
    spark = build("afflux-bench", "local[2]", **{"spark.sql.streaming.numRecentProgressUpdates": "100000"})
    delays: list[float] = []
    live: list[Any] = []
    floor: list[Any] = []
    try:
        words = ("--handler", "benchmarks.spark_delay:Stamps", "--journal", str(directory / "journal"))
        with _process("serve", "tcp://127.0.0.1:0", *words) as (uri, _):
            rows = 1
            for number in range(1 + _ROUNDS):
                of = min(_WARM_S, seconds) if not number else seconds / _ROUNDS
                for way in ("live", "floor") if number % 2 == 0 else ("floor", "live"):
                    checkpoint = directory / f"{way}-{number}"
                    if way == "live":
                        count = max(1, int(of * rate)) + number  # another stream than before
                        batches, stamps = _live(spark, uri, checkpoint, count, rate)
                        rows = max(1, round(statistics.median(each["numInputRows"] for each in batches)))
                        measured = live
                        delays += _delays(batches, stamps) if number else []
                    else:
                        batches = _floor(spark, checkpoint, rows, of)
                        measured = floor
                    measured += batches if number else []
    finally:
        if fresh:
            spark.stop()
    delays.sort()
    phases = {"afflux": _phases(live), "rate-micro-batch": _phases(floor)}
    return {
        "p50": delays[len(delays) // 2],
        "p99": delays[len(delays) * 99 // 100],
        "floor": phases["rate-micro-batch"]["triggerExecution"] / 1e3,
        "items": len(delays),
        "batches": len(live),
        "floor_batches": len(floor),
        "rows_per_batch": rows,
        "phases_ms": phases,
    }


def _delays(batches: list[Any], stamps: list[float]) -> list[float]:
    """Return the seconds from each item's production to the end of its batch."""
    found = []
    for progress in batches:
        first, end = (_position(progress["sources"][0][name]) for name in ("startOffset", "endOffset"))
        found += [_ended(progress) - stamp for stamp in stamps[first:end]]
    return found


def _phases(batches: list[Any]) -> dict[str, float]:
    """Return the median milliseconds of each phase of a batch, as Spark names them."""
    names = {name for progress in batches for name in progress["durationMs"]}
    return {name: statistics.median(one["durationMs"].get(name, 0) for one in batches) for name in sorted(names)}


def _live(spark: Any, uri: str, checkpoint: Path, count: int, rate: int) -> tuple[list[Any], list[float]]:
    """Return the progress of the batches with rows, without the first ones; and the times at which the items were made,
    in seconds since 1970."""
    data = json.dumps({"count": count, "rate": rate})
    frame = spark.readStream.format("afflux").options(uri=uri, requestData=data).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination(count / rate)  # to ask for the progress of all batches would slow them down
        _wait(query, lambda done: done >= count, _LIMIT_S)
        found = [progress for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()
    with sync.connect(uri) as peer:
        (answer,) = peer.stream(data, cursor=Head())
        limit = state_of(answer.metadata).head
        stamps = [int(item.data) / 1e9 for item in peer.stream(data, cursor=Read(first=0, limit=limit), credit=10_000)]
    if len(stamps) != count or sum(progress["numInputRows"] for progress in found) != count:
        raise SystemExit(f"{len(stamps)} items are stored instead of {count}, or others were read")
    return _warm(found), stamps


def _floor(spark: Any, checkpoint: Path, rows: int, seconds: float) -> list[Any]:
    """Return the progress of the batches of the trivial query, without the first ones."""
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        _wait(query, lambda done: done > 0, _LIMIT_S)
        query.awaitTermination(seconds)
        return _warm([progress for progress in query.recentProgress if progress["numInputRows"]])
    finally:
        query.stop()


def _warm(values: list[Any]) -> list[Any]:
    return values[int(len(values) * _WARM) :]


def _wait(query: Any, enough: Any, limit_s: float) -> None:
    """Wait until a query has read enough rows."""
    deadline = time.monotonic() + limit_s
    while not enough(sum(progress["numInputRows"] for progress in query.recentProgress)):
        if not query.isActive or time.monotonic() > deadline:
            raise SystemExit(f"the query has failed, or is too slow: {query.exception()}")
        time.sleep(_LOOK_S)


def _position(offset: Any) -> int:
    shards = json.loads(offset) if isinstance(offset, str) else offset
    return int((shards or {}).get("0", {}).get("pos", 0))


def _ended(progress: Any) -> float:
    """Return when a batch has ended, in seconds since 1970."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return begun + float(progress["durationMs"]["triggerExecution"]) / 1e3


if __name__ == "__main__":
    sys.exit(main())
