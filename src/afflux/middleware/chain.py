"""Combine layers of middleware around an answer and around items."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self
from weakref import ref

from afflux.aio.flow import ItemStream
from afflux.calls.arguments import AsyncOnly, awaits
from afflux.core.errors import LocalProtocolError
from afflux.core.payload import Payload, payload_of
from afflux.middleware.base import Call, Next

__all__ = ["Flow", "around", "items_of", "opened"]


def around(layers: Sequence[Callable[..., Any]], innermost: Callable[[Call], Any]) -> Next:
    """Combine layers to a function, for the verbs with one answer. ``innermost`` may be async."""

    async def answer(call: Call) -> Payload | None:
        found = innermost(call)
        return _answer(await found if awaits(found) else found)

    step: Next = answer
    for layer in reversed(layers):
        step = _layer(layer, step)
    return step


def _layer(layer: Callable[..., Any], following: Next) -> Next:
    async def step(call: Call) -> Payload | None:
        return _answer(await layer(call, following))

    return step


def _answer(value: Any) -> Payload | None:
    return value if value is None or type(value) is Payload else payload_of(value)


class Flow(AsyncOnly, AsyncIterator[Payload]):
    """The items of one call, passed through its layers one by one.

    Use it like a stream: ``async for``, ``async with``, ``request``, ``cancel``, ``aclose``. At its end, all iterators
    that the layers have opened are closed, the outermost first.
    """

    def __init__(self, layers: Sequence[Callable[..., Any]], source: Callable[[Call], Any], call: Call) -> None:
        self._layers = layers
        self._source = source
        self._links: list[_Link] = []
        "The open iterators of the layers, the outermost first."
        self._granted = 0
        self._waits = False
        self.over = False
        "True after the end."
        self._outer = self._open(0, call)

    @property
    def native(self) -> ItemStream | None:
        """The peer's own stream, if the layers pass it unchanged."""
        source: Any = self._outer
        while isinstance(source, _Link):
            source = source.source
        return source if isinstance(source, ItemStream) else None

    @property
    def id(self) -> int | None:
        """The stream's id; None while it is not open."""
        return next((stream.id for stream in self._streams()), None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Payload:
        if self.over:
            raise StopAsyncIteration
        if self._waits:
            raise RuntimeError("another task waits for this stream's next item")
        self._waits = True
        try:
            return await self._outer.__anext__()
        except StopAsyncIteration:
            self.over = True
            await self._close()
            raise
        except (Exception, CancelledError):
            self.over = True
            with suppress(Exception):  # the first error is raised
                await self._close()
            raise
        finally:
            self._waits = False

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """Yield the items in lists, as a stream does, with one item each."""
        async for item in self:
            yield [item]

    def request(self, n: int) -> None:
        """Grant ``n`` more items by hand, 1 to 2^31-1, when the layers have opened the stream.

        Raises:
            LocalProtocolError: ``n`` is out of range.
        """
        if not 0 < n <= 0x7FFFFFFF:
            raise LocalProtocolError(f"a grant is 1 to {0x7FFFFFFF}, not {n}", rule="FC-24", stream=self.id)
        streams = self._streams()
        for stream in streams:
            stream.request(n)
        if not streams:
            self._granted += n

    def cancel(self) -> None:
        """Cancel the items. No-op after the end."""
        self.over = True
        for stream in self._streams():
            stream.cancel()

    async def aclose(self) -> None:
        """Cancel, and close the iterators of the layers. A task that waits for an item gets the end."""
        self.cancel()
        if not self._waits:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _streams(self) -> list[ItemStream]:
        return [link.source for link in self._links if isinstance(link.source, ItemStream)]

    def _open(self, at: int, call: Call) -> _Link:
        """Open layer ``at`` for a call; the source follows the last layer."""
        self._links = [link for link in self._links if not link.over]
        self._links.append(link := _Link())
        if at == len(self._layers):
            link.source = self._source(call)
            if self._granted and isinstance(link.source, ItemStream):
                granted, self._granted = self._granted, 0
                link.source.request(granted)
        else:
            # A weak reference, because a loop that is left early is detected by the deletion of this object.
            link.source = self._layers[at](call, partial(_open_next, ref(self), at + 1))
        return link

    async def _close(self) -> None:
        links, self._links = self._links, []
        failure = None
        for link in links:
            try:
                await link.aclose()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _open_next(flow: ref[Flow], at: int, call: Call) -> AsyncIterator[Payload]:
    alive = flow()
    if alive is None or alive.over:
        raise RuntimeError("the stream is closed")
    return alive._open(at, call)


class _Link(AsyncIterator[Payload]):
    """The items of one layer, as payloads."""

    __slots__ = ("__weakref__", "over", "source")

    def __init__(self) -> None:
        self.source: Any = None
        self.over = False
        "True after its end or ``aclose``."

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Payload:
        try:
            if not hasattr(self.source, "__anext__"):
                self.source = await _iterator(self.source)
            item = await self.source.__anext__()
            return item if type(item) is Payload else payload_of(item)
        except StopAsyncIteration:
            self.over = True
            raise
        except Exception:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the iterator. No-op if it is closed."""
        self.over = True
        await _close(self.source)


async def _iterator(source: Any) -> AsyncIterator[Any]:
    found = await source if awaits(source) else source
    if not isinstance(found, AsyncIterable):
        raise TypeError(f"stream and channel of a middleware return an async iterator, not {type(found).__name__}")
    return aiter(found)


@asynccontextmanager
async def opened(make: Callable[[], Any]) -> AsyncIterator[Any]:
    """Open the iterable, async or not, that a handler's stream or channel returns, and close it at the end."""
    source = make()
    try:
        if awaits(source):
            source = await source
        yield () if source is None else source
    finally:
        await _close(source)


async def items_of(make: Callable[[], Any]) -> AsyncIterator[Payload]:
    """Yield the items of a handler's stream or channel as payloads, those of lists one by one."""
    async with opened(make) as source:
        if isinstance(source, AsyncIterable):
            async for item in source:
                for one in item if type(item) is list else (item,):
                    yield payload_of(one)
        else:
            for item in source:
                for one in item if type(item) is list else (item,):
                    yield payload_of(one)


async def _close(source: Any) -> None:
    """Close an iterator, or a coroutine that was not awaited, if it can be closed."""
    if hasattr(source, "aclose"):
        await source.aclose()
    elif hasattr(source, "close"):
        source.close()
