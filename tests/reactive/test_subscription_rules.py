"""Reactive Streams 1.0.4, section 3: what a subscription does. Each rule is tried on every kind of publisher."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from afflux import reactive
from tests.reactive.kits import ENDLESS, HUGE, Kit
from tests.reactive.probes import Failure, Probe, depth, guard_the_loop, on_thread, turns, until

NUMBERS = [b"%d" % i for i in range(100)]


async def test_rule_3_01_a_subscription_is_that_of_its_subscriber_alone(kit: Kit) -> None:
    """What one subscriber asks for or gives up is nothing to another."""
    one, other = Probe(1), Probe()
    publisher = kit.publisher(ENDLESS)
    publisher.subscribe(one)
    (publisher if kit.again else kit.publisher(ENDLESS)).subscribe(other)
    await one.have(1)
    assert one.subscription is not other.subscription
    one.cancel()
    other.request(3)
    await other.have(3)
    await kit.settle()
    assert (one.data, other.data) == (NUMBERS[:1], NUMBERS[:3])
    other.cancel()
    assert one.faults == other.faults == []


async def test_rule_3_02_request_from_within_on_subscribe_and_on_next(kit: Kit) -> None:
    probe = Probe(1, 1, 1, each=1)
    kit.publisher(6).subscribe(probe)
    assert await probe.end() == "on_complete"
    assert (probe.data, probe.faults) == (NUMBERS[:6], [])


async def test_rule_3_03_recursion_is_bounded(kit: Kit) -> None:
    """The stack is no deeper at the last item than at the first, however often on_next requests."""
    n = sys.getrecursionlimit() * 2
    probe = Probe(1, each=1)
    kit.publisher(n).subscribe(probe)
    assert await probe.end() == "on_complete"
    assert len(probe.items) == n
    assert max(probe.depths) < depth() + 40
    assert max(probe.depths) - min(probe.depths) <= 8
    assert probe.faults == []


async def test_rule_3_04_request_returns_soon(kit: Kit) -> None:
    """It signals nothing itself; and while items come, the loop turns for others."""
    probe = Probe()
    kit.publisher(ENDLESS).subscribe(probe)
    probe.request(HUGE)
    assert probe.items == []
    seen: list[int] = []
    while len(seen) < 3:
        if len(probe.items) > (seen[-1] if seen else 0):
            seen.append(len(probe.items))
        await asyncio.sleep(0)
    probe.cancel()
    assert probe.faults == []


async def test_rule_3_05_cancel_returns_soon_and_may_be_repeated(kit: Kit) -> None:
    probe = Probe(5)
    kit.publisher(ENDLESS).subscribe(probe)
    await probe.have(1)
    for _ in range(3):
        probe.cancel()
    had = len(probe.items)
    await kit.closed()
    await kit.settle()
    assert (len(probe.items), probe.faults) == (had, [])


async def test_rule_3_05_cancel_is_thread_safe(kit: Kit) -> None:
    guard_the_loop()
    probe = Probe(HUGE)
    kit.publisher(ENDLESS).subscribe(probe)
    await probe.have(1)
    assert on_thread(*[probe.subscription.cancel] * 8) == []
    await kit.closed()
    await kit.settle()
    had = len(probe.items)
    await kit.settle()
    assert (len(probe.items), probe.ended, probe.faults) == (had, None, [])


async def test_rule_3_06_request_after_cancel_does_nothing(kit: Kit) -> None:
    probe = Probe()
    kit.publisher(3).subscribe(probe)
    probe.cancel()
    for n in (1, 1, 1, 0, -1, HUGE):
        probe.request(n)
    on_thread(lambda: probe.subscription.request(1))
    await kit.settle()
    assert (probe.signals, probe.faults) == (["on_subscribe"], [])
    if kit.exact:
        assert kit.counts.made == 0


async def test_rule_3_07_cancel_after_cancel_does_nothing(kit: Kit) -> None:
    probe = Probe()
    kit.publisher(1).subscribe(probe)
    for _ in range(4):
        probe.cancel()
    on_thread(probe.subscription.cancel)
    await kit.settle()
    assert (probe.signals, probe.faults) == (["on_subscribe"], [])


async def test_rule_3_08_requests_add_up(kit: Kit) -> None:
    probe = Probe(2)
    kit.publisher(ENDLESS).subscribe(probe)
    probe.request(3)
    await probe.have(5)
    probe.request(1)
    probe.request(1)
    await probe.have(7)
    probe.request(100)
    probe.request(1)
    await probe.have(108)
    await kit.settle()
    assert (len(probe.items), probe.faults) == (108, [])
    probe.cancel()


async def test_rule_3_08_requests_of_other_threads_add_up(kit: Kit) -> None:
    guard_the_loop()
    probe = Probe()
    kit.publisher(ENDLESS).subscribe(probe)
    probe.requested = 40
    assert on_thread(*[lambda: [probe.subscription.request(1) for _ in range(10)]] * 4) == []
    assert probe.items == []
    await probe.have(40)
    await kit.settle()
    assert (len(probe.items), probe.faults) == (40, [])
    probe.cancel()


@pytest.mark.parametrize("n", [0, -1, -(2**63), "3", None, 1.0], ids=repr)
async def test_rule_3_09_request_of_no_positive_number_is_an_on_error(kit: Kit, n: Any) -> None:
    probe = Probe()
    kit.publisher(10).subscribe(probe)
    probe.request(n)
    assert await probe.end() == "on_error"
    assert isinstance(probe.error, ValueError)
    assert str(probe.error) == (
        f"request(n) requires a whole number of 1 or more, not {n!r} (Reactive Streams, rule 3.9)"
    )
    await kit.settle()
    assert (probe.items, probe.faults) == ([], [])


async def test_rule_3_09_while_items_come(kit: Kit) -> None:
    """From within on_next, where it is told as soon as that has returned; the source is closed."""
    probe = Probe(50, then=lambda probe: probe.request(0) if len(probe.items) == 3 else None)
    kit.publisher(ENDLESS).subscribe(probe)
    assert await probe.end() == "on_error"
    await kit.closed()
    await kit.settle()
    assert "rule 3.9" in str(probe.error)
    assert probe.signals == ["on_subscribe", *["on_next"] * 3, "on_error"]
    assert probe.faults == []


async def test_rule_3_09_a_cancel_right_after_is_obeyed(kit: Kit) -> None:
    probe = Probe(0)
    kit.publisher(3).subscribe(probe)
    probe.cancel()
    probe.request(-1)
    await kit.settle()
    assert (probe.signals, probe.faults) == (["on_subscribe"], [])


async def test_rule_3_10_request_may_signal_items_itself_and_ours_do_not(kit: Kit) -> None:
    """Probe notes a signal that comes from inside request."""
    probe = Probe(1)
    kit.publisher(ENDLESS).subscribe(probe)
    assert probe.items == []
    for n in range(1, 10):
        await probe.have(n)
        probe.request(1)
        assert len(probe.items) == n
    await probe.have(10)
    probe.cancel()
    assert probe.faults == []


async def test_rule_3_11_request_may_signal_the_end_itself_and_ours_do_not(kit: Kit) -> None:
    ends, wrong = Probe(1), Probe()
    kit.publisher(0).subscribe(ends)
    kit.publisher(0).subscribe(wrong)
    wrong.request(0)
    assert (ends.ended, wrong.ended) == (None, None)
    assert [await ends.end(), await wrong.end()] == ["on_complete", "on_error"]
    assert ends.faults == wrong.faults == []


async def test_rule_3_12_cancel_reaches_the_source(kit: Kit) -> None:
    """No more than was requested is ever signalled; the source is told to stop, at the other end as well."""
    probe = Probe(10)
    kit.publisher(20).subscribe(probe)
    await probe.have(1)
    probe.cancel()
    await kit.closed()
    await kit.settle()
    assert len(probe.items) <= 10
    assert (probe.ended, probe.faults) == (None, [])


@pytest.mark.parametrize("how", ["cancel", "end", "refused"])
async def test_rule_3_13_the_subscriber_is_let_go(kit: Kit, how: str) -> None:
    """With the publisher and the subscription still there."""
    probe = Probe(1)
    publisher = kit.publisher(1 if how == "end" else 3)
    publisher.subscribe(probe)
    await probe.have(1)
    if how == "cancel":
        probe.cancel()
    else:
        probe.request(1 if how == "end" else 0)
        await probe.end()
    subscription = probe.subscription
    dead = weakref.ref(probe)
    del probe
    await kit.settle()
    gc.collect()
    assert dead() is None
    subscription.cancel()


async def test_rule_3_14_the_last_cancel_may_shut_a_publisher_down(kit: Kit) -> None:
    """Ours that can be read once is done with; one that can be read again starts afresh."""
    publisher = kit.publisher(3)
    first = Probe(1)
    publisher.subscribe(first)
    await first.have(1)
    first.cancel()
    second = Probe(10)
    publisher.subscribe(second)
    assert await second.end() == ("on_complete" if kit.again else "on_error")
    assert second.data == (NUMBERS[:3] if kit.again else [])
    assert first.faults == second.faults == []


async def test_rule_3_15_cancel_returns_normally(kit: Kit) -> None:
    """Before a request, after it, and after the end. Probe.cancel would raise what cancel raises."""
    for first in ((), (1,), (10,)):
        probe = Probe(*first)
        kit.publisher(2).subscribe(probe)
        if first == (10,):
            await probe.end()
        probe.cancel()
        await kit.settle()
        probe.cancel()
        assert probe.faults == []


async def test_rule_3_15_cancel_returns_though_the_source_can_not_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def stubborn() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise Failure

    probe = Probe(1)
    reactive.to_publisher(stubborn).subscribe(probe)
    await probe.have(1)
    probe.cancel()
    await until(lambda: "could not be closed" in caplog.text)
    caplog.clear()
    assert probe.signals == ["on_subscribe", "on_next"]


@pytest.mark.parametrize("request_first", [False, True])
def test_rule_3_15_and_3_16_hold_when_the_loop_is_closed(request_first: bool) -> None:
    """What was under way heard of the end; whoever still has the subscription may call it."""
    probes = [Probe(*[1][:request_first]) for _ in range(3)]

    async def numbers() -> AsyncIterator[int]:
        yield 1
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        reactive.to_publisher(numbers).subscribe(probes[0])
        reactive.to_publisher([1, 2, 3]).subscribe(probes[1])
        reactive.Map(str).subscribe(probes[2])
        await turns()

    asyncio.run(main())
    for probe in probes:
        for n in (1, 0):
            probe.request(n)
        probe.cancel()
        assert on_thread(lambda probe=probe: probe.subscription.request(1), probe.subscription.cancel) == []  # type: ignore[misc]
        assert probe.faults == []
    if request_first:
        assert [probe.signals for probe in probes[:2]] == [["on_subscribe", "on_next", "on_error"]] * 2
        assert "canceled" in str(probes[0].error)


async def test_rule_3_16_request_returns_normally(kit: Kit) -> None:
    """Whatever it is given, before and after the end. Probe.request would raise what request raises."""
    probe = Probe(10)
    kit.publisher(1).subscribe(probe)
    ended = await probe.end()
    for n in (1, 0, -1, HUGE, HUGE + 1, 1 << 200):
        probe.request(n)
    assert probe.signals[-1] == ended
    assert probe.faults == []


@pytest.mark.parametrize(
    "requests",
    [(HUGE,), (HUGE // 2, HUGE // 2, 1), (HUGE, HUGE, 1 << 70), (2**31 - 1, 2**31)],
    ids=["most", "in-sum", "beyond", "beyond-a-frame"],
)
async def test_rule_3_17_demand_adds_up_to_2_63_minus_1(kit: Kit, requests: tuple[int, ...]) -> None:
    probe = Probe(*requests)
    kit.publisher(3).subscribe(probe)
    assert await probe.end() == "on_complete"
    assert (probe.data, probe.faults) == (NUMBERS[:3], [])


async def test_rule_3_17_more_than_that_is_no_error(kit: Kit) -> None:
    probe = Probe(1, each=HUGE - 1, then=lambda probe: probe.cancel() if len(probe.items) == 10 else None)
    kit.publisher(ENDLESS).subscribe(probe)
    await probe.have(10)
    await kit.closed()
    await kit.settle()
    assert (len(probe.items), probe.ended, probe.faults) == (10, None, [])


async def test_rule_3_17_any_number_of_requests(kit: Kit) -> None:
    """Each in a turn of the loop of its own, too: a peer is not flooded with frames."""
    probe = Probe(*[1] * 2000)
    kit.publisher(ENDLESS).subscribe(probe)
    for _ in range(2000):
        probe.request(1)
        await asyncio.sleep(0)
    await probe.have(4000)
    await kit.settle()
    assert (len(probe.items), probe.faults) == (4000, [])
    probe.cancel()


async def test_demand_is_kept_as_a_number_that_saturates() -> None:
    probe = Probe(HUGE, HUGE)
    link: Any = reactive.to_publisher([b"1"])
    link.subscribe(probe)
    subscription: Any = probe.subscription
    assert subscription.demand == HUGE
    assert await probe.end() == "on_complete"


async def test_signals_stay_on_the_loop(kit: Kit) -> None:
    """Requests of other threads are marshalled; Probe notes a signal on another thread than its own."""
    probe = Probe()
    kit.publisher(20).subscribe(probe)
    for n in range(1, 21):
        probe.requested += 1
        await asyncio.to_thread(probe.subscription.request, 1)
        await probe.have(n)
    await asyncio.to_thread(probe.subscription.request, 1)
    assert await probe.end() == "on_complete"
    assert probe.faults == []
    assert threading.get_ident() == probe._thread
