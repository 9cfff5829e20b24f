"""Follow the TCP connections of a capture, and deliver the bytes of each direction in order.

Theory of operation. A batch is sorted by connection and direction. If all segments of a direction continue each other,
which is the common case, their data is delivered in one piece, without a look at the single segments. The segments of
other directions are handled one by one (reassembly.py). So are those of a connection whose consumer has not settled: it
needs both directions in the order of the capture to recognize the protocol. Where bytes are missing, the segments of
the connection may have to wait for the next batch, which tells whether they are lost (missing.py, carrying.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from afflux.capture.carrying import Carried, segments_at
from afflux.capture.connections import Conflict, Connection, Consumer, Entry, Key, Opening, ends_of, keys_of
from afflux.capture.missing import ahead, expected, missing, suspects, verdict
from afflux.capture.packets import PAD, Ints, Packets
from afflux.capture.reassembly import Delivery, Half, Overlap
from afflux.capture.segments import ACK, FIN, RST, SYN, Segments
from afflux.core.limits import Limits

__all__ = ["Conflict", "Connection", "Consumer", "Flows", "Key"]

_RECENT = 0x4000
"Delivered bytes of a direction that are remembered, to compare retransmissions with."
_ROW_BYTES = 64
"Bytes that a segment that has to wait counts as, without its data."
_MOST_CONFLICTS = 1_024
"Conflicts that are listed between two calls of ``Flows.disputes``; the others are only counted."
Flags = npt.NDArray[np.bool_]
_Row = tuple[int, int, int, bool, int]
"The segments of one direction in a batch: direction, first, last, whether to look at each, first sequence number."
_NONE: Ints = np.empty(0, np.int64)
NO_PACKETS = Packets(PAD, 0, 0, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
"A batch without packets."


class Flows:
    """The connections of one capture.

    Args:
        limits: see ``capture_flows``, ``capture_flow_bytes`` and ``capture_bytes``.
        consumer: makes the consumer of a new connection.
        overlap: which copy counts if a segment repeats bytes that wait for earlier ones, with another content. Bytes
            that were delivered are never replaced.
    """

    def __init__(
        self, limits: Limits, consumer: Callable[[Connection], Consumer], *, overlap: Overlap = "first"
    ) -> None:
        self.limits = limits
        self._consumer = consumer
        self._overlap = overlap
        self._conflicts: list[Conflict] = []
        self._table: OrderedDict[Key, Entry] = OrderedDict()
        self._recent: OrderedDict[Half, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._waiting_bytes = 0
        self._carried = Carried()
        self._postponed = 0
        self.packets: Packets = NO_PACKETS
        "The packets of the last batch, after those whose segments had to wait."
        self.segments: Segments | None = None
        "The segments of the last batch that were delivered."
        self.file = ""
        "The file of the packets that are handed over; for ``files``."
        self.files: list[str] = []
        "The files of the first packets of ``packets``, which had to wait."
        self.flow: Ints = np.empty(0, np.int64)
        "The pair of ends of each segment of the last batch, as an index of ``keys``."
        self.keys: list[Key] = []
        "The pairs of ends in the last batch."
        self.connections = 0
        "Connections seen."
        self.dropped = 0
        "Connections that were dropped because there were more than ``capture_flows``."
        self.conflicts = 0
        "Segments with other bytes than an earlier copy."

    def __len__(self) -> int:
        return len(self._table)

    def take(self, packets: Packets, found: Segments) -> None:
        """Deliver what a batch brings, but for the segments that have to wait for later ones. The numbers of packets
        that consumers get are indices of ``packets``."""
        self._take(*self._carried.joined(packets, found), final=False)

    def rest(self) -> bool:
        """The capture has ended: deliver the segments that waited, as a batch. Returns whether there were any."""
        kept = self._carried.last()
        if kept is not None:
            self._take(*kept, final=True)
        return kept is not None

    def _take(self, packets: Packets, found: Segments, files: list[str], *, final: bool) -> None:
        self.packets, self.segments, self.files = packets, found, files
        if not len(found):
            self.flow, self.keys = np.empty(0, np.int64), []
            return
        flow, keys = self.flow, self.keys = keys_of(found)
        special = found.flags & (SYN | FIN | RST) != 0
        suspect = self._suspect(found, flow, keys)
        carrying = np.flatnonzero(special | (found.size + found.cut > 0) | suspect[flow])
        if not len(carrying):
            return
        half = (flow * 2 + found.rising)[carrying]
        sort = np.argsort(half.astype(np.uint16) if len(keys) < 0x8000 else half, kind="stable")
        batch = _Batch(self, packets, found, keys, flow, suspect, final)
        batch.deliver(carrying[sort], half[sort], special[carrying[sort]])
        self._postponed = 0
        if batch.postponed:
            waits = np.zeros(len(found), np.bool_)
            waits[batch.postponed] = True
            self._carried.keep(packets, found, np.flatnonzero(waits), files, self.file)
            self.segments = segments_at(found, ~waits)
            if not waits.all():
                self.flow, self.keys = keys_of(self.segments)

    def _suspect(self, found: Segments, flow: Ints, keys: list[Key]) -> Flags:
        """Return for each pair of ends whether its segments must be looked at one by one, because bytes may be
        missing."""
        entries = [self._table.get(key) for key in keys]
        suspect = suspects(found, flow, np.array([expected(entry) for entry in entries], np.int64).ravel())
        opening = set(flow[found.flags & SYN != 0].tolist())
        for number, entry in enumerate(entries):
            if isinstance(entry, Connection):
                idle = entry.consumer.idle and number not in opening
                suspect[number] = not idle and (suspect[number] or _waits(entry))
        return suspect

    def postpones(self, size: int) -> bool:
        """Count bytes of segments that have to wait; return whether there is room for them."""
        self._postponed += size
        return self._waiting_bytes + self._postponed <= self.limits.capture_bytes

    def disputes(self) -> list[Conflict]:
        """Return the conflicts since the last call, 1,024 at most."""
        found, self._conflicts = self._conflicts, []
        return found

    def dispute(self, connection: Connection, rising: bool, packet: int) -> None:
        """Note the conflicts of a segment that was just fed."""
        self.conflicts += 1
        for position, size in connection.halves[rising].disputed:
            if len(self._conflicts) < _MOST_CONFLICTS:
                self._conflicts.append(Conflict(connection, rising, position, size, packet))

    def end(self) -> None:
        """Deliver what waits, and end all connections."""
        self.rest()
        for connection in self._table.values():
            if isinstance(connection, Connection):
                self.finish(connection)
        self._table.clear()

    def finish(self, connection: Connection, packet: int = -1, *, told: bool = False) -> None:
        """End a connection: missing bytes are gaps. ``told``: the consumer knows the end of both directions."""
        for rising, half in connection.halves.items():
            waits = bool(half.waiting)
            if waits:
                self.too_much(-half.size)
                self.hand_over(connection, rising, half.skip_all(), packet)
            self._recent_bytes -= len(self._recent.pop(half, b""))
            if waits or not told:
                connection.consumer.end(rising, packet)

    def find(self, key: Key) -> Entry | None:
        """Return the current connection between two ends."""
        connection = self._table.get(key)
        if connection is not None:
            self._table.move_to_end(key)
        return connection

    def opening(self, key: Key, opening: Opening | None, rising: bool, seq: int, answer: bool, time: int) -> Opening:
        """Note a SYN. A connection costs little until it has data: captures may contain millions of SYNs."""
        if opening is None or opening.closed or opening.initial[rising] not in (-1, seq):
            opening = Opening(time, rising is not answer)
            self.connections += 1
            self._insert(key, opening)
        opening.initial[rising] = seq
        return opening

    def open(self, key: Key, opening: Opening | None, time: int) -> Connection:
        """Begin a connection, whose SYNs were noted in ``opening`` if the capture has them."""
        halves = {rising: Half(self.limits, self._overlap) for rising in (False, True)}
        if opening is None:
            self.connections += 1
            made = Connection(*ends_of(key), time, halves)
        else:
            made = Connection(*ends_of(key), opening.time, halves, opening.opener, opening.closed)
            for rising, half in halves.items():
                if opening.initial[rising] >= 0:
                    half.begin(opening.initial[rising], synced=True)
        made.consumer = self._consumer(made)
        self._insert(key, made)
        return made

    def retire(self, key: Key, connection: Connection, packet: int, *, told: bool = False) -> Opening:
        """Free a connection that has ended in order, and remember only that it has. ``told``: see ``finish``."""
        self.finish(connection, packet, told=told)
        del connection.consumer  # they know each other, and are freed without the garbage collector
        left = Opening(connection.time, bool(connection.opener))
        left.closed = left.ended = True
        self._table[key] = left
        return left

    def _insert(self, key: Key, entry: Entry) -> None:
        """Insert a connection; the least recently used one is dropped if there are too many."""
        self._table[key] = entry
        self._table.move_to_end(key)
        if len(self._table) > self.limits.capture_flows:
            self.dropped += 1
            _, oldest = self._table.popitem(last=False)
            if isinstance(oldest, Connection):
                self.finish(oldest)

    def hand_over(self, connection: Connection, rising: bool, found: list[Delivery], packet: int) -> None:
        """Give bytes and gaps to the consumer."""
        consumer = connection.consumer
        for delivery in found:
            if isinstance(delivery, int):
                consumer.gap(rising, delivery, packet)
            elif not consumer.idle:
                consumer.data(rising, delivery, (len(delivery),), (packet,))
            self.remember(connection.halves[rising], delivery)

    def remember(self, half: Half, delivered: Delivery) -> None:
        """Remember the last delivered bytes of a direction, within ``capture_bytes``; none from before a gap."""
        before = self._recent.pop(half, b"")
        self._recent_bytes -= len(before)
        if isinstance(delivered, int):
            return
        data = delivered if len(delivered) >= _RECENT else before + delivered
        self._recent[half] = data = data[-_RECENT:]
        self._recent_bytes += len(data)
        while self._recent_bytes > self.limits.capture_bytes // 4:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest)

    def recent(self, half: Half) -> bytes:
        """Return the last delivered bytes of a direction, as far as they are remembered."""
        return self._recent.get(half, b"")

    def too_much(self, change: int) -> bool:
        """Count bytes that wait for missing ones; return whether those of all connections exceed ``capture_bytes``."""
        self._waiting_bytes += change
        return self._waiting_bytes > self.limits.capture_bytes


class _Bulk:
    """Segments as lists, in the order in which they are delivered."""

    __slots__ = ("block", "columns")

    def __init__(self, found: Segments, order: Ints) -> None:
        starts, sizes = found.at[order], found.size[order]
        self.block = memoryview(found.block)
        columns = (sizes, starts, starts + sizes, found.index[order])
        self.columns: tuple[list[int], ...] = tuple(column.tolist() for column in columns)
        "Sizes, where the data begins and ends in the block, packets."


class _Batch:
    """The delivery of one batch."""

    def __init__(
        self, flows: Flows, packets: Packets, found: Segments, keys: list[Key], flow: Ints, suspect: Flags, final: bool
    ) -> None:
        self.postponed: list[int] = []
        "The segments that have to wait for the next batch."
        self._suspect = suspect
        self._final = final
        self._flows = flows
        self._time = packets.time
        self._found = found
        self._keys = keys
        self._flow = flow
        self._rows: list[tuple[int, ...]] = []
        self._bulks: _Bulk | None = None
        self._all: list[Ints] = []

    def deliver(self, order: Ints, half: Ints, special: Flags) -> None:
        """Deliver the segments ``order``, which are sorted by direction."""
        found = self._found
        seq, cut = found.seq[order], found.cut[order]
        after = (seq + found.size[order] + cut) & 0xFFFF_FFFF
        same = half[1:] == half[:-1]
        broken = special | (cut > 0)
        broken[1:] |= same & (seq[1:] != after[:-1])
        starts = np.concatenate(([0], np.flatnonzero(~same) + 1))
        single = np.logical_or.reduceat(broken, starts)
        stops = np.append(starts[1:], len(order))
        rows = zip(
            half[starts].tolist(),
            starts.tolist(),
            stops.tolist(),
            single.tolist(),
            seq[starts].tolist(),
            strict=True,
        )
        queued: list[_Row] = []
        for row in rows:
            if queued and queued[0][0] >> 1 != row[0] >> 1:
                self._connection(queued, order, special)
                queued = []
            queued.append(row)
        self._connection(queued, order, special)

    def _connection(self, rows: list[_Row], order: Ints, special: Flags) -> None:
        """Deliver the segments of one connection: one or two directions."""
        flow = rows[0][0] >> 1
        key = self._keys[flow]
        connection = self._flows.find(key)
        start, stop = rows[0][1], rows[-1][2]
        judged = bool(self._suspect[flow])
        if isinstance(connection, Connection) and not judged:
            if connection.consumer.idle and not special[start:stop].any():
                return
            if connection.consumer.settled and self._plain(connection, rows):
                for half, first, last, _, _ in rows:
                    self._bulk(connection, bool(half & 1), order, first, last)
                return
        self._single(key, connection, self._segments(flow).tolist(), judged)

    def _single(self, key: Key, entry: Entry | None, numbers: list[int], judged: bool) -> None:
        """Deliver the segments of a connection one by one, and those that continue both directions together if that is
        allowed. ``judged``: bytes may be missing."""
        rows, place, last = self._all_rows(), 0, len(numbers)
        until = [0, 0]
        while place < last:
            row = rows[numbers[place]]
            if judged and not (isinstance(entry, Connection) and entry.consumer.idle):
                gap = missing(entry, row, (place < until[0], place < until[1]))
                if gap is not None:
                    found, lost = verdict(entry, gap, rows, numbers, place, self._flows.limits, self._final)
                    if found >= 0:
                        until[gap.rising] = found
                    elif lost or not self._postpone(numbers[place:]):
                        entry = self._lose(key, entry, gap.rising, lost or gap.size, row)
                        continue
                    else:
                        return
            _, _, _, _, flags, _, size, cut, _ = row
            if not flags & (SYN | FIN | RST) and not cut:
                if not (size or _waits(entry)):
                    place += 1
                    continue
                if isinstance(entry, Connection) and entry.consumer.settled and not entry.consumer.idle:
                    stop = self._run(entry, numbers, place, judged)
                    if stop > place:
                        place = stop
                        continue
            entry = self._segment(key, entry, row)
            place += 1

    def _postpone(self, numbers: list[int]) -> bool:
        """Let segments wait for the next batch, if there is room for them."""
        rows = self._all_rows()
        if not self._flows.postpones(sum(_ROW_BYTES + rows[number][6] for number in numbers)):
            return False
        self.postponed += numbers
        return True

    def _lose(self, key: Key, entry: Entry | None, rising: bool, size: int, row: tuple[int, ...]) -> Connection:
        """Bytes before a segment are lost; return the connection."""
        flows = self._flows
        connection = entry if isinstance(entry, Connection) else flows.open(key, entry, row[0])
        half = connection.halves[rising]
        before = half.size
        flows.hand_over(connection, rising, half.lose(size), row[1])
        flows.too_much(half.size - before)
        return connection

    def _run(self, connection: Connection, numbers: list[int], place: int, judged: bool) -> int:
        """Deliver segments that continue both directions, up to the first that does not; return its place. ``judged``:
        also up to the first that shows that bytes are missing."""
        halves, rows = connection.halves, self._all_rows()
        if halves[False].waiting or halves[True].waiting:
            return place
        following = [halves[rising].expected for rising in (False, True)]
        runs: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
        while place < len(numbers):
            row = rows[numbers[place]]
            _, _, seq, ack, flags, _, size, cut, rising = row
            if flags & (SYN | FIN | RST) or cut:
                break
            if judged and (
                (not size and ahead(seq, following[rising]) > 0)
                or (flags & ACK and following[1 - rising] >= 0 and ahead(ack, following[1 - rising]) > 1)
            ):
                break
            if size:
                if seq != following[rising] or halves[bool(rising)].end is not None:
                    break
                following[rising] = (seq + size) & 0xFFFF_FFFF
                runs[rising].append(row)
            place += 1
        for rising, run in ((False, runs[0]), (True, runs[1])):
            if run:
                self._deliver(connection, rising, run)
        return place

    def _deliver(self, connection: Connection, rising: bool, run: list[tuple[int, ...]]) -> None:
        """Deliver segments of one direction that continue each other."""
        block, half = self._found.block, connection.halves[rising]
        data = b"".join([block[row[5] : row[5] + row[6]] for row in run])
        half.advance(len(data))
        self._flows.remember(half, data)
        ends = list(accumulate(row[6] for row in run))
        connection.consumer.data(rising, data, ends, [row[1] for row in run])

    def _segments(self, flow: int) -> Ints:
        """All segments of a connection, those without data included: they acknowledge."""
        if not self._all:
            order = np.argsort(self._flow, kind="stable")
            self._all = np.split(order, np.flatnonzero(np.diff(self._flow[order])) + 1)
        return self._all[flow]

    def _plain(self, connection: Connection, rows: list[_Row]) -> bool:
        """Whether all segments continue their directions, and no bytes wait."""
        if any(half.waiting for half in connection.halves.values()):
            return False
        for half, _, _, single, first in rows:
            state = connection.halves[bool(half & 1)]
            if single or state.expected != first:
                return False
        return True

    def _bulk(self, connection: Connection, rising: bool, order: Ints, first: int, last: int) -> None:
        """Deliver segments that continue each other."""
        if self._bulks is None:
            self._bulks = _Bulk(self._found, order)
        sizes, starts, stops, packets = (column[first:last] for column in self._bulks.columns)
        ends = list(accumulate(sizes))
        half, consumer = connection.halves[rising], connection.consumer
        half.advance(ends[-1])
        if consumer.idle:
            return
        block = self._bulks.block
        data = b"".join([block[start:stop] for start, stop in zip(starts, stops, strict=True)])
        self._flows.remember(half, data)
        consumer.data(rising, data, ends, packets)

    def _all_rows(self) -> list[tuple[int, ...]]:
        """The segments of the batch: time, packet, seq, ack, flags, at, size, cut, rising."""
        if not self._rows:
            found = self._found
            columns = (found.index, found.seq, found.ack, found.flags, found.at, found.size, found.cut, found.rising)
            listed = [self._time[found.index].tolist(), *(column.tolist() for column in columns)]
            self._rows = list(zip(*listed, strict=True))
        return self._rows

    def _segment(self, key: Key, entry: Entry | None, row: tuple[int, ...]) -> Entry | None:
        """Deliver one segment; return the connection that it belongs to, None before a connection begins."""
        time, packet, seq, _, flags, at, size, cut, way = row
        rising = bool(way)
        if flags & SYN:
            entry = self._opened(key, entry, rising, seq, flags, time, packet)
            if isinstance(entry, Opening) and not (size or cut or flags & (FIN | RST)):
                return entry
        elif isinstance(entry, Connection) and entry.consumer.idle:
            return entry
        if not (size or cut or flags & FIN) or (isinstance(entry, Opening) and entry.ended):
            if isinstance(entry, Connection):
                self._closed(entry, flags, packet)
            elif entry is not None:
                entry.closed |= bool(flags & RST)
            return entry
        flows = self._flows
        connection = entry if isinstance(entry, Connection) else flows.open(key, entry, time)
        half, other = connection.halves[rising], connection.halves[not rising]
        if half.expected < 0:
            half.begin(seq, synced=False)
        seq = (seq + bool(flags & SYN)) & 0xFFFF_FFFF
        before = half.size
        if size or cut:
            self._data(connection, rising, seq, self._found.block[at : at + size], cut, packet)
        if flags & FIN:
            half.finish((seq + size + cut) & 0xFFFF_FFFF)
        if half.size != before and flows.too_much(half.size - before):
            before = half.size
            flows.hand_over(connection, rising, half.skip_all(), packet)
            flows.too_much(-before)
        self._closed(connection, flags, packet)
        return flows.retire(key, connection, packet, told=True) if half.ended and other.ended else connection

    def _data(self, connection: Connection, rising: bool, seq: int, data: bytes, cut: int, packet: int) -> None:
        """Deliver the data of one segment, or let it wait."""
        half, flows = connection.halves[rising], self._flows
        if seq == half.expected and not cut and not half.waiting:
            half.disputed.clear()
            half.advance(len(data))
            flows.hand_over(connection, rising, [data], packet)
            return
        flows.hand_over(connection, rising, half.feed(seq, data, cut, flows.recent(half)), packet)
        if half.disputed:
            flows.dispute(connection, rising, packet)

    def _opened(
        self, key: Key, connection: Entry | None, rising: bool, seq: int, flags: int, time: int, packet: int
    ) -> Entry:
        """Return the connection of a SYN: one with another number than before begins a new connection."""
        if isinstance(connection, Connection):
            half = connection.halves[rising]
            if half.initial == seq:
                return connection
            if half.expected < 0 and not connection.closed:
                half.begin(seq, synced=True)
                return connection
            self._flows.finish(connection, packet)
            connection = None
        return self._flows.opening(key, connection, rising, seq, bool(flags & ACK), time)

    def _closed(self, connection: Connection, flags: int, packet: int) -> None:
        """Report directions that have ended."""
        if flags & RST:
            connection.closed = True
            self._flows.finish(connection, packet)
            return
        ended = 0
        for rising, half in connection.halves.items():
            if half.end is not None and half.position >= half.end:
                ended += 1
                connection.consumer.end(rising, packet)
        connection.closed |= ended == 2


def _waits(entry: Entry | None) -> bool:
    """Whether bytes of a connection wait for missing ones."""
    return isinstance(entry, Connection) and bool(entry.halves[False].waiting or entry.halves[True].waiting)
