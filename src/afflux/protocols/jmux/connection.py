"""Apply messages about a connection, timeouts and endings: one method for each action of the tables.

1. Valid messages before an invalid one are delivered first; a violation becomes Error with a detail, and a final
   Closed.
2. Nothing follows Shutdown or Error from their sender (R-7): queued data precedes them or is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError, Violation
from afflux.core.events import Closed, Draining, Established, Event
from afflux.core.limits import explained
from afflux.core.machine import numbered
from afflux.protocols.jmux import frames
from afflux.protocols.jmux.client import ClientMessages, ClientSessions
from afflux.protocols.jmux.errors import detail_of, encoded, violation
from afflux.protocols.jmux.inbound import Inbound
from afflux.protocols.jmux.liveness import Liveness
from afflux.protocols.jmux.outbound import INFINITE
from afflux.protocols.jmux.server import ServerMessages, ServerSessions
from afflux.protocols.jmux.session import SOON
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState

__all__ = ["ENDING", "Connection"]

_S, _I = ConnectionState, ConnectionInput
_WAITING = (_S.WAIT_HEADER, _S.LEAVING)
ENDING = (_S.DRAINING, _S.HALF_CLOSED, _S.LEAVING)
"The connection closes when its sessions have ended."


class Connection:
    """Control one connection. ``role`` has the sessions; messages about no session are applied here."""

    __slots__ = ("_born", "_client", "_out", "_reason", "_shared", "_table", "inbound", "liveness", "role")

    def __init__(
        self,
        shared: Shared,
        role: ClientSessions | ServerSessions,
        largest_id: int,
        ping_interval: float | None,
        lenient_partial: bool,
    ) -> None:
        self._client = isinstance(role, ClientSessions)
        self._table = CLIENT if self._client else SERVER
        self._shared = shared
        self.role = role
        messages = ClientMessages(role) if isinstance(role, ClientSessions) else ServerMessages(role)
        self._out = role.sessions.out
        self.inbound = Inbound(shared, messages, self.step, largest_id, lenient_partial)
        self.liveness = Liveness(shared, ping_interval)
        self._born = shared.now
        self._reason = ""
        if self._client:
            self.step(_I.APP_START, 0, b"")

    # -- one pass -------------------------------------------------------------------------------------------

    def run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and return its events; a violation ends the connection (never raises)."""
        shared, sessions = self._shared, self.role.sessions
        events = shared.events = []
        inboxes = sessions.inboxes
        if shared.fresh or inboxes.check_at == SOON:
            inboxes.start_timers()
        busy = sessions.live
        try:
            work(*arguments)
        except Violation as broken:
            self._report(broken)
        if shared.state in ENDING and self.role.idle:
            self.step(_I.SESSIONS_ENDED, 0, b"")
        if shared.fresh or inboxes.check_at == SOON:
            inboxes.start_timers()  # what began in this pass is timed from now
        if busy or sessions.live:
            self.liveness.idle_since = shared.now
        shared.events = []  # delivered events are not retained
        return events

    def close(self, drain: bool, reason: str) -> list[Event]:
        """Close for the application, immediately or when the sessions have ended."""
        self._reason = reason or "closed"
        return self.run(self.step, _I.APP_DRAIN if drain else _I.APP_CLOSE, 0, b"")

    def step(self, input: ConnectionInput, value: int, data: bytes) -> None:
        """Apply a step of the table."""
        step = self._table.steps[self._shared.state][input]
        self._shared.state = step.next
        _ACTIONS[step.action](self, value, data)

    # -- establishment --------------------------------------------------------------------------------------

    def send_header(self, value: int, data: bytes) -> None:
        """Send the header, with the ration (R-1, R-2, R-5)."""
        kind = frames.ClientConnectionHeader if self._client else frames.ServerConnectionHeader
        ration = self.role.sessions.rations.initial // frames.STEPS_256
        self._out.control(kind(initial_ration=ration).encode())

    def establish(self, value: int, data: bytes) -> None:
        """Apply the peer's header, which has the ration of this side; 0 is unlimited (R-4, HS-22)."""
        self.liveness.idle_since = self._shared.now
        self._shared.events.append(Established(frames.decode_header(data, client=not self._client)))
        self.role.establish(value or INFINITE)

    def answer_header(self, value: int, data: bytes) -> None:
        self.send_header(0, b"")
        self.establish(value, data)

    def bad_header(self, value: int, data: bytes) -> None:
        """Report what is wrong; a server sends its own header first (R-3, HS-19, HS-20)."""
        if not self._client:
            self.send_header(0, b"")
        raise violation(data.decode(), "R-3")

    # -- messages -------------------------------------------------------------------------------------------

    def skip(self, value: int, data: bytes) -> None:
        self._shared.waste(4 + len(data))

    def answer_ping(self, value: int, data: bytes) -> None:
        self._out.control(self.liveness.answer(value))

    def peer_alive(self, value: int, data: bytes) -> None:
        self.liveness.answered(value)

    def peer_shut_down(self, value: int, data: bytes) -> None:
        """Fail the unfinished sessions, none of which was processed (3.5, JA-01)."""
        text = detail_of(data, self._shared.limits) or "the server has shut down"
        self._shared.events.append(Draining(text))
        self._end(ConnectionClosed(text, stream=0, rule="3.5"), safe=True)

    def peer_failed(self, value: int, data: bytes) -> None:
        """End the connection: the peer reports that this side has broken a rule (3.5, JA-02)."""
        text = detail_of(data, self._shared.limits) or "the peer has found a protocol violation"
        self._end(ConnectionClosed(text, stream=0, rule="R-7"))

    # -- endings --------------------------------------------------------------------------------------------

    def shut_down(self, value: int, data: bytes) -> None:
        """Close a server. Shutdown is only sent when it is true (JA-07)."""
        error = ConnectionClosed(self._reason, stream=0, rule="3.1")
        server: ServerSessions = self.role  # type: ignore[assignment]  # only its table leads here
        if server.processed:
            server.end_all(self._reason)
        else:
            self._say_shutdown()
        self._end(error)

    def close_now(self, value: int, data: bytes) -> None:
        """Close without a message: the application closes, and the peer needs no reason."""
        self._end(ConnectionClosed(self._reason, stream=0, rule="3.1"))

    def finish(self, value: int, data: bytes) -> None:
        """Close: all sessions have ended normally, nothing was lost."""
        self._say_shutdown()
        self._end(None)

    def leave(self, value: int, data: bytes) -> None:
        """Close without a message: all sessions have ended normally."""
        self._end(None)

    def _say_shutdown(self) -> None:
        text = encoded(self._reason, self._shared.limits.error_text_bytes[0])
        self._out.control(frames.Shutdown(detail=text).encode())

    def half_close(self, value: int, data: bytes) -> None:
        """Finish the responses: the client sends nothing more (SL-03)."""
        self.inbound.close()
        self.liveness.pinged = None
        server: ServerSessions = self.role  # type: ignore[assignment]  # only its table leads here
        server.half_close()

    def lose(self, value: int, data: bytes) -> None:
        """Close without a message: end of file is not an error (I-3)."""
        self._end(ConnectionClosed(data.decode(), stream=0, rule="3.5"))

    def _report(self, broken: Violation) -> None:
        """Report the peer's violation, and close."""
        self._shared.state = _S.CLOSED
        self._end(RemoteProtocolError(broken.reason, stream=0, rule=broken.rule))
        limits = self._shared.limits
        text = encoded(explained(limits, broken.reason), limits.error_text_bytes[0])
        self._out.control(frames.ErrorMessage(detail=text).encode())

    def _end(self, error: Error | None, *, safe: bool = False) -> None:
        """Fail unfinished sessions, once (3.5), and close."""
        self.inbound.close()
        self.liveness.pinged = None
        self.role.fail_all(error or ConnectionClosed("closed", stream=0, rule="3.1"), safe=safe)
        self._shared.events.append(Closed(error))

    # -- time -----------------------------------------------------------------------------------------------

    def tick(self, late: float) -> None:
        """End what has taken too long; ``late`` is the delay of this call after it was due."""
        now, limits, liveness = self._shared.now, self._shared.limits, self.liveness
        if self._shared.state in _WAITING:
            if now >= self._born + limits.handshake_s:
                self.step(_I.SILENT, 0, b"handshake-timeout")
            return
        if broken := self.inbound.late(now, limits.frame_s):
            raise broken
        if liveness.silent(late):
            self.step(_I.SILENT, 0, b"ping-timeout")
            return
        for session, reason in self.role.sessions.inboxes.pass_over_stalled():
            self.role.refuse(session, reason, "connection_bytes")
        if now >= self._shared.alarm:
            self._shared.alarm = min((self.role.due(session) for session in self.role.timed()), default=inf)
        self._out.control(liveness.ping())
        if self._idle_at() <= now:
            self._reason = "idle"
            self.step(_I.IDLE, 0, b"")

    def _idle_at(self) -> float:
        """When a server closes a connection without sessions."""
        idle = self._shared.limits.idle_s
        unused = not (self._client or self.role.sessions.live) and self._shared.state is _S.OPEN
        return self.liveness.idle_since + idle if unused and idle is not None else inf

    @property
    def due_at(self) -> float:
        """When tick is next needed."""
        shared, since = self._shared, self.inbound.incomplete_since
        if shared.state in _WAITING:
            return self._born + shared.limits.handshake_s
        frame = inf if since is None else since + shared.limits.frame_s
        waits = self.role.sessions.inboxes.due_at
        return min(frame, self.liveness.due_at, shared.alarm, waits, self._idle_at())


def _nothing(connection: Connection, value: int, data: bytes) -> None:
    """No-op: already in this state, or too late to matter."""


def _violation(connection: Connection, value: int, data: bytes) -> None:
    raise violation("Shutdown from a client", "R-31")


_D = ConnectionAction
_ACTIONS: list[Callable[[Connection, int, bytes], None]] = numbered(
    {
        _D.VIOLATION: _violation,
        _D.NOTHING: _nothing,
        _D.SEND_HEADER: Connection.send_header,
        _D.ESTABLISH: Connection.establish,
        _D.ANSWER_HEADER: Connection.answer_header,
        _D.BREAK_OFF: Connection.bad_header,
        _D.SKIP: Connection.skip,
        _D.ANSWER_PING: Connection.answer_ping,
        _D.PEER_ALIVE: Connection.peer_alive,
        _D.PEER_SHUT_DOWN: Connection.peer_shut_down,
        _D.PEER_FAILED: Connection.peer_failed,
        _D.DRAIN: _nothing,
        _D.SHUT_DOWN: Connection.shut_down,
        _D.CLOSE: Connection.close_now,
        _D.FINISH: Connection.finish,
        _D.LEAVE: Connection.leave,
        _D.HALF_CLOSE: Connection.half_close,
        _D.LOSE: Connection.lose,
    },
    unhandled=(_D.SESSION,),  # inbound.py passes messages of sessions to the role
)
