"""Join elements that arrive in parts (extension split_messages), within bounds."""

from __future__ import annotations

from afflux.core.errors import Violation
from afflux.core.limits import REASONS, Limits, oversize

__all__ = ["Parts"]


class _Partial:
    """One incomplete element."""

    __slots__ = ("chunks", "count", "since", "size", "small")

    def __init__(self, now: float) -> None:
        self.chunks: list[bytes] = []
        self.count = 0
        self.size = 0
        self.small = 0
        self.since = now


class Parts:
    """Store the unfinished elements of one connection, by the id of their subscription and their own number."""

    __slots__ = ("_limits", "_partials", "size")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._partials: dict[tuple[int, int], _Partial] = {}
        self.size = 0
        "Bytes of all unfinished elements, overhead included."

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._partials

    def add(self, key: tuple[int, int], data: bytes, last: bool, now: float, room: int) -> bytes | None:
        """Add a part; return the element when it is whole. ``room`` is the rest of the connection's budget.

        Raises:
            Violation: a limit is exceeded; drop the others of its subscription.
        """
        limits = self._limits
        partial = self._partials.get(key)
        if partial is None:
            if last:
                return data
            if len(self._partials) >= limits.partial_payloads:
                raise Violation(REASONS["partial_payloads"], rule="partial_payloads")
            partial = self._partials[key] = _Partial(now)
        cost = len(data) + limits.object_overhead_bytes
        if partial.size + len(data) > limits.payload_bytes:
            size = partial.size + len(data)
            text = oversize(limits, "payload_bytes", size, more=not last)
            raise Violation(text, rule="payload_bytes", too_large=True)
        if partial.count >= limits.fragments:
            raise Violation(REASONS["fragments"], rule="fragments")
        if cost > room:
            raise Violation(REASONS["connection_bytes"], rule="connection_bytes")
        partial.chunks.append(data)
        partial.count += 1
        partial.size += len(data)
        self.size += cost
        if not last:
            return None
        self._forget(key)
        return b"".join(partial.chunks)

    def small(self, key: tuple[int, int], size: int) -> bool:
        """Whether a part that is not the last, of ``size`` bytes, makes no progress again; the first is free."""
        if size >= self._limits.fragment_min_bytes:
            return False
        partial = self._partials[key]
        partial.small += 1
        return partial.small > 1

    def drop(self, id: int) -> None:
        """Drop the unfinished elements of a subscription."""
        for key in [key for key in self._partials if key[0] == id]:
            self._forget(key)

    def oldest(self) -> tuple[int, float] | None:
        """Return the subscription whose element is unfinished for longest, and the time since which it is."""
        for key, partial in self._partials.items():
            return key[0], partial.since
        return None

    def hold(self, now: float) -> None:
        """Exclude the time until ``now`` from timeouts: this side did not read."""
        for partial in self._partials.values():
            partial.since = now

    def _forget(self, key: tuple[int, int]) -> None:
        partial = self._partials.pop(key)
        self.size -= partial.size + partial.count * self._limits.object_overhead_bytes
