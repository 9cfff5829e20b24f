"""Serve the streams and channels of a peer: one task for each handler, with slots separate from those of requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from afflux.aio.flow import Inbound, ItemStream
from afflux.aio.sender import Sender
from afflux.aio.slots import Producing, Slots, WaitingQueue
from afflux.calls.arguments import awaits
from afflux.core.autocredit import Kept
from afflux.core.errors import Canceled
from afflux.core.events import Opened

__all__ = ["STOPS", "Producers"]

STOPS = (KeyboardInterrupt, SystemExit)
"Exceptions of a handler that also leave the event loop."


class Producers:
    """The handlers of the streams and channels of one connection."""

    __slots__ = ("_credit", "_slots", "queue")

    def __init__(self, slots: Slots, credit: Kept) -> None:
        self._slots = slots
        self._credit = credit
        self.queue = WaitingQueue(slots)

    def add(self, event: Opened, sent: int) -> None:
        """Queue a stream or channel for a slot; a former process has sent ``sent`` items of its answer."""
        self.queue.extend([(event.verb, event.stream, self._halves(event, sent))])

    def begin(self) -> None:
        """Begin as many handlers as there are slots, while there is room."""
        slots, queue = self._slots, self.queue.items
        limits, room = slots.driver.engine.limits, slots.room
        while isinstance(queue, deque) and queue and room > 0 and slots.producing < limits.streams:
            verb, _, asked = one = queue.popleft()
            if isinstance(asked, Producing) and not (slots.canceled and slots.was_canceled(one)):
                self.queue.begun(1)
                self._begin(verb, asked)
        if queue and not slots.driver.state.over:
            slots.driver.room.handlers_wait |= room <= 0
            self.queue.watch()

    def _begin(self, verb: str, asked: Producing) -> None:
        slots, stream = self._slots, asked.event.stream
        driver = slots.driver
        if asked.items is None:
            driver.input.consumed(len(asked.event.payload), 1)  # a channel's first item is consumed by its handler
        slots.producing += 1
        slots.begin(verb, stream, driver.tasks.spawn(self._produce(asked), slots.context.copy(), stream), asked)

    async def _produce(self, asked: Producing) -> None:
        """Run one producer to its end, and close its source in any case."""
        event, sender, items, sent = asked.event, asked.sender, asked.items, asked.sent
        source: Any = None
        try:
            source = self._slots.verbs[event.verb](event.payload if items is None else items)
            if awaits(source):
                source = await source
            source = () if source is None else source
            if sent:
                from afflux.resume.recovery import skipping

                source = skipping(source, sent)
            if source != () or not sender.completed:
                await sender.send_all(source)
        except asyncio.CancelledError:
            if not sender.over:
                self._slots.fail(event.verb, event.stream, Canceled("the handler was canceled"))
            raise
        except BaseException as error:
            if not sender.over:
                self._slots.fail(event.verb, event.stream, error, event.payload)
            if isinstance(error, STOPS):
                raise
        finally:
            if items is not None:
                items.cancel()
            await _close_source(source)

    # -- the halves of a stream ---------------------------------------------------------------------------------

    def _halves(self, event: Opened, sent: int) -> Producing:
        """Create the halves of a stream or channel before its handler begins, to receive the peer's frames until
        then."""
        driver, stream = self._slots.driver, event.stream
        sender = driver.streams.senders[stream] = Sender(driver, stream)
        items = None
        if event.verb == "channel":
            inbound = Inbound(driver, self._credit)
            inbound.id = stream
            inbound.arrived([event.payload], event.complete)
            if not event.complete:
                driver.streams.inbounds[stream] = inbound
            items = ItemStream(
                inbound,
                opener=self._first_grant(inbound, stream),
                stop=lambda: driver.streams.cancel(stream),
                first=event.payload,
                complete=lambda: self._complete(sender, inbound),
            )
        return Producing(event, sender, items, sent)

    def _complete(self, sender: Sender, inbound: Inbound) -> None:
        """Complete the answers of a channel. Where that ends both directions, no more items arrive."""
        sender.complete()
        if not inbound.ended and all(sender.id != status.stream for status in self._slots.driver.engine.streams()):
            inbound.finish(None)

    def _first_grant(self, inbound: Inbound, stream: int) -> Callable[[int], None]:
        """Return a function that opens the window when the handler requests its first item, which is part of it
        (RSocket D-8)."""
        driver = self._slots.driver

        def grant(n: int) -> None:
            if inbound.window is not None:
                inbound.window.expect(inbound.buffered)
            credit = inbound.first_grant(n)
            if not inbound.ended:
                driver.engine.request(stream, credit)
                driver.output.flush_soon()

        return grant


async def _close_source(source: Any) -> None:
    """Close a generator; no-op when it has ended."""
    if hasattr(source, "aclose"):
        await source.aclose()
    elif hasattr(source, "close"):
        source.close()
