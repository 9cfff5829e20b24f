"""List the live streams of one connection, and the reason why each is stopped.

An engine reports credit, its own queue and its memory. The driver adds whether the transport is full, whether a request
waits for a handler or a lease, and whether the application consumes the items that have arrived.
"""

from __future__ import annotations

from dataclasses import replace

from afflux.aio.driver import Driver
from afflux.aio.serving import Serving
from afflux.core.credit import StreamStatus

__all__ = ["statuses"]

NOT_OPEN = 0
"The number of a request that waits to be opened."
_MOVED_BY_FRAMES = (None, "peer", "producer")
"Reasons that mean ``transport`` while the session waits for a connection."


def statuses(driver: Driver, serving: Serving) -> list[StreamStatus]:
    """Return the live streams in the order in which they were opened, then the requests that wait to be opened."""
    found = driver.engine.streams(room=driver.output.room_beside(), now=driver.state.now())
    without_handler = serving.waiting
    streams = [_status(driver, status, waits=status.stream in without_handler) for status in found]
    waits = StreamStatus.of(NOT_OPEN, "request", "WAITING", requester=True, bounds=("lease",))
    return streams + [waits] * driver.leases.waiting


def _status(driver: Driver, status: StreamStatus, *, waits: bool) -> StreamStatus:
    sender = driver.streams.senders.get(status.stream)
    inbound = driver.streams.inbounds.get(status.stream)
    if waits:
        return replace(status, reason="local")
    if (status.queued and driver.output.blocked) or driver.room.delays(sender):
        return replace(status, reason="transport")
    if inbound is not None and inbound.chunks and status.reason == "producer":
        return replace(status, reason="application")
    if driver.state.away and status.reason in _MOVED_BY_FRAMES:
        return replace(status, reason="transport")
    return status
