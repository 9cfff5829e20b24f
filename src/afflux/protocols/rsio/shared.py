"""Share limits, queue, budget and the prices of wasteful messages among the parts of one connection."""

from __future__ import annotations

from typing import Any

from afflux.core.bucket import Bucket, spend
from afflux.core.events import Ignored
from afflux.core.limits import Limits
from afflux.protocols.rsio.outbound import Outbound
from afflux.protocols.rsio.states import ConnectionState

__all__ = ["Shared"]


class Shared:
    """State shared by the parts of one connection. Buckets are full at first, so each is created at its first use."""

    __slots__ = ("_cancels", "_glitches", "delivered", "events", "limits", "now", "objects", "out", "split", "state")

    def __init__(self, limits: Limits, out: Outbound, now: float = 0.0) -> None:
        self.limits = limits
        self.out = out
        self.now = now
        self.state = ConnectionState.START
        "The state of the connection."
        self.events: list[Any] = []
        "Events to report: of the current pass, and of verbs since the last one."
        self.delivered = 0
        "Bytes delivered to the application and not consumed."
        self.objects = 0
        "Number of delivered elements that were not consumed."
        self.split = False
        "Both sides list split messages."
        self._glitches: Bucket | None = None
        self._cancels: Bucket | None = None

    def charge(self, price: int, id: int, rule: str, reason: str) -> None:
        """Charge for a dropped message.

        Raises:
            Violation: the bucket is empty.
        """
        self.events.append(Ignored(id, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self.now)

    def count_cancel(self) -> None:
        """Count a publisher that the peer stopped, by a cancel or by a message that onError answers.

        Raises:
            Violation: that is too frequent.
        """
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)
