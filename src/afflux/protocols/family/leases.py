"""Count the requests of both sides against leases (section 3.3). See lease.py for the policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.bucket import Bucket
from afflux.core.errors import ConnectionClosed, LocalProtocolError
from afflux.core.events import Leased
from afflux.core.limits import Limits
from afflux.protocols.family import endings
from afflux.protocols.family.lease import UNMETERED, Granted, Held, LeasePolicy

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["Leases", "Leasing", "end_leases", "on_lease", "send_lease"]


class Leases:
    """The leases of one connection, if both sides agreed on them."""

    __slots__ = ("frames", "held", "issued")

    def __init__(self, limits: Limits, policy: LeasePolicy | None) -> None:
        self.held = Held(limits)
        "The lease of this side's requests."
        self.issued = Granted(policy or UNMETERED)
        "The lease of the peer's requests."
        self.frames: Bucket | None = None
        "The rate limit of LEASE frames."


def on_lease(connection: Connection, frame: Any) -> None:
    """Apply LEASE."""
    leases, limits, current = connection.stream_table.leases, connection.limits, connection.current
    if leases is None:
        connection.ignore(frame)  # LE-05
        return
    if leases.frames is None:
        leases.frames = Bucket(limits.lease_frames_per_s, limits.lease_frames_per_s)
    if not leases.frames.take(1, current.now):
        current.charge(1, 0, "lease_frames_per_s", "more LEASE frames than anyone needs")  # LE-06
    else:
        leases.held.replace(frame.ttl_ms, frame.requests, current.now)
        current.events.append(Leased(frame.requests, frame.ttl_ms / 1000))


def send_lease(connection: Connection) -> None:
    """Send the lease that the policy grants (R-13)."""
    leases = connection.stream_table.leases
    if leases is None:
        return
    try:
        frame = _frame(connection, leases.issued.next(connection.current.now), b"")
    except Exception as error:
        rule = connection.member.rules.leasing
        failure = LocalProtocolError(f"the lease policy failed: {error!r}", stream=0, rule=rule)
        failure.__cause__ = error
        endings.end(connection, failure, connection.member.codes.Code.CONNECTION_ERROR, b"closed")
    else:
        connection.outbound.control(frame)


def end_leases(connection: Connection) -> None:
    """Invalidate the leases: the transport is gone (R-43)."""
    leases = connection.stream_table.leases
    if leases is not None:
        leases.held.end()
        leases.issued.end()


def _frame(connection: Connection, lease: Any, metadata: bytes) -> bytes:
    fields: dict[str, Any] = {"metadata": metadata} if metadata else {}
    frame = connection.member.frames.Lease(stream=0, ttl_ms=lease.ttl_ms, requests=lease.requests, **fields)
    encoded: bytes = frame.encode(prefixed=True)
    return encoded


class Leasing:
    """The leases of a connection, as core.engine.Leases."""

    __slots__ = ("_engine", "_leases")

    def __init__(self, connection: Connection, leases: Leases) -> None:
        self._engine = connection
        self._leases = leases

    def lease(self, now: float) -> tuple[int, float]:
        """The requests that this side may send now, and the seconds until its lease expires."""
        held = self._leases.held
        left = held.left(now)
        return left, max(0.0, held.until - now) if left else 0.0

    def granted(self, now: float) -> tuple[int, float]:
        """The requests that the peer may send now, and the seconds until its lease expires."""
        issued = self._leases.issued
        if issued.until is None or now >= issued.until:
            return 0, 0.0
        return issued.left, issued.until - now

    def grant(self, lease: Any, now: float, metadata: bytes = b"") -> None:
        """Grant a lease manually; it replaces the last one, and the policy continues when it expires (R-40).

        Raises:
            ConnectionClosed: the connection is closed.
            LimitExceeded: the metadata is longer than a peer accepts.
        """
        connection = self._engine
        if not connection.is_open:
            raise ConnectionClosed(f"no lease can be granted: the connection is {connection.standing}")
        connection.check_metadata(metadata)
        self._leases.issued.replace(lease, now)
        connection.outbound.control(_frame(connection, lease, metadata))
