"""Measure ``afflux serve --workers`` with real commands and clients on one machine. See many.py for the command.

This module is also the client process: ``python -m benchmarks.workers URI request|stream CONNECTIONS SECONDS``.

The same client processes run the same load on servers with one and with several workers, alternating. Clients use a
share of the same cores, so on a small machine a second worker gains only what they leave. The CPU time of servers and
clients is therefore reported too, and the work per CPU second of the server: it would fall if sharing itself cost
something. The distribution of connections among workers is counted as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import afflux
from benchmarks.pairs import End, Failure
from benchmarks.peers.base import loop_factory

__all__ = [
    "AT_ONCE",
    "KINDS",
    "SPREAD",
    "Compared",
    "Load",
    "Responder",
    "Sample",
    "Served",
    "compare",
    "measure",
    "served",
    "spread",
]

Kind = Literal["request", "stream"]
KINDS: Final[tuple[Kind, ...]] = ("request", "stream")

_ROOT = Path(__file__).resolve().parent.parent
_SIZE = 64
AT_ONCE = 16
"Requests in flight on each connection."
SPREAD = 64
"Connections for counting their distribution."
_TICK = os.sysconf("SC_CLK_TCK")


class Responder:
    """The handler: echoes requests, or returns the process id; a stream is endless."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload | str:
        """Echo; answer ``b"who"`` with the process id."""
        return str(os.getpid()) if payload.data == b"who" else payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[list[bytes]]:
        """Yield items of 64 bytes until the client stops."""
        items = [bytes(_SIZE)] * 64
        while True:
            yield items


class Served(NamedTuple):
    """A server."""

    uri: str
    workers: tuple[int, ...]
    "The processes that serve."


class Sample(NamedTuple):
    """The result of some seconds of load."""

    rate: float
    "Requests or items per second."
    server: float
    "CPU seconds of all workers per second."
    clients: float
    "CPU seconds of the clients per second."

    @property
    def worth(self) -> float:
        """Requests or items per second of the workers' CPU time."""
        return self.rate / self.server if self.server else 0.0


class Load(NamedTuple):
    """The load on a server."""

    runs: int = 5
    "Alternating runs of everything."
    seconds: float = 2.0
    "Duration of each load."
    clients: int = 2
    "Client processes."
    connections: int = 16
    "Connections of each client process."
    rounds: int = 9
    "Number of times the distribution is counted."


class Compared(NamedTuple):
    """All results."""

    samples: dict[tuple[Kind, int], list[Sample]]
    "By interaction and number of workers."
    shares: dict[int, list[float]]
    "By number of workers: see ``spread``."


async def compare(counts: Sequence[int], load: Load, told: Callable[[str], None]) -> Compared:
    """Run the same load on servers with each number of workers, alternating.

    Raises:
        Failure: a server or a client has failed.
    """
    found = Compared({}, {})
    for run in range(load.runs):
        for workers in counts if run % 2 == 0 else counts[::-1]:
            async with served(workers) as server:
                for kind in KINDS:
                    told(f"run {run + 1} of {load.runs}: {workers} workers, {kind}")
                    sample = await measure(server, kind, load.clients, load.connections, load.seconds)
                    found.samples.setdefault((kind, workers), []).append(sample)
                if run == 0:
                    found.shares[workers] = await spread(server, load.rounds, SPREAD)
    return found


@asynccontextmanager
async def served(workers: int) -> AsyncIterator[Served]:
    """Run ``afflux serve`` with this number of workers; it has ended after the context.

    Raises:
        Failure: it did not start.
    """
    command = ["serve", "tcp://127.0.0.1:0", "--handler", "benchmarks.workers:Responder", f"--workers={workers}"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "afflux", *command, stdout=asyncio.subprocess.PIPE, cwd=_ROOT
    )
    try:
        if process.stdout is None or not (line := await process.stdout.readline()):
            raise Failure("the server did not come up")
        uri, found = line.decode().split()[1], Counter[int]()
        while len(found) < workers:
            found += await _who(uri, 8 * workers)
        yield Served(uri, tuple(found))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _who(uri: str, connections: int) -> Counter[int]:
    """Open connections concurrently; return how many each process has."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(afflux.connect(uri)) for _ in range(connections)]
        return Counter([int((await peer.request(b"who")).data) for peer in peers])


async def spread(server: Served, rounds: int, connections: int) -> list[float]:
    """Return the share of the busiest worker for each set of connections, sorted."""
    shares = [max((await _who(server.uri, connections)).values()) / connections for _ in range(rounds)]
    return sorted(shares)


async def measure(server: Served, kind: Kind, clients: int, connections: int, seconds: float) -> Sample:
    """Run the load of some client processes, with ``connections`` each.

    Raises:
        Failure: a client has failed.
    """
    async with AsyncExitStack() as stack:
        ends = [
            await stack.enter_async_context(_client(server.uri, kind, connections, seconds)) for _ in range(clients)
        ]
        for end in ends:
            await end.hear()  # it is connected
        before = _cpu(server.workers)
        start = time.perf_counter()
        found: list[dict[str, Any]] = await asyncio.gather(*(end.ask({}) for end in ends))
        took = time.perf_counter() - start
        used = _cpu(server.workers) - before
    return Sample(
        rate=sum(one["count"] / one["seconds"] for one in found),
        server=used / took,
        clients=sum(one["cpu"] / one["seconds"] for one in found),
    )


@asynccontextmanager
async def _client(uri: str, kind: Kind, connections: int, seconds: float) -> AsyncIterator[End]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "benchmarks.workers", uri, kind, str(connections), str(seconds))
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors, cwd=_ROOT)
        end = End(process, errors)
        try:
            yield end
        finally:
            await end.end()


def _cpu(processes: Sequence[int]) -> float:
    """Return the CPU seconds, user and system, that processes have used so far."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


# -- the client's process ---------------------------------------------------------------------------------------


async def _load(uri: str, kind: Kind, connections: int, seconds: float) -> None:
    """Connect and report it; work when a line arrives, and report the result."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(afflux.connect(uri)) for _ in range(connections)]
        for peer in peers:
            await peer.request(b"")
        _say({"connected": len(peers)})
        await asyncio.to_thread(sys.stdin.readline)
        busy, start = time.process_time(), time.perf_counter()
        until = start + seconds
        if kind == "stream":
            works = [_take(peer, until) for peer in peers]
        else:
            works = [_request(peer, until) for peer in peers for _ in range(AT_ONCE)]
        count = sum(await asyncio.gather(*works))
        took = time.perf_counter() - start
        _say({"count": count, "seconds": took, "cpu": time.process_time() - busy})


async def _request(peer: afflux.Peer, until: float) -> int:
    count, data = 0, bytes(_SIZE)
    while time.perf_counter() < until:
        count += len((await peer.request(data)).data) == _SIZE
    return count


async def _take(peer: afflux.Peer, until: float) -> int:
    count = 0
    async with peer.stream(b"", credit=256) as items:
        async for batch in items.batches():
            count += len(batch)
            if time.perf_counter() >= until:
                break
    return count


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _, uri, kind, connections, seconds = sys.argv
    with asyncio.Runner(loop_factory=loop_factory("uvloop" if find_spec("uvloop") else "asyncio")) as runner:
        runner.run(_load(uri, "stream" if kind == "stream" else "request", int(connections), float(seconds)))
