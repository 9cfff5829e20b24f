"""Compare fixed windows and the adaptive one on six workloads: ``python -m benchmarks.credit``.

Each measurement uses three fresh processes: a server, a client, and between them a link with a latency and a bandwidth
(credit_link.py), except for workloads on loopback. The client consumes for some seconds from its request on, so the
time to find a good window counts.

**The score** was defined before the first measurement. Unbounded credit maximizes throughput alone. But a window exists
to bound what waits between a producer and its consumer: memory, and the age of an item when it is consumed. By Little's
law these two are equivalent: waiting items = items per second × mean age. The score is therefore

    score = items per second × (1 ms / (1 ms + mean age)) ** (1/4)

It is in items per second, discounted by age: an item that is sixteen times as old must come with twice the throughput.
Ages below a millisecond, a turn of two event loops, hardly count. It is the "generalised power" of queueing theory
(throughput ** 4 / delay) under its fourth root, so that losing 5 % means about 5 % of throughput. ``--weights`` shows
the result with other exponents; 0 is throughput alone.

**The rule**: the adaptive window beats a fixed one on a workload if the ratio of the medians of their scores is above
1.02; from there to 0.95 it is a draw; below it loses. It must beat every fixed window on at least four workloads, and
lose to none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final, NamedTuple

from benchmarks.credit_page import PAGE, rewritten

__all__ = ["PAGE", "RESULTS", "SETTINGS", "WORKLOADS", "Workload", "main", "page_of", "score"]

_ROOT = Path(__file__).resolve().parent.parent
RESULTS = _ROOT / "benchmarks" / "credit.json"

SETTINGS: Final[dict[str, int | str]] = {
    **{str(n): n for n in (1, 8, 32, 64, 256, 1024, 4096)},
    "unbounded": 0x7FFFFFFF,
    "auto": "auto",
}
"Values of ``credit=``, by name in the tables."

WIN, LOSS = 1.02, 0.95
_KEPT = ("rate", "age", "age_p99", "score", "peak")
_REST_S = 0.5
_RESTS = 30
WEIGHT = 0.25


class Workload(NamedTuple):
    """One link and its consumers."""

    name: str
    title: str
    streams: list[dict[str, Any]]
    "For each stream the sizes of its items in rotation, and its pace: (seconds, seconds per item) in rotation."
    rtt_ms: float = 0.0
    "0 is loopback, without a link."
    rate: float = 0.0
    "Bytes per second."


def _one(size: int, pace: float = 0.0) -> list[dict[str, Any]]:
    return [{"sizes": [size], "pace": [[60.0, pace]]}]


_MIX = [64, 256, 64, 1024, 4096, 64, 16384, 256]
_FAST_SLOW = [[1.0, 0.0], [1.0, 0.002]]

WORKLOADS: Final = (
    Workload("loopback", "loopback, 64 B, fast consumer", _one(64)),
    Workload("near", "20 ms, 20 MB/s, 1 KiB, fast consumer", _one(1024), 20, 20e6),
    Workload("far", "100 ms, 5 MB/s, 64 B, fast consumer", _one(64), 100, 5e6),
    Workload("slow", "loopback, 1 KiB, 1 ms an item", _one(1024, 0.001)),
    Workload("large", "20 ms, 50 MB/s, 64 KiB, fast consumer", _one(0x10000), 20, 50e6),
    Workload(
        "mixed",
        "20 ms, 20 MB/s, 8 streams of 64 B to 16 KiB; each consumer is fast for 1 s, then takes 2 ms an item for 1 s",
        [{"sizes": _MIX[n:] + _MIX[:n], "pace": _FAST_SLOW[:: 1 if n % 2 else -1]} for n in range(8)],
        20,
        20e6,
    ),
)
"The six workloads, in the order of the tables."


def _source(size: int, burst: int, every: float) -> list[dict[str, Any]]:
    return [{"sizes": [size], "pace": [[60.0, 0.0]], "burst": burst, "every": every}]


OTHERS: Final = (
    Workload("bursts", "20 ms, 20 MB/s, 256 B, 1000 items each half second", _source(256, 1000, 0.5), 20, 20e6),
    Workload("live", "20 ms, 20 MB/s, 256 B, an item each 2 ms", _source(256, 1, 0.002), 20, 20e6),
    Workload("far-slow", "100 ms, 5 MB/s, 1 KiB, 5 ms an item", _one(1024, 0.005), 100, 5e6),
    Workload("quick", "5 ms, 50 MB/s, 512 B, fast consumer", _one(512), 5, 50e6),
    Workload("many", "20 ms, 20 MB/s, 32 streams of 1 KiB, fast consumers", _one(1024) * 32, 20, 20e6),
)
"Workloads outside of the rule, not used while the adaptive window was designed."


def score(rate: float, age: float, weight: float = WEIGHT) -> float:
    """Return items per second, discounted by the mean age in seconds."""
    return rate * (0.001 / (0.001 + age)) ** weight


class Process:
    """One of the three processes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hear(self) -> dict[str, Any]:
        """Return its next line."""
        if self._process.stdout is None:
            raise RuntimeError("no output")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark ended without output; its errors are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def say(self, command: dict[str, Any]) -> None:
        """Send it a command."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def end(self) -> None:
        """Kill it without waiting for data in flight."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


async def _start(*arguments: str) -> Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, stdin=pipe, stdout=pipe, cwd=_ROOT, limit=1 << 28, env=os.environ
    )
    return Process(process)


async def measure(workload: Workload, setting: str, seconds: float, *, trace: bool = False) -> dict[str, Any]:
    """Run one measurement, in fresh processes.

    Raises:
        RuntimeError: a process failed.
        TimeoutError: it took much longer than requested.
    """
    processes: list[Process] = []
    try:
        async with asyncio.timeout(seconds + 30):
            processes.append(server := await _start("benchmarks.credit_ends", "server"))
            port = (await server.hear())["port"]
            if workload.rtt_ms:
                processes.append(
                    link := await _start("benchmarks.credit_link", str(port), str(workload.rtt_ms), str(workload.rate))
                )
                port = (await link.hear())["port"]
            processes.append(client := await _start("benchmarks.credit_ends", "client", str(port)))
            client.say({"credit": SETTINGS[setting], "seconds": seconds, "streams": workload.streams, "trace": trace})
            answer = await client.hear()
    finally:
        for process in reversed(processes):
            await process.end()
    answer["rate"] = answer["items"] / answer["seconds"]
    answer["score"] = score(answer["rate"], answer["age"])
    return answer


async def quiet() -> None:
    """Wait, for a limited time, until half of the processors are idle."""
    for _ in range(_RESTS):
        before = _processors()
        await asyncio.sleep(_REST_S)
        idle, total = (after - then for after, then in zip(_processors(), before, strict=True))
        if idle >= total / 2:
            return


def _processors() -> tuple[int, int]:
    """Return the idle ticks and all ticks of all processors since boot."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


async def run(
    workloads: Sequence[Workload], settings: Sequence[str], runs: int, seconds: float, rest: bool
) -> dict[str, Any]:
    """Run all measurements in rounds, in a different order in each round."""
    samples: dict[str, dict[str, list[dict[str, Any]]]] = {one.name: {s: [] for s in settings} for one in workloads}
    for workload in workloads:
        for round in range(runs):
            turned = [*settings[round:], *settings[:round]] if round < len(settings) else list(settings)
            for setting in turned[::-1] if round % 2 else turned:
                if rest:
                    await quiet()
                answer = await measure(workload, setting, seconds)
                samples[workload.name][setting].append(answer)
                print(
                    f"{workload.name:9} {setting:>9} {round + 1}: {answer['rate']:10,.0f}/s"
                    f" {answer['age'] * 1e3:9.2f} ms {answer['score']:10,.0f} {answer['peak'] >> 20} MiB",
                    file=sys.stderr,
                    flush=True,
                )
    return samples


def ratios(samples: dict[str, Any], workload: str, setting: str, weight: float = WEIGHT) -> float:
    """Return the median score of the adaptive window relative to that of ``setting``."""
    by_setting = samples[workload]
    mine, other = (
        median(score(one["rate"], one["age"], weight) for one in by_setting[which]) for which in ("auto", setting)
    )
    return mine / other


def tables(samples: dict[str, Any], weight: float = WEIGHT) -> str:
    """Return the matrix: throughput, age and score of each setting on each workload, and the verdict."""
    lines = []
    titles = {one.name: one.title for one in (*WORKLOADS, *OTHERS)}
    for name, by_setting in samples.items():
        lines += [f"\n{name}: {titles[name]}", f"{'credit':>10} {'items/s':>10} {'age ms':>9} {'p99 ms':>9}"
                  f" {'held':>10} {'client MiB':>10} {'score':>10} {'auto is':>8}"]  # fmt: skip
        for setting, answers in by_setting.items():
            rate, age, p99 = (median(one[key] for one in answers) for key in ("rate", "age", "age_p99"))
            points = median(score(one["rate"], one["age"], weight) for one in answers)
            peak = median(one["peak"] for one in answers) / 2**20
            beside = f"{ratios(samples, name, setting, weight):7.2f}x" if "auto" in by_setting else ""
            lines.append(
                f"{setting:>10} {rate:10,.0f} {age * 1e3:9.2f} {p99 * 1e3:9.2f} {rate * age:10,.0f}"
                f" {peak:10.0f} {points:10,.0f} {beside:>8}"
            )
    if all("auto" in by_setting for by_setting in samples.values()):
        lines += ["", *verdict(samples, weight)]
    return "\n".join(lines)


def verdict(samples: dict[str, Any], weight: float = WEIGHT) -> list[str]:
    """Return the verdict of the rule as text."""
    won, lost = [], []
    for name, by_setting in samples.items():
        fixed = {setting: ratios(samples, name, setting, weight) for setting in by_setting if setting != "auto"}
        nearest = min(fixed, key=lambda setting: fixed[setting])
        if fixed[nearest] > WIN:
            won.append(f"{name} ({fixed[nearest]:.2f} times {nearest})")
        elif fixed[nearest] < LOSS:
            lost.append(f"{name} ({fixed[nearest]:.2f} times {nearest})")
    lines = [f"beats every fixed window on {len(won)} of {len(samples)}: {', '.join(won) or 'none'}"]
    lines.append(f"loses more than 5 % on {len(lost)}: {', '.join(lost) or 'none'}")
    means = {
        setting: geometric_mean(
            median(score(one["rate"], one["age"], weight) for one in by_setting[setting])
            for by_setting in samples.values()
        )
        for setting in next(iter(samples.values()))
    }
    lines.append("geometric means: " + ", ".join(f"{setting} {mean:,.0f}" for setting, mean in means.items()))
    return lines


def page_of(page: str, samples: dict[str, Any]) -> str:
    """Return the credit page with these figures, of the six workloads only."""
    six = {one.name: samples[one.name] for one in WORKLOADS if one.name in samples}
    return rewritten(page, {one.name: one.title for one in WORKLOADS}, six, verdict(six)[:2])


def _as_text(samples: dict[str, Any]) -> str:
    """Serialize the results, one line per measurement."""
    lines = []
    for name, by_setting in samples.items():
        settings = []
        for setting, answers in by_setting.items():
            kept = [{key: float(f"{one[key]:.5g}") for key in _KEPT} for one in answers]
            settings.append(f"  {json.dumps(setting)}: [\n   " + ",\n   ".join(map(json.dumps, kept)) + "\n  ]")
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(settings) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.credit", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    names = [one.name for one in (*WORKLOADS, *OTHERS)]
    add("--runs", type=int, default=5, metavar="N", help="alternating runs (5)")
    add("--seconds", type=float, default=8.0, metavar="S", help="how long each client consumes (8)")
    add("--only", nargs="+", choices=names, default=names[:6], metavar="WORKLOAD", help=f"some of: {' '.join(names)}")
    add("--credit", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="CREDIT")
    add(
        "--rest",
        action="store_true",
        help="before each measurement wait up to 15 s for an idle machine (Linux)",
    )
    add("--weights", action="store_true", help="also with other exponents of the age")
    add("--read", type=Path, metavar="FILE", help="measure nothing; show this file again")
    add("--page", action="store_true", help="write the table of docs/credit.md")
    add(
        "--out", type=Path, metavar="FILE", help="write the figures here; figures of other workloads in the file remain"
    )
    asked = parser.parse_args(arguments)
    if not asked.read:
        chosen = [one for one in (*WORKLOADS, *OTHERS) if one.name in asked.only]
        samples = asyncio.run(run(chosen, asked.credit, asked.runs, asked.seconds, asked.rest))
        if asked.out:
            before = json.loads(asked.out.read_text()) if asked.out.exists() else {}
            asked.out.write_text(_as_text(before | samples))
    else:
        samples = json.loads(asked.read.read_text())
    print(tables(samples))
    if asked.page:
        PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8"), samples), encoding="utf-8")
    if asked.weights:
        for weight in (0.0, 0.125, 0.5, 1.0):
            print(f"\nwith an exponent of {weight:g}:", *verdict(samples, weight), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
