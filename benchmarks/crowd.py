"""Run one end of a many-connections measurement: ``python -m benchmarks.crowd server|client LOOP N [URI ...]``.

``N`` is the number of connections, or of streams on one connection. Reads commands from standard input, one JSON object
per line, and answers each with one line; exits at the end of its input. A server first prints its addresses. A client
executes the command and reports its counts. All answers include the resource usage since the previous one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import afflux
from benchmarks.peers.base import loop_factory

__all__ = ["PORTS", "main", "room"]

PORTS = 20_000
"Connections between two addresses: the system has only about 28,000 ports."

_AT_ONCE = 64
"Connections that are opened concurrently."
_SPARE = 64
"Descriptors that a process needs in addition to its connections."


def main(arguments: list[str]) -> int:
    """Run a server or a client until the input ends."""
    match arguments:
        case ["server", loop, n]:
            work = _serve(int(n))
        case ["client", loop, n, *uris]:
            work = _work(int(n), uris)
        case _:
            _say({"error": "usage: server LOOP N | client LOOP N URI ..."})
            return 2
    room(int(arguments[2]))
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(work)
    return 0


def room(wanted: int) -> int:
    """Raise the limit of descriptors as far as possible; return how many connections fit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        hard = max(hard, wanted + _SPARE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # only root may go beyond the hard limit
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - _SPARE


def _limits(n: int) -> afflux.Limits:
    """Return the default limits, except those that would prevent so many connections."""
    return afflux.Limits.server(
        connections=max(10_000, n),
        connections_per_address=None,
        accepts_per_s=1_000_000,
        half_handshakes=max(1_024, n),
        streams=max(256, n + 1),
    )


class _Responder:
    """Answer requests; a stream has as many items as its request says."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for _ in range(int(payload.data)):
            yield bytes(64)


async def _serve(n: int) -> None:
    """Listen on as many addresses as the clients need, and report resource usage for each line."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(afflux.serve(f"tcp://127.0.0.{number}:0", _Responder(), limits=_limits(n)))
            for number in range(1, 2 + (n - 1) // PORTS)
        ]
        _say({"uris": [server.uri for server in servers]})
        meter = _Meter()
        async for _ in _commands():
            _say({**meter.used(), "connections": sum(len(server.connections) for server in servers)})


async def _work(n: int, uris: list[str]) -> None:
    """Execute each line."""
    crowd = _Crowd(uris, _limits(n))
    meter = _Meter()
    async for command in _commands():
        count = await getattr(crowd, f"do_{command['do']}")(**command["with"])
        _say({**meter.used(), "count": count})
    await crowd.close()


class _Crowd:
    """The client's connections and streams. Every method returns its count of answers, items or ends."""

    def __init__(self, uris: list[str], limits: afflux.Limits) -> None:
        self._uris = uris
        self._limits = limits
        self._peers: list[afflux.Peer] = []
        self._streams: list[afflux.ItemStream] = []

    async def do_nothing(self) -> int:
        """Return the resource usage."""
        return 0

    async def do_connect(self, n: int, keepalive: float) -> int:
        """Open ``n`` more connections, and check that the last one is served."""

        async def one(number: int) -> None:
            uri = self._uris[number // PORTS]
            self._peers.append(await afflux.connect(uri, keepalive=keepalive, limits=self._limits))

        await _in_turns(one, n)
        return n if (await self._peers[-1].request(b"x")).data == b"x" else 0

    async def do_alive(self) -> int:
        """Count the open connections."""
        return sum(not peer.closed for peer in self._peers)

    async def do_request(self, rounds: int) -> int:
        """Send ``rounds`` requests in sequence on every connection."""
        answers = 0

        async def one(number: int) -> None:
            nonlocal answers
            for _ in range(rounds):
                answer = await self._peers[number].request(b"x")
                answers += answer.data == b"x"

        await _in_turns(one, len(self._peers))
        return answers

    async def do_open(self, n: int, items: int) -> int:
        """Open ``n`` more streams of ``items`` items on the first connection, and consume the first item of each."""
        peer, first = self._peers[0], len(self._streams)
        self._streams += [peer.stream(b"%d" % items, credit=0) for _ in range(n)]
        return await self._take(self._streams[first:])

    async def do_items(self) -> int:
        """Consume one item of each stream."""
        return await self._take(self._streams)

    async def do_end(self) -> int:
        """Consume the last item of each stream, and its end."""
        ended = await self._take(self._streams)
        for stream in self._streams:
            ended -= len([item async for item in stream])
        self._streams.clear()
        return ended

    async def _take(self, streams: list[afflux.ItemStream]) -> int:
        for stream in streams:
            stream.request(1)
        return sum([len((await anext(stream)).data) == 64 for stream in streams])

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(peer.close() for peer in self._peers))


async def _in_turns(one: Callable[[int], Awaitable[None]], n: int) -> None:
    """Run a coroutine for each number below ``n``, a few concurrently."""

    async def some(numbers: Iterator[int]) -> None:
        for number in numbers:
            await one(number)

    numbers = iter(range(n))
    async with asyncio.TaskGroup() as group:
        for _ in range(min(n, _AT_ONCE)):
            group.create_task(some(numbers))


async def _commands() -> AsyncIterator[dict[str, Any]]:
    """Yield the lines of standard input."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        while line := await reader.readline():
            yield json.loads(line)
    finally:
        transport.close()


class _Meter:
    """The resource usage of this process."""

    def __init__(self) -> None:
        self._cpu, self._time = time.process_time(), time.perf_counter()

    def used(self) -> dict[str, float]:
        """Return CPU seconds, user and system, and seconds since the last call; current resident memory in bytes."""
        answer = {"cpu": time.process_time() - self._cpu, "s": time.perf_counter() - self._time}
        gc.collect()
        with open("/proc/self/statm") as file:
            answer["rss"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self._cpu, self._time = time.process_time(), time.perf_counter()
        return answer


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
