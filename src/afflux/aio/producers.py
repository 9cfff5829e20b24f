"""Serve the streams and channels of a peer, with slots separate from those of requests.

One task begins all handlers of one pass, one after the other, as long as they end without suspending; the first that
suspends retains that task, and each of the others gets its own. A short stream within credit and room costs no task,
and ``asyncio.current_task()``, ``asyncio.timeout`` and context variables behave as in any task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from types import AsyncGeneratorType
from typing import Any, cast

from afflux.aio.flow import Inbound, ItemStream
from afflux.aio.sender import Sender
from afflux.aio.slots import Producing, Slots, WaitingQueue
from afflux.aio.stepping import rest_here, rest_within
from afflux.aio.tasks import TASK_FAILED
from afflux.calls.arguments import awaits
from afflux.core.autocredit import Kept
from afflux.core.errors import Canceled
from afflux.core.events import Opened

__all__ = ["HALF_S", "STOPS", "Producers"]

STOPS = (KeyboardInterrupt, SystemExit)
"Exceptions of a handler that also leave the event loop."

HALF_S = 0.000_15
"""Seconds that the first half of a turn's answers takes at least for a separate write to be worthwhile: it costs both
sides some 10 µs."""


class Producers:
    """The handlers of the streams and channels of one connection."""

    __slots__ = ("_credit", "_slots", "_worker", "queue")

    def __init__(self, slots: Slots, credit: Kept) -> None:
        self._slots = slots
        self._credit = credit
        self.queue = WaitingQueue(slots)
        self._worker: asyncio.Task[Any] | None = None
        "The task that begins the waiting handlers."

    def add(self, event: Opened, sent: int) -> None:
        """Queue a stream or channel for a slot; a former process has sent ``sent`` items of its answer."""
        self.queue.extend([(event.verb, event.stream, self._halves(event, sent))])

    def begin(self) -> None:
        """Begin as many handlers as there are slots, while there is room."""
        if self._worker is not None and not self._worker.done():
            return
        self._worker = None
        if self._may_begin:
            self._worker = self._slots.driver.tasks.spawn(self._work(), self._slots.context.copy())
        else:
            self._hold_back()

    @property
    def _may_begin(self) -> bool:
        slots = self._slots
        return bool(self.queue.items) and slots.producing < slots.driver.engine.limits.streams and slots.room > 0

    def _next(self) -> Producing | None:
        """Return the next stream, which begins now; None when there is none, or no slot or room for its handler."""
        slots, queue = self._slots, self.queue
        while self._may_begin and isinstance(queue.items, deque):
            one = queue.items.popleft()
            asked = one[2]
            if isinstance(asked, Producing) and not (slots.canceled and slots.was_canceled(one)):
                queue.begun(1)
                if asked.items is None:
                    # A channel's first item is consumed by its handler.
                    slots.driver.input.consumed(len(asked.event.payload), 1)
                slots.producing += 1
                return asked
        return None

    def _hold_back(self) -> None:
        """No further handler may begin now."""
        slots = self._slots
        if self.queue.items and not slots.driver.state.over:
            slots.driver.room.handlers_wait |= slots.room <= 0
            self.queue.watch()

    async def _work(self) -> None:
        """Begin handlers, one after the other, until one of them suspends: it retains this task, and the others get
        tasks of their own. Each runs in a copy of the context; that of the first is the task's own."""
        slots, me = self._slots, cast("asyncio.Task[Any]", asyncio.current_task())
        begins, half, now = 0, len(self.queue.items) // 2, slots.driver.state.now
        start = now()
        context: Context | None = None
        while begins < slots.driver.room.loop_frames and not me.cancelling() and (asked := self._next()) is not None:
            begins += 1
            event = asked.event
            slots.begin(event.verb, event.stream, me, asked)
            work = self._produce(asked)
            try:
                first = work.send(None) if context is None else context.run(work.send, None)
            except BaseException as error:
                self._ended(event.stream, error)
            else:
                slots.driver.tasks.serves(me, event.stream)
                del me  # its error would refer to this frame, and this frame to it
                self._spread()
                await (rest_here(work, first) if context is None else rest_within(work, context, first))
                return
            context = slots.context.copy()
            if begins == half and (slots.driver.state.idle.waited or now() - start >= HALF_S):
                slots.driver.output.flush_early()  # the client works on the first half while the second is produced
        self._worker = None
        slots.driver.output.flush_soon()
        slots.serving.on_free_slot()

    def _ended(self, stream: int, error: BaseException) -> None:
        """A handler has ended in its first step. ``error`` is StopIteration, or has been reported."""
        self._slots.release(stream)
        if isinstance(error, STOPS):
            self._spread()
            raise error
        if not isinstance(error, StopIteration | asyncio.CancelledError):
            self._slots.driver.state.log_failure(TASK_FAILED, error)

    def _spread(self) -> None:
        """Begin the waiting handlers in tasks of their own: the task that began them is taken."""
        self._worker = None
        slots = self._slots
        while (asked := self._next()) is not None:
            verb, stream = asked.event.verb, asked.event.stream
            slots.begin(
                verb, stream, slots.driver.tasks.spawn(self._produce(asked), slots.context.copy(), stream), asked
            )
        self._hold_back()

    async def _produce(self, asked: Producing) -> None:
        """Run one producer to its end, and close its source in any case."""
        event, sender, items, sent = asked.event, asked.sender, asked.items, asked.sent
        source: Any = None
        try:
            source = self._slots.verbs[event.verb](event.payload if items is None else items)
            if type(source) is not AsyncGeneratorType:
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
            if type(source) is not AsyncGeneratorType or source.ag_frame is not None:  # it has not ended
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
