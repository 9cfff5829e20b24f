"""Take the steps of a session: one function for each action of the table SESSION.

A message or a call is one input of the table; the session type in steps.py then checks it and decides whose turn
follows, which is another input. Steps of this side that are not legal raise and send nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from afflux.core.errors import Error, LimitExceeded, LocalProtocolError, Violation
from afflux.core.events import Canceled, Completed, Failed
from afflux.core.payload import Payload
from afflux.core.texts import cut, public_text
from afflux.protocols.limit.codes import Code
from afflux.protocols.limit.frames import HEADER_SIZE, Choose, End, ErrorFrame, PayloadFrame
from afflux.protocols.limit.integers import unpacked
from afflux.protocols.limit.messages import Choice, Value
from afflux.protocols.limit.session import Session
from afflux.protocols.limit.shared import Shared
from afflux.protocols.limit.states import SESSION, ConnectionInput, SessionAction, SessionInput
from afflux.protocols.limit.steps import Turn

__all__ = ["Moves"]

_I = SessionInput
_TURNS = {
    Turn.SEND: _I.TO_SEND,
    Turn.RECEIVE: _I.TO_RECEIVE,
    Turn.BOTH: _I.TO_BOTH,
}


class Moves:
    """The steps of the sessions of one connection."""

    __slots__ = ("_explicit", "_shared")

    def __init__(self, shared: Shared, explicit: bool) -> None:
        self._shared = shared
        self._explicit = explicit

    def step(self, session: Session, input: SessionInput, argument: Any) -> None:
        """Apply a step of the table.

        Raises:
            Violation, RemoteProtocolError: the peer's step is not legal.
            LocalProtocolError, LimitExceeded: the application's step is not possible.
        """
        step = SESSION.steps[session.state][input]
        session.state = step.next
        _ACTIONS[step.action](self, session, argument)

    def set_turn(self, session: Session, mine: bool) -> None:
        """Apply the turn of the type, after a message of this side (``mine``) or the peer."""
        turn = session.steps.turn
        if turn is not session.turn:
            session.turn = turn
            end = _I.TO_END if mine else _I.TO_END_PEER
            self.step(session, _TURNS.get(turn, end), None)

    def _violate(self, session: Session, argument: Any) -> None:
        raise Violation(f"the session type expects {session.steps.expects}", rule="SI-25")

    def _deliver(self, session: Session, frame: PayloadFrame) -> None:
        data, metadata = frame.data, frame.metadata
        value = session.steps.read(data)
        if not session.unwanted:
            self._emit(session, Payload(data, metadata) if value is data else Value(value, metadata, data))
        self.set_turn(session, mine=False)

    def _branch(self, session: Session, frame: Choose) -> None:
        branch, steps = unpacked(frame.data), session.steps
        if branch < 0:
            raise Violation(f"a branch is 0 or more, not {branch}", rule="R-32")
        steps.chosen(branch)
        if steps.completing is None:
            if not session.unwanted:
                self._emit(session, Choice(branch, frame.metadata))
        elif branch == steps.completing:
            self._complete_inbound(session)
        self.set_turn(session, mine=False)

    def _emit(self, session: Session, item: Payload) -> None:
        """Add an item to those of this pass."""
        shared = self._shared
        session.to_receive.available -= 1
        session.to_receive.used += 1
        shared.delivered += len(item)
        shared.objects += 1
        session.add(shared.events, [item])

    def _send(self, session: Session, payload: Payload) -> None:
        steps, id = session.steps, self._shared.numbers.next()
        if isinstance(payload, Value) and not payload.data:
            data = steps.write(payload.value)
        else:
            data = payload.data
            self.check_size(payload)
            steps.check(data)
        self._message(session, PayloadFrame(stream=id, metadata=payload.metadata, data=data))

    def _pick(self, session: Session, choice: Choice) -> None:
        id = self._shared.numbers.next()
        if session.steps.choose(choice.branch) or self._explicit:
            self._message(session, Choose(stream=id, metadata=choice.metadata, data=choice.data))

    def _message(self, session: Session, frame: PayloadFrame | Choose) -> None:
        """Send a message. One that is too large ends the session, because its step is taken."""
        try:
            self.check_size(frame)
        except LimitExceeded as error:
            self.step(session, _I.APP_ABORT, error)
            raise
        self._shared.put(frame)
        self._shared.numbers.sends(frame.stream)
        session.to_send.used += 1
        self.set_turn(session, mine=True)

    def check_size(self, item: Payload | PayloadFrame | Choose) -> None:
        """R-30: a message is one frame (D-8)."""
        most = self._shared.limits.frame_bytes
        size = HEADER_SIZE + len(item.data) + (0 if item.metadata is None else 3 + len(item.metadata))
        if size > most:
            raise LimitExceeded(f"a message of {size} bytes: at most {most} fit a frame", rule="frame_bytes")

    def _refuse(self, session: Session, argument: Any) -> None:
        text = f"the session type expects {session.steps.expects}"
        raise LocalProtocolError(text, stream=session.stream, rule="SI-25")

    def _flush(self, session: Session, argument: Any) -> None:
        early, session.early, session.early_bytes = session.early, [], 0
        completing = session.steps.completing
        try:
            for payload in early:
                self.step(session, _I.APP_PAYLOAD, payload)
            if session.outbound_over and completing is not None:
                self.step(session, _I.APP_CHOOSE, Choice(completing))
        except LimitExceeded as error:
            self.step(session, _I.APP_ABORT, error)
            self._shared.events.append(Failed(session.stream, error.about(session.stream)))

    # -- endings --------------------------------------------------------------------------------------------

    def _end(self, session: Session, argument: Any) -> None:
        """Send END, as the side that sent last (R-29)."""
        self._shared.put(End())
        self._finish(session, ConnectionInput.SESSION_OVER)

    def _complete(self, session: Session, argument: Any) -> None:
        over = isinstance(argument, End)
        self._finish(session, ConnectionInput.SESSION_OVER if over else ConnectionInput.SESSION_COMPLETE)

    def _finish(self, session: Session, how: ConnectionInput) -> None:
        """Report the end to the application, as far as it does not know it."""
        self._leave(session, how)
        self._complete_inbound(session)
        if not session.outbound_over:
            self._shared.events.append(Canceled(session.stream, False))

    def _complete_inbound(self, session: Session) -> None:
        if not (session.inbound_over or session.unwanted):
            self._shared.events.append(Completed(session.stream))
        session.inbound_over = True

    def _abort(self, session: Session, error: BaseException) -> None:
        shared = self._shared
        text = cut(public_text(error), shared.limits.error_text_bytes[0])
        self._shared.put(ErrorFrame(stream=shared.numbers.answer, code=Code.APPLICATION_ERROR, data=text.encode()))
        shared.aborted = True
        self._leave(session, ConnectionInput.SESSION_FAILED)

    def _fail(self, session: Session, error: Error) -> None:
        self._leave(session, ConnectionInput.SESSION_FAILED)
        self._shared.events.append(Failed(session.stream, error.about(session.stream)))

    def _leave(self, session: Session, how: ConnectionInput) -> None:
        self._shared.session = None
        self._shared.ended = how


def _nothing(moves: Moves, session: Session, argument: Any) -> None:
    """No-op: already in this state."""


_A = SessionAction
_ACTIONS: dict[SessionAction, Callable[[Moves, Session, Any], None]] = {
    _A.VIOLATE: Moves._violate,
    _A.DELIVER: Moves._deliver,
    _A.BRANCH: Moves._branch,
    _A.SEND: Moves._send,
    _A.PICK: Moves._pick,
    _A.REFUSE: Moves._refuse,
    _A.FLUSH: Moves._flush,
    _A.END: Moves._end,
    _A.COMPLETE: Moves._complete,
    _A.ABORT: Moves._abort,
    _A.FAIL: Moves._fail,
    _A.NOTHING: _nothing,
}
