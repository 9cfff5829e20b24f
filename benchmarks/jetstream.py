"""Measure journals on NATS JetStream: one server on loopback, items of 128 bytes.

``python -m benchmarks.jetstream`` starts nats-server, and for each run a stream of its own; the ways alternate, and
medians count:

- ``journal in``: one process appends to the journal; ``journal out``: one process reads it, without Spark.
- ``relay, live`` and ``relay, cursor``: a relay stores the stream of another process, as in benchmarks/relay.py. A run
  ends when the last item is durable and the stream is sealed; the count is checked.
- ``Spark``: Spark reads the stream directly, and discards the rows.

``--out`` writes the figures as JSON. ``--only WAY`` measures some of the ways.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from afflux.core.limits import Limits
from afflux.journal import Journal
from benchmarks.relay import _process, _until_sealed

__all__ = ["main"]

SIZE: Final = 128
"Bytes of data per item."
BARS: Final = {"relay, live": 500_000, "relay, cursor": 500_000, "Spark": 3_000_000}
"Items per second that a way must reach."
_READERS: Final = ("journal out", "Spark")
"The ways that read a stream which exists. A relay's journal has room for 1 GiB, that stream has any size."
_BATCH = 256
_COMMIT_BYTES = 0x100000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a way misses its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jetstream")
    parser.add_argument("--items", type=int, default=2_000_000, help="items of a stream (2,000,000)")
    parser.add_argument("--read", type=int, help="items of the stream that is only read (by default as --items)")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of each way (5)")
    parser.add_argument("--partitions", type=int, default=2, help="ranges that Spark cuts a read into (2)")
    parser.add_argument("--only", action="append", help="a way to measure; may be repeated")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    asked.read = asked.read or asked.items
    if shutil.which("nats-server") is None:
        raise SystemExit("nats-server is not installed (Debian, Ubuntu: apt-get install nats-server)")
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory, _nats(Path(directory)) as nats:
        figures = _measure(Path(directory), nats, asked)
    missed = 0
    for way, rate in figures.items():
        bar = BARS.get(way)
        missed += bar is not None and rate < bar
        told = "" if bar is None else f"  bar {bar:,}: {'missed' if rate < bar else 'reached'}"
        print(f"{way:<16} {rate:12,.0f} items/s {rate * SIZE / 1e6:6.0f} MB/s{told}")
    if asked.out:
        about = {"items": asked.items, "read": asked.read, "size": SIZE, "runs": asked.runs, "cpus": os.cpu_count()}
        asked.out.write_text(json.dumps({"about": about, "items_per_s": figures}, indent=1) + "\n")
    return 1 if missed else 0


@contextmanager
def _nats(directory: Path) -> Iterator[str]:
    """Run a server; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["nats-server", "-js", "-a", "127.0.0.1", "--port", str(port), "-sd", str(directory / "nats")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            if not any("Server is ready" in line for line in process.stderr or ()):
                raise SystemExit("nats-server does not start")
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()


def _measure(directory: Path, nats: str, asked: argparse.Namespace) -> dict[str, float]:
    items, read = asked.items, asked.read
    data = json.dumps({"count": items, "size": SIZE})
    filled = f"{nats}/filled"
    _fill(filled, read)
    with (
        _process("serve", "tcp://127.0.0.1:0", "--demo") as (live, _),
        _process("serve", "tcp://127.0.0.1:0", "--demo", "--journal", str(directory / "remote")) as (stored, _),
    ):
        ways: dict[str, Callable[[str], float]] = {
            "journal in": lambda name: _fill(name, items),
            "journal out": lambda _: _pull(filled, read),
            "relay, live": lambda name: _relayed(live, name, data, items),
            "relay, cursor": lambda name: _relayed(stored, name, data, items),
            "Spark": _spark(filled, read, asked.partitions),
        }
        if asked.only:
            ways = {way: ways[way] for way in asked.only}
        if "relay, cursor" in ways:
            _until_sealed(stored, items, data)
        counts = {way: read if way in _READERS else items for way in ways}
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for run in range(asked.runs):
            for number, (way, measure) in enumerate(ways.items()):
                name = f"{nats}/run-{run}-{number}"
                taken[way].append(measure(name))
                print(f"run {run + 1}, {way}: {counts[way] / taken[way][-1]:,.0f} items/s", file=sys.stderr)
                _remove(name)
    return {way: round(counts[way] / statistics.median(seconds)) for way, seconds in taken.items()}


def _fill(uri: str, items: int) -> float:
    item = b"x" * SIZE
    start = time.perf_counter()
    with Journal(uri, limits=Limits.trusted()) as journal:
        for first in range(0, items, _BATCH):
            journal.append([item] * min(_BATCH, items - first), 0)
            if journal.pending >= _COMMIT_BYTES:
                journal.commit()
        journal.seal()
    return time.perf_counter() - start


def _pull(uri: str, items: int) -> float:
    """Read the stream into Arrow batches, as a task does, without Spark."""
    import pyarrow as pa

    from afflux.spark.arrow import Batches
    from afflux.spark.offsets import Span
    from afflux.spark.options import Options
    from afflux.spark.reading import Driver, SpanReader

    options = Options.parse({"uri": uri})
    with Driver(options) as driver:
        epoch = driver.heads()[0].epoch
    start = time.perf_counter()
    schema = pa.schema([("data", pa.binary()), ("offset", pa.int64())])
    span = Span(shard=0, epoch=epoch, first=0, end=items)
    if sum(len(batch) for batch in Batches(schema, 0).of(SpanReader(options, span))) != items:
        raise SystemExit("items are missing")
    return time.perf_counter() - start


def _relayed(remote: str, uri: str, data: str, items: int) -> float:
    words = ("relay", "--from", remote, "-d", data, "--journal", uri, "--listen", "tcp://127.0.0.1:0")
    with _process(*words) as (listening, _):
        start = time.perf_counter()
        _until_sealed(listening, items)
        return time.perf_counter() - start


def _spark(uri: str, items: int, partitions: int) -> Callable[[str], float]:
    started: list[Any] = []

    def measure(_: str) -> float:
        from afflux.spark.session import build

        if not started:
            frame = build("afflux-bench", "local[2]").read.format("afflux").options(uri=uri, partitions=partitions)
            started.append(frame.load())
            sums = started[0].selectExpr("count(*) n", "sum(offset) total").collect()[0]
            if (sums.n, sums.total) != (items, items * (items - 1) // 2):
                raise SystemExit(f"{sums.n} rows came instead of {items}")
        start = time.perf_counter()
        started[0].write.format("noop").mode("overwrite").save()
        return time.perf_counter() - start

    return measure


def _remove(uri: str) -> None:
    """Remove the stream of a run, if it has one."""
    from afflux.journal.errors import JournalMissing
    from afflux.journal.jetstream import JetStreamBackend

    try:
        with closing(JetStreamBackend(uri, key=None, follow=True)) as backend:
            backend.remove()
    except JournalMissing:
        pass


if __name__ == "__main__":
    sys.exit(main())
