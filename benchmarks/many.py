"""The command line of many: ``python -m benchmarks.many``. 10,000 connections that do nothing, 10,000 streams on one
connection, several workers. What is measured is py's and workers.py's, what is shown many_report.py's.

Bars are about memory and about being able to at all. CPU time and workers have none: they are told.
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
"The figures that the documentation shows."

PARTS: Final = ("connections", "streams", "workers")
_WHOLE: Final = 10_000
"What the bars are about."


@dataclass(slots=True, kw_only=True)
class Asked:
    """What to run."""

    parts: Sequence[str] = PARTS
    loops: Sequence[str] = LOOPS
    connections: int = _WHOLE
    streams: Sequence[int] = (100, 1000, _WHOLE)
    "How many at once, one after the other."
    rounds: int = 3
    "Of streams."
    seconds: float = 20.0
    "How long nothing happens: one keepalive of each connection."
    keepalive: float = 20.0
    workers: Sequence[int] = (1, 2)
    load: Load = field(default_factory=Load)
    not_run: list[str] = field(default_factory=list)
    "What is left out, and why."


async def measure(asked: Asked, told: Callable[[str], None]) -> dict[str, Any]:
    """What came of it, part by part: ready for JSON. Parts that were not asked for are empty.

    Raises:
        Failure: something was lost, or not counted.
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
    """Both ends by name, and no more digits than mean something."""
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
    """One sentence of the targets."""

    what: str
    part: str
    bar: float
    ambition: float | None
    at: Literal["least", "most"]
    of: Callable[[Any], float | None]
    "What was measured, of that part's figures on one loop; None if it was of something less."


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
    """Each bar, with what came of it by loop and a verdict."""
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
    """Everything."""
    contenders = [Contender(OURSELVES, loop) for loop in asked.loops]
    about = machine(Plan(contenders=contenders, workloads=(), runs=asked.load.runs, seconds=0.0, patience=0.0))
    del about["versions"]["rsocket"], about["versions"]["grpcio"]  # no peer has a part in this
    remark = {"note": note} if note else {}
    return {**about, **remark, "seconds": asked.seconds, **found, "targets": targets(found), "not_run": asked.not_run}


# -- the command ------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when all that was asked for could be measured, and whatever the verdicts are."""
    words = _parser().parse_args(arguments)
    if words.draw:
        return _publish(json.loads(RESULTS.read_text(encoding="utf-8")))
    if not Path("/proc/self/statm").exists():
        print("memory and CPU time are read from /proc, which is not here", file=sys.stderr)
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
    elif not words.smoke:
        print("\nonly a part: benchmarks/many.json stays as it is; --out FILE keeps these figures", file=sys.stderr)
    return 0


def _asked(words: argparse.Namespace) -> Asked:
    """What the command line asks for, as far as open files allow."""
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
    """Make the page anew."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print("\nbenchmarks/many.json and docs/how-to/many.md tell the same", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description="What many cost.")
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=f"some of: {' '.join(PARTS)}")
    add("--connections", type=int, default=_WHOLE, metavar="N", help="connections of one client process (10,000)")
    add("--streams", type=int, default=_WHOLE, metavar="N", help="the most streams on one connection (10,000)")
    add("--seconds", type=float, default=20.0, metavar="S", help="how long nothing happens (20: one keepalive)")
    add("--keepalive", type=float, default=20.0, metavar="S", help="seconds between keepalives (20)")
    add("--workers", type=int, nargs="+", default=[1, 2], metavar="N", help="how many, one after the other (1 2)")
    add("--loops", nargs="+", choices=LOOPS, default=list(LOOPS), metavar="LOOP", help=f"some of: {' '.join(LOOPS)}")
    add("--smoke", action="store_true", help="50 of each, and a moment of load: does it run, is all counted?")
    add("--out", type=Path, metavar="FILE", help="where the figures go, not into benchmarks/many.json and the docs")
    add("--note", metavar="TEXT", help="a remark that stands with the figures, such as what else was going on")
    add("--draw", action="store_true", help="measure nothing: make the docs' tables of benchmarks/many.json")
    return parser


def _tell(line: str) -> None:
    """Progress, in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
