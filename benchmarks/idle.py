"""What many cost: ``python -m benchmarks.idle``. 10,000 connections that do nothing, 10,000 streams on one connection.

Server and client are two processes on loopback, crowd.py's; this one tells them what to do, and sets the table. Memory
is what is resident (``/proc``), above what each process had before; what the kernel keeps for its sockets is not in
it. CPU time is user and system. A count that is wrong, or a connection that is missing, is a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, Final, NamedTuple

from benchmarks.crowd import room
from benchmarks.pairs import End, Failure

__all__ = ["connections", "main", "streams"]

_LOOPS: Final = ("asyncio", "uvloop")
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


# -- the command ----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when all could be measured."""
    asked = _parser().parse_args(arguments)
    if not Path("/proc/self/statm").exists():
        print("memory is read from /proc, which is not here", file=sys.stderr)
        return 1
    n, counts = asked.connections, sorted({min(100, asked.streams), min(1000, asked.streams), asked.streams})
    seconds, rounds = asked.seconds, 5
    if asked.smoke:
        n, counts, seconds, rounds = 50, [50], 0.0, 1
    if (most := room(n)) < n:
        print(f"{most} connections, not {n}: the limit of open files (ulimit -Hn) is in the way", file=sys.stderr)
        n = most
    figures: dict[str, Any] = {}
    try:
        for loop in asked.loops:
            _tell(f"{loop}: {n} connections, then {seconds:g} s of nothing")
            idle = asyncio.run(connections(loop, n, seconds, asked.keepalive))
            print("\n".join(_about_connections(loop, idle, timed=bool(seconds))), flush=True)
            found = []
            for count in counts:
                _tell(f"{loop}: {count} streams")
                found.append(asyncio.run(streams(loop, count, rounds)))
            print("\n".join(_about_streams(loop, found)), flush=True)
            figures[loop] = {"connections": asdict(idle), "streams": [asdict(one) for one in found]}
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    if asked.out is not None:
        asked.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description="What many cost.")
    add = parser.add_argument
    add("--connections", type=int, default=10_000, metavar="N", help="connections of one client process (10,000)")
    add("--streams", type=int, default=10_000, metavar="N", help="streams on one connection (10,000)")
    add("--seconds", type=float, default=40.0, metavar="S", help="how long nothing happens (40: two keepalives)")
    add("--keepalive", type=float, default=20.0, metavar="S", help="seconds between keepalives (20)")
    add("--loops", nargs="+", choices=_LOOPS, default=_LOOPS, metavar="LOOP", help="asyncio, uvloop, or both")
    add("--smoke", action="store_true", help="50 of each: does it run, is all counted?")
    add("--out", type=Path, metavar="FILE", help="write the figures there too, as JSON")
    return parser


def _about_connections(loop: str, idle: Idle, *, timed: bool) -> list[str]:
    head = f"{loop}: {idle.n:,} connections of one client process, made at {idle.per_second:,.0f} a second"
    rows = [
        ("memory of a connection that has done nothing, KiB", idle.fresh, ".2f"),
        ("memory of one that has had a request, KiB", idle.worked, ".2f"),
        ("memory of the whole process, MiB", idle.total, ".0f"),
        ("CPU time to make one, µs", idle.connect, ".0f"),
    ]
    if timed:
        rows.append(("CPU time of an idle minute of all of them, s", idle.minute, ".2f"))
    lines = [f"  {name:<54}{cost.server:>10{form}}{cost.client:>10{form}}" for name, cost, form in rows]
    return [head, f"  {'':<54}{'server':>10}{'client':>10}", *lines, ""]


def _about_streams(loop: str, found: Sequence[Open]) -> list[str]:
    rows = [
        ("memory of a stream that waits for credit, KiB", "memory", ".2f"),
        ("CPU time to open one, with its first item, µs", "open", ".1f"),
        ("CPU time of one more item on each, µs", "item", ".1f"),
        ("CPU time of the last item and the end of each, µs", "end", ".1f"),
        ("CPU time of a request beside them all, µs", "beside", ".1f"),
    ]
    lines = [
        f"{loop}: streams open at once on one connection",
        "  " + " " * 54 + "".join(f"{f'{one.n:,}':>20}" for one in found),
    ]
    lines.append("  " + " " * 54 + f"{'server':>10}{'client':>10}" * len(found))
    for name, field, form in rows:
        costs = [getattr(one, field) for one in found]
        lines.append(f"  {name:<54}" + "".join(f"{cost.server:>10{form}}{cost.client:>10{form}}" for cost in costs))
    return [*lines, ""]


def _tell(line: str) -> None:
    """Progress, in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
