"""Convert publishers to Observables of reactivex (4 or later, the extra "rx"), which have no back-pressure, and back.

1. ``to_observable`` requests a window and refills it as the observer returns, so that buffers are bounded.
2. ``from_observable`` stores items without demand in a bounded buffer; the caller selects the action when it is full.
   The Observable may emit on any thread.

reactivex is imported on use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.core.credit import Window
from afflux.core.errors import LimitExceeded, MissingExtra
from afflux.reactive.contracts import Publisher, Subscriber
from afflux.reactive.links import Link, LinkPublisher, log
from afflux.reactive.publishing import Source, to_publisher
from afflux.reactive.pulling import BURST
from afflux.reactive.subscribing import Intake

if TYPE_CHECKING:
    import reactivex

__all__ = ["Overflow", "from_observable", "to_observable"]

T = TypeVar("T")

Overflow = Literal["error", "drop", "latest"]
"The action when a buffer is full: fail, drop the new item, or drop the oldest."


def to_observable(
    source: Source[T], *, credit: int = DEFAULT_CREDIT, scheduler: reactivex.abc.SchedulerBase | None = None
) -> reactivex.Observable[T]:
    """Return an Observable of ``source``: a publisher, or any argument of ``to_publisher``.

    Args:
        source: subscribed to once for each observer, on a thread with a running event loop.
        credit: the window: items requested ahead of the observer; it is refilled when the observer has returned from
            half of them.
        scheduler: calls the observer, one call after the other; None calls it on the event loop, where it must not
            block.

    An observer that passes its items on, as ``observe_on`` does, returns immediately and defeats the window: pass its
    scheduler here instead. An exception of an observer is logged and ends its subscription.

    Raises:
        MissingExtra: reactivex is not installed.
        TypeError: ``source`` cannot be converted to a publisher.
        ValueError: ``credit`` is less than 1.
    """
    rx = _reactivex()
    publisher = to_publisher(source)
    if credit < 1:
        raise ValueError(f"credit must be 1 or more, not {credit}")

    def subscribe(
        observer: reactivex.abc.ObserverBase[T], _: reactivex.abc.SchedulerBase | None = None
    ) -> reactivex.abc.DisposableBase:
        feeding = _Feeding(observer, credit, scheduler)
        publisher.subscribe(feeding)
        disposable: reactivex.abc.DisposableBase = rx.disposable.Disposable(feeding.dispose)
        return disposable

    observable: reactivex.Observable[T] = rx.create(subscribe)
    return observable


class _Feeding(Intake[Any]):
    """The subscriber of an Observable."""

    def __init__(self, observer: Any, credit: int, scheduler: Any) -> None:
        super().__init__()
        self._observer = observer
        self._scheduler = scheduler
        self._window = Window(credit)
        self._batch = max(1, credit // 2)
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        "Calls for the scheduler: for at most a window of items, and for the end."
        self._lock = Lock()
        self._working = False
        self._disposed = False

    def subscribed(self) -> None:
        self.request(self._window.initial())

    def arrived(self, item: Any) -> None:
        if self._scheduler is not None:
            self._call(self._observer.on_next, item)
        elif self._try(self._observer.on_next, item):
            self._consumed(1)

    def finished(self, error: Exception | None) -> None:
        method, arguments = (self._observer.on_error, (error,)) if error else (self._observer.on_completed, ())
        if self._scheduler is not None:
            self._call(method, *arguments)
        else:
            self._try(method, *arguments)

    def dispose(self) -> None:
        """End the subscription of the observer. On any thread."""
        with self._lock:
            self._disposed = True
            self._calls.clear()
        if not self.home.elsewhere(self.abandon):
            self.abandon()

    def _consumed(self, n: int) -> None:
        if self.active and (n := self._window.consumed(n, 0)):
            self.request(n)

    def _try(self, method: Callable[..., None], *arguments: Any) -> bool:
        try:
            method(*arguments)
        except Exception as error:
            log.error("afflux: an observer or its scheduler raised; the subscription is disposed of", exc_info=error)
            self.dispose()
            return False
        return True

    # -- with a scheduler ---------------------------------------------------------------------------------------

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            if self._disposed:
                return
            self._calls.append((method, arguments))
            if self._working:
                return
            self._working = True
        self._try(self._scheduler.schedule, self._work)

    def _work(self, *_: Any) -> None:
        """Make half a window of calls on the scheduler's thread, where no other such work runs."""
        done = 0
        while done < self._batch:
            with self._lock:
                if not self._calls:
                    self._working = False
                    break
                method, arguments = self._calls.popleft()
            self._try(method, *arguments)
            done += 1
        if not self.home.elsewhere(self._consumed, done):
            self._consumed(done)
        if done == self._batch:
            self._try(self._scheduler.schedule, self._work)


def from_observable(
    observable: reactivex.Observable[T],
    *,
    buffer: int = DEFAULT_CREDIT,
    overflow: Overflow = "error",
    scheduler: reactivex.abc.SchedulerBase | None = None,
) -> Publisher[T]:
    """Return a publisher of the items of an Observable.

    Args:
        observable: each subscription subscribes to it immediately, so that no item of a hot Observable is lost.
        buffer: the most items that wait for demand.
        overflow: the action for an item above that: "error" ends the stream with LimitExceeded after the buffered
            items, "drop" drops the new item, "latest" drops the oldest.
        scheduler: the default scheduler of the subscription, as in ``Observable.subscribe``.

    Raises:
        MissingExtra: reactivex is not installed.
        TypeError: the argument is not an Observable.
        ValueError: ``buffer`` is less than 1, or ``overflow`` is unknown.
    """
    rx = _reactivex()
    if not isinstance(observable, rx.abc.ObservableBase):
        raise TypeError(f"from_observable requires an Observable, not {type(observable).__name__}")
    if buffer < 1:
        raise ValueError(f"buffer must be 1 or more, not {buffer}")
    if overflow not in get_args(Overflow):
        raise ValueError(f"overflow must be one of {', '.join(get_args(Overflow))}, not {overflow!r}")
    return LinkPublisher(lambda subscriber: _Observing(subscriber, observable, buffer, overflow, scheduler))


class _Observing(Link[T]):
    """The subscription to an Observable. Its observer methods may be called on any thread, one after the other."""

    def __init__(
        self, subscriber: Subscriber[T], observable: Any, buffer: int, overflow: Overflow, scheduler: Any
    ) -> None:
        super().__init__(subscriber)
        self._observable = observable
        self._scheduler = scheduler
        self._most = buffer
        self._overflow = overflow
        self._items: deque[T] = deque()
        self._lock = Lock()
        self._scheduled = False
        self._ended = False
        self._error: Exception | None = None
        self._disposable: Any = None

    # -- called for the subscriber ------------------------------------------------------------------------------

    def begin(self) -> None:
        super().begin()
        if not self.over:
            self._observe()

    def wanted(self) -> None:
        self._drain_soon()

    def halt(self) -> None:
        with self._lock:
            self._ended = True
            self._items.clear()
        self._dispose()

    def _observe(self) -> None:
        try:
            self._disposable = self._observable.subscribe(
                self._on_next, self._on_error, self._on_completed, scheduler=self._scheduler
            )
        except Exception as error:
            self.abort(error)
        if self.over:
            self._dispose()

    def _dispose(self) -> None:
        disposable, self._disposable = self._disposable, None
        if disposable is not None:
            disposable.dispose()

    def _drain_soon(self) -> None:
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        if not self.home.elsewhere(self._drain) and not self.home.loop.is_closed():
            self.home.loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Signal the buffered items for which there is demand, then the end."""
        self._scheduled = False
        if self._ended:
            self._dispose()
        for _ in range(BURST):
            if not self.demand or self.over or not self._items:
                break
            with self._lock:
                item = self._items.popleft()
            self.next(item)
        else:
            self._drain_soon()
        if self._ended and not self._items:
            if self._error is None:
                self.complete()
            else:
                self.fail(self._error)

    # -- called by the Observable -------------------------------------------------------------------------------

    def _on_next(self, item: T) -> None:
        with self._lock:
            if self._ended:
                return
            if len(self._items) < self._most:
                self._items.append(item)
            elif self._overflow == "latest":
                self._items.popleft()
                self._items.append(item)
            elif self._overflow == "error":
                self._ended = True
                self._error = LimitExceeded(
                    f"the Observable is ahead of its subscriber by more than {self._most} items", rule="buffer-full"
                )
        self._drain_soon()

    def _on_error(self, error: Exception) -> None:
        self._end(error)

    def _on_completed(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._error = error
        self._drain_soon()


def _reactivex() -> Any:
    try:
        import reactivex
        import reactivex.disposable
    except ImportError:
        raise MissingExtra("an Observable of reactivex", "rx") from None
    return reactivex
