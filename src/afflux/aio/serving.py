"""Start the handlers of one connection: route each event of the peer to the part that serves it.

requests    requests and fires        slots       handlers at work, and requests that wait for a slot
producers   streams and channels      here: push, extensions and sessions
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

from afflux.aio.driver import Driver
from afflux.aio.flow import DEFAULT_CREDIT
from afflux.aio.owner import Owner
from afflux.aio.producers import Producers
from afflux.aio.requests import Requests, awaited
from afflux.aio.sender import Sender
from afflux.aio.session import Session
from afflux.aio.slots import NONE, Slots
from afflux.aio.verbs import Extension
from afflux.core.autocredit import Kept
from afflux.core.bucket import Bucket
from afflux.core.credit import StreamStatus
from afflux.core.errors import Rejected
from afflux.core.events import Extended, Opened, Pushed, SessionOpened
from afflux.core.events import Requests as RequestsEvent

__all__ = ["Serving"]

_PAUSE = 64
"Cancels that the bucket must accept again before reading continues."

_FEW_CANCELED = 64
"Canceled requests that stay in the queues until they are half of them."


_NOT_OPEN = 0
"The number of a request that waits to be opened."
_MOVED_BY_FRAMES = (None, "credit", "producer")
"Reasons that mean ``transport`` while the session waits for a connection."


class Serving(Owner):
    """The handlers of one connection."""

    def __init__(
        self,
        verbs: dict[str, Callable[..., Any]],
        *,
        credit: Kept = DEFAULT_CREDIT,
        extensions: Mapping[int | str, Extension] | None = None,
    ) -> None:
        self.slots = Slots(verbs, self)
        "The handlers at work, their driver and their context."
        self.requests = Requests(self.slots)
        "The handlers of requests and fires."
        self.producers = Producers(self.slots, credit)
        "The handlers of streams and channels."
        self._extensions = {} if extensions is None else extensions
        self._cancels: Bucket | None = None
        self._sessions: dict[int, Session] = {}
        "Sessions whose handler runs."
        self.sessions_begun = 0
        "Handlers of sessions that have begun."
        self._in_turn: CallsInTurn | None = None

    @property
    def driver(self) -> Driver:
        """The connection."""
        return self.slots.driver

    @property
    def waiting(self) -> set[int]:
        """The streams that wait for a handler."""
        return self.requests.waiting | {one[1] for one in self.producers.queue.items}

    def statuses(self) -> list[StreamStatus]:
        """Return the live streams in the order in which they were opened, then those that wait for a lease.

        An engine reports credit, its own queue and its memory. The driver adds whether the transport is full, whether a
        request waits for a handler or a lease, and whether the application consumes the items that have arrived.
        """
        driver = self.driver
        found = driver.engine.streams(room=driver.output.room_beside(), now=driver.state.now())
        without_handler = self.waiting
        streams = [_status(driver, status, waits=status.stream in without_handler) for status in found]
        for verb in driver.leases.verbs:
            streams.append(StreamStatus.of(_NOT_OPEN, verb, "WAITING", requester=True, bounds=("lease",)))
        return streams

    # -- requests -----------------------------------------------------------------------------------------------

    def opened(self, event: Opened) -> None:
        """The peer sent a request."""
        verb = event.verb
        if verb not in self.slots.verbs:
            self._refuse_verb(event)
            return
        if verb == "request":
            self.requests.queue.extend(((verb, event.stream, event.payload),))
        elif verb == "fire":
            self.requests.add_fire(event.stream, event.payload)
        else:
            self.producers.add(event, 0)
        self.slots.driver.requested = True

    def requested(self, event: RequestsEvent) -> None:
        """The peer sent several requests together."""
        if "request" in self.slots.verbs:
            self.requests.queue.extend(zip(repeat("request"), event.streams, event.payloads, strict=False))
            self.slots.driver.requested = True
        else:
            super().requested(event)

    def begin_again(self, event: Opened, sent: int) -> None:
        """Begin the handler of a request again. A former process has sent ``sent`` items of the answer."""
        if event.verb == "stream":
            self.producers.add(event, sent)
            self.slots.driver.requested = True
        else:
            self.opened(event)

    def on_writable(self) -> None:
        """There is room to send again. From now on requests wait only for handlers."""
        self.requests.queue.stop()
        self.producers.queue.stop()
        self.on_free_slot()

    def on_free_slot(self) -> None:
        """A condition that handlers wait for may have changed."""
        if self.requests.release() or self.producers.queue.items:
            self.begin()

    def begin(self) -> None:
        """Begin the handlers that may begin."""
        if self.producers.queue.items:
            self.producers.begin()
        self.requests.begin()

    def task_ended(self, stream: int, task: asyncio.Task[Any]) -> None:
        """A task that was spawned for a stream has ended. One that was canceled before it began has run nothing."""
        running = self.slots.running.get(stream)
        if running is not None and running[1] is task:
            self.slots.returned(stream)

    def canceled(self, stream: int) -> None:
        """The peer canceled a request: its handler ends, at its next wait."""
        slots, queues = self.slots, (self.requests.queue, self.producers.queue)
        running = slots.running.get(stream)
        if running is not None:
            self.driver.tasks.cancel(running[1])
            self._count_cancel()
        elif any(queue.items for queue in queues):
            if not isinstance(slots.canceled, set):
                slots.canceled = set()
            slots.canceled.add(stream)
            if len(slots.canceled) > max(_FEW_CANCELED, sum(len(queue.items) for queue in queues) // 2):
                for queue in queues:
                    queue.drop_canceled()
                slots.canceled = NONE

    def _count_cancel(self) -> None:
        """Count a handler that was canceled. Above the limit, reading slows down to its rate."""
        driver = self.driver
        limits, now = driver.engine.limits, driver.state.now()
        if self._cancels is None:
            self._cancels = Bucket(*limits.cancel_bucket)
        if not self._cancels.take(1, now) and not driver.state.over:
            driver.input.pause_for(self._cancels.wait(min(_PAUSE, self._cancels.burst), now) or 0.0)

    def failed(self, sender: Sender, error: Exception) -> None:
        """An item that a handler has produced cannot be sent: report it to the peer, and end the handler."""
        running = self.slots.running.get(sender.id)
        if running is not None and not sender.over:
            verb, _, asked = running
            self.slots.fail(verb, sender.id, error, None if asked is None else asked.event.payload)
            sender.stop()
            self.driver.tasks.cancel(running[1])

    def _refuse_verb(self, event: Opened) -> None:
        there = ", ".join(verb for verb in self.slots.verbs if verb != "push") or "nothing"
        self.driver.input.consumed(len(event.payload), 1)
        self.slots.turn_away(event.stream, Rejected(f'no handler for "{event.verb}"; handled here: {there}'))
        self.driver.engine.release(event.stream)

    # -- the end ------------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """The connection is over: cancel handlers, except those of fires, which the peer cannot repeat."""
        slots = self.slots
        self.producers.queue.stop()
        self.producers.queue.clear()
        self.requests.end()
        slots.canceled = NONE
        self.requests.begin()
        for stream, (verb, task, _) in slots.running.items():
            session = self._sessions.get(stream)
            if verb != "fire" and (session is None or not session.notified):
                self.driver.tasks.cancel(task)

    def left(self) -> None:
        """No handler will run any more: drop references."""
        self.slots.leave()

    async def fired(self) -> None:
        """Wait until all received fires have been handled."""
        await self.requests.fired()

    def stop(self) -> None:
        """Cancel every handler, and drop the waiting requests."""
        self.producers.queue.clear()
        self.requests.stop()
        if self._in_turn is not None:
            self._in_turn.stop()
        for task in self.driver.tasks.running:
            self.driver.tasks.cancel(task)

    # -- sessions of bytes ----------------------------------------------------------------------------------

    def session_opened(self, event: SessionOpened) -> None:
        """The peer opened a session: its handler reads and writes it. A session that it leaves open is finished."""
        driver, stream = self.driver, event.stream
        self.sessions_begun += 1
        session = self._sessions[stream] = Session(driver, stream)
        task = driver.tasks.spawn(self._serve_session(session), self.slots.context.copy())
        self.slots.begin("session", stream, task)
        task.add_done_callback(lambda task: self._left_session(stream))

    async def _serve_session(self, session: Session) -> None:
        try:
            await awaited(self.slots.verbs["session"](session))
            session.finish()
        except BaseException as error:
            if session.error is None:
                self.slots.fail("session", session.stream, error)
            if not isinstance(error, Exception):
                raise

    def _left_session(self, stream: int) -> None:
        self._sessions.pop(stream, None)
        self.driver.streams.sessions.pop(stream, None)
        self.slots.returned(stream)

    # -- push and extensions --------------------------------------------------------------------------------

    def pushed(self, event: Pushed) -> None:
        """The peer pushed metadata."""
        if (push := self.slots.verbs.get("push")) is not None:
            self._call("push", partial(push, event.metadata))

    def extended(self, event: Extended) -> None:
        """A frame of an extension arrived."""
        what = f"extension {event.type}, stream {event.stream}"
        self._call(what, partial(self._extensions[event.type], event.stream, event.body))

    def _call(self, what: str, call: Callable[[], Any]) -> None:
        self._in_turn = self._in_turn or CallsInTurn(self.slots)
        self._in_turn.add(what, call)


class CallsInTurn:
    """Calls that run one after another. Reading pauses while too many of them wait."""

    __slots__ = ("_slots", "_task", "_waiting")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: deque[tuple[str, Callable[[], Any]]] | tuple[()] = ()
        self._task: asyncio.Task[None] | None = None

    def add(self, what: str, call: Callable[[], Any]) -> None:
        """Queue one more call; ``what`` names it if it fails."""
        driver = self._slots.driver
        self._waiting = self._waiting or deque()
        self._waiting.append((what, call))
        if self._task is None:
            self._task = driver.tasks.spawn(self._run(), self._slots.context.copy())
        if len(self._waiting) >= driver.engine.limits.metadata_push_queue:
            driver.input.on_hold = True

    def stop(self) -> None:
        """Drop the calls that wait."""
        if self._waiting:
            self._waiting.clear()

    async def _run(self) -> None:
        driver = self._slots.driver
        try:
            while self._waiting:
                what, call = self._waiting.popleft()
                try:
                    await awaited(call())
                except Exception as error:
                    self._slots.failed += 1
                    driver.state.log_failure(f"afflux: a handler raised: {what}, peer {driver.state.far}", error)
                if driver.input.on_hold:
                    driver.input.on_hold = False
                    driver.input.check()
        finally:
            self._task = None


def _status(driver: Driver, status: StreamStatus, *, waits: bool) -> StreamStatus:
    sender = driver.streams.senders.get(status.stream)
    inbound = driver.streams.inbounds.get(status.stream)
    if waits:
        return replace(status, reason="local")
    if (status.queued and driver.output.blocked) or driver.room.delays(sender):
        return replace(status, reason="transport")
    if inbound is not None and inbound.chunks and status.reason == "producer":
        return replace(status, reason="application")
    if driver.state.away and status.reason in _MOVED_BY_FRAMES:
        return replace(status, reason="transport")
    return status
