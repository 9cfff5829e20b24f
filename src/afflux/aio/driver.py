"""Drive one connection under asyncio: an engine, and the parts that move its bytes and dispatch its events.

1. Events are dispatched in the order of the wire. No handler is awaited here.
2. When the connection ends, every waiting request, stream and producer is notified once.
3. All tasks that were started for the connection have ended when ``finished`` is done.

    peers, handlers
        driver          the parts of one connection, and its end
          calls         requests and their answers          room      tasks that wait to send
          streams       live streams, by id                 leases    requests that wait for a lease
          tasks         tasks that were started
          pump          asyncio's protocol object, of: input, output, memory
        engine          frames; no I/O
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from afflux.aio.calls import Calls
from afflux.aio.dispatch import HANDLERS
from afflux.aio.flow import elsewhere
from afflux.aio.leases import LeaseQueue
from afflux.aio.owner import NOBODY, Owner
from afflux.aio.pump import Pump
from afflux.aio.room import Room
from afflux.aio.state import State
from afflux.aio.streams import Streams
from afflux.aio.tasks import Tasks
from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error
from afflux.core.events import Answers, Event, Items, Opened, Verb
from afflux.core.payload import PayloadLike, payload_of
from afflux.transports.address import Address
from afflux.transports.reading import Deaf
from afflux.watching import Watch

if TYPE_CHECKING:
    from afflux.aio.saving import Saving
    from afflux.resume.record import Record

__all__ = ["Driver"]


class Driver:
    """One connection. Parts that few connections need are created on demand."""

    __slots__ = (
        "_closed",
        "_finished",
        "calls",
        "draining",
        "engine",
        "flushes_each_pass",
        "input",
        "leases",
        "output",
        "owner",
        "pump",
        "renew",
        "requested",
        "room",
        "saving",
        "state",
        "streams",
        "tasks",
    )

    owner: Owner
    leases: LeaseQueue
    streams: Streams

    def __init__(
        self, engine: Engine, owner: Owner, *, expects: Address | None = None, watch: Watch | None = None
    ) -> None:
        self.engine = engine
        if watch is not None:
            watch.begin(engine)
        self.owner = owner
        self.state = state = State(engine, self, watch)
        self.pump = pump = Pump(state, expects)
        self.input, self.output = pump.input, pump.output
        self.tasks = Tasks(state)
        self.room = Room(state, self.output)
        self.leases = LeaseQueue(state)
        self.streams = Streams(state, self.input)
        self.calls = Calls(state, self.output, self.room, self.streams, self.leases)
        self.saving: Saving | None = None
        "Writes the session to a file; None when it ends with the process."
        self.renew: Callable[[], Awaitable[Driver]] | None = None
        "Returns the next connection when this one is over; None when there is none."
        self.requested = False
        "The owner is to be notified when the events of this pass are dispatched."
        self.flushes_each_pass = engine.byte_sessions is not None
        """A pass that only delivers items queues nothing, and needs no flush, except where consuming queues something
        (Jmux) or is written to a file."""
        self.draining = False
        "The peer takes no new requests."
        self._closed: asyncio.Future[None] | None = None
        self._finished: asyncio.Future[None] | None = None

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done when the connection is over."""
        if self._closed is None:
            self._closed = _future(self.state.loop, done=self.state.over)
        return self._closed

    @property
    def finished(self) -> asyncio.Future[None]:
        """Done when the transport is gone and every task has ended."""
        if self._finished is None:
            self._finished = _future(self.state.loop, done=self.state.left)
        return self._finished

    async def current(self) -> Driver:
        """Return the connection to use: this one, or the one that follows it.

        Raises:
            ConnectionClosed: there is none.
        """
        return await self.renew() if self.state.over and self.renew is not None else self

    def may_open(self, size: int) -> bool:
        """Whether a stream may be opened with ``size`` bytes now, without waiting for ``writable``."""
        if self.state.over or self.leases.agreed or size > self.room.loop_bytes or self.output.room_beside() <= 0:
            return False
        return not self.streams.pause(len(self.calls.replies))

    async def writable(self, verb: str, size: int = 0) -> Driver:
        """Wait until a stream may be opened with ``size`` bytes by ``verb``. Returns the connection to use.

        Raises:
            LocalProtocolError: the connection belongs to another event loop.
            Error: there is none, or no lease came in time.
        """
        if asyncio.get_running_loop() is not self.state.loop:
            raise elsewhere("connection", "it")
        driver = await self.current()
        await driver.calls.writable(verb, size)
        return driver

    def open(self, verb: Verb, payload: PayloadLike, credit: int = 0) -> int:
        """Open a stream, by the engine's rules.

        Raises:
            Error: the engine refused; see Engine.open.
        """
        if self.calls.queued:
            self.calls.send()  # preserve FIFO order on the wire
        now = self.state.now() if self.leases.agreed else None
        stream = self.engine.open(verb, payload, credit=credit, now=now)
        if self.saving is not None:
            self.saving.record.opened(stream, verb, payload_of(payload))
        return stream

    def close(self, *, drain: bool = False, reason: str = "") -> None:
        """Begin to close. Queued items are written first, because the engine drops the rest."""
        if not self.state.over:
            self.output.flush(unpaced=True)
            self.state.run(self.engine.close, self.state.now(), drain=drain, reason=reason)

    def abort(self, error: Error | None = None) -> None:
        """Abort the transport without notifying the peer."""
        state = self.state
        if state.transport is not None and not state.lost:
            state.transport.abort()
        self.end(error or ConnectionClosed("this side cut the connection"))
        if not self.engine.closed:
            # A session that could be resumed, or is suspended, must not wait for another transport either.
            resumption = self.engine.resumption
            lasting = resumption is not None and (resumption.resumable or resumption.suspended)
            self.dispatch((self.engine.close if lasting else self.engine.receive_eof)(state.now()))

    def lose(self, error: Error) -> None:
        """The transport is unusable: the connection ends, unless the session can continue on another."""
        if self.state.resumable:
            self.state.run(self.engine.receive_eof, self.state.now())
        else:
            self.abort(error)

    # -- reports of the parts -------------------------------------------------------------------------------

    def dispatch(self, events: list[Event]) -> None:
        """Dispatch the events of a pass; then update writing, reading and timers."""
        calls, input = self.calls, self.input
        if self.saving is not None and not self.saving.before(events):
            return
        if events and self.state.watch is not None:
            self.state.watch.seen(events)
        replies, active = calls.replies, self.flushes_each_pass
        for event in events:
            if type(event) is Items:
                if event.stream not in replies:
                    self.streams.items(event)
                    continue
                future = replies.pop(event.stream)
                payload = event.payloads[0]
                input.consumed_bytes += len(payload.data) if payload.metadata is None else len(payload)
                if not future.done():
                    future.set_result(payload)
            elif type(event) is Answers:
                for stream, payload in zip(event.streams, event.payloads, strict=True):
                    future = replies.pop(stream)
                    if not future.done():
                        future.set_result(payload)
                input.consumed_bytes += event.size
            elif type(event) is Opened:
                self.owner.opened(event)
            else:
                HANDLERS[type(event)](self, event)
            active = True
        if self.requested:
            self.requested = False
            self.owner.begin()
        if input.consumed_bytes or input.consumed_items:
            input.settle()
        if calls.waiting:
            calls.wake()
        if active or self.engine.queued or self.room.awaited:
            self.output.flush_soon()
        elif not self.output.flushing:  # a flush settles as well
            self.output.settle()

    def collect(self) -> None:
        """Before a write: queue the requests and items of this turn."""
        if self.calls.queued:
            self.calls.send()
        if self.input.consumed_bytes or self.input.consumed_items:
            self.input.settle()
        self.room.collect()

    def on_writable(self, unsent: int) -> None:
        """After a write: wake tasks that wait for room."""
        if self.state.scheduler is not None and (streams := self.state.scheduler.caught_up()):
            self.streams.wake(streams)
        if self.room.on_writable(unsent):
            self.owner.on_writable()

    def on_jam(self) -> None:
        """The memory of the connection is full of items that the application does not consume. If a task waits for
        other input, end the stream that buffers most; otherwise the application may consume at its own speed."""
        if self.calls.replies or self.streams.awaited:
            self.streams.drop_largest()

    # -- sessions that outlive their transport, or their process ----------------------------------------------

    def hand_over(self) -> tuple[asyncio.Transport | None, bytes]:
        """Return the transport, and the bytes read from it, for another session; this connection is over."""
        resumption = self.engine.resumption
        first = b"" if resumption is None else resumption.hand_over()
        transport, rest = self.pump.release()
        self.end(None)
        return transport, first + rest

    def keep(self, record: Record) -> None:
        """Write the session to a file from now on."""
        from afflux.aio.saving import Saving

        self.saving = Saving(self.state, record)
        self.flushes_each_pass = True
        self.calls.batches = False

    def forget(self, stream: int) -> None:
        """The application has received the end of a stream, or does not want the stream."""
        if self.saving is not None:
            self.saving.record.drop(stream)
            self.output.flush_soon()

    def leave(self) -> None:
        """End here and let the session stay in its file; the peer is not notified."""
        self.saving = None
        transport, _ = self.pump.release()
        if transport is not None:
            transport.set_protocol(Deaf())
            transport.abort()
        self.end(ConnectionClosed("this side has left; the session waits in its file"))

    def drop_session(self, error: Error) -> None:
        """The session cannot be written to its file: end it."""
        self._end_saving()
        self.streams.drop_all()
        self.end(error)
        self.state.run(self.engine.close, self.state.now(), reason="the session cannot be stored")

    # -- the end ------------------------------------------------------------------------------------------

    def end(self, error: Error | None) -> None:
        """The connection is over: notify every waiter once, flush, close. The first reason counts."""
        state = self.state
        if state.over:
            return
        state.over = True
        self.input.held = b""
        if state.error is None:
            state.error = error
        self._end_saving()
        self.calls.end()
        self.streams.end()
        self.room.end()
        self.leases.end()
        self.calls.wake()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self.pump.linger()
        self.owner.ended()
        if state.lost:
            self._part()
        self.output.flush_soon()
        self.check_finished()

    def parted(self) -> None:
        """The transport is gone."""
        self._part()
        self.check_finished()

    def check_finished(self) -> None:
        """Leave when the transport is gone and every task has ended."""
        if self.state.lost and not self.tasks.running and not self.state.left:
            self.state.left = True
            self.state.log_rest()
            if self._finished is not None:
                self._finished.set_result(None)
            self.state.loop.call_soon(self._leave)

    def _part(self) -> None:
        state = self.state
        if state.watch is not None:
            state.watch.ended(state.error, state.now())
        self.owner.parted()

    def _end_saving(self) -> None:
        saving, self.saving = self.saving, None
        if saving is not None:
            saving.end()

    def _leave(self) -> None:
        """No more events will arrive: drop the references to objects that refer to this one, so that it is freed
        without a garbage collector."""
        owner, self.owner = self.owner, NOBODY
        state = self.state
        state.transport = None
        self.room.dirty.clear()
        self.pump.memory.report()
        owner.left()
        del state.driver


def _future(loop: asyncio.AbstractEventLoop, *, done: bool) -> asyncio.Future[None]:
    future = loop.create_future()
    if done:
        future.set_result(None)
    return future
