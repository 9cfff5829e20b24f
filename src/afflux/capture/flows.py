"""Follow the TCP connections of a capture, and deliver the bytes of each direction in order.

Theory of operation. A batch is sorted by connection and direction. If all segments of a direction continue each other,
which is the common case, their data is delivered in one piece, without a look at the single segments. The segments of
other directions are handled one by one (reassembly.py). So are those of a connection whose consumer has not settled: it
needs both directions in the order of the capture to recognize the protocol.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from afflux.capture.connections import Conflict, Connection, Consumer, Entry, Key, Opening, ends_of, keys_of
from afflux.capture.packets import Ints, Packets
from afflux.capture.reassembly import Delivery, Half, Overlap
from afflux.capture.segments import ACK, FIN, RST, SYN, Segments
from afflux.core.limits import Limits

__all__ = ["Conflict", "Connection", "Consumer", "Flows", "Key"]

_RECENT = 0x4000
"Delivered bytes of a direction that are remembered, to compare retransmissions with."
_MOST_CONFLICTS = 1_024
"Conflicts that are listed between two calls of ``Flows.disputes``; the others are only counted."
Flags = npt.NDArray[np.bool_]
_Row = tuple[int, int, int, bool, int]
"The segments of one direction in a batch: direction, first, last, whether to look at each, first sequence number."


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
        self._limits = limits
        self._consumer = consumer
        self._overlap = overlap
        self._conflicts: list[Conflict] = []
        self._table: OrderedDict[Key, Entry] = OrderedDict()
        self._recent: OrderedDict[Half, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._waiting_bytes = 0
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
        """Deliver what a batch brings."""
        if not len(found):
            self.flow, self.keys = np.empty(0, np.int64), []
            return
        flow, keys = self.flow, self.keys = keys_of(found)
        waiting = np.array([self._waits(key) for key in keys], np.bool_)[flow]
        special = found.flags & (SYN | FIN | RST) != 0
        carrying = np.flatnonzero(special | (found.size + found.cut > 0) | waiting)
        if not len(carrying):
            return
        half = (flow * 2 + found.rising)[carrying]
        sort = np.argsort(half.astype(np.uint16) if len(keys) < 0x8000 else half, kind="stable")
        _Batch(self, packets, found, keys, flow).deliver(carrying[sort], half[sort], special[carrying[sort]])

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
        halves = {rising: Half(self._limits, self._overlap) for rising in (False, True)}
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
        if len(self._table) > self._limits.capture_flows:
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
        while self._recent_bytes > self._limits.capture_bytes // 4:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest)

    def recent(self, half: Half) -> bytes:
        """Return the last delivered bytes of a direction, as far as they are remembered."""
        return self._recent.get(half, b"")

    def too_much(self, change: int) -> bool:
        """Count bytes that wait for missing ones; return whether those of all connections exceed ``capture_bytes``."""
        self._waiting_bytes += change
        return self._waiting_bytes > self._limits.capture_bytes

    def _waits(self, key: Key) -> bool:
        return _waits(self._table.get(key))


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

    def __init__(self, flows: Flows, packets: Packets, found: Segments, keys: list[Key], flow: Ints) -> None:
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
        key = self._keys[rows[0][0] >> 1]
        connection = self._flows.find(key)
        start, stop = rows[0][1], rows[-1][2]
        if isinstance(connection, Connection):
            if connection.consumer.idle and not special[start:stop].any():
                return
            if connection.consumer.settled and self._plain(connection, rows):
                for half, first, last, _, _ in rows:
                    self._bulk(connection, bool(half & 1), order, first, last)
                return
        self._single(key, connection, self._segments(rows[0][0] >> 1).tolist())

    def _single(self, key: Key, entry: Entry | None, numbers: list[int]) -> None:
        """Deliver the segments of a connection one by one, and those that continue both directions together if that is
        allowed."""
        rows, place, last = self._all_rows(), 0, len(numbers)
        while place < last:
            row = rows[numbers[place]]
            _, _, _, _, flags, _, size, cut, _ = row
            if not flags & (SYN | FIN | RST) and not cut:
                if not (size or _waits(entry)):
                    place += 1
                    continue
                if isinstance(entry, Connection) and entry.consumer.settled and not entry.consumer.idle:
                    stop = self._run(entry, numbers, place)
                    if stop > place:
                        place = stop
                        continue
            entry = self._segment(key, entry, row)
            place += 1

    def _run(self, connection: Connection, numbers: list[int], place: int) -> int:
        """Deliver segments that continue both directions, up to the first that does not; return its place."""
        halves, rows = connection.halves, self._all_rows()
        if halves[False].waiting or halves[True].waiting:
            return place
        expected = [halves[rising].expected for rising in (False, True)]
        runs: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
        while place < len(numbers):
            row = rows[numbers[place]]
            _, _, seq, _, flags, _, size, cut, rising = row
            if flags & (SYN | FIN | RST) or cut:
                break
            if size:
                if seq != expected[rising] or halves[bool(rising)].end is not None:
                    break
                expected[rising] = (seq + size) & 0xFFFF_FFFF
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
        time, packet, seq, ack, flags, at, size, cut, way = row
        rising = bool(way)
        if flags & SYN:
            entry = self._opened(key, entry, rising, seq, flags, time, packet)
            if isinstance(entry, Opening) and not (size or cut or flags & (FIN | RST)):
                return entry
        elif isinstance(entry, Connection) and entry.consumer.idle:
            return entry
        if not (size or cut or flags & FIN) or (isinstance(entry, Opening) and entry.ended):
            if isinstance(entry, Connection):
                self._acknowledged(entry, rising, flags, ack, time, packet)
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
            self._data(connection, rising, seq, self._found.block[at : at + size], cut, time, packet)
        if flags & FIN:
            half.finish((seq + size + cut) & 0xFFFF_FFFF)
        if half.size != before and flows.too_much(half.size - before):
            before = half.size
            flows.hand_over(connection, rising, half.skip_all(), packet)
            flows.too_much(-before)
        self._acknowledged(connection, rising, flags, ack, time, packet)
        return flows.retire(key, connection, packet, told=True) if half.ended and other.ended else connection

    def _data(
        self, connection: Connection, rising: bool, seq: int, data: bytes, cut: int, time: int, packet: int
    ) -> None:
        """Deliver the data of one segment, or let it wait."""
        half, flows = connection.halves[rising], self._flows
        if seq == half.expected and not cut and not half.waiting:
            half.disputed.clear()
            half.advance(len(data))
            flows.hand_over(connection, rising, [data], packet)
            return
        flows.hand_over(connection, rising, half.feed(seq, data, cut, time, flows.recent(half)), packet)
        if half.disputed:
            flows.dispute(connection, rising, packet)

    def _acknowledged(self, connection: Connection, rising: bool, flags: int, ack: int, time: int, packet: int) -> None:
        """Apply the flags of a segment whose data was delivered."""
        other = connection.halves[not rising]
        if flags & ACK and other.waiting:
            before = other.size
            self._flows.hand_over(connection, not rising, other.acknowledged(ack, time), packet)
            self._flows.too_much(other.size - before)
        self._closed(connection, flags, packet)

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
