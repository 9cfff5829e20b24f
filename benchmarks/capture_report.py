"""Show the figures of ``python -m benchmarks.capture`` on the terminal and in docs/benchmarks.md, with their bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks import words
from benchmarks.capture_files import KINDS
from benchmarks.marks import between
from benchmarks.report import table

__all__ = ["PAGE", "report", "rewritten", "section"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BARS: Final = {"alone": 200.0, "spark": 100.0}
"The least MB/s, of the captures with streams."
OVER_DPKT: Final = 10.0
"How many times faster than dpkt a core must be."
LINEAR: Final = 0.15
"How much more than ten times the time ten times the bytes may take, as a share."
MEMORY: Final = 1.15
"The most memory with the largest capture, over that with the smallest."

_JUDGED: Final = ("stream", "mtu")
"The captures with bars."
_WAYS: Final = {
    "alone": "one process, without Spark",
    "spark": "Spark, local[2]",
    "dpkt": "reference: dpkt parses the packets",
    "tshark": "reference: tshark -T fields",
}
_MB: Final = 1e6

Rows = list[list[str]]


def report(figures: dict[str, Any]) -> str:
    """Return everything, for a terminal."""
    blocks = [table(rows[0], rows[1:]) for rows in _tables(figures)]
    return "\n\n".join([_where(figures), *blocks, *_not_run(figures)]) + "\n"


def section(figures: dict[str, Any]) -> str:
    """Return everything, for the page."""
    return "\n\n".join([_where(figures), *map(_markdown, _tables(figures)), *_not_run(figures)]) + "\n"


def rewritten(page: str, figures: dict[str, Any]) -> str:
    """Return the page with a new section.

    Raises:
        ValueError: the marks are missing.
    """
    return between(page, "benchmarks/captures.json", "make bench-captures", section(figures))


def _where(figures: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    where = f"{figures['date'][:10]}, {figures['cpu']}, {figures['cores']} cores, {figures['system']}; {versions}."
    return " ".join([where, "One run each; the load of the machine is beside each figure.", *words.doubts(figures)])


def _tables(figures: dict[str, Any]) -> list[Rows]:
    return [rows for rows in (_rates(figures), _linear(figures), _memory(figures)) if len(rows) > 1]


def _rates(figures: dict[str, Any]) -> Rows:
    """Return the rates of processes that decode a single capture, start of kernels included."""
    rows = [["Captures into Parquet tables", "MB", "MB/s", "CPU MB/s", "load", "bar", ""]]
    for run in figures["runs"]:
        size = figures["captures"][run["file"]]["bytes"]
        if run["warm"] or size < max(_sizes(figures, run)):
            continue
        step = run["steps"][-1]
        rate = size / step["seconds"] / _MB
        bar = BARS.get(run["way"]) if run["kind"] in _JUDGED else None
        cpu = f"{size / step['cpu'] / _MB:,.0f}" if run["way"] in ("alone", "dpkt") else ""
        rows.append(
            [f"{KINDS[run['kind']]}: {_WAYS[run['way']]}", f"{size / _MB:,.0f}", f"{rate:,.0f}", cpu,
             f"{run['load']:.1f}", f"≥ {bar:,.0f}" if bar else "", _verdict(bar is None or rate >= bar, bar)]
        )  # fmt: skip
        rows += _over_dpkt(figures, run, rate)
    return rows


def _over_dpkt(figures: dict[str, Any], run: dict[str, Any], rate: float) -> Rows:
    """Return how many times faster than dpkt the process without Spark is, by the CPU time of a byte: captures are read
    by one core each."""
    if run["way"] != "alone":
        return []
    for other in figures["runs"]:
        if other["way"] == "dpkt" and other["kind"] == run["kind"]:
            mine, its = (each["steps"][-1]["cpu"] / each["steps"][-1]["bytes"] for each in (run, other))
            over = its / mine
            bar = OVER_DPKT if run["kind"] in _JUDGED else None
            return [["the same, over dpkt, by CPU time", "", f"× {over:.2f}", "", "", f"≥ {bar:.0f}" if bar else "",
                     _verdict(over >= OVER_DPKT, bar)]]  # fmt: skip
    return []


def _sizes(figures: dict[str, Any], run: dict[str, Any]) -> list[int]:
    return [
        figures["captures"][other["file"]]["bytes"]
        for other in figures["runs"]
        if (other["way"], other["kind"], other["warm"]) == (run["way"], run["kind"], run["warm"])
    ]


def _linear(figures: dict[str, Any]) -> Rows:
    """Return the times of ten times the bytes, in one process that has decoded the small capture before."""
    rows = [["Ten times the bytes, kernels and workers warm", "times the bytes", "times the time", "bar", ""]]
    for run in figures["runs"]:
        if run["warm"]:
            small, file = run["steps"][-2:]
            bytes_, times = file["bytes"] / small["bytes"], file["seconds"] / small["seconds"]
            most = bytes_ * (1 + LINEAR)
            rows.append([f"{KINDS[run['kind']]}: {_WAYS[run['way']]}", f"{bytes_:.2f}", f"{times:.2f}",
                         f"≤ {most:.2f}", _verdict(times <= most, LINEAR)])  # fmt: skip
    return rows


def _memory(figures: dict[str, Any]) -> Rows:
    """Return the largest memory of each kind of process, by the size of the capture."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in figures["runs"]:
        if not run["warm"] and run["way"] in ("alone", "spark") and run["kind"] in ("stream", "mtu"):
            size = round(figures["captures"][run["file"]]["bytes"] / _MB)
            for kind, mib in run["memory_mib"].items():
                found.setdefault((run["kind"], run["way"], kind), {})[size] = mib
    rows = [["Peak memory (VmHWM)", "MiB by MB of the capture", "the largest over the smallest", "bar", ""]]
    for (kind, way, process), sizes in found.items():
        order = sorted(sizes)
        over = sizes[order[-1]] / sizes[order[0]]
        judged = process != "JVM"
        shown = ", ".join(f"{size:,}: {sizes[size]:,.0f}" for size in order)
        rows.append([f"{KINDS[kind]}: {_WAYS[way]}, {process}", shown, f"× {over:.2f}",
                     f"≤ {MEMORY}" if judged else "", _verdict(over <= MEMORY, judged or None)])  # fmt: skip
    return rows


def _verdict(met: bool, bar: object) -> str:
    return "" if bar is None else "met" if met else "not met"


def _markdown(rows: Rows) -> str:
    lines = [rows[0], ["---", *["---:"] * (len(rows[0]) - 2), "---"], *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _not_run(figures: dict[str, Any]) -> list[str]:
    return ["Not measured: " + "; ".join(figures["not_run"]) + "."] if figures["not_run"] else []
