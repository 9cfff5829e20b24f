"""Apply the server's messages to the client's sessions: one function for each action of the table (3.3)."""

from __future__ import annotations

from collections.abc import Callable

from afflux.core.errors import Error
from afflux.core.events import Items
from afflux.core.payload import Payload
from afflux.protocols.jmux.client import ClientSessions
from afflux.protocols.jmux.errors import SessionAborted, SessionRejected, detail_of
from afflux.protocols.jmux.frames import ACK_REQUIRED
from afflux.protocols.jmux.halves import OWED, AckInput, InboundState, OutboundState
from afflux.protocols.jmux.inboxes import EMPTY
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.sessions import SessionStep
from afflux.protocols.jmux.states import SessionAction, SessionInput, SessionState

__all__ = ["ClientMessages"]

_I, _A, _S = SessionInput, SessionAction, SessionState

Act = Callable[["ClientMessages", Session, int, int, bytes], None]


class ClientMessages:
    """Apply the server's messages to the client's sessions."""

    __slots__ = ("_client", "_sessions", "alike")

    def __init__(self, client: ClientSessions) -> None:
        self._client = client
        self._sessions = client.sessions
        self.alike = client.sessions.alike

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """Return the step of a message; see ``Sessions.judge``. Close is another input while an Acknowledgment is
        owed."""
        if input is _I.CLOSE:
            session = self._sessions.by_id[id]
            if session is not None and session.ack in OWED:
                input = _I.CLOSE_ACK
        return self._sessions.judge(input, id, first, value)

    def act(self, step: SessionStep, id: int, first: int, value: int, data: bytes) -> None:
        """Perform a step that was judged."""
        session: Session = self._sessions.by_id[id]  # type: ignore[assignment]  # without one it was a violation
        session.state = step.next
        _ACTS[step.action](self, session, first, value, data)  # type: ignore[misc]  # the table has no other

    def _arrive(self, session: Session, data: bytes, last: bool) -> None:
        outcome = self._sessions.inboxes.arrive(session, data, last)
        if outcome is None:
            return
        if isinstance(outcome, str):
            self._client.refuse(session, outcome, "payload_bytes")
        else:
            self._client.shared.events.append(Items(session.stream, [Payload(outcome)], True))

    def _deliver(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._arrive(session, data, False)

    def _deliver_last(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Deliver the end of the response; with close, as if Close followed (R-24)."""
        if first & ACK_REQUIRED:
            session.acknowledge(AckInput.ASK)
        self._arrive(session, data, True)
        self._ended(session, first, value, data)

    def _ended(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Complete the response of a session that the server may also have ended, or that this side has ended because
        the response cannot be stored."""
        if session.state is _S.FREE and self._sessions.holds_id(session):
            self._client.ids.free(session)
        elif session.state is _S.ACK_DUE:
            session.ack_since = SOON
            self._client.shared.soon(session, self._client.limits.ack_s)
        self._client.emptied(session)

    def _deliver_early(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Deliver a complete response; the server does not want the rest of the request (R-27)."""
        self._arrive(session, data, True)
        self._stop(session, first, value, data)

    def _stop(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer Close with Abort; deliver the response, discard further output without an error (R-27, D-8)."""
        session.acknowledge(AckInput.VOID)  # the Abort is a negative acknowledgement
        self._sessions.send_abort(session, "")
        self._client.ids.free(session)
        self._client.silence(session)

    def _free(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._client.ids.free(session)
        self._client.settle(session)

    def _increase(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._sessions.increase(session, value << (first & 0x0E))

    def _ignore(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Ignore a late, legal message (D-9)."""
        self._client.shared.waste(EMPTY)

    def _abort_back(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Answer Abort with Abort (R-28), and report whether the request is safe to retry (JA-04)."""
        client = self._client
        self._sessions.send_abort(session, "")
        session.acknowledge(AckInput.VOID)
        client.ids.free(session)
        ended = session.inbound is InboundState.DONE
        if ended and (session.whole or session.outbound is OutboundState.DONE):
            self._sessions.silence(session)  # the response is complete, and no acknowledgement is outstanding
            client.settle(session)
            return
        text = detail_of(data, client.limits) or "the server has aborted the session"
        kind: type[Error] = SessionAborted if first & 0x02 else SessionRejected
        client.fail(session, kind(text, stream=session.stream, rule="R-28"))

    def _discard(self, session: Session, first: int, value: int, data: bytes) -> None:
        self._sessions.inboxes.discard(session, data)

    def _answered(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Record that the server has answered this side's Abort, or ended the session concurrently (R-29)."""
        self._client.ids.free(session)


_BY_ACTION: dict[SessionAction, Act] = {
    _A.DELIVER: ClientMessages._deliver,
    _A.DELIVER_LAST: ClientMessages._deliver_last,
    _A.DELIVER_EARLY: ClientMessages._deliver_early,
    _A.STOP: ClientMessages._stop,
    _A.FREE: ClientMessages._free,
    _A.NOTHING: ClientMessages._ended,
    _A.INCREASE: ClientMessages._increase,
    _A.IGNORE: ClientMessages._ignore,
    _A.ABORT_BACK: ClientMessages._abort_back,
    _A.DISCARD: ClientMessages._discard,
    _A.ENDED: ClientMessages._answered,
}
_ACTS = [_BY_ACTION.get(action) for action in SessionAction]
"Indexed by the action's number, which is faster than its name."
