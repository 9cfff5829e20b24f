"""What both sides of the subscriptions of one connection share: limits, queue, budget, and what bad manners cost."""

from __future__ import annotations

from typing import Any

from afflux.core.bucket import Bucket, spend
from afflux.core.events import Ignored
from afflux.core.limits import Limits
from afflux.protocols.rsio.outbound import Outbound
from afflux.protocols.rsio.states import ConnectionState

__all__ = ["Shared"]


class Shared:
    """The books of one connection. Buckets are full at first, so each is made when something is first taken."""

    __slots__ = ("_cancels", "_glitches", "delivered", "events", "limits", "now", "objects", "out", "split", "state")

    def __init__(self, limits: Limits, out: Outbound, now: float = 0.0) -> None:
        self.limits = limits
        self.out = out
        self.now = now
        self.state = ConnectionState.START
        "The state of the connection."
        self.events: list[Any] = []
        "What is to be told: of the current pass, and of verbs since the last one."
        self.delivered = 0
        "Bytes handed to the application and not consumed."
        self.objects = 0
        "How many elements they are."
        self.split = False
        "Both sides know split messages."
        self._glitches: Bucket | None = None
        self._cancels: Bucket | None = None

    def charge(self, price: int, id: int, rule: str, reason: str) -> None:
        """Drop a message and take its price.

        Raises:
            Violation: the bucket is empty.
        """
        self.events.append(Ignored(id, rule, reason, price))
        self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self.now)

    def count_cancel(self) -> None:
        """The peer made a publisher stop, by a cancel or by what is answered with onError.

        Raises:
            Violation: it does so too often.
        """
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)
