"""Convert an iterable, async or not, to a publisher. See pulling.py for its subscriptions."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from afflux.aio.flow import ItemStream
from afflux.reactive.contracts import Publisher, Subscriber
from afflux.reactive.links import Link, LinkPublisher
from afflux.reactive.pulling import Pulled
from afflux.reactive.wire import Streamed

__all__ = ["Source", "to_publisher"]

T = TypeVar("T")

Source = AsyncIterable[T] | Iterable[T] | Callable[[], AsyncIterable[T] | Iterable[T]] | Publisher[T]
"The argument of ``to_publisher``."


def to_publisher(source: Source[T]) -> Publisher[T]:
    """Return a publisher of the items of ``source``.

    Args:
        source: an async iterable or an iterable, which each subscription iterates; or a function without arguments
            that returns one, such as an async generator function, which each subscription calls. The first subscriber
            of an iterator gets its items, further subscribers get an error. The same applies to a peer's stream, whose
            credit is the demand if it has ``credit=0``. A publisher is returned unchanged.

    A requested item is pulled on the event loop, so a plain iterable must not block. An exception of ``source`` is
    signalled by ``on_error``. Canceling closes the iterator, and interrupts its wait.

    Raises:
        TypeError: ``source`` has another type.
    """
    if _is_observable(source):
        raise TypeError("an Observable has no back-pressure: convert it with from_observable()")
    if isinstance(source, ItemStream | AsyncIterable | Iterable):
        return LinkPublisher(_Reading(source).link)
    if isinstance(source, Publisher):
        return source
    if callable(source) and not iscoroutinefunction(source):
        return LinkPublisher(lambda subscriber: _Reading(source()).link(subscriber))
    raise TypeError(
        "expected an iterable or async iterable, a function that returns one, or a peer's stream, "
        f"not {'an async function that returns' if callable(source) else type(source).__name__}"
    )


class _Reading:
    """Creates links to an iterable, or the only link to an iterator."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._read = False

    def link(self, subscriber: Subscriber[Any]) -> Link[Any]:
        source = self._source
        if self._read:
            raise RuntimeError(
                f"{type(source).__name__} can be iterated once and already has a subscriber "
                "(Reactive Streams, rule 1.11)"
            )
        link: Link[Any]
        items: object
        if isinstance(source, ItemStream):
            items = source
            link = Streamed(subscriber, source)
        elif isinstance(source, AsyncIterable):
            items = pulled = aiter(source)
            link = Pulled(subscriber, pulled)
        else:
            items = plain = iter(source)
            link = Pulled(subscriber, _Plain(plain), ahead=isinstance(source, Sequence))
        self._read = items is source
        return link


class _Plain(AsyncIterator[T]):
    """An iterator as an async iterator."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items

    async def __anext__(self) -> T:
        for item in self._items:
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close a generator."""
        if (close := getattr(self._items, "close", None)) is not None:
            close()


def _is_observable(source: object) -> bool:
    """Whether it is an Observable of reactivex, which is then already imported."""
    reactivex = sys.modules.get("reactivex")
    return reactivex is not None and isinstance(source, cast(Any, reactivex).abc.ObservableBase)
