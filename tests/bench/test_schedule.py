"""The schedule: every request has its moment, whatever became of those before it, and is begun or given up once."""

from __future__ import annotations

import asyncio
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.bench.schedule import Arrivals, Closed, Open
from tests.bench.virtual import virtually


def arrivals(rate: float = 10, patience: float = 60, start: float = 100, **more: float) -> Arrivals:
    made = Arrivals(rate, patience, **more)  # type: ignore[arg-type]
    made.begin(start)
    return made


def all_of(schedule: Arrivals, now: float) -> list[float]:
    found = []
    while (moment := schedule.take(now)) is not None:
        found.append(moment)
    return found


# -- arithmetic ---------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.floats(0.001, 1e6), st.floats(0, 1e6), st.integers(0, 10**12))
def test_a_moment_is_worked_out_and_not_added_up(rate: float, start: float, number: int) -> None:
    moment = arrivals(rate, start=start).moment(number)
    exact = Fraction(start) + number / Fraction(rate)
    assert abs(Fraction(moment) - exact) <= exact * Fraction(2, 10**15)


@settings(deadline=None)
@given(st.lists(st.floats(0, 0.5), max_size=40), st.sampled_from([3.0, 7.0, 10.0, 33.3]))
def test_looking_late_changes_no_moment(waits: list[float], rate: float) -> None:
    schedule = arrivals(rate)
    now, found = 100.0, []
    for wait in waits:
        now += wait
        found += all_of(schedule, now)
    assert found == [schedule.moment(number) for number in range(len(found))]
    assert all(moment <= now for moment in found)
    assert schedule.following > now or not found


def test_none_is_forgotten_and_none_comes_twice() -> None:
    """However the clock is looked at, a minute at 1,234.5 a second is a minute at 1,234.5 a second."""
    schedule = arrivals(1234.5, seconds=60, patience=7200)
    count = sum(len(all_of(schedule, 100 + now)) for now in (0.1, 0.1001, 0.9, 1, 30, 59.999, 60, 70))
    assert count == round(1234.5 * 60)
    assert not schedule.left


@settings(deadline=None)
@given(st.floats(0.01, 1e5), st.floats(0, 1e6), st.integers(1, 10**9), st.floats(-0.4, 0.4))
def test_so_many_are_due_as_had_their_moment(rate: float, start: float, number: int, beside: float) -> None:
    """Near any moment of hours, where division rounds: none is due before it, and none is still not due behind it."""
    schedule = arrivals(rate, patience=1e18, start=start)
    for now in (schedule.moment(number), schedule.moment(number) + beside / rate):
        due = schedule.due(now)
        assert schedule.moment(due - 1) <= now < schedule.moment(due)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_workers_share_a_rate_in_turn(workers: int) -> None:
    alone = all_of(arrivals(30, seconds=10), 150)
    shared = [all_of(arrivals(30, seconds=10, offset=each, step=workers), 150) for each in range(workers)]
    assert sorted(moment for part in shared for moment in part) == pytest.approx(alone)
    assert len(alone) == 300


def test_there_are_so_many_and_no_more() -> None:
    schedule = arrivals(count=3)
    assert all_of(schedule, 1000)[:1] == []  # a minute is over: they are given up
    assert (schedule.given_up, schedule.left) == (3, False)
    schedule = arrivals(count=3)
    assert all_of(schedule, 110) == [100, 100.1, 100.2]


def test_no_call_begins_at_the_end_of_the_time() -> None:
    assert all_of(arrivals(10, seconds=0.5), 110) == [100, 100.1, 100.2, 100.3, 100.4]


def test_the_queue_is_two_numbers_and_has_an_end() -> None:
    """A thousand million are due: those of the last second are begun, the others were given up without being made."""
    schedule = arrivals(1e9, patience=1.0)
    assert schedule.take(101.5) == pytest.approx(100.5)
    assert schedule.given_up == pytest.approx(5e8, abs=10)
    assert schedule.backlog == pytest.approx(1e9, abs=10)
    assert schedule.due(101.5) == pytest.approx(1e9, abs=10)


def test_after_stop_there_are_none() -> None:
    schedule = arrivals()
    assert schedule.due(101) == 11
    schedule.stop()
    assert (schedule.left, schedule.take(101), schedule.due(101)) == (False, None, 0)


# -- turns --------------------------------------------------------------------------------------------------


def test_closed_load_gives_a_turn_to_everyone_who_asks() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns = Closed(loop.time, count=4, seconds=1.0)
        waiting = [asyncio.ensure_future(turns.take()) for _ in range(2)]
        await asyncio.sleep(5)
        assert not any(task.done() for task in waiting)
        turns.begin(loop.time())
        assert await asyncio.gather(*waiting) == [loop.time()] * 2
        assert await turns.take() == loop.time()
        await asyncio.sleep(0.5)
        assert await turns.take() == loop.time()
        assert (await turns.take(), turns.begun, turns.stop(0.0)) == (None, 4, 0)

    virtually(main())


def test_closed_load_ends_with_its_time_or_when_it_is_stopped() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for stop in (False, True):
            turns = Closed(loop.time, seconds=1.0)
            turns.begin(loop.time())
            assert await turns.take() is not None
            if stop:
                turns.stop(loop.time())
            else:
                await asyncio.sleep(1)
            assert await turns.take() is None

    virtually(main())


def opened(rate: float, **more: float) -> Open:
    return Open(Arrivals(rate, 60.0, **more), asyncio.get_running_loop().time, exact=False)  # type: ignore[arg-type]


def test_open_load_wakes_who_waits_longest_at_its_moment() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns = opened(10, count=3)
        order: list[tuple[str, float | None, float]] = []

        async def stream(name: str) -> None:
            moment = await turns.take()
            order.append((name, moment, loop.time()))

        tasks = [asyncio.ensure_future(stream(name)) for name in "abcd"]
        await asyncio.sleep(3)
        start = loop.time()
        turns.begin(start)
        await asyncio.gather(*tasks)
        assert [name for name, _, _ in order] == ["a", "b", "c", "d"]
        moments = [start, start + 0.1, start + 0.2, None]
        assert [moment for _, moment, _ in order] == moments
        assert [now for _, _, now in order[:3]] == pytest.approx(moments[:3])
        assert (turns.begun, turns.late, turns.late_here) == (3, 0, 0)
        turns.close()

    virtually(main())


def test_who_comes_late_gets_the_moment_that_was_meant() -> None:
    """One stream that takes a second for each request, of ten that are due in it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns = opened(10, count=4)
        turns.begin(start := loop.time())
        delays = []
        while (moment := await turns.take()) is not None:
            delays.append(loop.time() - moment)
            await asyncio.sleep(1)
        assert delays == pytest.approx([0, 0.9, 1.8, 2.7])
        assert (turns.late, turns.late_here, turns.arrivals.backlog) == (3, 0, 3)
        assert loop.time() == pytest.approx(start + 4)

    virtually(main())


def test_a_stalled_machine_differs_from_busy_streams() -> None:
    """A free stream waits for the next moment, and the whole loop stands still for as long as ten of them take."""

    async def main() -> None:
        clock = [100.0]
        turns = Open(Arrivals(10, 60.0, count=20), lambda: clock[0], exact=False)
        turns.begin(100.0)
        assert await turns.take() == 100.0
        waiting = asyncio.ensure_future(turns.take())
        await asyncio.sleep(0)
        clock[0] = 101.05
        assert await waiting == 100.1
        while (moment := await turns.take()) is not None and moment < 101.0:
            pass
        assert (turns.late, turns.late_here) == (10, 10)
        clock[0] = 102.0  # and now it is busy
        await turns.take()
        assert (turns.late, turns.late_here) == (11, 10)

    virtually(main())


def test_who_has_left_gets_no_turn() -> None:
    async def main() -> None:
        turns = opened(10, count=1)
        gone, there = (asyncio.ensure_future(turns.take()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        turns.begin(start := asyncio.get_running_loop().time())
        assert await there == start

    virtually(main())


@pytest.mark.parametrize("begun", [False, True])
def test_stopping_releases_all_and_returns_what_was_due(begun: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns = opened(10)
        if begun:
            turns.begin(loop.time())
            assert await turns.take() is not None
        waiting = asyncio.ensure_future(turns.take())
        await asyncio.sleep(0)
        assert turns.stop(loop.time() + 0.55) == (5 if begun else 0)
        assert await waiting is None
        assert not begun or await turns.take() is None

    virtually(main())


async def test_it_keeps_its_rate_in_real_time() -> None:
    """Structure, not speed: the moments are those of the schedule, and none is begun before it has come."""
    turns = Open(Arrivals(2000, 60.0, count=50), time.perf_counter)
    start = time.perf_counter()
    turns.begin(start)
    for number in range(50):
        moment = await turns.take()
        assert moment == start + number / 2000
        assert time.perf_counter() >= moment - 0.0005
    assert await turns.take() is None
    turns.close()
