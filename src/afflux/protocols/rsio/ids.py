"""Choose the ids with which this side subscribes, and remember what is needed to read on.

Fresh ids are preferred until there were as many as ``tombstones``, then those that ended longest ago (R-35). What is
known of a canceled id is kept until its end is seen (R-37), and there are ``tombstones`` of them at most: then the
oldest is used again, for which the answers that are outstanding are counted (R-36). So neither ids nor memory grow
without bound, and nothing is ever forgotten that is needed to read on.
"""

from __future__ import annotations

from collections import deque

from afflux.protocols.rsio.subscription import Subscription

__all__ = ["Ids"]


class Ids:
    """The ids of one side."""

    __slots__ = ("_canceled", "_ended", "_fresh", "_most", "records")

    def __init__(self, most: int) -> None:
        self._most = most
        self.records: dict[int, Subscription] = {}
        "By id: those that are live, and those that were canceled and of which something may still come."
        self._fresh = 1
        self._ended: deque[int] | tuple[()] = ()
        self._canceled: dict[int, None] = {}

    def size_of(self, id: int) -> int | None:
        """Bytes of the elements of an id; None for one of which nothing is known."""
        subscription = self.records.get(id)
        return None if subscription is None else subscription.size

    def allocate(self) -> Subscription:
        """The record of the id for a new subscription: a new one, or that of a canceled one."""
        if len(self._canceled) >= self._most:
            id = next(iter(self._canceled))
            del self._canceled[id]
            return self.records[id]
        if self._fresh > self._most and self._ended:
            id = self._ended.popleft()
        else:
            id = self._fresh
            self._fresh += 1
        subscription = self.records[id] = Subscription(id)
        return subscription

    def free(self, id: int) -> None:
        """Nothing more can come for an id."""
        del self.records[id]
        self._canceled.pop(id, None)
        self._ended = self._ended or deque()
        self._ended.append(id)

    def keep(self, subscription: Subscription) -> None:
        """The subscription of an id was canceled: what may still come is counted."""
        subscription.late = subscription.late_bytes = 0
        self._canceled[subscription.id] = None
