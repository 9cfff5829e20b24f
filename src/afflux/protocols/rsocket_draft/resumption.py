"""Resume single streams on a new transport: suspend, ask by SETUP, compare positions, repeat (3.1, 3.2, R-38 to R-44).

retaining.py retains sent frames; the table of a server's sessions is RSocket's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.core import engine as contract
from afflux.core.bucket import Bucket
from afflux.core.errors import ConnectionClosed, Error, LocalProtocolError, Rejected, Violation
from afflux.core.events import Event, Resumed, Resuming, Suspended
from afflux.core.frame import Malformed
from afflux.protocols.family import liveness
from afflux.protocols.family.leases import end_leases, send_lease
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamInput,
)
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.resume import Sessions
from afflux.protocols.rsocket_draft import payloads
from afflux.protocols.rsocket_draft.entries import KEEPALIVE, RESUME, Entry
from afflux.protocols.rsocket_draft.frames import ErrorFrame, ExtChain, Setup, SetupOk
from afflux.protocols.rsocket_draft.negotiation import part_of
from afflux.protocols.rsocket_draft.payloads import Position, Session
from afflux.protocols.rsocket_draft.retaining import Retained

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["ACTIONS", "Ability", "Resumption", "acknowledge", "is_resuming", "resumption_of"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LOSABLE = (_S.OPEN, _S.DRAINING)


class Resumption:
    """The session of one connection, as the other parts use it (family/resuming.py)."""

    __slots__ = ("_report", "asked", "away", "last", "rate", "retained", "sessions", "store_full", "weight")

    def __init__(self, sessions: Sessions | None) -> None:
        self.sessions = sessions
        "The table of a server's sessions."
        self.retained: Retained | None = None
        "The records of streams; None when the session cannot be resumed."
        self.store_full: float | None = None
        "When the store became full, by the clock of tick."
        self.weight: int | None = None
        "The size that the table of sessions has counted for this one; None when it is not in the table."
        self.away: float | None = None
        "When the transport was lost, until one is resumed; None while connected."
        self.asked = 0.0
        "When the resuming SETUP was sent."
        self.rate: Bucket | None = None
        "The rate limit of resumptions."
        self.last: float | None = None
        self._report = False
        "A keepalive leaves: positions go with it (R-42)."

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

    def agree(self, connection: Connection, setup: Setup) -> None:
        """Start to retain frames: the client offers resumption, or the server has accepted it."""
        if setup.token is None or not (connection.client or RESUME in part_of(connection).used):
            return
        retained = self.retained = Retained(connection.limits, connection.member.quirks.decode)
        connection.outbound.retained = connection.inbound.retained = retained
        if self.sessions is not None and not connection.client:
            self.sessions.add(connection)

    def declined(self, connection: Connection) -> None:
        """Stop to retain frames: the server has not accepted the extension."""
        self.retained = connection.outbound.retained = connection.inbound.retained = None

    def established(self, connection: Connection) -> None:
        """No-op: the connection may be used."""

    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport: a stream can be continued, or is asked for."""
        if connection.state is _S.RESUME_SENT:
            return True
        return self.retained is not None and self.retained.begun and connection.state in _LOSABLE

    def broken(self, connection: Connection, violation: Violation) -> bool:
        """Return False: a violation ends the session."""
        return False

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
        """Report positions beside a keepalive, or if the peer would have to stop otherwise (R-42)."""
        retained = self.retained
        if retained is None or not connection.is_open or not (self._report or retained.report_due):
            return
        self._report = False
        if changed := retained.report():
            frame = ExtChain(extensions=(payloads.list_entry(changed),))
            connection.outbound.control(frame.encode(prefixed=True))
        retained.settle(connection.stream_table.live)

    def reported(self) -> int:
        """Note that a keepalive leaves. Keepalives of the draft have no position."""
        self._report = True
        return 0

    def is_free(self, position: int) -> bool:
        """Return False: a keepalive reports no position."""
        return False

    def acknowledged(self, position: int) -> bool:
        """Return True: a keepalive reports no position."""
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
        """Send the report that goes with a keepalive; discard a store that stays full for too long (RE-17): its
        streams continue, and do not survive the transport."""
        self.report(connection)
        retained, now = self.retained, connection.current.now
        if retained is None or retained.room > 0:
            self.store_full = None
        elif self.store_full is None:
            self.store_full = now
        elif now >= self.store_full + connection.limits.write_stall_s:
            retained.clear()
            self.store_full = None


class Ability:
    """The session of an engine, as core.engine.Resumption: the calls of a driver."""

    __slots__ = ("_connection", "part")

    begins_anew = False

    def __init__(self, connection: Connection, part: Resumption) -> None:
        self._connection = connection
        self.part = part

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

    def resume(self, request: Setup, now: float) -> list[Event]:
        """Move a server's session to the new transport on which the resuming SETUP ``request`` arrived.

        Raises:
            Rejected: no stream can be continued, or resumptions are too frequent; the session is unchanged.
        """
        connection = self._connection
        connection.current.now = now
        refusal = _refusal_of(connection, self.part, request)
        if refusal:
            raise Rejected(refusal, code=Code.REJECTED_RESUME, stream=0, rule="3.2")
        # RE-14: the newer transport replaces the older one, which is dropped
        events = [] if self.suspended else connection.run(connection.step, _I.SUSPEND, None)
        return events + connection.run(connection.step, _I.APP_RESUME, request)

    def reconnect(self, now: float) -> list[Event]:
        """Give a suspended client a new transport. The next ``outgoing`` is only SETUP.

        Raises:
            LocalProtocolError: the client is not suspended.
        """
        connection = self._connection
        if not (self.suspended and connection.client):
            raise LocalProtocolError("only a suspended client can resume", rule="3.1")
        connection.current.now = connection.liveness.heard = now
        return connection.run(connection.step, _I.APP_RESUME, None)

    def hand_over(self) -> bytes:
        """Return the bytes after SETUP, for the session that takes over this transport. This engine ends.

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


def resumption_of(connection: Connection) -> Resumption | None:
    """Return the resumption part of a connection, or None."""
    return cast("Resumption | None", connection.resuming)


def is_resuming(setup: Setup) -> bool:
    """Whether a SETUP resumes a session (2.5)."""
    entry = setup.entry(RESUME)
    return entry is not None and entry.marked


def acknowledge(connection: Connection, entry: Entry) -> None:
    """Apply the positions of EXT resume (3.4).

    Raises:
        Violation: a position is beyond the sent frames, or the list is malformed.
    """
    positions = payloads.positions_of(entry)
    part = resumption_of(connection)
    if part is None or part.retained is None:
        return
    for position in positions:
        part.retained.acknowledge(position)
    part.retained.settle(connection.stream_table.live)
    if part.retained.room > 0:
        part.store_full = None


# -- actions of the connection tables -------------------------------------------------------------------------


def _suspend(connection: Connection, frame: ErrorFrame | None) -> None:
    part = cast("Resumption", resumption_of(connection))
    if part.away is None:
        part.away = connection.current.now
    connection.liveness.next_keepalive = None
    connection.inbound.established = False
    connection.inbound.close()
    connection.outbound.suspend()
    part.store_full = None
    end_leases(connection)
    retained = cast("Retained", part.retained)
    retained.counting = False
    _fail_plain(connection, retained)
    error: Error = ConnectionClosed("the connection was lost", rule="3.1")
    if frame is not None:
        error = connection.member.codes.error_for(frame.code, frame.data, 0, connection.limits)
    connection.current.events.append(Suspended(error))


def _fail_plain(connection: Connection, retained: Retained) -> None:
    """End the streams that do not survive the transport; a request that was not sent at all waits for the next one."""
    streams = connection.stream_table
    live = {
        id
        for id, stream in streams.live.items()
        if id not in retained.records and (not stream.requester or id in retained.started)
    }
    _reject(connection, live, "the stream ended with its transport: it cannot be resumed")
    for id in set(streams.reassembly.partials) - set(streams.live) - retained.records.keys():
        streams.reassembly.drop(id)
    retained.started.clear()


def _reject(connection: Connection, ids: set[int], reason: str) -> None:
    """End streams with REJECTED; their requests may have been processed (R-40)."""
    error = Rejected(reason, code=Code.REJECTED, rule="R-40")
    error.may_have_been_processed = True
    for id in ids:
        connection.stream_table.reassembly.drop(id)
    connection.stream_table.fail_sent(ids, error)


def _send_setup(connection: Connection, argument: Any) -> None:
    """Ask to resume (R-38, R-39)."""
    part = cast("Resumption", resumption_of(connection))
    retained = cast("Retained", part.retained)
    part.asked = connection.current.now
    connection.inbound.over = False
    connection.outbound.suspend()
    session = Session(connection.setup.token or b"", tuple(retained.positions()))
    setup = copy(connection.setup)
    setup.ack = True
    setup.extensions = tuple(
        payloads.resume_entry(session, ignorable=entry.ignorable) if entry.number == RESUME else entry
        for entry in setup.extensions
    )
    connection.outbound.control(setup.encode(prefixed=True))


def _resumed(connection: Connection, frame: SetupOk) -> None:
    """Compare the server's list with the records, and repeat the rest (R-40, R-41)."""
    part = cast("Resumption", resumption_of(connection))
    retained = cast("Retained", part.retained)
    entry = next((entry for entry in frame.extensions if entry.number == RESUME), None)
    if entry is None or not entry.marked:
        raise Violation("SETUP_OK has no list of streams", rule="3.1", code=Code.CONNECTION_ERROR)
    listed = payloads.positions_of(entry)
    for position in listed:
        if position.stream not in retained.records:
            text = f"SETUP_OK continues stream {position.stream}, which was not listed"
            raise Violation(text, rule="R-40", code=Code.CONNECTION_ERROR)
        retained.acknowledge(position)
        retained.records[position.stream].asks = False  # the server continues it: it has agreed
    _drop_unlisted(connection, retained, {position.stream for position in listed})
    _go_on(connection, part)


def _drop_unlisted(connection: Connection, retained: Retained, listed: set[int]) -> None:
    """End the streams that the other side does not continue; a request that was not sent is no such stream."""
    lost = {id for id, record in retained.records.items() if id not in listed and record.begun}
    for id in lost:
        retained.drop(id)
    _reject(connection, lost, "the other side does not continue the stream")
    retained.started.clear()


def _judge_resume(connection: Connection, setup: Any) -> None:
    """Check the resuming SETUP of a new connection; the engine of its session compares the positions."""
    part = resumption_of(connection)
    if not isinstance(setup, Setup):
        raise Violation("the draft resumes by SETUP", rule="D-10", code=Code.REJECTED_RESUME)
    if setup.stream:
        raise Violation("SETUP belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
    if setup.major != 2:
        text = f"version {setup.major}.{setup.minor} is not supported; supported: 2.0"
        raise Violation(text, rule="R-3", code=Code.INVALID_SETUP)
    if part is None or part.sessions is None:
        raise Violation("resumption is not supported", rule="RE-01", code=Code.REJECTED_RESUME)
    try:
        token = payloads.session_of(cast("Entry", setup.entry(RESUME))).token
    except Malformed as malformed:
        raise Violation(malformed.reason, rule=malformed.rule, code=Code.INVALID_SETUP) from None
    session = part.sessions.find(token)
    if session is None and not part.sessions.asks:
        raise Violation("there is no such session", rule="RE-02", code=Code.REJECTED_RESUME)
    connection.inbound.held = True
    connection.current.events.append(Resuming(session, setup))


def _refuse_resume(connection: Connection, violation: Violation) -> None:
    raise Violation(violation.reason, rule="3.2", code=Code.REJECTED_RESUME)


def _hand_over(connection: Connection, argument: Any) -> None:
    """End this engine: the transport and the bytes after SETUP belong to the session."""


def _refusal_of(connection: Connection, part: Resumption, request: Setup) -> str:
    """Return why the session cannot continue; "" if it can."""
    retained, now, setup = part.retained, connection.current.now, connection.setup
    if retained is None or connection.client or not (connection.is_open or connection.state is _S.SUSPENDED):
        return "there is no such session"
    if (request.data_mime, request.metadata_mime) != (setup.data_mime, setup.metadata_mime):
        return "a session keeps its MIME types"
    if not _continued(retained, request):
        return "no stream can be continued"
    # Last: a request that is refused for its positions does not count against the rate limit of the owner's.
    most, gap = connection.limits.resume_rate
    if part.rate is None:
        part.rate = Bucket(most, most / 60)
    early = part.last is not None and now < part.last + gap
    if early or not part.rate.take(1, now):
        return "resumed too often"  # RE-19
    part.last = now
    return ""


def _continued(retained: Retained, request: Setup) -> list[Position]:
    """Return the client's positions of the streams that can be continued: their frames are retained from there on."""
    listed = payloads.session_of(cast("Entry", request.entry(RESUME))).positions or ()
    records = retained.records
    return [
        position
        for position in listed
        if (record := records.get(position.stream)) and record.first <= position.position <= record.sent
    ]


def _send_setup_ok(connection: Connection, request: Setup) -> None:
    """Continue the streams that both sides can continue, and end all others (R-40)."""
    part = cast("Resumption", resumption_of(connection))
    retained = cast("Retained", part.retained)
    continued = _continued(retained, request)
    for position in continued:
        retained.acknowledge(position)
    ids = [position.stream for position in continued]
    _drop_unlisted(connection, retained, set(ids))
    answer = payloads.list_entry(retained.positions(ids), ignorable=False, marked=True)
    others = [entry for entry in part_of(connection).answers if entry.number != RESUME]
    connection.outbound.control(SetupOk(extensions=(answer, *others)).encode(prefixed=True))
    _go_on(connection, part)


def _go_on(connection: Connection, part: Resumption) -> None:
    """Continue on the new transport: repeat the retained frames, and start leases again (R-41, R-44)."""
    live, streams = connection.liveness, connection.stream_table
    part.away = part.store_full = None
    cast("Retained", part.retained).counting = True
    if streams.leases is not None:
        streams.leases.frames = None
    liveness.hold(connection, connection.current.now)
    connection.inbound.over = False
    connection.inbound.established = True
    connection.outbound.resume()
    if connection.client and KEEPALIVE in part_of(connection).used:
        live.next_keepalive = connection.current.now + live.interval
    connection.current.events.append(Resumed())
    if connection.farewell is not None:
        connection.step(_I.APP_DRAIN, connection.farewell)
    elif connection.peer_draining:
        connection.state = _S.DRAINING
    send_lease(connection)


ACTIONS: Final[dict[ConnectionAction, Callable[[Connection, Any], None]]] = {
    _A.REFUSE_RESUME: _refuse_resume,
    _A.SUSPEND: _suspend,
    _A.SEND_RESUME: _send_setup,
    _A.RESUMED: _resumed,
    _A.JUDGE_RESUME: _judge_resume,
    _A.SEND_RESUME_OK: _send_setup_ok,
    _A.HAND_OVER: _hand_over,
}
"The functions of the actions of resumption."
