"""Measure many connections and streams: ``python -m benchmarks.many``. 10,000 idle connections, 10,000 streams on one
connection, several workers. See idle.py and workers.py for the measurements, many_report.py for the output.

Bars apply to memory and to feasibility. CPU time and workers are reported without bars.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, NamedTuple

from benchmarks.bars import JUDGED, OURSELVES
from benchmarks.crowd import room
from benchmarks.figures import as_text, machine
from benchmarks.idle import Cost, connections, streams
from benchmarks.many_report import PAGE, report, rewritten
from benchmarks.pairs import Failure
from benchmarks.peers import LOOPS, Contender
from benchmarks.runner import Plan
from benchmarks.workers import AT_ONCE, SPREAD, Compared, Load, compare

__all__ = ["RESULTS", "Asked", "figures_of", "main", "measure", "targets"]

RESULTS: Final = Path(__file__).resolve().parent / "many.json"
"The figures of the documentation."

PARTS: Final = ("connections", "streams", "workers")
_WHOLE: Final = 10_000
"The size to which the bars apply."


@dataclass(slots=True, kw_only=True)
class Asked:
    """The parts to run."""

    parts: Sequence[str] = PARTS
    loops: Sequence[str] = LOOPS
    connections: int = _WHOLE
    streams: Sequence[int] = (100, 1000, _WHOLE)
    "Concurrent streams, in sequence."
    rounds: int = 3
    "Of streams."
    seconds: float = 20.0
    "Duration of the idle phase: one keepalive of each connection."
    keepalive: float = 20.0
    workers: Sequence[int] = (1, 2)
    load: Load = field(default_factory=Load)
    not_run: list[str] = field(default_factory=list)
    "Return which parts are omitted, and why."


async def measure(asked: Asked, told: Callable[[str], None]) -> dict[str, Any]:
    """Return the results of each part for JSON. Parts that were not requested are empty.

    Raises:
        Failure: a connection was lost, or a count is wrong.
    """
    found: dict[str, Any] = {part: {} for part in PARTS}
    for loop in asked.loops:
        if "connections" in asked.parts:
            told(f"{loop}: {asked.connections:,} connections, then {asked.seconds:g} s of nothing")
            one = await connections(loop, asked.connections, asked.seconds, asked.keepalive)
            found["connections"][loop] = _plain(asdict(one))
        if "streams" in asked.parts:
            for count in asked.streams:
                told(f"{loop}: {count:,} streams")
                rows = found["streams"].setdefault(loop, [])
                rows.append(_plain(asdict(await streams(loop, count, asked.rounds))))
    if "workers" in asked.parts:
        found["workers"] = _workers(await compare(asked.workers, asked.load, told), asked.load)
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return both ends by name, rounded to meaningful digits."""
    return {
        name: {end: round(cost, 3) for end, cost in value._asdict().items()}
        if isinstance(value, Cost)
        else round(value, 1)
        for name, value in row.items()
    }


def _workers(found: Compared, load: Load) -> dict[str, Any]:
    rates = []
    for (kind, count), samples in found.samples.items():
        worth = median(sample.worth for sample in samples)
        rates.append(
            {
                "of": kind,
                "workers": count,
                "per_second": round(median(sample.rate for sample in samples)),
                "cpu_workers": round(median(sample.server for sample in samples), 3),
                "cpu_clients": round(median(sample.clients for sample in samples), 3),
                "per_cpu_s": round(worth),
                "with_a_core_each": round(worth * count),
                "samples": [round(sample.rate) for sample in samples],
            }
        )
    spread = [
        {"workers": count, "connections": SPREAD, "busiest": round(median(shares), 3), "worst": max(shares)}
        for count, shares in found.shares.items()
    ]
    return {"load": load._asdict(), "at_once": AT_ONCE, "rates": rates, "spread": spread}


# -- targets ----------------------------------------------------------------------------------------------------


class _Bar(NamedTuple):
    """One target."""

    what: str
    part: str
    bar: float
    ambition: float | None
    at: Literal["least", "most"]
    of: Callable[[Any], float | None]
    "Extracts the measured value from the figures of one loop; None if the run was smaller."


def _memory(found: Any) -> float | None:
    return float(found["total"]["server"]) if found["n"] >= _WHOLE else None


def _at_once(found: Any) -> float | None:
    most = max(row["n"] for row in found)
    return float(most) if most >= _WHOLE else None


_BARS: Final = (
    _Bar(f"{_WHOLE:,} idle connections: MiB of the whole server", "connections", 400, 200, "most", _memory),
    _Bar("concurrent streams on one connection, each item counted", "streams", _WHOLE, None, "least", _at_once),
)


def targets(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each bar with its values by loop and a verdict."""
    told = []
    for bar in _BARS:
        there = {loop: value for loop, one in found[bar.part].items() if (value := bar.of(one)) is not None}
        told.append(
            {
                "what": bar.what,
                "at": bar.at,
                "bar": bar.bar,
                "ambition": bar.ambition,
                "measured": there,
                "verdict": _verdict(bar, there.get(JUDGED)),
            }
        )
    return told


def _verdict(bar: _Bar, value: float | None) -> str:
    def reached(wanted: float | None) -> bool:
        if value is None or wanted is None:
            return False
        return value <= wanted if bar.at == "most" else value >= wanted

    if value is None:
        return "not run"
    return "ambition met" if reached(bar.ambition) else "met" if reached(bar.bar) else "not met"


def figures_of(asked: Asked, found: dict[str, Any], note: str | None = None) -> dict[str, Any]:
    """Return all figures."""
    contenders = [Contender(OURSELVES, loop) for loop in asked.loops]
    about = machine(Plan(contenders=contenders, workloads=(), runs=asked.load.runs, seconds=0.0, patience=0.0))
    del about["versions"]["rsocket"], about["versions"]["grpcio"]  # no peer has a part in this
    remark = {"note": note} if note else {}
    return {**about, **remark, "seconds": asked.seconds, **found, "targets": targets(found), "not_run": asked.not_run}


# -- the command ------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything requested could be measured, whatever the verdicts."""
    words = _parser().parse_args(arguments)
    if words.draw:
        return _publish(json.loads(RESULTS.read_text(encoding="utf-8")))
    if not Path("/proc/self/statm").exists():
        print("memory and CPU time are read from /proc, which this system does not have", file=sys.stderr)
        return 1
    asked = _asked(words)
    figures = figures_of(asked, {part: {} for part in PARTS}, words.note)  # the load is that of before
    try:
        found = asyncio.run(measure(asked, _tell))
    except Failure as failure:
        _tell("")
        print(f"{failure}", file=sys.stderr)
        return 1
    _tell("")
    figures |= {**found, "targets": targets(found)}
    print(report(figures), end="")
    if words.out:
        words.out.write_text(as_text(figures), encoding="utf-8")
        print(f"\nwritten to {words.out}", file=sys.stderr)
    elif words == _parser().parse_args(["--note", words.note] if words.note else []):
        RESULTS.write_text(as_text(figures), encoding="utf-8")
        return _publish(figures)
    else:
        print("\nonly a part: benchmarks/many.json stays as it is; --out FILE keeps these figures", file=sys.stderr)
    return 0


def _asked(words: argparse.Namespace) -> Asked:
    """Return the plan of the command line, within the limit of open files."""
    asked = Asked(parts=words.only, loops=words.loops, connections=words.connections, streams=_counts(words.streams))
    asked.seconds, asked.keepalive, asked.workers = words.seconds, words.keepalive, words.workers
    if words.smoke:
        asked.connections, asked.streams, asked.rounds, asked.seconds = 50, (50,), 1, 0.0
        asked.load = Load(runs=1, seconds=0.2, connections=4, rounds=1)
    if (most := room(asked.connections)) < asked.connections:
        asked.not_run.append(
            f"{asked.connections:,} connections, only {most:,}: a process may open no more files here (ulimit -Hn)"
        )
        asked.connections = most
    return asked


def _counts(most: int) -> list[int]:
    return sorted({min(count, most) for count in (100, 1000, most)})


def _publish(figures: dict[str, Any]) -> int:
    """Regenerate the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print("\nbenchmarks/many.json and docs/how-to/many.md tell the same", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description="What many cost.")
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=f"some of: {' '.join(PARTS)}")
    add("--connections", type=int, default=_WHOLE, metavar="N", help="connections of one client process (10,000)")
    add("--streams", type=int, default=_WHOLE, metavar="N", help="maximum streams on one connection (10,000)")
    add("--seconds", type=float, default=20.0, metavar="S", help="duration of the idle phase (20: one keepalive)")
    add("--keepalive", type=float, default=20.0, metavar="S", help="seconds between keepalives (20)")
    add("--workers", type=int, nargs="+", default=[1, 2], metavar="N", help="numbers of workers, in sequence (1 2)")
    add("--loops", nargs="+", choices=LOOPS, default=list(LOOPS), metavar="LOOP", help=f"some of: {' '.join(LOOPS)}")
    add("--smoke", action="store_true", help="50 of each and a short load, to check that it runs and counts correctly")
    add("--out", type=Path, metavar="FILE", help="write the figures here, instead of benchmarks/many.json and the docs")
    add("--note", metavar="TEXT", help="a remark for the figures, such as other load on the machine")
    add("--draw", action="store_true", help="measure nothing: regenerate the docs' tables from benchmarks/many.json")
    return parser


def _tell(line: str) -> None:
    """Print progress in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
