"""Measure large payloads, neighbouring streams and growing work: ``python -m benchmarks.scale``.

Server and client are two processes on loopback (scale_child.py); scale_work.py defines the work and scale_report.py the
output. Every round measures everything once, in alternating order; a figure is the median of its rounds, and a ratio
that of two medians. Memory is the peak of a fresh process above its initial memory, in payloads. The receiving
application counts everything: a wrong count is a failure, not a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.bars import JUDGED, OURSELVES
from benchmarks.figures import as_text, machine
from benchmarks.pairs import End, Failure, start
from benchmarks.peers import Contender
from benchmarks.runner import Plan
from benchmarks.scale_report import PAGE, report, rewritten

__all__ = ["RESULTS", "Asked", "figures_of", "main", "measure", "targets"]

RESULTS: Final = Path(__file__).resolve().parent / "scale.json"
"The figures of the documentation."

_MI = 1 << 20
_FAST = 64
"Number of streams next to another one."
OTHERS: Final = ("stalled", "slow", "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to run."""

    loop: str = JUDGED
    runs: int = 5
    payloads: Sequence[int] = (16 * _MI, 256 * _MI)
    bytes: int = 512 * _MI
    "Bytes of 64 KiB items and of large payloads in one measurement; at least one payload."
    big: int = 256 * _MI
    "Bytes of the payload next to fast streams."
    beside: int = 500_000
    "Items of fast streams in one measurement."
    items: Sequence[int] = (10_000, 100_000, 1_000_000, 10_000_000)
    streams: Sequence[int] = (1, 10, 100, 1_000, 10_000)
    among: int = 500_000
    "Items of all streams together."


class Sample(NamedTuple):
    """One measurement."""

    rate: float
    "Items per second."
    cpu: float
    "CPU seconds per item, of the busier end."
    server: float
    "Peak memory in bytes above the initial memory."
    client: float


class Ends:
    """A server and a client."""

    def __init__(self, server: End, client: End) -> None:
        self._server, self._client = server, client

    async def do(self, what: str, size: int, expected: int | None = None, times: int = 1, **given: Any) -> Sample:
        """Run one kind of work ``n`` times and return the totals.

        Raises:
            Failure: the count is wrong.
        """
        for end in (self._server, self._client):
            await end.ask({"do": "mark"})
        seconds = items = 0.0
        for _ in range(times):
            found = await self._client.ask({"do": what, "size": size, **given})
            counted, wanted = (found["items"], found["bytes"]), expected or found["items"]
            if counted != (wanted, wanted * size):
                raise Failure(f"{what}: counted {counted[0]} items and {counted[1]} bytes, not {wanted} of {size}")
            seconds += found["seconds"]
            items += found["items"]
        server, client = [await end.ask({"do": "used"}) for end in (self._server, self._client)]
        return Sample(items / seconds, max(server["cpu"], client["cpu"]) / items, server["peak"], client["peak"])


@asynccontextmanager
async def ends(loop: str, payload: int, streams: int) -> AsyncIterator[Ends]:
    """Start fresh processes; both have ended after the context."""

    def command(role: str, *more: object) -> list[str]:
        return [sys.executable, "-m", "benchmarks.scale_child", role, loop, str(payload), str(streams), *map(str, more)]

    with tempfile.TemporaryFile() as server_errors, tempfile.TemporaryFile() as client_errors:
        started = [server := await start(command("server"), server_errors)]
        try:
            port = (await server.hear())["port"]
            started.insert(0, client := await start(command("client", port), client_errors))
            yield Ends(server, client)
        finally:
            for end in started:
                await end.end()


# -- what is measured ---------------------------------------------------------------------------------------------

Key = tuple[str, int]
Samples = dict[Key, list[Sample]]
"By kind of work, and size or number."


async def measure(asked: Asked, told: Callable[[str], None]) -> Samples:
    """Run everything.

    Raises:
        Failure: something failed, or a count is wrong.
    """
    found: Samples = {}
    for run in range(asked.runs):
        back = -1 if run % 2 else 1
        parts: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *(partial(_big, asked, size, back, found) for size in asked.payloads),
            partial(_beside, asked, run, found),
            partial(_growth, asked, back, found),
        ]
        for number, part in enumerate(parts[::back]):
            told(f"run {run + 1} of {asked.runs}, part {number + 1} of {len(parts)}")
            await part()
    return found


async def _big(asked: Asked, size: int, back: int, found: Samples) -> None:
    """Compare large payloads with 64 KiB items: the same processes for both speeds, fresh ones where memory counts."""
    n, small = max(1, asked.bytes // size), max(1, asked.bytes // 0x10000)
    for what in ("answer", "items")[::back]:
        async with ends(asked.loop, size, _FAST) as both:
            await both.do("items", 0x10000, small // 8 + 1, n=small // 8 + 1)  # what is done once
            first = await both.do(what, size, n, n=n)  # memory is that of what has not been done before, speed is not
            again = await both.do(what, size, n, n=n)
            found.setdefault((what, size), []).append(again._replace(server=first.server, client=first.client))
            found.setdefault((f"64 KiB {what}", size), []).append(await both.do("items", 0x10000, small, n=small))


async def _beside(asked: Asked, run: int, found: Samples) -> None:
    """Measure the same 64 streams alone, and next to each of the others."""
    others = ("", *OTHERS)
    async with ends(asked.loop, asked.big, 2 * _FAST) as both:
        n = asked.beside
        for other in ("", "big"):  # what is done once: the server makes its large payload
            await both.do("beside", 1024, n=n // 4, streams=_FAST, other=other, big=asked.big, credit=256)
        for place in range(len(others)):
            other = others[(place + run) % len(others)]
            sample = await both.do("beside", 1024, n=n, streams=_FAST, other=other, big=asked.big, credit=256)
            found.setdefault((f"beside {other}".strip(), _FAST), []).append(sample)


async def _growth(asked: Asked, back: int, found: Samples) -> None:
    """Measure one stream with more and more items, and the same items in more and more streams."""
    most = max(asked.streams)
    async with ends(asked.loop, _MI, most) as both:
        await both.do("items", 64, min(asked.items), n=min(asked.items), times=5)
        for n in asked.items[::back]:
            times = max(1, min(50, max(asked.items) // 10 // n))
            found.setdefault(("of items", n), []).append(await both.do("items", 64, n, n=n, times=times))
        for streams in asked.streams[::back]:
            sample = await both.do("many", 64, n=max(asked.among, 100 * streams), streams=streams, credit=256)
            found.setdefault(("of streams", streams), []).append(sample)


# -- what came of it ----------------------------------------------------------------------------------------------


def figures_of(asked: Asked, found: Samples, note: str | None = None) -> dict[str, Any]:
    """Return all figures for JSON."""
    plan = Plan(contenders=[Contender(OURSELVES, asked.loop)], workloads=(), runs=asked.runs, seconds=0, patience=0)
    about = machine(plan)
    del about["versions"]["rsocket"], about["versions"]["grpcio"]  # no peer has a part in this
    rows = [
        {
            "of": of,
            "n": n,
            "per_second": round(median(one.rate for one in samples), 2),
            "cpu_us": round(median(one.cpu for one in samples) * 1e6, 3),
            "peak": {"server": max(one.server for one in samples), "client": max(one.client for one in samples)},
            "samples": [round(one.rate, 2) for one in samples],
        }
        for (of, n), samples in sorted(found.items())
    ]
    remark = {"note": note} if note else {}
    return {**about, **remark, "loop": asked.loop, "runs": asked.runs, "rows": rows, "targets": targets(rows)}


def targets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each bar with its value, the value by CPU time (as if each end had a core of its own), and a
    verdict."""
    by = {(row["of"], row["n"]): row for row in rows}
    told: list[dict[str, Any]] = []

    def add(what: str, at: str, bar: float, measured: float, by_cpu: float | None = None) -> None:
        met = measured <= bar if at == "most" else measured >= bar
        cpu = None if by_cpu is None else round(by_cpu, 4)
        verdict = "met" if met else "not met"
        told.append(
            {"what": what, "at": at, "bar": bar, "measured": round(measured, 4), "cpu": cpu, "verdict": verdict}
        )

    names = {"answer": "one by one", "items": "in a stream"}
    for (of, n), row in by.items():
        if of in names:
            what, small = f"payloads of {n / _MI:g} MiB {names[of]}", by[f"64 KiB {of}", n]
            ratio = row["per_second"] * n / (small["per_second"] * 0x10000)
            add(
                f"{what}: MB/s relative to 64 KiB items",
                "least",
                0.5,
                ratio,
                small["cpu_us"] / 0x10000 * n / row["cpu_us"],
            )
            add(f"{what}: memory of the larger end, in payloads", "most", 3, max(row["peak"].values()) / n)
        elif of.startswith("beside "):
            alone = by["beside", n]
            what = f"{n} streams next to {_NAMES[of.partition(' ')[2]]}: share of speed retained"
            add(what, "least", 0.95, row["per_second"] / alone["per_second"], alone["cpu_us"] / row["cpu_us"])
    for of in ("of items", "of streams"):
        grown = sorted((n, row) for (kind, n), row in by.items() if kind == of)
        (least, first), *_, (most, _) = grown
        slowest = min(row["per_second"] for _, row in grown)
        dearest = max(row["cpu_us"] for _, row in grown)
        what = f"from {least:,} to {most:,} {of[3:]}: slowest relative to first"
        add(what, "least", 0.9, slowest / first["per_second"], first["cpu_us"] / dearest)
    return told


_NAMES: Final = {"stalled": "an unconsumed stream", "slow": "a slow handler", "big": "a large payload"}


# -- the command --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything could be measured, whatever the verdicts."""
    words = _parser().parse_args(arguments)
    if words.draw:
        return _publish(json.loads(RESULTS.read_text(encoding="utf-8")))
    loop = JUDGED if find_spec(JUDGED) else "asyncio"
    asked = Asked(loop=loop, runs=words.runs)
    if words.smoke:
        asked = Asked(
            loop=loop,
            runs=1,
            payloads=(2 * _MI,),
            bytes=4 * _MI,
            beside=1000,
            items=(100, 1000),
            streams=(1, 10),
            among=500,
        )
    try:
        found = asyncio.run(measure(asked, _tell))
    except Failure as failure:
        _tell("")
        print(f"{failure}", file=sys.stderr)
        return 1
    _tell("")
    figures = figures_of(asked, found, words.note)
    if words.smoke:
        print(f"{sum(map(len, found.values()))} measurements ran and were counted exactly")
    else:
        print(report(figures), end="")
    if words.out:
        words.out.write_text(as_text(figures), encoding="utf-8")
    elif not words.smoke:
        RESULTS.write_text(as_text(figures), encoding="utf-8")
        return _publish(figures)
    return 0


def _publish(figures: dict[str, Any]) -> int:
    """Regenerate the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print("\nbenchmarks/scale.json and docs/scale.md tell the same", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description="Measure the cost of size and number."
    )
    add = parser.add_argument
    add("--runs", type=int, default=5, metavar="N", help="alternating runs of everything (5)")
    add(
        "--smoke",
        action="store_true",
        help="run everything once at a tiny size, to check that it runs and counts correctly",
    )
    add(
        "--out", type=Path, metavar="FILE", help="write the figures here, instead of benchmarks/scale.json and the docs"
    )
    add("--note", metavar="TEXT", help="a remark for the figures, such as other load on the machine")
    add("--draw", action="store_true", help="measure nothing: regenerate the docs' tables from benchmarks/scale.json")
    return parser


def _tell(line: str) -> None:
    """Print progress in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
