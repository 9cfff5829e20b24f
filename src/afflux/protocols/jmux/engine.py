"""One end of a Jmux connection, by the contract of core.engine: what a driver calls.

A request is a session: its bytes are the request, eof, and the bytes that come back are the response. Beside that there
are the sessions themselves, which carry bytes in both directions at a time: ``open_session``, ``write``, ``finish``,
``read``, ``abort``, ``acknowledge``. Streams in events and verbs are numbers of this engine: they never come twice,
while the ids on the wire do (``session_id``).
"""

# long: the contract alone is twenty methods; the verbs of sessions come on top.

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from afflux.core.credit import StreamStatus
from afflux.core.engine import ByteSessions
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, Unsupported
from afflux.core.events import Event, Verb
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.core.texts import public_text
from afflux.protocols.jmux.client import ClientSessions
from afflux.protocols.jmux.connection import DEFAULT_FRAGMENT, Connection
from afflux.protocols.jmux.frames import NoOperation
from afflux.protocols.jmux.outbound import INFINITE
from afflux.protocols.jmux.server import ServerSessions
from afflux.protocols.jmux.session import Session
from afflux.protocols.jmux.states import ConnectionInput, ConnectionState

__all__ = ["DEFAULT_FRAGMENT", "Engine"]

_S, _I = ConnectionState, ConnectionInput
_OPEN, _HALF_CLOSED, _CLOSED = _S.OPEN, _S.HALF_CLOSED, _S.CLOSED
_ENDING = (_S.DRAINING, _S.HALF_CLOSED)
_VERBS = "jmux offers request, and sessions of bytes"


# long: see the top of the file
class Engine(Connection):
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it speaks first, and only it opens sessions) or "server".
        limits: the bounds; ``Limits.server()`` if None.
        now: the time at birth, in monotonic seconds: the handshake's time starts here.
        sessions: a server hears of sessions as they open (SessionOpened, Readable), not of whole requests (Opened).
        fragment: the most bytes of one Data message, 1 to 65,535.
        max_wait_for_id: how many seconds a session may wait for an id; 0 for none: then ``open`` raises.
        auto_ack: a client acknowledges a response that was read to its end, and that of a request when it is handed
            over. Otherwise ``acknowledge`` has to be called.
        ping_interval: seconds of silence before a Ping; ``limits.keepalive_s`` if None, 0 for never (I-5).
        noop_data: NoOperation may carry data. The Java original fails at it (I-10).
        lenient_partial: a client may say partial, as the Java original lets it (D-12, I-11).
        max_session_id: 255 for the peers that use twice as many ids (I-14).
    """

    __slots__ = ()

    scheduler: ClassVar[None] = None
    resumption: ClassVar[None] = None
    leases: ClassVar[None] = None
    extensions: ClassVar[None] = None
    setup: ClassVar[None] = None
    most_credit: ClassVar[int] = 0x7FFFFFFF

    @property
    def byte_sessions(self) -> ByteSessions:
        """Sessions of bytes, which are this engine's own verbs."""
        return self

    # -- the driver's side ----------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Take bytes that arrived at ``now``; return what they mean."""
        if self._state is _CLOSED or self._state is _HALF_CLOSED:
            return []
        if self._full:
            self._hold(now)
        self._now = self._heard = now
        events = self._run(self._in.receive, data, now)
        self._full = not self.wants_read
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """The peer has ended its half. A server finishes its responses, and says Closed then; the second call says
        that the transport is gone in both directions."""
        self._now = now
        return self._run(self._step, _I.EOF, 0, b"the connection was lost")

    def tick(self, now: float) -> list[Event]:
        """Time passed: send a Ping, give up what takes too long."""
        if self._state is _CLOSED:
            return []
        late = now - min(self._due(), now)
        self._now = now
        full = not self.wants_read
        if full or self._full:
            self._hold(now)
        self._full = full
        return self._run(self._tick, late)

    @property
    def deadline(self) -> float | None:
        """When tick is next wanted."""
        if self._state is _CLOSED:
            return None
        if self._state in _ENDING and self._sessions.idle:
            return self._now  # the last response has left: tick says Closed
        if self._sessions.fresh:
            return self._now  # verbs do not know what time it is: what they have begun begins with the next look
        due = self._due()
        return None if due == inf else due

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Bytes to write now."""
        if self._sessions.rations.changed:
            self._sessions.give()
        return self._out.take(limit)

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing; what waits for the peer's ration is not among them."""
        return self._out.size

    @property
    def held_bytes(self) -> int:
        """Bytes that this end holds."""
        sessions, out = self._sessions, self._out
        return len(self._in.buffer.held) + sessions.unread + sessions.rations.delivered + out.pending + out.control_size

    @property
    def wants_read(self) -> bool:
        """False while too many answers to Ping and Abort wait to be written: a peer that says much and reads nothing.
        No session can make it False (R-40)."""
        return self._out.replies < self.limits.control_replies

    @property
    def closed(self) -> bool:
        """True once Closed was returned."""
        return self._state is _CLOSED

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued. At a server answers that wait for their client's ration count as well, but
        each session has a share of ``connection_bytes`` for itself: so one that nobody reads stops no small ones
        (R-40). Half as much again is for those that are larger."""
        limits, out = self.limits, self._out
        room = limits.outbound_high_bytes - out.size
        if isinstance(self._sessions, ServerSessions) and out.pending > limits.connection_bytes // 4:
            room = min(room, limits.connection_bytes // 2 - self._sessions.beyond_share)
        return max(0, room - unsent)

    def consumed(self, size: int, items: int = 0) -> None:
        """The application took whole payloads of ``size`` bytes in all."""
        self._sessions.rations.consumed(size)

    def _hold(self, now: float) -> None:
        """This side does not read: the peer's time stands still."""
        self._heard = now
        if self._pinged is not None:
            self._pinged = now
        if self._in.incomplete_since is not None:
            self._in.incomplete_since = now

    # -- the contract's verbs -------------------------------------------------------------------------------

    def accept(self, now: float) -> list[Event]:
        """There is never a decision to make: a header asks for nothing."""
        raise LocalProtocolError("there is nothing to decide in jmux", rule="3.2")

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """As ``accept``; ``close`` ends a connection."""
        return self.accept(now)

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
        """Open a session for a request, which is told whole (Items), and return its number.

        Raises:
            Unsupported: another verb than "request", or metadata.
            NoSession: no session can be opened now; open another connection (R-21).
        """
        if verb != "request":
            raise Unsupported(f"jmux has no {verb}: {_VERBS}")
        data = _data_of(payload)
        session = self._new(True, now)
        self._say(session, data)
        return session.stream

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open a session for each request, as far as there are any."""
        streams: list[int] = []
        for payload in payloads:
            try:
                streams.append(self.open("request", payload))
            except LimitExceeded:
                if not streams:
                    raise
                break
        return streams

    def answer(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Send one response for each request, and release it."""
        for stream, payload in zip(streams, payloads, strict=True):
            self.send(stream, [payload], complete=True)
            self.release(stream)

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send bytes, however many: what the ration does not allow yet waits. Boundaries are lost."""
        for payload in payloads:
            self._sessions.write(stream, _data_of(payload), within=False)
        if complete:
            self.finish(stream)

    def complete(self, stream: int) -> None:
        """End this half."""
        self.finish(stream)

    def fail(self, stream: int, error: Exception) -> None:
        """End the session with Abort; from a server it says that something may have been processed (JA-06)."""
        self.abort(stream, public_text(error))

    def request(self, stream: int, n: int) -> None:
        """Rations follow from what is read; nobody grants them."""
        raise Unsupported("jmux counts bytes: reading from a session makes room for more")

    def cancel(self, stream: int) -> None:
        """Take no more from the peer: a client aborts the session, a server drops the rest of the request."""
        session = self._sessions.by_stream.get(stream)
        if session is None:
            return
        if isinstance(self._sessions, ServerSessions):
            self._sessions.drop(session)
        else:
            self._sessions.abort(session, "")

    def push(self, metadata: bytes) -> None:
        """There is no metadata."""
        raise Unsupported(f"jmux has no push: {_VERBS}")

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close at once, or with ``drain`` when the live sessions have ended. A server says Shutdown if it is true that
        nothing was processed (JA-07)."""
        self._now = now
        self._reason = reason or "closed"
        return self._run(self._step, _I.APP_DRAIN if drain else _I.APP_CLOSE, 0, b"")

    def begin(self, stream: int) -> None:
        """The handler of a session is at work."""
        if isinstance(self._sessions, ServerSessions):
            self._sessions.begin(stream)

    def release(self, stream: int) -> None:
        """The handler of a session has really returned; what is left of a request that it did not read is dropped."""
        if isinstance(self._sessions, ServerSessions):
            self._sessions.release(stream)

    def credit(self, stream: int) -> int:
        """How many bytes may be written now."""
        return self._sessions.credit(self._sessions.by_stream[stream]) if self.takes(stream) else 0

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """The sessions about which the application can still act, in bytes."""
        return self._sessions.status(self.room(0) if room is None else room)

    # -- sessions -------------------------------------------------------------------------------------------

    def open_session(
        self, data: bytes = b"", *, finish: bool = False, auto_ack: bool | None = None, now: float | None = None
    ) -> int:
        """Open a session of bytes and return its number; ``data`` are its first, which may be none (I-6);
        ``finish`` says that they are all.
        ``auto_ack`` is that of the engine if None.
        ``credit`` says how many more may be written, Granted when there are more, Readable when some have come.

        Raises:
            NoSession: no session can be opened now; open another connection (R-21).
        """
        session = self._new(False, now)
        if auto_ack is not None:
            session.auto_ack = auto_ack
        if finish:
            self._say(session, data)
        elif data:
            self._sessions.write(session.stream, data, within=False)
        return session.stream

    def takes(self, stream: int) -> bool:
        """Whether what is written on a session may still reach the peer."""
        session = self._sessions.by_stream.get(stream)
        return session is not None and not (session.finishing or session.out_done)

    def starve(self, stream: int, waits: bool) -> None:
        """The application waits for credit, or does not any more: only so long the peer's time runs."""
        session = self._sessions.by_stream.get(stream)
        if session is not None and not (session.finishing or session.out_done):
            self._sessions.hunger(session, waits)

    def write(self, stream: int, data: bytes) -> None:
        """Send bytes of a session. What nobody wants any more is dropped without a word (R-27).

        Raises:
            LocalProtocolError: more than ``credit(stream)``, or the session was finished.
        """
        self._sessions.write(stream, data, within=True)

    def finish(self, stream: int, *, ack: bool = False, drop: bool = False) -> None:
        """No more bytes. A server may ask for an acknowledgement of the response (``ack``: then comes Acknowledged),
        and drop the rest of the request (``drop``)."""
        session = self._sessions.by_stream.get(stream)
        if session is None or session.finishing or session.out_done:
            return
        if isinstance(self._sessions, ServerSessions):
            session.ack_wanted = ack
            if drop:
                self._sessions.drop(session)
        elif ack or drop:
            raise LocalProtocolError("only a server asks for acknowledgement, and drops requests", rule="R-17")
        self._sessions.finish(session)

    def read(self, stream: int, limit: int | None = None) -> bytes:
        """Take bytes that have arrived, all of them or at most ``limit``. That lets the peer send more."""
        return self._sessions.read(stream, limit)

    def abort(self, stream: int, detail: str = "", *, untouched: bool = False) -> None:
        """End a session in both directions; no event follows. A server says that the request may have been processed,
        unless the application was never told of it, or vouches with ``untouched`` that no handler has seen it."""
        session = self._sessions.by_stream.get(stream)
        if session is None:
            return
        if isinstance(self._sessions, ServerSessions):
            self._sessions.abort(session, detail, untouched)
        else:
            self._sessions.abort(session, detail)

    def acknowledge(self, stream: int) -> None:
        """The response was processed (client, made with ``auto_ack=False``): tell the server, if it asked."""
        session = self._sessions.by_stream.get(stream)
        if session is not None and isinstance(self._sessions, ClientSessions):
            self._sessions.acknowledge(session)

    def decline(self, stream: int) -> None:
        """The application is done with a session that is over in both directions: if the server waits for an
        Acknowledgment, it will not come."""
        session = self._sessions.by_stream.get(stream)
        if session is not None and isinstance(self._sessions, ClientSessions):
            self._sessions.decline(session)

    def unsent(self, stream: int) -> bool:
        """Whether nothing of a session was handed over to be written: whatever happens, it is safe to try again."""
        session = self._sessions.by_stream.get(stream)
        return session is not None and not session.written

    def session_id(self, stream: int) -> int | None:
        """The id that a session has on the wire; None while it waits for one, and for one that is over."""
        session = self._sessions.by_stream.get(stream)
        return session.id if session is not None and self._sessions.holds_id(session) else None

    @property
    def first_ration(self) -> int | None:
        """What the peer lets this side send on each new session; None before its header has come, or without end."""
        ration = self._sessions.first_ration
        return ration if 0 < ration < INFINITE else None

    def no_operation(self, data: bytes = b"") -> None:
        """Send NoOperation, which the peer skips (R-12).

        Raises:
            LocalProtocolError: with data, and the engine was made without ``noop_data``.
            ConnectionClosed: the connection is not open.
        """
        if data and not self._noop_data:
            raise LocalProtocolError("NoOperation with data makes some peers fail: see noop_data", rule="R-12")
        if self._state not in (_OPEN, _S.DRAINING):
            raise ConnectionClosed(f"nothing can be sent: the connection is {self._state.name.lower()}")
        self._out.control(NoOperation(data=data).encode())

    def _new(self, whole: bool, now: float | None) -> Session:
        sessions = self._sessions
        if not isinstance(sessions, ClientSessions):
            raise Unsupported("only the client of a jmux connection opens sessions")
        if self._state not in (_S.WAIT_HEADER, _OPEN) or self._leaving:
            state = "draining" if self._leaving else self._state.name.lower()
            raise ConnectionClosed.unsent(f"no session can be opened: the connection is {state}")
        if now is not None:
            self._now = now
            sessions.at(now)
        return sessions.open(whole)

    def _say(self, session: Session, data: bytes) -> None:
        """All that a session has to say."""
        self._sessions.write(session.stream, data, within=False)
        self._sessions.finish(session)


def _data_of(payload: PayloadLike) -> bytes:
    value = payload_of(payload)
    if value.metadata is not None:
        raise Unsupported("jmux carries no metadata")
    return value.data
