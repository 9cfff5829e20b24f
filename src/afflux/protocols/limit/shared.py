"""Share limits, queue, numbers, budget and the prices of wasteful frames among the parts of one connection."""

from __future__ import annotations

from typing import Any

from afflux.core.bucket import Bucket, spend
from afflux.core.events import Event, Ignored
from afflux.core.limits import Limits
from afflux.protocols.limit.frames import LimitFrame
from afflux.protocols.limit.ids import Numbers
from afflux.protocols.limit.outbound import Outbound
from afflux.protocols.limit.session import Session
from afflux.protocols.limit.states import ConnectionInput, ConnectionState

__all__ = ["Shared"]


class Shared:
    """State shared by the parts of one connection. Buckets are full at first, so each is created at its first use."""

    __slots__ = (
        "_cancels",
        "_glitches",
        "aborted",
        "delivered",
        "ended",
        "events",
        "limits",
        "now",
        "numbers",
        "objects",
        "out",
        "session",
        "state",
    )

    def __init__(self, limits: Limits, numbers: Numbers, now: float) -> None:
        self.limits = limits
        self.numbers = numbers
        self.now = now
        self.out = Outbound()
        self.state = ConnectionState.START
        "The state of the connection."
        self.session: Session | None = None
        "The session that has not ended."
        self.ended: ConnectionInput | None = None
        "How the last session has ended, until the connection's table has it."
        self.aborted = False
        "This side has ended a session: a client cannot tell what still arrives from a new one (D-14)."
        self.events: list[Any] = []
        "Events to report: of the current pass, and of verbs since the last one."
        self.delivered = 0
        "Bytes delivered to the application and not consumed."
        self.objects = 0
        "Number of delivered payloads that were not consumed."
        self._glitches: Bucket | None = None
        self._cancels: Bucket | None = None

    def put(self, frame: LimitFrame) -> None:
        """Queue a frame."""
        self.out.put(frame.encode(prefixed=True))

    def take_events(self) -> list[Event]:
        """Return the events, of which there are none afterwards."""
        events, self.events = self.events, []
        return events

    @property
    def full(self) -> bool:
        """Whether the application has to consume something before more may be delivered."""
        delivered = self.delivered + self.objects * self.limits.object_overhead_bytes
        return delivered > self.limits.connection_bytes

    def charge(self, price: int, id: int, rule: str, reason: str) -> None:
        """Charge for a dropped frame (DR-1).

        Raises:
            Violation: the bucket is empty.
        """
        self.events.append(Ignored(id, rule, reason, price))
        if price:
            self._glitches = spend(self._glitches, self.limits, "glitch_bucket", price, self.now)

    def count_cancel(self) -> None:
        """Count a handler that the peer has ended with an error.

        Raises:
            Violation: that is too frequent.
        """
        self._cancels = spend(self._cancels, self.limits, "cancel_bucket", 1, self.now)
