"""The client's sessions: it opens them, and hears how they end (3.3).

An id is taken, the lowest that is free, when a session begins to wait for its first turn to send (R-21). Before that
a session may wait for an id, and before the server's header all of them do (R-1).
"""

from __future__ import annotations

from collections import deque
from math import inf

from afflux.core.errors import Error
from afflux.core.events import Canceled, Failed, Granted, Items
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux.errors import NoSession, SessionAborted, SessionLost, SessionRejected, detail_of, violation
from afflux.protocols.jmux.frames import ACK_REQUIRED, EOF, OPEN, Acknowledgment
from afflux.protocols.jmux.session import Session
from afflux.protocols.jmux.sessions import Charge, Sessions, SessionStep, numbered
from afflux.protocols.jmux.states import CLIENT_SESSION, SessionAction, SessionInput, SessionState

__all__ = ["ClientSessions"]

_I, _A, _S = SessionInput, SessionAction, SessionState


# long: one method for each action of the table
class ClientSessions(Sessions):
    """What a client knows of its sessions."""

    requester = True

    __slots__ = ("_established", "_free", "_max_wait", "auto_ack", "waiting_for_id")

    def __init__(
        self, limits: Limits, largest_id: int, fragment: int, charge: Charge, max_wait_for_id: float, auto_ack: bool
    ) -> None:
        super().__init__(CLIENT_SESSION, limits, largest_id, fragment, charge, _ACTIONS, False)
        self._free = (1 << largest_id + 1) - 1
        "A bit for each id that is free."
        self._established = False
        self._max_wait = max_wait_for_id
        self.auto_ack = auto_ack
        self.waiting_for_id: deque[Session] = deque()

    # -- ids ------------------------------------------------------------------------------------------------

    def open(self, whole: bool) -> Session:
        """A new session.

        Raises:
            NoSession: there is no id for it, and it may not wait (R-21), or too much is unread here.
        """
        most = max(self.most, self.limits.streams) if self._max_wait else self.most
        if self.live + len(self.waiting_for_id) >= most:
            raise NoSession(f"{most} sessions are under way: open another connection", rule="sessions")
        if self.rations.overdrawn:
            raise NoSession("too much of earlier responses was not read", rule="buffer-full")
        session = self.new(whole)
        self.rations.assembles |= whole
        session.auto_ack = self.auto_ack
        self.by_stream[session.stream] = session
        if self._established and self.live < self.most and not self.waiting_for_id:
            self._allot(session)
        else:
            self.waiting_for_id.append(session)
            if self._established:
                self.start(session, "since", self._max_wait)
        return session

    def establish(self, ration: int) -> None:
        """The server's header has come: sessions may begin."""
        super().establish(ration)
        self._established = True
        for session in self.waiting_for_id:
            session.to_send.available = ration
            if not session.whole:
                self.events.append(Granted(session.stream, ration))
        self._allot_waiting()
        for session in self.waiting_for_id:
            self.start(session, "since", self._max_wait)

    def _allot(self, session: Session) -> None:
        """The lowest free id is the session's (R-21)."""
        id = (self._free & -self._free).bit_length() - 1
        self._free &= ~(1 << id)
        session.id = id
        session.since = None
        self.by_id[id] = session
        self.live += 1
        self.out.look(session)

    def _allot_waiting(self) -> None:
        while self.waiting_for_id and self.live < self.most:
            self._allot(self.waiting_for_id.popleft())

    def _free_id(self, session: Session) -> None:
        """Both ends are done with the id (R-22)."""
        self.by_id[session.id] = None
        self._free |= 1 << session.id
        self.live -= 1
        session.since = session.ack_since = None
        self.rations.left_over(session)
        self._allot_waiting()

    # -- what the server says -------------------------------------------------------------------------------

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """Close is another input while an Acknowledgment is owed."""
        session = self.by_id[id]
        if input is _I.CLOSE and session is not None and session.ack_owed:
            input = _I.CLOSE_ACK
        return super().judge(input, id, first, value)

    def _deliver(self, session: Session, first: int, value: int, data: bytes) -> None:
        self.arrive(session, data, False)

    def _deliver_last(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The end of the response; with close, as if Close followed (R-24)."""
        session.ack_asked = first & ACK_REQUIRED != 0
        self.arrive(session, data, True)
        self._ended(session)

    def _ended(self, session: Session) -> None:
        """The response is there; the server may have ended the session as well, or this side has, because the response
        can not be kept."""
        if session.state is _S.FREE and self.holds_id(session):
            self._free_id(session)
        elif session.state is _S.ACK_DUE:
            self.start(session, "ack_since", self.limits.ack_s)
        self.emptied(session)

    def emptied(self, session: Session) -> None:
        """A response that was read to its end is acknowledged (R-43)."""
        if session.auto_ack and session.in_done and not session.unread:
            self.acknowledge(session)
        self.settle(session)

    def _deliver_early(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The response is complete, and the server does not want the rest of the request (R-27)."""
        self.arrive(session, data, True)
        self._stop(session, first, value, data)

    def _stop(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer Close with Abort; keep the response, discard what is still written without an error (R-27, D-8)."""
        session.ack_asked = False  # the Abort is a negative acknowledgement
        self.send_abort(session, "")
        self._free_id(session)
        self._silence(session)
        self.settle(session)

    def _silence(self, session: Session) -> None:
        """Nobody wants what the application still writes."""
        if not (session.whole or session.over):
            self.events.append(Canceled(session.stream, False))
        session.out_done = True
        self.out.drop(session)

    def _free_now(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._free_id(session)
        self.settle(session)

    def _close_ack(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._ended(session)

    def _abort_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer Abort with Abort (R-28), and tell whether the session may be tried again (JA-04)."""
        self.send_abort(session, "")
        session.ack_asked = False
        self._free_id(session)
        text = detail_of(data, self.limits) or "the server has aborted the session"
        if session.in_done and (session.out_done or session.whole):
            self.out.drop(session)  # the response is complete, and nothing was still asked of the server
            session.out_done = True
            self.settle(session)
            return
        kind: type[Error] = SessionAborted if first & 0x02 else SessionRejected
        self.fail(session, kind(text, stream=session.stream, rule="R-28"))

    def _finished_by_peer(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The server has answered this side's Abort, or ended the session as it came (R-29)."""
        self._free_id(session)

    def refuse(self, session: Session, reason: str, rule: str) -> None:
        """A response that can not be kept: nobody knows what the server has done."""
        self.break_off(session, reason, rule)

    def deliver(self, session: Session, payload: bytes) -> None:
        """The response of a request is whole."""
        self.events.append(Items(session.stream, [Payload(payload)], True))

    # -- what the application does --------------------------------------------------------------------------

    def leave(self, session: Session, last: bool) -> int:
        """A Data message leaves; the first of a session opens it."""
        flags = EOF if last else 0
        if not session.written:
            session.written = True
            flags |= OPEN
            self.step(session, _I.APP_OPEN_EOF if last else _I.APP_OPEN)
        elif last:
            self.step(session, _I.APP_EOF)
        if last:
            session.out_done = True
            session.blocked = None
            self.settle(session)
            if session.declined:
                self.decline(session)
        return flags

    def abort(self, session: Session, detail: str) -> None:
        """The application gives a session up, also one that owes an Acknowledgment (I-12); of one that was never
        written nothing is said."""
        if not session.written:
            if session.id < 0:
                self.waiting_for_id.remove(session)
                self.give_up(session)
            else:
                self.give_up(session)
                self._free_id(session)
            return
        self.give_up(session)
        self._withdraw(session, detail)

    def _withdraw(self, session: Session, detail: str) -> None:
        """End a session on the wire; what the application still reads of it stays."""
        if self.step(session, _I.APP_ABORT) is _A.SEND_ABORT:
            self.send_abort(session, detail)
            session.ack_asked = False
            if session.state is _S.FREE:
                self._free_id(session)
            else:
                self.start(session, "since", self.limits.abort_answer_s)

    def fail(self, session: Session, error: Error) -> None:
        """Tell the application that a session has failed. A response that is complete can still be read."""
        if not session.in_done or session.whole:
            super().fail(session, error)
            return
        self.events.append(Failed(session.stream, error))
        session.out_done = True
        session.blocked = None
        self.out.drop(session)
        self.settle(session)

    def break_off(self, session: Session, reason: str, rule: str) -> None:
        """This side has to end a session whose response is not there: abort it and tell the application."""
        self.abort(session, reason)
        self.fail(session, SessionAborted(reason, stream=session.stream, rule=rule))

    def acknowledge(self, session: Session) -> None:
        """The application has processed the response: say so, once, if the server wants to know (R-42)."""
        if session.in_done and session.ack_owed and self.step(session, _I.APP_ACK) is _A.SEND_ACK:
            session.ack_given = True
            self.out.control(Acknowledgment(session=session.id).encode())
            if session.state is _S.FREE:
                self._free_id(session)
            self.settle(session)

    def decline(self, session: Session) -> None:
        """The application has left, and will not acknowledge: a server that waits for it hears that at once (D-17)."""
        if session.in_done and session.ack_owed:
            session.declined = True
            if session.out_done:
                self._withdraw(session, "")
                self.settle(session)

    def wanted(self, session: Session) -> bool:
        """Whether an Acknowledgment may still be asked for, or is owed."""
        return session.ack_owed and self.holds_id(session)

    # -- time and endings -----------------------------------------------------------------------------------

    def timed(self) -> list[Session]:
        """Those that wait for an id wait as well."""
        return [*super().timed(), *self.waiting_for_id]

    def due(self, session: Session) -> float:
        """No id, no answer to an Abort, no ration, or no Acknowledgment by the application (D-3, D-7)."""
        if session.id < 0:
            late, id_due = self.late(session.since, self._max_wait)
            if late:
                self.waiting_for_id.remove(session)
                text = f"no session id became free in {self._max_wait:g} s"
                self.fail(session, SessionRejected(text, stream=session.stream, rule="R-21"))
            return id_due
        if session.state is _S.ABORTED:
            late, answer_due = self.late(session.since, self.limits.abort_answer_s)
            if late:
                raise violation("abort-unanswered", "abort_answer_s")
            return answer_due
        late, stall_due = self.late(session.blocked, self.limits.session_stall_s)
        if late:
            self._stall(session)
            return self.now + self.limits.abort_answer_s
        late, ack_due = self.late(session.ack_since, self.limits.ack_s)
        if late:
            self._withdraw(session, "")  # a negative acknowledgement; the response stays
            self.settle(session)
            return inf
        return min(stall_due, ack_due)

    def _stall(self, session: Session) -> None:
        """The server takes nothing more of a request; if its response is complete, that is enough."""
        if session.in_done:
            self._withdraw(session, "session-stall")
            self._silence(session)
            self.settle(session)
        else:
            self.break_off(session, "session-stall", "session_stall_s")

    @property
    def idle(self) -> bool:
        """Whether no session is under way."""
        return not self.waiting_for_id and all(session is None or session.state is _S.ABORTED for session in self.by_id)

    def fail_all(self, error: Error, *, safe: bool = False) -> None:
        """The connection has ended (3.5): responses that are complete are kept, all other sessions fail, retry-safe
        if the server has said so, or if nothing of them was written."""
        for session in list(self.by_stream.values()):
            if session.in_done:
                session.out_done = True
                self.out.drop(session)
                continue
            kind: type[Error] = SessionRejected if safe or not session.written else SessionLost
            failure = kind(error.message, stream=session.stream, rule=error.rule)
            failure.__cause__ = error
            self.fail(session, failure)
        self.waiting_for_id.clear()


_ACTIONS = numbered(
    {
        _A.DELIVER: ClientSessions._deliver,
        _A.DELIVER_LAST: ClientSessions._deliver_last,
        _A.DELIVER_EARLY: ClientSessions._deliver_early,
        _A.STOP: ClientSessions._stop,
        _A.FREE: ClientSessions._free_now,
        _A.NOTHING: ClientSessions._close_ack,
        _A.INCREASE: Sessions.increase,
        _A.IGNORE: Sessions.ignore,
        _A.ABORT_BACK: ClientSessions._abort_back,
        _A.DISCARD: Sessions.discard,
        _A.ENDED: ClientSessions._finished_by_peer,
    }
)
