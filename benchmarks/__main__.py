"""Parse the command line of ``python -m benchmarks``, run the benchmarks and write the results."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import RESULTS, as_text, figures_of, machine
from benchmarks.front import README, figures_of_the_readme
from benchmarks.page import PAGE, rewritten
from benchmarks.peers import CONTENDERS, LOOPS, PEERS, chosen
from benchmarks.picture import PICTURE, draw
from benchmarks.report import not_run, report
from benchmarks.runner import Plan, measure_all, smoke_all
from benchmarks.workloads import WORKLOADS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything installed could be measured, 1 if something failed, 2 for wrong usage."""
    asked = _parser().parse_args(arguments)
    if asked.draw:
        return _publish(json.loads(RESULTS.read_text()))
    names = {workload.name for workload in WORKLOADS}
    if asked.only and not set(asked.only) <= names:
        print(f"workloads are {', '.join(sorted(names))}", file=sys.stderr)
        return 2
    plan = Plan(
        contenders=chosen(asked.peers, asked.loops),
        workloads=[workload for workload in WORKLOADS if not asked.only or workload.name in asked.only],
        runs=1 if asked.smoke else asked.runs or (3 if asked.quick else 5),
        seconds=asked.seconds or (0.2 if asked.quick else 0.5),
        patience=asked.patience,
    )
    about = machine(plan)
    results = asyncio.run((smoke_all if asked.smoke else measure_all)(plan, _tell))
    _tell("")
    figures = figures_of(plan, results, about | ({"note": asked.note} if asked.note else {}))
    if asked.smoke:
        print(f"{len(results.samples)} measurements ran and were counted exactly")
    print(not_run(figures) if asked.smoke else report(figures), end="")
    failed = 1 if results.failures or not results.samples else 0
    if asked.out:
        asked.out.write_text(as_text(figures))
        print(f"\nwritten to {asked.out}", file=sys.stderr)
    elif not asked.smoke and len(plan.workloads) == len(WORKLOADS) and len(plan.contenders) == len(CONTENDERS):
        RESULTS.write_text(as_text(figures))
        return _publish(figures) or failed
    elif not asked.smoke:
        print("\nonly a part: benchmarks/results.json stays as it is; --out FILE keeps these figures", file=sys.stderr)
    return failed


def _publish(figures: dict[str, Any]) -> int:
    """Regenerate the page, the picture and the figures of the README."""
    PAGE.write_text(rewritten(PAGE.read_text(), figures))
    README.write_text(figures_of_the_readme(README.read_text(), figures))
    try:
        picture = draw(figures)
    except ImportError as missing:
        print(f"docs/img/benchmarks.svg is not drawn anew: no module {missing.name} here (make bench installs it)")
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture)
    print("\nbenchmarks/results.json, docs/benchmarks.md and docs/img/benchmarks.svg tell the same", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Run the same work with afflux and its peers."
    )
    add = parser.add_argument
    add("--runs", type=int, metavar="N", help="alternating runs of everything (5; 3 with --quick)")
    add("--quick", action="store_true", help="short measurements, for a first impression")
    add(
        "--smoke",
        action="store_true",
        help="run a little of everything once, to check that it runs and counts correctly",
    )
    add("--seconds", type=float, metavar="S", help="approximate duration of one measurement (0.5; 0.2 with --quick)")
    add("--patience", type=float, default=60.0, metavar="S", help="abandon a measurement after this time (60)")
    add("--only", nargs="+", metavar="WORKLOAD", help=f"some of: {' '.join(workload.name for workload in WORKLOADS)}")
    add("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="PEER", help=f"of {' '.join(PEERS)}")
    add(
        "--loops",
        nargs="+",
        choices=LOOPS,
        default=LOOPS,
        metavar="LOOP",
        help=f"some of: {' '.join(LOOPS)}; others run on their own loop",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the figures here, instead of benchmarks/results.json and the docs",
    )
    add("--note", metavar="TEXT", help="a remark for the figures, such as other load on the machine")
    add(
        "--draw", action="store_true", help="measure nothing: regenerate the docs' tables and picture from results.json"
    )
    return parser


def _tell(line: str) -> None:
    """Print progress: in place on a terminal, elsewhere one line per workload and contender."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
