"""Resume a session on a new transport: what the members with resumption share.

A session outlives its transports (section 3.1). When a transport is lost, the session is suspended; when the client
has a new one, it asks, and the server's new connection finds the session and hands its transport over (section 3.2).
A member derives its part from ``Resuming``, with its frames, its positions and the store of its sent frames; for the
members without resumption the part is None. sessions.py has the table of a server's sessions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, Protocol

from afflux.core import engine as contract
from afflux.core.bucket import Bucket
from afflux.core.errors import ConnectionClosed, Error, LocalProtocolError, Rejected, Violation
from afflux.core.events import Event, Resumed, Suspended
from afflux.core.events import Resuming as ResumingEvent
from afflux.protocols.family import endings, liveness
from afflux.protocols.family.inbound import Counting
from afflux.protocols.family.leases import end_leases, send_lease
from afflux.protocols.family.outbound import Retaining
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamInput,
)

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["ACTIONS", "Ability", "Resuming", "Store", "go_on", "required_sessions", "take_over"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction


class Store(Retaining, Counting, Protocol):
    """A store of the sent frames, which counts the received ones as well."""

    @property
    def report_due(self) -> bool:
        """Whether enough has arrived since the last report for a new one."""


class Resuming(ABC):
    """The session of one connection, as the other parts use it."""

    __slots__ = (
        "asked",
        "away",
        "begins_anew",
        "last",
        "rate",
        "renews",
        "retained",
        "sessions",
        "store_full",
        "weight",
    )

    def __init__(self, sessions: Sessions | None) -> None:
        self.sessions = sessions
        "The table of a server's sessions."
        self.retained: Store | None = None
        "The sent frames that may have to be repeated; None when the session cannot be resumed."
        self.store_full: float | None = None
        "When the store became full, by the clock of tick."
        self.weight: int | None = None
        "The size that the table of sessions has counted for this one; None when it is not in the table."
        self.away: float | None = None
        "When the transport was lost, until one is resumed; None while connected."
        self.asked = 0.0
        "When the client asked to resume."
        self.begins_anew = False
        "A client that has received nothing starts a new session if its server does not have this one."
        self.renews = False
        "The next transport starts a new session."
        self.rate: Bucket | None = None
        "The rate limit of resumptions."
        self.last: float | None = None
        "When the session was resumed last."

    # -- the member's part ------------------------------------------------------------------------------------

    @abstractmethod
    def agree(self, connection: Connection, setup: Any) -> None:
        """Call ``retain`` if the agreed SETUP requests resumption."""

    @abstractmethod
    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport now."""

    @abstractmethod
    def misfit(self, connection: Connection, request: Any) -> str:
        """Return why a session that ``retains`` cannot continue from the positions in a request; "" if it can."""

    @abstractmethod
    def report(self, connection: Connection) -> None:
        """Report what was received, if the peer would have to stop otherwise."""

    @abstractmethod
    def reported(self) -> int:
        """Return the received position, for a keepalive that reports it now; 0 if keepalives have none."""

    @abstractmethod
    def discard(self, connection: Connection) -> None:
        """Drop the retained frames of a store that stays full: what it retained cannot be resumed."""

    @abstractmethod
    def established(self, connection: Connection) -> None:
        """Note that the connection may be used."""

    @abstractmethod
    def suspended(self, connection: Connection) -> None:
        """Note that the transport is lost, before it is reported."""

    def broken(self, connection: Connection, violation: Violation) -> bool:
        """Whether a violation ends an attempt to resume, and not the session."""
        return False

    def is_free(self, position: int) -> bool:
        """Whether a keepalive that reports ``position`` is free: it is far enough beyond the last free one."""
        return False

    def acknowledged(self, position: int) -> bool:
        """Apply the position that a keepalive of the peer reports. False when it goes backwards."""
        return True

    # -- what members share -----------------------------------------------------------------------------------

    @property
    def retains(self) -> bool:
        """Whether sent frames are retained."""
        return self.retained is not None

    @property
    def size(self) -> int:
        """Bytes retained."""
        return 0 if self.retained is None else self.retained.size

    def ability(self, connection: Connection) -> contract.Resumption:
        """Return the object that a driver calls."""
        return Ability(connection, self)

    def retain(self, connection: Connection, store: Store) -> None:
        """Retain sent frames in a store; a server adds the session to its table."""
        self.retained = connection.outbound.retained = connection.inbound.retained = store
        if self.sessions is not None and not connection.client:
            self.sessions.add(connection)

    def over(self, connection: Connection) -> None:
        """Forget the session: the connection has ended for good."""
        if self.sessions is not None:
            self.sessions.remove(connection)

    def weigh(self, connection: Connection) -> None:
        """Update the size of the session in its server's table."""
        if self.sessions is not None:
            self.sessions.weigh(connection)

    def weigh_away(self, connection: Connection) -> None:
        """Update that size while there is no transport, when no pass does."""
        if self.away is not None:
            self.weigh(connection)

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
        """Discard a store that stays full for too long: the connection continues (RE-17)."""
        retained, now = self.retained, connection.current.now
        if retained is None or retained.room > 0:
            self.store_full = None
        elif self.store_full is None:
            self.store_full = now
        elif now >= self.store_full + connection.limits.write_stall_s:
            self.store_full = None
            self.discard(connection)


class Ability:
    """The session of an engine, as core.engine.Resumption: the calls of a driver."""

    __slots__ = ("_connection", "part")

    def __init__(self, connection: Connection, part: Resuming) -> None:
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
        """Move a server's session to the new transport on which ``request`` arrived.

        Raises:
            Rejected: the positions do not fit, or resumptions are too frequent; the session is unchanged (RE-05,
                RE-07).
        """
        connection, member = self._connection, self._connection.member
        connection.current.now = now
        refusal = _refusal_of(connection, self.part, request)
        if refusal:
            raise Rejected(refusal, code=member.codes.Code.REJECTED_RESUME, stream=0, rule=member.rules.resume)
        # RE-14: the newer transport replaces the older one, which is dropped
        events = [] if self.suspended else connection.run(connection.step, _I.SUSPEND, None)
        return events + connection.run(connection.step, _I.APP_RESUME, request)

    def reconnect(self, now: float) -> list[Event]:
        """Give a suspended client a new transport. The next ``outgoing`` is only the request to resume, or the SETUP
        of a new session (``begins_anew``).

        Raises:
            LocalProtocolError: the client is not suspended.
        """
        connection = self._connection
        if not (self.suspended and connection.client):
            raise LocalProtocolError("only a suspended client can resume", rule="3.1")
        connection.current.now = connection.liveness.heard = now
        return connection.run(connection.step, _I.APP_ANEW if self.part.renews else _I.APP_RESUME, None)

    def hand_over(self) -> bytes:
        """Return the bytes after the request, for the session that takes over this transport. This engine ends.

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


def _refusal_of(connection: Connection, part: Resuming, request: Any) -> str:
    """Return why a request to resume is refused; "" if it is not."""
    if not part.retains or connection.client or not (connection.is_open or connection.state is _S.SUSPENDED):
        return "there is no such session"
    if reason := part.misfit(connection, request):
        return reason
    # Last: a request that is refused for its positions does not count against the rate limit of the owner's.
    now = connection.current.now
    most, gap = connection.limits.resume_rate
    if part.rate is None:
        part.rate = Bucket(most, most / 60)
    early = part.last is not None and now < part.last + gap
    if early or not part.rate.take(1, now):
        return "resumed too often"  # RE-19
    part.last = now
    return ""


# -- steps of the members' actions ----------------------------------------------------------------------------


def required_sessions(connection: Connection) -> Sessions:
    """Return the table of sessions of a server.

    Raises:
        Violation: there is none (RE-01).
    """
    part = connection.resuming
    if part is None or part.sessions is None:
        code = connection.member.codes.Code.REJECTED_RESUME
        raise Violation("resumption is not supported", rule="RE-01", code=code)
    return part.sessions


def take_over(connection: Connection, token: bytes, request: Any) -> None:
    """Report that the peer of a new connection asks for the session of a token; its engine checks the positions.

    Raises:
        Violation: there is no such session (RE-02).
    """
    sessions = required_sessions(connection)
    session = sessions.find(token)
    if session is None and not sessions.asks:
        code = connection.member.codes.Code.REJECTED_RESUME
        raise Violation("there is no such session", rule="RE-02", code=code)
    connection.inbound.held = True
    connection.current.events.append(ResumingEvent(session, request))


def go_on(connection: Connection, part: Resuming) -> None:
    """Continue on the new transport: repeat the retained frames, and start leases again (R-43, R-50)."""
    streams = connection.stream_table
    part.away = part.store_full = None
    if streams.leases is not None:
        streams.leases.frames = None  # the first LEASE is always within the rate limit
    liveness.hold(connection, connection.current.now)
    connection.inbound.over = False
    connection.inbound.established = True
    connection.outbound.resume()
    connection.current.events.append(Resumed())
    if connection.farewell is not None:
        connection.step(_I.APP_DRAIN, connection.farewell)
    elif connection.peer_draining:
        connection.state = _S.DRAINING
    send_lease(connection)


def suspend(connection: Connection, frame: Any) -> None:
    """Wait for a new transport: this one is lost, or the peer has refused it with an ERROR frame."""
    part: Any = connection.resuming
    if part.away is None:
        part.away = connection.current.now
    connection.liveness.next_keepalive = None
    connection.inbound.established = False
    connection.inbound.close()
    connection.outbound.suspend()
    part.store_full = None
    end_leases(connection)
    part.suspended(connection)
    error: Error = ConnectionClosed("the connection was lost", rule="3.1")
    if frame is not None:
        error = connection.member.codes.error_for(frame.code, frame.data, 0, connection.limits)
    connection.current.events.append(Suspended(error))


def _refuse(connection: Connection, violation: Violation) -> None:
    member = connection.member
    raise Violation(violation.reason, rule=member.rules.resume, code=member.codes.Code.REJECTED_RESUME)


ACTIONS: Final[dict[ConnectionAction, Callable[[Connection, Any], None]]] = {
    _A.SUSPEND: suspend,
    _A.REFUSE_RESUME: _refuse,
    _A.HAND_OVER: endings.nothing,  # the transport and the bytes after the request belong to the session
}
"The functions of the actions of resumption that do not depend on the member."
