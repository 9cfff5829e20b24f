"""Allocate stream ids, and remember the ids of streams that ended recently. Engines store the live streams."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from afflux.core.errors import LimitExceeded

__all__ = ["StreamIds", "Tombstones"]


class StreamIds:
    """The ids of the streams that one side opens: ``first``, then every second id up to ``last`` (RSocket R-8).

    After the last id, allocation starts again at ``first`` and skips the ids in use (RSocket R-9); no id is reused
    before that (RSocket R-10).
    """

    __slots__ = ("_count", "_next", "first", "last", "wrapped")

    first: int
    "1 or 2, the parity of one side."
    last: int
    "The highest id of that parity."
    wrapped: bool
    "True after the last id was allocated: later ids are reused."

    def __init__(self, first: int, last: int = 0x7FFFFFFF) -> None:
        if first not in (1, 2) or last < first:
            raise ValueError(f"invalid ids {first} to {last}: the first is 1 or 2, the last is not below it")
        self.first = first
        self.last = last - ((last - first) & 1)
        self.wrapped = False
        self._count = (self.last - first) // 2 + 1
        self._next = first

    def allocate(self, busy: Collection[int]) -> int:
        """Return the next id that is not ``busy``, after at most ``len(busy) + 1`` steps.

        Raises:
            LimitExceeded: all ids are busy (SI-06); open another connection.
        """
        for _ in range(min(len(busy) + 1, self._count)):
            id = self._next
            if id == self.last:
                self._next = self.first
                self.wrapped = True
            else:
                self._next = id + 2
            if id not in busy:
                return id
        raise LimitExceeded(f"all {self._count} stream ids are in use", rule="ids-exhausted")

    def allocate_some(self, count: int, busy: Collection[int]) -> list[int]:
        """Return the next ``count`` ids that are not ``busy``, or fewer when all others are.

        Raises:
            LimitExceeded: all ids are busy.
        """
        first = self._next
        if not self.wrapped and first + 2 * count <= self.last:  # no id was used before
            self._next = first + 2 * count
            return list(range(first, self._next, 2))
        ids: dict[int, None] = {}
        while len(ids) < count and (id := self.allocate(busy)) not in ids:  # in ids: all others are busy
            ids[id] = None
        return list(ids)

    def state(self) -> list[int]:
        """Return the state for ``restore``: the next id, and 1 after a wrap."""
        return [self._next, int(self.wrapped)]

    def restore(self, state: list[int]) -> None:
        """Continue from a state."""
        self._next, self.wrapped = state[0], bool(state[1])


class Tombstones:
    """The ids of at most ``limit`` streams that ended recently; the oldest are discarded first.

    Each id has an allowance of late frames: frames that were in flight when this side ended the stream are not charged
    to the peer (SI-07).
    """

    __slots__ = ("_free", "limit")

    limit: int
    "The most ids to remember."

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free: OrderedDict[int, int] | None = None

    def __len__(self) -> int:
        return 0 if self._free is None else len(self._free)

    def __contains__(self, id: object) -> bool:
        return self._free is not None and id in self._free

    def add(self, id: int, free: int = 0) -> int:
        """Remember ``id`` as the newest, with an allowance of ``free`` late frames, and return the unused allowance of
        the id that is discarded for it."""
        if self._free is None:
            self._free = OrderedDict()
        self._free[id] = free
        self._free.move_to_end(id)
        return self._free.popitem(last=False)[1] if len(self._free) > self.limit else 0

    def free(self, id: int) -> int:
        """Return the unused allowance of ``id``; 0 for an id that is not remembered."""
        return 0 if self._free is None else self._free.get(id, 0)

    def spend(self, id: int) -> bool:
        """Charge a late frame to the allowance of ``id``; return False if nothing of it is left."""
        left = self.free(id)
        if left <= 0 or self._free is None:
            return False
        self._free[id] = left - 1
        return True

    def discard(self, id: int) -> None:
        """Discard ``id``, for example when it is reused after a wrap."""
        if self._free is not None:
            self._free.pop(id, None)

    def clear(self) -> None:
        """Discard all ids."""
        self._free = None

    def state(self) -> list[list[int]]:
        """Return the ids, oldest first, each with its allowance."""
        return [] if self._free is None else [[id, free] for id, free in self._free.items()]

    def restore(self, state: list[list[int]]) -> None:
        """Replace the ids by the newest of these."""
        self.clear()
        for id, free in state:
            self.add(id, free)
