"""Generate the figures of the README from ``results.json``: a few workloads, afflux beside three other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks import words
from benchmarks.bars import JUDGED, OURSELVES
from benchmarks.marks import between

__all__ = ["README", "figures_of_the_readme"]

README: Final = Path(__file__).resolve().parent.parent / "README.md"

_WORKLOADS: Final = ("request-1", "request-256", "stream-64", "stream-1k", "stream-64k")
_DASH: Final = "–"
_LIBRARIES: Final = (OURSELVES, "rsocket-java", "rsocket-js", "rsocket")
"The columns: contenders of the benchmarks that have a figure. A row without a figure of theirs has a dash."


def figures_of_the_readme(page: str, figures: dict[str, Any]) -> str:
    """Return the README with the figures.

    Raises:
        ValueError: the marks are missing.
    """
    return between(page, "benchmarks/results.json", "make bench", _section(figures))


def _section(figures: dict[str, Any]) -> str:
    """Return the table, and where it was measured."""
    shown = [workload for workload in figures["workloads"] if workload["name"] in _WORKLOADS]
    cells = {library: [_cell(workload, library) for workload in shown] for library in _LIBRARIES}
    cells = {library: column for library, column in cells.items() if set(column) != {_DASH}}
    names = [name if name != "rsocket" else "rsocket (PyPI)" for name in ("", *cells)]
    rows = [names, ["---"] + ["--:"] * len(cells)]
    rows += [[workload["title"], *row] for workload, *row in zip(shown, *cells.values(), strict=True)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    python = figures["versions"]["Python"].partition(" ")[0]
    where = f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, Python {python}, {JUDGED}"
    dash = f" {_DASH}: not measured." if any(_DASH in column for column in cells.values()) else ""
    absent = [library for library in _LIBRARIES if library not in cells]
    gone = f" Not available there: {', '.join(absent)}." if absent else ""
    doubts = " ".join(["", *words.doubts(figures)])
    about = f"Each library talks to itself, on one machine: {where}.{dash}{gone}{doubts}"
    return f"{table}\n\n{about}\n"


def _cell(workload: dict[str, Any], library: str) -> str:
    """Return the rate on the judged loop, or on the only loop of a library that has another."""
    found = {name: figure for name, figure in workload["contenders"].items() if name.partition("/")[0] == library}
    figure = found.get(f"{library}/{JUDGED}") or next(iter(found.values()), None)
    return words.rate(workload, figure) if figure else _DASH
