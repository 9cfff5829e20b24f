"""Choose the ids of this side's subscriptions, and retain what is needed to parse further messages.

Fresh ids are preferred until ``tombstones`` were used, then those that ended longest ago (R-35). The record of a
canceled id is retained until its end arrives (R-37), and there are at most ``tombstones`` of them: then the oldest id
is used again, with a count of its outstanding answers (R-36). So neither ids nor memory grow without bound, and nothing
that parsing needs is forgotten.
"""

from __future__ import annotations

from collections import deque

from afflux.protocols.rsio.subscription import Subscription

__all__ = ["Ids"]


class Ids:
    """Choose the ids of one side."""

    __slots__ = ("_canceled", "_ended", "_fresh", "_most", "records")

    def __init__(self, most: int) -> None:
        self._most = most
        self.records: dict[int, Subscription] = {}
        "Records by id: of live subscriptions, and of canceled ones for which messages may still arrive."
        self._fresh = 1
        self._ended: deque[int] | tuple[()] = ()
        self._canceled: dict[int, None] = {}

    def size_of(self, id: int) -> int | None:
        """Bytes of the elements of an id; None for an id without a record."""
        subscription = self.records.get(id)
        return None if subscription is None else subscription.size

    def allocate(self) -> Subscription:
        """Return the record of the id for a new subscription: a new one, or that of a canceled one."""
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
        """Free an id for which nothing more can arrive."""
        del self.records[id]
        self._canceled.pop(id, None)
        self._ended = self._ended or deque()
        self._ended.append(id)

    def keep(self, subscription: Subscription) -> None:
        """Retain the record of a canceled subscription, to count what may still arrive."""
        subscription.late = subscription.late_bytes = 0
        self._canceled[subscription.id] = None
