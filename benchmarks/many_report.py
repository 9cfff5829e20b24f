"""Render the figures of many.py on the terminal and in docs/how-to/many.md, from the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import words
from benchmarks.bars import JUDGED
from benchmarks.marks import between
from benchmarks.report import table

__all__ = ["PAGE", "Table", "markdown", "report", "rewritten", "section"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "many.md"


_OF_CONNECTIONS: Final = (
    ("memory per connection before its first request, KiB", "fresh"),
    ("memory per connection after a request, KiB", "worked"),
    ("memory of the whole process, MiB", "total"),
    ("CPU time per new connection, µs", "connect"),
    ("CPU time of all connections per idle minute, s", "minute"),
)
_OF_STREAMS: Final = (
    ("memory of a stream that waits for credit, KiB", "memory"),
    ("CPU time to open a stream with its first item, µs", "open"),
    ("CPU time per further item of each stream, µs", "item"),
    ("CPU time per last item and end of a stream, µs", "end"),
    ("CPU time per request with all streams open, µs", "beside"),
)
_TELLING: Final = 1000
"Minimum number of streams whose memory is visible in that of a process."
_KINDS: Final = {"request": "requests", "stream": "items"}


class Table(NamedTuple):
    """Rows under a heading. The first column is text, the others are figures."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def report(figures: dict[str, Any]) -> str:
    """Return the report for a terminal."""
    parts = [" ".join([f"{_where(figures)}.", *words.doubts(figures)])]
    parts += [f"{one.title}\n{table(one.header, one.rows)}" for one in _tables(figures)]
    parts += [f"{spread}." for spread in _spread(figures)]
    if figures["not_run"]:
        parts.append("\n  ".join(["not run", *figures["not_run"]]))
    return "\n\n".join(parts) + "\n"


def rewritten(page: str, figures: dict[str, Any]) -> str:
    """Return the page with a new section.

    Raises:
        ValueError: the marks are missing.
    """
    return between(page, "benchmarks/many.json", "make bench-many", section(figures))


def section(figures: dict[str, Any]) -> str:
    """Return the section for the page."""
    parts = [" ".join([f"{_where(figures)}.", *words.doubts(figures)])]
    for one in _tables(figures):
        parts += [f"**{one.title}**", markdown(one)]
    parts += [f"{spread}." for spread in _spread(figures)]
    parts += [f"Not run: {reason}." for reason in figures["not_run"]]
    return "\n\n".join(parts) + "\n"


def _where(figures: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    return f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, {figures['system']}; {versions}"


def _tables(figures: dict[str, Any]) -> Iterator[Table]:
    yield _targets(figures["targets"])
    if figures["connections"]:
        yield _connections(figures["connections"], figures["seconds"])
    for loop, rows in figures["streams"].items():
        yield _streams(loop, rows)
    if figures["workers"]:
        yield _workers(figures["workers"])


def _targets(targets: list[dict[str, Any]]) -> Table:
    loops = dict.fromkeys([JUDGED, *(loop for entry in targets for loop in entry["measured"])])
    rows = [
        [
            entry["what"],
            words.target(entry, "bar"),
            words.target(entry, "ambition"),
            *(words.short(entry["measured"][loop]) if loop in entry["measured"] else "" for loop in loops),
            entry["verdict"],
        ]
        for entry in targets
    ]
    return Table(f"Targets, judged on {JUDGED}", ["", "bar", "ambition", *loops, ""], rows)


def _connections(found: dict[str, Any], seconds: float) -> Table:
    n = max(one["n"] for one in found.values())
    rows = [
        [name, *(_both(one[field]) for one in found.values())]
        for name, field in _OF_CONNECTIONS
        if seconds or field != "minute"
    ]
    rows.append(["new connections per second", *(words.short(one["per_second"]) for one in found.values())])
    return Table(f"{n:,} connections; server + client", ["", *found], rows)


def _streams(loop: str, found: list[dict[str, Any]]) -> Table:
    rows = [
        # Few of them find room in what the process has anyway.
        [name, *("" if field == "memory" and one["n"] < _TELLING else _both(one[field]) for one in found)]
        for name, field in _OF_STREAMS
    ]
    heads = [f"{one['n']:,}" for one in found]
    return Table(f"Concurrent streams on one connection, on {loop}; server + client", ["", *heads], rows)


def _workers(found: dict[str, Any]) -> Table:
    load = found["load"]
    title = (
        f"Workers; {load['clients']} client processes, {load['connections']} connections each,"
        f" {found['at_once']} concurrent requests or one stream on each; medians of {load['runs']} runs"
    )
    alone = {row["of"]: row["per_second"] for row in found["rates"] if row["workers"] == 1}
    rows = [
        [
            f"{_KINDS[row['of']]}, {row['workers']} worker{'s' if row['workers'] > 1 else ''}",
            words.short(row["per_second"]),
            words.times(row["per_second"] / alone[row["of"]]) if alone.get(row["of"]) else "",
            words.short(row["cpu_workers"]),
            words.short(row["cpu_clients"]),
            words.short(row["per_cpu_s"]),
            words.short(row["with_a_core_each"]),
        ]
        for row in sorted(found["rates"], key=lambda row: (row["of"], row["workers"]))
    ]
    heads = [
        "per second",
        "relative to one",
        "cores of workers",
        "cores of clients",
        "per CPU s of workers",
        "with one core each",
    ]
    return Table(title, ["", *heads], rows)


def _spread(figures: dict[str, Any]) -> Iterator[str]:
    for row in figures["workers"].get("spread", ()):
        if row["workers"] > 1:
            yield (
                f"With {row['connections']} connections over {row['workers']} workers, the busiest had"
                f" {row['busiest']:.0%} (median) and {row['worst']:.0%} (at worst); {1 / row['workers']:.0%} is even"
            )


def _both(cost: dict[str, float]) -> str:
    return f"{words.short(cost['server'])} + {words.short(cost['client'])}"


def markdown(one: Table) -> str:
    """Return the rows for a page."""
    lines = [one.header, ["---", *("---:" for _ in one.header[1:])], *one.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
