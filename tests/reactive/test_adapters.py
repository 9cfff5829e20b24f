"""The adapters beyond the rules: what they take, what they refuse, and what is left when one lets go."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from afflux import reactive
from afflux.reactive import pulling
from tests.reactive.kits import HUGE, Counts
from tests.reactive.probes import Failure, Manual, Noted, Probe, on_thread, turns, until


async def numbers() -> AsyncIterator[int]:
    for i in range(3):
        yield i


class Again:
    """An async iterable that is no iterator."""

    def __aiter__(self) -> AsyncIterator[int]:
        return numbers()


class Bare:
    """An async iterator with no more than that."""

    def __init__(self) -> None:
        self.left = 3

    def __aiter__(self) -> Bare:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return 2 - self.left


def plain() -> Iterator[int]:
    yield from range(3)


AGAIN = {
    "a list": [0, 1, 2],
    "a range": range(3),
    "a dict": {0: "a", 1: "b", 2: "c"},
    "an async iterable": Again(),
    "an async generator function": numbers,
    "a generator function": plain,
    "a function that returns a list": lambda: [0, 1, 2],
}
ONCE = {
    "an async generator": numbers,
    "a bare async iterator": Bare,
    "a generator": plain,
    "an iterator": lambda: iter([0, 1, 2]),
}


@pytest.mark.parametrize("source", list(AGAIN.values()), ids=list(AGAIN))
async def test_what_can_be_iterated_again_is(source: Any) -> None:
    publisher = reactive.to_publisher(source)
    for _ in range(2):
        assert [item async for item in reactive.from_publisher(publisher)] == [0, 1, 2]


@pytest.mark.parametrize("make", list(ONCE.values()), ids=list(ONCE))
async def test_what_can_be_iterated_once_has_one_subscriber(make: Any) -> None:
    publisher = reactive.to_publisher(make())
    assert [item async for item in reactive.from_publisher(publisher)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match=r"can be iterated once.*rule 1\.11"):
        await anext(reactive.from_publisher(publisher))


@pytest.mark.parametrize("source", [None, 1, object()], ids=repr)
async def test_what_is_no_source_is_refused_at_once(source: Any) -> None:
    with pytest.raises(TypeError, match="expected an iterable"):
        reactive.to_publisher(source)


async def test_async_functions_differ_from_generators() -> None:
    """Each would give a coroutine that nobody awaits."""

    async def returns(*_: Any) -> Any:
        return []

    with pytest.raises(TypeError, match="not an async function that returns"):
        reactive.to_publisher(returns)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Map requires a plain function; use processor"):
        reactive.Map(returns)
    with pytest.raises(TypeError, match="one that yields"):
        reactive.processor(returns)  # type: ignore[arg-type]

    class Awaits(Probe):
        async def on_next(self, item: Any, /) -> None:  # type: ignore[override]
            """Nobody would wait for it."""

    with pytest.raises(TypeError, match=r"Awaits\.on_next is async, but signals are not awaited"):
        reactive.to_publisher([1]).subscribe(Awaits())


async def test_a_function_that_returns_no_iterable() -> None:
    probe = Probe()
    reactive.to_publisher(lambda: 1).subscribe(probe)  # type: ignore[arg-type,return-value]
    assert isinstance(probe.error, TypeError)


async def test_none_is_no_item() -> None:
    probe = Probe(3)
    counts = Counts()

    async def nones() -> AsyncIterator[Any]:
        async for item in counts.numbers(1):
            yield item
        yield None
        raise AssertionError("it is closed there")

    reactive.to_publisher(nones).subscribe(probe)
    assert await probe.end() == "on_error"
    assert isinstance(probe.error, TypeError)
    assert "rule 2.13" in str(probe.error)
    assert (probe.items, probe.faults) == ([b"0"], [])


async def test_a_publisher_that_is_not_asked_makes_nothing_and_costs_nothing() -> None:
    """No task, until there is a request; what was never pulled from is left as it is."""
    source = numbers()
    probe = Probe()
    reactive.to_publisher(source).subscribe(probe)
    await turns()
    assert not pulling._tasks
    probe.cancel()
    await turns()
    assert not pulling._tasks
    assert [item async for item in source] == [0, 1, 2]


async def test_a_subscription_that_waits_is_not_collected() -> None:
    """An event loop holds its tasks weakly, and here nothing else holds this one."""
    waits_for: list[weakref.ref[asyncio.Future[None]]] = []
    done = asyncio.Event()

    async def waits() -> AsyncIterator[int]:
        future = asyncio.get_running_loop().create_future()
        waits_for.append(weakref.ref(future))
        await future
        yield 1

    class Subscriber(Probe):
        def on_complete(self) -> None:
            super().on_complete()
            done.set()

    reactive.to_publisher(waits).subscribe(Subscriber(5))
    await turns()
    gc.collect()
    future = waits_for[0]()
    assert future is not None
    future.set_result(None)
    async with asyncio.timeout(30):
        await done.wait()


async def test_a_source_that_is_canceled_by_others_is_an_error() -> None:
    async def canceled() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    probe = Probe(5)
    reactive.to_publisher(canceled).subscribe(probe)
    assert await probe.end() == "on_error"
    assert "canceled" in str(probe.error)
    assert (probe.items, probe.faults) == ([1], [])


async def test_a_source_that_goes_on_after_cancel_is_closed() -> None:
    """One item more may be made by a source that ignores its cancellation; nobody hears of it."""
    closed = asyncio.Event()

    async def ignores() -> AsyncIterator[int]:
        try:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                yield 1
            yield 2
        finally:
            closed.set()

    probe = Probe(5)
    reactive.to_publisher(ignores).subscribe(probe)
    await turns()
    probe.cancel()
    await closed.wait()
    assert probe.signals == ["on_subscribe"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_source_goes_through(stop: type[BaseException]) -> None:
    """The subscriber hears of the end first."""
    probes = []

    async def interrupted() -> AsyncIterator[int]:
        yield 1
        raise stop

    async def main() -> None:
        probe = Probe(5)
        probes.append(probe)
        reactive.to_publisher(interrupted).subscribe(probe)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(stop):
        asyncio.run(main())
    gc.collect()
    assert probes[0].signals == ["on_subscribe", "on_next", "on_error"]


# -- from_publisher -------------------------------------------------------------------------------------------


async def test_nothing_is_subscribed_to_before_the_first_item_is_asked_for() -> None:
    manual = Manual()
    items = reactive.from_publisher(manual, credit=3)
    await turns()
    assert manual.subscribers == []
    items.cancel()
    assert [item async for item in items] == []
    assert manual.subscribers == []


@pytest.mark.parametrize("credit", [1, 2, 3, 10, 256])
async def test_the_window_is_never_exceeded(credit: int) -> None:
    """Made and not done with: at most the window, and the one item that is in the taker's hands is of it."""
    counts = Counts()
    taken = most = 0
    async for item in reactive.from_publisher(reactive.to_publisher(lambda: counts.numbers(1000)), credit=credit):
        assert item == b"%d" % taken
        most = max(most, counts.made - taken)
        taken += 1
        await turns(2)
    assert taken == 1000
    assert most == credit


@pytest.mark.parametrize(
    ("credit", "calls"), [(1, ["request(1)"] * 6), (4, ["request(4)", "request(2)", "request(2)"])], ids=["1", "4"]
)
async def test_the_window_is_refilled_by_half(credit: int, calls: list[str]) -> None:
    manual = Manual()
    items = reactive.from_publisher(manual, credit=credit)
    for i in range(5):
        taking = asyncio.ensure_future(anext(items))
        await turns()
        if manual.subscription.requested > i:
            manual.send(i)
        assert await taking == i
    taking = asyncio.ensure_future(anext(items))
    await turns()
    assert manual.subscription.calls[: len(calls)] == calls
    taking.cancel()
    items.cancel()
    await turns()
    assert manual.subscription.calls[-1] == "cancel"


async def test_items_come_before_the_error_that_followed_them() -> None:
    manual = Manual()
    items = reactive.from_publisher(manual, credit=4)
    taking = asyncio.ensure_future(anext(items))
    await turns()
    manual.send(1, 2)
    manual.fail(Failure())
    assert [await taking, await anext(items)] == [1, 2]
    with pytest.raises(Failure):
        await anext(items)
    with pytest.raises(StopAsyncIteration):
        await anext(items)


async def test_two_tasks_can_not_wait_for_one_publisher() -> None:
    manual = Manual()
    items = reactive.from_publisher(manual)
    one = asyncio.ensure_future(anext(items))
    await turns()
    with pytest.raises(RuntimeError, match="another task"):
        await anext(items)
    manual.send(1)
    assert await one == 1
    await items.aclose()


async def test_a_wait_that_is_canceled_loses_nothing() -> None:
    manual = Manual()
    items = reactive.from_publisher(manual)
    waiting = asyncio.ensure_future(anext(items))
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    manual.send(1)
    assert await anext(items) == 1
    items.cancel()


async def test_waits_that_are_canceled_request_nothing_more() -> None:
    manual = Manual()
    items = reactive.from_publisher(manual, credit=3)
    for i in range(2):
        for _ in range(5):
            waiting = asyncio.ensure_future(anext(items))
            await turns()
            waiting.cancel()
            await turns()
        manual.send(i)
        assert await anext(items) == i
    assert manual.subscription.calls == ["request(3)"]
    items.cancel()


async def test_with_cancels_at_a_certain_moment() -> None:
    counts = Counts()
    async with reactive.from_publisher(reactive.to_publisher(lambda: counts.numbers(100)), credit=2) as items:
        assert await anext(items) == b"0"
        kept = items
    await until(lambda: counts.closed)
    assert [item async for item in kept] == []


async def test_letting_go_cancels_on_any_thread() -> None:
    manual = Manual()
    holders = [reactive.from_publisher(manual)]
    taking = asyncio.ensure_future(anext(holders[0]))
    await turns()
    manual.send(1)
    assert await taking == 1
    del taking
    assert on_thread(holders.clear) == []
    await until(lambda: manual.subscription.canceled)
    assert len(manual.subscription.threads) == 1


async def test_letting_go_when_the_loop_is_closed_is_quiet() -> None:
    holders = []

    def run() -> None:
        async def main() -> None:
            items = reactive.from_publisher(reactive.to_publisher(numbers))
            holders.append(items)
            assert await anext(items) == 0

        asyncio.run(main())
        holders.clear()
        gc.collect()

    await asyncio.to_thread(run)


async def test_what_is_no_publisher_is_refused_at_once() -> None:
    for wrong in (None, [1], numbers):
        with pytest.raises(TypeError, match="a publisher must have the method subscribe"):
            reactive.from_publisher(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="credit must be 1 or more, not 0"):
        reactive.from_publisher(Manual(), credit=0)


async def test_there_and_back_again() -> None:
    publisher = reactive.to_publisher(range(100))
    for credit in (1, 7):
        publisher = reactive.to_publisher(reactive.from_publisher(publisher, credit=credit))
    probe = Probe(HUGE)
    publisher.subscribe(probe)
    assert await probe.end() == "on_complete"
    assert (probe.items, probe.faults) == (list(range(100)), [])


async def test_a_foreign_subscription_that_can_not_be_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Noted):
        def cancel(self) -> None:
            raise Failure

    manual = Manual()
    manual.subscription = Stuck()
    items = reactive.from_publisher(manual)
    taking = asyncio.ensure_future(anext(items))
    await turns()
    items.cancel()
    with pytest.raises(StopAsyncIteration):
        await taking
    assert "rule 3.15" in caplog.text
    caplog.clear()
