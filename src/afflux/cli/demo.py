"""Implement ``afflux demo``: display the progress of the job in ``afflux.demo.job``."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afflux.cli.exits import FAILED

if TYPE_CHECKING:
    from rich.console import Console

    from afflux.demo.job import Result

__all__ = ["demo"]

FLIGHTS = 336_776
BATCH = 50_000
BAR = 16


def demo(
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, max=FLIGHTS, help="Number of flights.")] = FLIGHTS,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the tables.")] = Path("afflux-demo"),
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Maximum rows per batch.")] = BATCH,
    crash: Annotated[bool, typer.Option("--crash/--no-crash", help="Kill the query halfway and restart it.")] = True,
) -> None:
    """Stream a year of flights into Parquet, with a crash halfway."""
    from rich.console import Console

    from afflux.demo.job import run

    console = Console(stderr=True, highlight=False)
    batch = min(batch, max(1, rows // 4))
    view = _View(console, rows, batch)
    result = asyncio.run(run(out, rows=rows, batch=batch, crash=crash, report=view.report))
    view.end(result)
    typer.echo(json.dumps(result.line()))
    if not result.verdict.exact:
        raise typer.Exit(FAILED)


class _View:
    """Print one line per event on stderr; the bar counts committed rows."""

    def __init__(self, console: Console, rows: int, batch: int) -> None:
        self._console = console
        self._rows = rows
        self._batch = batch
        self._granted = 0
        self._used = 0
        self._start = time.monotonic()

    def report(self, event: str, facts: dict[str, Any]) -> None:
        """Show one event of the job."""
        show = getattr(self, f"_{event}", None)
        if show is not None:
            show(**facts)

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  {text}", soft_wrap=True)

    def _serving(self, uri: str) -> None:
        self._say(f"server at [bold]{uri}[/bold], streams journalled; {self._rows:,} flights requested")

    def _session(self, seconds: float) -> None:
        self._say(f"Spark session after {seconds:.1f} s")

    def _finished(self, batch: int, rows: int, end: int, seconds: float) -> None:
        self._granted += self._batch
        self._used += rows
        done = min(end, self._rows)
        bar = "█" * (BAR * done // self._rows)
        self._say(
            f"[green]{bar:░<{BAR}}[/green] {done:>7,} rows  batch {batch}: "
            f"credit {self._batch:,} granted, {rows:,} used, {rows / max(seconds, 1e-3):,.0f} rows/s"
        )

    def _done(self) -> None:
        self._say("all rows written, and the tables by_carrier and by_hour")

    def _killed(self, batch: int) -> None:
        self._say(f"[bold red]SIGKILL[/bold red] sent to the query, batch {batch} written but not committed")

    def _restarted(self) -> None:
        self._say("query restarted from its checkpoint")

    def _checking(self) -> None:
        self._say(f"total credit: {self._granted:,} granted, {self._used:,} used; verifying the tables")

    def end(self, result: Result) -> None:
        """Show the carriers and the verdict."""
        from rich.table import Table

        verdict = result.verdict
        table = Table("carrier", box=None, pad_edge=False)
        for name in ("flights", "departures", "mean delay, min"):
            table.add_column(name, justify="right")
        for carrier, delay in sorted(verdict.by_carrier.items(), key=lambda pair: -pair[1].flights):
            table.add_row(carrier, f"{delay.flights:,}", f"{delay.departures:,}", f"{delay.mean:.1f}")
        self._console.print(table)
        colour = "green" if verdict.exact else "red"
        self._say(
            f"[bold {colour}]{verdict.rows:,} of {result.expected:,} rows, {verdict.lost} lost, {verdict.duplicated} "
            f"duplicated[/bold {colour}], {result.crashes} crash, {result.seconds:.0f} s; tables in {result.out}"
        )
        for difference in verdict.differences:
            self._say(f"[bold red]{difference}[/bold red]")
