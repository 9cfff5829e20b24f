"""Reactive Streams 1.0.4, section 2: what a subscriber does. Each rule is tried on all of ours that take items."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from afflux import LimitExceeded, Publisher, Subscriber, Subscription, reactive
from tests.reactive.kits import Kit
from tests.reactive.probes import Failure, Manual, Noted, Probe, guard_the_loop, on_thread, turns, until
from tests.reactive.sides import CREDIT, SIDES, Side

Begin = Callable[..., Side]


@pytest.fixture(params=list(SIDES))
async def begin(request: pytest.FixtureRequest, nothing_is_left: None) -> AsyncIterator[Begin]:
    """Makes a side: ``begin(script)``, where the script is what the publisher does within subscribe."""
    if request.param == "to_observable":
        pytest.importorskip("reactivex", reason='Observables need the extra "rx"')
    sides: list[Side] = []

    def make(script: Callable[[Manual], None] | None = None, publisher: Manual | None = None) -> Side:
        sides.append(SIDES[request.param](publisher or Manual(script)))
        return sides[-1]

    yield make
    for side in sides:
        await side.stop()


async def started(begin: Begin) -> Side:
    """A side that wants items."""
    side = begin()
    side.start()
    await until(lambda: side.manual.subscription.requested)
    return side


async def test_rule_2_01_demand_is_signalled_by_request(begin: Begin) -> None:
    side = begin()
    if side.starts:
        side.attach()
        await turns()
        assert side.manual.subscription.calls == [], "nobody wants anything yet"
    side.start()
    subscription = side.manual.subscription
    await until(lambda: subscription.requested)
    sent = 0
    for _ in range(20):
        ahead = subscription.requested - sent
        assert ahead > 0
        side.manual.send(*range(sent, sent + min(ahead, CREDIT)))
        sent += min(ahead, CREDIT)
        await until(lambda sent=sent: len(side.received) == sent)  # type: ignore[misc]
        await turns()
    assert side.received == list(range(sent))


async def test_rule_2_01_requests_are_windows(begin: Begin) -> None:
    """The upper bound of what can be taken, refilled in batches: never one by one."""
    side = await started(begin)
    subscription = side.manual.subscription
    if subscription.requested == CREDIT:
        for i in range(100):
            side.manual.send(i)
            await until(lambda i=i: len(side.received) == i + 1)  # type: ignore[misc]
        assert set(subscription.calls) == {"request(4)", "request(2)"}
        assert subscription.requested <= 100 + CREDIT
    else:
        assert subscription.calls == ["request(1048576)"], "a Map passes on what is requested of it"


async def test_rule_2_02_on_next_does_not_wait_for_the_work(begin: Begin) -> None:
    """Recommended. Who works with items gets them later; a Map and an Observable work at once, by design."""
    side = await started(begin)
    side.manual.send(0, 1)
    assert side.received == ([0, 1] if side.at_once else [])
    await until(lambda: side.received == [0, 1])


@pytest.mark.parametrize("end", ["complete", "error"])
async def test_rule_2_03_last_signals_call_nothing_back(begin: Begin, end: str) -> None:
    side = await started(begin)
    calls = list(side.manual.subscription.calls)
    side.manual.complete() if end == "complete" else side.manual.fail(Failure())
    await until(lambda: side.ended)
    assert side.manual.subscription.during == []
    assert side.manual.subscription.calls == calls
    assert len(side.manual.subscribers) == 1, "it has not subscribed again"


@pytest.mark.parametrize("end", ["complete", "error"])
async def test_rule_2_04_after_a_last_signal_the_subscription_is_not_used(begin: Begin, end: str) -> None:
    side = await started(begin)
    calls = list(side.manual.subscription.calls)
    side.manual.complete() if end == "complete" else side.manual.fail(Failure())
    await until(lambda: side.ended == f"on_{end}")
    side.leave()
    await turns()
    assert side.manual.subscription.calls == calls


async def test_rule_2_05_a_second_subscription_is_cancelled(begin: Begin) -> None:
    side = await started(begin)
    second = Noted()
    side.manual.subscriber.on_subscribe(second)
    assert second.calls == ["cancel"]
    side.manual.send(1)
    await until(lambda: side.received == [1])
    assert side.manual.subscription.canceled == 0


async def test_rule_2_05_a_subscription_that_comes_after_the_end_is_cancelled(begin: Begin) -> None:
    side = await started(begin)
    side.manual.complete()
    second = Noted()
    side.manual.subscriber.on_subscribe(second)
    assert second.calls == ["cancel"]


async def test_rule_2_06_what_is_not_needed_any_more_is_cancelled(begin: Begin) -> None:
    side = await started(begin)
    side.leave()
    await turns()
    assert side.manual.subscription.canceled == 1
    side.leave()
    await turns()
    assert side.manual.subscription.canceled == 1


async def test_rule_2_06_leaving_a_loop_cancels() -> None:
    manual = Manual(lambda manual: None)
    task = asyncio.create_task(_first(reactive.from_publisher(manual)))
    await until(lambda: manual.subscription.requested)
    manual.send(7, 8)
    assert await task == 7
    assert manual.subscription.calls == ["request(256)", "cancel"]


async def _first(items: AsyncIterator[Any]) -> Any:
    async for item in items:
        return item
    return None


async def test_rule_2_06_a_processor_that_fails_cancels() -> None:
    def fail(item: Any) -> Any:
        raise Failure

    async def fails(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for _ in items:
            raise Failure
            yield

    for stage in (reactive.Map(fail), reactive.processor(fails)):
        manual, probe = Manual(), Probe(1)
        manual.subscribe(stage)
        stage.subscribe(probe)
        await until(lambda manual=manual: manual.subscription.requested)  # type: ignore[misc]
        manual.send(1)
        assert await probe.end() == "on_error"
        await turns()
        assert manual.subscription.canceled == 1
        assert isinstance(probe.error, Failure)
        assert probe.faults == []


async def test_rule_2_07_calls_are_serial(begin: Begin) -> None:
    """All on the loop's thread, whatever thread the signals come on, and none inside another."""
    guard_the_loop()
    side = await started(begin)
    subscription = side.manual.subscription
    for start in range(0, 40, 2):
        await until(lambda start=start: subscription.requested >= start + 2)  # type: ignore[misc]
        assert on_thread(lambda start=start: side.manual.send(start, start + 1)) == []  # type: ignore[misc]
    await until(lambda: len(side.received) == 40)
    side.leave()
    await turns()
    assert subscription.threads == {threading.get_ident()}
    assert subscription.overlaps == 0


async def test_rule_2_08_items_may_come_after_cancel(begin: Begin) -> None:
    side = await started(begin)
    side.leave()
    side.manual.send(1, 2)
    side.manual.complete()
    side.manual.fail(Failure())
    await turns()
    assert side.received == []
    assert side.error is None


async def test_rule_2_09_on_complete_after_a_request(begin: Begin) -> None:
    side = await started(begin)
    side.manual.complete()
    await until(lambda: side.ended)
    assert (side.ended, side.received) == ("on_complete", [])


async def test_rule_2_09_on_complete_without_a_request(begin: Begin) -> None:
    side = begin(lambda manual: manual.complete())
    if side.starts:
        side.attach()
    else:
        side.start()
    await until(lambda: side.ended)
    assert (side.ended, side.received) == ("on_complete", [])


async def test_rule_2_10_on_error_after_a_request(begin: Begin) -> None:
    side = await started(begin)
    error = Failure()
    side.manual.fail(error)
    await until(lambda: side.ended)
    assert (side.ended, side.error) == ("on_error", error)


async def test_rule_2_10_on_error_without_a_request(begin: Begin) -> None:
    error = Failure()
    side = begin(lambda manual: manual.fail(error))
    if side.starts:
        side.attach()
    else:
        side.start()
    await until(lambda: side.ended)
    assert (side.ended, side.error) == ("on_error", error)


@pytest.mark.parametrize("end", ["complete", "error"])
async def test_rule_2_11_signals_of_another_thread_arrive_in_order(begin: Begin, end: str) -> None:
    """Also the first of them, and the last."""
    side = begin()
    subscription = side.manual.subscription
    if side.starts:
        side.probe.request(1 << 20)  # type: ignore[attr-defined]
        on_thread(side.attach)
        assert subscription.calls == []
    else:
        side.start()
    await until(lambda: subscription.requested >= CREDIT)

    def signals() -> None:
        side.manual.send(*range(CREDIT))
        side.manual.complete() if end == "complete" else side.manual.fail(Failure())

    assert on_thread(signals) == []
    assert (side.received, side.ended) == ([], None), "the loop had no turn"
    await until(lambda: side.ended)
    assert (side.received, side.ended) == (list(range(CREDIT)), f"on_{end}")


async def test_rule_2_12_on_subscribe_comes_once(kit: Kit) -> None:
    probe = Probe(2, each=1)
    kit.publisher(5).subscribe(probe)
    await probe.end()
    assert probe.signals.count("on_subscribe") == 1


async def test_rule_2_12_ours_are_given_to_one_publisher(begin: Begin) -> None:
    """from_publisher and an Observable subscribe a new subscriber, once for each use."""
    side = await started(begin)
    side.manual.complete()
    await until(lambda: side.ended)
    if not side.starts:
        side.start()
        await turns()
    assert len(set(map(id, side.manual.subscribers))) == len(side.manual.subscribers)


async def test_rule_2_13_none_is_a_type_error(begin: Begin) -> None:
    side = await started(begin)
    subscriber: Any = side.manual.subscriber
    for method in (subscriber.on_subscribe, subscriber.on_next, subscriber.on_error):
        with pytest.raises(TypeError, match=r"rule 2\.13"):
            method(None)
    side.manual.send(1)
    await until(lambda: side.received == [1])


async def test_rule_2_13_none_is_a_type_error_before_on_subscribe(begin: Begin) -> None:
    subscriber: Any = begin().make()
    for method in (subscriber.on_subscribe, subscriber.on_next, subscriber.on_error):
        with pytest.raises(TypeError, match=r"rule 2\.13"):
            method(None)


@pytest.mark.parametrize("signal", ["on_subscribe", "on_next", "on_error", "on_complete"])
async def test_rule_2_13_a_subscriber_that_raises_counts_as_cancelled(
    kit: Kit, signal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The publisher hears nothing of it but that; the log has the error."""

    class Raises(Probe):
        def _raise(self, *_: Any) -> None:
            self.signals.append(signal)
            raise Failure(signal)

    probe = Raises(5)
    setattr(probe, signal, probe._raise)
    kit.publisher(2, fails=signal == "on_error").subscribe(probe)
    await until(lambda: signal in probe.signals)
    had = list(probe.signals)
    if signal != "on_subscribe":
        await kit.closed()
        probe.request(1)
    await kit.settle()
    assert probe.signals == had
    assert probe.signals.count(signal) == 1
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [str(record.exc_info[1]) for record in records if record.exc_info] == [signal]
    assert "rule 2.13" in records[0].getMessage()
    caplog.clear()


async def test_rule_2_13_a_refused_subscriber_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe()
    probe.on_error = _fail  # type: ignore[method-assign,assignment]
    reactive.to_publisher(_fail).subscribe(probe)
    assert "rule 2.13" in caplog.text
    caplog.clear()


def _fail(*_: Any) -> Any:
    raise Failure


class Early(Manual):
    """Signals an item before the subscriber could ask."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        subscriber.on_next("early")
        super().subscribe(subscriber)


async def test_an_item_that_was_not_requested_ends_the_publisher(begin: Begin) -> None:
    """Rule 1.1, seen from the other side."""
    side = begin(publisher=Early())
    side.start()
    await until(lambda: side.ended)
    assert (side.ended, side.received) == ("on_error", [])
    assert isinstance(side.error, LimitExceeded)
    assert side.error.rule == "RS 1.1"
    assert side.manual.subscription.calls == ["cancel"]


@pytest.mark.parametrize("stage", ["map", "processor", "none"])
async def test_items_beyond_the_window_end_the_publisher(stage: str) -> None:
    """What was requested is handed out, unless an error overtakes it, and no more is ever held."""
    manual, probe = Manual(), Probe(CREDIT)
    if stage == "none":
        reactive.to_publisher(reactive.from_publisher(manual, credit=CREDIT)).subscribe(probe)
    else:
        middle = reactive.Map(lambda item: item) if stage == "map" else reactive.processor(_each, credit=CREDIT)
        manual.subscribe(middle)
        middle.subscribe(probe)
    await until(lambda: manual.subscription.requested)
    manual.send(*range(100))
    if stage == "none":
        await probe.have(CREDIT)
        probe.request(1)
    assert await probe.end() == "on_error"
    assert "more items than were requested" in str(probe.error)
    assert probe.items == list(range(CREDIT))
    assert manual.subscription.calls == [f"request({CREDIT})", "cancel"]
    assert probe.faults == []


async def _each(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for item in items:
        yield item


class Raising(Subscription):
    """A subscription against the rules."""

    def request(self, n: int, /) -> None:
        raise Failure("request")

    def cancel(self) -> None:
        raise Failure("cancel")


async def test_a_subscription_that_raises_ends_the_publisher(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    side = begin()
    side.manual.subscription = Raising()  # type: ignore[assignment]
    side.start()
    await until(lambda: side.ended)
    assert (side.ended, str(side.error)) == ("on_error", "request")
    assert "rule 3.15" in caplog.text
    caplog.clear()


def test_the_four_can_be_named() -> None:
    """Who has the methods is one of them; who derives from one has to have them."""
    assert isinstance(Manual(), Publisher)
    assert isinstance(Probe(), Subscriber)
    assert isinstance(Noted(), Subscription)
    assert not isinstance(Probe(), Publisher)

    class Half(Subscriber[Any]):
        def on_next(self, item: Any, /) -> None:
            """Only this."""

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
