"""Open a channel with its source's first item, send the rest, and end the source with the stream or the connection.

The source is consumed by a task of the connection. It ends when the stream does, whatever the source waits for. A
channel that finds no lease keeps its source and the first item for the next use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from afflux.aio.flow import Inbound, ItemStream
from afflux.aio.sender import Sender, Source
from afflux.calls import payload_for
from afflux.core.errors import LeaseExpired
from afflux.core.payload import Payload, PayloadLike, payload_of

if TYPE_CHECKING:
    from afflux.aio.driver import Driver
    from afflux.core.engine import Engine

__all__ = ["Channel"]


class _Outgoing:
    """The source of a channel, and its first item until that has opened the stream."""

    __slots__ = ("_call", "_queued", "again", "items", "producer")

    def __init__(self, source: Source, call: tuple[Any, ...]) -> None:
        self.items: Any = source if hasattr(source, "__anext__") else _as_async(source)
        self._call = call
        self._queued: list[PayloadLike] = []
        self.producer: asyncio.Task[None] | None = None
        "The task that sends the items; later the one that closes the source."
        self.again = False
        "There was no lease: nothing was sent, and the next use opens the stream again."

    def launch(self, inbound: Inbound, n: int) -> None:
        """Send the items, the first of which opens the stream, with ``n`` items of credit by hand."""
        driver = inbound.driver
        driver.state.check()
        inbound.ask_early(n)
        self.again = False
        self.producer = driver.tasks.spawn(_run_channel(driver, inbound, self))
        if inbound.id is None:
            driver.streams.unopened[inbound] = self.producer

    async def opening(self, engine: Engine) -> Payload | None:
        """The request: the first item, with the metadata of the call. None when the source has no item."""
        if not self._queued:
            async for item in self.items:
                if queued := item if type(item) is list else [item]:
                    self._queued = queued
                    break
            else:
                return None
        return payload_for(engine, payload_of(self._queued[0]), *self._call)

    def rest(self) -> Source:
        """The items after the request."""
        queued, self._queued = self._queued[1:], []
        return _chain(queued, self.items) if queued else self.items

    def give_up(self, driver: Driver) -> None:
        """Nothing more is wanted: end the source."""
        if self.producer is not None:
            self.producer.cancel()
        if self.again and not driver.state.loop.is_closed():
            self.again = False
            self.producer = driver.tasks.spawn(self.close())

    async def close(self) -> None:
        """Close the source."""
        if hasattr(self.items, "aclose"):
            await self.items.aclose()


class Channel(ItemStream):
    """The items that answer a channel. Leaving its ``async with`` also ends the source."""

    __slots__ = ("_outgoing",)

    def __init__(self, inbound: Inbound, source: Source, call: tuple[Any, ...], stop: Any) -> None:
        self._outgoing = outgoing = _Outgoing(source, call)
        super().__init__(inbound, opener=lambda n: outgoing.launch(inbound, n), stop=stop)

    def cancel(self) -> None:
        """Take no more, and send no more."""
        super().cancel()
        self._outgoing.give_up(self._inbound.driver)

    def go_on(self, producer: asyncio.Task[None] | None) -> Channel:
        """It was opened by a former process; ``producer`` sends the rest, if there may be one."""
        self._open = None
        self._outgoing.producer = producer
        return self

    def __del__(self) -> None:
        super().__del__()
        if self._outgoing.again:
            self._inbound.later(partial(self._outgoing.give_up, self._inbound.driver))

    async def aclose(self) -> None:
        """Cancel, and wait until the source is closed."""
        self.cancel()
        if self._outgoing.producer is not None:
            await asyncio.wait((self._outgoing.producer,))

    async def _advance(self) -> bool:
        inbound, outgoing = self._inbound, self._outgoing
        if outgoing.again:
            inbound.start_over()
            if inbound.window is None:
                outgoing.launch(inbound, 0)  # what was asked for by hand before
            else:
                self._open = lambda n: outgoing.launch(inbound, n)
        return await super()._advance()


async def _run_channel(driver: Driver, inbound: Inbound, outgoing: _Outgoing) -> None:
    """The requester's half of a channel. It holds no reference to the Channel, so that may die before it."""
    sender = None
    try:
        if (sender := await _open_channel(driver, inbound, outgoing)) is not None:
            await sender.send_all(outgoing.rest())
    except LeaseExpired as error:
        outgoing.again = sender is None
        _channel_failed(driver, inbound, error)
    except Exception as error:
        _channel_failed(driver, inbound, error)
    except asyncio.CancelledError:
        # The task ends without it: with its traceback, the task and what this frame refers to would hold each other.
        if sender is not None and sender.failure is not None:
            _channel_failed(driver, inbound, sender.failure)
    finally:
        driver.streams.unopened.pop(inbound, None)
        if sender is not None:
            driver.streams.senders.pop(sender.id, None)
        if not outgoing.again:
            await outgoing.close()


async def _open_channel(driver: Driver, inbound: Inbound, outgoing: _Outgoing) -> Sender | None:
    """Open the stream with the source's first item; None when it has none."""
    payload = await outgoing.opening(driver.engine)
    if payload is None:
        inbound.finish(None)
        return None
    await driver.calls.writable(len(payload))
    credit = inbound.first_grant(0)
    try:
        stream = inbound.id = driver.open("channel", payload, credit)
    except BaseException:
        inbound.take_back(credit, by_hand=True)
        raise
    driver.streams.inbounds[stream] = inbound
    driver.streams.unopened.pop(inbound, None)
    sender = driver.streams.senders[stream] = Sender(driver, stream)
    sender.task = asyncio.current_task()
    driver.output.flush_soon()
    return sender


def _channel_failed(driver: Driver, inbound: Inbound, error: Exception) -> None:
    """Report an error to the consumer of the items, and to the peer if the stream is open."""
    inbound.finish(error)
    if inbound.id is not None:
        driver.streams.inbounds.pop(inbound.id, None)
        driver.engine.fail(inbound.id, error)
        driver.output.flush_soon()


async def _chain(first: list[PayloadLike], rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for item in rest:
        yield item


async def _as_async(source: Any) -> AsyncIterator[Any]:
    if hasattr(source, "__aiter__"):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item
