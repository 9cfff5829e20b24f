"""The loop in virtual time: the clock jumps, nothing sleeps, and a program that cannot end is an error."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import AsyncIterator
from math import inf

import pytest

import afflux
from afflux.testing import Deadlock, Livelock, VirtualLoop, run


def test_the_clock_jumps_to_the_next_timer() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        for seconds in (86_400.0 * 365, 0.001, 0.0):
            await asyncio.sleep(seconds)
            times.append(loop.time())
        return times

    assert run(main(), steps=1000, within=inf) == pytest.approx([0.0, 31_536_000.0, 31_536_000.001, 31_536_000.001])


def test_timers_fire_in_their_order() -> None:
    fired: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, fired.append, "second")
        loop.call_later(1.0, fired.append, "first")
        loop.call_later(2.0, fired.append, "third").cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.Event().wait()

    run(main())
    assert fired == ["first", "second"]


def test_a_timer_that_is_due_already_fires() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1e9)
        fired = loop.create_future()
        loop.call_later(0.0, fired.set_result, None)
        await fired
        return loop.time()

    assert run(main(), steps=100_000, within=inf) == pytest.approx(1e9)


def test_late_timers_are_late_by_the_seed() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(5):
            await asyncio.sleep(1.0)
            times.append(loop.time())
        return times

    first, again, other = (run(main(), seed=seed, late=0.5) for seed in (1, 1, 2))
    assert first == again != other
    assert 5.0 < first[-1] < 7.5


def test_a_handler_that_never_answers_is_found_though_keepalives_go_on() -> None:
    class Never:
        async def request(self, payload: afflux.Payload) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        async with afflux.serve("mem://never", Never()), afflux.connect("mem://never") as peer:
            await peer.request(b"")

    with pytest.raises(Livelock, match=r"not ended within 3,600 s of virtual time(?s:.)*main \(test_loop"):
        run(main(), within=3600.0)


def test_a_deadlock_names_the_tasks_and_where_they_wait() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(3.5)
        await asyncio.create_task(waits_for_ever(), name="the one that waits")

    with pytest.raises(Deadlock, match=r"at 3\.5 s of virtual time") as caught:
        run(main())
    assert "the one that waits waits in waits_for_ever (test_loop.py:" in str(caught.value)
    assert "waits in main (test_loop.py:" in str(caught.value)


def test_a_deadlock_names_the_place_in_a_generator() -> None:
    async def items() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    async def main() -> None:
        async for _ in items():
            pass

    with pytest.raises(Deadlock, match=r"waits in main \(test_loop.py:\d+\) > items \(test_loop.py:\d+\) > wait \("):
        run(main())


def test_a_deadlock_can_be_caught_only_outside() -> None:
    """What waits is canceled, as by asyncio.run: it may clean up."""
    cleaned = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.0)
            cleaned.append(asyncio.get_running_loop().time())

    with pytest.raises(Deadlock):
        run(main())
    assert cleaned == [1.0]


def test_a_program_that_never_rests_is_stopped() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match=r"1,000 turns of the loop(?s:.)*main \(test_loop"):
        run(main(), steps=1000)


def test_threads_run_in_real_time_and_the_clock_waits() -> None:
    async def main() -> tuple[str, float]:
        late = asyncio.get_running_loop().create_task(asyncio.sleep(50.0, "slept"))
        name = await asyncio.to_thread(lambda: time.sleep(0.02) or threading.current_thread().name)
        before = asyncio.get_running_loop().time()
        assert await late == "slept"
        return name, before

    name, before = run(main())
    assert name != threading.current_thread().name
    assert before == 0.0


async def test_sockets_are_refused() -> None:
    async def main(sock: object) -> None:
        asyncio.get_running_loop().add_reader(sock, print)  # type: ignore[arg-type]

    reading, writing = socket.socketpair()
    with reading, writing, pytest.raises(RuntimeError, match="no sockets: use mem://"):
        await asyncio.to_thread(run, main(reading))


def test_random_is_seeded_and_as_it_was_afterwards() -> None:
    async def main() -> float:
        return random.random()

    random.seed(5)
    expected = random.random()
    random.seed(5)
    assert run(main(), seed=1) == run(main(), seed=1) != run(main(), seed=2)
    assert random.random() == expected


def test_it_is_a_loop_factory() -> None:
    async def main() -> float:
        await asyncio.sleep(10.0)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start=5.0)) as runner:
        assert runner.run(main()) == 15.0


def test_what_cannot_be_run_is_refused() -> None:
    async def program() -> None:
        raise AssertionError("it was run")

    async def nested() -> None:
        run(program())

    with pytest.raises(TypeError, match=r"run\(\) takes a coroutine, not program: write run\(program\(\)\)"):
        run(program)  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(RuntimeError, match=r"cannot be called from a running event loop: call it from a plain"):
        asyncio.run(nested())
