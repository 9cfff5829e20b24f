"""Collect the events of one pass over the input, and charge the peer for its faults.

All parts of an engine share one ``Pass``. Prices are taken from a token bucket; an empty bucket ends the connection.
"""

from __future__ import annotations

from afflux.core.bucket import Bucket, spend
from afflux.core.events import Event, Ignored
from afflux.core.limits import Limits

__all__ = ["Pass"]


class Pass:
    """The events of the current pass, and its time."""

    __slots__ = ("_cancels", "_glitches", "events", "limits", "now")

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        self.now = now
        "The time, in the caller's seconds."
        self.events: list[Event] = []
        # Buckets start full, so each can be created at its first use.
        self._glitches: Bucket | None = None
        self._cancels: Bucket | None = None

    def charge(self, price: int, stream: int, rule: str, reason: str) -> None:
        """Charge the price of a frame that is dropped (DR-1).

        Raises:
            Violation: the bucket is empty.
        """
        self.events.append(Ignored(stream, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self.now)

    def count_cancel(self) -> None:
        """Count a cancel of a running handler, or an action of the peer that costs as much.

        Raises:
            Violation: the bucket is empty.
        """
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)
