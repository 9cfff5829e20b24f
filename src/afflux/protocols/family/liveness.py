"""Keep a connection alive: send and answer keepalives, detect a silent peer, and act on elapsed time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.bucket import Bucket
from afflux.core.errors import Violation
from afflux.core.events import Pushed
from afflux.core.limits import Limits
from afflux.protocols.family import arrivals, endings
from afflux.protocols.family.leases import send_lease
from afflux.protocols.family.states import ConnectionInput, ConnectionState

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["Liveness", "due", "echo", "hold", "on_push", "send_keepalive", "tick"]

_S, _I = ConnectionState, ConnectionInput
_OPEN = _S.OPEN
_UNDECIDED = (_S.WAIT_FIRST, _S.DECIDING, _S.RESUMING)
_STEP_OF_TIME = 1.0
"A tick that comes this many seconds after the peer's lifetime is this side's own delay (TM-03)."


class Liveness:
    """The times of the last input, the next keepalive and the peer's expiry."""

    __slots__ = ("echoes", "heard", "interval", "keepalives", "lifetime", "next_keepalive", "spared", "unasked")

    def __init__(self, now: float) -> None:
        self.heard = now
        "When the last input arrived."
        self.spared: float | None = None
        "The value of ``heard`` after a silence that this side caused itself (TM-03)."
        self.interval = 0.0
        self.lifetime = 0.0
        self.next_keepalive: float | None = None
        self.echoes = 0
        "Answers to keepalives that are still queued."
        # Buckets start full, so each can be created at its first use.
        self.keepalives: Bucket | None = None
        self.unasked: Bucket | None = None
        "The rate limit of keepalives that request no answer."


def _bucket(setup: Any, lifetime: float, limits: Limits) -> Bucket:
    """Return the rate limit of keepalives on a connection that began with ``setup``: twice the announced rate, and at
    least ``keepalive_rate``. The burst covers the keepalives of one lifetime of the client: that many may arrive
    together after this side or the network has stalled."""
    least, burst = limits.keepalive_rate
    announced = 1000 / setup.keepalive_ms if setup.keepalive_ms else 0.0
    return Bucket(max(burst, announced * min(lifetime, limits.peer_lifetime_s[1])), max(least, 2 * announced))


def echo(connection: Connection, frame: Any) -> None:
    """Answer KEEPALIVE if it requests an answer."""
    limits, live, current = connection.limits, connection.liveness, connection.current
    if len(frame.data) > limits.connection_metadata_bytes:
        raise Violation("metadata-too-large", rule="connection_metadata_bytes")
    resuming = connection.resuming
    if resuming is None or not resuming.retains:
        connection.stream_table.late.forget_ended(
            current.now, live.lifetime
        )  # with resumption, frames may arrive much later
    elif not resuming.acknowledged(frame.position):
        current.charge(10, 0, "KA-07", "a position that goes backwards")
        return
    if not frame.respond:
        if resuming is not None and resuming.is_free(frame.position):
            return
        if live.unasked is None:
            live.unasked = _bucket(connection.setup, live.lifetime, limits)
        if not live.unasked.take(1, current.now):
            current.charge(1, 0, "keepalive_rate", "more keepalives than were announced")
        return
    if live.keepalives is None:
        live.keepalives = _bucket(connection.setup, live.lifetime, limits)
    if not live.keepalives.take(1, current.now):
        raise Violation("keepalive-flood", rule="keepalive_rate")
    live.echoes += 1
    send_keepalive(connection, respond=False, data=frame.data)


def send_keepalive(connection: Connection, *, respond: bool, data: bytes = b"") -> None:
    """Queue KEEPALIVE, with the received position (R-51)."""
    position = 0 if connection.resuming is None else connection.resuming.reported()
    connection.outbound.control(connection.member.quirks.keepalive(respond, position, data))


def on_push(connection: Connection, frame: Any) -> None:
    """Apply METADATA_PUSH."""
    if len(frame.metadata) > connection.limits.connection_metadata_bytes:
        connection.current.charge(10, 0, "connection_metadata_bytes", "metadata-too-large")
        return
    connection.stream_table.delivered += len(frame.metadata)
    connection.current.events.append(Pushed(frame.metadata))


def hold(connection: Connection, now: float) -> None:
    """Exclude the time until ``now`` from the peer's silence: this side did not read."""
    connection.liveness.heard = now
    connection.inbound.hold(now)
    connection.stream_table.reassembly.hold(now)


def due(connection: Connection) -> float:
    """When tick is due, in a state other than CLOSED."""
    limits, live, state = connection.limits, connection.liveness, connection.state
    if state is not _OPEN and state in _UNDECIDED:
        return connection.handshake.born + limits.handshake_s
    resuming = connection.resuming
    if resuming is not None and resuming.away is not None:
        return resuming.due(connection)
    first, keepalive, streams = live.heard + live.lifetime, live.next_keepalive, connection.stream_table
    if keepalive is not None and keepalive < first:
        first = keepalive
    if connection.inbound.incomplete_since is not None:
        first = min(first, connection.inbound.incomplete_since + limits.frame_s)
    if streams.reassembly.partials and (oldest := streams.reassembly.oldest()):
        first = min(first, oldest[1] + limits.reassembly_s)
    if streams.leases is not None and streams.leases.issued.until is not None:
        first = min(first, streams.leases.issued.until)
    if resuming is not None and (full := resuming.store_due(connection)) is not None:
        first = min(first, full)
    return first


def tick(connection: Connection, now: float) -> None:
    """Act on elapsed time."""
    live, resuming = connection.liveness, connection.resuming
    if connection.state in _UNDECIDED:
        _tick_undecided(connection, now)
    elif resuming is not None and resuming.away is not None:
        resuming.tick_away(connection)
    elif now > live.heard + live.lifetime + _STEP_OF_TIME and live.heard != live.spared:
        # This side was late, so it asks once more, but only once: a side that is always late must end as well.
        live.heard = live.spared = now + connection.limits.flush_s - live.lifetime
        _tick_open(connection, now)
    elif now >= live.heard + live.lifetime:
        endings.lose_transport(connection, _I.SILENT)
    else:
        _tick_open(connection, now)


def _tick_undecided(connection: Connection, now: float) -> None:
    if now < connection.handshake.born + connection.limits.handshake_s:
        return
    if connection.state is _S.DECIDING:
        code = connection.member.codes.Code.REJECTED_SETUP
        raise Violation("handshake-timeout", rule="handshake_s", code=code)
    connection.step(_I.SILENT, None)


def _tick_open(connection: Connection, now: float) -> None:
    live, since = connection.liveness, connection.inbound.incomplete_since
    if since is not None and now >= since + connection.limits.frame_s:
        resuming = connection.resuming
        if resuming is None or not resuming.resumable(connection):
            raise Violation("frame-timeout", rule="frame_s")
        endings.lose_transport(connection, _I.SILENT)  # a link may fail in the middle of a frame
        return
    if live.next_keepalive is not None and now >= live.next_keepalive:
        send_keepalive(connection, respond=True)
        live.next_keepalive = now + live.interval
    leases = connection.stream_table.leases
    if leases is not None and leases.issued.until is not None and now >= leases.issued.until:
        send_lease(connection)
    if connection.resuming is not None:
        connection.resuming.watch_store(connection)
    arrivals.expire(connection.stream_table)
