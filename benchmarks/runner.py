"""Run every workload with every contender, in alternating rounds.

1. Each measurement has a fresh server and a fresh client process, warmed up by a tenth of the work, and by the seconds
   that a just-in-time compiler needs (``Entry.warm_s``).
2. Contenders alternate within a workload, in a different order in each round, so that other load affects them alike.
3. The amount of work is determined once for each contender and workload, so that it takes about ``seconds``; every
   round then does the same amount.
4. A measurement that takes longer than ``patience`` is abandoned, and further ones of the same kind are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.pairs import Failure, Pair, Sample, pair
from benchmarks.peers import PEERS, Contender
from benchmarks.workloads import Workload

__all__ = ["Plan", "Results", "measure_all", "smoke_all"]

_MOST_BYTES = 8_000_000_000


@dataclass(slots=True, kw_only=True)
class Plan:
    """What to run."""

    contenders: Sequence[Contender]
    workloads: Sequence[Workload]
    runs: int
    seconds: float
    "Approximate duration of one measurement."
    patience: float
    "Seconds after which a measurement is abandoned."


@dataclass(slots=True)
class Results:
    """The results of a run."""

    samples: dict[tuple[str, Contender], list[Sample]] = field(default_factory=dict)
    "By workload name and contender."
    failures: dict[tuple[str, Contender], str] = field(default_factory=dict)
    "Reasons for missing samples."
    absent: dict[Contender, str] = field(default_factory=dict)
    "Contenders that could not run, and why."


async def measure_all(plan: Plan, told: Callable[[str], None]) -> Results:
    """Run the plan; ``told`` is called for each step."""
    results = Results()
    contenders = _present(plan.contenders, results)
    amounts: dict[tuple[str, Contender], int] = {}
    for round in range(plan.runs):
        for workload in plan.workloads:
            able = [one for one in contenders if PEERS[one.peer].why_not(workload) is None]
            for contender in _turned(able, round):
                key = workload.name, contender
                if key in results.failures:
                    continue
                told(f"run {round + 1} of {plan.runs}: {workload.title}: {contender}")
                try:
                    async with asyncio.timeout(plan.patience), pair(contender, workload.large) as processes:
                        amounts[key] = await _warm_up(
                            processes, workload, plan, PEERS[contender.peer].warm_s, amounts.get(key)
                        )
                        sample = await processes.measure(workload, amounts[key])
                        results.samples.setdefault(key, []).append(sample)
                except TimeoutError:
                    results.failures[key] = f"abandoned after {plan.patience:.0f} s"
                except Failure as failure:
                    results.failures[key] = str(failure)
    return results


async def smoke_all(plan: Plan, told: Callable[[str], None]) -> Results:
    """Run a little of everything once with few processes, to check that it runs and counts correctly."""
    results = Results()
    for contender in _present(plan.contenders, results):
        able = [workload for workload in plan.workloads if PEERS[contender.peer].why_not(workload) is None]
        for large in (False, True):
            if together := [workload for workload in able if workload.large == large]:
                await _smoke(contender, large, together, plan.patience, results, told)
    return results


async def _smoke(
    contender: Contender,
    large: bool,
    workloads: Sequence[Workload],
    patience: float,
    results: Results,
    told: Callable[[str], None],
) -> None:
    """Run several workloads in one pair of processes."""
    workload = workloads[0]
    try:
        async with asyncio.timeout(patience), pair(contender, large) as processes:
            for workload in workloads:
                told(f"{workload.title}: {contender}")
                results.samples[workload.name, contender] = [await processes.measure(workload, workload.smoke)]
    except TimeoutError:
        results.failures[workload.name, contender] = f"abandoned after {patience:.0f} s"
    except Failure as failure:
        results.failures[workload.name, contender] = str(failure)


def _present(contenders: Sequence[Contender], results: Results) -> list[Contender]:
    present = []
    for contender in contenders:
        if reason := contender.why_not():
            results.absent[contender] = reason
        else:
            present.append(contender)
    return present


def _turned(contenders: list[Contender], round: int) -> list[Contender]:
    """Return the order of a round: rotated, and reversed in every other round."""
    if not contenders:
        return []
    first = round % len(contenders)
    turned = contenders[first:] + contenders[:first]
    return turned[::-1] if round % 2 else turned


async def _warm_up(processes: Pair, workload: Workload, plan: Plan, warm_s: float, amount: int | None) -> int:
    """Run until a large part of the time has passed, at least ``warm_s``; return how much work fills the time."""
    least, most = workload.least, _MOST_BYTES // workload.size
    first = await processes.measure(workload, least)  # what is done once: imports, the first buffers
    worked, tried = first.seconds, least if amount is None else max(least, amount // 10)
    while True:
        sample = await processes.measure(workload, tried)
        worked += sample.seconds
        enough = amount is not None or sample.seconds >= plan.seconds / 4 or tried >= most
        if enough and worked >= warm_s:
            return amount or min(most, max(least, int(sample.rate * plan.seconds)))
        if not enough:
            tried = min(most, tried * 4)
