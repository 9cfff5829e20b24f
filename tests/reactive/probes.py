"""A subscriber that remembers and checks, a publisher moved by hand, and patience. No tests."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from afflux import Payload, Publisher, Subscriber, Subscription

PATIENCE = 30


async def turns(n: int = 10) -> None:
    """Let the loop do some turns."""
    for _ in range(n):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


def on_thread(*work: Callable[[], Any]) -> list[BaseException]:
    """Do each on a thread of its own, all at once; what they raised."""
    raised: list[BaseException] = []

    def run(one: Callable[[], Any]) -> None:
        try:
            one()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return raised


def guard_the_loop() -> None:
    """Let the loop raise when another thread than its own schedules something without its leave."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 1e9


def plain(item: Any) -> Any:
    """The bytes of an item, whatever it came in."""
    return item.data if isinstance(item, Payload) else item


def depth() -> int:
    """How deep the stack is."""
    frame, n = sys._getframe(), 0
    while frame is not None:
        frame, n = frame.f_back, n + 1  # type: ignore[assignment] # the last has no caller
    return n


class Probe(Subscriber[Any]):
    """A subscriber that remembers its signals. It fails the test by ``faults`` when they are not serial, not in the
    order of the protocol, more than were requested, or not on the thread that made it.

    Args:
        first: requested from within on_subscribe, each in a call of its own.
        each: requested from within each on_next.
        then: called with the probe within on_next, after that.
    """

    def __init__(self, *first: int, each: int = 0, then: Callable[[Probe], None] | None = None) -> None:
        self.signals: list[str] = []
        self.items: list[Any] = []
        self.error: Exception | None = None
        self.subscription: Subscription = None  # type: ignore[assignment] # it comes with the first signal
        self.faults: list[str] = []
        self.deepest = 0
        self.depths: set[int] = set()
        self.requested = 0
        self._first = first
        self._each = each
        self._then = then
        self._busy = False
        self._requesting = False
        self._thread = threading.get_ident()

    # -- what a test does -----------------------------------------------------------------------------------------

    def request(self, n: int) -> None:
        """Request, and see to it that no signal comes from inside."""
        if isinstance(n, int) and n > 0:
            self.requested += n
        self._requesting = True
        try:
            self.subscription.request(n)
        finally:
            self._requesting = False

    def cancel(self) -> None:
        """Cancel."""
        self._requesting = True
        try:
            self.subscription.cancel()
        finally:
            self._requesting = False

    @property
    def data(self) -> list[Any]:
        """The items as bytes."""
        return [plain(item) for item in self.items]

    @property
    def ended(self) -> str | None:
        """The last signal, if it was the last: on_complete or on_error."""
        return self.signals[-1] if self.signals and self.signals[-1] in ("on_complete", "on_error") else None

    async def have(self, n: int) -> list[Any]:
        """Wait for ``n`` items in all."""
        await until(lambda: len(self.items) >= n or self.ended)
        assert len(self.items) >= n, (self.signals, self.error)
        return self.data

    async def end(self) -> str:
        """Wait for the last signal."""
        await until(lambda: self.ended)
        return str(self.ended)

    # -- the signals ----------------------------------------------------------------------------------------------

    def on_subscribe(self, subscription: Subscription, /) -> None:
        with self._signal("on_subscribe"):
            self.subscription = subscription
            for n in self._first:
                self.request(n)

    def on_next(self, item: Any, /) -> None:
        with self._signal("on_next"):
            self.items.append(item)
            self.depths.add(depth())
            if len(self.items) > self.requested:
                self.faults.append(f"{len(self.items)} items of {self.requested}")
            if self._each:
                self.request(self._each)
            if self._then is not None:
                self._then(self)

    def on_error(self, error: Exception, /) -> None:
        with self._signal("on_error"):
            self.error = error

    def on_complete(self) -> None:
        with self._signal("on_complete"):
            pass

    @contextmanager
    def _signal(self, name: str) -> Iterator[None]:
        if self._busy:
            self.faults.append(f"{name} within {self.signals[-1]}")
        if self._requesting:
            self.faults.append(f"{name} from inside request or cancel")
        if threading.get_ident() != self._thread:
            self.faults.append(f"{name} on another thread")
        if (name == "on_subscribe") != (self.signals == []) or self.ended:
            self.faults.append(f"{name} after {self.signals}")
        self.signals.append(name)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


class Noted(Subscription):
    """A subscription that notes what is called on it, and on which thread."""

    def __init__(self, manual: Manual | None = None) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.canceled = 0
        self.requested = 0
        self.during: list[str] = []
        "Calls that came from inside a last signal."
        self._manual = manual
        self._busy = False
        self.overlaps = 0

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        self.overlaps += self._busy
        self._busy = True
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if self._manual is not None and self._manual.ending:
            self.during.append(name)
        yield
        self._busy = False

    def request(self, n: int, /) -> None:
        with self._call(f"request({n})"):
            self.requested += n

    def cancel(self) -> None:
        with self._call("cancel"):
            self.canceled += 1


class Manual(Publisher[Any]):
    """A publisher that does what it is told, at once, rules or no rules.

    Args:
        script: called within subscribe, after on_subscribe.
    """

    def __init__(self, script: Callable[[Manual], None] | None = None) -> None:
        self.subscription = Noted(self)
        self.subscribers: list[Subscriber[Any]] = []
        self.ending = False
        self._script = script

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self.subscribers.append(subscriber)
        subscriber.on_subscribe(self.subscription)
        if self._script is not None:
            self._script(self)

    @property
    def subscriber(self) -> Subscriber[Any]:
        """The last one."""
        return self.subscribers[-1]

    def send(self, *items: Any) -> None:
        for item in items:
            self.subscriber.on_next(item)

    def complete(self) -> None:
        self.ending = True
        self.subscriber.on_complete()
        self.ending = False

    def fail(self, error: Exception) -> None:
        self.ending = True
        self.subscriber.on_error(error)
        self.ending = False


class Failure(Exception):
    """What sources raise here."""
