"""Display the live demo job: events as lines, and its figures in one line that is rewritten on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from afflux.cli.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from afflux.demo.live import Figures, LiveResult

__all__ = ["LiveView", "figures_line"]

PLAIN_S = 2.0
"Seconds between the lines of figures where there is no terminal."


def figures_line(figures: Figures) -> str:
    """Return the figures as text: the phase is not among them."""
    batch = "-" if figures.batch is None else figures.batch
    stalls = ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in figures.stalls.items()) or "none"
    return (
        f"{figures.rows:,} rows, {figures.rate:,.0f}/s, lag {figures.lag:,}, credit {figures.credit:,}, "
        f"batch {batch}, stalls {stalls}"
    )


class LiveView(Progress):
    """Prints to stderr. Leaving it ends the line of figures."""

    def __init__(self, console: Console, rows: int, rate: int, batch: int) -> None:
        super().__init__(console)
        self._rows = rows
        self._rate = rate
        self._batch = batch
        self._phase = ""
        self._printed = -PLAIN_S

    def report(self, event: str, facts: dict[str, Any]) -> None:
        """Show one event of the job."""
        getattr(self, f"_{event}")(**facts)

    def _figures(self, figures: Figures) -> None:
        if figures.phase != self._phase:
            self._phase = figures.phase
            self.say(figures.phase)
        text = figures_line(figures)
        if sys.stderr.isatty():
            self.rewrite(text)
        elif self.elapsed - self._printed >= PLAIN_S:
            self._printed = self.elapsed
            sys.stderr.write(f"{self.elapsed:6.1f} s  {text}\n")
            sys.stderr.flush()

    def _starting(self, what: str) -> None:
        self.wait(f"starting {what}")

    def _serving(self, server: str, relay: str, sink: str) -> None:
        self.say(f"[bold]{server}[/bold] sends {self._rows:,} flights, {self._rate:,} a second")
        self.say(f"[bold]{relay}[/bold] relays them, with a cursor")
        self.say(f"[bold]{sink}[/bold] is the sink")

    def _session(self, seconds: float) -> None:
        self.say(f"Spark session after {seconds:.1f} s; two queries, at most {self._batch:,} rows a batch")

    def _killed(self, part: str, batch: int | None) -> None:
        self.say(f"[bold red]SIGKILL[/bold red] sent to the {part}, after batch {batch}")

    def _restarted(self, part: str) -> None:
        where = "its checkpoints" if part == "query" else "its journal"
        self.say(f"{part} restarted from {where}")

    def _checking(self) -> None:
        self.say("comparing the tables with the flight file")

    def end(self, result: LiveResult) -> None:
        """Show the verdict."""
        verdict = result.verdict
        colour = "green" if verdict.exact else "red"
        self.say(
            f"[bold {colour}]{result.sent:,} rows sent, {verdict.rows:,} in the sink, {verdict.lost} lost, "
            f"{verdict.doubled} doubled[/bold {colour}], {result.crashes} crashes"
        )
        if not verdict.differences:
            self.say(f"{verdict.windows:,} closed windows are as in the file; {result.open:,} are still open")
        for difference in verdict.differences:
            self.say(f"[bold red]{difference}[/bold red]")
        self.say(f"{result.seconds:.0f} s")
        self.say(f"tables in {result.out}")
