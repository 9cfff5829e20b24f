"""Put the fragments of IP datagrams together. Buffers a bounded number of datagrams; the oldest is dropped first.

Overlapping fragments are an attack or an error, so their datagram is dropped (RFC 5722).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Hashable

__all__ = ["Fragments"]

MOST = 1_024
"Incomplete datagrams that are buffered."
_LARGEST = 0xFFFF


class _Datagram:
    """The fragments of one datagram received so far."""

    __slots__ = ("_starts", "pieces", "received", "size")

    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self._starts: list[int] = []
        self.received = 0
        self.size = -1

    def add(self, offset: int, data: bytes, more: bool) -> bool:
        """Add a fragment. Returns False if it contradicts the others."""
        end = offset + len(data)
        if self.pieces.get(offset) == data:
            return True
        starts = self._starts
        place = bisect_left(starts, offset)
        before = starts[place - 1] if place else 0
        if place and before + len(self.pieces[before]) > offset:
            return False
        if place < len(starts) and starts[place] < end:
            return False
        if end > _LARGEST or (not more and self.size not in (-1, end)) or (self.size >= 0 and end > self.size):
            return False
        self.size = self.size if more else end
        starts.insert(place, offset)
        self.pieces[offset] = data
        self.received += len(data)
        return True

    @property
    def complete(self) -> bool:
        return self.received == self.size

    def joined(self) -> bytes:
        return b"".join(self.pieces[offset] for offset in self._starts)


class Fragments:
    """Incomplete datagrams.

    Args:
        size: the most bytes that are buffered.
    """

    def __init__(self, size: int) -> None:
        self._most = size
        self._datagrams: OrderedDict[Hashable, _Datagram] = OrderedDict()
        self.size = 0
        "Bytes that are buffered."

    def add(self, key: Hashable, offset: int, data: bytes, more: bool, skipped: Counter[str]) -> bytes | None:
        """Add a fragment; return the whole payload if it is the last one missing.

        Args:
            key: what the fragments of a datagram have in common.
            offset: where ``data`` belongs in the payload.
            data: the payload of the fragment.
            more: the fragment is not the last.
            skipped: counts datagrams that are dropped, by reason.
        """
        datagram = self._datagrams.setdefault(key, _Datagram())
        self._datagrams.move_to_end(key)
        before = datagram.received
        if not data or len(datagram.pieces) >= MOST or not datagram.add(offset, data, more):
            skipped["contradicting fragments"] += 1
            self._drop(key, before)
            return None
        self.size += datagram.received - before
        if datagram.complete:
            self._drop(key, datagram.received)
            return datagram.joined()
        while len(self._datagrams) > MOST or self.size > self._most:
            oldest = next(iter(self._datagrams))
            self._drop(oldest, self._datagrams[oldest].received)
            skipped["incomplete fragments"] += 1
        return None

    def end(self, skipped: Counter[str]) -> None:
        """Count the datagrams that stayed incomplete."""
        skipped["incomplete fragments"] += len(self._datagrams)
        self._datagrams.clear()
        self.size = 0

    def _drop(self, key: Hashable, size: int) -> None:
        del self._datagrams[key]
        self.size -= size
