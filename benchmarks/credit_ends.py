"""The two ends of the credit arena, each a process: ``python -m benchmarks.credit_ends server|client [PORT]``.

The server's handler makes items as fast as it may, and writes into each the moment at which it was made. The client
takes them for some seconds, some consumers slowly, and says how many came and how old they were when the application
got them. Both read the same monotonic clock: they run on one machine. What is measured is credit.py's.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import afflux
from afflux.aio.flow import ItemStream

__all__ = ["main"]

_STAMP = 8
"Bytes of an item that say when it was made."
_SOME = 8
"The age of one in so many is kept for the percentile; the mean is of all."


class Handler:
    """A source that never ends."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        """Items of the sizes that are asked for, over and over; after each ``burst`` of them a pause."""
        asked = json.loads(payload.data)
        pads = [bytes(size - _STAMP) for size in asked["sizes"]]
        now = time.monotonic_ns
        if (burst := asked.get("burst")) is None:
            while True:
                for pad in pads:
                    yield now().to_bytes(_STAMP) + pad
        pad, start = pads[0], time.monotonic()
        for n in count(1):
            for _ in range(burst):
                yield now().to_bytes(_STAMP) + pad
            await asyncio.sleep(start + n * asked["every"] - time.monotonic())


class Consumer:
    """Takes one stream. ``pace`` is a list of (seconds, seconds an item), over and over."""

    def __init__(self, stream: ItemStream, pace: list[list[float]], trace: bool) -> None:
        self._stream = stream
        self._pace = pace
        self.items = 0
        self.bytes = 0
        self.age = 0.0
        "Of all items, in seconds."
        self.ages = array("d")
        "Of some."
        self.sizes: list[tuple[float, int, int]] | None = [] if trace else None

    async def run(self, start: float, end: float) -> None:
        """Take items until ``end``."""
        clock = time.monotonic_ns
        phases = _phases(self._pace, start, end)
        until, delay = next(phases)
        ages, total, size, items = self.ages, 0, 0, 0
        async for item in self._stream:
            now_ns = clock()
            data = item.data
            age = now_ns - int.from_bytes(data[:_STAMP])
            total += age
            if not items % _SOME:
                ages.append(age / 1e9)
            size += len(data)
            items += 1
            now = now_ns / 1e9
            if now >= until:
                if now >= end:
                    break
                until, delay = next(phases)
            if self.sizes is not None:
                window: Any = self._stream._inbound.window
                self.sizes.append((now - start, window.target, window.outstanding))
            if delay:
                await asyncio.sleep(delay)
        self.items, self.bytes, self.age = items, size, total / 1e9
        self._stream.cancel()


def _phases(pace: list[list[float]], start: float, end: float) -> Any:
    """When each phase ends, and the seconds an item in it."""
    at = start
    while True:
        for seconds, delay in pace:
            at = min(end, at + seconds) if at < end else end
            yield at, delay


async def _client(port: int) -> None:
    command = json.loads(sys.stdin.readline())
    credit, seconds, consumers = command["credit"], command["seconds"], []
    async with afflux.connect(f"tcp://127.0.0.1:{port}") as peer:
        start = time.monotonic()
        for one in command["streams"]:
            request = json.dumps(one).encode()
            stream = peer.stream(request, credit=credit)
            consumers.append(Consumer(stream, one["pace"], command.get("trace", False)))
        async with asyncio.timeout(seconds + 20):
            await asyncio.gather(*(one.run(start, start + seconds) for one in consumers))
        taken = time.monotonic() - start
        ages = array("d", sorted(age for one in consumers for age in one.ages))
        answer = {
            "seconds": taken,
            "items": sum(one.items for one in consumers),
            "bytes": sum(one.bytes for one in consumers),
            "age": sum(one.age for one in consumers) / max(1, sum(one.items for one in consumers)),
            "age_p99": ages[int(len(ages) * 0.99)],
            "cpu": time.process_time(),
            "peak": _peak(),
            "streams": [[one.items, one.age / max(1, one.items)] for one in consumers],
        }
        if command.get("trace"):
            answer["trace"] = [one.sizes for one in consumers]
        print(json.dumps(answer), flush=True)
        sys.stdin.readline()  # the way and the server are ended first: nobody waits for what is under way


async def _server() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Handler()) as server:
        print(json.dumps({"port": int(server.uri.rpartition(":")[2])}), flush=True)
        ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: ended.done() or ended.set_result(None))
        await ended


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main(arguments: list[str]) -> int:
    """Be one of the two."""
    match arguments:
        case ["server"]:
            asyncio.run(_server())
        case ["client", port]:
            asyncio.run(_client(int(port)))
        case _:
            print("usage: python -m benchmarks.credit_ends server | client PORT", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
