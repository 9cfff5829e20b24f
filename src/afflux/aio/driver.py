"""One connection: the events of its engine go to whom they concern. How bytes and time move is pump.py's.

1. Events are told in the order of the wire. No handler is ever awaited here.
2. Every waiting request, stream and producer hears the end of the connection, once.
3. Whatever this object starts has ended when ``finished`` is done.

Verbs live in peer.py, handlers in serving.py.
"""

# long: one method for each kind of event, and for each thing that a handler or a caller may wait for.

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.aio.flow import Inbound, Sender
from afflux.aio.pump import Pump
from afflux.core.bucket import Bucket
from afflux.core.engine import Engine, Leases
from afflux.core.errors import ConnectionClosed, Error, LeaseExpired, LimitExceeded
from afflux.core.events import (
    Acknowledged,
    Answers,
    Block,
    Canceled,
    Closed,
    Completed,
    Draining,
    Established,
    Event,
    Extended,
    Failed,
    Granted,
    Ignored,
    Items,
    Leased,
    Opened,
    Pushed,
    Readable,
    Requests,
    Resumed,
    Resuming,
    SessionOpened,
    Suspended,
    Verb,
)
from afflux.core.payload import Payload, PayloadLike, payload_of, size_of
from afflux.resume.errors import StoreError

if TYPE_CHECKING:
    from afflux.aio.session import Session
    from afflux.resume.record import Record

__all__ = ["Call", "Driver", "Listening"]

_log = logging.getLogger("afflux")


Waiters = OrderedDict[asyncio.Future[None], None]
"Those who wait for the same, in the order in which they are called. Whoever is called, or gives up, is taken out."

Call = list[Any]
"""A request of this turn: its payload, which its stream id takes the place of, and who waits for the answer.

A list, because it is the cheapest object with two places: a class with slots costs 0.15 µs more for each request."""

_AT_ONCE = 64
"Requests between two looks at the room; each further 4 KiB count as one more."


class Listening:
    """What a driver tells its owner. Every method may be replaced by one that does something."""

    def established(self, event: Established) -> None:
        """The connection may be used, or is to be decided."""

    def opened(self, event: Opened) -> None:
        """The peer asks for something. The listener calls ``consumed`` for its payload when a handler begins."""

    def requested(self, event: Requests) -> None:
        """The peer asks for several things at once."""
        for one in event.each():
            self.opened(one)

    def session_opened(self, event: SessionOpened) -> None:
        """The peer opened a session of bytes."""

    def canceled(self, stream: int) -> None:
        """The peer gave up, or lost, what it had asked for."""

    def failed(self, sender: Sender, error: Exception) -> None:
        """What a producer has made can not be sent."""

    def passed(self) -> None:
        """The events of a pass are told, after ``asked`` was set."""

    def roomy(self) -> None:
        """There is room to send again, after ``held_back`` was set."""

    def task_ended(self, stream: int, task: asyncio.Task[Any]) -> None:
        """A task that was spawned for a stream has ended."""

    def pushed(self, event: Pushed) -> None:
        """The peer pushed metadata."""

    def extended(self, event: Extended) -> None:
        """A frame of an extension came."""

    def suspended(self, event: Suspended) -> None:
        """The transport is gone, the session goes on."""

    def resuming(self, event: Resuming) -> None:
        """A newcomer wants to go on with a session."""

    def resumed(self) -> None:
        """The session has a transport again."""

    def ended(self) -> None:
        """The connection is over; handlers may still be ending."""

    def parted(self) -> None:
        """The connection is over and has no transport any more; handlers may still be ending."""

    def left(self) -> None:
        """The transport is gone, and every task has ended."""


class Driver(Pump):  # long: one method for each kind of event
    """One connection under asyncio. What few connections ever need is made when it is needed."""

    __slots__ = (
        "_at_once",
        "_called",
        "_cancels",
        "_has_left",
        "_logged",
        "_most",
        "_unleased",
        "_when_closed",
        "_when_finished",
        "_writable",
        "answered",
        "asked",
        "askers",
        "calls",
        "dirty",
        "draining",
        "held_back",
        "inbounds",
        "lease_wait",
        "leased",
        "loop_bytes",
        "loop_frames",
        "owner",
        "parked",
        "piled",
        "producing",
        "promised",
        "record",
        "renew",
        "replies",
        "senders",
        "sessions",
        "spare",
        "tasks",
        "turn",
        "unopened",
    )

    # long: a line for each of its fields, and what it is
    def __init__(self, engine: Engine, owner: Listening, *, expects: str | None = None) -> None:
        super().__init__(engine, expects)
        self.owner = owner
        self.replies: dict[int, asyncio.Future[Payload]] = {}
        "Who waits for the one answer of a request."
        self.calls: list[Call] = []
        "Requests that go together at the end of this turn."
        self.spare = 0
        "How many more may be put there before it is time to look whether there is room."
        self.inbounds: dict[int, Inbound] = {}
        self.senders: dict[int, Sender] = {}
        self.sessions: dict[int, Session] = {}
        "Sessions of bytes, in a protocol that has them."
        self.dirty: list[Sender] = []
        "Producers that have made something in this turn."
        self.parked: dict[Sender, None] = {}
        "Producers that wait for room, in order."
        self.piled: dict[Sender, None] = {}
        "Producers that wait with a large item until another one is gone, in order."
        self.producing = 0
        "Producers that are at work: they share the room."
        self.promised = 0
        "Room that producers may use in this turn and have not used yet."
        self.asked = False
        "The owner wants to know when the events of this pass are told."
        self.held_back = False
        "Handlers wait for room to send before they begin."
        self.turn = 0
        "Counts the turns in which something was queued."
        self.unopened: dict[Inbound, asyncio.Task[None] | None] = {}
        "Streams that somebody waits for and that are not open yet, with what makes their first item."
        self.tasks: dict[asyncio.Task[Any], int] = {}
        "What belongs to this connection: the stream that a task serves, 0 for none; ``~stream`` when it was canceled."
        self.draining = False
        "The peer takes no new requests."
        self._when_closed: asyncio.Future[None] | None = None
        self._when_finished: asyncio.Future[None] | None = None
        self._has_left = False
        self.loop_frames: int = engine.limits.loop_frames
        self.loop_bytes: int = engine.limits.loop_bytes
        self.askers: Waiters | tuple[()] = ()
        "Requests that wait, because as many are under way as a peer with the same limits would take."
        self.leased: bool = engine.leases is not None
        "Requests need a lease."
        self.lease_wait: float | None = None
        "Seconds that a request may wait for one; None: it fails at once."
        self.answered: asyncio.Future[None] | None = None
        "Done when the peer has granted its first lease, or the connection is over; None where nobody waits for it."
        self.record: Record | None = None
        "Where the session is kept; None when it ends with the process."
        self.renew: Callable[[], Awaitable[Driver]] | None = None
        "Where the next connection comes from, when this one is over; None when there is none."
        self._unleased: deque[asyncio.Event] | tuple[()] = ()
        self._called = 0
        self._most = engine.limits.streams
        self._at_once = max(1, engine.limits.outbound_high_frames // self.loop_frames)
        self._cancels: Bucket | None = None
        "What a peer with the same limits has left for cancels of this side; None before the first one."
        self._writable: Waiters | tuple[()] = ()
        "Requests that wait for room, in order."
        self._logged = 0.0

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done when the connection is over."""
        if self._when_closed is None:
            self._when_closed = _future(self.loop, done=self.over)
        return self._when_closed

    @property
    def finished(self) -> asyncio.Future[None]:
        """Done when the transport is gone and every task has ended."""
        if self._when_finished is None:
            self._when_finished = _future(self.loop, done=self._has_left)
        return self._when_finished

    # -- what peers and handlers call -------------------------------------------------------------------------

    async def writable(self, size: int = 0) -> None:
        """Wait until there is room to queue a request of ``size`` bytes.

        Raises:
            Error: the connection is over.
        """
        await self.until_room(size)
        while (pause := self._pause()) and not self.over:
            await asyncio.sleep(pause)
            await self.until_room(size)
        if self.leased and self.lease_wait is not None:
            await self._wait_for_lease(self.lease_wait)

    def give_up(self, stream: int) -> None:
        """Cancel a stream that this side has opened."""
        if self._cancels is None:
            self._cancels = Bucket(*self.engine.limits.cancel_bucket)
        self._cancels.take(1, self.now())
        self.engine.cancel(stream)
        self.flush_soon()

    def _pause(self) -> float:
        """Seconds to wait before one more stream is opened: a peer with the same limits shall be able to bear that all
        that are open are canceled (``cancel_bucket``)."""
        bucket = self._cancels
        if bucket is None:
            return 0.0
        wanted = min(bucket.burst, len(self.replies) + len(self.inbounds) + 1)
        return bucket.wait(wanted, self.now()) or 0.0

    async def until_room(self, size: int) -> None:
        """Wait until there is room to queue ``size`` bytes, in order of arrival.

        Raises:
            Error: the connection is over.
        """
        first = False
        while not self.over and (self.room() if size > self.loop_bytes else self.room_beside()) <= 0:
            self._writable = self._writable or OrderedDict()
            await self._wait_in(self._writable, self.flush_soon, first=first)
            self.flush_soon()  # after this turn the next ones are looked at, though this one may queue nothing
            first = True  # whoever was called goes first again
        self.check()

    def open(self, verb: Verb, payload: PayloadLike, credit: int = 0) -> int:
        """Open a stream, by the engine's rules.

        Raises:
            Error: as Engine.open.
        """
        if self.calls:
            self.ask_all()  # first come, first on the wire
        stream = self.engine.open(verb, payload, credit=credit, now=self.now() if self.leased else None)
        if self.record is not None:
            self.record.opened(stream, verb, payload_of(payload))
        return stream

    def look(self) -> bool:
        """Whether the next requests may go together with others of their turn: ``ask`` as long as ``spare`` lasts."""
        if self.calls:
            self._flush()  # the peer may begin with these
        if not (self.record is not None or self.away or self.over or self.crowded):
            self.spare = min(_AT_ONCE, self._most - len(self.replies))
        return self.spare > 0

    def ask(self, payload: Payload) -> Call:
        """Send a request at the end of this turn, or before; ``Call[1]`` is its answer."""
        size = len(payload.data) if payload.metadata is None else len(payload)
        self.spare -= 1 + (size >> 12)
        call = [payload, self.loop.create_future()]
        self.calls.append(call)
        if not self._flushing:
            self.flush_soon()
        return call

    def ask_all(self) -> None:
        """Open the requests of this turn."""
        calls, self.calls = [call for call in self.calls if not call[1].cancelled()], []
        try:
            ids = self.engine.ask([call[0] for call in calls])
        except Error as error:
            for call in calls:
                if not call[1].done():
                    call[1].set_exception(error.again())
            return
        replies = self.replies
        for call, id in zip(calls, ids, strict=False):
            call[0] = id
            replies[id] = call[1]
        if len(ids) < len(calls):
            self.calls = calls[len(ids) :]
            self.ask_all()

    def unask(self, call: Call) -> None:
        """Nobody waits for the answer any more."""
        if type(call[0]) is int and self.replies.pop(call[0], None) is not None:
            self.give_up(call[0])
            self.wake_askers()

    async def _wait_for_lease(self, seconds: float) -> None:
        """Wait until there is a lease, in order of arrival.

        Raises:
            LeaseExpired: none came in time, or as many wait as ``lease_queue`` allows.
            Error: the connection is over.
        """
        leases, waiting = cast("Leases", self.engine.leases), self._unleased or deque()
        if not waiting and leases.lease(self.now())[0]:
            return
        self._unleased = waiting
        if len(waiting) >= self.engine.limits.lease_queue:
            raise LeaseExpired(f"{len(waiting)} requests wait for a lease already", rule="lease_queue")
        turn = asyncio.Event()
        waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                while not self.over and not (waiting[0] is turn and leases.lease(self.now())[0]):
                    turn.clear()
                    await turn.wait()
        except TimeoutError:
            text = f"no lease to send a request under came within {seconds:g} s"
            raise LeaseExpired(text, rule="LE-08") from None
        finally:
            waiting.remove(turn)
            self.loop.call_soon(self._wake_unleased)
        self.check()

    def _wake_unleased(self) -> None:
        """Whoever waits longest for a lease may look again; the next one when that has asked."""
        if self._unleased:
            self._unleased[0].set()

    @property
    def crowded(self) -> bool:
        """Whether a request should wait: too many are under way, too much waits to be written, or it needs a lease."""
        if self.leased or len(self.replies) >= self._most or self.askers or super().crowded:
            return True
        return self._cancels is not None and self._pause() > 0

    async def turn_to_ask(self, size: int) -> None:
        """Wait until one more request may be under way, in order of arrival, and for the transport's room.

        Raises:
            Error: the connection is over.
        """
        first = False
        while True:
            while not self.over and (len(self.replies) >= self._most or (self.askers and not first)):
                self.askers = self.askers or OrderedDict()
                self.spare = 0  # nobody overtakes
                await self._wait_in(self.askers, self._answered_call, first=first)
                self._answered_call()
                first = True
            await self.writable(size)
            if self.calls:
                self.ask_all()
            if len(self.replies) < self._most:  # it may have filled while this one waited for room
                return

    def _answered_call(self) -> None:
        """Whoever was called asks now, or gave up: the next ones are looked at after this turn."""
        self._called -= 1
        if self.askers:
            self.loop.call_soon(self.wake_askers)

    def wake_askers(self) -> None:
        """Let those who wait ask, as many as there is room for; who was called and has not asked yet counts."""
        free = self._most - len(self.replies) - self._called
        while self.askers and (free > 0 or self.over):
            waiter, _ = self.askers.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                self._called += 1
                free -= 1

    async def _wait_in(self, waiters: Waiters, pass_on: Callable[[], None], *, first: bool) -> None:
        """Wait until somebody takes this waiter out of the queue and calls it. A waiter that is canceled leaves the
        queue; where it was called at the same time, ``pass_on`` sees to the one behind it."""
        waiter = self.loop.create_future()
        waiters[waiter] = None
        if first:
            waiters.move_to_end(waiter, last=False)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                pass_on()
            raise
        finally:
            waiters.pop(waiter, None)

    def check(self) -> None:
        """Raise unless the connection can be used."""
        if self.over:
            raise self._unsent()

    def _unsent(self) -> Error:
        """The error for what was never sent: it is safe to try again."""
        error = self.reason()
        error.may_have_been_processed = False
        return error

    def _reasons(self) -> Callable[[int], Error]:
        """The error for each stream that is under way: for one of which nothing was written it is safe to try again."""
        reason, safe, unsent = self.reason(), self._unsent(), self.engine.unsent
        return lambda stream: safe if unsent(stream) else reason

    def reason(self) -> Error:
        """The error for those who come when it is over."""
        if self.error is None:
            return ConnectionClosed("the connection is closed")
        return self.error.again()

    def spawn(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None, stream: int = 0
    ) -> asyncio.Task[Any]:
        """Start a task that belongs to this connection. The owner is told the end of one for a ``stream``."""
        task = self.loop.create_task(work) if context is None else self.loop.create_task(work, context=context)
        self.tasks[task] = stream
        task.add_done_callback(self._task_done)
        return task

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task that ``spawn`` has made, once: a second time would break off what it does to end in order."""
        if (stream := self.tasks.get(task, -1)) >= 0:
            self.tasks[task] = ~stream
            task.cancel()

    def log_failure(self, text: str, error: BaseException | None = None) -> None:
        """Log a failure that has no place on the wire; at most one line a second (DR-12)."""
        now = self.now()
        if now - self._logged >= 1.0:
            self._logged = now
            _log.error("%s", text, exc_info=error)

    def pause_writing(self) -> None:
        """The transport holds enough: requests wait."""
        self.spare = 0
        super().pause_writing()

    # -- the pass -------------------------------------------------------------------------------------------

    def dispatch(self, events: list[Event]) -> None:
        """Tell everyone concerned; then see to writing, reading and time."""
        replies = self.replies
        if self.record is not None and self.record.told(events) and not self.durable():
            return
        for event in events:
            if type(event) is Answers:
                for stream, payload in zip(event.streams, event.payloads, strict=True):
                    future = replies.pop(stream)
                    if not future.done():
                        future.set_result(payload)
                self._consumed += event.size
            elif type(event) is Items and event.stream in replies:
                future = replies.pop(event.stream)
                payload = event.payloads[0]
                self._consumed += len(payload.data) if payload.metadata is None else len(payload)
                if not future.done():
                    future.set_result(payload)
            else:
                _TELL[type(event)](self, event)
        if self.asked:
            self.asked = False
            self.owner.passed()
        if self._consumed or self._taken:
            self.engine.consumed(self._consumed, self._taken)
            self._consumed = self._taken = 0
        if self.askers:
            self.wake_askers()
        self.flush_soon()

    def _items(self, event: Items) -> None:
        inbound = self.inbounds.get(event.stream)
        if inbound is None:
            self._consumed += size_of(event.payloads)
            self._taken += len(event.payloads)
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
        if (session := self.sessions.pop(event.stream, None)) is not None:
            waits = session.failed(event.error)
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
        elif (session := self.sessions.get(event.stream)) is not None:
            session.stop()
        if event.final:
            if (inbound := self.inbounds.pop(event.stream, None)) is not None:
                inbound.finish(None)
            self.owner.canceled(event.stream)

    def _granted(self, event: Granted) -> None:
        if (sender := self.senders.get(event.stream)) is not None:
            sender.wake()
        elif (session := self.sessions.get(event.stream)) is not None:
            session.wake()

    def _session_opened(self, event: SessionOpened) -> None:
        self.owner.session_opened(event)

    def _readable(self, event: Readable) -> None:
        if (session := self.sessions.get(event.stream)) is not None:
            session.readable(event)

    def _acknowledged(self, event: Acknowledged) -> None:
        if (session := self.sessions.get(event.stream)) is not None:
            session.told(event)

    def _opened(self, event: Opened) -> None:
        self.owner.opened(event)

    def _requested(self, event: Requests) -> None:
        self.owner.requested(event)

    def _established(self, event: Established) -> None:
        self.leased = self.engine.leases is not None
        self.owner.established(event)

    def _pushed(self, event: Pushed) -> None:
        self._consumed += len(event.metadata)
        self.owner.pushed(event)

    def _drains(self, event: Draining) -> None:
        self.draining = True

    def _leased(self, event: Leased) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(None)
        if event.requests:
            self._wake_unleased()

    def _extended(self, event: Extended) -> None:
        self._consumed += len(event.body)
        self.owner.extended(event)

    # -- sessions that outlive their transport ----------------------------------------------------------------

    def _suspended(self, event: Suspended) -> None:
        self.detach()
        if self.durable():
            self.owner.suspended(event)

    def _resuming(self, event: Resuming) -> None:
        self.owner.resuming(event)

    def _resumed(self, event: Resumed) -> None:
        self.owner.resumed()

    def joined(self) -> None:
        """There is a transport again: at a client, ask to go on."""
        resumption = self.engine.resumption
        if resumption is not None and resumption.suspended:
            self.run(resumption.reconnect, self.now())

    def hand_over(self) -> tuple[asyncio.Transport | None, bytes]:
        """Give the transport, and what came on it, to another session; this one is over."""
        resumption = self.engine.resumption
        rest = self._held if resumption is None else resumption.hand_over() + self._held
        transport = self.release()
        self.end(None)
        return transport, rest

    # -- sessions that outlive their process ------------------------------------------------------------------

    def durable(self) -> bool:
        """Write down the session, if it is kept. False when that fails: then the connection is over, because what was
        not written must not be seen."""
        if self.record is None:
            return True
        try:
            self.record.save()
        except StoreError as error:
            self._not_kept(error)
            return False
        return True

    def note(self) -> None:
        """Write down what the application has done."""
        if self.record is not None and self.record.dirty:
            self.durable()

    def jammed(self) -> None:
        """What is not taken fills the memory of the connection, so that what others wait for can not be read. Give up
        the stream that holds most of it. Where nobody waits for the peer, nobody is held up: it may take its time."""
        waits = any(self.replies) or any(inbound.waiter is not None for inbound in self.inbounds.values())
        if not waits and not any(sender.starved for sender in self.senders.values()):
            return
        stream = max(self.inbounds, key=lambda stream: self.inbounds[stream].held, default=0)
        if not stream or not self.inbounds[stream].held:
            return
        inbound = self.inbounds.pop(stream)
        text = "buffer-full: what was not taken of this stream held up the others on its connection"
        inbound.finish(LimitExceeded(text, stream=stream, rule="connection_bytes"))
        inbound.drop()
        self.engine.cancel(stream)
        self.flush_soon()

    def settled(self, stream: int, items: int) -> None:
        """The application is done with items: the file knows it before it gets the next one."""
        if self.record is not None and self.record.settled(stream, items):
            self.durable()

    def forget(self, stream: int) -> None:
        """The application has heard the end of a stream, or does not want it."""
        if self.record is not None:
            self.record.drop(stream)
            self.flush_soon()

    def leave(self) -> None:
        """Let the session stay in its file as it is, and end here: the peer is told nothing."""
        self.record = None
        transport = self.release()
        if transport is not None:
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
        self.end(ConnectionClosed("this side has left; the session waits in its file"))

    def _not_kept(self, error: Error) -> None:
        self.log_failure(f"afflux: a session can not be kept: {error}")
        self._end_record()
        for inbound in self.inbounds.values():
            inbound.drop()  # the file says that these were not taken
        self.end(error)
        self.run(self.engine.close, self.now(), reason="the session can not be kept")

    def _end_record(self) -> None:
        """The session is over: nobody shall find it in the file."""
        record, self.record = self.record, None
        if record is not None:
            try:
                record.remove()
            except StoreError as error:
                self.log_failure(f"afflux: a session that is over stays in its file: {error}")

    def _ignored(self, event: Ignored) -> None:
        """The engine has charged it; nobody else is concerned."""

    def _closed(self, event: Closed) -> None:
        self.end(event.error)

    # -- writing --------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Queue what was asked for, and what producers have made, in this turn."""
        if self.calls:
            self.ask_all()
        if self._consumed or self._taken:
            self.engine.consumed(self._consumed, self._taken)
            self._consumed = self._taken = 0
        if self.dirty and not (self.away or self.lost):
            dirty, self.dirty = self.dirty, []
            for sender in dirty:
                sender.flush()
        self.turn += 1
        self.promised = 0
        if self.fair is not None:
            self.fair.crowd(len(self.parked))

    def roomy(self, unsent: int) -> None:
        """Wake those who wait for room, once there is a good deal of it: as many as it is enough for, the first first.
        Whoever is awake makes something and has it flushed, and then the next ones are looked at."""
        engine, fair = self.engine, self.fair
        for stream in () if fair is None else fair.caught_up():
            if (behind := self.senders.get(stream)) is not None:
                behind.wake()
        if not (self.parked or self.piled or self._writable or self.held_back):
            return
        if (room := engine.room(unsent) if fair is None else fair.room_beside(unsent)) >= self._plenty:
            for sender in islice(self.parked, min(1 + room // self.loop_bytes, self._at_once)):
                sender.call()
            self._wake_writable(_AT_ONCE)
            if self.held_back:
                self.held_back = False
                self.owner.roomy()
        if self.piled and engine.room(unsent) >= self._plenty:
            next(iter(self.piled)).call()

    def _wake_writable(self, most: int) -> None:
        while self._writable and most:
            waiter, _ = self._writable.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    # -- endings ------------------------------------------------------------------------------------------

    def end(self, error: Error | None) -> None:
        """The connection is over: tell everyone once, flush, close."""
        if self.over:
            return
        self.over = True
        self._held = b""
        if self.error is None:
            self.error = error
        self._end_record()
        reason, reason_of = self.reason(), self._reasons()
        for stream, future in self.replies.items():
            if not future.done():
                future.set_exception(reason_of(stream))
        for call in self.calls:
            if not call[1].done():
                call[1].set_exception(self._unsent())
        self.replies.clear()
        self.calls.clear()
        self.spare = 0
        for inbound in self.inbounds.values():
            inbound.finish(reason)
        self.inbounds.clear()
        for sender in self.senders.values():
            sender.stop()
        self.senders.clear()
        for stream, session in self.sessions.items():
            session.failed(reason_of(stream))
        self.sessions.clear()
        self._end_unopened()
        self._wake_writable(len(self._writable))
        self._wake_unleased()
        self.wake_askers()
        for told in (self.answered, self._when_closed):
            if told is not None and not told.done():
                told.set_result(None)
        self._end_transport()
        self.owner.ended()
        if self.lost:
            self.owner.parted()
        self.flush_soon()
        self._check_finished()

    def _end_transport(self) -> None:
        """Give the last words ``flush_s``."""
        if self.transport is None:
            self.lost, self.away = True, False
            self._stop_timers()
        elif not self.lost:
            self._linger = self.loop.call_later(self.engine.limits.flush_s, self.transport.abort)

    def _end_unopened(self) -> None:
        """Streams that were never opened end as well: nothing was sent."""
        unopened, self.unopened = self.unopened, {}
        for inbound, producer in unopened.items():
            if producer is not None:
                producer.cancel()
            inbound.finish(self._unsent())

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        stream = self.tasks.pop(task, 0)
        if stream and stream != -1:
            self.owner.task_ended(max(stream, ~stream), task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log_failure("afflux: a handler's task failed", error)
        self._check_finished()

    def gone(self) -> None:
        """The transport is gone."""
        self.owner.parted()
        self._check_finished()

    def _check_finished(self) -> None:
        if self.lost and not self.tasks and not self._has_left:
            self._has_left = True
            if self._when_finished is not None:
                self._when_finished.set_result(None)
            self.loop.call_soon(self._let_go)

    def _let_go(self) -> None:
        """Nothing will happen here any more: let go of who holds this object, so that it needs no garbage collector."""
        owner, self.owner = self.owner, _NOBODY
        self.transport = None
        self.dirty.clear()
        owner.left()


_NOBODY: Final = Listening()
"Who is told of a connection that is over."


def _future(loop: asyncio.AbstractEventLoop, *, done: bool) -> asyncio.Future[None]:
    future = loop.create_future()
    if done:
        future.set_result(None)
    return future


_TELL: dict[type, Callable[[Driver, Any], None]] = {
    Established: Driver._established,
    Opened: Driver._opened,
    Requests: Driver._requested,
    Items: Driver._items,
    Block: Driver._block,
    Completed: Driver._completed,
    Failed: Driver._failed,
    Canceled: Driver._canceled,
    Granted: Driver._granted,
    Pushed: Driver._pushed,
    SessionOpened: Driver._session_opened,
    Readable: Driver._readable,
    Acknowledged: Driver._acknowledged,
    Leased: Driver._leased,
    Extended: Driver._extended,
    Suspended: Driver._suspended,
    Resuming: Driver._resuming,
    Resumed: Driver._resumed,
    Draining: Driver._drains,
    Ignored: Driver._ignored,
    Closed: Driver._closed,
}
