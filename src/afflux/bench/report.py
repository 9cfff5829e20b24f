"""Format results as tables, JSON, CSV and NDJSON, with notes on their validity."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from afflux.bench.hdrlog import HEADER, encode, line
from afflux.bench.result import SERIES, Result
from afflux.bench.tally import Failure
from afflux.bench.thresholds import Threshold, shown_time

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["SCHEMA", "as_csv", "as_hdr_log", "as_json", "as_ndjson", "crossed", "document", "notes", "show"]

SCHEMA = "afflux.bench/1"
"The version of the JSON document. Names may be added, but are never changed or removed."

_SHORT_S = 0.5
"Runs shorter than this number of seconds are not checked for a busy client."

_BUSY = 0.9
"The processor share above which the client may be the bottleneck."


# -- for programs -------------------------------------------------------------------------------------------


def document(result: Result, thresholds: Sequence[Threshold] = ()) -> dict[str, Any]:
    """Return a run as a JSON object: every figure, the failures by kind, and the thresholds."""
    made = result.record()
    made["failures"] = _kinds(result.failures)
    made["refusals"] = _kinds(result.refusals)
    made["thresholds"] = [
        {"threshold": threshold.text, "value": threshold.value(result), "crossed": bool(threshold.crossed(result))}
        for threshold in thresholds
    ]
    return made


def _kinds(failures: Iterable[Failure]) -> list[dict[str, Any]]:
    return [
        {
            "kind": failure.kind,
            "code": None if failure.code is None else f"0x{failure.code:03X}",
            "count": failure.count,
            "example": failure.example,
        }
        for failure in failures
    ]


def as_json(results: Iterable[Result], thresholds: Sequence[Threshold] = ()) -> str:
    """Return all runs as one document, each with its latency histogram in HdrHistogram format."""
    runs = [
        document(result, thresholds) | {"latency_hdr": b64encode(encode(result.latency)).decode()} for result in results
    ]
    return json.dumps({"schema": SCHEMA, "runs": runs}, indent=2, ensure_ascii=False) + "\n"


def as_ndjson(result: Result, thresholds: Sequence[Threshold] = ()) -> str:
    """Return a run as one line."""
    return json.dumps(document(result, thresholds), separators=(",", ":"), ensure_ascii=False) + "\n"


def as_csv(results: Sequence[Result]) -> str:
    """Return a header line, and one line per run."""
    text = io.StringIO()
    rows = [result.record() for result in results]
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_hdr_log(results: Iterable[Result]) -> str:
    """Return an HdrHistogram log: one line per series and run, identified by its tag."""
    text = HEADER
    for result in results:
        credit = f".credit-{result.record()['credit']}" if result.plan.flows else ""
        for name in SERIES:
            if histogram := result.series(name):
                text += line(histogram, f"{name}{credit}", result.started, result.duration)
    return text


# -- notes --------------------------------------------------------------------------------------------------


def crossed(results: Sequence[Result], thresholds: Iterable[Threshold]) -> list[str]:
    """Return one text for each crossed threshold, with the measured value."""
    return [
        _named(result, results) + text
        for result in results
        for threshold in thresholds
        if (text := threshold.crossed(result)) is not None
    ]


def notes(results: Sequence[Result]) -> list[str]:
    """Return notes that qualify the figures."""
    return [_named(result, results) + text for result in results for text in _notes(result)]


def _notes(result: Result) -> Iterator[str]:
    tally, plan = result.tally, result.plan
    if tally.refused:
        yield _refused(result)
    if result.lost is not None:
        yield f"the run ended early, because the server was lost: {result.lost}"
    if plan.verb == "fire":
        yield from _of_fires(result)
    if result.kept_up is False:
        yield _behind(result)
    if result.slow_here:
        yield (
            f"this machine started {result.late_here:,} of {result.requests:,} requests more than 1 ms late: "
            "their latency is not only the server's"
        )
    if result.cpu > _BUSY and result.duration > _SHORT_S:
        more = "use --workers, or another machine" if plan.connections > 1 else "use more connections, and --workers"
        yield f"this client used {result.cpu:.0%} of a processor and may be the bottleneck: {more}"
    if result.trip is None:
        entry = plan.address.entry
        why = "the server does not answer KEEPALIVE" if entry.keepalives else f"{entry.name} has no KEEPALIVE"
        yield f"{why}: the round trip and the cost of credit are unknown"
    if tally.cut:
        one, many = ("stream", "was", "it has"), ("streams", "were", "they have")
        what, were, they = one if tally.cut == 1 else many
        yield f"{tally.cut:,} endless {what} {were} canceled at the end of the run; {they} no latency"
    if result.interrupted and tally.unfinished:
        were = "request was" if tally.unfinished == 1 else "requests were"
        yield f"interrupted: {tally.unfinished:,} {were} unfinished and counted neither as success nor as failure"


def _refused(result: Result) -> str:
    """State how many connections were refused, and why."""
    were = "connection was" if result.plan.connections == 1 else "connections were"
    causes = "; ".join(f"{failure.count:,} times {failure.example}" for failure in result.refusals)
    left = "" if not result.connections_open else f"; the figures are those of the other {result.connections_open:,}"
    return f"{result.tally.refused:,} of {result.plan.connections:,} {were} refused: {causes}{left}"


def _of_fires(result: Result) -> Iterator[str]:
    if lost := result.tally.connections_lost:
        often = "once" if lost == 1 else f"{lost:,} times"
        yield f"THE CONNECTION WAS LOST {often.upper()}: fires in flight were lost with it, but count as sent"
    yield "fires have no answer: they are counted as sent; it is unknown whether they arrived"


def _behind(result: Result) -> str:
    """Explain why open load was late: the rate was too high throughout, or only at times."""
    plan = result.plan
    if not result.achieved:
        return (
            f"the server did not keep up: {result.requests_per_s:,.1f} of {plan.rate:,.1f} requests per second, and up "
            f"to {result.backlog:,} requests waited; the latency is that of a growing queue"
        )
    waited = result.late - result.late_here
    busy = f"all {plan.streams:,} streams" if plan.streams > 1 else "the one stream"
    return (
        f"the rate was achieved, but {waited:,} of {result.requests:,} requests ({waited / result.requests:.1%}) waited"
        f" for a free stream, up to {shown_time(result.tally.delay.max / 1e9)}, up to {result.backlog:,} together: "
        f"{busy} of each connection had work. The latency includes this; more streams (-m) or connections (-c) may help"
    )


def _named(result: Result, results: Sequence[Result]) -> str:
    """Return a prefix that names the run, if there are several."""
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
    if any(result.failures or result.refusals for result in results):
        put(tables.failures(results))
