"""reactivex: Observables of publishers, and publishers of Observables, with a bound on what waits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import afflux
from afflux import LimitExceeded, reactive
from tests.reactive.kits import ENDLESS, HUGE, Counts, Kit
from tests.reactive.probes import Failure, Manual, Probe, depth, guard_the_loop, on_thread, plain, turns, until

reactivex = pytest.importorskip("reactivex", reason='Observables need the extra "rx"')

from reactivex import operators  # noqa: E402 -- once it is known to be there
from reactivex.disposable import Disposable  # noqa: E402
from reactivex.scheduler import (  # noqa: E402
    CurrentThreadScheduler,
    EventLoopScheduler,
    ImmediateScheduler,
    NewThreadScheduler,
)
from reactivex.scheduler.eventloop import AsyncIOScheduler  # noqa: E402
from reactivex.subject import Subject  # noqa: E402

NUMBERS = [b"%d" % i for i in range(1000)]


class Watch:
    """An observer that remembers."""

    def __init__(self, then: Callable[[Any], None] = lambda item: None) -> None:
        self.items: list[Any] = []
        self.error: Exception | None = None
        self.ended = ""
        self.threads: set[int] = set()
        self._then = then
        self.inside = 0
        self.overlaps = 0

    def on_next(self, item: Any) -> None:
        self.overlaps += self.inside
        self.inside += 1
        self.threads.add(threading.get_ident())
        self.items.append(plain(item))
        try:
            self._then(item)
        finally:
            self.inside -= 1

    def on_error(self, error: Exception) -> None:
        self.error = error
        self.ended = "on_error"

    def on_completed(self) -> None:
        self.ended = "on_completed"

    def of(self, observable: Any) -> Any:
        """Subscribe."""
        return observable.subscribe(self.on_next, self.on_error, self.on_completed)


# -- to_observable ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1, 2, 7, 256])
async def test_an_observable_of_every_kind_of_publisher(kit: Kit, credit: int) -> None:
    watch = Watch()
    watch.of(reactive.to_observable(kit.publisher(1000), credit=credit))
    await until(lambda: watch.ended)
    assert (watch.ended, watch.items, watch.overlaps) == ("on_completed", NUMBERS, 0)


async def test_an_error_is_an_error(kit: Kit) -> None:
    watch = Watch()
    watch.of(reactive.to_observable(kit.publisher(2, fails=True)))
    await until(lambda: watch.ended)
    assert isinstance(watch.error, kit.failure)


async def test_an_observable_of_what_python_iterates() -> None:
    observable = reactive.to_observable(range(10))
    for _ in range(2):
        assert await observable.pipe(operators.to_list()) == list(range(10))


async def test_disposing_cancels(kit: Kit) -> None:
    watch = Watch()
    disposable = watch.of(reactive.to_observable(kit.publisher(ENDLESS), credit=3))
    await until(lambda: len(watch.items) > 10)
    disposable.dispose()
    had = len(watch.items)
    await kit.closed()
    await kit.settle()
    assert (len(watch.items), watch.ended) == (had, "")


async def test_an_operator_that_has_enough_cancels(kit: Kit) -> None:
    watch = Watch()
    watch.of(reactive.to_observable(kit.publisher(ENDLESS)).pipe(operators.take(5)))
    await until(lambda: watch.ended)
    await kit.closed()
    assert (watch.items, watch.ended) == (NUMBERS[:5], "on_completed")


async def test_the_window_is_what_is_requested_and_not_handled() -> None:
    manual = Manual()
    watch = Watch()
    disposable = watch.of(reactive.to_observable(manual, credit=4))
    manual.send(*range(9))
    assert manual.subscription.calls == ["request(4)", *["request(2)"] * 4]
    assert watch.items == list(range(9))
    disposable.dispose()
    assert manual.subscription.calls[-1] == "cancel"


async def test_an_observer_that_raises_is_disposed_of(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    def fail(item: Any) -> None:
        raise Failure

    watch = Watch(fail)
    watch.of(reactive.to_observable(kit.publisher(10)))
    await until(lambda: watch.items)
    await kit.closed()
    await kit.settle()
    assert (watch.items, watch.ended) == (NUMBERS[:1], "")
    assert "an observer or its scheduler raised" in caplog.text
    caplog.clear()


async def test_an_observer_without_on_error(caplog: pytest.LogCaptureFixture) -> None:
    """reactivex raises the error then; it is logged."""
    manual = Manual()
    reactive.to_observable(manual).subscribe(lambda item: None)
    manual.fail(Failure("nobody listens"))
    assert "nobody listens" in caplog.text
    caplog.clear()


def test_an_observable_needs_an_event_loop() -> None:
    watch = Watch()
    watch.of(reactive.to_observable([1]))
    assert "event loop" in str(watch.error)


@pytest.mark.parametrize("kind", ["event loop thread", "new thread", "asyncio", "immediate", "current thread"])
@pytest.mark.parametrize("credit", [1, 8])
async def test_a_scheduler_calls_the_observer(kind: str, credit: int) -> None:
    """One call after the other, in order, and never more waiting than the window."""
    counts = Counts()
    most = 0

    def look(item: Any) -> None:
        nonlocal most
        most = max(most, counts.made - len(watch.items) + 1)

    watch = Watch(look)
    loop = asyncio.get_running_loop()
    makers: dict[str, Callable[[], Any]] = {
        "event loop thread": lambda: EventLoopScheduler(exit_if_empty=True),
        "new thread": NewThreadScheduler,
        "asyncio": lambda: AsyncIOScheduler(loop),
        "immediate": ImmediateScheduler,
        "current thread": CurrentThreadScheduler,
    }
    watch.of(reactive.to_observable(lambda: counts.numbers(200), credit=credit, scheduler=makers[kind]()))
    await until(lambda: watch.ended)
    assert (watch.ended, watch.items, watch.overlaps) == ("on_completed", NUMBERS[:200], 0)
    assert most <= credit
    here = threading.get_ident()
    assert (here in watch.threads) == (kind in ("asyncio", "immediate", "current thread"))


async def test_a_slow_observer_elsewhere_holds_the_publisher_back() -> None:
    """Which observe_on does not."""
    counts = Counts()
    go = threading.Event()
    watch = Watch(lambda item: go.wait(30) and None)
    disposable = watch.of(
        reactive.to_observable(
            lambda: counts.numbers(10_000), credit=8, scheduler=EventLoopScheduler(exit_if_empty=True)
        )
    )
    await until(lambda: watch.items)
    await turns(200)
    assert (counts.made, len(watch.items)) == (8, 1)
    disposable.dispose()
    go.set()
    await until(lambda: counts.closed)
    assert len(watch.items) == 1, "what waited is not wanted any more"
    assert watch.ended == ""


async def test_an_error_comes_after_the_items_on_a_scheduler() -> None:
    counts = Counts()
    watch = Watch()
    watch.of(
        reactive.to_observable(
            lambda: counts.numbers(3, Failure()), credit=8, scheduler=EventLoopScheduler(exit_if_empty=True)
        )
    )
    await until(lambda: watch.ended)
    assert (watch.items, watch.ended) == (NUMBERS[:3], "on_error")


async def test_an_observer_that_raises_on_a_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counts()

    def fail(item: Any) -> None:
        raise Failure

    watch = Watch(fail)
    scheduler = EventLoopScheduler(exit_if_empty=True)
    watch.of(reactive.to_observable(lambda: counts.numbers(1000), credit=8, scheduler=scheduler))
    await until(lambda: counts.closed)
    assert len(watch.items) == 1
    assert "an observer or its scheduler raised" in caplog.text
    caplog.clear()


class Later:
    """A scheduler that does things when it is told."""

    def __init__(self) -> None:
        self.actions: list[Callable[..., Any]] = []

    def schedule(self, action: Callable[..., Any], state: Any = None) -> Any:
        self.actions.append(action)
        return Disposable()

    def go(self) -> None:
        """Do what there is, on another thread."""
        actions, self.actions = self.actions, []
        for action in actions:
            assert on_thread(lambda action=action: action(self, None)) == []  # type: ignore[misc]


async def test_what_happens_between_a_scheduler_and_the_loop() -> None:
    """One action at a time; requests are made on the loop's thread, once for half a window."""
    guard_the_loop()
    manual, watch, later = Manual(), Watch(), Later()
    watch.of(reactive.to_observable(manual, credit=4, scheduler=later))  # type: ignore[arg-type]
    manual.send(1, 2, 3)
    assert len(later.actions) == 1
    later.go()
    assert (watch.items, len(later.actions)) == ([1, 2], 1), "the others of the scheduler get their turn"
    assert manual.subscription.calls == ["request(4)"]
    await turns()
    assert manual.subscription.calls == ["request(4)", "request(2)"]
    manual.send(4)
    assert len(later.actions) == 1
    later.go()
    manual.complete()
    while later.actions:
        later.go()
    await turns()
    assert (watch.items, watch.ended) == ([1, 2, 3, 4], "on_completed")
    assert manual.subscription.threads == {threading.get_ident()}
    assert manual.subscription.calls == ["request(4)", "request(2)"], "nothing is requested after the end"


async def test_an_observer_that_has_raised_is_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """Not even with what comes before the loop knows."""

    def fail(item: Any) -> None:
        raise Failure

    manual, watch, later = Manual(), Watch(fail), Later()
    watch.of(reactive.to_observable(manual, credit=8, scheduler=later))  # type: ignore[arg-type]
    manual.send(1, 2)
    later.go()
    manual.send(3, 4, 5, 6)
    later.go()
    assert watch.items == [1]
    await turns()
    assert manual.subscription.calls == ["request(8)", "cancel"]
    caplog.clear()


async def test_a_scheduler_that_refuses_ends_the_subscription(caplog: pytest.LogCaptureFixture) -> None:
    manual = Manual()
    scheduler = EventLoopScheduler()
    scheduler.dispose()
    watch = Watch()
    watch.of(reactive.to_observable(manual, scheduler=scheduler))
    manual.send(1, 2)
    assert manual.subscription.calls[-1] == "cancel"
    assert watch.items == []
    assert "an observer or its scheduler raised" in caplog.text
    caplog.clear()


# -- from_observable ----------------------------------------------------------------------------------------


async def test_items_wait_for_demand() -> None:
    subject: Subject[int] = Subject()
    probe = Probe(2)
    reactive.from_observable(subject, buffer=10).subscribe(probe)
    for i in range(5):
        subject.on_next(i)
    assert probe.items == [], "signals come with the next turn of the loop"
    await probe.have(2)
    await turns()
    assert probe.items == [0, 1]
    probe.request(10)
    await probe.have(5)
    subject.on_next(5)
    subject.on_completed()
    assert await probe.end() == "on_complete"
    assert (probe.items, probe.faults) == (list(range(6)), [])


async def test_overflow_is_an_error_after_what_waits() -> None:
    subject: Subject[int] = Subject()
    probe = Probe()
    reactive.from_observable(subject, buffer=3).subscribe(probe)
    for i in range(3):
        subject.on_next(i)
    await turns()
    assert len(subject.observers) == 1
    subject.on_next(3)
    subject.on_next(4)
    await turns()
    assert subject.observers == [], "it is disposed of at once"
    assert probe.signals == ["on_subscribe"]
    probe.request(10)
    assert await probe.end() == "on_error"
    assert isinstance(probe.error, LimitExceeded)
    assert probe.error.rule == "buffer-full"
    assert (probe.items, probe.faults) == ([0, 1, 2], [])


@pytest.mark.parametrize(("overflow", "kept"), [("drop", [0, 1, 2]), ("latest", [97, 98, 99])])
async def test_what_gives_way(overflow: Any, kept: list[int]) -> None:
    subject: Subject[int] = Subject()
    probe = Probe()
    reactive.from_observable(subject, buffer=3, overflow=overflow).subscribe(probe)
    for i in range(100):
        subject.on_next(i)
    subject.on_completed()
    probe.request(10)
    assert await probe.end() == "on_complete"
    assert (probe.items, probe.faults) == (kept, [])


async def test_an_observable_may_emit_on_any_thread() -> None:
    """With a reader that keeps up, by a handshake."""
    subject: Subject[int] = Subject()
    items = reactive.from_publisher(reactive.from_observable(subject, buffer=4), credit=4)
    room = threading.Semaphore(4)

    def emit() -> None:
        for i in range(2000):
            assert room.acquire(timeout=30)
            subject.on_next(i)
        subject.on_completed()

    taking = asyncio.ensure_future(anext(items))
    await until(lambda: subject.observers)
    thread = threading.Thread(target=emit)
    thread.start()
    got = [await taking]
    room.release()
    async for item in items:
        got.append(item)
        room.release()
    thread.join()
    assert got == list(range(2000))


async def test_a_flood_on_another_thread_is_bounded() -> None:
    """Nor is there a callback for each item in the loop's queue."""
    subject: Subject[int] = Subject()
    probe = Probe()
    reactive.from_observable(subject, buffer=5, overflow="latest").subscribe(probe)
    scheduled = 0
    loop = asyncio.get_running_loop()
    original = loop.call_soon_threadsafe

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal scheduled
        scheduled += 1
        return original(*arguments, **options)

    loop.call_soon_threadsafe = counting  # type: ignore[method-assign,assignment]
    try:
        assert on_thread(lambda: [subject.on_next(i) for i in range(10_000)]) == []
    finally:
        del loop.call_soon_threadsafe
    assert scheduled == 1
    probe.request(10)
    await probe.have(5)
    assert probe.items == list(range(9995, 10_000))
    probe.cancel()
    assert subject.observers == []


async def test_an_error_waits_for_the_items_before_it_and_no_longer() -> None:
    subject: Subject[int] = Subject()
    probe = Probe()
    reactive.from_observable(subject).subscribe(probe)
    subject.on_next(1)
    subject.on_error(Failure())
    await turns()
    assert probe.ended is None
    probe.request(1)
    assert await probe.end() == "on_error"
    assert (probe.items, probe.faults) == ([1], [])
    failed = Probe()
    reactive.from_observable(reactivex.throw(Failure())).subscribe(failed)
    assert await failed.end() == "on_error"


async def test_cancel_disposes(kit: Kit) -> None:
    """Also through to a publisher on the other side."""
    observable = reactive.to_observable(kit.publisher(ENDLESS), credit=2)
    probe = Probe(5)
    reactive.from_observable(observable, overflow="latest", buffer=2).subscribe(probe)
    await probe.have(5)
    probe.cancel()
    await kit.closed()
    await kit.settle()
    assert (len(probe.items), probe.faults) == (5, [])


async def test_a_cancel_while_the_observable_is_being_subscribed_to() -> None:
    disposed = []
    probe = Probe()

    def subscribe(observer: Any, scheduler: Any = None) -> Any:
        probe.cancel()
        return Disposable(lambda: disposed.append(True))

    reactive.from_observable(reactivex.create(subscribe)).subscribe(probe)
    assert (disposed, probe.signals) == ([True], ["on_subscribe"])


async def test_a_cancel_within_on_subscribe_subscribes_to_nothing() -> None:
    subject: Subject[int] = Subject()

    class Leaves(Probe):
        def on_subscribe(self, subscription: Any, /) -> None:
            subscription.cancel()

    reactive.from_observable(subject).subscribe(Leaves())
    assert subject.observers == []


async def test_an_observable_that_can_not_be_subscribed_to() -> None:
    class Fails(reactivex.Observable[int]):
        def subscribe(self, *arguments: Any, **options: Any) -> Any:
            raise Failure

    probe = Probe()
    reactive.from_observable(Fails()).subscribe(probe)
    assert probe.signals == ["on_subscribe", "on_error"]
    assert isinstance(probe.error, Failure)


async def test_signals_are_not_nested() -> None:
    """A subscriber that makes the Observable emit gets that later."""
    subject: Subject[int] = Subject()
    probe = Probe(HUGE, then=lambda probe: subject.on_next(probe.items[-1] + 1) if probe.items[-1] < 3000 else None)
    reactive.from_observable(subject).subscribe(probe)
    subject.on_next(0)
    await probe.have(3001)
    assert max(probe.depths) < depth() + 30
    probe.cancel()
    assert probe.faults == []


def test_a_loop_that_is_closed_is_left_in_peace() -> None:
    subject: Subject[int] = Subject()

    async def main() -> None:
        reactive.from_observable(subject).subscribe(Probe(1))

    asyncio.run(main())
    subject.on_next(1)
    assert on_thread(lambda: subject.on_next(2)) == []


async def test_an_observable_over_a_connection_and_back() -> None:
    class Serves:
        async def stream(self, payload: afflux.Payload) -> Any:
            observable = reactivex.from_iterable(range(100)).pipe(operators.map(str))
            return reactive.serve_publisher(reactive.from_observable(observable))

    async with afflux.serve("tcp://127.0.0.1:0", Serves()) as server, afflux.connect(server.uri) as peer:
        observable = reactive.to_observable(reactive.stream(peer), credit=16)
        texts = await observable.pipe(operators.map(lambda item: item.text), operators.to_list())
        assert texts == [str(i) for i in range(100)]


# -- what is refused ----------------------------------------------------------------------------------------


async def test_what_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="credit must be 1 or more, not 0"):
        reactive.to_observable([1], credit=0)
    with pytest.raises(ValueError, match="buffer must be 1 or more, not 0"):
        reactive.from_observable(reactivex.of(1), buffer=0)
    with pytest.raises(ValueError, match="overflow must be one of error, drop, latest, not 'newest'"):
        reactive.from_observable(reactivex.of(1), overflow="newest")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="requires an Observable, not list"):
        reactive.from_observable([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"convert it with from_observable\(\)"):
        reactive.to_publisher(reactivex.of(1))


async def test_without_reactivex(monkeypatch: pytest.MonkeyPatch) -> None:
    observable = reactivex.of(1)
    monkeypatch.setitem(sys.modules, "reactivex", None)
    for call in (lambda: reactive.to_observable([1]), lambda: reactive.from_observable(observable)):
        with pytest.raises(afflux.MissingExtra, match=r'the extra "rx": pip install "afflux\[rx\]"'):
            call()
    assert [item async for item in reactive.from_publisher(reactive.to_publisher([1]))] == [1]
