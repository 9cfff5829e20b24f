"""Measure idle connections, and many streams on one connection. See many.py for the command.

Server and client are two processes on loopback (crowd.py), controlled by this one. Memory is resident memory
(``/proc``) above that of each process before; kernel memory of sockets is not included. CPU time is user and system. A
wrong count or a missing connection is a failure.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, NamedTuple

from benchmarks.pairs import End, Failure

__all__ = ["Cost", "Idle", "Open", "connections", "start", "streams"]

_ROOT = Path(__file__).resolve().parent.parent
_KI, _MI = 1024, 1024 * 1024
_ITEMS = 6
"Items of each stream."
_REQUESTS = 1000
"Requests with open streams: the cost of one event."


class Cost(NamedTuple):
    """One figure of both ends."""

    server: float
    client: float

    def times(self, factor: float) -> Cost:
        """Return it in another unit, or divided by a count."""
        return Cost(self.server * factor, self.client * factor)


class Used(NamedTuple):
    """The resource usage of one end for a step."""

    cpu: float
    "Seconds, user and system."
    rss: float
    "Bytes."


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one command."""

    server: Used
    client: Used
    seconds: float
    connections: int
    "Connections of the server."

    def cpu(self, n: int) -> Cost:
        """CPU time for each of ``n``, in microseconds."""
        return Cost(self.server.cpu, self.client.cpu).times(1e6 / n)

    def memory(self, before: Step, n: int) -> Cost:
        """Memory of each of ``n`` in KiB, above that of the time before."""
        return Cost(self.server.rss - before.server.rss, self.client.rss - before.client.rss).times(1 / n / _KI)


@dataclass(slots=True)
class Ends:
    """A server and a client, controlled alternately."""

    server: End
    client: End

    async def do(self, what: str, expected: int = 0, **arguments: Any) -> Step:
        """Send the client a command.

        Raises:
            Failure: the client's count is wrong.
        """
        client = await self.client.ask({"do": what, "with": arguments})
        server = await self.server.ask({})
        if client["count"] != expected:
            raise Failure(f"{what}: counted {client['count']}, not {expected}")
        return Step(
            Used(server["cpu"], server["rss"]), Used(client["cpu"], client["rss"]), client["s"], server["connections"]
        )


@asynccontextmanager
async def ends(loop: str, n: int) -> AsyncIterator[Ends]:
    """Start fresh processes; both have ended after the context."""
    with tempfile.TemporaryFile() as server_errors, tempfile.TemporaryFile() as client_errors:
        started = [server := await start(["server", loop, str(n)], server_errors)]
        try:
            uris = (await server.hear())["uris"]
            started.insert(0, client := await start(["client", loop, str(n), *uris], client_errors))
            yield Ends(server, client)
        finally:
            for end in started:
                await end.end()


async def start(arguments: list[str], errors: IO[bytes]) -> End:
    """Start a process of ``crowd`` with these arguments."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "benchmarks.crowd", *arguments)
    return End(
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors, cwd=_ROOT), errors
    )


# -- connections ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Idle:
    """The cost of ``n`` connections."""

    n: int
    per_second: float
    "Connections opened per second."
    connect: Cost
    "CPU time per new connection, in microseconds."
    fresh: Cost
    "Memory per connection before its first request, in KiB."
    minute: Cost
    "CPU seconds of all connections in a minute with keepalives only."
    worked: Cost
    "Memory per connection after a request, in KiB."
    total: Cost
    "Resident memory of the whole process, in MiB."


async def connections(loop: str, n: int, seconds: float, keepalive: float) -> Idle:
    """Open ``n`` connections, leave them idle for ``seconds``, and send one request on each.

    Raises:
        Failure: a connection was lost, or a count is wrong.
    """
    async with ends(loop, n) as both:
        await both.do("connect", 1, n=1, keepalive=keepalive)  # what is done once: imports, the first buffers
        before = await both.do("nothing")
        made = await both.do("connect", n - 1, n=n - 1, keepalive=keepalive)
        await asyncio.sleep(seconds)
        idle = await both.do("nothing")
        asked = await both.do("request", n, rounds=1)
        for step in (made, idle, asked):
            if step.connections != n:
                raise Failure(f"the server has {step.connections} connections, not {n}")
    return Idle(
        n=n,
        per_second=(n - 1) / made.seconds,
        connect=made.cpu(n - 1),
        fresh=made.memory(before, n - 1),
        minute=Cost(idle.server.cpu, idle.client.cpu).times(60 / idle.seconds),
        worked=asked.memory(before, n - 1),
        total=Cost(made.server.rss, made.client.rss).times(1 / _MI),
    )


# -- streams --------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Open:
    """The cost of ``n`` streams on one connection. CPU time is in microseconds."""

    n: int
    open: Cost
    "Opening a stream, with its first item."
    memory: Cost
    "Memory per stream that waits for credit, in KiB."
    beside: Cost
    "A request and its answer, with all streams open."
    item: Cost
    "A grant of one and the item, for each stream."
    end: Cost
    "The same, with the end of the stream."


async def streams(loop: str, n: int, rounds: int) -> Open:
    """Open ``n`` concurrent streams on one connection, consume two further items of each and the end; medians of some
    rounds.

    Raises:
        Failure: a count is wrong.
    """
    async with ends(loop, n) as both:
        await both.do("connect", 1, n=1, keepalive=20.0)
        await both.do("request", _REQUESTS, rounds=_REQUESTS)
        await _round(both, min(n, 100))  # what is done once: imports, the first buffers
        found = [await _round(both, n) for _ in range(rounds)]
    return Open(
        n=n,
        open=_median(one.open for one in found),
        memory=found[0].memory,  # later ones get what these have left
        beside=_median(one.beside for one in found),
        item=_median(one.item for one in found),
        end=_median(one.end for one in found),
    )


async def _round(both: Ends, n: int) -> Open:
    before = await both.do("nothing")
    opened = await both.do("open", n, n=n, items=_ITEMS)
    beside = [(await both.do("request", _REQUESTS, rounds=_REQUESTS)).cpu(_REQUESTS) for _ in range(3)]
    items = [(await both.do("items", n)).cpu(n) for _ in range(_ITEMS - 2)]
    ended = await both.do("end", n)
    return Open(
        n=n,
        open=opened.cpu(n),
        memory=opened.memory(before, n),
        beside=_median(beside),
        item=_median(items),
        end=ended.cpu(n),
    )


def _median(costs: Iterable[Cost]) -> Cost:
    return Cost(*map(median, zip(*costs, strict=True)))
