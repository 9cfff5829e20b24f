"""Display the live demo job: events as lines, and its figures in one line that is rewritten on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from afflux.demo.live import Figures, LiveResult

__all__ = ["LiveView", "figures_line"]

PLAIN_S = 2.0
"Seconds between the lines of figures where there is no terminal."


def figures_line(figures: Figures) -> str:
    """Return the figures as text."""
    batch = "-" if figures.batch is None else figures.batch
    stalls = ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in figures.stalls.items()) or "none"
    return (
        f"{figures.phase}: {figures.rows:,} rows, {figures.rate:,.0f} rows/s, lag {figures.lag:,}, "
        f"credit {figures.credit:,}, batch {batch}, stalls {stalls}"
    )


class LiveView:
    """Prints to stderr. Leaving it ends the line of figures."""

    def __init__(self, console: Console, rows: int, rate: int, batch: int) -> None:
        self._console = console
        self._rows = rows
        self._rate = rate
        self._batch = batch
        self._start = time.monotonic()
        self._tty = sys.stderr.isatty()
        self._open = False
        "Whether the cursor is behind a line of figures."
        self._printed = -PLAIN_S

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()

    def report(self, event: str, facts: dict[str, Any]) -> None:
        """Show one event of the job."""
        getattr(self, f"_{event}")(**facts)

    def _end_line(self) -> None:
        if self._open:
            sys.stderr.write("\n")
            self._open = False

    def _say(self, text: str) -> None:
        if self._open:
            sys.stderr.write("\r\x1b[K")
            self._open = False
        self._console.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  {text}", soft_wrap=True)

    def _figures(self, figures: Figures) -> None:
        now = time.monotonic() - self._start
        text = f"{now:6.1f} s  {figures_line(figures)}"
        if self._tty:
            sys.stderr.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
            self._open = True
        elif now - self._printed >= PLAIN_S:
            self._printed = now
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _serving(self, server: str, relay: str, sink: str) -> None:
        self._say(f"[bold]{server}[/bold] sends {self._rows:,} flights, {self._rate:,} per second, without a cursor")
        self._say(f"[bold]{relay}[/bold] relays them; [bold]{sink}[/bold] is the sink")

    def _session(self, seconds: float) -> None:
        self._say(f"Spark session after {seconds:.1f} s; two queries, with at most {self._batch:,} rows per batch")

    def _killed(self, part: str, batch: int | None) -> None:
        self._say(f"[bold red]SIGKILL[/bold red] sent to the {part}, after batch {batch}")

    def _restarted(self, part: str) -> None:
        where = "its checkpoints" if part == "query" else "its journal"
        self._say(f"{part} restarted from {where}")

    def _checking(self) -> None:
        self._say("comparing the tables with the flight file")

    def end(self, result: LiveResult) -> None:
        """Show the verdict."""
        verdict = result.verdict
        colour = "green" if verdict.exact else "red"
        self._say(
            f"[bold {colour}]{result.sent:,} rows sent, {verdict.rows:,} in the sink, {verdict.lost} lost, "
            f"{verdict.doubled} doubled[/bold {colour}], {result.crashes} crashes"
        )
        if not verdict.differences:
            self._say(f"{verdict.windows:,} closed windows are as in the file; {result.open:,} are still open")
        for difference in verdict.differences:
            self._say(f"[bold red]{difference}[/bold red]")
        self._say(f"{result.seconds:.0f} s; tables in {result.out}")
