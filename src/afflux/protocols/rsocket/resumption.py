"""Resume a session on a new transport: suspend, ask, check positions, repeat (sections 3.1, 3.2, R-43 to R-53).

resume.py retains sent frames and has the table of a server's sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.core import engine as contract
from afflux.core.bucket import Bucket
from afflux.core.errors import ConnectionClosed, Error, LocalProtocolError, Rejected, Violation
from afflux.core.events import Established, Event, Resumed, Resuming, Suspended
from afflux.protocols.family import endings, liveness
from afflux.protocols.family.handshake import agree
from afflux.protocols.family.leases import end_leases, send_lease
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamInput,
)
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import ErrorFrame, Resume, ResumeOk, Setup
from afflux.protocols.rsocket.resume import Retained, Sessions, part_of

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["ACTIONS", "Ability", "Resumption", "classify", "sessions_of"]

_PROGRESS = 0x400
"""Bytes that a position must advance for its keepalive to be free: a peer whose store fills reports its position
much more often than it sends signs of life (R-51)."""

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LOSABLE = (_S.SETUP_SENT, _S.OPEN, _S.DRAINING, _S.RESUME_SENT)
"The states in which a session outlives its transport."


class Resumption:
    """The session of one connection, as the other parts use it (family/resuming.py)."""

    __slots__ = (
        "asked",
        "away",
        "begins_anew",
        "counted",
        "last",
        "noted",
        "rate",
        "renewed",
        "renews",
        "retained",
        "sessions",
        "store_full",
        "weight",
    )

    def __init__(self, sessions: Sessions | None) -> None:
        self.sessions = sessions
        "The table of a server's sessions."
        self.retained: Retained | None = None
        "The sent frames that may have to be repeated; None when the session cannot be resumed."
        self.counted: Retained | None = None
        "Counts the received position; it stays when ``retained`` is discarded."
        self.store_full: float | None = None
        "When the store became full, by the clock of tick."
        self.weight: int | None = None
        "The size that the table of sessions has counted for this one; None when it is not in the table."
        self.away: float | None = None
        "When the transport was lost, until one is resumed; None while connected."
        self.asked = 0.0
        "When RESUME was sent."
        self.begins_anew = True
        """A client that has received nothing starts a new session if its server does not have this one. False for a
        session that is stored in a file."""
        self.renews = False
        "The next transport starts a new session."
        self.renewed = False
        "The current transport started a new session, which is not established yet."
        self.rate: Bucket | None = None
        "The rate limit of resumptions."
        self.last: float | None = None
        self.noted = 0
        "The last position that the peer reported in a free keepalive."

    @property
    def retains(self) -> bool:
        """Whether sent frames are retained."""
        return self.retained is not None

    @property
    def kept(self) -> Retained:
        """The retained frames of a session that ``retains``."""
        return cast("Retained", self.retained)

    @property
    def size(self) -> int:
        """Bytes retained."""
        return 0 if self.retained is None else self.retained.size

    def ability(self, connection: Connection) -> contract.Resumption:
        """Return the object that a driver calls."""
        return Ability(connection, self)

    def agree(self, connection: Connection, setup: Setup) -> None:
        """Start to retain frames, if SETUP has a token (R-44)."""
        if setup.token is None:
            return
        retained = self.retained = self.counted = Retained(connection.limits)
        connection.outbound.retained = connection.inbound.retained = retained
        if self.sessions is not None and not connection.client:
            self.sessions.add(connection)

    def established(self, connection: Connection) -> None:
        """Report Resumed for a client that started a new session."""
        if self.renewed:
            self.renewed = False
            connection.current.events.append(Resumed())

    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport."""
        return self.retained is not None and connection.state in _LOSABLE

    def broken(self, connection: Connection, violation: Violation) -> bool:
        """Report any frame other than the answer to RESUME, and try once more."""
        if connection.state is not _S.RESUME_SENT:
            return False
        _resume_broken(connection, violation)
        return True

    def over(self, connection: Connection) -> None:
        """Forget the session: the connection has ended for good."""
        if self.sessions is not None:
            self.sessions.remove(connection)

    def weigh(self, connection: Connection) -> None:
        """Update the size of this session in the server's table."""
        if self.sessions is not None:
            self.sessions.weigh(connection)

    def weigh_away(self, connection: Connection) -> None:
        """Update that size while there is no transport, when no pass does."""
        if self.away is not None:
            self.weigh(connection)

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

    def due(self, connection: Connection) -> float:
        """When ``tick_away`` is due."""
        limits = connection.limits
        over = (self.away or 0.0) + limits.resume_s
        return over if connection.state is _S.SUSPENDED else min(over, self.asked + limits.handshake_s)

    def tick_away(self, connection: Connection) -> None:
        """Act on elapsed time while there is no transport."""
        now, limits = connection.current.now, connection.limits
        if now >= (self.away or 0.0) + limits.resume_s:
            connection.step(_I.SESSION_OVER, None)
        elif connection.state is _S.RESUME_SENT and now >= self.asked + limits.handshake_s:
            connection.step(_I.SILENT, None)

    def store_due(self, connection: Connection) -> float | None:
        """When ``watch_store`` is due; None while there is room."""
        if self.retained is None or self.retained.room > 0:
            return None
        full = self.store_full
        return connection.current.now if full is None else full + connection.limits.write_stall_s

    def watch_store(self, connection: Connection) -> None:
        """Discard a store that stays full for too long: the session can no longer be resumed, the connection continues
        (RE-17). This side still reports its position, or the peer's store would fill."""
        retained, now = self.retained, connection.current.now
        if retained is None or retained.room > 0:
            self.store_full = None
        elif self.store_full is None:
            self.store_full = now
        elif now >= self.store_full + connection.limits.write_stall_s:
            retained.trim(retained.sent)
            self.retained = connection.outbound.retained = self.store_full = None
            if self.sessions is not None:
                self.sessions.remove(connection)

    def unheard(self, connection: Connection) -> bool:
        """Whether nothing was received from the server, so that SETUP may be lost, and there is time for a new
        session."""
        hello = connection.handshake
        early = connection.current.now < hello.born + connection.limits.resume_s
        return self.begins_anew and early and not hello.accepted and connection.farewell is None


class Ability:
    """The session of an engine, as core.engine.Resumption: the calls of a driver."""

    __slots__ = ("_connection", "part")

    def __init__(self, connection: Connection, part: Resumption) -> None:
        self._connection = connection
        self.part = part

    @property
    def begins_anew(self) -> bool:
        """Whether a client that received no answer starts a new session when its server does not have this one."""
        return self.part.begins_anew

    @begins_anew.setter
    def begins_anew(self, value: bool) -> None:
        self.part.begins_anew = value

    @property
    def resumable(self) -> bool:
        """Whether the session would outlive its transport now."""
        return self.part.resumable(self._connection)

    @property
    def suspended(self) -> bool:
        """Whether the session waits for a transport."""
        return self._connection.state is _S.SUSPENDED

    @property
    def away(self) -> float | None:
        """When the transport was lost, until one is resumed; None while connected."""
        return self.part.away

    def resume(self, request: Any, now: float) -> list[Event]:
        """Move a server's session to the new transport on which the RESUME ``request`` arrived.

        Raises:
            Rejected: the positions do not fit, or resumptions are too frequent; the session is unchanged (RE-05,
                RE-07).
        """
        connection = self._connection
        connection.current.now = now
        refusal = _refusal_of(connection, self.part, request)
        if refusal:
            raise Rejected(refusal, code=Code.REJECTED_RESUME, stream=0, rule="R-46")
        # RE-14: the newer transport replaces the older one, which is dropped
        events = [] if self.suspended else connection.run(connection.step, _I.SUSPEND, None)
        return events + connection.run(connection.step, _I.APP_RESUME, request)

    def reconnect(self, now: float) -> list[Event]:
        """Give a suspended client a new transport. The next ``outgoing`` is only RESUME (R-45), or SETUP when the
        server does not have the session and this client has never received anything from it.

        Raises:
            LocalProtocolError: the client is not suspended.
        """
        connection = self._connection
        if not (self.suspended and connection.client):
            raise LocalProtocolError("only a suspended client can resume", rule="3.1")
        connection.current.now = connection.liveness.heard = now
        return connection.run(connection.step, _I.APP_ANEW if self.part.renews else _I.APP_RESUME, None)

    def hand_over(self) -> bytes:
        """Return the bytes after RESUME, for the session that takes over this transport. This engine ends.

        Raises:
            LocalProtocolError: the peer did not ask for a session.
        """
        connection = self._connection
        if connection.state is not _S.RESUMING:
            raise LocalProtocolError("no session waits for this transport", rule="3.2")
        connection.run(connection.step, _I.APP_HAND_OVER, None)
        return connection.inbound.buffer.take()

    @property
    def handlers(self) -> Collection[int]:
        """The streams that the peer opened and whose handler has not returned, or not started."""
        streams = self._connection.stream_table
        return streams.handlers | streams.work.fires

    @property
    def opened(self) -> list[int]:
        """The live streams that this side has opened."""
        return [stream.id for stream in self._connection.stream_table.live.values() if stream.requester]

    def stream_counters(self, stream: int) -> tuple[int, int, int] | None:
        """The items that this side has sent on a stream, 0 if it can send no more; the items that it may send now; the
        items that may still arrive. None for a stream that has ended."""
        live = self._connection.stream_table.live.get(stream)
        if live is None:
            return None
        sends = live.role.steps[live.state][StreamInput.APP_ITEM].action is StreamAction.SEND
        return live.to_send.used if sends else 0, live.to_send.available, live.to_receive.available


def sessions_of(connection: Connection) -> Sessions | None:
    """Return the table of sessions that a connection uses; None without resumption."""
    return None if connection.resuming is None else part_of(connection).sessions


def classify(connection: Connection) -> ConnectionInput:
    """Return the input for ERROR[REJECTED_RESUME]."""
    unheard = connection.state is _S.RESUME_SENT and part_of(connection).unheard(connection)
    return _I.ERROR_UNHEARD if unheard else _I.ERROR_RESUME


# -- actions of the connection tables -------------------------------------------------------------------------


def _suspend(connection: Connection, frame: ErrorFrame | None) -> None:
    part = part_of(connection)
    if part.away is None:
        part.away = connection.current.now
    connection.liveness.next_keepalive = None
    connection.inbound.established = False
    connection.inbound.close()
    connection.outbound.suspend()
    part.store_full = None
    end_leases(connection)
    error: Error = ConnectionClosed("the connection was lost", rule="3.1")
    if frame is not None:
        error = connection.member.codes.error_for(frame.code, frame.data, 0, connection.limits)
    connection.current.events.append(Suspended(error))


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
    _suspend(connection, frame)


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
    _suspend(connection, None)
    text = cause.reason if isinstance(cause, Violation) else "only RESUME_OK may come now"
    endings.send_error(connection, Code.CONNECTION_ERROR, text)


def _judge_resume(connection: Connection, frame: Resume) -> None:
    """Check the RESUME of a new connection; the engine of its session checks the positions (R-46)."""
    sessions = sessions_of(connection)
    if frame.stream:
        raise Violation("RESUME belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
    if sessions is None:
        raise Violation("resumption is not supported", rule="RE-01", code=Code.REJECTED_RESUME)
    if (frame.major, frame.minor) != (1, 0):
        raise Violation("a session keeps its version, 1.0", rule="R-52", code=Code.REJECTED_RESUME)
    session = sessions.find(frame.token)
    if session is None and not sessions.asks:
        raise Violation("there is no such session", rule="RE-02", code=Code.REJECTED_RESUME)
    connection.inbound.held = True
    connection.current.events.append(Resuming(session, frame))


def _refuse_resume(connection: Connection, violation: Violation) -> None:
    raise Violation(violation.reason, rule="R-46", code=Code.REJECTED_RESUME)


def _refusal_of(connection: Connection, part: Resumption, request: Resume) -> str:
    """Return why the session cannot continue from the positions in RESUME; "" if it can."""
    retained, now = part.retained, connection.current.now
    if retained is None or connection.client or not (connection.is_open or connection.state is _S.SUSPENDED):
        return "there is no such session"
    if not retained.holds(request.last_received_server_position):
        return f"position {request.last_received_server_position} is not retained"  # RE-05
    if request.first_available_client_position > retained.received:
        return f"only {retained.received} bytes were received here"  # RE-07
    # Last: a request that is refused for its positions does not count against the rate limit of the owner's.
    most, gap = connection.limits.resume_rate
    if part.rate is None:
        part.rate = Bucket(most, most / 60)
    early = part.last is not None and now < part.last + gap
    if early or not part.rate.take(1, now):
        return "resumed too often"  # RE-19
    part.last = now
    return ""


def _send_resume_ok(connection: Connection, request: Resume) -> None:
    position = part_of(connection).reported()
    connection.outbound.control(ResumeOk(stream=0, last_received_client_position=position).encode(prefixed=True))
    _go_on(connection, request.last_received_server_position)


def _go_on(connection: Connection, position: int) -> None:
    """Continue: the peer has received everything up to ``position``, so repeat the rest (R-50)."""
    part, live, hello = part_of(connection), connection.liveness, connection.handshake
    streams = connection.stream_table
    if not part.kept.holds(position):
        raise Violation(f"position {position} is not retained", rule="RE-23")
    part.kept.acknowledge(position)
    part.reported()
    part.away = part.store_full = None
    part.renewed = False
    if streams.leases is not None:
        # leases start again, so the first LEASE is always within the rate limit
        streams.leases.frames = None
    liveness.hold(connection, connection.current.now)
    connection.inbound.over = False
    connection.inbound.established = True
    connection.outbound.resume()
    if connection.client:
        live.next_keepalive = connection.current.now + live.interval
    if not (hello.accepted or connection.farewell):  # the answer to SETUP was lost with the first transport
        hello.accepted = streams.accepting = True
        connection.current.events.append(Established(None))
    connection.current.events.append(Resumed())
    if connection.farewell is not None:
        connection.step(_I.APP_DRAIN, connection.farewell)
    elif connection.peer_draining:
        connection.state = _S.DRAINING
    send_lease(connection)


ACTIONS: Final[dict[ConnectionAction, Callable[[Connection, Any], None]]] = {
    _A.REFUSE_RESUME: _refuse_resume,
    _A.SUSPEND: _suspend,
    _A.SEND_SETUP: _send_setup,
    _A.FORGET_SESSION: _forget_session,
    _A.SEND_RESUME: _send_resume,
    _A.RESUMED: _resumed,
    _A.RESUME_BROKEN: _resume_broken,
    _A.JUDGE_RESUME: _judge_resume,
    _A.SEND_RESUME_OK: _send_resume_ok,
    _A.HAND_OVER: endings.nothing,  # the transport and the bytes after RESUME belong to the session
}
"The functions of the actions that only RSocket's tables have."
