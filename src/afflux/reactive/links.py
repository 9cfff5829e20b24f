"""Implement the rules of a subscription, for every source.

1. Signals are sent on the thread of the event loop on which ``subscribe`` was called, one after the other.
2. No signal is sent from inside ``request`` or ``cancel``, so recursion is bounded (3.3).
3. ``request`` and ``cancel`` may be called on any thread; calls on other threads run in the loop's next turn.
4. A subscription has no reference to its subscriber after its end (3.13).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from threading import get_ident
from typing import Any, Generic, TypeVar

from afflux.core.credit import SATURATED
from afflux.reactive.contracts import Publisher, Subscriber, Subscription

__all__ = ["Home", "Link", "LinkPublisher", "attach", "log"]

log = logging.getLogger("afflux")

T = TypeVar("T")

_SIGNALS = ("on_subscribe", "on_next", "on_error", "on_complete")


class Home:
    """The event loop of an object, and its thread.

    Raises:
        RuntimeError: this thread has no running event loop.
    """

    __slots__ = ("_thread", "loop")

    def __init__(self) -> None:
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "publishers and processors belong to an event loop: create and subscribe to them in a coroutine, "
                "or in a callback of the loop"
            ) from None
        self._thread = get_ident()

    def elsewhere(self, work: Callable[..., None], *arguments: Any) -> bool:
        """Return whether this thread is not the loop's, and if so schedule ``work`` there, unless the loop is
        closed."""
        if get_ident() == self._thread:
            return False
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(work, *arguments)
        return True


class Link(Subscription, Generic[T]):
    """A subscription. Subclasses provide the items."""

    def __init__(self, subscriber: Subscriber[T]) -> None:
        self.home = Home()
        self.demand = 0
        "Items requested and not signalled."
        self._subscriber: Subscriber[T] | None = subscriber
        self._pending_error: Exception | None = None
        "The error that is scheduled as the last signal."

    # -- called by the subscriber -----------------------------------------------------------------------------

    def request(self, n: int, /) -> None:
        """See Subscription."""
        if self.home.elsewhere(self.request, n) or self.over or self.home.loop.is_closed():
            return
        if isinstance(n, int) and n > 0:
            self.demand = min(self.demand + n, SATURATED)
            self.wanted()
            return
        error = ValueError(f"request(n) requires a whole number of 1 or more, not {n!r} (Reactive Streams, rule 3.9)")
        self._pending_error = error
        self.home.loop.call_soon(self._signal_pending, error)
        self.halt()

    def cancel(self) -> None:
        """See Subscription."""
        if self.home.elsewhere(self.cancel) or self._subscriber is None or self.home.loop.is_closed():
            return
        self._subscriber = None
        if self._pending_error is None:
            self.halt()

    # -- overridden by subclasses -------------------------------------------------------------------------------

    def wanted(self) -> None:
        """React to more demand."""

    def halt(self) -> None:
        """Stop soon, because no more items are accepted. Called at most once; it must not raise."""

    # -- called by subclasses -----------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the subscription accepts no more items."""
        return self._subscriber is None or self._pending_error is not None

    def begin(self) -> None:
        """Send the first signal."""
        if self._subscriber is not None:
            self._signal(self._subscriber.on_subscribe, self)

    def next(self, item: T) -> None:
        """Signal an item, for which there must be demand. No-op after the end."""
        if self._subscriber is None or self._pending_error is not None:
            return
        if item is None:
            self.abort(TypeError("the source returned None, which cannot be an item (Reactive Streams, rule 2.13)"))
            return
        self.demand -= 1
        self._signal(self._subscriber.on_next, item)

    def complete(self) -> None:
        """Signal completion. No-op after the end."""
        if (subscriber := self._release()) is not None:
            self._signal(subscriber.on_complete)

    def fail(self, error: Exception) -> None:
        """Signal an error of the source. No-op after the end."""
        if (subscriber := self._release()) is not None:
            self._signal(subscriber.on_error, error)

    def abort(self, error: Exception) -> None:
        """Signal an error and stop the source."""
        if not self.over:
            self.fail(error)
            self.halt()

    # -- inside -----------------------------------------------------------------------------------------------

    def _release(self) -> Subscriber[T] | None:
        """Return the subscriber for its last signal; None if another last signal was sent or is pending."""
        if self._pending_error is not None:
            return None
        subscriber, self._subscriber = self._subscriber, None
        return subscriber

    def _signal_pending(self, error: Exception) -> None:
        self._pending_error = None
        self.fail(error)

    def _signal(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:
            _report(method, error)
            self.cancel()


class LinkPublisher(Publisher[T]):
    """A publisher that creates a link for each subscriber."""

    def __init__(self, link: Callable[[Subscriber[T]], Link[T]]) -> None:
        self._link = link

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """See Publisher."""
        attach(subscriber, self._link)


def attach(subscriber: Subscriber[T], make: Callable[[Subscriber[T]], Link[T]]) -> None:
    """Attach a subscriber; an exception of ``make`` refuses it (1.9).

    Raises:
        TypeError: the argument is not a subscriber.
    """
    _check(subscriber)
    try:
        link = make(subscriber)
    except Exception as error:
        _refuse(subscriber, error)
    else:
        link.begin()


def _check(subscriber: Any) -> None:
    if not isinstance(subscriber, Subscriber):
        raise TypeError(
            f"a subscriber must have the methods {', '.join(_SIGNALS)}, unlike {type(subscriber).__name__} "
            "(Reactive Streams, rule 1.9)"
        )
    for name in _SIGNALS:
        if iscoroutinefunction(getattr(subscriber, name)):
            raise TypeError(
                f"{type(subscriber).__name__}.{name} is async, but signals are not awaited: use a plain method, "
                "or from_publisher()"
            )


class _Refusal(Subscription):
    """The subscription of a refused subscriber."""

    def __init__(self) -> None:
        self.canceled = False

    def request(self, n: int, /) -> None:
        """No-op: only the error follows."""

    def cancel(self) -> None:
        """Cancel the error as well."""
        self.canceled = True


def _refuse(subscriber: Subscriber[Any], error: Exception) -> None:
    refusal = _Refusal()
    method: Callable[..., None] = subscriber.on_subscribe
    try:
        method(refusal)
        if not refusal.canceled:
            method = subscriber.on_error
            method(error)
    except Exception as raised:
        _report(method, raised)


def _report(method: Callable[..., None], error: Exception) -> None:
    """Log an exception of a subscriber, which cannot be signalled to it (2.13)."""
    name = getattr(method, "__qualname__", repr(method))
    log.error(
        "afflux: %s raised; its subscription is canceled (Reactive Streams, rule 2.13)",
        name,
        exc_info=error,
    )
