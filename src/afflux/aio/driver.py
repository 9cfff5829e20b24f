"""The only loop: bytes from the transport into the engine, events to whom they concern, bytes back.

1. One read is one pass; what it brings is told in the order of the wire. No handler is ever awaited here.
2. One write for each turn of the loop: whoever queues something calls ``flush_soon``.
3. Reading stops while the engine can not take more, or while too much waits to be written.
4. Whatever this object starts has ended when ``finished`` is done.

Verbs live in peer.py, handlers in serving.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from time import monotonic
from typing import Any, cast

from afflux.aio.flow import Inbound, Sender
from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError
from afflux.core.events import (
    Block,
    Canceled,
    Closed,
    Completed,
    Draining,
    Established,
    Event,
    Failed,
    Granted,
    Ignored,
    Items,
    Opened,
    Pushed,
)
from afflux.core.payload import Payload
from afflux.transports.base import foreign

__all__ = ["Driver", "Listening"]

_log = logging.getLogger("afflux")


class Listening:
    """What a driver tells its owner. Every method may be replaced by one that does something."""

    def established(self, event: Established) -> None:
        """The connection may be used, or is to be decided."""

    def opened(self, event: Opened) -> None:
        """The peer asks for something."""

    def canceled(self, stream: int) -> None:
        """The peer gave up, or lost, what it had asked for."""

    def pushed(self, event: Pushed) -> None:
        """The peer pushed metadata."""

    def ended(self) -> None:
        """The connection is over; handlers may still be ending."""


class Driver(asyncio.Protocol):
    """One connection under asyncio."""

    def __init__(self, engine: Engine, owner: Listening, *, expects: str | None = None) -> None:
        self.engine = engine
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.replies: dict[int, asyncio.Future[Payload]] = {}
        "Who waits for the one answer of a request."
        self.inbounds: dict[int, Inbound] = {}
        self.senders: dict[int, Sender] = {}
        self.dirty: list[Sender] = []
        "Producers that have made something in this turn."
        self.parked: set[Sender] = set()
        "Producers that wait for room."
        self.producing = 0
        "Producers that are at work: they share the room."
        self.tasks: set[asyncio.Task[Any]] = set()
        self.error: Error | None = None
        "Why the connection ended, if not in order."
        self.draining = False
        "The peer takes no new requests."
        self.connected: asyncio.Future[None] = self.loop.create_future()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        "Done when the connection is over."
        self.finished: asyncio.Future[None] = self.loop.create_future()
        "Done when the transport is gone and every task has ended."
        self.hold_reading = False
        "The owner wants no more input for now."
        limits = engine.limits
        self.loop_frames: int = limits.loop_frames
        self.loop_bytes: int = limits.loop_bytes
        self._low = limits.outbound_low_bytes
        self._expects = expects
        self._flushing = False
        self._blocked = False
        self._reading = True
        self._writable: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._stall: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._lost = False
        self._over = False
        self._ending = False
        self._heard_end = False
        self._written = 0
        self._consumed = 0
        self._logged = 0.0

    # -- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The link is there: say the first words."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._low, low=self._low // 4)
        if not self.connected.done():
            self.connected.set_result(None)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """One pass over the input."""
        if self._expects is not None:
            if strange := foreign(data):
                text = f"the peer speaks {strange}, not {self._expects}"
                self._fail_hard(RemoteProtocolError(text, rule="handshake"))
                return
            self._expects = None
        self.dispatch(self.engine.receive(data, monotonic()))

    def eof_received(self) -> bool:
        """The peer has ended its half: that is the end of the connection (SL-03)."""
        self._heard_end = True
        self.dispatch(self.engine.receive_eof(monotonic()))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The link is gone."""
        self._lost = True
        if not self.engine.closed:
            self.dispatch(self.engine.receive_eof(monotonic()))
        self._end(None)
        for handle in (self._timer, self._stall, self._linger):
            if handle is not None:
                handle.cancel()
        self._timer = self._stall = self._linger = None
        if not self.connected.done():
            self.connected.set_result(None)
        self._check_finished()

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self._blocked = True
        self._check_reading()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self._blocked = False
        self._flush()

    # -- what peers and handlers call -------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Write what is queued at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def room(self) -> int:
        """Bytes that may still be queued."""
        transport = self.transport
        return self.engine.room(0 if transport is None else transport.get_write_buffer_size())

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be written that a request should wait as well."""
        return self._blocked or self.engine.queued > self._low

    async def writable(self) -> None:
        """Wait until there is room to queue a request.

        Raises:
            Error: the connection is over.
        """
        while not self._over and self.room() <= 0:
            waiter = self.loop.create_future()
            self._writable.append(waiter)
            await waiter
        self.check()

    def check(self) -> None:
        """Raise unless the connection can be used."""
        if self._over:
            raise self.reason()

    def reason(self) -> Error:
        """The error for those who come when it is over."""
        if self.error is None:
            return ConnectionClosed("the connection is closed")
        return self.error

    def consumed(self, size: int) -> None:
        """The application took ``size`` bytes of what was delivered."""
        self._consumed += size
        if self._consumed >= 0x4000 or not self._reading:
            size, self._consumed = self._consumed, 0
            self.engine.consumed(size)
            if not self._reading:
                self._check_reading()

    def spawn(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        """Start a task that belongs to this connection."""
        task = self.loop.create_task(work) if context is None else self.loop.create_task(work, context=context)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def log_failure(self, text: str, error: BaseException) -> None:
        """One line for a failure that is no one's error on the wire; at most one a second (rule 8 of limits.md)."""
        now = monotonic()
        if now - self._logged >= 1.0:
            self._logged = now
            _log.error("%s", text, exc_info=error)

    def run(self, verb: Callable[..., list[Event]], *arguments: Any, **keywords: Any) -> None:
        """Do one of the engine's acts that return events: accept, refuse, close."""
        self.dispatch(verb(*arguments, **keywords))

    def close(self, *, drain: bool = False, reason: str = "") -> None:
        """Begin to close."""
        if not self._over:
            self.run(self.engine.close, monotonic(), drain=drain, reason=reason)

    def abort(self, error: Error | None = None) -> None:
        """Cut the link without a word."""
        self._fail_hard(error or ConnectionClosed("this side cut the connection"))

    # -- the pass -------------------------------------------------------------------------------------------

    def dispatch(self, events: list[Event]) -> None:
        """Tell everyone concerned; then see to writing, reading and time."""
        replies = self.replies
        for event in events:
            if type(event) is Items and event.stream in replies:
                future = replies.pop(event.stream)
                payload = event.payloads[0]
                self._consumed += len(payload.data) if payload.metadata is None else len(payload)
                if not future.done():
                    future.set_result(payload)
            else:
                _TELL[type(event)](self, event)
        if self._consumed:
            self.engine.consumed(self._consumed)
            self._consumed = 0
        self.flush_soon()

    def _items(self, event: Items) -> None:
        inbound = self.inbounds.get(event.stream)
        if inbound is None:
            self._consumed += sum(map(len, event.payloads))
            return
        if event.complete:
            del self.inbounds[event.stream]
        inbound.arrived(event.payloads, event.complete)

    def _block(self, event: Block) -> None:
        starts, ends, buffer = event.starts, event.ends, event.buffer
        payloads = [Payload(buffer[start:end]) for start, end in zip(starts, ends, strict=True)]
        self._items(Items(event.stream, payloads, event.complete))

    def _completed(self, event: Completed) -> None:
        if (future := self.replies.pop(event.stream, None)) is not None:
            if not future.done():
                future.set_result(Payload())
        elif (inbound := self.inbounds.pop(event.stream, None)) is not None:
            inbound.finish(None)

    def _failed(self, event: Failed) -> None:
        if (future := self.replies.pop(event.stream, None)) is not None:
            if not future.done():
                future.set_exception(event.error)
            return
        waits = False
        if (inbound := self.inbounds.pop(event.stream, None)) is not None:
            waits = inbound.waiter is not None
            inbound.finish(event.error)
        if (sender := self.senders.pop(event.stream, None)) is not None:
            sender.stop()
        if not waits:
            self.owner.canceled(event.stream)

    def _canceled(self, event: Canceled) -> None:
        if (sender := self.senders.pop(event.stream, None)) is not None:
            sender.stop()
        if event.final:
            if (inbound := self.inbounds.pop(event.stream, None)) is not None:
                inbound.finish(None)
            self.owner.canceled(event.stream)

    def _granted(self, event: Granted) -> None:
        if (sender := self.senders.get(event.stream)) is not None:
            sender.wake()

    def _opened(self, event: Opened) -> None:
        self._consumed += len(event.payload)
        self.owner.opened(event)

    def _established(self, event: Established) -> None:
        self.owner.established(event)

    def _pushed(self, event: Pushed) -> None:
        self._consumed += len(event.metadata)
        self.owner.pushed(event)

    def _drains(self, event: Draining) -> None:
        self.draining = True

    def _ignored(self, event: Ignored) -> None:
        """The engine has charged it; nobody else is concerned."""

    def _closed(self, event: Closed) -> None:
        self._end(event.error)

    # -- writing, reading, time -----------------------------------------------------------------------------

    def _flush(self) -> None:
        """Hand over what is queued, up to what the transport takes."""
        self._flushing = False
        engine, transport = self.engine, self.transport
        if transport is None or self._lost:
            return
        if self.dirty:
            dirty, self.dirty = self.dirty, []
            for sender in dirty:
                sender.flush()
        while not self._blocked and (data := engine.outgoing()):
            self._written += len(data)
            transport.write(data)
        if self._over and not engine.queued and not self._blocked:
            self._say_goodbye(transport)
        if transport.get_write_buffer_size() and self._stall is None:
            self._watch_writing(self._written - transport.get_write_buffer_size())
        self._check_room()
        self._check_reading()
        self._arm()

    def _say_goodbye(self, transport: asyncio.Transport) -> None:
        """End this half and wait for the peer's end, so that it can read the last words: a close with unread
        input would reset the connection. ``flush_s`` bounds it."""
        if transport.is_closing() or self._ending:
            return
        self._ending = True
        if self._heard_end or not transport.can_write_eof():
            transport.close()
        else:
            transport.write_eof()
            self._resume(transport)

    def _check_room(self) -> None:
        """Wake those who wait for room, once there is a good deal of it."""
        if not self.parked and not self._writable:
            return
        transport = self.transport
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        if self.engine.queued + unsent <= self._low and self.engine.room(unsent) > 0:
            for sender in self.parked:
                sender.wake()
            self._wake_writable()

    def _wake_writable(self) -> None:
        waiters, self._writable = self._writable, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _check_reading(self) -> None:
        transport = self.transport
        if transport is None or self._over or transport.is_closing():
            return
        wants = self.engine.wants_read and not self.hold_reading
        if wants:
            self._resume(transport)
        elif not wants and self._reading:
            self._reading = False
            transport.pause_reading()

    def _resume(self, transport: asyncio.Transport) -> None:
        if not self._reading:
            self._reading = True
            transport.resume_reading()

    def check_reading(self) -> None:
        """Read, or stop reading, as the engine and the owner want it."""
        self._check_reading()

    def _arm(self) -> None:
        """See to it that tick is called in time. A timer that comes early only looks again."""
        deadline = self.engine.deadline
        if deadline is None or self._lost:
            return
        if self._timer is not None:
            if self._due <= deadline:
                return
            self._timer.cancel()
        self._due = deadline
        self._timer = self.loop.call_later(max(0.0, deadline - monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = monotonic()
        deadline = self.engine.deadline
        if deadline is not None and deadline <= now:
            self.dispatch(self.engine.tick(now))
        else:
            self._arm()

    def _watch_writing(self, gone: int) -> None:
        limits = self.engine.limits
        self._stall = self.loop.call_later(limits.write_stall_s, self._check_stall, gone)

    def _check_stall(self, gone: int) -> None:
        """The peer has to take something now and then: write_min_rate, averaged over write_stall_s."""
        self._stall = None
        transport = self.transport
        if transport is None or self._lost or not transport.get_write_buffer_size():
            return
        limits = self.engine.limits
        now_gone = self._written - transport.get_write_buffer_size()
        if now_gone - gone < max(1, limits.write_min_rate * limits.write_stall_s):
            self._fail_hard(ConnectionClosed("write-stall: the peer does not read", rule="write_stall_s"))
        else:
            self._watch_writing(now_gone)

    # -- endings --------------------------------------------------------------------------------------------

    def _fail_hard(self, error: Error) -> None:
        """Give up the link at once."""
        if not self._over:
            self.error = error
        if self.transport is not None:
            self.transport.abort()
        if not self._over:
            self.dispatch(self.engine.receive_eof(monotonic()))
            self._end(error)

    def _end(self, error: Error | None) -> None:
        """The connection is over: tell everyone once, flush, close."""
        if self._over:
            return
        self._over = True
        if self.error is None:
            self.error = error
        reason = self.reason()
        for future in self.replies.values():
            if not future.done():
                future.set_exception(reason)
        self.replies.clear()
        for inbound in self.inbounds.values():
            inbound.finish(reason)
        self.inbounds.clear()
        for sender in self.senders.values():
            sender.stop()
        self.senders.clear()
        self._wake_writable()
        if not self.closed.done():
            self.closed.set_result(None)
        if self.transport is not None and not self._lost:
            self._linger = self.loop.call_later(self.engine.limits.flush_s, self.transport.abort)
        self.owner.ended()
        self.flush_soon()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log_failure("afflux: a handler's task failed", error)
        self._check_finished()

    def _check_finished(self) -> None:
        if self._lost and not self.tasks and not self.finished.done():
            self.finished.set_result(None)


_TELL: dict[type, Callable[[Driver, Any], None]] = {
    Established: Driver._established,
    Opened: Driver._opened,
    Items: Driver._items,
    Block: Driver._block,
    Completed: Driver._completed,
    Failed: Driver._failed,
    Canceled: Driver._canceled,
    Granted: Driver._granted,
    Pushed: Driver._pushed,
    Draining: Driver._drains,
    Ignored: Driver._ignored,
    Closed: Driver._closed,
}
