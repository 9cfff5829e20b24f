"""The command line of the ruler: ``python -m benchmarks``. What is run is runner.py's, what is shown report.py's."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import CONTENDERS, LOOPS, PEERS
from benchmarks.report import as_json, machine, tables
from benchmarks.runner import Plan, measure_all, smoke_all
from benchmarks.workloads import WORKLOADS

__all__ = ["main"]

_RESULTS = Path(__file__).resolve().parent / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when all that is installed could be measured, 1 when something broke."""
    asked = _parser().parse_args(arguments)
    names = {workload.name for workload in WORKLOADS}
    if asked.only and not set(asked.only) <= names:
        print(f"workloads are {', '.join(sorted(names))}", file=sys.stderr)
        return 2
    plan = Plan(
        contenders=[one for one in CONTENDERS if one.peer in asked.peers and one.loop in asked.loops],
        workloads=[workload for workload in WORKLOADS if not asked.only or workload.name in asked.only],
        runs=1 if asked.smoke else asked.runs or (3 if asked.quick else 5),
        seconds=asked.seconds or (0.2 if asked.quick else 0.5),
        patience=asked.patience,
    )
    about = machine()
    results = asyncio.run((smoke_all if asked.smoke else measure_all)(plan, _tell))
    _tell("")
    report = tables(plan, results, about)
    if asked.smoke:
        print(f"{len(results.samples)} measurements ran and were counted exactly")
        report = report[report.index("not run, or") :] if "not run, or" in report else ""
    print(report, end="")
    if out := asked.out or (None if asked.smoke else _RESULTS):
        out.write_text(json.dumps(as_json(plan, results, about), indent=1) + "\n")
        print(f"\nwritten to {out}", file=sys.stderr)
    return 1 if results.failures or not results.samples else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="The same work by us and by our peers.")
    add = parser.add_argument
    add("--runs", type=int, metavar="N", help="alternating runs of everything (5; 3 with --quick)")
    add("--quick", action="store_true", help="short measurements, for a first look")
    add("--smoke", action="store_true", help="a little of everything once: does it run, is the count right?")
    add("--seconds", type=float, metavar="S", help="about how long one measurement takes (0.5; 0.2 with --quick)")
    add("--patience", type=float, default=60.0, metavar="S", help="give a measurement up after so long (60)")
    add("--only", nargs="+", metavar="WORKLOAD", help=f"some of: {' '.join(workload.name for workload in WORKLOADS)}")
    add("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="PEER", help=f"of {' '.join(PEERS)}")
    add("--loops", nargs="+", choices=LOOPS, default=LOOPS, metavar="LOOP", help=f"some of: {' '.join(LOOPS)}")
    add("--out", type=Path, metavar="FILE", help="where the figures go (benchmarks/results.json; none with --smoke)")
    return parser


def _tell(line: str) -> None:
    """Progress, in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
