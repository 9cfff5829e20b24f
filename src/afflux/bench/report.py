"""Results for people and for programs: tables, JSON, CSV, NDJSON, and what is worth a word. Text only, no measuring."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from afflux.bench.hdrlog import HEADER, encode, line
from afflux.bench.result import SERIES, Result
from afflux.bench.thresholds import Threshold, shown_time

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["SCHEMA", "as_csv", "as_hdr_log", "as_json", "as_ndjson", "crossed", "document", "notes", "show"]

SCHEMA = "afflux.bench/1"
"The version of the JSON document. Names are added to it; none is changed or taken away."

_SHORT_S = 0.5
"Seconds below which that is not said."

_BUSY = 0.9
"The share of a processor above which this client may be what limits a load."


# -- for programs -------------------------------------------------------------------------------------------


def document(result: Result, thresholds: Sequence[Threshold] = ()) -> dict[str, Any]:
    """A run as JSON has it: every figure, the failures by kind, and the thresholds."""
    made = result.record()
    made["failures"] = [
        {
            "kind": failure.kind,
            "code": None if failure.code is None else f"0x{failure.code:03X}",
            "count": failure.count,
            "example": failure.example,
        }
        for failure in result.failures
    ]
    made["thresholds"] = [
        {"threshold": threshold.text, "value": threshold.value(result), "crossed": bool(threshold.crossed(result))}
        for threshold in thresholds
    ]
    return made


def as_json(results: Iterable[Result], thresholds: Sequence[Threshold] = ()) -> str:
    """All runs in one document; with the histogram of each one's latency, as HdrHistogram writes it."""
    runs = [
        document(result, thresholds) | {"latency_hdr": b64encode(encode(result.latency)).decode()} for result in results
    ]
    return json.dumps({"schema": SCHEMA, "runs": runs}, indent=2, ensure_ascii=False) + "\n"


def as_ndjson(result: Result, thresholds: Sequence[Threshold] = ()) -> str:
    """A run as one line."""
    return json.dumps(document(result, thresholds), separators=(",", ":"), ensure_ascii=False) + "\n"


def as_csv(results: Sequence[Result]) -> str:
    """A line with the names, and one for each run."""
    text = io.StringIO()
    rows = [result.record() for result in results]
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_hdr_log(results: Iterable[Result]) -> str:
    """A log for the tools of HdrHistogram: a line for each series of each run, its tag says of which."""
    text = HEADER
    for result in results:
        credit = f".credit-{result.record()['credit']}" if result.plan.flows else ""
        for name in SERIES:
            if histogram := result.series(name):
                text += line(histogram, f"{name}{credit}", result.started, result.duration)
    return text


# -- what is worth a word -----------------------------------------------------------------------------------


def crossed(results: Sequence[Result], thresholds: Iterable[Threshold]) -> list[str]:
    """The thresholds that were crossed, and by what."""
    return [
        _named(result, results) + text
        for result in results
        for threshold in thresholds
        if (text := threshold.crossed(result)) is not None
    ]


def notes(results: Sequence[Result]) -> list[str]:
    """What somebody should know before believing the figures."""
    return [_named(result, results) + text for result in results for text in _notes(result)]


def _notes(result: Result) -> Iterator[str]:
    tally, plan = result.tally, result.plan
    if result.lost is not None:
        yield f"the run ended early, for the server was lost: {result.lost}"
    if plan.verb == "fire":
        yield from _of_fires(result)
    if result.kept_up is False:
        yield _behind(result)
    if result.slow_here:
        yield (
            f"this machine began {result.late_here:,} of {result.requests:,} requests more than 1 ms late: "
            "their latency is not the server's alone"
        )
    if result.cpu > _BUSY and result.duration > _SHORT_S:
        more = "use --workers, or another machine" if plan.connections > 1 else "use more connections, and --workers"
        yield f"this client used {result.cpu:.0%} of a processor, and may be what limits the load: {more}"
    if result.trip is None:
        entry = plan.address.entry
        why = "the server answers no KEEPALIVE" if entry.keepalives else f"{entry.name} has no KEEPALIVE"
        yield f"{why}: the round trip is not known, nor what credit costs"
    if tally.cut:
        cut, have = ("stream", "was cut", "it has"), ("streams", "were cut", "they have")
        what, were, they = cut if tally.cut == 1 else have
        yield f"{tally.cut:,} {what} without an end {were} when the time was over; {they} no latency"
    if result.interrupted and tally.unfinished:
        were = "request was not over and counts" if tally.unfinished == 1 else "requests were not over and count"
        yield f"interrupted: {tally.unfinished:,} {were} neither way"


def _of_fires(result: Result) -> Iterator[str]:
    if lost := result.tally.connections_lost:
        often = "once" if lost == 1 else f"{lost:,} times"
        yield f"THE CONNECTION WAS LOST {often.upper()}, and with it what was under way: it counts as sent all the same"
    yield "fires have no answer: what is counted was sent, and whether it arrived is not known"


def _behind(result: Result) -> str:
    """Why open load did not go as it was meant to: the rate was too much, or only some moments were."""
    plan = result.plan
    if not result.achieved:
        return (
            f"the server did not keep up: {result.requests_per_s:,.1f} requests a second of {plan.rate:,.1f} asked "
            f"for, and up to {result.backlog:,} had to wait. Latency is that of a queue, and grows with the time"
        )
    waited = result.late - result.late_here
    busy = f"all {plan.streams:,} streams" if plan.streams > 1 else "the one stream"
    return (
        f"the rate was kept, but {waited:,} of {result.requests:,} requests ({waited / result.requests:.1%}) had to "
        f"wait for a free stream, up to {shown_time(result.tally.delay.max / 1e9)}, up to {result.backlog:,} at once: "
        f"{busy} of each connection had work. That is in their latency; more streams (-m) or connections (-c) may help"
    )


def _named(result: Result, results: Sequence[Result]) -> str:
    """Which of several runs is meant."""
    return f"credit {result.record()['credit']}: " if len(results) > 1 else ""


# -- for people ---------------------------------------------------------------------------------------------


def show(results: Sequence[Result], console: Console) -> None:
    """Print tables."""
    from afflux.bench import tables

    def put(part: Any) -> None:
        console.print(tables.Trimmed(part), end="")

    put(tables.title(results))
    console.print()
    if len(results) == 1:
        put(tables.throughput(results[0]))
        console.print()
        for part in (tables.times(results[0]), tables.chart(results[0]), *tables.words(results[0])):
            if part is not None:
                put(part)
                console.print()
    else:
        for table in tables.sweep(results):
            put(table)
            console.print()
    if any(result.failures for result in results):
        put(tables.failures(results))
