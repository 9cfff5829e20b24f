"""Open the streams and channels that an application requests: on first use, with the credit granted by then.

A channel opens with its source's first item, and sends the rest. A task of the connection consumes the source. The task
ends when the stream does, even while the source is waiting. A channel that finds no lease retains its source and the
first item for the next use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from afflux.aio.driver import Driver
from afflux.aio.flow import Inbound, ItemStream
from afflux.aio.sender import Sender, Source
from afflux.calls import payload_for
from afflux.core.autocredit import Kept, check_kept
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import LeaseExpired
from afflux.core.events import Verb
from afflux.core.payload import Payload, PayloadLike, payload_of

if TYPE_CHECKING:
    from afflux.core.engine import Engine

__all__ = ["Channel", "cancel_stream", "fail_channel", "new_inbound", "new_items"]


def new_items(driver: Driver, protocol: ProtocolEntry, verb: Verb, payload: Payload, credit: Kept) -> ItemStream:
    """Return the items of a request; the stream opens on first use."""
    inbound = new_inbound(driver, protocol, verb, credit)
    inbound.verb, inbound.asked = verb, len(payload)

    def opener(n: int) -> None:
        driver = inbound.driver
        driver.state.check()
        credit = inbound.first_grant(n)
        try:
            stream = inbound.id = driver.open(verb, payload, credit)
        except BaseException:
            inbound.take_back(credit)
            raise
        driver.streams.inbounds[stream] = inbound
        driver.output.flush_soon()

    return ItemStream(inbound, opener=opener, stop=lambda: cancel_stream(inbound))


def new_inbound(driver: Driver, protocol: ProtocolEntry, verb: str, credit: Kept) -> Inbound:
    """Return the inbound half of a stream that is not open yet.

    Raises:
        Unsupported: the protocol does not have the verb.
        ConnectionClosed: the connection is over, and no other will follow.
    """
    check_kept(credit)
    protocol.check(verb)
    if driver.renew is None:
        driver.state.check()
    return Inbound(driver, credit)


def cancel_stream(inbound: Inbound) -> None:
    """Cancel a stream that this side has opened, if it is live."""
    driver = inbound.driver
    if inbound.id is not None and driver.streams.inbounds.pop(inbound.id, None) is not None:
        driver.streams.cancel_own(inbound.id)


class _Outgoing:
    """The items that a channel sends; the first of them is buffered until it opens the stream."""

    __slots__ = ("_call", "_queued", "again", "items", "producer")

    def __init__(self, source: Source, call: tuple[Any, ...]) -> None:
        self.items: Any = source if hasattr(source, "__anext__") else _as_async(source)
        self._call = call
        self._queued: list[PayloadLike] = []
        self.producer: asyncio.Task[None] | None = None
        "The task that sends the items; later the task that closes the source."
        self.again = False
        "The stream was not opened for lack of a lease: nothing was sent, and the next use tries again."

    def launch(self, inbound: Inbound, n: int) -> None:
        """Send the items, the first of which opens the stream, with ``n`` items of credit granted by hand."""
        driver = inbound.driver
        driver.state.check()
        inbound.ask_early(n)
        self.again = False
        self.producer = driver.tasks.spawn(_run_channel(driver, inbound, self))
        if inbound.id is None:
            driver.streams.unopened[inbound] = self.producer

    async def opening(self, engine: Engine) -> Payload | None:
        """Return the request: the first item with the metadata of the call, or None when the source is empty."""
        if not self._queued:
            async for item in self.items:
                if queued := item if type(item) is list else [item]:
                    self._queued = queued
                    break
            else:
                return None
        return payload_for(engine, payload_of(self._queued[0]), *self._call)

    def rest(self) -> Source:
        """Return the items that follow the request."""
        queued, self._queued = self._queued[1:], []
        return _chain(queued, self.items) if queued else self.items

    def end_source(self, driver: Driver) -> None:
        """End the source: no more items are wanted."""
        if self.producer is not None:
            self.producer.cancel()
        if self.again and not driver.state.loop.is_closed():  # no task is left that would close the source
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
        """Stop receiving and sending."""
        super().cancel()
        self._outgoing.end_source(self._inbound.driver)

    def continue_with(self, producer: asyncio.Task[None] | None) -> Channel:
        """Continue a channel of a former process; ``producer`` sends the remaining items, if there may be any."""
        self._open = None
        self._outgoing.producer = producer
        return self

    def __del__(self) -> None:
        super().__del__()
        if self._outgoing.again:
            self._inbound.later(partial(self._outgoing.end_source, self._inbound.driver))

    async def aclose(self) -> None:
        """Cancel, and wait until the source is closed."""
        if (producer := self._outgoing.producer) is not None and not producer.done():
            self._inbound.check_loop()
        self.cancel()
        if self._outgoing.producer is not None:
            await asyncio.wait((self._outgoing.producer,))

    async def _advance(self) -> bool:
        inbound, outgoing = self._inbound, self._outgoing
        if outgoing.again:
            inbound.start_over()
            if inbound.window is None:
                outgoing.launch(inbound, 0)  # the credit granted by hand before
            else:
                self._open = lambda n: outgoing.launch(inbound, n)
        return await super()._advance()


async def _run_channel(driver: Driver, inbound: Inbound, outgoing: _Outgoing) -> None:
    """Run the requester's half of a channel. It has no reference to the Channel, which may therefore be freed first."""
    sender = None
    try:
        if (sender := await _open_channel(driver, inbound, outgoing)) is not None:
            await sender.send_all(outgoing.rest())
    except LeaseExpired as error:
        outgoing.again = sender is None
        fail_channel(driver, inbound, error)
    except Exception as error:
        fail_channel(driver, inbound, error)
    except asyncio.CancelledError:
        # Swallowed: its traceback would make the task and the objects of this frame refer to each other.
        if sender is not None and sender.failure is not None:
            fail_channel(driver, inbound, sender.failure)
    finally:
        driver.streams.unopened.pop(inbound, None)
        if sender is not None:
            driver.streams.senders.pop(sender.id, None)
        if not outgoing.again:
            await outgoing.close()


async def _open_channel(driver: Driver, inbound: Inbound, outgoing: _Outgoing) -> Sender | None:
    """Open the stream with the source's first item; return None when the source is empty."""
    payload = await outgoing.opening(driver.engine)
    if payload is None:
        inbound.finish(None)
        return None
    await driver.calls.writable("channel", len(payload))
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


def fail_channel(driver: Driver, inbound: Inbound, error: Exception) -> None:
    """Raise ``error`` to the consumer of the items and, if the stream is open, report it to the peer."""
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
