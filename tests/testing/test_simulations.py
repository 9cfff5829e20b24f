"""Whole programs over bad networks in virtual time: a client and a server, many seeds, the same checks for all.

A failure prints its seed and the command that runs it again: ``AFFLUX_SEED=7 pytest tests/testing -k rsocket``.
"""

from __future__ import annotations

import os
import time
from functools import cache

import pytest

from afflux.testing import run
from tests.examples import short
from tests.testing.simulation import KINDS, Simulation, Story

SEEDS = {"rsocket": 160, "rsocket-draft": 100, "reactivesocket": 60, "jmux": 60, "rsio": 60, "limit": 60}
BATCH = 10
BATCHES = [(name, first) for name, count in SEEDS.items() for first in range(0, count, BATCH)]
QUICK = 40
"Seeds of each protocol in ``make test``; ``make long`` runs the others."
STEPS = 300_000

REACHED = {
    "rsocket": {
        *(f"kind: {kind}" for kind in KINDS["rsocket"]),
        *("cut", "half open", "lost", "held", "refused", "full", "sliced", "fragments", "late timers", "leased"),
        *("resumed", "cut while resuming", "cut while replaying", "drained", "asked by the server", "restart"),
        *("request: completed", "request: failed", "request: given up", "request: ConnectionClosed"),
        *("stream: completed", "stream: failed", "stream: given up", "stream: left early", "stream: ConnectionClosed"),
        *("channel: completed", "channel: failed", "channel: given up", "channel: left early"),
        *("channel: ConnectionClosed", "fire: completed", "push: completed"),
    },
    "rsocket-draft": {
        *(f"kind: {kind}" for kind in KINDS["rsocket-draft"]),
        *("cut", "half open", "held", "refused", "sliced", "fragments", "late timers", "asked by the server"),
        *("request: completed", "stream: completed", "channel: completed", "fire: completed", "push: completed"),
        *("stream: left early", "stream: ConnectionClosed", "resumed"),
        *("stream: Rejected", "channel: Rejected", "request: Rejected"),
        *("stream that opted in: completed", "channel that opted in: completed"),
    },
    "reactivesocket": {
        *(f"kind: {kind}" for kind in KINDS["reactivesocket"]),
        *("cut", "half open", "held", "refused", "sliced", "fragments", "late timers", "asked by the server"),
        *("request: completed", "stream: completed", "channel: completed", "fire: completed", "push: completed"),
        *("subscribe: failed", "subscribe: given up", "stream: left early", "stream: ConnectionClosed"),
    },
    "jmux": {
        *(f"kind: {kind}" for kind in KINDS["jmux"]),
        *("cut", "half open", "held", "refused", "sliced", "late timers"),
        *("request: completed", "request: failed", "request: given up", "request: SessionLost"),
        *("session: completed", "session: failed", "session: given up", "session: SessionLost"),
    },
    "rsio": {
        *(f"kind: {kind}" for kind in KINDS["rsio"]),
        *("cut", "held", "refused", "sliced", "fragments", "late timers", "restart"),
        *("stream: completed", "stream: failed", "stream: given up", "stream: left early", "stream: ConnectionClosed"),
        *("subscribe: completed", "subscribe: ConnectionClosed"),
    },
    "limit": {
        *(f"kind: {kind}" for kind in KINDS["limit"]),
        *("cut", "held", "refused", "sliced", "late timers", "restart"),
        *("talk: completed", "talk: failed", "talk: ConnectionClosed"),
        *("channel: completed", "channel: failed", "channel: ConnectionClosed"),
    },
}
"What has to happen in the runs of a protocol together."


@cache
def played(protocol: str, seed: int) -> tuple[Story, float]:
    """One run, and the processor's seconds that it took."""
    simulation = Simulation(protocol, seed)
    began = time.process_time()
    story = run(simulation.play(), seed=seed, late=simulation.late, steps=STEPS)
    return story, time.process_time() - began


def seeds(protocol: str, first: int) -> list[int]:
    """The seeds of a batch; the one that AFFLUX_SEED names, instead."""
    chosen = os.environ.get("AFFLUX_SEED")
    if chosen is None:
        return list(range(first, first + BATCH))
    return [int(chosen)] if first == 0 else []


def faults(protocol: str, seed: int) -> list[str]:
    """What is wrong in a run, and how to run it again."""
    again = f"AFFLUX_SEED={seed} pytest tests/testing/test_simulations.py -k {protocol}"
    try:
        story, _ = played(protocol, seed)
    except Exception as error:
        return [f"{protocol}, seed {seed}: {error!r}; again: {again}"]
    if not story.wrong:
        return []
    return [f"{protocol}, seed {seed}, {story.kind}; again: {again}", *story.wrong, "what happened:", *story.lines]


@pytest.mark.parametrize(("protocol", "first"), short(BATCHES, smoke=[each for each in BATCHES if each[1] < QUICK]))
def test_every_run_keeps_its_promises(protocol: str, first: int) -> None:
    wrong = [line for seed in seeds(protocol, first) for line in faults(protocol, seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif("AFFLUX_SEED" in os.environ, reason="one run does not reach everything")
@pytest.mark.parametrize("protocol", SEEDS)
def test_the_runs_together_reach_everything(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    missing, runs = set(REACHED[protocol]), []
    for seed in range(SEEDS[protocol]):
        if not missing:
            break
        runs.append(played(protocol, seed))
        missing -= {kind for kind, times in runs[-1][0].happened.items() if times}
    assert missing == set()
    seconds, real = sum(story.seconds for story, _ in runs), sum(cost for _, cost in runs)
    slowest = min(story.seconds / cost for story, cost in runs)
    with capsys.disabled():
        print(f"\n{protocol}: {len(runs)} runs, {seconds:,.0f} virtual seconds in {real:.1f} s of CPU time, ", end="")
        print(f"{seconds / real:,.0f} times as fast as real time, the slowest {slowest:,.0f} times")


@pytest.mark.parametrize("protocol", SEEDS)
def test_a_seed_gives_the_same_run_again(protocol: str) -> None:
    for seed in range(5):
        simulation = Simulation(protocol, seed)
        again = run(simulation.play(), seed=seed, late=simulation.late, steps=STEPS)
        first, _ = played(protocol, seed)
        assert (again.lines, again.turns, again.happened) == (first.lines, first.turns, first.happened)
