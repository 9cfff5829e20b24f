"""Run the live demo job: a live stream, a relay, queries of Spark and a sink, each of which is a process.

::

    serve --demo ─── relay --journal ─┬─ windows of an hour, by a watermark ─── Parquet table
    flights at a rate, no cursor      └─ each flight, writeStream ─── serve --sink

The relay is killed when the sink has a third of the flights, and the process of the queries when it has two thirds.
Both are started again. The query of the windows is behind that of the sink, so it has rows to read after the kill:
Spark closes no window after a restart before it reads a row. At the end the rows of the sink and the windows are
compared with the flight file. Figures are reported regularly, also while a process is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afflux.core.errors import Error
from afflux.demo.expected import Expected, LiveVerdict, compare, expected
from afflux.demo.flights import TOTAL, archive
from afflux.demo.job import clear
from afflux.demo.processes import JobFailed, Service, end, last_words, line, process
from afflux.spark.session import check

__all__ = ["Figures", "LiveResult", "Report", "run_live"]

Report = Callable[[str, dict[str, Any]], None]
"Called with an event's name and its facts."

TICK_S = 0.5
"Seconds between reports of the figures."
RATE_S = 3.0
"Seconds over which the rate is measured."
STUCK_S = 180.0
"Seconds in which no row reaches the sink and no query is started, after which the job fails."
ASK_S = 2.0
"The most seconds for which a report waits for the relay."


@dataclass(slots=True, kw_only=True)
class Figures:
    """What the line of figures shows."""

    phase: str = "starting Spark"
    "What happens."
    rows: int = 0
    "Rows that the sink shows."
    stored: int = 0
    "Flights that the relay has stored."
    rate: float = 0.0
    "Rows per second, over the last seconds."
    credit: int = 0
    "Rows that the tasks of the last batch might receive."
    batch: int | None = None
    "The last batch of the query."
    stalls: dict[str, float] = field(default_factory=dict)
    "Seconds in which no rows flowed, by cause, since the query was started."

    @property
    def lag(self) -> int:
        """Flights that are stored and not in the sink."""
        return max(0, self.stored - self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    """The result of the job."""

    sent: int
    "Flights that the server has sent."
    open: int
    "Windows that the watermark has not closed."
    crashes: int
    "Processes that were killed."
    seconds: float
    "From start to verdict."
    verdict: LiveVerdict
    "The comparison with the file."
    out: Path
    "The folder of the tables."

    @property
    def exact(self) -> bool:
        """Whether everything is there once, and nothing differs."""
        return self.verdict.exact

    def line(self) -> dict[str, Any]:
        """Return the result as the command prints it."""
        return {
            "sent": self.sent,
            "rows": self.verdict.rows,
            "lost": self.verdict.lost,
            "doubled": self.verdict.doubled,
            "windows": self.verdict.windows,
            "open_windows": self.open,
            "crashes": self.crashes,
            "exact": self.exact,
            "seconds": round(self.seconds, 1),
            "out": str(self.out),
        }


async def run_live(
    out: Path, *, rows: int = TOTAL, rate: int, batch: int, crash: bool = True, report: Report
) -> LiveResult:
    """Run the job in ``out``.

    Args:
        out: the folder of the tables.
        rows: the number of flights.
        rate: flights that the server sends in a second.
        batch: the most rows of a batch.
        crash: kill the relay and the queries.
        report: is called for each event, and with ``figures`` every ``TICK_S``.

    Raises:
        MissingExtra: the flight data, pyspark or Java is not installed.
        Unsupported: every installed Java is too old.
        JobFailed: a process failed.
        FileExistsError: ``out`` contains files of something else.
    """
    started = time.monotonic()
    archive()
    check()
    out = out.absolute()
    clear(out)
    wanted = await asyncio.to_thread(expected, rows)
    job = _Job(out, rows, rate, batch, report)
    crashes = await job.run(wanted, crash)
    report("checking", {})
    verdict = await asyncio.to_thread(compare, out / "windows", out / "sink", wanted)
    seconds = time.monotonic() - started
    return LiveResult(sent=rows, open=wanted.open, crashes=crashes, seconds=seconds, verdict=verdict, out=out)


class _Job:
    """The processes of one run."""

    def __init__(self, out: Path, rows: int, rate: int, batch: int, report: Report) -> None:
        self._out = out
        self._rows = rows
        self._rate = rate
        self._batch = batch
        self._report = report
        self._figures = Figures()
        self._moved = time.monotonic()
        "When the last row came to the sink, or a query was started."

    async def run(self, wanted: Expected, crash: bool) -> int:
        """Run all processes until the tables are complete; return how many were killed."""
        out = self._out
        self._report("starting", {"what": "server, relay and sink"})
        since = json.dumps({"count": self._rows, "rate": self._rate, "since": int(time.time())})
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Service(out / "server.log", "serve", "{listen}", "--demo"))
            origin = ("--from", server.uri, "-r", "flights", "-d", since, "--replays")
            journal = ("--journal", str(out / "relay"), "--listen", "{listen}")
            relay = await stack.enter_async_context(Service(out / "relay.log", "relay", *origin, *journal))
            receiving = Service(out / "sink.log", "serve", "{listen}", "--sink", str(out / "sink"))
            sink = await stack.enter_async_context(receiving)
            self._report("serving", {"server": server.uri, "relay": relay.uri, "sink": sink.uri})
            self._report("starting", {"what": "Spark"})
            ticking = asyncio.create_task(self._tick(relay.uri))
            try:
                kills = ["relay", "query"] if crash else []
                query = (relay.uri, sink.uri, f"{wanted.watermark:%Y-%m-%dT%H:%M:%S.000Z}")
                while await self._query(query, relay, kills):
                    self._figures.phase = "starting Spark again"
                    self._report("restarted", {"part": "query"})
                return 2 - len(kills) if crash else 0
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    async def _query(self, query: tuple[str, str, str], relay: Service, kills: list[str]) -> bool:
        """Run the queries to their end, or until they are killed: then return True. Killed parts leave ``kills``."""
        log = self._out / "query.log"
        uri, sink, until = query
        words = ["--relay", uri, "--sink", sink, "--until", until, "--out", str(self._out)]
        words += ["--rows", str(self._rows), "--batch", str(self._batch)]
        self._moved = time.monotonic()
        async with process(log, "-m", "afflux.demo.livequery", *words) as running:
            while told := await line(running, log):
                facts = json.loads(told)
                match facts.pop("event"):
                    case "done":
                        return False
                    case "figures":
                        self._note(**facts)
                    case event:
                        self._figures.phase = "starting the queries"
                        self._report(event, facts)
                if kills and self._figures.rows >= self._rows * (3 - len(kills)) // 3:
                    if kills.pop(0) == "query":
                        end(running, signal.SIGKILL)
                        self._figures.phase = "query killed"
                        self._report("killed", {"part": "query", "batch": self._figures.batch})
                        return True
                    await self._kill_relay(relay)
        raise JobFailed(f"the queries ended too early: {last_words(log)}")

    async def _kill_relay(self, relay: Service) -> None:
        self._figures.phase = "relay killed"
        await relay.kill()
        self._report("killed", {"part": "relay", "batch": self._figures.batch})
        await relay.restart()
        self._report("restarted", {"part": "relay"})

    def _note(self, *, rows: int, batch: int, closed: bool, credit: int, stalls: dict[str, float]) -> None:
        figures = self._figures
        if rows > figures.rows:
            figures.rows, self._moved = rows, time.monotonic()
        elif time.monotonic() - self._moved > STUCK_S:
            raise JobFailed(f"no row has reached the sink for {STUCK_S:.0f} s: see the logs in {self._out}")
        figures.batch, figures.credit, figures.stalls = batch, credit, stalls
        figures.phase = "streaming" if rows < self._rows else "windows closed" if closed else "closing windows"

    async def _tick(self, relay: str) -> None:
        """Report the figures until this is canceled."""
        figures = self._figures
        seen: deque[tuple[float, int]] = deque()
        while True:
            await asyncio.sleep(TICK_S)
            with contextlib.suppress(Error, OSError, TimeoutError):  # the relay is away
                figures.stored = await asyncio.wait_for(_head(relay), ASK_S)
            now = time.monotonic()
            while len(seen) > 1 and seen[1][0] < now - RATE_S:
                seen.popleft()
            seen.append((now, figures.rows))
            (first, then), passed = seen[0], now - seen[0][0]
            figures.rate = (figures.rows - then) / passed if now > first else 0.0
            self._report("figures", {"figures": figures})


async def _head(uri: str) -> int:
    """Ask a server for the offset after its last durable item."""
    from afflux import connect
    from afflux.protocols.rsocket.cursor import Head, state_of

    async with connect(uri) as peer, peer.stream(cursor=Head()) as answer:
        async for item in answer:
            return state_of(item.metadata).head
    return 0
