"""What every publisher here is made of: the subscription that keeps its side of the rules. No source lives here.

1. Signals are made on the thread of the event loop on which ``subscribe`` was called, one after the other.
2. No signal is made from inside ``request`` or ``cancel``: there is no recursion to bound (3.3).
3. ``request`` and ``cancel`` may be called on any thread: on others than the loop's they are done at its next turn.
4. What is over holds no reference to its subscriber (3.13).
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
    """The event loop that an object belongs to, and its thread.

    Raises:
        RuntimeError: there is no running event loop on this thread.
    """

    __slots__ = ("_thread", "loop")

    def __init__(self) -> None:
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "afflux's publishers and processors belong to an event loop: make and subscribe to them from a "
                "coroutine, or from a callback of the loop"
            ) from None
        self._thread = get_ident()

    def elsewhere(self, work: Callable[..., None], *arguments: Any) -> bool:
        """Whether this is another thread than the loop's; then ``work`` will be done there, unless it is closed."""
        if get_ident() == self._thread:
            return False
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(work, *arguments)
        return True


class Link(Subscription, Generic[T]):
    """One subscription: demand in, signals out. A subclass knows where items come from."""

    def __init__(self, subscriber: Subscriber[T]) -> None:
        self.home = Home()
        self.demand = 0
        "Items that were asked for and not signalled."
        self._subscriber: Subscriber[T] | None = subscriber
        self._doom: Exception | None = None
        "The last signal, when it is decided and not made yet."

    # -- what the subscriber calls ----------------------------------------------------------------------------

    def request(self, n: int, /) -> None:
        """See Subscription."""
        if self.home.elsewhere(self.request, n) or self.over or self.home.loop.is_closed():
            return
        if isinstance(n, int) and n > 0:
            self.demand = min(self.demand + n, SATURATED)
            self.wanted()
            return
        self._doom = ValueError(f"request(n) takes a whole number of 1 or more, not {n!r} (Reactive Streams, rule 3.9)")
        self.home.loop.call_soon(self._meet_doom, self._doom)
        self.halt()

    def cancel(self) -> None:
        """See Subscription."""
        if self.home.elsewhere(self.cancel) or self._subscriber is None or self.home.loop.is_closed():
            return
        self._subscriber = None
        if self._doom is None:
            self.halt()

    # -- what a subclass is told, and replaces ------------------------------------------------------------------

    def wanted(self) -> None:
        """There is more demand."""

    def halt(self) -> None:
        """Nothing more is wanted: stop soon. It is called once at most, and must not raise."""

    # -- what a subclass calls ----------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether no item may be signalled any more."""
        return self._subscriber is None or self._doom is not None

    def begin(self) -> None:
        """The first signal."""
        if self._subscriber is not None:
            self._signal(self._subscriber.on_subscribe, self)

    def next(self, item: T) -> None:
        """Signal an item, for which there must be demand; nothing when it is over."""
        if self._subscriber is None or self._doom is not None:
            return
        if item is None:
            self.abort(TypeError("the source made None, which can not be an item (Reactive Streams, rule 2.13)"))
            return
        self.demand -= 1
        self._signal(self._subscriber.on_next, item)

    def complete(self) -> None:
        """The last signal, when all went well; nothing when it is over."""
        if (subscriber := self._release()) is not None:
            self._signal(subscriber.on_complete)

    def fail(self, error: Exception) -> None:
        """The last signal, when the source has failed; nothing when it is over."""
        if (subscriber := self._release()) is not None:
            self._signal(subscriber.on_error, error)

    def abort(self, error: Exception) -> None:
        """Fail for a reason that the source does not know: stop it."""
        if not self.over:
            self.fail(error)
            self.halt()

    # -- inside -----------------------------------------------------------------------------------------------

    def _release(self) -> Subscriber[T] | None:
        """The subscriber, for its last signal; None when that was, or is another."""
        if self._doom is not None:
            return None
        subscriber, self._subscriber = self._subscriber, None
        return subscriber

    def _meet_doom(self, error: Exception) -> None:
        self._doom = None
        self.fail(error)

    def _signal(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:
            _report(method, error)
            self.cancel()


class LinkPublisher(Publisher[T]):
    """A publisher that makes a link for each subscriber."""

    def __init__(self, link: Callable[[Subscriber[T]], Link[T]]) -> None:
        self._link = link

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """See Publisher."""
        attach(subscriber, self._link)


def attach(subscriber: Subscriber[T], make: Callable[[Subscriber[T]], Link[T]]) -> None:
    """Begin with a subscriber; what ``make`` raises refuses it (1.9).

    Raises:
        TypeError: it is no subscriber.
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
            f"a subscriber has the methods {', '.join(_SIGNALS)}, unlike {type(subscriber).__name__} "
            "(Reactive Streams, rule 1.9)"
        )
    for name in _SIGNALS:
        if iscoroutinefunction(getattr(subscriber, name)):
            raise TypeError(
                f"{type(subscriber).__name__}.{name} is async, and signals are not waited for: make it a plain method, "
                "or take items with from_publisher()"
            )


class _Refusal(Subscription):
    """The subscription of one who is refused."""

    def __init__(self) -> None:
        self.canceled = False

    def request(self, n: int, /) -> None:
        """Nothing will come but the error."""

    def cancel(self) -> None:
        """Not even the error is wanted."""
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
    """Rule 2.13: what a subscriber raises can not be told to it, so it is logged."""
    name = getattr(method, "__qualname__", repr(method))
    log.error(
        "afflux: %s raised; its subscription is canceled (Reactive Streams, rule 2.13)",
        name,
        exc_info=error,
    )
