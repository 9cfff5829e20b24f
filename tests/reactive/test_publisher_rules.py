"""Reactive Streams 1.0.4, section 1: what a publisher does. Each rule is tried on every kind of publisher.

Most of a rule's other half is in ``Probe``: it notes signals that are too many, not serial, or out of order.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import afflux
from afflux import Publisher, reactive
from tests.reactive.kits import ENDLESS, Kit
from tests.reactive.probes import Failure, Manual, Noted, Probe, turns, until

NUMBERS = [b"%d" % i for i in range(100)]


async def test_rule_1_01_no_more_items_than_were_requested(kit: Kit) -> None:
    probe = Probe()
    kit.publisher(ENDLESS).subscribe(probe)
    await kit.settle()
    assert probe.items == []
    requested = 0
    for n in (1, 1, 2, 5, 300):
        probe.request(n)
        requested += n
        await probe.have(requested)
        await kit.settle()
        assert len(probe.items) == requested
        if kit.exact:
            assert kit.counts.made == requested + kit.ahead
    assert probe.data == [b"%d" % i for i in range(309)]
    probe.cancel()
    assert probe.faults == []


async def test_rule_1_02_fewer_items_than_were_requested(kit: Kit) -> None:
    probe = Probe(10)
    kit.publisher(3).subscribe(probe)
    assert await probe.end() == "on_complete"
    assert (probe.data, probe.faults) == (NUMBERS[:3], [])


async def test_rule_1_02_fewer_items_and_an_error(kit: Kit) -> None:
    probe = Probe(10)
    kit.publisher(3, fails=True).subscribe(probe)
    assert await probe.end() == "on_error"
    assert probe.data == NUMBERS[: 3 if kit.keeps else len(probe.data)]
    assert probe.faults == []


@pytest.mark.parametrize("requests", [(1,), (100,), (1, 1, 1)], ids=str)
async def test_rule_1_03_signals_are_serial(kit: Kit, requests: tuple[int, ...]) -> None:
    """From the first on: a request from within on_subscribe has no answer before that returns."""
    probe = Probe(*requests, each=1)
    kit.publisher(100).subscribe(probe)
    assert await probe.end() == "on_complete"
    assert probe.signals == ["on_subscribe", *["on_next"] * 100, "on_complete"]
    assert probe.faults == []


@pytest.mark.parametrize("n", [0, 2])
async def test_rule_1_04_a_failure_is_an_on_error(kit: Kit, n: int) -> None:
    probe = Probe(n + 1)
    kit.publisher(n, fails=True).subscribe(probe)
    assert await probe.end() == "on_error"
    assert isinstance(probe.error, kit.failure)
    assert probe.data == NUMBERS[: n if kit.keeps else len(probe.data)]
    assert probe.faults == []


async def test_rule_1_04_what_a_source_raises_when_it_is_called() -> None:
    def source() -> Any:
        raise Failure

    probe = Probe()
    reactive.to_publisher(source).subscribe(probe)
    assert probe.signals == ["on_subscribe", "on_error"]
    assert isinstance(probe.error, Failure)
    assert probe.faults == []


async def test_rule_1_04_a_peer_that_is_gone() -> None:
    async with afflux.serve("mem://gone", Serves()) as server:
        peer = await afflux.connect(server.uri)
        publisher = reactive.stream(peer)
        waiting = Probe()
        publisher.subscribe(waiting)
        working = Probe(1)
        publisher.subscribe(working)
        await working.have(1)
        await peer.close()
        assert await working.end() == "on_error"
        assert waiting.ended is None, "it has not asked for anything"
        waiting.request(1)
        assert await waiting.end() == "on_error"
        late = Probe()
        publisher.subscribe(late)
        assert late.signals == ["on_subscribe", "on_error"]
        for probe in (waiting, working, late):
            assert isinstance(probe.error, afflux.ConnectionClosed)
            assert probe.faults == []


class Serves:
    async def stream(self, payload: afflux.Payload) -> Any:
        yield b"one"
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("n", [0, 1, 5])
async def test_rule_1_05_the_end_is_an_on_complete(kit: Kit, n: int) -> None:
    probe = Probe(1, each=1)
    kit.publisher(n).subscribe(probe)
    assert await probe.end() == "on_complete"
    assert (probe.data, probe.faults) == (NUMBERS[:n], [])


async def test_rule_1_05_the_end_needs_no_request_where_it_can_be_known(kit: Kit) -> None:
    """A sequence, an Observable and a peer tell; an iterator here has to be asked."""
    probe = Probe(3)
    kit.publisher(3).subscribe(probe)
    await probe.have(3)
    await kit.settle()
    assert probe.ended == ("on_complete" if kit.tells else None)
    probe.request(1)
    assert await probe.end() == "on_complete"
    assert probe.faults == []


@pytest.mark.parametrize("fails", [False, True], ids=["complete", "error"])
async def test_rule_1_06_after_the_last_signal_the_subscription_counts_as_cancelled(kit: Kit, fails: bool) -> None:
    probe = Probe(10)
    kit.publisher(2, fails=fails).subscribe(probe)
    ended = await probe.end()
    await kit.closed()
    made = kit.counts.made
    for n in (1, 0, -1):
        probe.request(n)
    probe.cancel()
    await kit.settle()
    assert probe.signals == ["on_subscribe", *["on_next"] * len(probe.items), ended]
    assert (kit.counts.made, probe.faults) == (made, [])


@pytest.mark.parametrize("fails", [False, True], ids=["complete", "error"])
async def test_rule_1_07_nothing_comes_after_the_last_signal(kit: Kit, fails: bool) -> None:
    probe = Probe(10)
    kit.publisher(1, fails=fails).subscribe(probe)
    ended = await probe.end()
    probe.request(10)
    await kit.settle()
    assert probe.signals == ["on_subscribe", *["on_next"] * len(probe.items), ended]
    assert probe.faults == []


async def test_rule_1_08_after_cancel_the_signals_stop(kit: Kit) -> None:
    probe = Probe(20)
    kit.publisher(ENDLESS).subscribe(probe)
    await probe.have(1)
    probe.cancel()
    had = list(probe.signals)
    await kit.closed()
    await kit.settle()
    assert probe.signals == had
    assert probe.faults == []


async def test_rule_1_08_after_cancel_from_within_on_next_the_signals_stop(kit: Kit) -> None:
    probe = Probe(20, then=lambda probe: probe.cancel() if len(probe.items) == 3 else None)
    kit.publisher(ENDLESS).subscribe(probe)
    await probe.have(3)
    await kit.closed()
    await kit.settle()
    assert probe.signals == ["on_subscribe", *["on_next"] * 3]
    assert probe.faults == []


async def test_rule_1_08_cancel_interrupts_a_source_that_waits() -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def waits() -> Any:
        try:
            entered.set()
            await asyncio.get_running_loop().create_future()
            yield b"never"
        finally:
            left.set()

    probe = Probe(1)
    reactive.to_publisher(waits).subscribe(probe)
    await entered.wait()
    probe.cancel()
    await left.wait()
    assert probe.signals == ["on_subscribe"]


async def test_rule_1_09_on_subscribe_is_the_first_signal(kit: Kit) -> None:
    """subscribe returns nothing, and has made no other signal."""
    probe = Probe(1)
    publisher: Any = kit.publisher(0)
    assert publisher.subscribe(probe) is None
    assert probe.signals == ["on_subscribe"]
    await probe.end()
    assert probe.faults == []


async def test_rule_1_09_none_is_no_subscriber(kit: Kit) -> None:
    publisher: Any = kit.publisher(1)
    for wrong in (None, 1, object()):
        with pytest.raises(TypeError, match=r"on_subscribe, on_next.*rule 1\.9"):
            publisher.subscribe(wrong)
    probe = Probe()
    publisher.subscribe(probe)
    probe.cancel()


async def test_rule_1_09_a_refusal_is_an_on_error_after_on_subscribe() -> None:
    async def numbers() -> Any:
        yield 1

    source = numbers()
    stage: reactive.Map[Any, Any] = reactive.Map(lambda item: item)
    publishers: list[Publisher[Any]] = [
        reactive.to_publisher(source),
        reactive.to_publisher(iter([1])),
        stage,
        reactive.processor(lambda items: items),
    ]
    for publisher in publishers:
        first, second = Probe(), Probe(1)
        publisher.subscribe(first)
        publisher.subscribe(second)
        assert second.signals == ["on_subscribe", "on_error"]
        assert "rule 1.11" in str(second.error)
        second.request(0)
        second.cancel()
        canceled = Probe()
        canceled.on_subscribe = lambda subscription: subscription.cancel()  # type: ignore[method-assign]
        publisher.subscribe(canceled)
        first.cancel()
        assert canceled.signals == []
        assert (first.signals, first.faults, second.faults) == (["on_subscribe"], [], [])
    await source.aclose()


async def test_rule_1_09_without_an_event_loop_it_is_an_on_error() -> None:
    probes: list[Probe] = []

    def subscribe() -> None:
        probe = Probe()
        probes.append(probe)
        reactive.to_publisher([1]).subscribe(probe)

    await asyncio.to_thread(subscribe)
    assert probes[0].signals == ["on_subscribe", "on_error"]
    assert "event loop" in str(probes[0].error)


async def test_rule_1_10_each_subscriber_gets_the_whole_protocol(kit: Kit) -> None:
    publisher = kit.publisher(3)
    probes = [Probe(10) for _ in range(3)]
    for probe in probes:
        publisher.subscribe(probe)
    ends = [await probe.end() for probe in probes]
    if kit.again:
        assert ends == ["on_complete"] * 3
        assert [probe.data for probe in probes] == [NUMBERS[:3]] * 3
    else:
        assert ends == ["on_complete", "on_error", "on_error"]
        assert [probe.data for probe in probes] == [NUMBERS[:3], [], []]
    assert [probe.faults for probe in probes] == [[]] * 3


async def test_rule_1_10_the_same_subscriber_twice_gets_one_subscription(kit: Kit) -> None:
    """A publisher can not remember all subscribers for ever: ours that take items see to it themselves (2.5)."""
    stage: reactive.Map[Any, Any] = reactive.Map(lambda item: item)
    publisher = kit.publisher(3)
    publisher.subscribe(stage)
    publisher.subscribe(stage)
    probe = Probe(10)
    stage.subscribe(probe)
    assert await probe.end() == "on_complete"
    assert (probe.data, probe.faults) == (NUMBERS[:3], [])


async def test_rule_1_11_each_subscriber_has_its_own_pace(kit: Kit) -> None:
    """Who can be read again gives each subscriber all items; who can not has one, and the others do not disturb it."""
    publisher = kit.publisher(5)
    patterns = {Probe(): (1, 1, 2, 1, 1), Probe(): (2, 3, 1), Probe(): (3, 1, 1, 1)}
    for probe in patterns:
        publisher.subscribe(probe)
    for step in range(5):
        for probe, pattern in patterns.items():
            if step < len(pattern) and probe.ended is None:
                probe.request(pattern[step])
                had = sum(pattern[: step + 1])
                await until(lambda probe=probe, had=had: len(probe.items) >= min(had, 5) or probe.ended)  # type: ignore[misc]
    for number, probe in enumerate(patterns):
        assert await probe.end() == ("on_complete" if kit.again or number == 0 else "on_error")
        assert probe.data == (NUMBERS[:5] if kit.again or number == 0 else [])
        assert probe.faults == []


async def test_a_publisher_of_a_publisher_is_that_publisher(kit: Kit) -> None:
    publisher = kit.publisher(1)
    assert reactive.to_publisher(publisher) is publisher
    manual = Manual()
    assert reactive.to_publisher(manual) is manual
    await turns()
    assert isinstance(manual.subscription, Noted)
