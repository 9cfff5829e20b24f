"""Count what a server has served since it started: the sum over its connections, those that have ended included.

The parts of a connection count for themselves, once in a pass or in a turn of the loop. Nothing is counted here until
the sum is asked for, or a connection has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afflux.aio.serving import Serving

__all__ = ["Traffic"]


@dataclass(slots=True)
class Traffic:
    """Totals of a server. They never decrease."""

    connections: int = 0
    "Connections that were accepted, those that resume a session included."
    requests: int = 0
    "Requests and fires whose handlers have begun."
    streams: int = 0
    "Streams, channels and sessions whose handlers have begun."
    items_sent: int = 0
    "Items sent on streams and channels."
    items_received: int = 0
    "Items received on channels after the first."
    bytes_sent: int = 0
    "Bytes written to the transports, before TLS."
    bytes_received: int = 0
    "Bytes read from the transports, after TLS."
    failed: int = 0
    "Handlers that raised an exception that is no ``afflux.Error``."
    rejected: int = 0
    """Requests that were answered with ``Rejected``: nothing handles the verb or the route, no handler became free in
    time, or the handler refused."""

    def add(self, serving: Serving) -> None:
        """Add the counts of one connection."""
        driver, slots = serving.driver, serving.slots
        self.requests += serving.requests.queue.begins
        self.streams += serving.producers.queue.begins + serving.sessions_begun
        self.items_sent += driver.room.sent
        self.items_received += driver.streams.received
        self.bytes_sent += driver.output.written
        self.bytes_received += driver.input.taken
        self.failed += slots.failed
        self.rejected += slots.rejected
