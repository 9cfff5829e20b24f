"""What the run says: tables for the terminal and ``results.json``. Nothing is measured or judged here.

Every figure is the median of its runs; a ratio is the ratio of two medians.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pairs import Sample
from benchmarks.peers import LOOPS, PEERS, Contender
from benchmarks.runner import Plan, Results
from benchmarks.workloads import Workload

__all__ = ["as_json", "machine", "tables"]

_TELLING = ("MALLOC_", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG")
"Settings that change the figures. Paths of the machine are nobody's business."

_OURS = "afflux"
"The column that the others are compared with."

_BUSY = 0.25
"Load for each core above which the report warns."


def tables(plan: Plan, results: Results, about: dict[str, Any]) -> str:
    """The whole report."""
    parts = ["\n".join(_heading(plan, about))]
    for loop in LOOPS:
        if any(one.loop == loop for one in plan.contenders) and any(one.loop == loop for _, one in results.samples):
            parts.append(_rates(loop, plan, results))
            parts.append(_costs(loop, plan, results))
    if lines := list(_not_run(plan, results)):
        parts.append("\n".join(["not run, or not to the end (* after a figure: fewer runs)", *lines]))
    return "\n\n".join(parts) + "\n"


def _heading(plan: Plan, about: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    yield f"{about['cpu']}, {about['cores']} cores; {versions}"
    yield (
        f"medians of {plan.runs} alternating runs of about {plan.seconds:g} s; server and client are two processes on "
        "loopback; counted by the receiver"
    )
    if about["load"] is not None and about["load"][0] > _BUSY * about["cores"]:
        yield f"load {about['load'][0]:.1f} before the run: other work shares this machine; trust ratios, not figures"


def _rates(loop: str, plan: Plan, results: Results) -> str:
    """Throughput, and how many times the peer's figure ours is."""
    peers = _peers(loop, plan, results)
    header = [loop, *(cell for peer in peers for cell in ((peer, f"{_OURS}/it") if peer != _OURS else (peer,)))]
    rows = []
    for workload in plan.workloads:
        ours = _median_rate(results, workload, Contender(_OURS, loop))
        row = [workload.title]
        for peer in peers:
            rate = _median_rate(results, workload, Contender(peer, loop))
            runs = len(results.samples.get((workload.name, Contender(peer, loop)), ()))
            row.append(_rate(workload, rate) + ("*" if 0 < runs < plan.runs else ""))
            if peer != _OURS:
                row.append(f"× {_short(ours / rate)}" if ours and rate else "")
        rows.append(row)
    return _table(header, rows)


def _costs(loop: str, plan: Plan, results: Results) -> str:
    """CPU for each request or item, and memory, of each side."""
    peers = _peers(loop, plan, results)
    rows = []
    for workload in plan.workloads:
        row = [workload.title]
        for peer in peers:
            samples = results.samples.get((workload.name, Contender(peer, loop)))
            row += _cost(samples) if samples else ["", ""]
        rows.append(row)
    header = [f"{loop}: server+client", *(cell for peer in peers for cell in (f"{peer} CPU µs", "MiB"))]
    return _table(header, rows)


def _cost(samples: list[Sample]) -> list[str]:
    def middle(name: str) -> float:
        return float(median(getattr(sample, name) for sample in samples))

    spent = [_short(middle(name) / middle("amount") * 1e6) for name in ("server_cpu", "client_cpu")]
    peaks = [f"{middle(name) / 0x100000:.0f}" for name in ("server_peak", "client_peak")]
    return ["+".join(spent), "+".join(peaks)]


def _not_run(plan: Plan, results: Results) -> Iterator[str]:
    for contender, reason in results.absent.items():
        yield f"  {contender}: {reason}"
    together: dict[str, list[str]] = {}
    for (name, contender), reason in results.failures.items():
        together.setdefault(reason, []).append(f"{contender} {name}")
    for reason, which in together.items():
        yield f"  {reason}: {', '.join(which)}"
    for peer in dict.fromkeys(one.peer for one in plan.contenders):
        kinds = PEERS[peer].kinds
        missing = [workload.name for workload in plan.workloads if workload.kind not in kinds]
        if missing:
            yield f"  {peer}: measured on {' and '.join(kinds)} workloads only, not on {', '.join(missing)}"


def _peers(loop: str, plan: Plan, results: Results) -> list[str]:
    there = {contender.peer for _, contender in results.samples if contender.loop == loop}
    return [peer for peer in PEERS if peer in there]


def _median_rate(results: Results, workload: Workload, contender: Contender) -> float:
    samples = results.samples.get((workload.name, contender))
    return median(sample.rate for sample in samples) if samples else 0.0


def _rate(workload: Workload, rate: float) -> str:
    if not rate:
        return ""
    return f"{_short(rate * workload.size / 1e6)} MB/s" if workload.in_bytes else f"{_short(rate / 1000)} k/s"


def _short(value: float) -> str:
    """Three figures, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need; the first is text, the others are figures."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = []
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Where and when, and with what."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()}",
        "versions": _versions(),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_TELLING)},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _versions() -> dict[str, str]:
    found = {"Python": f"{platform.python_version()} ({sys.implementation.name})"}
    for name in ("afflux", "rsocket", "uvloop"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from the source tree" if name == "afflux" else "not installed"
    return found


def as_json(plan: Plan, results: Results, about: dict[str, Any]) -> dict[str, Any]:
    """Everything, for ``results.json``."""
    return {
        **about,
        "runs": plan.runs,
        "seconds": plan.seconds,
        "contenders": {peer: entry.about for peer, entry in PEERS.items()},
        "workloads": [_workload(workload, plan, results) for workload in plan.workloads],
        "not_run": [line.strip() for line in _not_run(plan, results)],
    }


def _workload(workload: Workload, plan: Plan, results: Results) -> dict[str, Any]:
    figures = {}
    for contender in plan.contenders:
        samples = results.samples.get((workload.name, contender))
        if not samples:
            continue
        rate = median(sample.rate for sample in samples)
        ours = _median_rate(results, workload, Contender(_OURS, contender.loop))
        figures[str(contender)] = {
            "per_second": round(rate, 1),
            "mb_per_second": round(rate * workload.size / 1e6, 3),
            "least": round(min(sample.rate for sample in samples), 1),
            "most": round(max(sample.rate for sample in samples), 1),
            "cpu_us": round(
                median((sample.server_cpu + sample.client_cpu) / sample.amount for sample in samples) * 1e6, 3
            ),
            f"{_OURS}_over_it": round(ours / rate, 4) if ours else None,
            "samples": [sample.as_dict() for sample in samples],
        }
    return {"name": workload.name, "title": workload.title, "unit_bytes": workload.size, "contenders": figures}
