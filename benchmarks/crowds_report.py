"""Render the figures of crowds.py on the terminal and in docs/crowds.md, from the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks import words
from benchmarks.many_report import Table, markdown
from benchmarks.marks import between
from benchmarks.report import table

__all__ = ["PAGE", "report", "rewritten"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "crowds.md"


def report(figures: dict[str, Any]) -> str:
    """Return the report for a terminal."""
    one = _table(figures["found"])
    return "\n\n".join([_about(figures), table(one.header, one.rows), *_not_run(figures)]) + "\n"


def rewritten(page: str, figures: dict[str, Any]) -> str:
    """Return the page with a new section.

    Raises:
        ValueError: the marks are missing.
    """
    section = "\n\n".join([_about(figures), markdown(_table(figures["found"])), *_not_run(figures)]) + "\n"
    return between(page, "benchmarks/crowds.json", "make bench-crowds", section)


def _about(figures: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    where = f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, {figures['system']}; {versions}"
    return " ".join([f"{where}.", *words.doubts(figures)])


def _not_run(figures: dict[str, Any]) -> list[str]:
    return [f"Not run: {text}." for text in figures["not_run"]]


def _table(found: list[dict[str, Any]]) -> Table:
    header = ["", *(f"{one['workers']} process{'es' * (one['workers'] > 1)}" for one in found)]
    rows = [
        ["clients that ask + silent clients", *(f"{one['n']:,} + {one['n']:,}" for one in found)],
        ["requests per second of all, for seconds", *(f"{one['rate']:,.0f}, {one['seconds']:g} s" for one in found)],
    ]
    rows += [
        [f"server, {what}: MiB", *(words.short(one["memory"][name]) for one in found)]
        for what, name in (
            ("without clients", "empty"),
            ("with those who ask", "asking"),
            ("with the silent", "silent"),
            ("with both", "both"),
        )
    ]
    rows.append(["server, of each connection: KiB", *(words.short(_each(one)) for one in found)])
    rows.append(["silent connections refused or lost", *(f"{one['silent_refused']:,}" for one in found)])
    for what, load in (("alone", "alone"), ("next to the silent", "beside")):
        rows += [
            [f"those who ask, {what}: {row}", *(shown(one[load]) for one in found)]
            for row, shown in (
                ("connections refused", lambda one: f"{one['connections_refused']:,}"),
                ("requests, failed", lambda one: f"{one['requests']:,}, {one['failed']:,}"),
                ("latency p50, p99, max", _latency),
                ("CPU seconds of the server", lambda one: words.short(one["server_cpu_s"])),
            )
        ]
    return Table("", header, rows)


def _each(one: dict[str, Any]) -> float:
    grown: float = one["memory"]["both"] - one["memory"]["empty"]
    return grown * 1024 / (2 * one["n"])


def _latency(one: dict[str, Any]) -> str:
    values = [one[f"latency_{name}_ms"] for name in ("p50", "p99", "max")]
    return "none" if None in values else ", ".join(words.short(value) for value in values) + " ms"
