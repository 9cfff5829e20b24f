"""Resume single streams on a new transport: suspend, ask by SETUP, compare positions, repeat (3.1, 3.2, R-38 to R-44).

family/resuming.py has what does not depend on the draft's frames; retaining.py retains sent frames.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.core.errors import Rejected, Violation
from afflux.core.frame import Malformed
from afflux.protocols.family import resuming
from afflux.protocols.family.resuming import Resuming, go_on, required_sessions, take_over
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.family.states import ConnectionAction, ConnectionState
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket_draft import payloads
from afflux.protocols.rsocket_draft.entries import KEEPALIVE, RESUME, Entry
from afflux.protocols.rsocket_draft.frames import ExtChain, Setup, SetupOk
from afflux.protocols.rsocket_draft.negotiation import part_of
from afflux.protocols.rsocket_draft.payloads import Position, Session
from afflux.protocols.rsocket_draft.retaining import Retained

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["ACTIONS", "Resumption", "acknowledge", "is_resuming", "records_of"]

_S, _A = ConnectionState, ConnectionAction
_LOSABLE = (_S.OPEN, _S.DRAINING)


class Resumption(Resuming):
    """The session of one connection."""

    __slots__ = ("_report",)

    def __init__(self, sessions: Sessions | None) -> None:
        super().__init__(sessions)
        self._report = False
        "A keepalive leaves: positions go with it (R-42)."

    @property
    def kept(self) -> Retained:
        """The records of the streams of a session that ``retains``."""
        return cast("Retained", self.retained)

    def agree(self, connection: Connection, setup: Setup) -> None:
        """Start to retain frames: the client offers resumption, or the server has accepted it."""
        if setup.token is not None and (connection.client or RESUME in part_of(connection).used):
            self.retain(connection, Retained(connection.limits, connection.member.quirks.decode))

    def declined(self, connection: Connection) -> None:
        """Stop to retain frames: the server has not accepted the extension."""
        self.retained = connection.outbound.retained = connection.inbound.retained = None

    def established(self, connection: Connection) -> None:
        """No-op: every session is continued, none is started again."""

    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport: a stream can be continued, or is asked for."""
        if connection.state is _S.RESUME_SENT:
            return True
        return self.retains and self.kept.begun and connection.state in _LOSABLE

    def suspended(self, connection: Connection) -> None:
        """End the streams that do not survive the transport; a request that was not sent at all waits for the next
        one."""
        retained, streams = self.kept, connection.stream_table
        retained.counting = False
        live = {
            id
            for id, stream in streams.live.items()
            if id not in retained.records and (not stream.requester or id in retained.started)
        }
        _reject(connection, live, "the stream ended with its transport: it cannot be resumed")
        for id in set(streams.reassembly.partials) - set(streams.live) - retained.records.keys():
            streams.reassembly.drop(id)
        retained.started.clear()

    def misfit(self, connection: Connection, request: Setup) -> str:
        """Return why the session cannot continue with a resuming SETUP (R-38)."""
        setup = connection.setup
        if (request.data_mime, request.metadata_mime) != (setup.data_mime, setup.metadata_mime):
            return "a session keeps its MIME types"
        return "" if _continued(self.kept, request) else "no stream can be continued"

    def report(self, connection: Connection) -> None:
        """Report positions beside a keepalive, or if the peer would have to stop otherwise (R-42)."""
        store = self.retained
        if store is None or not connection.is_open or not (self._report or store.report_due):
            return
        self._report = False
        if changed := self.kept.report():
            frame = ExtChain(extensions=(payloads.list_entry(changed),))
            connection.outbound.control(frame.encode(prefixed=True))
        self.kept.settle(connection.stream_table.live)

    def reported(self) -> int:
        """Note that a keepalive leaves. Keepalives of the draft have no position."""
        self._report = True
        return 0

    def watch_store(self, connection: Connection) -> None:
        """Send the report that goes with a keepalive, then watch the store."""
        self.report(connection)
        super().watch_store(connection)

    def discard(self, connection: Connection) -> None:
        """Drop the records: their streams continue, and do not survive the transport (RE-17)."""
        self.kept.clear()


def records_of(connection: Connection) -> Retained | None:
    """Return the records of a connection's streams; None if none can be resumed."""
    part = connection.resuming
    return None if part is None else cast("Retained | None", part.retained)


def session_of(connection: Connection) -> Resumption:
    """Return the resumption part of a connection that has one."""
    return cast("Resumption", connection.resuming)


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
    retained = records_of(connection)
    if retained is None:
        return
    for position in positions:
        retained.acknowledge(position)
    retained.settle(connection.stream_table.live)
    if retained.room > 0:
        session_of(connection).store_full = None


# -- actions of the connection tables -------------------------------------------------------------------------


def _reject(connection: Connection, ids: set[int], reason: str) -> None:
    """End streams with REJECTED; their requests may have been processed (R-40)."""
    error = Rejected(reason, code=Code.REJECTED, rule="R-40")
    error.may_have_been_processed = True
    for id in ids:
        connection.stream_table.reassembly.drop(id)
    connection.stream_table.fail_sent(ids, error)


def _send_setup(connection: Connection, argument: Any) -> None:
    """Ask to resume (R-38, R-39)."""
    part = session_of(connection)
    retained = part.kept
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
    part = session_of(connection)
    retained = part.kept
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
    """Check the resuming SETUP of a new connection."""
    if not isinstance(setup, Setup):
        raise Violation("the draft resumes by SETUP", rule="D-10", code=Code.REJECTED_RESUME)
    if setup.stream:
        raise Violation("SETUP belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
    if setup.major != 2:
        text = f"version {setup.major}.{setup.minor} is not supported; supported: 2.0"
        raise Violation(text, rule="R-3", code=Code.INVALID_SETUP)
    required_sessions(connection)
    try:
        token = payloads.session_of(cast("Entry", setup.entry(RESUME))).token
    except Malformed as malformed:
        raise Violation(malformed.reason, rule=malformed.rule, code=Code.INVALID_SETUP) from None
    take_over(connection, token, setup)


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
    part = session_of(connection)
    retained = part.kept
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
    """Continue on the new transport (R-41, R-44)."""
    live = connection.liveness
    part.kept.counting = True
    if connection.client and KEEPALIVE in part_of(connection).used:
        live.next_keepalive = connection.current.now + live.interval
    go_on(connection, part)


ACTIONS: Final[dict[ConnectionAction, Callable[[Connection, Any], None]]] = {
    **resuming.ACTIONS,
    _A.SEND_RESUME: _send_setup,
    _A.RESUMED: _resumed,
    _A.JUDGE_RESUME: _judge_resume,
    _A.SEND_RESUME_OK: _send_setup_ok,
}
"The functions of the actions of resumption."
