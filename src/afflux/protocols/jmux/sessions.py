"""Index the sessions of one connection by id and by number; implement what client and server have in common.

A message is judged before anything is changed (R-20, R-33): ``judge`` raises, or returns the step of the session's
table. Sessions have a number at the engine that is never reused (``stream``); ids on the wire are reused.
"""

from __future__ import annotations

from afflux.core.credit import Bound, StreamStatus, Unit
from afflux.core.errors import Error, LocalProtocolError
from afflux.core.events import Failed, Granted
from afflux.core.machine import Step, Table
from afflux.protocols.jmux.budget import LARGEST_RATION, Rations
from afflux.protocols.jmux.errors import encoded, violation
from afflux.protocols.jmux.frames import Abort
from afflux.protocols.jmux.halves import (
    FINISHED,
    OUTBOUND,
    UNWRITTEN,
    InboundInput,
    InboundState,
    OutboundInput,
    OutboundState,
)
from afflux.protocols.jmux.inboxes import EMPTY, Inboxes
from afflux.protocols.jmux.outbound import INFINITE, Flags, Outbound
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import CLIENT_SESSION, SessionAction, SessionInput, SessionState

__all__ = ["SessionStep", "Sessions"]

_FREE = SessionState.FREE
_LAST_OPEN, _LAST_DATA = SessionInput.DATA_OPEN_EOF, SessionInput.DATA_EOF_CLOSE_ACK
_VIOLATION, _INCREASE = SessionAction.VIOLATION, SessionAction.INCREASE
_DONE, _FINISH, _WANTED = OutboundState.DONE, OutboundInput.FINISH, InboundState.OPEN

SessionTable = Table[SessionState, SessionInput, SessionAction]
SessionStep = Step[SessionState, SessionAction]


class Sessions:
    """Base of both roles: the sessions and the operations on them."""

    __slots__ = (
        "_numbers",
        "_steps",
        "by_id",
        "by_stream",
        "first_ration",
        "inboxes",
        "limits",
        "live",
        "most",
        "out",
        "rations",
        "requester",
        "shared",
    )

    def __init__(
        self, table: SessionTable, shared: Shared, largest_id: int, fragment: int, flags: Flags, whole: bool
    ) -> None:
        self._steps = table.steps
        self.shared = shared
        self.limits = shared.limits
        self.requester = table is CLIENT_SESSION
        "This side opens the sessions."
        ids = largest_id + 1
        # The limit counts ids; at the format's own maximum it means all of them, also where there are more.
        self.most = ids if shared.limits.sessions >= 128 else min(ids, shared.limits.sessions)
        "Most concurrent sessions (R-21)."
        self.by_id: list[Session | None] = [None] * ids
        self.by_stream: dict[int, Session] = {}
        "Sessions on which the application can still act."
        self.live = 0
        "Number of sessions that have an id and were not ended here."
        self.out = Outbound(fragment, flags, self._stuck)
        self.rations = Rations(shared.limits, self.most, whole)
        self.inboxes = Inboxes(shared, self.out, self.rations)
        self.first_ration = 0
        "Ration of this side for a new session; 0 before the peer's header has arrived."
        self._numbers = 0

    def new(self, whole: bool) -> Session:
        """Return a session with its rations, as they are in the headers (R-32)."""
        self._numbers += 1
        session = Session(self._numbers, whole, self.first_ration, self.rations.initial)
        self.by_stream[self._numbers] = session
        return session

    def holds_id(self, session: Session) -> bool:
        """Whether a session still owns its id, so that messages about it may be sent."""
        return session.id >= 0 and self.by_id[session.id] is session

    def timed(self) -> list[Session]:
        """Every session that has an id, and may wait for something."""
        return [session for session in self.by_id if session is not None]

    def status(self, room: int) -> list[StreamStatus]:
        """Return one status for each session on which the application can still act."""
        return [
            StreamStatus.of(
                session.stream,
                "request" if session.whole else "session",
                session.state.name,
                requester=self.requester,
                unit=Unit.BYTES,
                to_send=session.to_send,
                to_receive=session.to_receive,
                queued=session.waiting,
                bounds=self._bounds(session, room),
            )
            for session in self.by_stream.values()
        ]

    def _bounds(self, session: Session, room: int) -> list[Bound | None]:
        """Why each unfinished direction is blocked. A session that waits for an id has no credit yet."""
        bounds: list[Bound | None] = []
        if session.id < 0:
            return ["credit"]
        if session.outbound is not _DONE:
            bounds.append(session.to_send.sending(queued=session.ready, room=room))
        if session.inbound is _WANTED:
            memory = session.to_receive.available > 0 or session not in self.rations.waiting
            receiving = session.to_receive.receiving(memory=memory)
            unread = receiving == "producer" and session.unread and not session.whole
            bounds.append("application" if unread else receiving)
        return bounds

    # -- steps ----------------------------------------------------------------------------------------------

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """Return the step of a message, by its header alone; nothing is changed.

        Raises:
            Violation: the peer must not send this now.
        """
        session = self.by_id[id]
        step = self._steps[_FREE if session is None else session.state][input]
        if step.action is _VIOLATION:
            state = "never opened" if session is None else session.state.name
            raise violation(f"{input.name} on session {id}, which is {state}", step.rule)
        if input <= _LAST_DATA:
            ration = self.rations.initial
            if session is not None and input > _LAST_OPEN:
                ration = session.to_receive.available
            if value > ration:
                raise violation(f"ration-exceeded: {value} bytes on session {id}, whose ration is {ration}", "R-33")
        elif step.action is _INCREASE and session is not None and session.to_send.available < INFINITE:
            size = session.to_send.available + (value << (first & 0x0E))
            if size > LARGEST_RATION:
                raise violation(f"the ration of session {id} would be {size}", "R-35")
        return step

    def alike(self, step: SessionStep, id: int, value: int) -> int:
        """Return how many messages equal to a judged one, a plain Data of ``value`` bytes, form one step."""
        session = self.by_id[id]
        if session is None or not value or step.next is not session.state:
            return 0
        return session.to_receive.available // value

    def step(self, session: Session, input: SessionInput) -> SessionAction:
        """Apply a step that the application causes."""
        step = self._steps[session.state][input]
        session.state = step.next
        return step.action

    # -- what this side sends -------------------------------------------------------------------------------

    def credit(self, session: Session) -> int:
        """Number of bytes that may still be written."""
        return max(0, session.to_send.available - session.waiting)

    def write(self, stream: int, data: bytes, *, within: bool, last: bool = False) -> None:
        """Queue bytes, the ``last`` or not; with ``within`` they must be within the credit."""
        session = self.by_stream.get(stream)
        if session is None or session.outbound is _DONE:
            return
        if session.outbound in FINISHED:
            raise LocalProtocolError("the session was finished: nothing can follow", stream=stream, rule="R-20")
        if within and len(data) > (credit := self.credit(session)):
            raise LocalProtocolError(f"{len(data)} bytes with a credit of {credit}", stream=stream, rule="R-33")
        if data:
            self.out.put(session, data)
        if last:
            session.outbound = OUTBOUND.steps[session.outbound][_FINISH].next
        if session.id >= 0:
            self.out.look(session)

    def _look(self, session: Session) -> None:
        """Let a session send what it may; nothing while it waits for an id."""
        if session.id >= 0:
            self.out.look(session)

    def hunger(self, session: Session, waits: bool) -> None:
        """Record whether the application waits for ration: a peer may stall it for ``session_stall_s``."""
        session.out(OutboundInput.HUNGER if waits else OutboundInput.SATED)
        if waits:
            self._look(session)
        elif not session.waiting:
            session.blocked = None

    def finish(self, session: Session) -> None:
        """End the outgoing bytes: eof leaves with the last."""
        session.out(OutboundInput.FINISH)
        self._look(session)

    def send_abort(self, session: Session, detail: str, partial: bool = False) -> None:
        """Abort a session; nothing of it will follow."""
        text = encoded(detail, self.limits.error_text_bytes[0])
        self.out.control(Abort(session=session.id, partial=partial, detail=text).encode())

    def _stuck(self, session: Session) -> None:
        if session.blocked is None:
            session.blocked = SOON
            self.shared.soon(session, self.limits.session_stall_s)

    @property
    def beyond_share(self) -> int:
        """Bytes that wait for ration beyond the share of each session in ``connection_bytes``, in all."""
        share = self.limits.connection_bytes // self.most
        return sum(max(0, session.waiting - session.ready - share) for session in self.by_stream.values())

    # -- what the peer grants -------------------------------------------------------------------------------

    def increase(self, session: Session, size: int) -> None:
        """Apply a grant: the peer lets this side send more (D-14)."""
        if not size:
            self.shared.waste(EMPTY)
        elif session.to_send.available < INFINITE:
            session.to_send.add(size)
            session.blocked = None
            if not session.whole:
                self.shared.events.append(Granted(session.stream, size))
            self.out.look(session)

    # -- endings --------------------------------------------------------------------------------------------

    def silence(self, session: Session) -> None:
        """Drop the output of a session; what the application still writes is discarded."""
        session.out(OutboundInput.UNWANTED)
        session.blocked = None
        self.out.drop(session)

    def give_up(self, session: Session) -> None:
        """Release a session that the application has finished using, or that has failed."""
        self.silence(session)
        session.receive(InboundInput.UNWANTED)
        self.inboxes.close(session)
        self.by_stream.pop(session.stream, None)

    def fail(self, session: Session, error: Error) -> None:
        """Report to the application that a session has failed."""
        self.shared.events.append(Failed(session.stream, error))
        self.give_up(session)

    def settle(self, session: Session, wanted: bool = False) -> None:
        """Forget a session on which nothing more can be sent or read; ``wanted``: an acknowledgement still can."""
        if session.outbound is _DONE and session.inbound is not _WANTED and not session.inbox:
            if session.account is not None:
                self.rations.release(session)
            if not wanted:
                self.by_stream.pop(session.stream, None)

    def unsent(self, stream: int) -> bool:
        """Whether nothing of a session was sent: if so, it is always safe to retry."""
        session = self.by_stream.get(stream)
        return session is not None and session.outbound in UNWRITTEN

    def let_go(self) -> None:
        """End the connection after every session was notified. Unread bytes stay readable; nothing else is retained, no
        callback either, so that this object is freed without the garbage collector."""
        self.by_id = [None] * len(self.by_id)
        self.live = 0
        self.shared.let_go()
        self.inboxes.let_go()
        self.out.let_go()
