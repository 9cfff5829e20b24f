"""Collect the events of one pass over the input, and charge the peer for its faults.

All parts of an engine share one ``Pass``. A price is taken from a token bucket; an empty bucket ends the connection.
"""

from __future__ import annotations

from afflux.core.bucket import Bucket, spend
from afflux.core.events import Event, Ignored
from afflux.core.limits import Limits

__all__ = ["Pass"]


class Pass:
    """What this pass has found so far, and when it began."""

    __slots__ = ("_cancels", "_glitches", "events", "limits", "now")

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        self.now = now
        "The time, in the caller's seconds."
        self.events: list[Event] = []
        # Buckets are full at first, so each can be made when something is first taken from it.
        self._glitches: Bucket | None = None
        self._cancels: Bucket | None = None

    def charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Drop a frame and take its price (DR-1).

        Raises:
            Violation: the bucket is empty.
        """
        self.events.append(Ignored(stream, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self.now)

    def count_cancel(self) -> None:
        """The peer canceled a handler that is at work, or did what costs as much.

        Raises:
            Violation: the bucket is empty.
        """
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)
