"""Where the time of one stream goes, and when it is granted more. Numbers only: no connection, and no clock of its own.

The window is that of ``peer.stream(credit=)``, but the grants are made by hand: only so it is known under which grant
an item came.

Each moment of a stream belongs to one of three:

- **application**: items are here, and this client is at work on them.
- **credit**: this client waits, and the peer can not have had credit for the item that comes next: the grant which
  covers it was made less than a round trip ago. (A grant takes half a round trip to the peer, and the item under it
  half a round trip back.)
- **peer**: this client waits, and the peer has had credit for long enough. It has nothing to send, or is slow, or the
  network is full.

The wait for the first item is the peer's: there the request itself is on its way.
"""

from __future__ import annotations

from collections import deque

from afflux.core.autocredit import AutoWindow, Kept, window_of
from afflux.core.credit import SATURATED

__all__ = ["UNBOUNDED", "Meter"]

UNBOUNDED = 0x7FFFFFFF
"Credit without a bound: the most that one grant can say."


class Meter:
    """The grants and the waits of one stream.

    Args:
        credit: the window in items, or "auto".
        trip: seconds of a round trip; None when it is not known: then nothing is told of credit.
        now: the time at which the stream is opened.
        take: items that are wanted in all; no more are granted.
        byte_limit: what the items of a window should fit into.
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
            raise ValueError("a stream that is measured has credit")
        self._window = window
        self._adaptive = window if isinstance(window, AutoWindow) else None
        self._trip = trip or 0.0
        self._left = SATURATED if take is None else take
        self._since = now
        self._grants: deque[tuple[int, float]] = deque()
        "How many items were granted in all, and when."
        self.taken = 0
        "Items that came."
        self.application = 0.0
        "Seconds in which this client worked."
        self.credit = 0.0
        "Seconds in which the peer had no credit."
        self.peer = 0.0
        "Seconds in which it had."

    def opened(self, now: float) -> int:
        """How many items to grant first."""
        return self._granted(self._window.initial(now), now)

    def came(self, items: int, size: int, now: float) -> int:
        """Items of so many bytes in all were taken: how many to grant now, or 0."""
        self.taken += items
        if self._adaptive is not None:
            self._adaptive.arrived(items, now)
        return self._granted(self._window.consumed(items, size, now), now)

    def worked(self, now: float) -> None:
        """This client was at work until now."""
        self.application += now - self._since
        self._since = now

    def waited(self, now: float) -> None:
        """This client has waited until now, for the next item or for the end."""
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
