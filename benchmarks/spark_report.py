"""Show the figures of ``python -m benchmarks.spark`` on the terminal and in docs/benchmarks.md, from the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks import words
from benchmarks.marks import between
from benchmarks.report import table

__all__ = ["PAGE", "report", "rewritten", "section"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

Rows = list[list[str]]


def report(figures: dict[str, Any]) -> str:
    """Return everything, for a terminal."""
    blocks = [table(rows[0], rows[1:]) for rows in map(_rows, figures["parts"])]
    return "\n\n".join([_where(figures), *blocks, *_not_run(figures)]) + "\n"


def section(figures: dict[str, Any]) -> str:
    """Return everything, for the page."""
    return "\n\n".join([_where(figures), *map(_markdown, map(_rows, figures["parts"])), *_not_run(figures)]) + "\n"


def rewritten(page: str, figures: dict[str, Any]) -> str:
    """Return the page with a new section.

    Raises:
        ValueError: the marks are missing.
    """
    return between(page, "benchmarks/spark.json", "make bench-spark", section(figures))


def _where(figures: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    where = f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, {figures['system']}; {versions}."
    asked = figures["asked"]
    size = f"Medians of {asked['runs']} alternating runs; {asked['rows']:,} rows a read."
    return " ".join([where, size, *words.doubts(figures)])


def _rows(part: dict[str, Any]) -> Rows:
    where = f" ({part['date'][:10]}, {part['cpu']})" if "date" in part else ""
    rows = [[part["title"] + where, "measured", "bar", ""]]
    for figure in part["figures"]:
        bar = "" if figure["bar"] is None else f"{'≤' if figure['most'] else '≥'} {_number(figure['bar'])}"
        rows.append([figure["what"], f"{_number(figure['value'])} {figure['unit']}", bar, figure["verdict"]])
    return rows


def _number(value: float) -> str:
    """Format a number to three digits; millions and thousands by their letters."""
    if abs(value) >= 999_500:
        return f"{words.short(value / 1e6)} M"
    return f"{words.short(value / 1e3)} k" if abs(value) >= 10_000 else words.short(value)


def _markdown(rows: Rows) -> str:
    lines = [rows[0], ["---", "---:", "---:", "---"], *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _not_run(figures: dict[str, Any]) -> list[str]:
    return ["Not measured: " + "; ".join(figures["not_run"]) + "."] if figures["not_run"] else []
