"""Render the tables and the chart for a terminal, with rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from afflux.bench.histogram import Histogram
from afflux.bench.result import SERIES, Result, percent_of
from afflux.bench.thresholds import shown_time

__all__ = ["Trimmed", "chart", "edges", "failures", "sweep", "throughput", "times", "title", "words"]

_BAR = 40
"Columns of the longest bar."

_ROWS = 11
"Maximum bars of a chart, excluding the last."

_USUAL = 99.5
"The percentile up to which values have separate bars."

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STEPS = (
    (1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.2, 3.6, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0, 9.0),
    (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)
"Divisions of a power of ten, finest first."

_SHOWN = ("p50", "p90", "p95", "p99", "p999", "max", "mean")
_NAMES = {
    "latency": "latency",
    "service": "  service",
    "start_delay": "  start delay",
    "first_item": "first item",
    "gap": "gap",
}
_WHAT = {"request": "requests", "fire": "fires sent", "stream": "streams", "channel": "channels"}


class Trimmed:
    """Print a renderable without trailing spaces."""

    def __init__(self, part: RenderableType) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._part, options, pad=False):
            while line and not line[-1].text.rstrip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from (*line, Segment.line())


def title(results: Sequence[Result]) -> Text:
    """Describe the load: the address, and one line with the rest."""
    result = results[0]
    plan = result.plan
    load = "closed load" if plan.rate is None else f"{plan.rate:,.10g} per second"
    parts = [
        plan.verb,
        load,
        f"{plan.connections:,} connection{'s' * (plan.connections > 1)} × {plan.streams:,}",
        shown_time(result.duration) if len(results) == 1 else f"{len(results)} runs",
    ]
    if plan.workers > 1:
        parts.append(f"{plan.workers} processes")
    if result.trip is not None:
        parts.append(f"round trip {shown_time(result.trip)}")
    return Text.assemble((plan.uri, "bold"), "\n", (" · ".join(parts), "dim"))


def throughput(result: Result) -> Table:
    """Return the throughput table."""
    tally = result.tally
    table = _table("", "per second", "total")
    table.add_row(_WHAT[result.plan.verb], f"{result.requests_per_s:,.1f}", f"{tally.succeeded + tally.cut:,}")
    if result.plan.flows:
        table.add_row("items", f"{result.items_per_s:,.1f}", f"{tally.items:,}")
    if result.plan.verb != "fire":
        table.add_row("received", _bytes(result.bytes_per_s), _bytes(tally.bytes))
    style = "red" if tally.failed else ""
    table.add_row("failed", _percent(result.error_rate), f"{tally.failed:,}", style=style)
    if tally.refused:
        share = _percent(tally.refused / result.plan.connections)
        table.add_row("connections refused", share, f"{tally.refused:,}", style="red")
    if tally.connections_lost:
        table.add_row("connections lost", "", f"{tally.connections_lost:,}", style="red")
    return table


def times(result: Result) -> Table | None:
    """Return the percentiles of each series that has values."""
    table = _table("", *("p99.9" if name == "p999" else name for name in _SHOWN))
    for name in SERIES:
        if histogram := result.series(name):
            shown = "time to send" if result.plan.verb == "fire" and name == "latency" else _NAMES[name]
            table.add_row(shown, *(_time(histogram, figure) for figure in _SHOWN))
    return table if table.row_count else None


def chart(result: Result) -> Table | None:
    """Return the distribution of the latency: one bar per range, and one for the slowest values."""
    histogram = result.latency
    if not histogram:
        return None
    bounds = edges(histogram.min / 1e9, histogram.percentile(_USUAL) / 1e9)
    if histogram.max / 1e9 > bounds[-1]:
        bounds.append(histogram.max / 1e9)
    counts = [0] * len(bounds)
    at = 0
    for least, greatest, count in histogram.buckets():
        while (least + greatest) / 2e9 > bounds[at] and at < len(bounds) - 1:
            at += 1
        counts[at] += count
    table = _table("sent within" if result.plan.verb == "fire" else "latency up to", "", "")
    seen = [at for at, count in enumerate(counts) if count]
    for at in range(seen[0], seen[-1] + 1):  # without empty bars at either end
        bound, count = bounds[at], counts[at]
        table.add_row(shown_time(bound), _percent(count / histogram.count), _bar(count / max(counts), count))
    table.columns[2].justify = "left"
    return table


def edges(least: float, greatest: float) -> list[float]:
    """Return the upper bounds of the chart's ranges: round numbers, as fine as the rows allow."""
    for steps in _STEPS:
        found = _edges(least, greatest, steps)
        if len(found) <= _ROWS:
            return found
    return found


def _edges(least: float, greatest: float, steps: Sequence[float]) -> list[float]:
    found = []
    for power in range(-10, 6):
        for step in steps:
            edge = round(step * 10.0**power, 12)
            if edge >= least:
                found.append(edge)
            if edge >= greatest:
                return found
    return found


def words(result: Result) -> Iterator[Text]:
    """Describe how the streams' time was spent, and whether open load was on schedule."""
    plan = result.plan
    if (stall := result.stall) is not None:
        credit, peer, application = (_percent(stall[cause]) for cause in ("credit", "peer", "application"))
        yield Text(f"stream time: {credit} waiting for credit, {peer} for the server, {application} in this client")
    if plan.rate is not None:
        achieved = f"{result.requests_per_s:,.1f} of {plan.rate:,.10g} requests per second"
        late = f"{result.late:,} started late, {result.late_here:,} of them because of this machine"
        yield Text(f"{achieved}; {late}; longest queue {result.backlog:,}", style="" if result.kept_up else "yellow")


def sweep(results: Sequence[Result]) -> Iterator[Table]:
    """Return one row per run, in two tables that fit a terminal."""
    flow = _table("credit", "per second", "items/s", "received/s", "stall", "peer", "client", "failed")
    times = _table("credit", "p50", "p90", "p99", "max", "first item")
    for result in results:
        name = str(result.record()["credit"])
        stall = result.stall or {}
        flow.add_row(
            name,
            f"{result.requests_per_s:,.1f}",
            f"{result.items_per_s:,.0f}",
            _bytes(result.bytes_per_s),
            *(_percent(stall[cause]) if stall else "" for cause in ("credit", "peer", "application")),
            Text(f"{result.tally.failed:,}", style="red" if result.tally.failed else ""),
        )
        latency, first = result.latency, result.series("first_item")
        shown = (_time(latency, figure) if latency else "" for figure in ("p50", "p90", "p99", "max"))
        times.add_row(name, *shown, _time(first, "p50") if first else "")
    yield from (flow, times)


def failures(results: Sequence[Result]) -> Table:
    """Return the failures by kind."""
    table = _table("failed", "count", "code", "first error")
    table.columns[3].justify = "left"
    for result in results:
        for failure in (*result.failures, *result.refusals):
            code = "" if failure.code is None else f"0x{failure.code:03X}"
            table.add_row(Text(failure.kind, style="red"), f"{failure.count:,}", code, Text(failure.example))
    return table


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _time(histogram: Histogram, figure: str) -> str:
    if figure.startswith("p"):
        return shown_time(histogram.percentile(percent_of(figure)) / 1e9)
    return shown_time(getattr(histogram, figure) / 1e9)


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share == 0 or share >= 0.001 else f"{share * 100:.2g} %"


def _bytes(size: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.2f} {unit}"
    return f"{size:,.0f} B"


def _bar(share: float, count: int) -> str:
    eighths = max(round(share * _BAR * 8), 1 if count else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
