"""The timer: it rings once for each moment, the nearest set one, and not when it is closed."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pytest

from afflux.bench.alarm import Alarm, _Timer


@pytest.mark.parametrize("exact", [True, False])
async def test_it_rings_when_it_is_time(exact: bool) -> None:
    rung: asyncio.Queue[float] = asyncio.Queue()
    alarm = Alarm(time.perf_counter, lambda: rung.put_nowait(time.perf_counter()), exact=exact)
    for wait in (0.01, 0.0, -1.0):
        moment = time.perf_counter() + wait
        alarm.set(moment)
        assert await rung.get() >= moment - 0.001
    alarm.close()


@pytest.mark.parametrize("exact", [True, False])
async def test_a_later_moment_takes_the_place_of_the_one_before(exact: bool) -> None:
    rung: asyncio.Queue[None] = asyncio.Queue()
    alarm = Alarm(time.perf_counter, lambda: rung.put_nowait(None), exact=exact)
    alarm.set(time.perf_counter() + 3600)
    alarm.set(time.perf_counter())
    await rung.get()
    alarm.set(time.perf_counter())
    alarm.close()
    alarm.close()
    other = Alarm(time.perf_counter, lambda: rung.put_nowait(None), exact=exact)
    other.set(time.perf_counter() + 0.01)
    await rung.get()
    other.close()
    assert rung.empty()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timers that are files are Linux's")
def test_linux_has_exact_ones() -> None:
    timer = _Timer.made()
    assert timer is not None
    assert not timer.rang()
    os.close(timer.fd)


def test_elsewhere_the_loops_own_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _Timer.made() is None
