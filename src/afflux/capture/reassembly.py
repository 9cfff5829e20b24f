"""Put the segments of one direction of a TCP connection in order.

1. Positions count the bytes of the direction from its first one. They do not wrap, sequence numbers do.
2. The first copy of a byte wins. A later copy is counted, and compared with the first where that is still known. The
   policy ``last`` lets a later copy replace bytes that wait. Delivered bytes are never replaced: a receiver has them.
3. Bytes after missing ones wait. They are released when the missing bytes arrive, or when a gap is declared: because
   the capture has lost them (missing.py), because a limit is reached, or because the connection or the capture ends.
   The size of a gap is known.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from afflux.capture.packets import Ints
from afflux.core.limits import Limits

__all__ = ["FARTHEST", "Counts", "Delivery", "Half", "Overlap", "ahead", "cut_short"]

FARTHEST = 1 << 30
"A segment this far from the expected one, in bytes, is outside any window (RFC 7323)."

Delivery = bytes | int
"Bytes in order, or the size of a gap."
Overlap = Literal["first", "last"]
"Which copy of waiting bytes is delivered."
_Seq = TypeVar("_Seq", int, Ints)


def ahead(a: _Seq, b: _Seq) -> _Seq:
    """Return how far a sequence number is ahead of another one, or each of many."""
    return ((a - b + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


@dataclass(slots=True)
class Counts:
    """Counters of one direction."""

    data: int = 0
    "Bytes delivered."
    retransmitted: int = 0
    "Bytes that had arrived before, or were waiting."
    reordered: int = 0
    "Segments that arrived before earlier bytes."
    conflicts: int = 0
    "Segments with other bytes than an earlier copy."
    conflicting: int = 0
    "Bytes that differ from an earlier copy."
    gaps: int = 0
    "Gaps."
    lost: int = 0
    "Bytes in gaps."
    cut: int = 0
    "Bytes in gaps that packets of the capture had: a snap length has cut them off."
    kept: int = -1
    "The most data of a packet that is cut short, in bytes; -1 if none is."
    strays: int = 0
    "Segments far outside the window."


def cut_short(kept: int) -> str:
    """Return in words that packets are cut short; empty if none is. ``kept``: see ``Counts``."""
    return f"a snap length cuts packets after {kept} bytes of data" if kept >= 0 else ""


class Half:
    """One direction of a connection.

    Args:
        limits: see ``capture_flow_bytes`` and ``capture_holes``.
        overlap: which copy of waiting bytes is delivered.
    """

    __slots__ = (
        "_last", "_limits", "acked", "counts", "disputed", "end", "expected", "initial", "position", "size", "synced",
        "waiting",
    )  # fmt: skip

    def __init__(self, limits: Limits, overlap: Overlap = "first") -> None:
        self._limits = limits
        self._last = overlap == "last"
        self.counts = Counts()
        self.expected = -1
        "The sequence number of the next byte; -1 before the first segment."
        self.acked = -1
        "What the other side acknowledged with the first data of the connection, without a SYN; -1 for none."
        self.initial = -1
        "The sequence number of the SYN; -1 if the capture has none."
        self.position = 0
        "The position of the next byte."
        self.size = 0
        "Bytes that wait."
        self.synced = False
        "The direction was seen from its first byte."
        self.disputed: list[tuple[int, int]] = []
        "Where bytes of the last segment differ from an earlier copy: the first one's position, and how many differ."
        self.waiting: list[tuple[int, int, bytes]] = []
        "The pieces that wait for missing bytes: position, size, and data, none if it was cut off."
        self.end: int | None = None
        "The position of the FIN; None before it was seen."

    @property
    def ended(self) -> bool:
        """Whether all bytes up to the FIN were delivered."""
        return self.end is not None and self.position >= self.end

    def begin(self, seq: int, *, synced: bool) -> None:
        """Start with the byte after ``seq`` if that is a SYN, else with the byte at ``seq``."""
        self.synced = synced
        self.initial = seq if synced else -1
        self.expected = (seq + synced) & 0xFFFF_FFFF

    def advance(self, data: int) -> None:
        """Count ``data`` bytes that continue the direction. Only for a direction without waiting bytes."""
        self.counts.data += data
        self.position += data
        self.expected = (self.expected + data) & 0xFFFF_FFFF

    def feed(self, seq: int, data: bytes, cut: int, recent: bytes) -> list[Delivery]:
        """Add a segment; return what is in order now.

        Args:
            seq: its sequence number.
            data: its captured data.
            cut: bytes after them that were not captured.
            recent: the last bytes that were delivered, as far as they are known, to compare copies with.
        """
        if self.disputed:
            self.disputed = []
        if cut:
            self.counts.kept = max(self.counts.kept, len(data))
        early = ahead(seq, self.expected)
        if abs(early) > FARTHEST:
            self.counts.strays += 1
            return []
        if early > 0:
            self.counts.reordered += 1
            self._insert(self.position + early, data, cut)
            return self._bounded()
        if early < 0:
            self._compare(data, -early, recent)
            self.counts.retransmitted += min(len(data) + cut, -early)
            cut = max(0, min(cut, cut + len(data) + early))
            data = data[-early:]
        if not data and not cut:
            return []
        if self.waiting and self.position + len(data) + cut > self.waiting[0][0]:
            self._insert(self.position, data, cut)
            return self._released()
        return [*self._delivered(data, cut), *self._released()]

    def finish(self, seq: int) -> None:
        """Note a FIN after the byte before ``seq``."""
        early = ahead(seq, self.expected)
        if self.end is None and 0 <= early <= FARTHEST:
            self.end = self.position + early

    def lose(self, size: int) -> list[Delivery]:
        """The next ``size`` bytes are missing, of which none wait: return the gap and what follows it."""
        return [*self._gap(size), *self._released()]

    def skip(self) -> list[Delivery]:
        """Declare the missing bytes before the first waiting ones a gap; return the gap and what follows it."""
        return self.lose(self.waiting[0][0] - self.position) if self.waiting else []

    def skip_all(self) -> list[Delivery]:
        """Declare all missing bytes gaps."""
        found: list[Delivery] = []
        while self.waiting:
            found += self.skip()
        return found

    # -- inside -------------------------------------------------------------------------------------------------

    def _gap(self, size: int) -> list[Delivery]:
        self.counts.gaps += 1
        self.counts.lost += size
        self.position += size
        self.expected = (self.expected + size) & 0xFFFF_FFFF
        return [size]

    def _delivered(self, data: bytes, cut: int) -> list[Delivery]:
        self.advance(len(data))
        found: list[Delivery] = [data] if data else []
        self.counts.cut += cut
        return found + self._gap(cut) if cut else found

    def _insert(self, at: int, data: bytes, cut: int) -> None:
        """Let the bytes at a position wait, as far as none wait there."""
        if data:
            self._fill(at, data, len(data))
        if cut:
            self._fill(at + len(data), b"", cut)

    def _fill(self, at: int, data: bytes, size: int) -> None:
        """Insert a piece into the holes between the waiting ones; ``data`` is empty for bytes that were cut off."""
        waiting, end, copies = self.waiting, at + size, 0
        number = max(0, bisect_left(waiting, (at,)) - 1)
        while at < end:
            while number < len(waiting) and waiting[number][0] + waiting[number][1] <= at:
                number += 1
            start, length, other = waiting[number] if number < len(waiting) else (end, 0, b"")
            if at < start:
                stop = min(start, end)
                waiting.insert(number, (at, stop - at, data[: stop - at]))
                self.size += stop - at if data else 0
            else:
                stop = min(start + length, end)
                copies += stop - at
                if (
                    data
                    and other
                    and self._differs(at, data[: stop - at], other[at - start : stop - start])
                    and self._last
                ):
                    mended = other[: at - start] + data[: stop - at] + other[stop - start :]
                    waiting[number] = (start, length, mended)
            data, at = data[stop - at :], stop
            number += 1
        self.counts.retransmitted += copies

    def _differs(self, at: int, data: bytes, other: bytes) -> bool:
        """Compare a copy of the bytes at a position with the earlier one."""
        if data == other:
            return False
        places = np.flatnonzero(np.frombuffer(data, np.uint8) != np.frombuffer(other, np.uint8))
        self.counts.conflicts += not self.disputed
        self.counts.conflicting += len(places)
        self.disputed.append((at + int(places[0]), len(places)))
        return True

    def _compare(self, data: bytes, back: int, recent: bytes) -> None:
        """Compare a copy that begins ``back`` bytes before the next one with the bytes delivered."""
        known = min(back, len(recent))
        copy = data[back - known : back]
        self._differs(self.position - known, copy, recent[len(recent) - known :][: len(copy)])

    def _released(self) -> list[Delivery]:
        """Return the waiting pieces that continue the direction now."""
        found: list[Delivery] = []
        count = 0
        for start, size, data in self.waiting:
            if start != self.position:
                break
            count += 1
            self.size -= len(data)
            found += self._delivered(data, 0 if data else size)
        del self.waiting[:count]
        return found

    def _bounded(self) -> list[Delivery]:
        """Declare a gap if too much waits."""
        found: list[Delivery] = []
        limits = self._limits
        while self.size > limits.capture_flow_bytes or len(self.waiting) > limits.capture_holes:
            found += self.skip()
        return found
