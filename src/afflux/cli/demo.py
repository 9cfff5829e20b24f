"""Implement ``afflux demo``: display the progress of the jobs in ``afflux.demo.job`` and ``afflux.demo.live``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from afflux.cli.exits import FAILED, usage
from afflux.cli.inputs import new_directory
from afflux.cli.looping import run_loop
from afflux.cli.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from afflux.demo.job import Result
    from afflux.demo.live import LiveResult

_T = TypeVar("_T")

__all__ = ["demo"]

FLIGHTS = 336_776
BATCH = 50_000
LIVE_BATCHES = 10
"The least batches of a live run."
LIVE_S = 60
"Seconds in which the live server sends all flights, by default."
BAR = 12


def demo(
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, max=FLIGHTS, help="Number of flights.")] = FLIGHTS,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the tables.")] = Path("afflux-demo"),
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Maximum rows per batch.")] = BATCH,
    crash: Annotated[bool, typer.Option("--crash/--no-crash", help="Kill the query halfway and restart it.")] = True,
    live: Annotated[
        bool, typer.Option("--live", help="A live stream instead: relay, windows and a sink, with two crashes.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option("--rate", metavar="N", min=1, help="With --live: flights per second; by default all in 60 s."),
    ] = None,
) -> None:
    """Stream a year of flights into Parquet, with a crash halfway. With --live, a server without a cursor sends them at
    a rate, a relay stores them, and Spark counts them in windows and writes them to a sink. Relay and query are killed
    and restarted. One line shows the figures. At the end the tables are compared with the file."""
    if rate is not None and not live:
        usage("--rate is for --live")
    new_directory(str(out), "--out")
    _check()
    typer.echo("   0.0 s  starting; the first rows arrive in about 20 s", err=True)  # now, because imports take a while
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    batch = min(batch, max(1, rows // (LIVE_BATCHES if live else 4)))
    if live:
        result: Result | LiveResult = _live(console, out, rows, rate or max(1, rows // LIVE_S), batch, crash)
    else:
        from afflux.demo.job import run

        with _View(console, rows, batch) as view:
            result = run_loop(_stoppable(run(out, rows=rows, batch=batch, crash=crash, report=view.report), view))
            view.end(result)
    if not sys.stdout.isatty():  # a terminal has all of it already
        typer.echo(json.dumps(result.line()))
    if not result.exact:
        raise typer.Exit(FAILED)


def _check() -> None:
    """Report what is missing before anything is started."""
    from afflux.demo.flights import archive
    from afflux.spark.session import check

    archive()
    check()


def _live(console: Console, out: Path, rows: int, rate: int, batch: int, crash: bool) -> LiveResult:
    from afflux.cli.demolive import LiveView
    from afflux.demo.live import run_live

    with LiveView(console, rows, rate, batch) as view:
        job = run_live(out, rows=rows, rate=rate, batch=batch, crash=crash, report=view.report)
        result = run_loop(_stoppable(job, view))
        view.end(result)
    return result


async def _stoppable(job: Coroutine[Any, Any, _T], view: Progress) -> _T:
    """Run a job, and let the view show the time. SIGTERM cancels the job, as SIGINT does, so that it ends its
    processes."""
    task = asyncio.ensure_future(job)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    while not task.done():
        view.tick()
        await asyncio.wait((task,), timeout=1)
    return task.result()


class _View(Progress):
    """Print one line per event on stderr; the bar counts committed rows."""

    def __init__(self, console: Console, rows: int, batch: int) -> None:
        super().__init__(console)
        self._console = console
        self._rows = rows
        self._batch = batch
        self._granted = 0
        self._used = 0

    def report(self, event: str, facts: dict[str, Any]) -> None:
        """Show one event of the job."""
        show = getattr(self, f"_{event}", None)
        if show is not None:
            show(**facts)

    def _serving(self, uri: str) -> None:
        self.say(f"server at [bold]{uri}[/bold], asked for {self._rows:,} flights")

    def _starting(self, what: str) -> None:
        self.wait(f"starting {what}")

    def _session(self, seconds: float) -> None:
        self.say(f"Spark session after {seconds:.1f} s")
        self.wait("first batch")

    def _finished(self, batch: int, rows: int, end: int, seconds: float) -> None:
        self._granted += self._batch
        self._used += rows
        done = min(end, self._rows)
        bar = "█" * (BAR * done // self._rows)
        self.say(
            f"[green]{bar:░<{BAR}}[/green] {done:>7,} rows  batch {batch}  "
            f"credit {rows:,}/{self._batch:,}  {rows / max(seconds, 1e-3):,.0f}/s"
        )

    def _done(self) -> None:
        self.say("all rows written, and the tables by_carrier and by_hour")

    def _killed(self, batch: int) -> None:
        self.say(f"[bold red]SIGKILL[/bold red] sent to the query, batch {batch} written but not committed")

    def _restarted(self) -> None:
        self.say("query restarted from its checkpoint")
        self.wait("starting Spark")

    def _checking(self) -> None:
        self.say(f"credit: {self._granted:,} granted, {self._used:,} used")
        self.wait("comparing the tables with the flight file")

    def end(self, result: Result) -> None:
        """Show the carriers and the verdict."""
        from rich.table import Table

        verdict = result.verdict
        table = Table("carrier", box=None, pad_edge=False)
        for name in ("flights", "departures", "mean delay, min"):
            table.add_column(name, justify="right")
        for carrier, delay in sorted(verdict.by_carrier.items(), key=lambda pair: -pair[1].flights):
            table.add_row(carrier, f"{delay.flights:,}", f"{delay.departures:,}", f"{delay.mean:.1f}")
        self.clear()
        self._console.print(table)
        colour = "green" if verdict.exact else "red"
        self.say(
            f"[bold {colour}]{verdict.rows:,} of {result.expected:,} rows, {verdict.lost} lost, {verdict.duplicated} "
            f"duplicated[/bold {colour}], {result.crashes} crash, {result.seconds:.0f} s"
        )
        self.say(f"tables in {result.out}")
        for difference in verdict.differences:
            self.say(f"[bold red]{difference}[/bold red]")
