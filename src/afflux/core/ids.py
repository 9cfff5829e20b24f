"""Stream ids: which one is next, and which ones have just ended. What a stream is doing lives in the engines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from afflux.core.errors import LimitExceeded

__all__ = ["StreamIds", "Tombstones"]


class StreamIds:
    """The ids of the streams that one side opens: ``first``, and then every second one up to ``last`` (RSocket R-8).

    After the last one it starts again at ``first`` and skips the ids in use (RSocket R-9); no id comes a second time
    before that (RSocket R-10).
    """

    __slots__ = ("_count", "_next", "first", "last", "wrapped")

    first: int
    "1 or 2: a side's parity."
    last: int
    "The highest id of that parity."
    wrapped: bool
    "True once the last id was passed: those that follow are used again."

    def __init__(self, first: int, last: int = 0x7FFFFFFF) -> None:
        if first not in (1, 2) or last < first:
            raise ValueError(f"ids start at 1 or 2 and end above, not {first} and {last}")
        self.first = first
        self.last = last - ((last - first) & 1)
        self.wrapped = False
        self._count = (self.last - first) // 2 + 1
        self._next = first

    def allocate(self, busy: Collection[int]) -> int:
        """The next id that is not ``busy``. It looks at no more ids than there are busy ones, and one more.

        Raises:
            LimitExceeded: every id is busy (SI-06); open another connection.
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

    def state(self) -> list[int]:
        """What ``restore`` takes: the next id, and whether the last one was passed."""
        return [self._next, int(self.wrapped)]

    def restore(self, state: list[int]) -> None:
        """Go on from a state."""
        self._next, self.wrapped = state[0], bool(state[1])


class Tombstones:
    """The ids of streams that ended a moment ago, ``limit`` of them at most; the oldest are forgotten first.

    Each may have late frames to spare: those that were under way when this side ended the stream cost the peer
    nothing (SI-07).
    """

    __slots__ = ("_free", "limit")

    limit: int
    "The most ids that are remembered."

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free: OrderedDict[int, int] | None = None

    def __len__(self) -> int:
        return 0 if self._free is None else len(self._free)

    def __contains__(self, id: object) -> bool:
        return self._free is not None and id in self._free

    def add(self, id: int, free: int = 0) -> int:
        """Remember ``id`` as the newest, with ``free`` late frames; what it had before is replaced.

        Returns:
            The late frames that the id that is forgotten for it had to spare.
        """
        if self._free is None:
            self._free = OrderedDict()
        self._free[id] = free
        self._free.move_to_end(id)
        return self._free.popitem(last=False)[1] if len(self._free) > self.limit else 0

    def free(self, id: int) -> int:
        """How many late frames ``id`` has to spare; 0 for one that is not remembered."""
        return 0 if self._free is None else self._free.get(id, 0)

    def spend(self, id: int) -> bool:
        """A late frame came for ``id``: True while it is free, False beyond that or for an id not remembered."""
        left = self.free(id)
        if left <= 0 or self._free is None:
            return False
        self._free[id] = left - 1
        return True

    def discard(self, id: int) -> None:
        """Forget ``id``, as when it is used again after a wrap."""
        if self._free is not None:
            self._free.pop(id, None)

    def clear(self) -> None:
        """Forget every id."""
        self._free = None

    def state(self) -> list[list[int]]:
        """The ids, oldest first, each with its late frames."""
        return [] if self._free is None else [[id, free] for id, free in self._free.items()]

    def restore(self, state: list[list[int]]) -> None:
        """Remember the newest of these, and nothing else."""
        self.clear()
        for id, free in state:
            self.add(id, free)
