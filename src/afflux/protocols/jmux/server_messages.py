"""Apply the client's messages to the server's sessions: one function for each action of the table (3.4)."""

from __future__ import annotations

from collections.abc import Callable

from afflux.core.errors import Canceled
from afflux.core.events import Opened, SessionOpened
from afflux.core.payload import Payload
from afflux.protocols.jmux.errors import detail_of, violation
from afflux.protocols.jmux.frames import EOF, Close
from afflux.protocols.jmux.halves import OWED, AckInput, HandlerInput, HandlerState, InboundInput, OutboundState
from afflux.protocols.jmux.inboxes import EMPTY
from afflux.protocols.jmux.server import UNANSWERED, ServerSessions
from afflux.protocols.jmux.session import Session
from afflux.protocols.jmux.sessions import SessionStep
from afflux.protocols.jmux.states import ConnectionState, SessionAction, SessionInput, SessionState

__all__ = ["ServerMessages"]

_A, _S = SessionAction, SessionState
_OPEN_ACTION, _ACKNOWLEDGED = _A.OPEN, _A.ACKNOWLEDGED

Act = Callable[["ServerMessages", Session, int, int, bytes], None]


class ServerMessages:
    """Apply the client's messages to the server's sessions."""

    __slots__ = ("_server", "_sessions", "_shared", "alike")

    def __init__(self, server: ServerSessions) -> None:
        self._server = server
        self._sessions = server.sessions
        self._shared = server.shared
        self.alike = server.sessions.alike

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """Return the step of a message; see ``Sessions.judge``. An Acknowledgment must have been requested, and comes
        once (R-42)."""
        step = self._sessions.judge(input, id, first, value)
        if step.action is _ACKNOWLEDGED:
            session = self._sessions.by_id[id]
            if session is not None and session.ack not in OWED:
                raise violation(f"unsolicited Acknowledgment of session {id}", "R-42")
        return step

    def act(self, step: SessionStep, id: int, first: int, value: int, data: bytes) -> None:
        """Perform a step that was judged."""
        session = self._sessions.by_id[id]
        if session is None or step.action is _OPEN_ACTION:
            session = self._opened(id, session)
        session.state = step.next
        _ACTS[step.action](self, session, first, value, data)  # type: ignore[misc]  # the table has no other

    def _opened(self, id: int, before: Session | None) -> Session:
        """Open a session with an id that may have been used: the one before can no longer be acknowledged (R-45)."""
        if before is not None:
            self._server.report_ack(before, AckInput.MISS)
        sessions = self._sessions
        session = sessions.by_id[id] = sessions.new(self._server.whole)
        session.id = id
        session.outbound = OutboundState.OPEN
        sessions.live += 1
        return session

    def _open(self, session: Session, first: int, value: int, data: bytes) -> None:
        last = first & EOF != 0
        if refusal := self._refusal(session):
            session.to_receive.spend(len(data))
            if last:
                session.receive(InboundInput.LAST)
            self._server.end_unheard(session, refusal)
            self._shared.charge(1, session.stream, "REJECTED", refusal)
            return
        self._server.handlers.add(session.stream)
        idle = self._server.limits.session_idle_s
        if not last and idle is not None:
            session.since = self._shared.now
            self._shared.alarm = min(self._shared.alarm, self._shared.now + idle)
        if not session.whole:
            session.handle(HandlerInput.TELL)
            self._shared.events.append(SessionOpened(session.stream))
        if data or last:
            self._arrive(session, data, last)

    def _refusal(self, session: Session) -> str:
        """Return why another session must be refused; "" if it is admitted. Nothing was done for it yet."""
        server, sessions, rations = self._server, self._sessions, self._sessions.rations
        if self._shared.state is not ConnectionState.OPEN:
            return "the server is closing"
        if len(server.handlers) >= server.most_handlers:
            return "too-many-streams"
        if sessions.live > sessions.most:
            return "too-many-sessions"
        if rations.overdrawn and rations.shared_used > rations.shared_limit + self._idle_rations(session):
            return "buffer-full"
        return ""

    def _idle_rations(self, new: Session) -> int:
        """Bytes that no client may send: reservations of sessions whose request is whole, and whose id is not free."""
        return self._sessions.rations.initial * sum(
            session.state is _S.IN_FIN and session is not new for session in self._sessions.timed()
        )

    def _arrive(self, session: Session, data: bytes, last: bool) -> None:
        outcome = self._sessions.inboxes.arrive(session, data, last)
        if outcome is None:
            return
        if isinstance(outcome, str):
            self._server.refuse(session, outcome, "payload_bytes")
        else:
            session.handle(HandlerInput.TELL)
            self._shared.events.append(Opened(session.stream, "request", Payload(outcome), 1, True))

    def _deliver(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._arrive(session, data, False)

    def _deliver_last(self, session: Session, first: int, value: int, data: bytes) -> None:
        session.since = None
        self._arrive(session, data, True)
        self._sessions.settle(session)

    def _close_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer the end of a request that came after the response (R-25)."""
        self._deliver_last(session, first, value, data)
        self._sessions.out.control(Close(session=session.id).encode())
        self._server.terminated(session)

    def _increase(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._sessions.increase(session, value << (first & 0x0E))

    def _ignore(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Ignore a late, legal message (D-9)."""
        self._shared.waste(EMPTY)

    def _abort_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer the client's Abort (R-28)."""
        server, handler = self._server, session.handler
        known = handler is not HandlerState.UNKNOWN
        self._sessions.send_abort(session, "", known)
        server.terminated(session)
        self._sessions.by_id[session.id] = None
        server.report_ack(session, AckInput.MISS)
        if known:
            text = detail_of(data, server.limits) or "the client has aborted the session"
            self._sessions.fail(session, Canceled(text, stream=session.stream, rule="R-28"))
        else:
            self._sessions.give_up(session)
            server.handlers.discard(session.stream)
        if handler is HandlerState.BEGUN:
            self._shared.count_cancel()

    def _ended(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Record that the client has answered, or has aborted a session that was closed already (R-29, R-45)."""
        session.since = None
        self._sessions.by_id[session.id] = None
        self._server.report_ack(session, AckInput.MISS)

    def _discard(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._sessions.inboxes.discard(session, data)
        if session.state not in UNANSWERED:
            session.since = None

    def _acknowledged(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._server.report_ack(session, AckInput.GIVE)


_BY_ACTION: dict[SessionAction, Act] = {
    _A.OPEN: ServerMessages._open,
    _A.DELIVER: ServerMessages._deliver,
    _A.DELIVER_LAST: ServerMessages._deliver_last,
    _A.CLOSE_BACK: ServerMessages._close_back,
    _A.INCREASE: ServerMessages._increase,
    _A.IGNORE: ServerMessages._ignore,
    _A.ABORT_BACK: ServerMessages._abort_back,
    _A.DISCARD: ServerMessages._discard,
    _A.ENDED: ServerMessages._ended,
    _A.ACKNOWLEDGED: ServerMessages._acknowledged,
}
_ACTS = [_BY_ACTION.get(action) for action in SessionAction]
"Indexed by the action's number, which is faster than its name."
