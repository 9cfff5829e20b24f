"""Offer one end of a Jmux connection by the contract of core.engine.

A request is a session: its bytes are the request, eof, and the bytes that come back are the response. Sessions of bytes
are in byte_sessions.py. The parts: connection.py (the connection itself), client.py or server.py (the sessions),
inbound.py (parsing) and outbound.py (queueing).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar, Literal

from afflux.core.credit import StreamStatus
from afflux.core.engine import Defaults
from afflux.core.errors import LocalProtocolError, Unsupported
from afflux.core.events import Event, Verb
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike, payload_of
from afflux.core.texts import public_text
from afflux.protocols.jmux.byte_sessions import ByteSessions
from afflux.protocols.jmux.client import ClientSessions
from afflux.protocols.jmux.connection import ENDING, Connection
from afflux.protocols.jmux.dialect import Dialect
from afflux.protocols.jmux.server import ServerSessions
from afflux.protocols.jmux.session import SOON
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import CLIENT, SERVER, ConnectionInput, ConnectionState

__all__ = ["DEFAULT_FRAGMENT", "Engine"]

DEFAULT_FRAGMENT = 1024
"Most bytes of one Data message that this side sends (R-41)."
_LARGEST_FRAGMENT = 0xFFFF

_HALF_CLOSED, _CLOSED = ConnectionState.HALF_CLOSED, ConnectionState.CLOSED
_VERBS = "jmux offers request, and sessions of bytes"


class Engine(Defaults):
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it speaks first, and only it opens sessions) or "server".
        limits: the bounds; ``Limits.server()`` if None.
        now: the current time, in monotonic seconds: the handshake timeout starts here.
        sessions: a server reports sessions as they open (SessionOpened, Readable), not whole requests (Opened).
        fragment: the most bytes of one Data message, 1 to 65,535.
        max_wait_for_id: seconds that a session may wait for an id; 0 for none: then ``open`` raises.
        auto_ack: a client acknowledges a response that was read to its end, and that of a request when it is delivered.
            Otherwise ``acknowledge`` has to be called.
        ping_interval: seconds of silence before a Ping; ``limits.keepalive_s`` if None, 0 for never (I-5).
        dialect: the deviations of the peer; none if None.
    """

    __slots__ = ("_full", "byte_sessions", "connection", "limits", "out", "role", "sessions", "shared")

    byte_sessions: ByteSessions
    most_credit: ClassVar[int] = 0x7FFFFFFF

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        limits: Limits | None = None,
        now: float = 0.0,
        sessions: bool = False,
        fragment: int = DEFAULT_FRAGMENT,
        max_wait_for_id: float = 0.0,
        auto_ack: bool = True,
        ping_interval: float | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        if not 0 < fragment <= _LARGEST_FRAGMENT:
            raise LocalProtocolError(f"a fragment is 1 to {_LARGEST_FRAGMENT} bytes, not {fragment}", rule="R-41")
        self.limits = limits or Limits.server()
        dialect = dialect or Dialect()
        largest = dialect.max_session_id
        self.shared = shared = Shared(self.limits, (CLIENT if role == "client" else SERVER).start, now)
        self.role: ClientSessions | ServerSessions
        if role == "client":
            self.role = ClientSessions(shared, largest, fragment, max_wait_for_id, auto_ack)
        else:
            self.role = ServerSessions(shared, largest, fragment, not sessions)
        self.sessions = self.role.sessions
        self.out = self.sessions.out
        self.connection = Connection(shared, self.role, largest, ping_interval, dialect.lenient_partial)
        self.byte_sessions = ByteSessions(self.role, dialect.noop_data)
        self._full = False
        "This side could take no more input at the last check: the peer's timeout is suspended meanwhile."

    # -- the driver's side ----------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Apply bytes that arrived at ``now``; return the resulting events."""
        shared, connection = self.shared, self.connection
        if shared.state is _CLOSED or shared.state is _HALF_CLOSED:
            return []
        if self._full:
            self._hold(now)
        shared.now = connection.liveness.heard = now
        events = connection.run(connection.inbound.receive, data, now)
        self._full = not self.wants_read
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """Report the end of the peer's half. A server finishes its responses, and then returns Closed; the second call
        reports that the transport is closed in both directions."""
        self.shared.now = now
        return self.connection.run(self.connection.step, ConnectionInput.EOF, 0, b"the connection was lost")

    def tick(self, now: float) -> list[Event]:
        """Apply the passing of time: send a Ping, end what takes too long."""
        shared, connection = self.shared, self.connection
        if shared.state is _CLOSED:
            return []
        late = now - min(connection.due_at, now)
        shared.now = now
        full = not self.wants_read
        if full or self._full:
            self._hold(now)
        self._full = full
        return connection.run(connection.tick, late)

    @property
    def deadline(self) -> float | None:
        """When tick is next needed."""
        shared = self.shared
        if shared.state is _CLOSED:
            return None
        if shared.state in ENDING and self.role.idle:
            return shared.now  # the last response has left: tick returns Closed
        if shared.fresh or self.sessions.inboxes.check_at == SOON:
            return shared.now  # verbs have no clock: what they have begun is timed from the next tick
        due = self.connection.due_at
        return None if due == inf else due

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Return bytes to write now."""
        sessions = self.sessions
        if sessions.rations.changed:
            sessions.inboxes.give()
        return self.out.take(limit)

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing; bytes that wait for the peer's ration are not among them."""
        return self.out.size

    @property
    def held_bytes(self) -> int:
        """Bytes that this end buffers."""
        sessions, out = self.sessions, self.out
        arrived = len(self.connection.inbound.buffer.held) + sessions.inboxes.unread + sessions.rations.delivered
        return arrived + out.pending + out.control_size

    @property
    def wants_read(self) -> bool:
        """False while too many answers to Ping and Abort wait to be written: a peer that sends much and reads nothing.
        No session can make it False (R-40)."""
        return self.out.replies < self.limits.control_replies

    @property
    def closed(self) -> bool:
        """True once Closed was returned."""
        return self.shared.state is _CLOSED

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued. At a server, answers that wait for their client's ration count as well, but
        each session has its own share of ``connection_bytes``, so a session that is not read does not stop small ones
        (R-40). Half as much again is for larger ones."""
        limits, out = self.limits, self.out
        room = limits.outbound_high_bytes - out.size
        if out.pending > limits.connection_bytes // 4 and not self.sessions.requester:
            room = min(room, limits.connection_bytes // 2 - self.sessions.beyond_share)
        return max(0, room - unsent)

    def consumed(self, size: int, items: int = 0) -> None:
        """Account for whole payloads of ``size`` bytes in all that the application consumed."""
        self.sessions.rations.consumed(size)

    def _hold(self, now: float) -> None:
        """Suspend the peer's timeouts: this side does not read."""
        self.connection.liveness.hold(now)
        self.connection.inbound.hold(now)

    # -- the application's side -----------------------------------------------------------------------------

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
        """Open a session for a request, whose response is delivered whole (Items), and return its number.

        Raises:
            Unsupported: another verb than "request", or metadata.
            NoSession: no session can be opened now; open another connection (R-21).
        """
        if verb != "request":
            raise Unsupported(f"jmux has no {verb}: {_VERBS}")
        data = _data_of(payload)
        session = self.byte_sessions.new(True, now)
        self.sessions.write(session.stream, data, within=False, last=True)
        return session.stream

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send bytes, in any quantity: what exceeds the ration waits. Boundaries are lost."""
        ends = len(payloads) - 1 if complete else -1
        for number, payload in enumerate(payloads):
            self.sessions.write(stream, _data_of(payload), within=False, last=number == ends)
        if complete and not payloads:
            self.byte_sessions.finish(stream)

    def fail(self, stream: int, error: Exception) -> None:
        """End the session with Abort; from a server it reports that something may have been processed (JA-06)."""
        self.byte_sessions.abort(stream, public_text(error))

    def request(self, stream: int, n: int) -> None:
        """Raise: rations follow from what is read, and cannot be granted."""
        raise Unsupported("jmux counts bytes: reading from a session makes room for more")

    def cancel(self, stream: int) -> None:
        """Discard further input: a client aborts the session, a server drops the rest of the request."""
        session = self.sessions.by_stream.get(stream)
        if session is not None:
            self.role.cancel(session)

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close immediately, or with ``drain`` when the live sessions have ended. A server sends Shutdown if it is true
        that nothing was processed (JA-07)."""
        self.shared.now = now
        return self.connection.close(drain, reason)

    def begin(self, stream: int) -> None:
        """Record that the handler of a session is running."""
        self.role.begin(stream)

    def release(self, stream: int) -> None:
        """Record that the handler of a session has returned; the rest of a request that it did not read is dropped."""
        self.role.release(stream)

    def credit(self, stream: int) -> int:
        """Number of bytes that may be written now."""
        return self.byte_sessions.credit(stream)

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """The sessions on which the application can still act, in bytes."""
        return self.sessions.status(self.room(0) if room is None else room)

    def unsent(self, stream: int) -> bool:
        """Whether nothing of a session was handed over to be written: if so, it is always safe to retry."""
        return self.sessions.unsent(stream)


def _data_of(payload: PayloadLike) -> bytes:
    value = payload_of(payload)
    if value.metadata is not None:
        raise Unsupported("jmux carries no metadata")
    return value.data
