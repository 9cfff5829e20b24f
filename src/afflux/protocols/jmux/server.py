"""Serve the sessions that the client opens: apply the handlers' calls, the timeouts and the client's messages (3.4).

A closed session is remembered until its id is opened again, so that
late messages are legal (D-8). An Abort reports "nothing was processed" only for a session that the application never
received, or for which it asserts that itself (R-30, JA-06).
"""

from __future__ import annotations

from math import inf

from afflux.core.errors import Canceled, Error
from afflux.core.events import Acknowledged, Opened, SessionOpened
from afflux.core.machine import functions
from afflux.core.payload import Payload
from afflux.protocols.jmux.errors import SessionAborted, detail_of, violation
from afflux.protocols.jmux.frames import ACK_REQUIRED, CLOSE, EOF, Close
from afflux.protocols.jmux.halves import (
    FINISHED,
    OWED,
    AckInput,
    AckState,
    HandlerInput,
    HandlerState,
    InboundInput,
    InboundState,
    OutboundInput,
    OutboundState,
    PartAction,
)
from afflux.protocols.jmux.inboxes import EMPTY
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.sessions import Sessions, SessionStep
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import (
    SENDING,
    SERVER_SESSION,
    ConnectionState,
    SessionAction,
    SessionInput,
    SessionState,
)

__all__ = ["ServerMessages", "ServerSessions"]

_I, _A, _S = SessionInput, SessionAction, SessionState
_LIVE = (_S.OPEN, _S.OUT_FIN, _S.IN_FIN)
_WAITING_FOR_CLIENT = (_S.OPEN, _S.OUT_FIN)
_UNANSWERED = (_S.CLOSED_EARLY, _S.ABORTED)
"This side has ended the session, and the client has not."
# Names for the hot path: an attribute of an enumeration costs three times as much.
_UNKNOWN, _TELL, _RETURN = HandlerState.UNKNOWN, HandlerInput.TELL, HandlerInput.RETURN
_ENDED, _UNWANTED, _UNWANT = InboundState.DONE, InboundState.UNWANTED, InboundInput.UNWANTED
_SENDING, _DONE, _LAST_LEFT = OutboundState.OPEN, OutboundState.DONE, OutboundInput.LAST_LEFT
_APP_EOF, _APP_EOF_DROP, _APP_DROP, _ACK_WANTED = _I.APP_EOF, _I.APP_EOF_DROP, _I.APP_DROP, AckState.WANTED
_OPEN, _ACKNOWLEDGED, _SEND_CLOSE, _SEND_EOF_CLOSE = _A.OPEN, _A.ACKNOWLEDGED, _A.SEND_CLOSE, _A.SEND_EOF_CLOSE
_FINISHED = (*FINISHED, _DONE)
_IN_USE, _HALF_CLOSED = ConnectionState.OPEN, ConnectionState.HALF_CLOSED


class ServerSessions:
    """Apply calls and timeouts to a server's sessions."""

    __slots__ = ("handlers", "limits", "most_handlers", "sessions", "shared", "whole")

    def __init__(self, shared: Shared, largest_id: int, fragment: int, whole: bool) -> None:
        self.shared = shared
        self.limits = limits = shared.limits
        self.sessions = Sessions(SERVER_SESSION, shared, largest_id, fragment, self._leave, whole)
        self.whole = whole
        self.handlers: set[int] = set()
        "Sessions whose handler has not returned."
        # Whole requests wait for a handler; the handler of a session reads it as it arrives.
        self.most_handlers = limits.streams + (limits.pending_streams if whole and limits.streams else 0)

    def establish(self, ration: int) -> None:
        """Apply the client's header, which has the ration of every session (R-32)."""
        self.sessions.first_ration = ration

    # -- what the application does --------------------------------------------------------------------------

    def _leave(self, session: Session, last: bool) -> int:
        """Account for a departing Data message; with the last one the session may be closed too (R-24, R-25)."""
        if not last:
            return 0
        unwanted = session.inbound is _UNWANTED
        action = self.sessions.step(session, _APP_EOF_DROP if unwanted else _APP_EOF)
        session.out(_LAST_LEFT)
        session.blocked = None
        flags = EOF
        if session.ack is _ACK_WANTED and session.acknowledge(AckInput.ASK) is PartAction.AWAIT:
            flags |= ACK_REQUIRED
            session.ack_since = SOON
            self.shared.soon(session, self.limits.ack_s)
        if action is _SEND_EOF_CLOSE:
            flags |= CLOSE
            self.terminated(session)
        self.sessions.settle(session)
        return flags

    def finish(self, session: Session, ack: bool, drop: bool) -> None:
        """End the outgoing bytes; ``ack`` requests an Acknowledgment, ``drop`` discards the rest of the request."""
        if ack:
            session.acknowledge(AckInput.WANT)
        if drop:
            self.cancel(session)
        self.sessions.finish(session)

    def emptied(self, session: Session) -> None:
        """Forget a session of which everything was read, if it is over."""
        self.sessions.settle(session)

    def cancel(self, session: Session) -> None:
        """Discard the rest of the request. The client is notified when the response is finished."""
        session.receive(_UNWANT)
        self.sessions.inboxes.close(session)
        if self.sessions.step(session, _APP_DROP) is _SEND_CLOSE:
            self._close(session)
            self.terminated(session)
        self.sessions.settle(session)

    def abort(self, session: Session, detail: str, untouched: bool = False) -> None:
        """End a session immediately: with a Close if its response is finished, which stays valid at the client (I-7).
        An application that never received the request has not processed it (I-9)."""
        action = self.sessions.step(session, _I.APP_ABORT)
        partial = session.handler is not _UNKNOWN and not untouched
        self.sessions.give_up(session)
        if action is _A.SEND_ABORT:
            self.sessions.send_abort(session, detail, partial)
        elif action is _SEND_CLOSE:
            self._close(session)
        else:
            return  # it was closed already
        self.terminated(session)

    def acknowledge(self, session: Session) -> None:
        """No-op: only a client acknowledges."""

    def decline(self, session: Session) -> None:
        """No-op: only a client acknowledges."""

    def begin(self, stream: int) -> None:
        """Record that the handler is running: cancellations by the client are counted from now on."""
        session = self.sessions.by_stream.get(stream)
        if session is not None:
            session.handle(HandlerInput.BEGIN)

    def release(self, stream: int) -> None:
        """Record that the handler has returned: it reads nothing more."""
        self.handlers.discard(stream)
        session = self.sessions.by_stream.get(stream)
        if session is not None:
            session.handle(_RETURN)
            if session.outbound in _FINISHED:
                self.cancel(session)

    # -- endings --------------------------------------------------------------------------------------------

    def terminated(self, session: Session) -> None:
        """Release a session that this side has ended; the client may reuse the id when it has finished (R-22)."""
        self.sessions.live -= 1
        session.since = None
        self.sessions.rations.left_over(session)
        if session.state in _UNANSWERED:
            session.since = SOON
            self.shared.soon(session, self.limits.abort_answer_s)

    def _close(self, session: Session) -> None:
        self.sessions.out.control(Close(session=session.id).encode())

    def report_ack(self, session: Session, input: AckInput) -> None:
        """Report the outcome of an Acknowledgment, once."""
        session.ack_since = None
        action = session.acknowledge(input)
        if action is PartAction.REPORT_GIVEN or action is PartAction.REPORT_MISSING:
            self.shared.events.append(Acknowledged(session.stream, action is PartAction.REPORT_GIVEN))

    def end_unheard(self, session: Session, reason: str) -> None:
        """Abort a session that the application has never received: retry is safe."""
        self.abort(session, reason)
        self.handlers.discard(session.stream)

    def refuse(self, session: Session, reason: str, rule: str) -> None:
        """Refuse a request that cannot be stored: nothing was done for it."""
        self.end_unheard(session, reason)
        self.shared.count_cancel()

    def half_close(self) -> None:
        """Handle the end of the client's half: requests it has not finished are over, the rest continues (3.2, I-2)."""
        for session in self.timed():
            waits = session.waiting > session.to_send.available  # no ration will come
            if session.state in _WAITING_FOR_CLIENT or waits:
                self._expire(session, "the client has ended its half", "3.2")
            elif session.state is _S.IN_FIN:
                self.shared.alarm = self.shared.now  # the next tick checks whether it can continue
            session.since = None  # no answer and no Acknowledgment will come
            self.report_ack(session, AckInput.MISS)

    @property
    def idle(self) -> bool:
        """Whether no session is live, and no Acknowledgment is outstanding."""
        if self.sessions.live:
            return False
        return self.shared.state is _HALF_CLOSED or not any(session.ack_since is not None for session in self.timed())

    @property
    def processed(self) -> bool:
        """Whether something may have been done for an unfinished session: then Shutdown would be wrong."""
        return any(session.state in _LIVE and session.handler is not _UNKNOWN for session in self.timed())

    def end_all(self, reason: str) -> None:
        """Close for the application: abort running sessions, and report correctly whether each was processed (R-30)."""
        for session in self.timed():
            if session.state in _LIVE:
                self._expire(session, reason, "3.2")

    def fail_all(self, error: Error, *, safe: bool = False) -> None:
        """End the connection: every session that a handler may have seen fails, every Acknowledgment is negative."""
        for session in list(self.sessions.by_stream.values()):
            ended = session.inbound is _ENDED and session.outbound is _DONE
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
        """End a session if something took too long: no data, no ration, no answer, or no Acknowledgment (D-3).
        Otherwise return when that will be."""
        limits, late = self.limits, self.shared.late
        over, ack_due = late(session.ack_since, limits.ack_s)
        if over:
            self.report_ack(session, AckInput.MISS)
            ack_due = inf
        if session.state in _UNANSWERED:
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
        """Limit a session after the client's half is closed, when no ration will come: one that has none, and is not
        finished, gets some time."""
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


class ServerMessages:
    """Apply the client's messages to the server's sessions."""

    __slots__ = ("_inboxes", "_server", "_sessions", "_shared", "alike")

    def __init__(self, server: ServerSessions) -> None:
        self._server = server
        self._sessions = server.sessions
        self._inboxes = server.sessions.inboxes
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
        if session is None or step.action is _OPEN:
            session = self._opened(id, session)
        session.state = step.next
        _ACTS[step.action](self, session, first, value, data)

    def _opened(self, id: int, before: Session | None) -> Session:
        """Open a session with an id that may have been used: the one before can no longer be acknowledged (R-45)."""
        if before is not None:
            self._server.report_ack(before, AckInput.MISS)
        sessions = self._sessions
        session = sessions.by_id[id] = sessions.new(self._server.whole)
        session.id = id
        session.outbound = _SENDING
        sessions.live += 1
        return session

    def open(self, session: Session, first: int, value: int, data: bytes) -> None:
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
            session.handle(_TELL)
            self._shared.events.append(SessionOpened(session.stream))
        if (data or last) and (outcome := self._inboxes.arrive(session, data, last)) is not None:
            self._settle(session, outcome)

    def _refusal(self, session: Session) -> str:
        """Return why another session must be refused; "" if it is admitted. Nothing was done for it yet."""
        server, sessions, rations = self._server, self._sessions, self._sessions.rations
        if self._shared.state is not _IN_USE:
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

    def _settle(self, session: Session, outcome: bytes | str) -> None:
        """Deliver a request that is whole, or refuse one that cannot be stored."""
        if isinstance(outcome, str):
            self._server.refuse(session, outcome, "payload_bytes")
        else:
            session.handle(_TELL)
            self._shared.events.append(Opened(session.stream, "request", Payload(outcome), 1, True))

    def deliver(self, session: Session, first: int, value: int, data: bytes) -> None:
        if (outcome := self._inboxes.arrive(session, data, False)) is not None:
            self._settle(session, outcome)

    def deliver_last(self, session: Session, first: int, value: int, data: bytes) -> None:
        session.since = None
        if (outcome := self._inboxes.arrive(session, data, True)) is not None:
            self._settle(session, outcome)
        self._sessions.settle(session)

    def close_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer the end of a request that came after the response (R-25)."""
        self.deliver_last(session, first, value, data)
        self._sessions.out.control(Close(session=session.id).encode())
        self._server.terminated(session)

    def increase(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._sessions.increase(session, value << (first & 0x0E))

    def ignore(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Ignore a late, legal message (D-9)."""
        self._shared.waste(EMPTY)

    def abort_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer the client's Abort (R-28)."""
        server, handler = self._server, session.handler
        known = handler is not _UNKNOWN
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

    def ended(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Record that the client has answered, or has aborted a session that was closed already (R-29, R-45)."""
        session.since = None
        self._sessions.by_id[session.id] = None
        self._server.report_ack(session, AckInput.MISS)

    def discard(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._inboxes.discard(session, data)
        if session.state not in _UNANSWERED:
            session.since = None

    def acknowledged(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._server.report_ack(session, AckInput.GIVE)


_ACTS = functions(
    _A,
    ServerMessages,
    # violations are raised by ``judge``, sending is the application's, the rest the client's
    unhandled=(_A.VIOLATION, *SENDING, _A.NOTHING, _A.DELIVER_EARLY, _A.STOP, _A.FREE),
)
