"""Several processes: each takes its part, they begin together, and add up. None is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.bench import Plan, Progress, run
from afflux.bench import worker as process
from afflux.bench.workers import PREFIX, Message, packed


class Echo:
    """Knows who has asked how often."""

    def __init__(self) -> None:
        self.asked: Counter[afflux.Peer] = Counter()
        self.first = asyncio.Event()

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        self.asked[afflux.current_peer()] += 1
        self.first.set()
        return payload


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@pytest.mark.parametrize("rate", [None, 400.0])
async def test_they_share_the_load(rate: float | None) -> None:
    echo = Echo()
    async with afflux.serve("tcp://127.0.0.1:0", echo) as server:
        plan = Plan(uri=server.uri, requests=201, connections=3, concurrency=2, workers=2, rate=rate, data=b"abc")
        result = await run(plan)
    assert (result.requests, result.tally.succeeded, result.tally.bytes, result.latency.count) == (201, 201, 603, 201)
    assert (result.plan, result.trip is not None, len(echo.asked)) == (plan, True, 3)
    assert sum(echo.asked.values()) == 201
    assert result.series("service") is None if rate is None else result.tally.service.count == 201
    assert children() == []


async def test_they_wait_for_each_other_and_for_the_gate() -> None:
    echo = Echo()
    seen: list[int] = []

    async def gate() -> None:
        seen.append(len(echo.asked))

    async with afflux.serve("tcp://127.0.0.1:0", echo) as server:
        plan = Plan(uri=server.uri, requests=4, connections=2, workers=2)
        result = await run(plan, gate=gate)
    assert (seen, result.requests) == ([0], 4)


async def test_they_end_early_together() -> None:
    stop, far = asyncio.Event(), asyncio.Event()
    phases = set()

    def tell(progress: Progress) -> None:
        phases.add(progress.phase)
        if progress.done > 2:
            far.set()

    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        plan = Plan(uri=server.uri, duration=3600.0, connections=2, workers=2)
        running = asyncio.ensure_future(run(plan, stop=stop, tell=tell))
        await far.wait()
        stop.set()
        result = await running
    assert result.interrupted
    assert result.requests == result.tally.succeeded + result.tally.unfinished
    assert phases - {"connecting"} == {"measuring"}


async def test_canceling_ends_them() -> None:
    echo = Echo()
    async with afflux.serve("tcp://127.0.0.1:0", echo) as server:
        running = asyncio.ensure_future(run(Plan(uri=server.uri, connections=2, workers=2, duration=3600.0)))
        await echo.first.wait()
        running.cancel()
        await asyncio.wait((running,))
    assert running.cancelled()
    assert children() == []


async def test_a_failure_in_one_is_reported() -> None:
    async def refuse(setup: object, peer: afflux.Peer) -> None:
        raise afflux.SetupRefused("no entry", code=3)

    async with afflux.serve("tcp://127.0.0.1:0", Echo(), on_setup=refuse) as server:
        with pytest.raises(afflux.SetupRefused, match="no entry") as caught:
            await run(Plan(uri=server.uri, connections=2, workers=2, requests=10))
        assert caught.value.code == 3
    with pytest.raises(afflux.ConnectFailed):
        await run(Plan(uri=server.uri, connections=2, workers=2, requests=10))
    assert children() == []


async def test_one_that_is_killed_is_reported() -> None:
    echo = Echo()
    async with afflux.serve("tcp://127.0.0.1:0", echo) as server:
        running = asyncio.ensure_future(run(Plan(uri=server.uri, connections=2, workers=2, duration=3600.0)))
        await echo.first.wait()
        os.kill(children()[0], signal.SIGKILL)
        with pytest.raises(afflux.Error, match="a worker ended early, with exit code -9"):
            await running
    assert children() == []


async def test_one_whose_starter_is_gone_ends() -> None:
    """Its stdin ends, before it has begun or while it works."""
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        for order in (b"", b"g"):
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "afflux.bench.worker", stdin=pipe, stdout=pipe
            )
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(packed(Plan(uri=server.uri, duration=3600.0)) + order)
            await child.stdout.readexactly(PREFIX)
            child.stdin.close()
            await child.stdout.read()
            assert await child.wait() == 0


def test_an_error_that_does_not_survive_the_pipe_is_reported_as_text() -> None:
    class Odd(afflux.Error):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    refused = afflux.SetupRefused("no", code=3)
    assert process._portable(refused) is refused
    told: Any = process._portable(Odd(1, 2))
    assert (type(told), str(told)) == (afflux.Error, "1 and 2")
    assert packed(Message("error", told))
