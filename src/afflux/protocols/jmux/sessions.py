"""The sessions of one connection: what client and server have in common. What differs is in client.py and server.py.

A message is judged before anything is changed (R-20, R-33): ``judge`` raises or says which step it is, ``act`` makes
the step. Sessions have a number at the engine that never comes twice (``stream``); ids on the wire come again.
Nothing here waits for an application: what nobody reads stays in its inbox, within its ration (R-40).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from afflux.core.credit import Bound, StreamStatus, Unit
from afflux.core.errors import Error, LocalProtocolError
from afflux.core.events import Failed, Granted, Readable
from afflux.core.limits import Limits
from afflux.core.machine import Step, Table
from afflux.protocols.jmux.budget import LARGEST_RATION, PATIENCE_S, Rations
from afflux.protocols.jmux.errors import encoded, violation
from afflux.protocols.jmux.frames import Abort, increments
from afflux.protocols.jmux.outbound import INFINITE, Outbound
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.states import SessionAction, SessionInput, SessionState

__all__ = ["Charge", "SessionStep", "Sessions", "numbered"]

_FREE = SessionState.FREE
_LAST_OPEN, _LAST_DATA = SessionInput.DATA_OPEN_EOF, SessionInput.DATA_EOF_CLOSE_ACK
_VIOLATION, _INCREASE, _OPEN = SessionAction.VIOLATION, SessionAction.INCREASE, SessionAction.OPEN
_EMPTY = 4
"What a message costs that says nothing: its header, counted as NoOperation."

SessionTable = Table[SessionState, SessionInput, SessionAction]
SessionStep = Step[SessionState, SessionAction]
Charge = Callable[[int, int, str, str], None]
Act = Callable[[Any, Session, int, int, bytes], None]


def numbered(actions: dict[SessionAction, Act]) -> list[Act]:
    """By the action's number, which is found sooner than its name; none for what no message leads to."""
    return [actions.get(action, _no_act) for action in SessionAction]


def _nobody(price: int, stream: int, rule: str, reason: str) -> None:
    """Who is charged after the end."""


def _no_act(sessions: Any, session: Session, first: int, value: int, data: bytes) -> None:
    raise NotImplementedError


# long: what arrives, what is sent, time and endings, for both roles
class Sessions:
    """What is known of all sessions of one connection."""

    requester: bool
    "Whether this side opens sessions."

    __slots__ = (
        "_actions",
        "_empty",
        "_fed",
        "_fresh",
        "_numbers",
        "_steps",
        "alarm",
        "by_id",
        "by_stream",
        "charge",
        "events",
        "first_ration",
        "limits",
        "live",
        "most",
        "now",
        "out",
        "patience",
        "rations",
        "unread",
    )

    def __init__(
        self,
        table: SessionTable,
        limits: Limits,
        largest_id: int,
        fragment: int,
        charge: Charge,
        actions: list[Act],
        whole: bool,
    ) -> None:
        """``actions`` are what each action does in this role, by ``numbered``; ``whole``: sessions are told whole."""
        self._steps = table.steps
        self._actions = actions
        self.limits = limits
        ids = largest_id + 1
        # The limit counts ids; at the format's own most it means all of them, also where there are more.
        self.most = ids if limits.sessions >= 128 else min(ids, limits.sessions)
        "Sessions at a time (R-21)."
        self.by_id: list[Session | None] = [None] * ids
        self.by_stream: dict[int, Session] = {}
        "Those that the application may still say something about."
        self.live = 0
        self.out = Outbound(fragment, self.leave, self._stuck)
        self.rations = Rations(limits, self.most, whole)
        self.unread = 0
        "Bytes in the inboxes of all sessions."
        self.first_ration = 0
        "What this side may send on a new session; 0 before the peer's header has come."
        self.charge = charge
        self.events: list[Any] = []
        self.now = 0.0
        self.alarm = inf
        "No session has to be looked at before; it may be too early."
        self.patience = inf
        "When to look whether those who wait for ration wait for one that stands still."
        self._fed = 0.0
        "When a session that is told whole last got something."
        self._fresh: list[tuple[Session, str]] = []
        self._numbers = 0
        self._empty = 0

    def new(self, whole: bool) -> Session:
        """A session with its rations, as they are in the headers (R-32)."""
        self._numbers += 1
        return Session(self._numbers, whole, self.first_ration, self.rations.initial)

    def establish(self, ration: int) -> None:
        """The peer's header has come: its ration is that of every session (R-32)."""
        self.first_ration = ration

    # -- what arrives ---------------------------------------------------------------------------------------

    def judge(self, input: SessionInput, id: int, first: int, value: int) -> SessionStep:
        """The step of a message, by its header alone; nothing is changed.

        Raises:
            Violation: the peer must not send this now.
        """
        session = self.by_id[id]
        step = self._steps[_FREE if session is None else session.state][input]
        if step.action is _VIOLATION:
            state = "never opened" if session is None else session.state.name
            raise violation(f"{input.name} on session {id}, which is {state}", step.rule)
        if input <= _LAST_DATA:
            ration = self.rations.initial if session is None or input <= _LAST_OPEN else session.to_receive.available
            if value > ration:
                raise violation(f"ration-exceeded: {value} bytes on session {id}, whose ration is {ration}", "R-33")
        elif step.action is _INCREASE and session is not None and session.to_send.available < INFINITE:
            size = value << (first & 0x0E)
            if session.to_send.available + size > LARGEST_RATION:
                raise violation(f"the ration of session {id} would be {session.to_send.available + size}", "R-35")
        return step

    def alike(self, step: SessionStep, id: int, value: int) -> int:
        """How many messages like one that was judged, a plain Data of ``value`` bytes, are one step together."""
        session = self.by_id[id]
        if session is None or not value or step.next is not session.state:
            return 0
        return session.to_receive.available // value

    def act(self, step: SessionStep, input: SessionInput, id: int, first: int, value: int, data: bytes) -> None:
        """Make a step that was judged."""
        session = self.by_id[id]
        if session is None or step.action is _OPEN:
            session = self.opened(id)
        session.state = step.next
        self._actions[step.action](self, session, first, value, data)

    def opened(self, id: int) -> Session:
        """The peer opens a session under an id."""
        raise NotImplementedError

    def arrive(self, session: Session, data: bytes, last: bool) -> None:
        """Bytes of a session came (R-34); ``last`` with eof."""
        session.to_receive.spend(len(data))
        session.in_done = last
        if session.since is not None:
            session.since = self.now
        if not data and not last:
            self.waste(_EMPTY)  # R-16, D-6: allowed, and no more
        elif session.over or session.dropping:
            return
        elif session.whole:
            self._assemble(session, data, last)
        else:
            self._keep(session, data)
            self._tell_readable(session, len(data), last)

    def _keep(self, session: Session, data: bytes) -> None:
        self.unread += len(data)
        if session.inbox is None:
            session.inbox = bytearray(data)
        else:
            session.inbox += data

    def _tell_readable(self, session: Session, size: int, last: bool) -> None:
        """One event for what came in a row."""
        before = self.events[-1] if self.events else None
        if isinstance(before, Readable) and before.stream == session.stream:
            size += before.size
            self.events.pop()
        self.events.append(Readable(session.stream, size, last))

    def _assemble(self, session: Session, data: bytes, last: bool) -> None:
        """A session that is told whole has got more."""
        size = session.unread + len(data)
        if size > self.limits.payload_bytes or (size >= self.rations.largest and not last):
            self.refuse(session, "payload-too-large", "payload_bytes")
            return
        if last:
            if session.inbox:
                self.unread -= session.unread
                session.inbox += data
                data = bytes(session.inbox)
            payload = data
            session.inbox = None
            self.rations.deliver(session, len(payload))
            self.deliver(session, payload)
            return
        self._keep(session, data)
        if len(data) > 1:
            session.moved = self._fed = self.now
        self.rations.ask(session)

    def deliver(self, session: Session, payload: bytes) -> None:
        """A payload is whole."""
        raise NotImplementedError

    def refuse(self, session: Session, reason: str, rule: str) -> None:
        """What arrives can not be kept: end the session."""
        raise NotImplementedError

    def _refill(self, session: Session) -> None:
        """Let the peer send more, if it is time for that (R-37, R-38)."""
        if more := self.rations.refill(session):
            self.out.control(increments(session.id, more))

    def give(self) -> None:
        """Before writing: let those send more who have asked for it, as far as memory allows."""
        for session, more in self.rations.grants():
            self.out.control(increments(session.id, more))
            self._fed = self.now
            self.start(session, "moved", PATIENCE_S)
        if not self.rations.blocked:
            self.patience = inf
        elif self.patience == inf:
            self.patience = SOON

    def discard(self, session: Session, first: int, value: int, data: bytes) -> None:
        """What comes after this side has ended the session counts, and is not looked at (D-15, I-13, SI-19)."""
        session.to_receive.spend(len(data))
        if not data:
            self.waste(_EMPTY)

    def increase(self, session: Session, first: int, value: int, data: bytes) -> None:
        """The peer lets this side send more (D-14)."""
        size = value << (first & 0x0E)
        if not size:
            self.waste(_EMPTY)
        elif session.to_send.available < INFINITE:
            session.to_send.add(size)
            session.blocked = None
            if not session.whole:
                self.events.append(Granted(session.stream, size))
            self.out.look(session)

    def ignore(self, session: Session, first: int, value: int, data: bytes) -> None:
        """Late, and legal (D-9)."""
        self.waste(_EMPTY)

    def waste(self, size: int) -> None:
        """So many bytes said nothing: each 4 Ki of them cost a token."""
        self._empty += size
        if self._empty >= 0x1000:
            price, self._empty = divmod(self._empty, 0x1000)
            self.charge(price, 0, "R-12", "bytes that say nothing")

    # -- what the application does --------------------------------------------------------------------------

    def read(self, stream: int, limit: int | None) -> bytes:
        """Take what has arrived, at most ``limit`` bytes; that makes room for more."""
        session = self.by_stream.get(stream)
        if session is None or session.inbox is None or session.whole:
            return b""
        inbox = session.inbox
        size = len(inbox) if limit is None else min(limit, len(inbox))
        data = bytes(inbox[:size])
        del inbox[:size]
        self.unread -= size
        if not session.in_done and self.holds_id(session):
            self._refill(session)
        else:
            self.rations.shrink(session)
        self.emptied(session)
        return data

    def emptied(self, session: Session) -> None:
        """The application has read what there was."""
        self.settle(session)

    def holds_id(self, session: Session) -> bool:
        """Whether its id is still its own, and messages about it may be sent."""
        return session.id >= 0 and self.by_id[session.id] is session

    def write(self, stream: int, data: bytes, *, within: bool) -> None:
        """Let bytes wait for their turn; with ``within`` they have to be within the credit."""
        session = self.by_stream.get(stream)
        if session is None or session.over or session.out_done:
            return
        if session.finishing:
            raise LocalProtocolError("the session was finished: nothing can follow", stream=stream, rule="R-20")
        if within and len(data) > (credit := self.credit(session)):
            raise LocalProtocolError(f"{len(data)} bytes with a credit of {credit}", stream=stream, rule="R-33")
        self.out.put(session, data)
        self.look(session)

    def look(self, session: Session) -> None:
        """Let a session send what it may; one that waits for an id may nothing."""
        if session.id >= 0:
            self.out.look(session)

    def credit(self, session: Session) -> int:
        """Bytes that may still be written."""
        return max(0, session.to_send.available - session.waiting)

    def status(self, room: int) -> list[StreamStatus]:
        """One status for each session about which the application can still act."""
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
        """Why each direction that is not finished stands still. A session that waits for an id waits for the peer."""
        bounds: list[Bound | None] = []
        if session.id < 0:
            return ["peer"]
        if not session.out_done:
            bounds.append(session.to_send.sending(queued=session.ready, room=room))
        if not (session.in_done or session.dropping):
            memory = session.to_receive.available > 0 or session not in self.rations.waiting
            bounds.append(session.to_receive.receiving(memory=memory))
        return bounds

    def hunger(self, session: Session, waits: bool) -> None:
        """The application waits for ration, or does not any more: so long a peer may stall it (``session_stall_s``)."""
        session.hungry = waits
        if waits:
            self.look(session)
        elif not session.waiting:
            session.blocked = None

    def finish(self, session: Session) -> None:
        """No more bytes: eof goes with the last."""
        session.finishing = True
        self.look(session)

    def leave(self, session: Session, last: bool) -> int:
        """A Data message of a session leaves: make its step, say which flags it has."""
        raise NotImplementedError

    def step(self, session: Session, input: SessionInput) -> SessionAction:
        """The application's step."""
        step = self._steps[session.state][input]
        session.state = step.next
        return step.action

    def send_abort(self, session: Session, detail: str, partial: bool = False) -> None:
        """Abort a session; nothing of it will follow."""
        text = encoded(detail, self.limits.error_text_bytes[0])
        self.out.control(Abort(session=session.id, partial=partial, detail=text).encode())

    def close_inbox(self, session: Session) -> None:
        """Nobody will read what is there, or what comes."""
        self.unread -= session.unread
        session.inbox = None
        self.rations.release(session)

    def give_up(self, session: Session) -> None:
        """The application has done with it, or is told that it has failed."""
        session.over = session.out_done = True
        session.blocked = None
        self.close_inbox(session)
        self.out.drop(session)
        self.by_stream.pop(session.stream, None)

    def fail(self, session: Session, error: Error) -> None:
        """Tell the application that a session has failed."""
        self.events.append(Failed(session.stream, error))
        self.give_up(session)

    def settle(self, session: Session) -> None:
        """Forget it if nobody can say or read anything more."""
        if session.out_done and (session.in_done or session.dropping) and not session.unread:
            self.rations.release(session)
            if not self.wanted(session):
                self.by_stream.pop(session.stream, None)

    def wanted(self, session: Session) -> bool:
        """Whether the application may still have something to say about a session that is over in both directions."""
        return False

    def let_go(self) -> None:
        """The connection is over, and every session has heard it. What has come can still be read; nothing else is
        kept, and nobody who holds this object: no garbage collector shall be needed to free it."""
        for session in self.by_stream.values():
            session.ack_asked = False
        self.by_id = [None] * len(self.by_id)
        self.live = 0
        self._fresh.clear()
        self.alarm = self.patience = inf
        self.rations.let_go()
        self.charge = _nobody
        self.out.let_go()

    # -- time -----------------------------------------------------------------------------------------------

    def start(self, session: Session, clock: str, seconds: float) -> None:
        """A time begins to run: ``since``, ``blocked`` or ``ack_since``."""
        setattr(session, clock, SOON)
        self._fresh.append((session, clock))
        self.alarm = min(self.alarm, self.now + seconds)

    def _stuck(self, session: Session) -> None:
        if session.blocked is None:
            self.start(session, "blocked", self.limits.session_stall_s)

    def at(self, now: float) -> None:
        """It is so late: times that have begun since the last look begin now."""
        self.now = now
        if self._fresh:
            for session, clock in self._fresh:
                if getattr(session, clock) == SOON:
                    setattr(session, clock, now)
            self._fresh.clear()
        if self.patience == SOON:
            self.patience = now + PATIENCE_S

    @property
    def fresh(self) -> bool:
        """Whether a time has begun to run since the last look."""
        return bool(self._fresh) or self.patience == SOON

    @property
    def due_at(self) -> float:
        """When tick is wanted; what is fresh has not begun."""
        return self.alarm if self.patience == SOON else min(self.alarm, self.patience)

    def tick(self) -> None:
        """End what has taken too long."""
        if self.now >= self.patience:
            self._lose_patience()
        if self.now >= self.alarm:
            self.alarm = min((self.due(session) for session in self.timed()), default=inf)

    def _lose_patience(self) -> None:
        """Whoever waits for ration does not wait any longer for one that stands still."""
        self.patience = self.now + PATIENCE_S
        for session in self.rations.comfort(self.now, self.limits.session_stall_s / 4):
            session.moved = self.now
            self.out.control(increments(session.id, 1))
        if self.rations.pass_over(self.now) or self.now < self._fed + self.limits.session_stall_s:
            return
        self._fed = self.now
        for last in self.rations.stuck():
            self.refuse(last, "session-stall" if last.passed else "buffer-full", "connection_bytes")

    def timed(self) -> list[Session]:
        """Every session that may wait for something."""
        return [session for session in self.by_id if session is not None]

    def due(self, session: Session) -> float:
        """End it if something has taken too long; else say when that will be."""
        raise NotImplementedError

    def late(self, since: float | None, seconds: float | None) -> tuple[bool, float]:
        """Whether ``seconds`` have passed since, and else when they will have."""
        if since is None or seconds is None:
            return False, inf
        return self.now >= since + seconds, since + seconds
