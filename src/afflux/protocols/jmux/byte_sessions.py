"""Offer sessions of bytes: the Jmux verbs that go beyond those of every engine.

A session carries bytes in both directions concurrently. Streams in events and verbs are numbers of the engine, which
are never reused, while the ids on the wire are (``session_id``).

"""

from __future__ import annotations

from afflux.core.errors import ConnectionClosed, LocalProtocolError, Unsupported
from afflux.protocols.jmux.client import ClientSessions
from afflux.protocols.jmux.frames import NoOperation
from afflux.protocols.jmux.halves import FINISHED, InboundState, OutboundState
from afflux.protocols.jmux.outbound import INFINITE
from afflux.protocols.jmux.server import ServerSessions
from afflux.protocols.jmux.session import Session
from afflux.protocols.jmux.states import ConnectionState

__all__ = ["ByteSessions"]

_S, _ENDED = ConnectionState, InboundState.DONE
_OPENING = (_S.WAIT_HEADER, _S.OPEN)
"States in which sessions can be opened."
_WRITTEN = (*FINISHED, OutboundState.DONE)
"States in which the application writes nothing more."


class ByteSessions:
    """The sessions of one engine; see core.engine.ByteSessions."""

    __slots__ = ("_noop_data", "_role", "_sessions")

    def __init__(self, role: ClientSessions | ServerSessions, noop_data: bool) -> None:
        self._role = role
        self._sessions = role.sessions
        self._noop_data = noop_data

    def new(self, whole: bool, now: float | None) -> Session:
        """Open a session; see ``open_session``. ``whole``: its response is delivered whole."""
        role, shared = self._role, self._role.shared
        if not isinstance(role, ClientSessions):
            raise Unsupported("only the client of a jmux connection opens sessions")
        if shared.state not in _OPENING:
            state = "draining" if shared.state is _S.LEAVING else shared.state.name.lower()
            raise ConnectionClosed.unsent(f"no session can be opened: the connection is {state}")
        if now is not None:
            shared.at(now)
        return role.open(whole)

    def open_session(
        self, data: bytes = b"", *, finish: bool = False, auto_ack: bool | None = None, now: float | None = None
    ) -> int:
        """Open a session of bytes and return its number; ``data`` are its first bytes, possibly none (I-6); ``finish``:
        they are all of them. ``auto_ack`` is that of the engine if None. ``credit`` is how many more bytes may be
        written, Granted reports more, Readable reports arrivals.

        Raises:
            NoSession: no session can be opened now; open another connection (R-21).
        """
        session = self.new(False, now)
        if auto_ack is not None:
            session.auto_ack = auto_ack
        if data or finish:
            self._sessions.write(session.stream, data, within=False, last=finish)
        return session.stream

    def session_id(self, stream: int) -> int | None:
        """The id of a session on the wire; None while it waits for one, and after it is over."""
        session = self._sessions.by_stream.get(stream)
        return session.id if session is not None and self._sessions.holds_id(session) else None

    @property
    def first_ration(self) -> int | None:
        """The ration of the peer for each new session; None before its header has arrived, or when unlimited."""
        ration = self._sessions.first_ration
        return ration if 0 < ration < INFINITE else None

    def credit(self, stream: int) -> int:
        """Number of bytes that may be written now."""
        session = self._writable(stream)
        return 0 if session is None else self._sessions.credit(session)

    def takes(self, stream: int) -> bool:
        """Whether bytes written on a session can still reach the peer."""
        return self._writable(stream) is not None

    def _writable(self, stream: int) -> Session | None:
        session = self._sessions.by_stream.get(stream)
        return None if session is None or session.outbound in _WRITTEN else session

    def starve(self, stream: int, waits: bool) -> None:
        """Report whether the application waits for credit: the peer's timeout runs while it does."""
        session = self._writable(stream)
        if session is not None:
            self._sessions.hunger(session, waits)

    def write(self, stream: int, data: bytes) -> None:
        """Send bytes of a session. Bytes that are no longer wanted are dropped without an error (R-27).

        Raises:
            LocalProtocolError: more than ``credit(stream)``, or the session was finished.
        """
        self._sessions.write(stream, data, within=True)

    def finish(self, stream: int, *, ack: bool = False, drop: bool = False) -> None:
        """End the outgoing bytes. A server may request an acknowledgement of the response (``ack``: Acknowledged
        follows), and drop the rest of the request (``drop``)."""
        session = self._writable(stream)
        if session is not None:
            self._role.finish(session, ack, drop)

    def read(self, stream: int, limit: int | None = None) -> bytes:
        """Return bytes that have arrived, all of them or at most ``limit``. That lets the peer send more."""
        sessions, session = self._sessions, self._sessions.by_stream.get(stream)
        if session is None or session.inbox is None or session.whole:
            return b""
        refills = session.inbound is not _ENDED and sessions.holds_id(session)
        data = sessions.inboxes.read(session, session.inbox, limit, refills)
        self._role.emptied(session)
        return data

    def abort(self, stream: int, detail: str = "", *, untouched: bool = False) -> None:
        """End a session in both directions; no event follows. A server reports that the request may have been
        processed, unless the application never received it, or asserts with ``untouched`` that no handler has seen
        it."""
        session = self._sessions.by_stream.get(stream)
        if session is not None:
            self._role.abort(session, detail, untouched)

    def acknowledge(self, stream: int) -> None:
        """Report that the response was processed, if the server asked (client, made with ``auto_ack=False``)."""
        session = self._sessions.by_stream.get(stream)
        if session is not None:
            self._role.acknowledge(session)

    def decline(self, stream: int) -> None:
        """Release a session that is over in both directions: if the server waits for an Acknowledgment, none will
        come."""
        session = self._sessions.by_stream.get(stream)
        if session is not None:
            self._role.decline(session)

    def no_operation(self, data: bytes = b"") -> None:
        """Send NoOperation, which the peer skips (R-12).

        Raises:
            LocalProtocolError: with data, and the engine was made without ``noop_data``.
            ConnectionClosed: the connection is not open.
        """
        if data and not self._noop_data:
            raise LocalProtocolError("NoOperation with data makes some peers fail: see noop_data", rule="R-12")
        state = self._role.shared.state
        if state not in (_S.OPEN, _S.DRAINING):
            raise ConnectionClosed(f"nothing can be sent: the connection is {state.name.lower()}")
        self._sessions.out.control(NoOperation(data=data).encode())
