"""Count leases by the three strategies (R-30 to R-33): requests, live streams, stream frames.

Requests are counted by the family's ``Held`` and ``Granted``; the classes here replace them for the other strategies.
Only requests are refused: a frame that exceeds a grant may have crossed a newer one, and to drop it would lose data
(D-19).
"""

from __future__ import annotations

from collections.abc import Mapping

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.lease import UNMETERED, Granted, Held, LeasePolicy
from afflux.protocols.family.stream import Stream
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket_draft.compact import CompactType
from afflux.protocols.rsocket_draft.payloads import CONCURRENCY, FRAMES_COUNT, KNOWN

__all__ = ["FramesGranted", "FramesHeld", "StreamsGranted", "StreamsHeld", "begin", "select"]


def select(offered: tuple[CompactType, ...]) -> CompactType:
    """Return the first known strategy that the client offers.

    Raises:
        Violation: none is known (R-30).
    """
    for strategy in offered:
        if strategy in KNOWN:
            return strategy
    raise Violation("no lease strategy that is offered is known", rule="R-30", code=Code.REJECTED_SETUP)


def begin(connection: Connection, strategy: CompactType) -> None:
    """Count by a strategy from now on; without leases nothing is counted."""
    streams, limits = connection.stream_table, connection.limits
    leases = streams.leases
    if leases is None:
        return
    policy = connection.handshake.policy or UNMETERED
    if strategy == CONCURRENCY:
        leases.held = StreamsHeld(limits, streams.live)
        leases.issued = StreamsGranted(policy, streams.live)
    elif strategy == FRAMES_COUNT:
        leases.held = FramesHeld(limits)
        leases.issued = FramesGranted(policy)


class StreamsHeld(Held):
    """A lease of live streams (Concurrency Limit)."""

    __slots__ = ("_live",)

    def __init__(self, limits: Limits, live: Mapping[int, Stream]) -> None:
        super().__init__(limits)
        self._live = live

    def left(self, now: float) -> int:
        """The number of streams that may be opened now."""
        return max(0, super().left(now) - sum(stream.requester for stream in self._live.values()))

    def take(self, now: float) -> bool:
        """Whether one more stream may be opened."""
        return self.left(now) > 0


class StreamsGranted(Granted):
    """The lease of live streams that this side has granted."""

    __slots__ = ("_live",)

    def __init__(self, policy: LeasePolicy, live: Mapping[int, Stream]) -> None:
        super().__init__(policy)
        self._live = live

    def take(self, now: float) -> bool:
        """Count a request; False when too many streams are live."""
        if self.until is None or now >= self.until:
            return False
        self.used += 1
        return self.left > sum(not stream.requester for stream in self._live.values())


class FramesHeld(Held):
    """A lease of stream frames (Frames Count): a request needs one, and uses it when it leaves."""

    __slots__ = ()

    def take(self, now: float) -> bool:
        """Whether a frame may be sent."""
        return self.left(now) > 0


class FramesGranted(Granted):
    """The lease of stream frames that this side has granted."""

    __slots__ = ("_admitted",)

    def __init__(self, policy: LeasePolicy) -> None:
        super().__init__(policy)
        self._admitted = False

    def spend(self, now: float) -> None:
        """Count a stream frame of the peer."""
        self._admitted = super().take(now)

    def take(self, now: float) -> bool:
        """Whether the frame that was counted last was within the lease."""
        return self._admitted
