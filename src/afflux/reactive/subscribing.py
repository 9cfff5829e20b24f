"""Subscribers: the part that all of them share, and ``from_publisher``, which takes items with ``async for``.

1. Signals may come on any thread (2.11); on others than the loop's they are done at its next turn.
2. A publisher is held to what was requested: more than that ends it (1.1).
3. What a publisher's subscription raises, which it must not (3.15, 3.16), is logged and ends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.core.credit import SATURATED, Window
from afflux.core.errors import LimitExceeded
from afflux.reactive.contracts import Publisher, Subscriber, Subscription
from afflux.reactive.links import Home, log

__all__ = ["Inbox", "InboxItems", "Intake", "PublisherItems", "from_publisher", "serve_publisher"]

T = TypeVar("T")


class Intake(Subscriber[T]):
    """A subscriber. A subclass knows what to do with items.

    Raises:
        RuntimeError: there is no running event loop on this thread.
    """

    def __init__(self) -> None:
        self.home = Home()
        self.due = 0
        "Items that were requested and have not come."
        self.ended = False
        "No item will be taken any more."
        self._subscription: Subscription | None = None

    # -- the signals --------------------------------------------------------------------------------------------

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """See Subscriber."""
        if subscription is None:
            raise TypeError("on_subscribe takes a subscription, not None (Reactive Streams, rule 2.13)")
        if self.home.elsewhere(self.on_subscribe, subscription):
            return
        if self.ended or self._subscription is not None:
            _cancel(subscription)
            return
        self._subscription = subscription
        self.subscribed()

    def on_next(self, item: T, /) -> None:
        """See Subscriber."""
        if item is None:
            raise TypeError("on_next takes an item, not None (Reactive Streams, rule 2.13)")
        if self.home.elsewhere(self.on_next, item) or self.ended:
            return
        if self.due:
            self.due -= 1
            self.arrived(item)
        else:
            self._fault(LimitExceeded("the publisher signalled more items than were requested", rule="RS 1.1"))

    def on_error(self, error: Exception, /) -> None:
        """See Subscriber."""
        if error is None:
            raise TypeError("on_error takes an error, not None (Reactive Streams, rule 2.13)")
        if not self.home.elsewhere(self.on_error, error):
            self._finish(error)

    def on_complete(self) -> None:
        """See Subscriber."""
        if not self.home.elsewhere(self.on_complete):
            self._finish(None)

    # -- what a subclass is told, and replaces ------------------------------------------------------------------

    def subscribed(self) -> None:
        """There is a subscription: request may be called."""

    def arrived(self, item: T) -> None:
        """An item has come."""

    def finished(self, error: Exception | None) -> None:
        """The end has come, by the publisher or by its fault; it is told once at most."""

    # -- what a subclass calls ----------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether there is a subscription that is not over."""
        return self._subscription is not None

    def request(self, n: int) -> None:
        """Ask for ``n`` more; nothing without a subscription."""
        if self._subscription is None:
            return
        self.due = min(self.due + n, SATURATED)
        try:
            self._subscription.request(n)
        except Exception as error:
            self._fault(error)

    def give_up(self) -> None:
        """Want no more: whatever comes is dropped, and a subscription is canceled, also one that is still to come."""
        self.ended = True
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            _cancel(subscription)

    def _fault(self, error: Exception) -> None:
        """The publisher broke a rule."""
        if not self.ended:
            self.give_up()
            self.finished(error)

    def _finish(self, error: Exception | None) -> None:
        if not self.ended:
            self.ended = True
            self._subscription = None
            self.finished(error)


def _cancel(subscription: Subscription) -> None:
    try:
        subscription.cancel()
    except Exception as error:
        log.error("afflux: a subscription's cancel raised (Reactive Streams, rule 3.15)", exc_info=error)


class Inbox(Intake[T]):
    """A subscriber that keeps items for one who asks, within a window.

    Args:
        credit: items that may be requested and not done with.
    """

    def __init__(self, credit: int) -> None:
        super().__init__()
        self._window = Window(credit)
        self._items: deque[T] = deque()
        self._held = 0
        self._opened = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.told: Callable[[], None] = _nothing
        "Called when the end comes."
        self.urgent: Callable[[], bool] = _never
        "Whether an error goes before the items that wait."

    async def take(self) -> T:
        """The next item, waiting for it; the one before is done with. The error, if there is one, is raised once.

        Raises:
            StopAsyncIteration: there is none.
            RuntimeError: another task waits.
        """
        self._open()
        if self._held:
            self._held = 0
            if n := self._window.consumed(1, 0):
                self.request(n)
        while not self._items or (self._error is not None and self.urgent()):
            if self.ended:
                self._items.clear()
                error, self._error = self._error, None
                raise StopAsyncIteration if error is None else error
            await self._arrival()
        self._held = 1
        return self._items.popleft()

    def subscribed(self) -> None:
        """See Intake. The window opens when both sides are there."""
        if self._opened:
            self.request(self._window.initial())

    def arrived(self, item: T) -> None:
        """See Intake."""
        self._items.append(item)
        self._wake()

    def finished(self, error: Exception | None) -> None:
        """See Intake."""
        self._error = error
        self._wake()
        self.told()

    def drop(self) -> None:
        """Take nothing more, and give up."""
        if not self.home.elsewhere(self.drop):
            self._items.clear()
            self._error = None
            self.give_up()
            self._wake()

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            if self.active:
                self.request(self._window.initial())

    async def _arrival(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("another task waits for this publisher's next item")
        self._waiter = self.home.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _nothing() -> None:
    """Nobody wants to be told."""


def _never() -> bool:
    return False


class InboxItems(AsyncIterator[T]):
    """The items of an inbox."""

    def __init__(self, inbox: Inbox[T]) -> None:
        self._inbox = inbox

    async def __anext__(self) -> T:
        return await self._inbox.take()


class PublisherItems(AsyncIterator[T], Generic[T]):
    """The items of a publisher.

    ``async for`` takes them, and subscribes first; leaving the loop early cancels the subscription, at once where
    objects die when their last reference goes (CPython), and certainly with ``async with``. One task at a time may
    iterate.
    """

    def __init__(self, publisher: Publisher[T], credit: int) -> None:
        self._publisher: Publisher[T] | None = publisher
        self._credit = credit
        self._inbox: Inbox[T] | None = None

    async def __anext__(self) -> T:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            self._inbox = Inbox(self._credit)
            publisher.subscribe(self._inbox)
        if self._inbox is None:
            raise StopAsyncIteration
        return await self._inbox.take()

    def cancel(self) -> None:
        """Take no more. Iterating ends; what has arrived and was not taken is dropped. Twice does no harm."""
        self._publisher = None
        if self._inbox is not None:
            self._inbox.drop()

    async def aclose(self) -> None:
        """Cancel, unless it has ended."""
        self.cancel()

    async def __aenter__(self) -> PublisherItems[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()


def from_publisher(publisher: Publisher[T], *, credit: int = DEFAULT_CREDIT) -> PublisherItems[T]:
    """The items of a publisher, for ``async for``.

    Args:
        publisher: it is subscribed to when the first item is asked for.
        credit: the window: so many items are requested before the first, and again when half of them are done with.
            No more than that are ever held. With 1, an item is requested when the one before is done with.

    Items that came before an error are handed out before it is raised. A publisher that signals more than was
    requested is canceled, and LimitExceeded raised with rule 1.1.

    Raises:
        TypeError: it is no publisher.
        ValueError: ``credit`` is less than 1.
    """
    if not isinstance(publisher, Publisher):
        raise TypeError(f"a publisher has the method subscribe, unlike {type(publisher).__name__}")
    if credit < 1:
        raise ValueError(f"credit is 1 or more, not {credit}")
    return PublisherItems(publisher, credit)


def serve_publisher(publisher: Publisher[T], *, credit: int = 1) -> PublisherItems[T]:
    """What a handler returns to serve a publisher: it is asked for one item more than the peer has granted credit for,
    because only so its end is known.

    ``from_publisher`` serves as well, and requests ahead of the peer; so does a larger ``credit``.
    """
    return from_publisher(publisher, credit=credit)
