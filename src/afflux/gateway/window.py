"""Compute how many payloads to request: as many as are allowed to be in flight or not durable yet.

A payload is an item, or a block of many items (protocols/rsocket/cursor), which costs one credit."""

from __future__ import annotations

import math

from afflux.core.limits import Limits
from afflux.journal.store import BLOCK_BYTES

__all__ = ["Window"]

_MOST_ITEMS = 0x1_0000
"The largest window in payloads."
_FIRST_BYTES = 0x1000
"The assumed bytes of a payload before the first one."


class Window:
    """The window of one subscription: the smallest of ``connection_bytes`` / 4, the room, and 65,536 payloads."""

    def __init__(self, limits: Limits) -> None:
        self._budget = limits.connection_bytes // 4
        self._overhead = limits.object_overhead_bytes // 8
        self._in_flight = 0
        self._average = float(_FIRST_BYTES)
        self._items = 1.0

    def begin(self, *, blocks: bool = False) -> None:
        """A subscription begins: nothing is in flight. Its payloads may be ``blocks``."""
        self._in_flight = 0
        self._items = 1.0
        if blocks:
            self._average = max(self._average, BLOCK_BYTES)

    def arrived(self, count: int, size: int) -> None:
        """Record payloads that have arrived, and their bytes."""
        self._in_flight -= count
        self._average += (size / count - self._average) / 8

    def contained(self, count: int, items: int) -> None:
        """Record the items of payloads that have arrived."""
        self._items += (max(1.0, items / count) - self._items) / 8

    def grant(self, buffered: int, room: int) -> int:
        """Return how many payloads to request now, given the items that are not durable, and the bytes that can be
        stored.

        Without room it is one: the feed waits with it, and so readers are told that the journal is full.
        """
        each = self._average + self._overhead
        target = max(1, min(_MOST_ITEMS, int(self._budget // each), int(room // each)))
        missing = target - max(0, self._in_flight) - math.ceil(buffered / self._items)
        if missing < max(1, target // 4):
            return 0
        self._in_flight = max(0, self._in_flight) + missing
        return missing
