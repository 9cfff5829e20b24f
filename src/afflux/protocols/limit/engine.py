"""Offer one end of a Limit-Stream connection by the contract of core.engine.

A stream of the contract is a session, opened by the client with the verb "channel": the payload's metadata is the
channel's name. Sessions are counted from 1 at both sides. Items are payloads with one value each, or ``Choice``
(messages.py).

The parts: connection.py (the connection itself), sessions.py (the live session), ids.py (the numbers of messages),
steps.py (what the session type decides), inbound.py (splitting) and outbound.py (queueing). Time is an argument: every
method that needs it takes ``now`` in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from afflux.core.credit import SATURATED, StreamStatus
from afflux.core.engine import Defaults, TypedSessions
from afflux.core.errors import ConnectionClosed, Unsupported, Violation
from afflux.core.events import Event, Verb
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike, payload_of
from afflux.protocols.limit import runs
from afflux.protocols.limit.connection import Connection
from afflux.protocols.limit.ids import Numbers
from afflux.protocols.limit.sessions import Channels, Sessions
from afflux.protocols.limit.shared import Shared
from afflux.protocols.limit.states import ConnectionInput, ConnectionState
from afflux.protocols.limit.typed import TypedSteps

__all__ = ["Engine"]

_S, _I = ConnectionState, ConnectionInput
_OPENS = (_S.START, _S.IDLE, _S.ENDED, _S.FAILED, _S.OPEN)


class Engine(Defaults):
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it has connected, and only it opens sessions) or "server".
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after the first SETUP instead of accepting immediately.
        now: the current time, in monotonic seconds: the handshake timeout starts here.
        channels: returns this side's view of the session type of a channel, None for an unknown one; without it each
            channel is ``Plain``.
        explicit_first_choice: send CHOOSE for the first branch too, where the next message would imply it (D-5).
        reuse_ids: begin again with the first id after the largest (R-17).
        numbers: the numbers of messages to continue from; new ones if None.
    """

    __slots__ = ("_full", "connection", "limits", "out", "sessions", "shared", "typed_sessions")

    most_credit: ClassVar[int] = SATURATED
    typed_sessions: TypedSessions

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        limits: Limits | None = None,
        decide: bool = False,
        now: float = 0.0,
        channels: Channels | None = None,
        explicit_first_choice: bool = False,
        reuse_ids: bool = False,
        numbers: Numbers | None = None,
    ) -> None:
        client = role == "client"
        self.limits = limits = limits or Limits.server()
        numbers = numbers or Numbers(client, reuse_ids)
        self.shared = shared = Shared(limits, numbers, now)
        self.out = shared.out
        self.typed_sessions = TypedSteps()
        self.sessions = Sessions(shared, client, channels, explicit_first_choice)
        self.connection = Connection(shared, self.sessions, decide=decide)
        self._full = False
        "This side could take no more input at the last check."

    # -- the driver's side ----------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Apply bytes that arrived at ``now``; return the resulting events."""
        shared, connection = self.shared, self.connection
        if shared.state is _S.CLOSED:
            return []
        if self._full:
            connection.hold(now)
        shared.now = connection.idle_since = now
        events = connection.run(connection.inbound.receive, connection, data, now)
        self._full = not self.wants_read
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """Report the end of the peer's half. If frames wait for the application, the connection ends behind them; the
        second call reports that the transport is closed in both directions."""
        shared, connection = self.shared, self.connection
        shared.now = now
        if connection.inbound.held and connection.reads and not connection.eof:
            connection.eof = True
            return shared.take_events()
        return connection.run(connection.step, _I.LOST, None)

    def tick(self, now: float) -> list[Event]:
        """Apply the passing of time, and what the application has asked for since the last call."""
        shared, connection = self.shared, self.connection
        if shared.state is _S.CLOSED:
            return []
        shared.now = now
        full = not self.wants_read
        if full or self._full:
            connection.hold(now)
        self._full = full
        return connection.run(connection.tick)

    @property
    def deadline(self) -> float | None:
        """When tick is next needed."""
        shared, connection = self.shared, self.connection
        if shared.events:
            return shared.now  # a verb has queued an event
        if shared.state is _S.CLOSED:
            return None
        if shared.ended is not None:
            return shared.now  # a verb has ended the session
        if connection.inbound.held and connection.reads and not connection.waiting:
            return shared.now  # the application has asked for what waits
        return connection.due

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Return bytes to write now."""
        return self.out.take(limit)

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing."""
        return self.out.size

    @property
    def held_bytes(self) -> int:
        """Bytes that this end buffers."""
        shared, session = self.shared, self.shared.session
        early = 0 if session is None else session.early_bytes
        held = shared.out.size + self.connection.inbound.buffer.pending + shared.delivered + early
        return held + shared.objects * self.limits.object_overhead_bytes

    @property
    def wants_read(self) -> bool:
        """False while more input would exceed the limits, or waits for the application."""
        limits, shared, connection = self.limits, self.shared, self.connection
        if connection.inbound.held and (connection.reads or connection.inbound.buffer.pending >= _most_held(limits)):
            return False
        if len(self.sessions.handlers) > self.sessions.many_handlers:
            return False
        if shared.full:
            return False
        most = limits.outbound_high_bytes + limits.payload_bytes
        return shared.out.size <= most and shared.out.frames < limits.outbound_high_frames + limits.control_replies

    @property
    def closed(self) -> bool:
        """True once Closed was returned."""
        return self.shared.state is _S.CLOSED

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued, 0 when there are too many frames."""
        out, limits = self.out, self.limits
        if out.frames >= limits.outbound_high_frames:
            return 0
        return max(0, limits.outbound_high_bytes - out.size - unsent)

    def consumed(self, size: int, items: int = 0) -> None:
        """Account for payloads of ``size`` bytes in all that the application consumed."""
        self.shared.delivered = max(0, self.shared.delivered - size)
        self.shared.objects = max(0, self.shared.objects - items)

    # -- the application's side -----------------------------------------------------------------------------

    def accept(self, now: float) -> list[Event]:
        """Accept the peer; apply what it sent meanwhile."""
        self.connection.check_deciding()
        self.shared.now = now
        return self.connection.run(self.connection.accept)

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer with ERROR[REJECTED_SETUP]."""
        self.connection.check_deciding()
        self.shared.now = now
        return self.connection.run(self.connection.step, _I.APP_REFUSE, Violation(reason, rule="3.1"))

    def open(
        self,
        verb: Verb,
        payload: PayloadLike,
        *,
        credit: int = 0,
        complete: bool = False,
        columnar: bool = False,
        now: float | None = None,
    ) -> int:
        """Open a session at a client: the verb is "channel", and the payload an ``Opening``, or one whose metadata is
        the channel's name. ``credit`` is the number of items that the application takes first.

        Raises:
            ConnectionClosed: no session can be opened any more.
            LimitExceeded: a session is live, or the connection cannot have another one (R-16, R-25, D-14).
            LocalProtocolError: the channel is unknown, or the metadata is not a name.
            Unsupported: another verb, or a server.
        """
        sessions, connection, shared = self.sessions, self.connection, self.shared
        if verb != "channel" or not sessions.client:
            who = "a client's channel" if verb == "channel" else "channel"
            raise Unsupported(f"limit has no {verb} here; it has: {who}, a session of a session type")
        if shared.state is not _S.DRAINING:
            connection.settle()
        if shared.state not in _OPENS:
            raise ConnectionClosed.unsent(f"no new sessions while the connection is {shared.state.name}", rule="3.1")
        steps, setup = sessions.prepare(payload_of(payload))
        stream = connection.open(steps, setup, shared.state is _S.ENDED)
        self.request(stream, credit)
        if complete:
            self.complete(stream)
        return stream

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items of a session. An item that the session type does not permit raises LocalProtocolError, and those
        before it are sent.

        ``complete`` reports that this side has no more items: a Plain channel passes the turn, an Unchecked one
        ends at the server, and in one with a session type nothing of this side may be missing.
        """
        sessions = self.sessions
        if payloads and (session := sessions.find(stream)) is not None and session.sends_runs:
            sent = runs.send(self.shared, session, payloads)  # a variable: mypyc evaluates the start of a slice twice
            payloads = payloads[sent:]
        for payload in payloads:
            if (session := sessions.find(stream)) is not None:
                sessions.send(session, payload_of(payload))
        if complete and (session := sessions.find(stream)) is not None:
            sessions.complete(session)

    def fail(self, stream: int, error: Exception) -> None:
        """End the session with ERROR[APPLICATION_ERROR]."""
        if (session := self.sessions.find(stream)) is not None:
            self.sessions.abort(session, error)

    def request(self, stream: int, n: int) -> None:
        """Ask for ``n`` more items. The wire has no credit: what exceeds it waits in the receive buffer (D-16)."""
        if (session := self.sessions.find(stream)) is not None:
            session.grant(n)

    def cancel(self, stream: int) -> None:
        """End the session at a client; at a server drop what the client still sends."""
        if (session := self.sessions.find(stream)) is not None:
            self.sessions.cancel(session)

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close, immediately or when the session has ended. The wire has no frame for it."""
        self.shared.now = now
        if self.shared.state is _S.CLOSED:
            return []
        input = _I.APP_DRAIN if drain else _I.APP_CLOSE
        return self.connection.run(self.connection.step, input, Violation(reason or "closed", rule="3.1"))

    def begin(self, stream: int) -> None:
        """Record that the handler of a session is running."""
        self.sessions.begun.add(stream)

    def release(self, stream: int) -> None:
        """Record that the handler of a session has returned, or will never begin."""
        self.sessions.handlers.discard(stream)
        self.sessions.begun.discard(stream)

    def credit(self, stream: int) -> int:
        """Number of items that the peer accepts: unbounded until this half is complete."""
        session = self.sessions.find(stream)
        return 0 if session is None else session.to_send.available

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """The live session, if there is one."""
        session, left = self.shared.session, self.room(0) if room is None else room
        return [] if session is None else [session.status(self.sessions.client, left, not self.shared.full)]


def _most_held(limits: Limits) -> int:
    """Bytes that may wait for the decision about a client."""
    return limits.first_frame_bytes
