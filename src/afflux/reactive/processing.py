"""Process items between a publisher and a subscriber: ``Map`` by a function, ``processor`` by an async generator.

Both have one publisher and one subscriber (1.11), attached in any order. When the subscriber cancels, the processor
cancels its subscription. ``Map`` passes demand on exactly, ``processor`` by a window.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.reactive.contracts import Processor, Subscriber, Subscription
from afflux.reactive.links import Link, attach
from afflux.reactive.pulling import Pulled
from afflux.reactive.subscribing import Inbox, InboxItems, Intake

__all__ = ["Map", "processor"]

T = TypeVar("T")
R = TypeVar("R")

_ONE = "a processor has one subscriber, and this one already has it (Reactive Streams, rule 1.11)"


class Map(Intake[T], Processor[T, R]):
    """A processor that signals ``function(item)`` for each item.

    It does not buffer: signals and demand are passed on immediately. An exception of ``function`` ends both sides.

    Raises:
        RuntimeError: this thread has no running event loop.
        TypeError: ``function`` is async.
    """

    def __init__(self, function: Callable[[T], R]) -> None:
        if iscoroutinefunction(function):
            raise TypeError("Map requires a plain function; use processor() for an async one")
        super().__init__()
        self._function = function
        self._link: _Mapped[R] | None = None
        self._error: Exception | None = None

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """See Publisher. An end that was received before is signalled now."""
        attach(subscriber, self._attached)
        if self.ended:
            self._signal_end()

    def subscribed(self) -> None:
        """See Intake."""
        self.pass_demand()

    def arrived(self, item: T) -> None:
        """See Intake."""
        if self._link is not None:
            try:
                value = self._function(item)
            except Exception as error:
                self._link.abort(error)
            else:
                self._link.next(value)

    def finished(self, error: Exception | None) -> None:
        """See Intake."""
        self._error = error
        self._signal_end()

    def pass_demand(self) -> None:
        """Request the items that the subscriber has requested."""
        if self._link is not None and (n := self._link.demand - self.due) > 0:
            self.request(n)

    def _attached(self, subscriber: Subscriber[R]) -> Link[R]:
        if self._link is not None:
            raise RuntimeError(_ONE)
        self._link = _Mapped(subscriber, self)
        return self._link

    def _signal_end(self) -> None:
        if self._link is not None:
            if self._error is None:
                self._link.complete()
            else:
                self._link.fail(self._error)


class _Mapped(Link[R]):
    """The subscription to a Map."""

    def __init__(self, subscriber: Subscriber[R], stage: Map[Any, R]) -> None:
        super().__init__(subscriber)
        self._stage = stage

    def wanted(self) -> None:
        self._stage.pass_demand()

    def halt(self) -> None:
        self._stage.abandon()


Stage = Callable[[AsyncIterator[T]], AsyncIterable[R]]
"An async generator function from items to items."


def processor(function: Stage[T, R], *, credit: int = DEFAULT_CREDIT) -> Processor[T, R]:
    """Return a processor that runs an async generator function: ``async def squares(items): ...``.

    Args:
        function: takes an async iterator of the publisher's items, and yields the subscriber's. It may yield more or
            fewer items, wait, and catch the publisher's error to recover from it (4.2). It is called when the
            subscriber is attached and runs on its demand.
        credit: the window for the publisher, as in ``from_publisher``.

    The publisher's end is signalled without a request: the generator then runs up to its next item. An error precedes
    items that the subscriber has not requested (4.2).

    Raises:
        RuntimeError: this thread has no running event loop.
        TypeError: ``function`` is async and not a generator.
        ValueError: ``credit`` is less than 1.
    """
    if iscoroutinefunction(function):
        raise TypeError("processor() requires an async generator function, one that yields")
    return _Generated(function, credit)


class _Generated(Processor[T, R], Generic[T, R]):
    """See processor."""

    def __init__(self, function: Stage[T, R], credit: int) -> None:
        if credit < 1:
            raise ValueError(f"credit must be 1 or more, not {credit}")
        self._function = function
        self._inbox: Inbox[T] = Inbox(credit)
        self._taken = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._inbox.on_subscribe(subscription)

    def on_next(self, item: T, /) -> None:
        self._inbox.on_next(item)

    def on_error(self, error: Exception, /) -> None:
        self._inbox.on_error(error)

    def on_complete(self) -> None:
        self._inbox.on_complete()

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        attach(subscriber, self._attached)

    def _attached(self, subscriber: Subscriber[R]) -> Link[R]:
        if self._taken:
            raise RuntimeError(_ONE)
        self._taken = True
        try:
            made = aiter(self._function(InboxItems(self._inbox)))
        except Exception:
            self._inbox.drop()
            raise
        link = _Through(subscriber, made, self._inbox)
        self._inbox.on_end = link.look_ahead
        self._inbox.urgent = lambda: not link.demand
        if self._inbox.ended:
            link.look_ahead()
        return link


class _Through(Pulled[R]):
    """The subscription to a processor that runs a generator."""

    def __init__(self, subscriber: Subscriber[R], items: AsyncIterator[R], inbox: Inbox[Any]) -> None:
        super().__init__(subscriber, items)
        self._inbox = inbox

    def halt(self) -> None:
        self._inbox.drop()
        super().halt()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._inbox.drop()
