"""Serve the sessions that the client opens: what handlers and the time do to them (3.4).

What the client's messages do is in server_messages.py. What was closed is remembered until its id is opened again, so
that late messages are legal (D-8). An Abort says "nothing was processed" only of a session that the application was
never told of, or says so itself (R-30, JA-06).
"""

from __future__ import annotations

from math import inf

from afflux.core.errors import Error
from afflux.core.events import Acknowledged
from afflux.protocols.jmux.errors import SessionAborted, violation
from afflux.protocols.jmux.frames import ACK_REQUIRED, CLOSE, EOF, Close
from afflux.protocols.jmux.halves import (
    FINISHED,
    AckAction,
    AckInput,
    AckState,
    HandlerInput,
    HandlerState,
    InboundInput,
    InboundState,
    OutboundInput,
    OutboundState,
)
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.sessions import Sessions
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import SERVER_SESSION, ConnectionState, SessionAction, SessionInput, SessionState

__all__ = ["ServerSessions"]

_I, _A, _S = SessionInput, SessionAction, SessionState
_LIVE = (_S.OPEN, _S.OUT_FIN, _S.IN_FIN)
_WAITING_FOR_CLIENT = (_S.OPEN, _S.OUT_FIN)
UNANSWERED = (_S.CLOSED_EARLY, _S.ABORTED)
"This side has ended the session, and the client has not."
_UNKNOWN = HandlerState.UNKNOWN
_FINISHED = (*FINISHED, OutboundState.DONE)
_HALF_CLOSED = ConnectionState.HALF_CLOSED


class ServerSessions:
    """What a server does with its sessions."""

    __slots__ = ("handlers", "limits", "most_handlers", "sessions", "shared", "whole")

    def __init__(self, shared: Shared, largest_id: int, fragment: int, whole: bool) -> None:
        self.shared = shared
        self.limits = limits = shared.limits
        self.sessions = Sessions(SERVER_SESSION, shared, largest_id, fragment, self._leave, whole)
        self.whole = whole
        self.handlers: set[int] = set()
        "Sessions whose handler has not returned."
        # Whole requests wait for a handler; that of a session reads it while it comes.
        self.most_handlers = limits.streams + (limits.pending_streams if whole and limits.streams else 0)

    def establish(self, ration: int) -> None:
        """The client's header has come, with the ration of every session (R-32)."""
        self.sessions.first_ration = ration

    # -- what the application does --------------------------------------------------------------------------

    def _leave(self, session: Session, last: bool) -> int:
        """A Data message leaves; with the last one the session may be closed at once (R-24, R-25)."""
        if not last:
            return 0
        unwanted = session.inbound is InboundState.UNWANTED
        action = self.sessions.step(session, _I.APP_EOF_DROP if unwanted else _I.APP_EOF)
        session.out(OutboundInput.LAST_LEFT)
        session.blocked = None
        flags = EOF
        if session.ack is AckState.WANTED and session.acknowledge(AckInput.ASK) is AckAction.AWAIT:
            flags |= ACK_REQUIRED
            session.ack_since = SOON
            self.shared.soon(session, self.limits.ack_s)
        if action is _A.SEND_EOF_CLOSE:
            flags |= CLOSE
            self.terminated(session)
        self.sessions.settle(session)
        return flags

    def finish(self, session: Session, ack: bool, drop: bool) -> None:
        """No more bytes; with ``ack`` an Acknowledgment is wanted, with ``drop`` the rest of the request is not."""
        if ack:
            session.acknowledge(AckInput.WANT)
        if drop:
            self.cancel(session)
        self.sessions.finish(session)

    def read(self, stream: int, limit: int | None) -> bytes:
        """Take what has arrived, at most ``limit`` bytes; that makes room for more."""
        session = self.sessions.by_stream.get(stream)
        refills = session is not None and session.inbound is not InboundState.DONE
        data = None if session is None else self.sessions.read(session, limit, refills)
        if session is None or data is None:
            return b""
        self.sessions.settle(session)
        return data

    def cancel(self, session: Session) -> None:
        """Nobody wants the rest of the request. The client learns that when the response is finished."""
        session.receive(InboundInput.UNWANTED)
        self.sessions.inboxes.close(session)
        if self.sessions.step(session, _I.APP_DROP) is _A.SEND_CLOSE:
            self._close(session)
            self.terminated(session)
        self.sessions.settle(session)

    def abort(self, session: Session, detail: str, untouched: bool = False) -> None:
        """End a session at once. After its response is finished that is a Close; the client keeps the response
        (I-7). An application that was not told of it has not touched it (I-9)."""
        action = self.sessions.step(session, _I.APP_ABORT)
        partial = session.handler is not _UNKNOWN and not untouched
        self.sessions.give_up(session)
        if action is _A.SEND_ABORT:
            self.sessions.send_abort(session, detail, partial)
        elif action is _A.SEND_CLOSE:
            self._close(session)
        else:
            return  # it was closed already
        self.terminated(session)

    def acknowledge(self, session: Session) -> None:
        """No-op: only a client acknowledges."""

    def decline(self, session: Session) -> None:
        """No-op: only a client acknowledges."""

    def begin(self, stream: int) -> None:
        """The handler is at work: what the client gives up from now on is counted."""
        session = self.sessions.by_stream.get(stream)
        if session is not None:
            session.handle(HandlerInput.BEGIN)

    def release(self, stream: int) -> None:
        """The handler has returned: it reads nothing more."""
        self.handlers.discard(stream)
        session = self.sessions.by_stream.get(stream)
        if session is not None:
            session.handle(HandlerInput.RETURN)
            if session.outbound in _FINISHED:
                self.cancel(session)

    # -- endings --------------------------------------------------------------------------------------------

    def terminated(self, session: Session) -> None:
        """This side has ended the session; the id is the client's again when it has finished (R-22)."""
        self.sessions.live -= 1
        session.since = None
        self.sessions.rations.left_over(session)
        if session.state in UNANSWERED:
            session.since = SOON
            self.shared.soon(session, self.limits.abort_answer_s)

    def _close(self, session: Session) -> None:
        self.sessions.out.control(Close(session=session.id).encode())

    def report_ack(self, session: Session, input: AckInput) -> None:
        """Report once what became of an Acknowledgment."""
        session.ack_since = None
        action = session.acknowledge(input)
        if action is AckAction.REPORT_GIVEN or action is AckAction.REPORT_MISSING:
            self.shared.events.append(Acknowledged(session.stream, action is AckAction.REPORT_GIVEN))

    def end_unheard(self, session: Session, reason: str) -> None:
        """Abort a session of which the application knows nothing: it is safe to try again."""
        self.abort(session, reason)
        self.handlers.discard(session.stream)

    def refuse(self, session: Session, reason: str, rule: str) -> None:
        """A request that cannot be kept: nothing was done for it."""
        self.end_unheard(session, reason)
        self.shared.count_cancel()

    def half_close(self) -> None:
        """The client says nothing more: what it has not finished is over, the rest goes on (3.2, I-2)."""
        for session in self.timed():
            waits = session.waiting > session.to_send.available  # no ration will come
            if session.state in _WAITING_FOR_CLIENT or waits:
                self._expire(session, "the client has ended its half", "3.2")
            elif session.state is _S.IN_FIN:
                self.shared.alarm = self.shared.now  # the next look finds out whether it can go on
            session.since = None  # no answer and no Acknowledgment will come
            self.report_ack(session, AckInput.MISS)

    @property
    def idle(self) -> bool:
        """Whether no session is live, and no Acknowledgment is missing."""
        if self.sessions.live:
            return False
        return self.shared.state is _HALF_CLOSED or not any(session.ack_since is not None for session in self.timed())

    @property
    def processed(self) -> bool:
        """Whether something may have been done for a session that is not over: then Shutdown would be a lie."""
        return any(session.state in _LIVE and session.handler is not _UNKNOWN for session in self.timed())

    def end_all(self, reason: str) -> None:
        """The application closes: abort what runs, with the truth about each (R-30)."""
        for session in self.timed():
            if session.state in _LIVE:
                self._expire(session, reason, "3.2")

    def fail_all(self, error: Error, *, safe: bool = False) -> None:
        """The connection has ended: every session that a handler may know fails, every Acknowledgment is negative."""
        for session in list(self.sessions.by_stream.values()):
            ended = session.inbound is InboundState.DONE and session.outbound is OutboundState.DONE
            if session.handler is _UNKNOWN:
                self.sessions.give_up(session)
                self.handlers.discard(session.stream)
            elif not ended:
                self.sessions.fail(session, error.about(session.stream))
        for session in self.timed():
            self.report_ack(session, AckInput.MISS)
        self.sessions.let_go()

    # -- time -----------------------------------------------------------------------------------------------

    def timed(self) -> list[Session]:
        """The sessions that may wait for something."""
        return self.sessions.timed()

    def due(self, session: Session) -> float:
        """End it if something has taken too long: no data, no ration, no answer, or no Acknowledgment (D-3). Else
        return when that will be."""
        limits, late = self.limits, self.shared.late
        over, ack_due = late(session.ack_since, limits.ack_s)
        if over:
            self.report_ack(session, AckInput.MISS)
            ack_due = inf
        if session.state in UNANSWERED:
            over, answer_due = late(session.since, limits.abort_answer_s)
            if over:
                raise violation("abort-unanswered", "abort_answer_s")
            return min(ack_due, answer_due)
        over, stall_due = late(session.blocked, limits.session_stall_s)
        if over:
            self._expire(session, "session-stall", "session_stall_s")
            return self.shared.now + limits.abort_answer_s
        over, idle_due = late(session.since, limits.session_idle_s)
        if over:
            self._expire(session, "session-idle", "session_idle_s")
            return self.shared.now + limits.abort_answer_s
        return min(ack_due, stall_due, idle_due, self._poll(session))

    def _poll(self, session: Session) -> float:
        """After the client's half is closed no ration will come: a session that has none, and is not finished, gets
        some time."""
        if not (self.shared.state is _HALF_CLOSED and session.state in _LIVE):
            return inf
        if session.blocked is None and not session.to_send.available and session.outbound not in FINISHED:
            session.blocked = self.shared.now
        return self.shared.now + self.limits.session_stall_s

    def _expire(self, session: Session, reason: str, rule: str) -> None:
        known = session.handler is not _UNKNOWN
        self.abort(session, reason)
        if known:
            self.sessions.fail(session, SessionAborted(reason, stream=session.stream, rule=rule))
        else:
            self.handlers.discard(session.stream)
