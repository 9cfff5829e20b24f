"""Resume a session on a new transport: suspend, ask, check positions, repeat (sections 3.1, 3.2, R-43 to R-53).

family/resuming.py has what does not depend on RSocket's frames; resume.py retains sent frames.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.core.errors import ConnectionClosed, Violation
from afflux.core.events import Established, Resumed
from afflux.protocols.family import endings, liveness, resuming
from afflux.protocols.family.handshake import agree
from afflux.protocols.family.resuming import Resuming, go_on, required_sessions, suspend, take_over
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.family.states import ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import ErrorFrame, Resume, ResumeOk, Setup
from afflux.protocols.rsocket.resume import Retained

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["ACTIONS", "Resumption", "classify", "part_of"]

_PROGRESS = 0x400
"""Bytes that a position must advance for its keepalive to be free: a peer whose store fills reports its position
much more often than it sends signs of life (R-51)."""

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LOSABLE = (_S.SETUP_SENT, _S.OPEN, _S.DRAINING, _S.RESUME_SENT)
"The states in which a session outlives its transport."


class Resumption(Resuming):
    """The session of one connection."""

    __slots__ = ("counted", "noted", "renewed")

    def __init__(self, sessions: Sessions | None) -> None:
        super().__init__(sessions)
        self.begins_anew = True
        "False for a session that is stored in a file."
        self.counted: Retained | None = None
        "Counts the received position; it stays when ``retained`` is discarded."
        self.renewed = False
        "The current transport started a new session, which is not established yet."
        self.noted = 0
        "The last position that the peer reported in a free keepalive."

    @property
    def kept(self) -> Retained:
        """The retained frames of a session that ``retains``."""
        return cast("Retained", self.retained)

    def agree(self, connection: Connection, setup: Setup) -> None:
        """Start to retain frames, if SETUP has a token (R-44)."""
        if setup.token is not None:
            self.counted = Retained(connection.limits)
            self.retain(connection, self.counted)

    def established(self, connection: Connection) -> None:
        """Report Resumed for a client that started a new session."""
        if self.renewed:
            self.renewed = False
            connection.current.events.append(Resumed())

    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport."""
        return self.retained is not None and connection.state in _LOSABLE

    def suspended(self, connection: Connection) -> None:
        """No-op: all streams survive the transport."""

    def misfit(self, connection: Connection, request: Resume) -> str:
        """Return why the session cannot continue from the positions in RESUME (R-46)."""
        if not self.kept.holds(request.last_received_server_position):
            return f"position {request.last_received_server_position} is not retained"  # RE-05
        if request.first_available_client_position > self.kept.received:
            return f"only {self.kept.received} bytes were received here"  # RE-07
        return ""

    def broken(self, connection: Connection, violation: Violation) -> bool:
        """Report any frame other than the answer to RESUME, and try once more."""
        if connection.state is not _S.RESUME_SENT:
            return False
        _resume_broken(connection, violation)
        return True

    def report(self, connection: Connection) -> None:
        """Report the received position, if the peer would have to stop otherwise (R-51)."""
        if self.counted is not None and self.counted.report_due and connection.is_open:
            liveness.send_keepalive(connection, respond=False)

    def reported(self) -> int:
        """Return the received position, for a frame that reports it now (R-51)."""
        if self.counted is None:
            return 0
        self.counted.reported = self.counted.received
        return self.counted.received

    def is_free(self, position: int) -> bool:
        """Whether a keepalive that reports ``position`` is free: it is far enough beyond the last free one."""
        if self.counted is None or position < self.noted + _PROGRESS:
            return False
        self.noted = position
        return True

    def acknowledged(self, position: int) -> bool:
        """Apply the position that the peer reports, while ``retains``. False when it goes backwards."""
        if not self.kept.acknowledge(position):
            return False
        if self.kept.room > 0:
            self.store_full = None
        return True

    def discard(self, connection: Connection) -> None:
        """Make the session one that cannot be resumed (RE-17). This side still reports its position, or the peer's
        store would fill."""
        self.kept.trim(self.kept.sent)
        self.retained = connection.outbound.retained = None
        self.over(connection)

    def unheard(self, connection: Connection) -> bool:
        """Whether nothing was received from the server, so that SETUP may be lost, and there is time for a new
        session."""
        hello = connection.handshake
        early = connection.current.now < hello.born + connection.limits.resume_s
        return self.begins_anew and early and not hello.accepted and connection.farewell is None


def part_of(connection: Connection) -> Resumption:
    """Return the resumption part of a connection that has one."""
    return cast("Resumption", connection.resuming)


def classify(connection: Connection) -> ConnectionInput:
    """Return the input for ERROR[REJECTED_RESUME]."""
    unheard = connection.state is _S.RESUME_SENT and part_of(connection).unheard(connection)
    return _I.ERROR_UNHEARD if unheard else _I.ERROR_RESUME


# -- actions of the connection tables -------------------------------------------------------------------------


def _send_resume(connection: Connection, argument: Any) -> None:
    # Only a client that sent a token and still retains its frames can be suspended.
    part = part_of(connection)
    part.asked = connection.current.now
    connection.inbound.over = False
    connection.outbound.suspend()  # drops the last frames for the old transport, if they were not taken
    frame = Resume(
        stream=0,
        token=connection.setup.token or b"",
        last_received_server_position=part.kept.received,
        first_available_client_position=part.kept.first,
    )
    connection.outbound.control(frame.encode(prefixed=True))


def _forget_session(connection: Connection, frame: ErrorFrame) -> None:
    """Prepare a new session: the server does not have this one, and may have lost it. Streams that have sent anything
    fail, because it may have been processed, and are not repeated. The other streams move to the new session."""
    part = part_of(connection)
    text = "the server has no such session, and it never answered: it may have processed the request"
    error = ConnectionClosed(text, code=frame.code, rule="RE-24")
    connection.stream_table.fail_sent(part.kept.streams(), error)
    setup = connection.setup = copy(connection.setup)
    setup.token = sha256(b"anew" + (setup.token or b"")).digest()  # as hard to guess as the one before
    agree(connection, setup)
    part.renews = True
    suspend(connection, frame)


def _send_setup(connection: Connection, argument: Any) -> None:
    """Start a new session (R-11): the previous one, which never received anything, has ended."""
    part, live = part_of(connection), connection.liveness
    part.away = part.store_full = None
    part.renews, part.renewed = False, True
    connection.inbound.over = False
    connection.outbound.suspend()
    connection.outbound.control(connection.member.quirks.encode_setup(connection.setup))
    connection.outbound.resume()
    live.next_keepalive = connection.current.now + live.interval


def _resumed(connection: Connection, frame: ResumeOk) -> None:
    _go_on(connection, frame.last_received_client_position)


def _resume_broken(connection: Connection, cause: Any) -> None:
    """Report any frame other than the answer to RESUME, and try once more."""
    connection.state = _S.SUSPENDED
    suspend(connection, None)
    text = cause.reason if isinstance(cause, Violation) else "only RESUME_OK may come now"
    endings.send_error(connection, Code.CONNECTION_ERROR, text)


def _judge_resume(connection: Connection, frame: Resume) -> None:
    """Check the RESUME of a new connection."""
    if frame.stream:
        raise Violation("RESUME belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
    required_sessions(connection)
    if (frame.major, frame.minor) != (1, 0):
        raise Violation("a session keeps its version, 1.0", rule="R-52", code=Code.REJECTED_RESUME)
    take_over(connection, frame.token, frame)


def _send_resume_ok(connection: Connection, request: Resume) -> None:
    position = part_of(connection).reported()
    connection.outbound.control(ResumeOk(stream=0, last_received_client_position=position).encode(prefixed=True))
    _go_on(connection, request.last_received_server_position)


def _go_on(connection: Connection, position: int) -> None:
    """Continue: the peer has received everything up to ``position``, so repeat the rest (R-50)."""
    part, live, hello = part_of(connection), connection.liveness, connection.handshake
    if not part.kept.holds(position):
        raise Violation(f"position {position} is not retained", rule="RE-23")
    part.kept.acknowledge(position)
    part.reported()
    part.renewed = False
    if connection.client:
        live.next_keepalive = connection.current.now + live.interval
    if not (hello.accepted or connection.farewell):  # the answer to SETUP was lost with the first transport
        hello.accepted = connection.stream_table.accepting = True
        connection.current.events.append(Established(None))
    go_on(connection, part)


ACTIONS: Final[dict[ConnectionAction, Callable[[Connection, Any], None]]] = {
    **resuming.ACTIONS,
    _A.SEND_SETUP: _send_setup,
    _A.FORGET_SESSION: _forget_session,
    _A.SEND_RESUME: _send_resume,
    _A.RESUMED: _resumed,
    _A.RESUME_BROKEN: _resume_broken,
    _A.JUDGE_RESUME: _judge_resume,
    _A.SEND_RESUME_OK: _send_resume_ok,
}
"The functions of the actions of resumption."
