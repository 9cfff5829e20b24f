"""Render the figures of scale.py on the terminal and in docs/scale.md, from the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks import words
from benchmarks.marks import between
from benchmarks.report import table

__all__ = ["PAGE", "report", "rewritten", "section"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "scale.md"

_MI = 1 << 20
_NEIGHBOURS: Final = {
    "": "alone",
    "stalled": "next to an unconsumed stream",
    "slow": "next to a slow handler",
    "big": "next to a large payload",
}

Rows = list[list[str]]


def report(figures: dict[str, Any]) -> str:
    """All of it, for a terminal."""
    return "\n\n".join([_where(figures), *(table(rows[0], rows[1:]) for rows in _tables(figures))]) + "\n"


def section(figures: dict[str, Any]) -> str:
    """All of it, for the page."""
    return "\n\n".join([_where(figures), *map(_markdown, _tables(figures))]) + "\n"


def rewritten(page: str, figures: dict[str, Any]) -> str:
    """The page with its part made anew.

    Raises:
        ValueError: the marks are not there.
    """
    return between(page, "benchmarks/scale.json", "make bench-scale", section(figures))


def _where(figures: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    where = f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, {figures['system']}; {versions}."
    return " ".join([where, f"On {figures['loop']}, medians of {figures['runs']} runs.", *words.doubts(figures)])


def _tables(figures: dict[str, Any]) -> list[Rows]:
    judged = [["", "bar", "measured", "by CPU", ""]]
    for entry in figures["targets"]:
        cpu = "" if entry["cpu"] is None else words.short(entry["cpu"])
        judged.append(
            [entry["what"], words.target(entry, "bar"), words.short(entry["measured"]), cpu, entry["verdict"]]
        )
    done = [["", "count", "per second", "CPU µs, busier end", "peak MiB, server + client"]]
    for row in figures["rows"]:
        of, n, rate = row["of"], f"{row['n']:,}", words.short(row["per_second"])
        if of in ("answer", "items"):
            of, n = f"payload, {'one by one' if of == 'answer' else 'in a stream'}", f"{row['n'] // _MI} MiB"
            rate = f"{words.short(row['per_second'] * row['n'] / 1e6)} MB"
        elif of.startswith("64 KiB"):
            of, n = "64 KiB items, the same processes", f"{row['n'] // _MI} MiB"
            rate = f"{words.short(row['per_second'] * 0x10000 / 1e6)} MB"
        elif of.startswith("beside"):
            of = f"1 KiB items, {_NEIGHBOURS[of.partition(' ')[2]]}"
        else:
            of = f"64 B items, by number {of}"
        peak = row["peak"]
        both = f"{peak['server'] / _MI:,.0f} + {peak['client'] / _MI:,.0f}"
        done.append([of, n, rate, words.short(row["cpu_us"]), both])
    return [judged, done]


def _markdown(rows: Rows) -> str:
    lines = [rows[0], ["---", *("---:" for _ in rows[0][1:])], *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
