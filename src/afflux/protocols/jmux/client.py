"""Open and end the client's sessions: apply the application's calls, the timeouts and the server's messages (3.3)."""

from __future__ import annotations

from math import inf

from afflux.core.errors import Error, LocalProtocolError
from afflux.core.events import Canceled, Failed, Items
from afflux.core.machine import functions
from afflux.core.payload import Payload
from afflux.protocols.jmux.errors import SessionAborted, SessionLost, SessionRejected, detail_of, violation
from afflux.protocols.jmux.frames import ACK_REQUIRED, EOF, OPEN, Acknowledgment
from afflux.protocols.jmux.halves import OWED, UNWRITTEN, AckInput, AckState, InboundState, OutboundInput, OutboundState
from afflux.protocols.jmux.ids import Ids
from afflux.protocols.jmux.inboxes import EMPTY
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.sessions import Sessions, SessionStep
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import CLIENT_SESSION, SENDING, SessionAction, SessionInput, SessionState

__all__ = ["ClientMessages", "ClientSessions"]

_I, _A, _S = SessionInput, SessionAction, SessionState
# Names for the hot path: an attribute of an enumeration costs three times as much.
_DONE, _ENDED, _DECLINED = OutboundState.DONE, InboundState.DONE, AckState.DECLINED
_FREE, _ACK_DUE, _ABORTED, _CLOSE = _S.FREE, _S.ACK_DUE, _S.ABORTED, _I.CLOSE
_APP_OPEN, _APP_OPEN_EOF, _APP_EOF = _I.APP_OPEN, _I.APP_OPEN_EOF, _I.APP_EOF
_LEFT, _LAST_LEFT = OutboundInput.LEFT, OutboundInput.LAST_LEFT


class ClientSessions:
    """Apply calls and timeouts to a client's sessions."""

    __slots__ = ("auto_ack", "ids", "limits", "sessions", "shared")

    def __init__(
        self, shared: Shared, largest_id: int, fragment: int, max_wait_for_id: float = 0.0, auto_ack: bool = True
    ) -> None:
        self.shared = shared
        self.limits = shared.limits
        self.sessions = Sessions(CLIENT_SESSION, shared, largest_id, fragment, self._leave, False)
        self.ids = Ids(self.sessions, max_wait_for_id)
        self.auto_ack = auto_ack

    def open(self, whole: bool) -> Session:
        """Return a new session.

        Raises:
            NoSession: no id is free, and it may not wait (R-21), or too much is unread here.
        """
        self.ids.check()
        session = self.sessions.new(whole)
        if whole:
            self.sessions.rations.assembles = True
        session.auto_ack = self.auto_ack
        self.ids.admit(session)
        return session

    def establish(self, ration: int) -> None:
        """Apply the server's header, which has the ration of every session (R-32)."""
        self.sessions.first_ration = ration
        self.ids.establish(ration)

    # -- calls of the application ---------------------------------------------------------------------------

    def _leave(self, session: Session, last: bool) -> int:
        """Account for a departing Data message; the first of a session opens it."""
        flags = EOF if last else 0
        if session.outbound in UNWRITTEN:
            flags |= OPEN
            self.sessions.step(session, _APP_OPEN_EOF if last else _APP_OPEN)
        elif last:
            self.sessions.step(session, _APP_EOF)
        else:
            return flags
        session.out(_LAST_LEFT if last else _LEFT)
        if last:
            session.blocked = None
            self.settle(session)
            if session.ack is _DECLINED:
                self.decline(session)
        return flags

    def finish(self, session: Session, ack: bool, drop: bool) -> None:
        """End the outgoing bytes.

        Raises:
            LocalProtocolError: ``ack`` or ``drop``, which are for servers.
        """
        if ack or drop:
            raise LocalProtocolError("only a server asks for acknowledgement, and drops requests", rule="R-17")
        self.sessions.finish(session)

    def emptied(self, session: Session) -> None:
        """Acknowledge a response that was read to its end (R-43)."""
        if session.auto_ack and session.inbound is _ENDED and not session.unread:
            self.acknowledge(session)
        self.settle(session)

    def cancel(self, session: Session) -> None:
        """Discard what still arrives: the application consumes nothing more."""
        self.abort(session, "")

    def abort(self, session: Session, detail: str, untouched: bool = False) -> None:
        """Abort a session for the application, also one that owes an Acknowledgment (I-12); for one that was never
        written nothing is sent."""
        unwritten = session.outbound in UNWRITTEN
        self.sessions.give_up(session)
        if not unwritten:
            self._withdraw(session, detail)
        elif session.id < 0:
            self.ids.waiting.remove(session)
        else:
            self.ids.free(session)

    def _withdraw(self, session: Session, detail: str) -> None:
        """End a session on the wire; its unread bytes stay readable."""
        if self.sessions.step(session, _I.APP_ABORT) is _A.SEND_ABORT:
            self.sessions.send_abort(session, detail)
            session.acknowledge(AckInput.VOID)
            if session.state is _FREE:
                self.ids.free(session)
            else:
                session.since = SOON
                self.shared.soon(session, self.limits.abort_answer_s)

    def acknowledge(self, session: Session) -> None:
        """Report that the application has processed the response, once, if the server asked (R-42)."""
        owed = session.inbound is _ENDED and session.ack in OWED
        if owed and self.sessions.step(session, _I.APP_ACK) is _A.SEND_ACK:
            session.acknowledge(AckInput.GIVE)
            self.sessions.out.control(Acknowledgment(session=session.id).encode())
            if session.state is _FREE:
                self.ids.free(session)
            self.settle(session)

    def decline(self, session: Session) -> None:
        """Release a session without acknowledging; a server that waits for it is notified immediately (D-17)."""
        if session.inbound is _ENDED and session.ack in OWED:
            session.acknowledge(AckInput.DECLINE)
            if session.outbound is _DONE:
                self._withdraw(session, "")
                self.settle(session)

    def begin(self, stream: int) -> None:
        """No-op: a client has no handlers."""

    def release(self, stream: int) -> None:
        """No-op: a client has no handlers."""

    # -- endings --------------------------------------------------------------------------------------------

    def settle(self, session: Session) -> None:
        """Forget a session on which nothing more can be sent or read."""
        self.sessions.settle(session, session.ack in OWED and self.sessions.holds_id(session))

    def silence(self, session: Session) -> None:
        """Discard the application's further output: the server does not want it."""
        if not session.whole:
            self.shared.events.append(Canceled(session.stream, False))
        self.sessions.silence(session)
        self.settle(session)

    def fail(self, session: Session, error: Error) -> None:
        """Report to the application that a session has failed. A response that is complete can still be read."""
        if session.inbound is not _ENDED or session.whole:
            self.sessions.fail(session, error)
            return
        self.shared.events.append(Failed(session.stream, error))
        self.sessions.silence(session)
        self.settle(session)

    def refuse(self, session: Session, reason: str, rule: str) -> None:
        """Abort and report a session whose response cannot be stored; it may have been processed."""
        self.abort(session, reason)
        self.fail(session, SessionAborted(reason, stream=session.stream, rule=rule, too_large=True))

    @property
    def idle(self) -> bool:
        """Whether no session is live."""
        sessions = self.sessions.by_id
        return not self.ids.waiting and all(session is None or session.state is _ABORTED for session in sessions)

    def fail_all(self, error: Error, *, safe: bool = False) -> None:
        """End the connection (3.5): complete responses are retained, all other sessions fail, retry-safe if the server
        reported that, or if nothing of them was written."""
        for session in list(self.sessions.by_stream.values()):
            if session.inbound is _ENDED:
                session.acknowledge(AckInput.VOID)
                self.sessions.silence(session)
                continue
            kind: type[Error] = SessionRejected if safe or session.outbound in UNWRITTEN else SessionLost
            failure = kind(error.message, stream=session.stream, rule=error.rule)
            failure.__cause__ = error
            self.fail(session, failure)
        self.ids.waiting.clear()
        self.sessions.let_go()

    # -- time -----------------------------------------------------------------------------------------------

    def timed(self) -> list[Session]:
        """The sessions that may wait for something, an id included."""
        return [*self.sessions.timed(), *self.ids.waiting]

    def due(self, session: Session) -> float:
        """End a session if something took too long: no id, no answer to an Abort, no ration, or no Acknowledgment by
        the application (D-3, D-7). Otherwise return when that will be."""
        limits, late = self.limits, self.shared.late
        if session.id < 0:
            over, id_due = late(session.since, self.ids.max_wait)
            if over:
                self.ids.waiting.remove(session)
                text = f"no session id became free in {self.ids.max_wait:g} s"
                self.fail(session, SessionRejected(text, stream=session.stream, rule="R-21"))
            return id_due
        if session.state is _ABORTED:
            over, answer_due = late(session.since, limits.abort_answer_s)
            if over:
                raise violation("abort-unanswered", "abort_answer_s")
            return answer_due
        over, stall_due = late(session.blocked, limits.session_stall_s)
        if over:
            self._stall(session)
            return self.shared.now + limits.abort_answer_s
        over, ack_due = late(session.ack_since, limits.ack_s)
        if over:
            self._withdraw(session, "")  # a negative acknowledgement; the response stays
            self.settle(session)
            return inf
        return min(stall_due, ack_due)

    def _stall(self, session: Session) -> None:
        """End a request that the server no longer reads; if its response is complete, that is enough."""
        if session.inbound is _ENDED:
            self._withdraw(session, "session-stall")
            self.silence(session)
        else:
            self.refuse(session, "session-stall", "session_stall_s")


class ClientMessages:
    """Apply the server's messages to the client's sessions."""

    __slots__ = ("_client", "_inboxes", "_sessions", "alike")

    def __init__(self, client: ClientSessions) -> None:
        self._client = client
        self._sessions = client.sessions
        self._inboxes = client.sessions.inboxes
        self.alike = client.sessions.alike

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """Return the step of a message; see ``Sessions.judge``. Close is another input while an Acknowledgment is
        owed."""
        if input is _CLOSE:
            session = self._sessions.by_id[id]
            if session is not None and session.ack in OWED:
                input = _I.CLOSE_ACK
        return self._sessions.judge(input, id, first, value)

    def act(self, step: SessionStep, id: int, first: int, value: int, data: bytes) -> None:
        """Perform a step that was judged."""
        session: Session = self._sessions.by_id[id]  # type: ignore[assignment]  # without one it was a violation
        session.state = step.next
        _ACTS[step.action](self, session, first, value, data)

    def _settle(self, session: Session, outcome: bytes | str) -> None:
        """Deliver a response that is whole, or end a session whose response cannot be stored."""
        if isinstance(outcome, str):
            self._client.refuse(session, outcome, "payload_bytes")
        else:
            self._client.shared.events.append(Items(session.stream, [Payload(outcome)], True))

    def deliver(self, session: Session, first: int, value: int, data: bytes) -> None:
        if (outcome := self._inboxes.arrive(session, data, False)) is not None:
            self._settle(session, outcome)

    def deliver_last(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Deliver the end of the response; with close, as if Close followed (R-24)."""
        if first & ACK_REQUIRED:
            session.acknowledge(AckInput.ASK)
        if (outcome := self._inboxes.arrive(session, data, True)) is not None:
            self._settle(session, outcome)
        self.nothing(session, first, value, data)

    def nothing(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Complete the response of a session that the server may also have ended, or that this side has ended because
        the response cannot be stored."""
        if session.state is _FREE and self._sessions.holds_id(session):
            self._client.ids.free(session)
        elif session.state is _ACK_DUE:
            session.ack_since = SOON
            self._client.shared.soon(session, self._client.limits.ack_s)
        self._client.emptied(session)

    def deliver_early(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Deliver a complete response; the server does not want the rest of the request (R-27)."""
        if (outcome := self._inboxes.arrive(session, data, True)) is not None:
            self._settle(session, outcome)
        self.stop(session, first, value, data)

    def stop(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer Close with Abort; deliver the response, discard further output without an error (R-27, D-8)."""
        session.acknowledge(AckInput.VOID)  # the Abort is a negative acknowledgement
        self._sessions.send_abort(session, "")
        self._client.ids.free(session)
        self._client.silence(session)

    def free(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._client.ids.free(session)
        self._client.settle(session)

    def increase(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._sessions.increase(session, value << (first & 0x0E))

    def ignore(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Ignore a late, legal message (D-9)."""
        self._client.shared.waste(EMPTY)

    def abort_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer Abort with Abort (R-28), and report whether the request is safe to retry (JA-04)."""
        client = self._client
        self._sessions.send_abort(session, "")
        session.acknowledge(AckInput.VOID)
        client.ids.free(session)
        ended = session.inbound is _ENDED
        if ended and (session.whole or session.outbound is _DONE):
            self._sessions.silence(session)  # the response is complete, and no acknowledgement is outstanding
            client.settle(session)
            return
        text = detail_of(data, client.limits) or "the server has aborted the session"
        kind: type[Error] = SessionAborted if first & 0x02 else SessionRejected
        client.fail(session, kind(text, stream=session.stream, rule="R-28"))

    def discard(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._inboxes.discard(session, data)

    def ended(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Record that the server has answered this side's Abort, or ended the session concurrently (R-29)."""
        self._client.ids.free(session)


_ACTS = functions(
    _A,
    ClientMessages,
    # violations are raised by ``judge``, sending is the application's, the rest the server's
    unhandled=(_A.VIOLATION, *SENDING, _A.OPEN, _A.CLOSE_BACK, _A.ACKNOWLEDGED),
)
