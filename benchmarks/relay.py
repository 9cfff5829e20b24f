"""Measure the relay on SQLite: durable items per second of one remote stream, with and without a cursor.

``python -m benchmarks.relay`` starts remote servers, and a relay in a process of its own for each run, on loopback; the
ways alternate, and medians count. A run ends when the last item is durable and the stream is sealed; the count is
checked. ``journal alone`` appends the same items to a journal in one process. ``--out`` writes the figures as JSON.
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
from typing import Any, Final

from afflux import sync
from afflux.journal import Journal
from afflux.protocols.rsocket.cursor import Head, Read, State, state_of

__all__ = ["main"]

SIZE: Final = 128
"Bytes of data per item."
BAR: Final = 200_000
"Durable items per second that a relay must reach."
JUDGED: Final = ("live", "cursor")
"The ways that have to reach it."
_BATCH = 256


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a way misses the bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay")
    parser.add_argument("--items", type=int, default=1_000_000, help="items of the stream (1,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of each way (5)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory:
        figures = _measure(Path(directory), asked.items, asked.runs)
    for way, figure in figures.items():
        rate, cpu = figure["items_per_s"], figure["relay_cpu_us"]
        spent = f"{cpu:6.2f} us CPU of the relay per item" if cpu else ""
        print(f"{way:<18} {rate:10,.0f} durable items/s {rate * SIZE / 1e6:6.0f} MB/s {spent}")
    if asked.out:
        about = {"items": asked.items, "size": SIZE, "runs": asked.runs, "cpus": os.cpu_count()}
        asked.out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return 0 if all(figures[way]["items_per_s"] >= BAR for way in JUDGED) else 1


def _measure(directory: Path, items: int, runs: int) -> dict[str, dict[str, float]]:
    data = json.dumps({"count": items, "size": SIZE})
    with (
        _process("serve", "tcp://127.0.0.1:0", "--demo") as (live, _),
        _process("serve", "tcp://127.0.0.1:0", "--demo", "--journal", str(directory / "remote")) as (stored, _),
    ):
        _until_sealed(stored, items, data)
        ways: dict[str, Callable[[Path], tuple[float, float]]] = {
            "live": lambda path: _relayed(live, path, data, items, readers=0),
            "cursor": lambda path: _relayed(stored, path, data, items, readers=0),
            "live, one reader": lambda path: _relayed(live, path, data, items, readers=1),
            "journal alone": lambda path: _alone(path, items),
        }
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for run in range(runs):
            for way, measure in ways.items():
                found[way].append(measure(directory / f"{run} {way}"))
                print(f"run {run + 1}, {way}: {items / found[way][-1][0]:,.0f} items/s", file=sys.stderr)
    return {
        way: {
            "items_per_s": items / statistics.median(seconds for seconds, _ in measured),
            "relay_cpu_us": statistics.median(cpu for _, cpu in measured) / items * 1e6,
        }
        for way, measured in found.items()
    }


def _relayed(remote: str, path: Path, data: str, items: int, readers: int) -> tuple[float, float]:
    """Return the seconds from the start of the subscription, and the CPU seconds of the relay."""
    words = ("relay", "--from", remote, "-d", data, "--journal", str(path), "--listen", "tcp://127.0.0.1:0")
    with _process(*words) as (uri, pid):
        start, used = time.perf_counter(), _cpu(pid)
        if readers:
            with sync.connect(uri) as peer:
                count = sum(1 for _ in peer.stream(cursor=Read(limit=items), credit=100_000))
            if count != items:
                raise SystemExit(f"{count} items were read instead of {items}")
        _until_sealed(uri, items)
        return time.perf_counter() - start, _cpu(pid) - used


def _alone(path: Path, items: int) -> tuple[float, float]:
    item = b"x" * SIZE
    start = time.perf_counter()
    with Journal(path) as journal:
        for first in range(0, items, _BATCH):
            journal.append([item] * min(_BATCH, items - first), 0)
            if journal.pending >= 0x40000:
                journal.commit()
    return time.perf_counter() - start, 0.0


def _until_sealed(uri: str, items: int, data: str = "") -> None:
    with sync.connect(uri) as peer:
        state: State | None = None
        while state is None or not state.sealed:
            after = 0 if state is None else max(state.head, items - 1)
            (answer,) = peer.stream(data, cursor=Head(after=after, wait_ms=60_000))
            state = state_of(answer.metadata)
    if state.head != items:
        raise SystemExit(f"{state.head} items are stored instead of {items}")


@contextmanager
def _process(*words: str) -> Iterator[tuple[str, int]]:
    """Run a command; yield the address that it listens on, and its process id."""
    command: list[Any] = [sys.executable, "-m", "afflux", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1], process.pid
        finally:
            process.terminate()


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process, user and system; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
