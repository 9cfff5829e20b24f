"""Print the figures on a terminal: one block per workload, the targets, and what did not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import words
from benchmarks.bars import JUDGED, OURSELVES
from benchmarks.peers import LOOPS

__all__ = ["not_run", "report", "table"]


def report(figures: dict[str, Any]) -> str:
    """Return the complete report."""
    parts = ["\n".join(_heading(figures))]
    parts += [_block(workload, figures["runs"]) for workload in figures["workloads"] if workload["contenders"]]
    if any(entry["ratios"] for entry in figures["targets"]):
        parts.append(_targets(figures))
    if figures["not_run"]:
        parts.append(not_run(figures).rstrip())
    return "\n\n".join(parts) + "\n"


def not_run(figures: dict[str, Any]) -> str:
    """Return what was not measured, and why."""
    lines = ["not run, or not to the end (* after a figure: fewer runs)", *figures["not_run"]]
    return "\n  ".join(lines) + "\n"


def _heading(figures: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    yield f"{figures['cpu']}, {figures['cores']} cores; {versions}"
    yield (
        f"medians of {figures['runs']} alternating runs of about {figures['seconds']:g} s; server and client are two "
        "processes on loopback; counted by the receiver"
    )
    yield from words.doubts(figures)


def _block(workload: dict[str, Any], runs: int) -> str:
    """Return the block of a workload: throughput, cost, and afflux's ratio on each loop."""
    unit = "GB" if workload["in_bytes"] else "million"
    over = [f"{OURSELVES} on {loop}, over it" for loop in LOOPS]
    header = [workload["title"], "median", f"CPU s a {unit}, server+client", "peak MiB, server+client", *over]
    rows = []
    for name, figure in workload["contenders"].items():
        ratios = figure[f"{OURSELVES}_over_it"]
        star = "*" if len(figure["samples"]) < runs else ""
        rows.append(
            [
                "  " + name,
                words.rate(workload, figure) + star,
                words.cpu(workload, figure),
                words.memory(figure),
                *(words.times(ratios.get(loop)) for loop in LOOPS),
            ]
        )
    return table(header, rows)


def _targets(figures: dict[str, Any]) -> str:
    """Return each bar, its measured ratio and verdict."""
    titles = {workload["name"]: workload["title"] for workload in figures["workloads"]}
    other = next(loop for loop in LOOPS if loop != JUDGED)
    header = [
        f"targets, {JUDGED}",
        "times",
        "bar",
        "ambition",
        "measured",
        "",
        "by CPU",
        "compiled",
        "",
        "with lists",
        "",
        f"on {other}",
    ]
    rows = []
    for entry in figures["targets"]:
        compiled, lists = (entry.get(name) or {"ratios": {}, "verdict": ""} for name in ("compiled", "lists"))
        title = titles[entry["workload"]]
        rows.append(
            [
                title if entry["ours"] == OURSELVES else f"{title}: {entry['ours']}",
                entry["beside"],
                words.target(entry, "bar"),
                words.target(entry, "ambition"),
                words.times(entry["ratios"].get(JUDGED)),
                entry["verdict"],
                words.times(entry["by_cpu"].get(JUDGED)),
                words.times(compiled["ratios"].get(JUDGED)),
                compiled["verdict"],
                words.times(lists["ratios"].get(JUDGED)),
                lists["verdict"],
                words.times(entry["ratios"].get(other)),
            ]
        )
    return table(header, rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format columns to their widths; the first is text, the others are figures."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = []
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
