"""Compute how many items to request: as many as are allowed to be in flight or not durable yet."""

from __future__ import annotations

from afflux.core.limits import Limits

__all__ = ["Window"]

_MOST_ITEMS = 0x1_0000
"The largest window in items."
_FIRST_BYTES = 0x1000
"The assumed bytes of an item before the first one."


class Window:
    """The window of one subscription: the smallest of ``connection_bytes`` / 4, the room, and 65,536 items."""

    def __init__(self, limits: Limits) -> None:
        self._budget = limits.connection_bytes // 4
        self._overhead = limits.object_overhead_bytes // 8
        self._in_flight = 0
        self._average = float(_FIRST_BYTES)

    def begin(self) -> None:
        """A subscription begins: nothing is in flight."""
        self._in_flight = 0

    def arrived(self, count: int, size: int) -> None:
        """Record items that have arrived, and their bytes."""
        self._in_flight -= count
        self._average += (size / count - self._average) / 8

    def grant(self, buffered: int, room: int) -> int:
        """Return how many items to request now, given those that are not durable, and the bytes that can be stored.

        Without room it is one item: the feed waits with it, and so readers are told that the journal is full.
        """
        item = self._average + self._overhead
        target = max(1, min(_MOST_ITEMS, int(self._budget // item), int(room // item)))
        missing = target - max(0, self._in_flight) - buffered
        if missing < max(1, target // 4):
            return 0
        self._in_flight = max(0, self._in_flight) + missing
        return missing
