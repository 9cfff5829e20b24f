"""Run every workload with every contender, in alternating rounds.

1. Each measurement has a fresh server and a fresh client process, warmed up by a part of the work, and by the seconds
   that a just-in-time compiler needs (``Entry.warm_s``). Two processes that only work in turn share a processor.
2. The contenders of a workload wait side by side and work in turn, ``SLICE_S`` at a time, in a different order in each
   round. So a slow phase of the machine affects them alike. Those with large payloads run one after the other, because
   their memory is measured and does not fit several times.
3. The amount of work is determined once for each contender and workload, so that it takes about ``seconds``; every
   round then does the same amount.
4. A contender that works longer than ``patience`` is abandoned, and further measurements of the same kind are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.pairs import Failure, Pair, Sample, merged, pair
from benchmarks.peers import PEERS, Contender
from benchmarks.workloads import Workload

__all__ = ["SLICE_S", "Plan", "Results", "measure_all", "smoke_all"]

SLICE_S = 0.1
"Approximate seconds that a contender works before it is the turn of the next."

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

    def slices(self, workload: Workload) -> int:
        """Return the number of parts of one measurement."""
        return 1 if workload.large else max(1, round(self.seconds / SLICE_S))


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
            turned = [one for one in _turned(able, round) if (workload.name, one) not in results.failures]
            step = f"run {round + 1} of {plan.runs}: {workload.title}"
            for group in [[one] for one in turned] if workload.large else [turned]:
                async with AsyncExitStack() as processes:
                    await _Turns(plan, workload, results, amounts, processes).measure(group, step, told)
    return results


@dataclass(slots=True)
class _Turns:
    """Contenders that work in turn on one workload."""

    plan: Plan
    workload: Workload
    results: Results
    amounts: dict[tuple[str, Contender], int]
    processes: AsyncExitStack

    async def measure(self, contenders: Sequence[Contender], step: str, told: Callable[[str], None]) -> None:
        """Add one sample for each contender, or the reason why there is none."""
        pairs: dict[Contender, Pair] = {}
        slices: dict[Contender, list[Sample]] = {one: [] for one in contenders}
        for one in contenders:
            told(f"{step}: {one}")
            async with self._judged(one):
                pairs[one] = await self._warm(one)
        for _ in range(self.plan.slices(self.workload)):
            for one, ends in pairs.items():
                if (key := (self.workload.name, one)) not in self.results.failures:
                    async with self._judged(one):
                        slices[one].append(await ends.measure(self.workload, self.amounts[key]))
        for one in pairs:
            if (key := (self.workload.name, one)) not in self.results.failures:
                self.results.samples.setdefault(key, []).append(merged(slices[one]))

    async def _warm(self, one: Contender) -> Pair:
        """Start the processes of a contender, and determine the amount of work of a slice."""
        work = self.workload
        ends = await self.processes.enter_async_context(pair(one, work.settings, one_core=work.in_turn))
        key = self.workload.name, one
        self.amounts[key] = await _warm_up(
            ends, self.workload, self.plan, PEERS[one.peer].warm_s, self.amounts.get(key)
        )
        return ends

    @asynccontextmanager
    async def _judged(self, one: Contender) -> AsyncIterator[None]:
        """Record a failure, or that the contender takes too long."""
        try:
            async with asyncio.timeout(self.plan.patience):
                yield
        except TimeoutError:
            self.results.failures[self.workload.name, one] = f"abandoned after {self.plan.patience:.0f} s"
        except Failure as failure:
            self.results.failures[self.workload.name, one] = str(failure)


async def smoke_all(plan: Plan, told: Callable[[str], None]) -> Results:
    """Run a little of everything once with few processes, to check that it runs and counts correctly."""
    results = Results()
    for contender in _present(plan.contenders, results):
        able = [workload for workload in plan.workloads if PEERS[contender.peer].why_not(workload) is None]
        for settings in dict.fromkeys(workload.settings for workload in able):
            together = [workload for workload in able if workload.settings == settings]
            await _smoke(contender, together, plan.patience, results, told)
    return results


async def _smoke(
    contender: Contender,
    workloads: Sequence[Workload],
    patience: float,
    results: Results,
    told: Callable[[str], None],
) -> None:
    """Run several workloads of the same settings in one pair of processes."""
    workload = workloads[0]
    try:
        async with asyncio.timeout(patience), pair(contender, workload.settings) as processes:
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
    """Run until a large part of the time has passed, at least ``warm_s``; return how much work fills a slice."""
    least, most = workload.least, _MOST_BYTES // workload.size
    first = await processes.measure(workload, least)  # what is done once: imports, the first buffers
    worked, tried = first.seconds, least if amount is None else max(least, amount // 2)
    rates: list[float] = []
    while True:
        sample = await processes.measure(workload, tried)
        worked += sample.seconds
        if sample.seconds >= plan.seconds / 4 or tried >= most:
            rates.append(sample.rate)
        elif amount is None:  # a long measurement before this one was a stall of the machine
            rates.clear()
            tried = min(most, tried * 4)
        if worked >= warm_s and (amount is not None or len(rates) >= 2):
            return amount or min(most, max(least, int(max(rates) * plan.seconds / plan.slices(workload))))
