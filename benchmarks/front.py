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
_LIBRARIES: Final = (OURSELVES, "rsocket-java", "rsocket-js", "rsocket")
"The columns: contenders of the benchmarks. One that has no figure gets a dash."


def figures_of_the_readme(page: str, figures: dict[str, Any]) -> str:
    """Return the README with the figures.

    Raises:
        ValueError: the marks are missing.
    """
    return between(page, "benchmarks/results.json", "make bench", _section(figures))


def _section(figures: dict[str, Any]) -> str:
    """Return the table, and where it was measured."""
    rows = [[name if name != "rsocket" else "rsocket (PyPI)" for name in ("", *_LIBRARIES)], ["---"] + ["--:"] * 4]
    for workload in figures["workloads"]:
        if workload["name"] in _WORKLOADS:
            rows.append([workload["title"], *(_cell(workload, library) for library in _LIBRARIES)])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    python = figures["versions"]["Python"].partition(" ")[0]
    where = f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, Python {python}, {JUDGED}"
    absent = "".join(f" {library} was not available there." for library in _absent(figures))
    doubts = " ".join(words.doubts(figures))
    about = f"Each library talks to itself, on one machine: {where}. –: not measured.{absent} {doubts}".strip()
    return f"{table}\n\n{about}\n"


def _absent(figures: dict[str, Any]) -> list[str]:
    """Return the libraries that have no figure at all."""
    present = {name.partition("/")[0] for workload in figures["workloads"] for name in workload["contenders"]}
    return [library for library in _LIBRARIES if library not in present]


def _cell(workload: dict[str, Any], library: str) -> str:
    """Return the rate on the judged loop, or on the only loop of a library that has another."""
    found = {name: figure for name, figure in workload["contenders"].items() if name.partition("/")[0] == library}
    figure = found.get(f"{library}/{JUDGED}") or next(iter(found.values()), None)
    return words.rate(workload, figure) if figure else "–"
