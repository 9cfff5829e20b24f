"""The server's sessions: the client opens them, handlers serve them (3.4).

What was closed is remembered until its id is opened again, so that what was under way is legal (D-8). An Abort says
"nothing was processed" only of a session that the application was never told of, or says so itself (R-30, JA-06).
"""

from __future__ import annotations

from math import inf

from afflux.core.bucket import Bucket, spend
from afflux.core.errors import Canceled, Error
from afflux.core.events import Acknowledged, Opened, SessionOpened
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux.errors import SessionAborted, detail_of, violation
from afflux.protocols.jmux.frames import ACK_REQUIRED, CLOSE, EOF, Close
from afflux.protocols.jmux.session import Session
from afflux.protocols.jmux.sessions import Charge, Sessions, SessionStep, numbered
from afflux.protocols.jmux.states import SERVER_SESSION, SessionAction, SessionInput, SessionState

__all__ = ["ServerSessions"]

_I, _A, _S = SessionInput, SessionAction, SessionState
_LIVE = (_S.OPEN, _S.OUT_FIN, _S.IN_FIN)
_WAITING_FOR_CLIENT = (_S.OPEN, _S.OUT_FIN)
_UNANSWERED = (_S.CLOSED_EARLY, _S.ABORTED)


# long: one method for each action of the table
class ServerSessions(Sessions):
    """What a server knows of its sessions."""

    requester = False

    __slots__ = ("_cancels", "_most_handlers", "_whole", "begun", "closing", "half_closed", "handlers")

    def __init__(self, limits: Limits, largest_id: int, fragment: int, charge: Charge, whole: bool) -> None:
        super().__init__(SERVER_SESSION, limits, largest_id, fragment, charge, _ACTIONS, whole)
        self._whole = whole
        self._cancels: Bucket | None = None
        self.handlers: set[int] = set()
        "Sessions whose handler has not returned."
        # Whole requests wait for a handler; that of a session reads it while it comes.
        self._most_handlers = limits.streams + (limits.pending_streams if whole and limits.streams else 0)
        self.begun: set[int] = set()
        "Those of them whose handler is at work."
        self.closing = False
        "No more sessions are taken on."
        self.half_closed = False
        "The client says nothing more: no ration and no Acknowledgment will come."

    # -- what the client says -------------------------------------------------------------------------------

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """An Acknowledgment has to be asked for, and comes once (R-42)."""
        step = super().judge(input, id, first, value)
        session = self.by_id[id]
        if step.action is _A.ACKNOWLEDGED and session is not None and not session.ack_owed:
            raise violation(f"nobody waits for an Acknowledgment of session {id}", "R-42")
        return step

    def opened(self, id: int) -> Session:
        """The id is used for another session: the one before can not be acknowledged any more (R-45)."""
        before = self.by_id[id]
        if before is not None:
            self._tell_ack(before, False)
        session = self.by_id[id] = self.new(self._whole)
        session.id = id
        session.written = True
        self.by_stream[session.stream] = session
        self.live += 1
        return session

    def _open(self, session: Session, first: int, value: int, data: bytes) -> None:
        last = first & EOF != 0
        if refusal := self._refusal(session):
            session.to_receive.spend(len(data))
            session.in_done = last
            self._turn_away(session, refusal)
            return
        self.handlers.add(session.stream)
        if not last:
            self._begin(session, self.limits.session_idle_s)
        if not self._whole:
            session.entered = True
            self.events.append(SessionOpened(session.stream))
        if data or last:
            self.arrive(session, data, last)

    def _refusal(self, session: Session) -> str:
        """Why another session can not be taken on; "" when it can. Nothing was done for it yet."""
        if self.closing:
            return "the server is closing"
        if len(self.handlers) >= self._most_handlers:
            return "too-many-streams"
        if self.live > self.most:
            return "too-many-sessions"
        if self.rations.overdrawn and self.rations.spent > self.rations.purse + self._idle_rations(session):
            return "buffer-full"
        return ""

    def _idle_rations(self, new: Session) -> int:
        """Bytes that no client may send: reservations of sessions whose request is whole, and whose id is not free."""
        return self.rations.initial * sum(
            session.state is _S.IN_FIN for session in self.by_id if session is not None and session is not new
        )

    def _turn_away(self, session: Session, reason: str) -> None:
        self._end_unheard(session, reason)
        self.charge(1, session.stream, "REJECTED", reason)

    def _end_unheard(self, session: Session, reason: str) -> None:
        """Abort a session of which the application knows nothing: it is safe to try again."""
        self.abort(session, reason)
        self.handlers.discard(session.stream)

    def _deliver(self, session: Session, first: int, value: int, data: bytes) -> None:
        self.arrive(session, data, False)

    def _deliver_last(self, session: Session, first: int, value: int, data: bytes) -> None:
        session.since = None
        self.arrive(session, data, True)
        self.settle(session)

    def _close_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The client finishes after the server (R-25)."""
        self._deliver_last(session, first, value, data)
        self.out.control(Close(session=session.id).encode())
        self._terminated(session)

    def _abort_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The client gives up: answer (R-28)."""
        self.send_abort(session, "", session.entered)
        self._terminated(session)
        self.by_id[session.id] = None
        self._tell_ack(session, False)
        begun = session.stream in self.begun
        if session.entered:
            text = detail_of(data, self.limits) or "the client has aborted the session"
            self.fail(session, Canceled(text, stream=session.stream, rule="R-28"))
        else:
            self.give_up(session)
            self.handlers.discard(session.stream)
        if begun:
            self._count_cancel()

    def _ended(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The client has answered, or has aborted what was closed already (R-29, R-45)."""
        session.since = None
        self.by_id[session.id] = None
        self._tell_ack(session, False)

    def _discard_some(self, session: Session, first: int, value: int, data: bytes) -> None:
        self.discard(session, first, value, data)
        if session.state not in _UNANSWERED:
            session.since = None

    def _acknowledged(self, session: Session, first: int, value: int, data: bytes) -> None:
        session.ack_given = True
        self._tell_ack(session, True)

    def _tell_ack(self, session: Session, positive: bool) -> None:
        """Tell what became of an Acknowledgment, once."""
        session.ack_since = None
        if session.ack_asked and not session.ack_told:
            session.ack_told = True
            self.events.append(Acknowledged(session.stream, positive))

    def _count_cancel(self) -> None:
        """What the client gives up, or makes this side give up, is bounded (FL-07)."""
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)

    def refuse(self, session: Session, reason: str, rule: str) -> None:
        """A request that can not be kept: nothing was done for it."""
        self._end_unheard(session, reason)
        self._count_cancel()

    def deliver(self, session: Session, payload: bytes) -> None:
        """A request is whole."""
        session.entered = True
        self.events.append(Opened(session.stream, "request", Payload(payload), 1, True))

    # -- what the application does --------------------------------------------------------------------------

    def leave(self, session: Session, last: bool) -> int:
        """A Data message leaves; with the last one the session may be closed at once (R-24, R-25)."""
        if not last:
            return 0
        action = self.step(session, _I.APP_EOF_DROP if session.dropping else _I.APP_EOF)
        session.out_done = True
        session.blocked = None
        flags = EOF
        if session.ack_wanted:
            flags |= ACK_REQUIRED
            session.ack_asked = True
            self.start(session, "ack_since", self.limits.ack_s)
        if action is _A.SEND_EOF_CLOSE:
            flags |= CLOSE
            self._terminated(session)
        self.settle(session)
        return flags

    def drop(self, session: Session) -> None:
        """Nobody wants the rest of the request. The client hears it when the response is finished."""
        session.dropping = True
        self.close_inbox(session)
        if self.step(session, _I.APP_DROP) is _A.SEND_CLOSE:
            self.out.control(Close(session=session.id).encode())
            self._terminated(session)
        self.settle(session)

    def abort(self, session: Session, detail: str, untouched: bool = False) -> None:
        """End a session at once. After its response is finished that is a Close; the client keeps the response
        (I-7). Whoever was not told of it has not touched it (I-9)."""
        action = self.step(session, _I.APP_ABORT)
        partial = session.entered and not untouched
        self.give_up(session)
        if action is _A.SEND_ABORT:
            self.send_abort(session, detail, partial)
        elif action is _A.SEND_CLOSE:
            self.out.control(Close(session=session.id).encode())
        else:
            return  # it was closed already
        self._terminated(session)

    def _terminated(self, session: Session) -> None:
        """This side has ended the session; the id is the client's again when it has finished (R-22)."""
        self.live -= 1
        session.since = None
        self.rations.left_over(session)
        if session.state in _UNANSWERED:
            self.start(session, "since", self.limits.abort_answer_s)

    @property
    def beyond_share(self) -> int:
        """What answers wait for ration beyond their session's share of ``connection_bytes``, in all."""
        share = self.limits.connection_bytes // self.most
        return sum(max(0, session.waiting - session.ready - share) for session in self.by_stream.values())

    def begin(self, stream: int) -> None:
        """The handler is at work: what the client gives up from now on is counted."""
        if stream in self.handlers:
            self.begun.add(stream)

    def release(self, stream: int) -> None:
        """The handler has returned: it reads nothing more."""
        self.handlers.discard(stream)
        self.begun.discard(stream)
        session = self.by_stream.get(stream)
        if session is not None and session.finishing:
            self.drop(session)

    # -- time and endings -----------------------------------------------------------------------------------

    def _begin(self, session: Session, seconds: float | None) -> None:
        if seconds is not None:
            session.since = self.now
            self.alarm = min(self.alarm, self.now + seconds)

    def due(self, session: Session) -> float:
        """No data, no ration, no answer, or no Acknowledgment (D-3)."""
        limits = self.limits
        late, ack_due = self.late(session.ack_since, limits.ack_s)
        if late:
            self._tell_ack(session, False)
            ack_due = inf
        if session.state in _UNANSWERED:
            late, answer_due = self.late(session.since, limits.abort_answer_s)
            if late:
                raise violation("abort-unanswered", "abort_answer_s")
            return min(ack_due, answer_due)
        late, stall_due = self.late(session.blocked, limits.session_stall_s)
        if late:
            self._expire(session, "session-stall", "session_stall_s")
            return self.now + limits.abort_answer_s
        late, idle_due = self.late(session.since, limits.session_idle_s)
        if late:
            self._expire(session, "session-idle", "session_idle_s")
            return self.now + limits.abort_answer_s
        return min(ack_due, stall_due, idle_due, self._poll(session))

    def _poll(self, session: Session) -> float:
        """After the client's half is closed no ration will come: who has none, and has not finished, gets some time."""
        if not (self.half_closed and session.state in _LIVE):
            return inf
        if session.blocked is None and not session.to_send.available and not session.finishing:
            session.blocked = self.now
        return self.now + self.limits.session_stall_s

    def _expire(self, session: Session, reason: str, rule: str) -> None:
        heard = session.entered
        self.abort(session, reason)
        if heard:
            self.fail(session, SessionAborted(reason, stream=session.stream, rule=rule))
        else:
            self.handlers.discard(session.stream)

    def half_close(self) -> None:
        """The client says nothing more: what it has not finished is over, the rest goes on (3.2, I-2)."""
        self.half_closed = self.closing = True
        for session in self.timed():
            if (
                session.state in _WAITING_FOR_CLIENT or session.waiting > session.to_send.available
            ):  # no ration will come
                self._expire(session, "the client has ended its half", "3.2")
            elif session.state is _S.IN_FIN:
                self.alarm = self.now  # the next look finds out whether it can go on
            self._hear_nothing(session)

    def _hear_nothing(self, session: Session) -> None:
        """No answer and no Acknowledgment will come."""
        session.since = None
        self._tell_ack(session, False)

    @property
    def idle(self) -> bool:
        """Whether no session is under way, and no Acknowledgment."""
        if self.live:
            return False
        return self.half_closed or not any(session.ack_since is not None for session in self.timed())

    @property
    def processed(self) -> bool:
        """Whether something may have been done for a session that is not over: then Shutdown would be a lie."""
        return any(session.state in _LIVE and session.entered for session in self.timed())

    def end_all(self, reason: str) -> None:
        """The application closes: abort what runs, with the truth about each (R-30)."""
        for session in self.timed():
            if session.state in _LIVE:
                self._expire(session, reason, "3.2")

    def fail_all(self, error: Error, *, safe: bool = False) -> None:
        """The connection has ended: every session that a handler may know fails, every Acknowledgment is negative."""
        for session in list(self.by_stream.values()):
            if session.entered and not (session.in_done and session.out_done):
                self.fail(session, error.about(session.stream))
            elif not session.entered:
                self.give_up(session)
                self.handlers.discard(session.stream)
        for session in self.timed():
            self._tell_ack(session, False)


_ACTIONS = numbered(
    {
        _A.OPEN: ServerSessions._open,
        _A.DELIVER: ServerSessions._deliver,
        _A.DELIVER_LAST: ServerSessions._deliver_last,
        _A.CLOSE_BACK: ServerSessions._close_back,
        _A.INCREASE: Sessions.increase,
        _A.IGNORE: Sessions.ignore,
        _A.ABORT_BACK: ServerSessions._abort_back,
        _A.DISCARD: ServerSessions._discard_some,
        _A.ENDED: ServerSessions._ended,
        _A.ACKNOWLEDGED: ServerSessions._acknowledged,
    }
)
