"""Receive the items of a publisher, with ``async for`` or in a subclass of ``Intake``.

1. Signals may arrive on any thread (2.11); those on other threads are processed in the loop's next turn.
2. A publisher that signals more items than requested is canceled (1.1).
3. An exception of a publisher's subscription, which is not allowed (3.15, 3.16), is logged and ends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.calls.arguments import AsyncOnly
from afflux.core.credit import SATURATED, Window
from afflux.core.errors import LimitExceeded
from afflux.reactive.contracts import Publisher, Subscriber, Subscription
from afflux.reactive.links import Home, log

__all__ = ["Inbox", "InboxItems", "Intake", "PublisherItems", "from_publisher", "serve_publisher"]

T = TypeVar("T")


class Intake(Subscriber[T]):
    """A subscriber. Subclasses process the items.

    Raises:
        RuntimeError: this thread has no running event loop.
    """

    def __init__(self) -> None:
        self.home = Home()
        self.due = 0
        "Items requested that have not arrived."
        self.ended = False
        "True after the end: no item is accepted."
        self._subscription: Subscription | None = None

    # -- the signals --------------------------------------------------------------------------------------------

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """See Subscriber."""
        if subscription is None:
            raise TypeError("on_subscribe requires a subscription, not None (Reactive Streams, rule 2.13)")
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
            raise TypeError("on_next requires an item, not None (Reactive Streams, rule 2.13)")
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
            raise TypeError("on_error requires an error, not None (Reactive Streams, rule 2.13)")
        if not self.home.elsewhere(self.on_error, error):
            self._finish(error)

    def on_complete(self) -> None:
        """See Subscriber."""
        if not self.home.elsewhere(self.on_complete):
            self._finish(None)

    # -- overridden by subclasses -------------------------------------------------------------------------------

    def subscribed(self) -> None:
        """React to the subscription: request may be called."""

    def arrived(self, item: T) -> None:
        """Process an item."""

    def finished(self, error: Exception | None) -> None:
        """React to the end, by the publisher or because of its error. Called at most once."""

    # -- called by subclasses -----------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether there is a subscription that has not ended."""
        return self._subscription is not None

    def request(self, n: int) -> None:
        """Request ``n`` more items. No-op without a subscription."""
        if self._subscription is None:
            return
        self.due = min(self.due + n, SATURATED)
        try:
            self._subscription.request(n)
        except Exception as error:
            self._fault(error)

    def abandon(self) -> None:
        """Cancel the subscription, even a later one, and drop further items."""
        self.ended = True
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            _cancel(subscription)

    def _fault(self, error: Exception) -> None:
        """End because the publisher broke a rule."""
        if not self.ended:
            self.abandon()
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
    """A subscriber that buffers a window of items for ``take``.

    Args:
        credit: the most items that are requested and not consumed.
    """

    def __init__(self, credit: int) -> None:
        super().__init__()
        self._window = Window(credit)
        self._items: deque[T] = deque()
        self._taken = 0
        self._opened = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.on_end: Callable[[], None] = _no_op
        "Called at the end."
        self.urgent: Callable[[], bool] = _never
        "Whether an error precedes the buffered items."

    async def take(self) -> T:
        """Wait for the next item and return it; the previous one is consumed. An error is raised once.

        Raises:
            StopAsyncIteration: the items have ended.
            RuntimeError: another task waits.
        """
        self._open()
        if self._taken:
            self._taken = 0
            if n := self._window.consumed(1, 0):
                self.request(n)
        while not self._items or (self._error is not None and self.urgent()):
            if self.ended:
                self._items.clear()
                error, self._error = self._error, None
                raise StopAsyncIteration if error is None else error
            await self._arrival()
        self._taken = 1
        return self._items.popleft()

    def subscribed(self) -> None:
        """See Intake. The window opens when both sides are ready."""
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
        self.on_end()

    def drop(self) -> None:
        """Drop the buffered items and the subscription."""
        if not self.home.elsewhere(self.drop):
            self._items.clear()
            self._error = None
            self.abandon()
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


def _no_op() -> None:
    """Default of ``on_end``."""


def _never() -> bool:
    return False


class InboxItems(AsyncIterator[T]):
    """The items of an inbox."""

    def __init__(self, inbox: Inbox[T]) -> None:
        self._inbox = inbox

    async def __anext__(self) -> T:
        return await self._inbox.take()


class PublisherItems(AsyncOnly, AsyncIterator[T], Generic[T]):
    """The items of a publisher.

    ``async for`` subscribes and takes the items. Leaving the loop early cancels the subscription: immediately in
    CPython, and in every Python with ``async with``. One task at a time may iterate.
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
        """Cancel the subscription and drop buffered items; iterating ends. No-op if it is canceled."""
        self._publisher = None
        if self._inbox is not None:
            self._inbox.drop()

    async def aclose(self) -> None:
        """Cancel the subscription, unless it has ended."""
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
    """Return the items of a publisher, for ``async for``.

    Args:
        publisher: subscribed to when the first item is requested.
        credit: the window: items requested at first; it is refilled when half of them are consumed, and bounds the
            buffered items. With 1, an item is requested when the previous one is consumed.

    Items that arrived before an error precede it. A publisher that signals more items than requested is canceled, and
    LimitExceeded is raised with rule 1.1.

    Raises:
        TypeError: the argument is not a publisher.
        ValueError: ``credit`` is less than 1.
    """
    if not isinstance(publisher, Publisher):
        raise TypeError(f"a publisher must have the method subscribe, unlike {type(publisher).__name__}")
    if credit < 1:
        raise ValueError(f"credit must be 1 or more, not {credit}")
    return PublisherItems(publisher, credit)


def serve_publisher(publisher: Publisher[T], *, credit: int = 1) -> PublisherItems[T]:
    """Return the items of a publisher as the answer of a handler. It requests one item beyond the credit of the peer,
    to detect the end.

    ``from_publisher``, or a larger ``credit``, requests further ahead of the peer.
    """
    return from_publisher(publisher, credit=credit)
