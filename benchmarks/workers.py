"""What ``afflux serve --workers`` gives: ``python -m benchmarks.workers``. Real commands, real clients, one machine.

The same load, from the same client processes, on servers of one and of several workers, in turn. Clients take their
share of the same cores: on a small machine a second worker gets what they leave, and no more. So beside the rate stands
the CPU time of servers and clients, and what it makes of a second of the server's: that figure falls when sharing
itself costs something. And how evenly the system spreads connections is counted, because nobody else does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import afflux
from benchmarks.pairs import End, Failure
from benchmarks.peers.base import loop_factory

__all__ = ["Responder", "Sample", "main", "measure", "served", "spread"]

Kind = Literal["request", "stream"]

_ROOT = Path(__file__).resolve().parent.parent
_SIZE = 64
_AT_ONCE = 16
"Requests under way on each connection."
_CONNECTIONS = 64
"For counting how they are spread."
_TICK = os.sysconf("SC_CLK_TCK")


class Responder:
    """What is served: requests are echoed, or told who serves; a stream has no end."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload | str:
        """Echo; ``b"who"`` is answered with the process's id."""
        return str(os.getpid()) if payload.data == b"who" else payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[list[bytes]]:
        """Items of 64 bytes, until the client has enough."""
        items = [bytes(_SIZE)] * 64
        while True:
            yield items


class Served(NamedTuple):
    """A server."""

    uri: str
    workers: tuple[int, ...]
    "The processes that serve."


class Sample(NamedTuple):
    """What came of some seconds of load."""

    rate: float
    "Requests or items a second."
    server: float
    "CPU seconds of all workers in a second."
    clients: float
    "The same of the clients."

    @property
    def worth(self) -> float:
        """Requests or items for a second of the workers' CPU time."""
        return self.rate / self.server if self.server else 0.0


@asynccontextmanager
async def served(workers: int) -> AsyncIterator[Served]:
    """``afflux serve``, with so many workers; it has ended after the context.

    Raises:
        Failure: it did not come up.
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
    """Open connections, all at once; how many of them each process has."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(afflux.connect(uri)) for _ in range(connections)]
        return Counter([int((await peer.request(b"who")).data) for peer in peers])


async def spread(server: Served, rounds: int, connections: int) -> list[float]:
    """The share of the busiest worker, for each of some crowds of connections, in order of size."""
    shares = [max((await _who(server.uri, connections)).values()) / connections for _ in range(rounds)]
    return sorted(shares)


async def measure(server: Served, kind: Kind, clients: int, connections: int, seconds: float) -> Sample:
    """The load of some client processes, with so many connections each, for so long.

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
    command = (sys.executable, "-m", "benchmarks.workers", "--client", uri, kind, str(connections), str(seconds))
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors, cwd=_ROOT)
        end = End(process, errors)
        try:
            yield end
        finally:
            await end.end()


def _cpu(processes: Sequence[int]) -> float:
    """CPU seconds, user and system, that processes have used so far."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


# -- the client's process ---------------------------------------------------------------------------------------


async def _load(uri: str, kind: Kind, connections: int, seconds: float) -> None:
    """Connect and say so; work when a line comes, and say what was done."""
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
            works = [_request(peer, until) for peer in peers for _ in range(_AT_ONCE)]
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


# -- the command ------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when all could be measured."""
    asked = _parser().parse_args(arguments)
    if asked.client:
        uri, kind, connections, seconds = asked.client
        loop = "uvloop" if find_spec("uvloop") else "asyncio"
        with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
            runner.run(_load(uri, kind, int(connections), float(seconds)))
        return 0
    if asked.smoke:
        asked.runs, asked.seconds, asked.connections, asked.rounds = 1, 0.2, 4, 1
    try:
        asyncio.run(_measure_all(asked))
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


async def _measure_all(asked: argparse.Namespace) -> None:
    samples: dict[tuple[Kind, int], list[Sample]] = {}
    shares: dict[int, list[float]] = {}
    for run in range(asked.runs):
        for workers in asked.workers if run % 2 == 0 else asked.workers[::-1]:
            async with served(workers) as server:
                for kind in ("request", "stream"):
                    _tell(f"run {run + 1} of {asked.runs}: {workers} workers, {kind}")
                    sample = await measure(server, kind, asked.clients, asked.connections, asked.seconds)
                    samples.setdefault((kind, workers), []).append(sample)
                if run == 0:
                    shares[workers] = await spread(server, asked.rounds, _CONNECTIONS)
    _tell("")
    print("\n".join(_report(asked, samples, shares)))
    if asked.out is not None:
        rows = [{"kind": kind, "workers": n, "runs": found} for (kind, n), found in samples.items()]
        asked.out.write_text(json.dumps({"rates": rows, "spread": shares}, indent=1) + "\n")


def _report(
    asked: argparse.Namespace, samples: dict[tuple[Kind, int], list[Sample]], shares: dict[int, list[float]]
) -> list[str]:
    cores = len(os.sched_getaffinity(0))
    lines = [
        f"{asked.clients} client processes with {asked.connections} connections each; medians of {asked.runs} runs, on"
        f" {cores} cores, which clients and workers share",
        f"{'':34}{'a second':>12}{'CPU workers':>14}{'CPU clients':>14}{'for each CPU s of workers':>28}",
    ]
    names = {"request": f"requests, {_AT_ONCE} at once on each", "stream": "items, a stream on each"}
    for (kind, workers), runs in sorted(samples.items()):
        rate, server, clients, worth = (
            median(values) for values in zip(*((*one, one.worth) for one in runs), strict=True)
        )
        name = f"{names[kind]}, {workers}"
        lines.append(f"{name:34}{rate:>12,.0f}{server:>14.2f}{clients:>14.2f}{worth:>28,.0f}")
    for workers, found in sorted(shares.items()):
        even = 1 / workers
        lines.append(
            f"{_CONNECTIONS} connections over {workers}: the busiest worker has {median(found):.0%} of them,"
            f" {found[-1]:.0%} at worst of {len(found)} times ({even:.0%} would be even)"
        )
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description="What several workers give.")
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[1, 2], metavar="N", help="how many, one after the other (1 2)")
    add("--clients", type=int, default=2, metavar="N", help="client processes (2)")
    add("--connections", type=int, default=16, metavar="N", help="connections of each client (16)")
    add("--runs", type=int, default=5, metavar="N", help="alternating runs of everything (5)")
    add("--seconds", type=float, default=2.0, metavar="S", help="how long each load lasts (2)")
    add("--rounds", type=int, default=9, metavar="N", help="how often the spreading is counted (9)")
    add("--smoke", action="store_true", help="very short: does it run?")
    add("--out", type=Path, metavar="FILE", help="write the figures there too, as JSON")
    add("--client", nargs=4, metavar=("URI", "KIND", "CONNECTIONS", "SECONDS"), help=argparse.SUPPRESS)
    return parser


def _tell(line: str) -> None:
    """Progress, in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
