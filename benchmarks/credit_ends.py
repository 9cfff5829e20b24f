"""Run an end of the credit benchmark as a process: ``python -m benchmarks.credit_ends server|client [PORT]``.

The server's handler produces items as fast as it may, and writes the time of production into each. The client consumes
them for some seconds, some consumers slowly, and reports their number and their age on arrival at the application. Both
read the same monotonic clock, on one machine. See credit.py for the measurements.
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
"Bytes of an item that contain its production time."
_SOME = 8
"One in this many ages is stored for the percentile; the mean includes all."


class Handler:
    """An endless source."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        """Yield items of the requested sizes in rotation, with a pause after each ``burst``."""
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
    """Consume one stream. ``pace`` is a list of (seconds, seconds per item), in rotation."""

    def __init__(self, stream: ItemStream, pace: list[list[float]], trace: bool) -> None:
        self._stream = stream
        self._pace = pace
        self.items = 0
        self.bytes = 0
        self.age = 0.0
        "Of all items, in seconds."
        self.ages = array("d")
        "Of a sample."
        self.sizes: list[tuple[float, int, int]] | None = [] if trace else None

    async def run(self, start: float, end: float) -> None:
        """Consume items until ``end``."""
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
    """Yield the end of each phase, and its seconds per item."""
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
        sys.stdin.readline()  # the link and the server are stopped first: no one waits for data in flight


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
    """Run one of the two ends."""
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
