"""Attribute the time of one stream to credit, peer or application, and decide its grants. Time is an argument.

The window is that of ``peer.stream(credit=)``, but credit is granted manually, because that shows which grant covers
each item.

Each moment of a stream counts towards one of three:

- **application**: items have arrived, and the client is processing them.
- **credit**: the client waits, and the peer cannot have had credit for the next item: the grant that covers it was made
  less than a round trip ago. (A grant takes half a round trip to the peer, and the item half a round trip back.)
- **peer**: the client waits, and the peer has had credit for longer than that. The peer has nothing to send or is slow,
  or the network is saturated.

The wait for the first item counts towards the peer, because the request itself is in flight.
"""

from __future__ import annotations

from collections import deque

from afflux.core.autocredit import AutoWindow, Kept, window_of
from afflux.core.credit import SATURATED

__all__ = ["UNBOUNDED", "Meter"]

UNBOUNDED = 0x7FFFFFFF
"Unbounded credit: the maximum of one grant."


class Meter:
    """Measure the grants and waits of one stream.

    Args:
        credit: the window in items, or "auto".
        trip: seconds of a round trip; if None, no time counts towards credit.
        now: the time at which the stream is opened.
        take: total items wanted; no more are granted.
        byte_limit: bytes that the items of a window should fit in.
    """

    __slots__ = (
        "_adaptive",
        "_grants",
        "_left",
        "_since",
        "_trip",
        "_window",
        "application",
        "credit",
        "peer",
        "taken",
    )

    def __init__(
        self, credit: Kept, trip: float | None, now: float, take: int | None = None, byte_limit: int = SATURATED
    ) -> None:
        window = window_of(credit, byte_limit)
        if window is None:
            raise ValueError("a measured stream requires credit")
        self._window = window
        self._adaptive = window if isinstance(window, AutoWindow) else None
        self._trip = trip or 0.0
        self._left = SATURATED if take is None else take
        self._since = now
        self._grants: deque[tuple[int, float]] = deque()
        "Total items granted, and the time of each grant."
        self.taken = 0
        "Items received."
        self.application = 0.0
        "Seconds in which the client processed items."
        self.credit = 0.0
        "Seconds spent waiting while the peer had no credit."
        self.peer = 0.0
        "Seconds spent waiting while the peer had credit."

    def opened(self, now: float) -> int:
        """Return the initial grant."""
        return self._granted(self._window.initial(now), now)

    def came(self, items: int, size: int, now: float) -> int:
        """Record consumed items and their total bytes; return how many to grant now, or 0."""
        self.taken += items
        if self._adaptive is not None:
            self._adaptive.arrived(items, now)
        return self._granted(self._window.consumed(items, size, now), now)

    def worked(self, now: float) -> None:
        """Count the time since the last call as processing."""
        self.application += now - self._since
        self._since = now

    def waited(self, now: float) -> None:
        """Count the time since the last call as waiting for the next item or the end."""
        waited = now - self._since
        credit = 0.0
        if self.taken:
            grants = self._grants
            while grants and grants[0][0] <= self.taken:
                grants.popleft()
            if grants:
                credit = min(waited, max(0.0, grants[0][1] + self._trip - self._since))
        self.credit += credit
        self.peer += waited - credit
        self._since = now

    def _granted(self, n: int, now: float) -> int:
        n = min(n, self._left)
        if n:
            self._left -= n
            before = self._grants[-1][0] if self._grants else self.taken
            self._grants.append((before + n, now))
        return n
