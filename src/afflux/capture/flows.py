"""Follow the TCP connections of a capture, and deliver the bytes of each direction in order.

Theory of operation. A batch is sorted by connection and direction. Where all segments of a direction continue each
other, which is the rule, their data is delivered in one piece, without a look at the single segments. Other directions
are handled segment by segment (reassembly.py), and so are connections whose consumer needs both directions in the order
of the capture, because it does not yet know what they carry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt

from afflux.capture.packets import Ints, Packets
from afflux.capture.reassembly import Delivery, Half
from afflux.capture.segments import ACK, FIN, RST, SYN, End, Segments
from afflux.core.limits import Limits

__all__ = ["Connection", "Consumer", "Flows"]

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RECENT = 0x4000
"Delivered bytes of a direction that are remembered, to compare retransmissions with."
Flags = npt.NDArray[np.bool_]
_Row = tuple[int, int, int, bool, int]
"The segments of one direction in a batch: direction, first, last, whether to look at each, first sequence number."
Key = tuple[int, int, int, int, int, int]


class Consumer(Protocol):
    """The receiver of the bytes of one connection. ``rising`` is the direction (see ``Segments.rising``). A packet is
    an index in the current batch, -1 after the last batch."""

    settled: bool
    "The directions may be delivered independently, each in larger pieces."
    idle: bool
    "The bytes are of no interest any more."

    def data(self, rising: bool, data: bytes, ends: Sequence[int], packets: Sequence[int]) -> None:
        """Take bytes. The packet ``packets[i]`` brought the bytes before ``ends[i]``."""

    def gap(self, rising: bool, size: int, packet: int) -> None:
        """The next ``size`` bytes are missing."""

    def end(self, rising: bool, packet: int) -> None:
        """The direction has ended; it may end twice."""


@dataclass(eq=False, slots=True)
class Connection:
    """One TCP connection."""

    low: End
    "The end that sorts first."
    high: End
    "The other end."
    time: int
    "When its first packet was captured, in nanoseconds."
    halves: dict[bool, Half]
    "Its directions, by ``rising``."
    consumer: Consumer = field(init=False)
    opener: bool | None = None
    "The direction of the side that opened it; None if the capture does not show it."
    closed: bool = False
    "A RST was seen, or both FINs."
    _id: str = ""

    @property
    def id(self) -> str:
        """A letter and 11 characters that depend on the two ends and the time of the first packet."""
        if not self._id:
            text = repr((self.low, self.high, self.time)).encode()
            number = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
            for _ in range(11):
                number, digit = divmod(number, len(_DIGITS))
                self._id += _DIGITS[digit]
        return "C" + self._id


class Flows:
    """The connections of one capture.

    Args:
        limits: see ``capture_flows``, ``capture_flow_bytes`` and ``capture_bytes``.
        consumer: makes the consumer of a new connection.
    """

    def __init__(self, limits: Limits, consumer: Callable[[Connection], Consumer]) -> None:
        self._limits = limits
        self._consumer = consumer
        self._table: OrderedDict[Key, Connection] = OrderedDict()
        self._recent: OrderedDict[Half, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._waiting_bytes = 0
        self.connections = 0
        "Connections seen."
        self.dropped = 0
        "Connections that were dropped because there were more than ``capture_flows``."

    def __len__(self) -> int:
        return len(self._table)

    def take(self, packets: Packets, found: Segments) -> None:
        """Deliver what a batch brings."""
        if not len(found):
            return
        flow, keys = _keys(found)
        waiting = np.array([self._waits(key) for key in keys], np.bool_)[flow]
        special = found.flags & (SYN | FIN | RST) != 0
        carrying = np.flatnonzero(special | (found.size + found.cut > 0) | waiting)
        if not len(carrying):
            return
        half = (flow * 2 + found.rising)[carrying]
        sort = np.argsort(half.astype(np.uint16) if len(keys) < 0x8000 else half, kind="stable")
        _Batch(self, packets, found, keys, flow).deliver(carrying[sort], half[sort], special[carrying[sort]])

    def end(self) -> None:
        """Deliver what waits, and end all connections."""
        for connection in self._table.values():
            self.finish(connection)
        self._table.clear()

    def finish(self, connection: Connection, packet: int = -1) -> None:
        """End a connection: missing bytes are gaps."""
        for rising, half in connection.halves.items():
            self.too_much(-half.size)
            self.hand_over(connection, rising, half.skip_all(), packet)
            self._forget(half)
            connection.consumer.end(rising, packet)

    def find(self, key: Key) -> Connection | None:
        """Return the current connection between two ends."""
        connection = self._table.get(key)
        if connection is not None:
            self._table.move_to_end(key)
        return connection

    def open(self, key: Key, time: int) -> Connection:
        """Begin a connection; the least recently used one is dropped if there are too many."""
        halves = {rising: Half(self._limits) for rising in (False, True)}
        made = Connection(key[:3], key[3:], time, halves)
        made.consumer = self._consumer(made)
        self.connections += 1
        self._table[key] = made
        self._table.move_to_end(key)
        if len(self._table) > self._limits.capture_flows:
            self.dropped += 1
            _, oldest = self._table.popitem(last=False)
            self.finish(oldest)
        return made

    def hand_over(self, connection: Connection, rising: bool, found: list[Delivery], packet: int) -> None:
        """Give bytes and gaps to the consumer."""
        consumer = connection.consumer
        for delivery in found:
            if isinstance(delivery, int):
                consumer.gap(rising, delivery, packet)
            elif not consumer.idle:
                consumer.data(rising, delivery, (len(delivery),), (packet,))
        if found:
            last = found[-1]
            self.remember(connection.halves[rising], last if isinstance(last, bytes) else b"")

    def remember(self, half: Half, data: bytes) -> None:
        """Remember the last delivered bytes of a direction, within ``capture_bytes``."""
        self._forget(half)
        self._recent[half] = data = data[-_RECENT:]
        self._recent_bytes += len(data)
        while self._recent_bytes > self._limits.capture_bytes // 4:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest)

    def recent(self, half: Half) -> bytes:
        """Return the last delivered bytes of a direction, as far as they are remembered."""
        return self._recent.get(half, b"")

    def _forget(self, half: Half) -> None:
        self._recent_bytes -= len(self._recent.pop(half, b""))

    def too_much(self, change: int) -> bool:
        """Count bytes that wait for missing ones; return whether those of all connections exceed ``capture_bytes``."""
        self._waiting_bytes += change
        return self._waiting_bytes > self._limits.capture_bytes

    def _waits(self, key: Key) -> bool:
        connection = self._table.get(key)
        return connection is not None and any(half.waiting for half in connection.halves.values())


class _Batch:
    """The delivery of one batch."""

    def __init__(self, flows: Flows, packets: Packets, found: Segments, keys: list[Key], flow: Ints) -> None:
        self._flows = flows
        self._time = packets.time
        self._found = found
        self._keys = keys
        self._flow = flow
        self._columns: list[list[int]] = []
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
        if connection is not None and connection.consumer.idle and not special[start:stop].any():
            return
        if connection is not None and connection.consumer.settled and self._plain(connection, rows):
            for half, first, last, _, _ in rows:
                self._bulk(connection, bool(half & 1), order[first:last])
            return
        for number in self._segments(rows[0][0] >> 1).tolist():
            connection = self._segment(key, connection, number)

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

    def _bulk(self, connection: Connection, rising: bool, order: Ints) -> None:
        """Deliver segments that continue each other."""
        found = self._found
        sizes = found.size[order]
        ends = np.cumsum(sizes)
        half, consumer = connection.halves[rising], connection.consumer
        half.advance(int(ends[-1]))
        if consumer.idle:
            return
        block = memoryview(found.block)
        starts = found.at[order]
        pieces = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        data = b"".join([block[start:stop] for start, stop in pieces])
        self._flows.remember(half, data)
        consumer.data(rising, data, ends.tolist(), found.index[order].tolist())

    def _segment(self, key: Key, connection: Connection | None, number: int) -> Connection | None:
        """Deliver one segment; return the connection that it belongs to, None before a connection begins."""
        found = self._found
        if not self._columns:
            columns = (found.index, found.seq, found.ack, found.flags, found.at, found.size, found.cut, found.rising)
            self._columns = [self._time[found.index].tolist(), *(column.tolist() for column in columns)]
        time, packet, seq, ack, flags, at, size, cut, rising = (column[number] for column in self._columns)
        rising = bool(rising)
        if connection is not None and connection.consumer.idle and not flags & SYN:
            return connection
        flows = self._flows
        if not (size or cut or flags & (SYN | FIN | RST)):
            if connection is not None:
                other = connection.halves[not rising]
                before = other.size
                flows.hand_over(connection, not rising, other.acknowledged(ack, time), packet)
                flows.too_much(other.size - before)
            return connection
        connection = self._opened(key, connection, rising, seq, flags, time, packet)
        half, other = connection.halves[rising], connection.halves[not rising]
        seq = (seq + bool(flags & SYN)) & 0xFFFF_FFFF
        before = half.size + other.size
        if size or cut:
            data = found.block[at : at + size]
            flows.hand_over(connection, rising, half.feed(seq, data, cut, time, flows.recent(half)), packet)
        if flags & FIN:
            half.finish((seq + size + cut) & 0xFFFF_FFFF)
        if flags & ACK:
            flows.hand_over(connection, not rising, other.acknowledged(ack, time), packet)
        if flows.too_much(half.size + other.size - before):
            before = half.size
            flows.hand_over(connection, rising, half.skip_all(), packet)
            flows.too_much(-before)
        self._closed(connection, flags, packet)
        return connection

    def _opened(
        self, key: Key, connection: Connection | None, rising: bool, seq: int, flags: int, time: int, packet: int
    ) -> Connection:
        """Return the connection that a segment belongs to: a SYN with another number than before begins a new one."""
        syn = bool(flags & SYN)
        if connection is not None and syn:
            half = connection.halves[rising]
            if half.initial == seq:
                return connection
            if half.expected >= 0 or connection.closed:
                self._flows.finish(connection, packet)
                connection = None
        connection = connection or self._flows.open(key, time)
        half = connection.halves[rising]
        if half.expected < 0:
            half.begin(seq, synced=syn)
        if syn and connection.opener is None:
            connection.opener = rising is not bool(flags & ACK)
        return connection

    def _closed(self, connection: Connection, flags: int, packet: int) -> None:
        """Report directions that have ended."""
        if flags & RST:
            connection.closed = True
            self._flows.finish(connection, packet)
            return
        for rising, half in connection.halves.items():
            if half.ended:
                connection.consumer.end(rising, packet)
        connection.closed |= all(half.ended for half in connection.halves.values())


def _keys(found: Segments) -> tuple[Ints, list[Key]]:
    """Return the distinct pairs of ends, and the number of each segment's pair. Only where the pair changes from one
    segment to the next is it looked up."""
    columns = (*found.low, *found.high)
    changes = np.zeros(len(found) - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    numbers: dict[Key, int] = {}
    rows = zip(*(column[starts].tolist() for column in columns), strict=True)
    runs = [numbers.setdefault(row, len(numbers)) for row in rows]
    return np.repeat(np.array(runs, np.int64), np.diff(np.append(starts, len(found)))), list(numbers)
