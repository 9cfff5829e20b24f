"""Find captures that were started while another capture ran, and have the packets that it has.

Rules:

1. The first packets of the later capture are looked for in the earlier one, at their time. That place is found by
   halving the file, so little of it is read. Places are guesses (spans.py), and only equal segments prove anything.
2. Segments are compared only with those of the same direction of the same connection: two captures may have one
   connection in common, and each have others that the other lacks.
3. Nothing is found where the clocks of both captures differ by more than a tenth of a second, and in compressed files,
   which cannot be read from the middle.

Captures that begin with the same packets are found in copies.py.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from afflux.capture.errors import CaptureError
from afflux.capture.network import Network
from afflux.capture.packets import NO_TIME, Packets
from afflux.capture.pcap import HEADER
from afflux.capture.pcapng import Pcapng, Section
from afflux.capture.segments import Segments, segments
from afflux.capture.spans import Span, first_record, format_of, read_at
from afflux.core.limits import Limits

__all__ = ["LEAST", "MOST", "Beginning", "overlapping", "rows_of"]

MOST: Final = 64
"Segments at the beginning of a capture that are compared."
LEAST: Final = 3
"Equal segments that are no accident."
_WAY: Final = 7
"Values of a segment that stand for its direction of its connection."
_PAIRS: Final = 128
"Pairs of captures that are compared at most: each takes about a tenth of a second."
_TAIL: Final = (0x4_0000, 0x100_0000)
"Bytes at the end of a file in which its last packet is looked for: at first, and at last."
_NEAR: Final = 0x10_0000
"Bytes of a file that are read rather than halved."
_SLACK: Final = 100_000_000
"Nanoseconds by which the clocks of two captures may differ."
_READ: Final = 0x200_0000
"Bytes of the earlier capture that are compared at most."


class Beginning(NamedTuple):
    """How a capture begins."""

    time: int
    "The time of its first packet, in nanoseconds; ``NO_TIME`` if it has none."
    compressed: bool
    segments: frozenset[tuple[Hashable, ...]] = frozenset()
    "Its first TCP segments, without their times: ends, direction, sequence numbers, flags and sizes."
    until: int = NO_TIME
    "The time of the last of these segments, in nanoseconds."


def rows_of(found: Segments) -> Iterator[tuple[Hashable, ...]]:
    """Yield what identifies each segment: its direction of its connection, and four values of its own."""
    columns = (*found.low, *found.high, found.rising, found.seq, found.ack, found.flags, found.size + found.cut)
    yield from zip(*(column.tolist() for column in columns), strict=True)


def overlapping(
    captures: Sequence[tuple[Path, Beginning]], known: Collection[tuple[Path, Path]]
) -> Iterator[tuple[Path, Path, int]]:
    """Yield the captures that begin within an earlier one that has their packets, that earlier one, and how many of the
    first segments it has. A file that cannot be read is passed over.

    Args:
        captures: their paths and how they begin.
        known: pairs that need not be compared, the later capture first.
    """
    running: list[_Timeline] = []
    compared = 0
    for path, begin in sorted(captures, key=lambda one: one[1].time):
        if begin.compressed or NO_TIME in (begin.time, begin.until):
            continue
        running = [one for one in running if one.last >= begin.time]
        for earlier in running:
            if (path, earlier.path) not in known and compared < _PAIRS:
                compared += 1
                if count := earlier.has(begin):
                    yield path, earlier.path, count
                    break
        if (line := _timeline(path, begin)) is not None:
            running.append(line)


class _Timeline:
    """The packets of a capture by their time.

    Args:
        path: the file.
        begin: how it begins.

    Raises:
        CaptureError: it is not a capture.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, begin: Beginning) -> None:
        self.path = path
        self._limits = Limits.server()
        self._first = HEADER
        self._section: Section | None = None
        with path.open("rb") as file:
            self._header = file.read(HEADER)
            self._size = file.seek(0, 2)
            if isinstance(format_of(self._header, self._limits), Pcapng):
                span = self._span(file.fileno(), 0)
                next(span.packets(), None)
                self._first, self._section = 0, span.section
            self.last = max(begin.until, self._end(file.fileno()))
            "The time of its last packet, as far as it can be found."

    def has(self, begin: Beginning) -> int:
        """Return how many of the first segments of a later capture this one has; 0 if too few to prove anything."""
        try:
            with self.path.open("rb") as file:
                found = {row for row in self._rows(file.fileno(), begin) if row in begin.segments}
                ways = {row[:_WAY] for row in found}
        except OSError:
            return 0
        shared = sum(row[:_WAY] in ways for row in begin.segments)
        return len(found) if len(found) >= max(LEAST, shared / 2) else 0

    def _rows(self, file: int, begin: Beginning) -> Iterator[tuple[Hashable, ...]]:
        """Yield the segments of the time in which a later capture begins."""
        start, stop = begin.time - _SLACK, begin.until + _SLACK
        span = self._span(file, self._place(file, start))
        first, network = span.end, Network(self._limits)
        for packets in takewhile(lambda one: one.time[0] <= stop and span.end - first <= _READ, span.packets()):
            yield from rows_of(segments(packets, network))

    def _span(self, file: int, start: int) -> Span:
        section = self._section if start else None
        return Span(file, self._header, start, self._size, self._size, section, self._limits)

    def _guess(self, file: int, start: int, stop: int) -> int | None:
        return first_record(file, self._header, start, stop, self._size, self._section, self._limits)

    def _place(self, file: int, time: int) -> int:
        """Return where a record begins after which the packets from a time on come."""
        low, high = self._first, self._size
        while high - low > _NEAR:
            middle = (low + high) // 2
            at = self._guess(file, middle, high)
            packets = None if at is None else self._packet(file, at)
            if at is None or packets is None or packets.time[0] >= time:
                high = middle
            else:
                low = at
        return low

    def _packet(self, file: int, at: int) -> Packets | None:
        """Return the packet whose record begins at a place, perhaps with others."""
        head = read_at(file, 16, at)
        size = format_of(self._header, self._limits).record_size(head) if len(head) == 16 else 0
        stop = min(at + max(size, 16), self._size)
        span = Span(file, self._header, at, stop, stop, self._section if at else None, self._limits)
        return next(span.packets(), None)

    def _end(self, file: int) -> int:
        """Return the time of the last packet; ``NO_TIME`` if it is not found."""
        size = _TAIL[0]
        while size <= _TAIL[1]:
            at = self._first if size >= self._size else self._guess(file, self._size - size, self._size)
            if at is not None:
                times = [int(one.time.max()) for one in self._span(file, at).packets()]
                return max(times, default=NO_TIME)
            size *= 8
        return NO_TIME


def _timeline(path: Path, begin: Beginning) -> _Timeline | None:
    try:
        return _Timeline(path, begin)
    except (CaptureError, OSError):
        return None
