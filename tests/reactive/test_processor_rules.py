"""Reactive Streams 1.0.4, section 4: what a processor does. That it obeys both sides (4.1) is also what the rules of
publishers and subscribers are tried on it for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from afflux import Processor, Publisher, Subscriber, reactive
from tests.reactive.kits import ENDLESS, HUGE, KITS, Kit
from tests.reactive.probes import Failure, Manual, Probe, turns, until
from tests.reactive.sides import SIDES


async def same(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """What comes."""
    async for item in items:
        yield item


@pytest.fixture(params=["map", "processor"])
async def stage(request: pytest.FixtureRequest, nothing_is_left: None) -> Processor[Any, Any]:
    """Each kind of processor, that changes nothing."""
    return reactive.Map(lambda item: item) if request.param == "map" else reactive.processor(same, credit=4)


def test_rule_4_01_a_processor_is_tried_as_a_publisher_and_as_a_subscriber() -> None:
    assert {"map", "processor", "stream-map"} <= set(KITS)
    assert {"map", "processor"} <= set(SIDES)


async def test_rule_4_01_a_processor_is_both(stage: Processor[Any, Any]) -> None:
    for kind in (Processor, Publisher, Subscriber):
        assert isinstance(stage, kind)


@pytest.mark.parametrize("first", ["publisher", "subscriber"])
async def test_rule_4_01_both_sides_may_come_first(stage: Processor[Any, Any], first: str) -> None:
    publisher, probe = reactive.to_publisher(range(1, 6)), Probe(3)
    if first == "publisher":
        publisher.subscribe(stage)
        await turns()
        stage.subscribe(probe)
    else:
        stage.subscribe(probe)
        await turns()
        publisher.subscribe(stage)
    await probe.have(3)
    probe.request(10)
    assert await probe.end() == "on_complete"
    assert (probe.items, probe.faults) == ([1, 2, 3, 4, 5], [])


async def test_rule_4_01_stages_in_a_row(kit: Kit) -> None:
    """Demand goes up through all of them, items and the end come down."""
    squares: Any = reactive.Map(lambda item: int(item.data if hasattr(item, "data") else item) ** 2)
    evens = reactive.processor(_evens, credit=2)
    texts: Any = reactive.Map(str)
    kit.publisher(10).subscribe(squares)
    squares.subscribe(evens)
    evens.subscribe(texts)
    got = [item async for item in reactive.from_publisher(texts, credit=3)]
    assert got == ["0", "4", "16", "36", "64"]


async def _evens(items: AsyncIterator[int]) -> AsyncIterator[int]:
    async for item in items:
        if item % 2 == 0:
            yield item


async def test_rule_4_01_cancel_goes_up(kit: Kit) -> None:
    """Recommended: the last subscriber's cancel is the processor's."""
    stages = [reactive.Map(lambda item: item), reactive.processor(same, credit=2), reactive.Map(lambda item: item)]
    kit.publisher(ENDLESS).subscribe(stages[0])
    for one, next_one in pairwise(stages):
        one.subscribe(next_one)
    probe = Probe(5)
    stages[-1].subscribe(probe)
    await probe.have(5)
    probe.cancel()
    await kit.closed()
    await kit.settle()
    assert (len(probe.items), probe.faults) == (5, [])


async def test_rule_4_01_a_cancel_before_there_is_a_publisher(stage: Processor[Any, Any]) -> None:
    manual, probe = Manual(), Probe(3)
    stage.subscribe(probe)
    await turns()
    probe.cancel()
    manual.subscribe(stage)
    assert manual.subscription.calls == ["cancel"]
    assert probe.signals == ["on_subscribe"]


async def test_rule_4_02_an_error_is_passed_on_at_once(stage: Processor[Any, Any]) -> None:
    """Without a request: there may never be one."""
    manual, probe, error = Manual(), Probe(), Failure()
    manual.subscribe(stage)
    stage.subscribe(probe)
    manual.fail(error)
    assert await probe.end() == "on_error"
    assert (probe.error, probe.faults) == (error, [])


async def test_rule_4_02_an_error_after_items(stage: Processor[Any, Any]) -> None:
    manual, probe, error = Manual(), Probe(2), Failure()
    manual.subscribe(stage)
    stage.subscribe(probe)
    await until(lambda: manual.subscription.requested)
    manual.send(1, 2)
    manual.fail(error)
    assert await probe.end() == "on_error"
    assert (probe.items, probe.error, probe.faults) == ([1, 2], error, [])


async def test_rule_4_02_an_error_overtakes_items_without_demand() -> None:
    """What the window had fetched ahead would wait for ever."""
    manual, probe, error = Manual(), Probe(1), Failure()
    stage = reactive.processor(same, credit=4)
    manual.subscribe(stage)
    stage.subscribe(probe)
    await until(lambda: manual.subscription.requested)
    manual.send(1, 2, 3)
    await probe.have(1)
    manual.fail(error)
    assert await probe.end() == "on_error"
    assert (probe.items, probe.error, probe.faults) == ([1], error, [])


@pytest.mark.parametrize("end", ["complete", "fail"])
async def test_rule_4_02_an_end_before_there_is_a_subscriber(stage: Processor[Any, Any], end: str) -> None:
    manual, probe, error = Manual(), Probe(), Failure()
    manual.subscribe(stage)
    manual.complete() if end == "complete" else manual.fail(error)
    await turns()
    stage.subscribe(probe)
    assert await probe.end() == ("on_complete" if end == "complete" else "on_error")
    assert (probe.error, probe.faults) == (None if end == "complete" else error, [])


async def test_rule_4_02_an_end_without_a_request(stage: Processor[Any, Any]) -> None:
    manual, probe = Manual(), Probe()
    manual.subscribe(stage)
    stage.subscribe(probe)
    manual.complete()
    assert await probe.end() == "on_complete"
    assert probe.faults == []


async def test_rule_4_02_a_generator_may_recover() -> None:
    """The publisher's subscription counts as cancelled: nothing more is called on it."""

    async def recovers(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            async for item in items:
                yield item
        except Failure:
            yield "instead"
            yield "of it"

    manual, probe = Manual(), Probe(1)
    stage = reactive.processor(recovers, credit=1)
    manual.subscribe(stage)
    stage.subscribe(probe)
    await until(lambda: manual.subscription.requested)
    manual.send("one")
    await probe.have(1)
    calls = list(manual.subscription.calls)
    manual.fail(Failure())
    await turns()
    assert probe.items == ["one"], "what it has instead is an item, and waits for a request"
    probe.request(5)
    assert await probe.end() == "on_complete"
    assert probe.items == ["one", "instead", "of it"]
    assert manual.subscription.calls == calls
    assert probe.faults == []


async def test_a_generator_may_make_more_or_fewer() -> None:
    async def twice_then_stop(items: AsyncIterator[int]) -> AsyncIterator[int]:
        async for item in items:
            if item == 3:
                return
            yield item
            yield -item

    manual, probe = Manual(), Probe(HUGE)
    stage = reactive.processor(twice_then_stop, credit=2)
    manual.subscribe(stage)
    stage.subscribe(probe)
    for i in range(1, 4):
        await until(lambda i=i: manual.subscription.requested >= i)  # type: ignore[misc]
        manual.send(i)
    assert await probe.end() == "on_complete"
    await turns()
    assert probe.items == [1, -1, 2, -2]
    assert manual.subscription.canceled == 1, "it wants no more"


async def test_a_generator_that_waits_is_interrupted() -> None:
    entered = asyncio.Event()

    async def waits(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        entered.set()
        await asyncio.get_running_loop().create_future()
        yield

    manual, probe = Manual(), Probe(1)
    stage = reactive.processor(waits)
    manual.subscribe(stage)
    stage.subscribe(probe)
    await entered.wait()
    probe.cancel()
    await turns()
    assert probe.signals == ["on_subscribe"]
    assert manual.subscription.calls == ["cancel"]


async def test_a_function_that_makes_none_or_raises() -> None:
    def fails(items: Any) -> Any:
        raise Failure

    for stage, error in (
        (reactive.Map(lambda item: None), TypeError),
        (reactive.processor(_nones), TypeError),
        (reactive.processor(fails), Failure),
        (reactive.processor(lambda items: 1), TypeError),  # type: ignore[arg-type,return-value]
    ):
        manual, probe = Manual(), Probe(2)
        manual.subscribe(stage)
        stage.subscribe(probe)
        await turns()
        if manual.subscription.requested:
            manual.send(1)
        assert await probe.end() == "on_error"
        assert isinstance(probe.error, error)
        await turns()
        assert manual.subscription.calls[-1] == "cancel"
        assert probe.faults == []


async def _nones(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for _ in items:
        yield None


def test_a_processor_belongs_to_a_loop() -> None:
    for make in (lambda: reactive.Map(str), lambda: reactive.processor(same)):
        with pytest.raises(RuntimeError, match="belong to an event loop"):
            make()


async def test_a_window_has_an_item_at_least() -> None:
    with pytest.raises(ValueError, match="credit must be 1 or more, not 0"):
        reactive.processor(same, credit=0)
