"""Compute the content of ``results.json``, from which everything else is generated.

Every figure is the median of its runs; a ratio is the median of the ratios of its runs, because contenders work in turn
within a run. CPU and memory are per process, server and
client. ``cpu_s_per_million`` refers to a million requests or items, ``cpu_s_per_gb`` to a GB of data (10^9).
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bars import MISSING, OURSELVES, targets
from benchmarks.pairs import Sample
from benchmarks.peers import ELSEWHERE, LOOPS, NODE, PEERS, Contender
from benchmarks.runner import Plan, Results
from benchmarks.workloads import Workload

__all__ = ["RESULTS", "as_text", "figures_of", "machine"]

RESULTS = Path(__file__).resolve().parent / "results.json"
"The figures of the documentation."

_TELLING = ("MALLOC_", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG")
"Environment settings that change the figures. Paths are not recorded."

_SIDES = ("server", "client")
_MIB = 0x100000


def figures_of(plan: Plan, results: Results, about: dict[str, Any]) -> dict[str, Any]:
    """Return all figures."""
    figures = {
        **about,
        "runs": plan.runs,
        "seconds": plan.seconds,
        "contenders": {peer: PEERS[peer].about for peer in dict.fromkeys(one.peer for one in plan.contenders)},
        "workloads": [_workload(workload, plan, results) for workload in plan.workloads],
    }
    return {**figures, "targets": targets(figures), "not_run": list(_not_run(plan, results))}


def _workload(workload: Workload, plan: Plan, results: Results) -> dict[str, Any]:
    figures = {}
    for contender in plan.contenders:
        if samples := results.samples.get((workload.name, contender)):
            figures[str(contender)] = _figure(workload, contender, samples, results)
    return {
        "name": workload.name,
        "title": workload.title,
        "unit_bytes": workload.size,
        "in_bytes": workload.in_bytes,
        "contenders": figures,
    }


def _figure(workload: Workload, contender: Contender, samples: list[Sample], results: Results) -> dict[str, Any]:
    def middle(value: Callable[[Sample], float], figures: int) -> float:
        return round(median(map(value, samples)), figures)

    def each(value: Callable[[str, Sample], float], figures: int) -> dict[str, float]:
        return {side: middle(partial(value, side), figures) for side in _SIDES}

    def spent(side: str, sample: Sample) -> float:
        return float(getattr(sample, f"{side}_cpu")) / sample.amount * 1e6

    def above_idle(side: str, sample: Sample) -> float:
        return float(getattr(sample, f"{side}_peak") - getattr(sample, f"{side}_idle")) / workload.size

    rate = median(sample.rate for sample in samples)
    figure = {
        "per_second": round(rate, 2),
        "mb_per_second": round(rate * workload.size / 1e6, 3),
        "least": middle(lambda _: min(sample.rate for sample in samples), 2),
        "most": middle(lambda _: max(sample.rate for sample in samples), 2),
        "cpu_s_per_million": each(spent, 3),
        "peak_mib": each(lambda side, sample: getattr(sample, f"{side}_peak") / _MIB, 1),
    }
    if workload.in_bytes:
        figure["cpu_s_per_gb"] = each(lambda side, sample: spent(side, sample) / workload.size * 1e3, 3)
    if workload.large:
        figure["memory_in_items"] = each(above_idle, 2)
    figure[f"{OURSELVES}_over_it"] = _ratios(workload, contender, samples, results)
    return {**figure, "samples": [sample.as_dict() for sample in samples]}


def _ratios(workload: Workload, contender: Contender, samples: list[Sample], results: Results) -> dict[str, float]:
    """Return the ratio of afflux's figure to this one, on the same loop or on each of afflux's loops."""
    alone = len(PEERS[contender.peer].loops) == 1 if contender.peer in PEERS else False
    loops = LOOPS if alone else (contender.loop,)
    ratios = {}
    for loop in loops:
        ours = results.samples.get((workload.name, Contender(OURSELVES, loop)))
        if ours and contender.peer != OURSELVES:
            ratios[loop] = round(median(mine.rate / its.rate for mine, its in zip(ours, samples, strict=False)), 4)
    return ratios


def _not_run(plan: Plan, results: Results) -> Iterator[str]:
    for contender, reason in results.absent.items():
        yield f"{contender}: {reason}"
    together: dict[str, list[str]] = {}
    for (name, contender), reason in results.failures.items():
        together.setdefault(reason, []).append(f"{contender} {name}")
    for reason, which in together.items():
        yield f"{reason}: {', '.join(which)}"
    lacks: dict[tuple[str, str], list[str]] = {}
    for peer in dict.fromkeys(one.peer for one in plan.contenders):
        missing: dict[str, list[str]] = {}
        for workload in plan.workloads:
            if reason := PEERS[peer].why_not(workload):
                missing.setdefault(reason, []).append(workload.name)
        for reason, names in missing.items():
            lacks.setdefault((reason, ", ".join(names)), []).append(peer)
    for (reason, which), peers in lacks.items():
        yield f"{', '.join(peers)}, {which}: {reason}"
    for what, reason in MISSING.items():
        yield f"{what}: {reason}"


def machine(plan: Plan) -> dict[str, Any]:
    """Return the machine, the date and the versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()}",
        "versions": _versions(plan),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_TELLING)},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _versions(plan: Plan) -> dict[str, str]:
    found = {"Python": f"{platform.python_version()} ({sys.implementation.name})"}
    for name in ("afflux", "rsocket", "grpcio", "uvloop"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from the source tree" if name == "afflux" else "not installed"
    for one in plan.contenders:
        if one.peer in ELSEWHERE and (one.loop == NODE or one.why_not() is None):
            found.update(ELSEWHERE[one.peer].versions())
    return found


def as_text(figures: dict[str, Any]) -> str:
    """Serialize the figures as JSON, with small objects on one line."""
    text = json.dumps(figures, indent=1)
    return re.sub(r"[\[{][^\[\]{}]{,400}[\]}]", lambda found: re.sub(r"\n +", " ", found[0]), text) + "\n"
