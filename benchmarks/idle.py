"""What is measured of a crowd: connections that do nothing, streams on one connection. The command is many.py's.

Server and client are two processes on loopback, crowd.py's; this one tells them what to do. Memory is what is resident
(``/proc``), above what each process had before; what the kernel keeps for its sockets is not in it. CPU time is user
and system. A count that is wrong, or a connection that is missing, is a failure.
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

__all__ = ["Cost", "Idle", "Open", "connections", "streams"]

_ROOT = Path(__file__).resolve().parent.parent
_KI, _MI = 1024, 1024 * 1024
_ITEMS = 6
"Items of each stream."
_REQUESTS = 1000
"Requests beside open streams: what one event costs."


class Cost(NamedTuple):
    """One figure of both ends."""

    server: float
    client: float

    def times(self, factor: float) -> Cost:
        """In another unit, or for each of many."""
        return Cost(self.server * factor, self.client * factor)


class Used(NamedTuple):
    """What one end has used for a step, and holds behind it."""

    cpu: float
    "Seconds, user and system."
    rss: float
    "Bytes."


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one command."""

    server: Used
    client: Used
    seconds: float
    connections: int
    "How many the server has."

    def cpu(self, n: int) -> Cost:
        """CPU time for each of ``n``, in microseconds."""
        return Cost(self.server.cpu, self.client.cpu).times(1e6 / n)

    def memory(self, before: Step, n: int) -> Cost:
        """What each of ``n`` takes, in KiB: memory is compared with what there was before them."""
        return Cost(self.server.rss - before.server.rss, self.client.rss - before.client.rss).times(1 / n / _KI)


@dataclass(slots=True)
class Ends:
    """A server and a client, spoken to in turn."""

    server: End
    client: End

    async def do(self, what: str, expected: int = 0, **arguments: Any) -> Step:
        """Let the client do something.

        Raises:
            Failure: the client has not counted what was expected.
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
    """Fresh processes; both have ended after the context."""
    with tempfile.TemporaryFile() as server_errors, tempfile.TemporaryFile() as client_errors:
        started = [server := await _start(["server", loop, str(n)], server_errors)]
        try:
            uris = (await server.hear())["uris"]
            started.insert(0, client := await _start(["client", loop, str(n), *uris], client_errors))
            yield Ends(server, client)
        finally:
            for end in started:
                await end.end()


async def _start(arguments: list[str], errors: IO[bytes]) -> End:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "benchmarks.crowd", *arguments)
    return End(
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors, cwd=_ROOT), errors
    )


# -- connections ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Idle:
    """What ``n`` connections have cost."""

    n: int
    per_second: float
    "Connections made in a second."
    connect: Cost
    "CPU time of making one, in microseconds."
    fresh: Cost
    "Memory of one that has done nothing, in KiB."
    minute: Cost
    "CPU seconds of a minute in which nothing happens but keepalives, of all of them."
    worked: Cost
    "Memory of one that has had a request, in KiB."
    total: Cost
    "Resident memory of the whole process, in MiB."


async def connections(loop: str, n: int, seconds: float, keepalive: float) -> Idle:
    """``n`` connections: made, left alone for ``seconds``, and asked once each.

    Raises:
        Failure: one of them was lost, or something was not counted.
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
    """What ``n`` streams of one connection have cost. CPU time is in microseconds."""

    n: int
    open: Cost
    "Opening one, with its first item."
    memory: Cost
    "Memory of one that waits for credit, in KiB."
    beside: Cost
    "A request and its answer, while they are all open."
    item: Cost
    "A grant of one, and the item, on each in turn."
    end: Cost
    "The same with the end behind it."


async def streams(loop: str, n: int, rounds: int) -> Open:
    """``n`` streams at once on one connection: opened, an item on each, and another, and their ends; medians of some
    rounds.

    Raises:
        Failure: something was not counted.
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
