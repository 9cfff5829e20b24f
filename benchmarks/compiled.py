"""Measure the effect of compiling: ``python -m benchmarks.compiled [PURE] [COMPILED]``, or ``make bench-compiled``.

Two engines in one process are connected in memory, without socket, loop or task, so only the compiled part is measured.
For the effect between two processes see the contender ``afflux-compiled`` of ``make bench``. PURE and COMPILED are
the folders that contain ``afflux``; runs alternate, each in a process. A figure is the CPU time per item of both ends
together, in nanoseconds: the median of the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PURE, COMPILED = ROOT / "src", ROOT / "build" / "release" / "site"
SECONDS = 0.3
"CPU time of one measurement."


class Ends:
    """A client's and a server's engine, connected in memory."""

    def __init__(self) -> None:
        from afflux.core.payload import Payload
        from afflux.protocols.rsocket import Engine

        self.client, self.server = Engine("client"), Engine("server")
        first = self.client.open("request", b"")
        self.carry(self.client, self.server)
        self.server.answer([first], [Payload()])
        self.carry(self.server, self.client)

    def carry(self, sender: Any, receiver: Any) -> list[Any]:
        """Move queued bytes, in reads of up to 64 KiB, and return the events."""
        events: list[Any] = []
        while data := sender.outgoing():
            events += receiver.receive(data, 0.0)
        return events


def stream(items: list[Any]) -> Callable[[], int]:
    """Send these items on one stream repeatedly, and process each on arrival."""
    ends = Ends()
    id = ends.client.open("stream", b"", credit=0x7FFFFFFF)
    ends.carry(ends.client, ends.server)

    def turn() -> int:
        ends.server.send(id, items)
        count = size = 0
        for event in ends.carry(ends.server, ends.client):
            for payload in event.payloads:
                size += len(payload.data)
            count += len(event.payloads)
        ends.client.consumed(size, count)
        return count

    return turn


def request(at_once: int) -> Callable[[], int]:
    """Send requests of 64 bytes and their answers, like a driver."""
    from afflux.core.events import singly
    from afflux.core.payload import Payload

    ends, payloads = Ends(), [Payload(bytes(64))] * at_once

    def turn() -> int:
        ends.client.ask(payloads)
        asked = list(singly(ends.carry(ends.client, ends.server)))
        ends.server.answer([event.stream for event in asked], [event.payload for event in asked])
        ends.server.consumed(64 * len(asked))
        answers = list(singly(ends.carry(ends.server, ends.client)))
        ends.client.consumed(64 * len(answers))
        return len(answers)

    return turn


def channel(at_once: int) -> Callable[[], int]:
    """Open streams of three items, each with a further grant: frames of every kind."""
    ends = Ends()

    def turn() -> int:
        ids = [ends.client.open("stream", b"what", credit=1) for _ in range(at_once)]
        ends.carry(ends.client, ends.server)
        for id in ids:
            ends.server.send(id, [b"first"])
        ends.carry(ends.server, ends.client)
        for id in ids:
            ends.client.request(id, 2)
        ends.carry(ends.client, ends.server)
        for id in ids:
            ends.server.send(id, [b"second", b"third"], complete=True)
            ends.server.release(id)
        ends.carry(ends.server, ends.client)
        ends.server.consumed(4 * at_once)
        ends.client.consumed(16 * at_once, 3 * at_once)
        return at_once

    return turn


def workloads() -> dict[str, Callable[[], int]]:
    """All measurements, by name."""
    from afflux.core.payload import Payload

    return {
        "stream 64 B": stream([bytes(64)] * 512),
        "stream 60 to 68 B": stream([bytes(60 + n % 9) for n in range(512)]),
        "stream 64 B, 28 B of metadata": stream([Payload(bytes(64), bytes(28))] * 512),
        "request/response 64 B, 256 concurrent": request(256),
        "request/response 64 B, 1 at a time": request(1),
        "a stream of 3 items, 2 grants": channel(64),
    }


def measured(turn: Callable[[], int]) -> float:
    """Return the CPU time of one item, in nanoseconds."""
    turn()
    count, spent, start = 0, 0.0, time.process_time()
    while spent < SECONDS:
        count += turn()
        spent = time.process_time() - start
    return spent / count * 1e9


def run(folder: Path) -> dict[str, float]:
    """Run all measurements once, with the afflux of a folder."""
    words = [sys.executable, __file__, "--once"]
    env = os.environ | {"PYTHONPATH": str(folder.resolve())}
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def main() -> None:
    """Measure alternately and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled")
    parser.add_argument("folders", nargs="*", type=Path, default=[PURE, COMPILED], metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of each, in turns (5)")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.once:
        print(json.dumps({name: measured(turn) for name, turn in workloads().items()}))
        return
    pure, compiled = asked.folders
    runs = [(run(pure), run(compiled)) for _ in range(asked.runs)]
    print(f"{'ns of CPU for an item, both ends':40} {'pure':>8} {'compiled':>9} {'ratio':>6}")
    for name in runs[0][0]:
        one, other = (median(told[which][name] for told in runs) for which in (0, 1))
        print(f"{name:40} {one:8.0f} {other:9.0f} {one / other:6.2f}")


if __name__ == "__main__":
    main()
