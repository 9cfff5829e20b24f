"""Apply the frames about a connection and its endings: one function for each action of the tables.

Rules:

1. Valid frames before an invalid one are delivered first; a violation becomes ERROR on 0, and Closed carries it.
2. Ignoring a frame is charged (DR-1), except for what was in flight when a session failed.
3. No state survives the transport: an engine is one connection, with one session at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from afflux.core.errors import LocalProtocolError, RemoteProtocolError, Violation
from afflux.core.events import Established, Event
from afflux.core.limits import REASONS
from afflux.protocols.limit import endings
from afflux.protocols.limit.codes import Code, error_for
from afflux.protocols.limit.frames import Choose, End, ErrorFrame, Ext, LimitFrame, PayloadFrame, Setup
from afflux.protocols.limit.ids import Reused
from afflux.protocols.limit.inbound import Inbound
from afflux.protocols.limit.session import Session
from afflux.protocols.limit.sessions import Sessions
from afflux.protocols.limit.setups import Setups
from afflux.protocols.limit.shared import Shared
from afflux.protocols.limit.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.limit.states import SessionInput as Step
from afflux.protocols.limit.steps import Steps

__all__ = ["Connection"]

_S, _I = ConnectionState, ConnectionInput
_START, _DECIDING, _CLOSED = _S.START, _S.DECIDING, _S.CLOSED
_LIVE = (_S.OPEN, _S.DRAINING)
_RESTING = (_S.IDLE, _S.ENDED, _S.FAILED)


class Connection:
    """Control one connection: SETUP, the ends of sessions, errors, timeouts."""

    __slots__ = (
        "_born",
        "_late",
        "_table",
        "eof",
        "idle_since",
        "inbound",
        "sessions",
        "setups",
        "shared",
    )

    def __init__(self, shared: Shared, sessions: Sessions, *, decide: bool) -> None:
        self.shared = shared
        self.sessions = sessions
        self.inbound = Inbound(shared.limits)
        self._table = CLIENT if sessions.client else SERVER
        self.setups = Setups(shared, sessions, decide)
        self._late = 0
        "Frames of a failed session that have arrived after it."
        self._born = shared.now
        self.idle_since = shared.now
        "When something last arrived, or a session was live."
        self.eof = False
        "The peer's half has ended, and frames of it wait for the application."
        if sessions.client:
            self._establish(None)

    def _establish(self, setup: Setup | None) -> None:
        self.setups.established = True
        self.shared.events.append(Established(setup))

    # -- what inbound asks ----------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing more is read."""
        return self.shared.state is _CLOSED

    @property
    def reads(self) -> bool:
        """Whether frames may be applied now."""
        return self.shared.state is not _CLOSED and self.shared.state is not _DECIDING

    @property
    def first(self) -> bool:
        """Whether a server waits for its first frame."""
        return self.shared.state is _START and not self.sessions.client

    @property
    def waiting(self) -> tuple[int, ...]:
        """The types of frames that wait for the application. The end of a half never waits."""
        session = self.shared.session
        if session is None or not session.holds:
            return ()
        return _VALUES if session.steps.completing is not None else _ITEMS

    # -- one pass -------------------------------------------------------------------------------------------

    def run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and return its events; a violation ends the connection (never raises)."""
        shared = self.shared
        try:
            self.settle()
            work(*arguments)
            self.settle()
        except (Violation, RemoteProtocolError) as violation:
            self.step(_I.BROKEN, violation)
        if shared.state in _LIVE:
            self.idle_since = shared.now
        return shared.take_events()

    def settle(self) -> None:
        """Apply the end of a session to the connection."""
        shared = self.shared
        ended, shared.ended = shared.ended, None
        if ended is not None:
            self.step(ended, None)

    def step(self, input: ConnectionInput, argument: Any) -> None:
        """Apply a step of the table."""
        step = self._table.steps[self.shared.state][input]
        self.shared.state = step.next
        _ACTIONS[step.action](self, argument)

    def apply(self, frame: LimitFrame) -> None:
        """Apply one frame.

        Raises:
            Violation, RemoteProtocolError: it breaks a rule.
        """
        if isinstance(frame, Ext):
            if not frame.ignore:
                raise Violation(f"extension 0x{frame.extended_type:X} is not supported", rule="R-8")
            self.skip(frame.stream, "R-8", "an extension that is not supported")
            return
        self.step(self._input(frame), frame)
        self.settle()

    def skip(self, id: int, rule: str, reason: str) -> None:
        """Skip a frame that is not understood and may be ignored."""
        self.shared.charge(1, id, rule, reason)

    def _input(self, frame: LimitFrame) -> ConnectionInput:
        """Classify a frame."""
        session = self.shared.session
        if isinstance(frame, PayloadFrame | Choose):
            return _I.MESSAGE
        if isinstance(frame, Setup):
            return self.setups.judge(frame)
        if isinstance(frame, ErrorFrame):
            if not frame.stream:
                return _I.ERROR_0
            late = session is not None and frame.stream <= session.sent_before and not self.shared.numbers.reuse
            return _I.ERROR_LATE if late else _I.ERROR
        if frame.stream:
            raise Violation(f"END with id {frame.stream}", rule="R-23")
        return _I.END_LATE if session is not None and session.end_due else _I.END

    # -- beginning ------------------------------------------------------------------------------------------

    def open(self, steps: Steps, setup: Setup, end_due: bool) -> int:
        """Open a session at a client, in a state that permits it; return the application's number."""
        self.step(_I.APP_OPEN, None)
        self._late = 0
        return self.sessions.open(steps, setup, end_due)

    def check_deciding(self) -> None:
        """Check that a SETUP waits for a decision; no-op after Closed.

        Raises:
            LocalProtocolError: no SETUP waits.
        """
        if self.shared.state not in (_DECIDING, _CLOSED):
            raise LocalProtocolError("nothing to decide: no SETUP is waiting", rule="3.1")

    def accept(self) -> None:
        """Accept the peer for the application; apply what arrived meanwhile. Raises Violation."""
        if self.shared.state is _DECIDING:
            self.step(_I.APP_ACCEPT, None)
            self.resume()

    def resume(self) -> None:
        """Apply what waited for the application; report the end that arrived behind it. Raises Violation."""
        self.settle()
        self.inbound.resume(self, self.shared.now)
        if self.eof and not self.inbound.held:
            self.step(_I.LOST, None)

    def _on_setup(self, frame: Setup) -> None:
        self._establish(frame)
        if not self.setups.decide:
            self.step(_I.APP_ACCEPT, None)

    def _begin(self, argument: Any) -> None:
        self._late = 0
        self.setups.begin()

    # -- steps ----------------------------------------------------------------------------------------------

    def _step(self, frame: LimitFrame) -> None:
        sessions, session = self.sessions, cast("Session", self.shared.session)  # in these states there is one
        if isinstance(frame, ErrorFrame):
            error = error_for(frame.code, frame.data, session.stream, self.shared.limits)
            sessions.moves.step(session, Step.ERROR, error)
            if session.stream in sessions.begun:
                self.shared.count_cancel()
        elif isinstance(frame, End):
            sessions.moves.step(session, Step.END, frame)
        elif self._is_next(frame):
            session.end_due = False
            sessions.moves.step(session, Step.PAYLOAD if isinstance(frame, PayloadFrame) else Step.CHOOSE, frame)

    def _is_next(self, frame: LimitFrame) -> bool:
        """Count a message; return False for one that is dropped, because its id is in use (R-19)."""
        shared = self.shared
        try:
            shared.numbers.receives(frame.stream)
        except Reused as reused:
            shared.charge(10, frame.stream, reused.rule, reused.reason)
            text = reused.reason.encode()
            shared.put(ErrorFrame(stream=frame.stream + 1, code=Code.CONNECTION_ERROR, data=text))
            return False
        return True

    def _discard(self, frame: LimitFrame) -> None:
        """Drop what was in flight when a session ended (3.1). ``cancel_race_frames`` of them are free."""
        if isinstance(frame, PayloadFrame | Choose):
            self.shared.numbers.receives(frame.stream)
        self._late += 1
        price = int(self._late > self.shared.limits.cancel_race_frames)
        self.shared.charge(price, frame.stream, "D-14", f"{frame.NAME} of a session that is over")

    def _forget(self, frame: End) -> None:
        cast("Session", self.shared.session).end_due = False

    # -- time -----------------------------------------------------------------------------------------------

    def hold(self, now: float) -> None:
        """Restart the timeouts: this side did not read until ``now``."""
        self.idle_since = now
        if self.inbound.incomplete_since is not None:
            self.inbound.incomplete_since = now

    @property
    def due(self) -> float | None:
        """When ``tick`` is next needed, in a state that is not CLOSED."""
        shared, limits = self.shared, self.shared.limits
        if self.first or shared.state is _DECIDING:
            return self._born + limits.handshake_s
        times = []
        if shared.state in _RESTING and limits.idle_s is not None and not self.sessions.client:
            times.append(self.idle_since + limits.idle_s)
        if self.inbound.incomplete_since is not None:
            times.append(self.inbound.incomplete_since + limits.frame_s)
        return min(times, default=None)

    def tick(self) -> None:
        """Apply the timeouts, and what waited for the application.

        Raises:
            Violation: a frame has been unfinished, or the connection idle, for too long.
        """
        if self.inbound.held and self.reads and not self.waiting:
            self.resume()
        due, now = self.due, self.shared.now
        if due is None or now < due or self.over:
            return
        if self.first or self.shared.state is _DECIDING:
            self.step(_I.SILENT, Violation(REASONS["handshake_s"], rule="handshake_s"))
        else:
            rule = "idle_s" if self.inbound.incomplete_since is None else "frame_s"
            raise Violation(REASONS[rule], rule=rule)


def _nothing(connection: Connection, argument: Any) -> None:
    """No-op: already in this state, or nothing to do."""


_VALUES = (PayloadFrame.TYPE,)
_ITEMS = (PayloadFrame.TYPE, Choose.TYPE)

_A = ConnectionAction
_ACTIONS: dict[ConnectionAction, Callable[[Connection, Any], None]] = {
    _A.VIOLATE: endings.violate,
    _A.INVALID: endings.invalid,
    _A.REJECT: endings.reject,
    _A.JUDGE: Connection._on_setup,
    _A.BEGIN: Connection._begin,
    _A.SETUP: _nothing,
    _A.STEP: Connection._step,
    _A.DISCARD: Connection._discard,
    _A.FORGET: Connection._forget,
    _A.DRAIN: _nothing,
    _A.PEER_FAILED: endings.peer_failed,
    _A.CLOSE: endings.close,
    _A.GIVE_UP: endings.give_up,
    _A.LOSE: endings.lose,
    _A.NOTHING: _nothing,
}
