"""Follow the TCP connections of a capture, and deliver the bytes of each direction in order.

Theory of operation. A batch is sorted by connection and direction. If all segments of a direction continue each other,
which is the common case, their data is delivered in one piece, without a look at the single segments. The segments of
other directions are handled one by one (reassembly.py). So are those of a connection whose consumer has not settled: it
needs both directions in the order of the capture to recognize the protocol.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt

from afflux.capture.network import V4
from afflux.capture.packets import Ints, Packets
from afflux.capture.reassembly import Delivery, Half
from afflux.capture.segments import ACK, FIN, RST, SYN, End, Segments
from afflux.core.limits import Limits

__all__ = ["Connection", "Consumer", "Flows", "Key", "keys_of", "long_key"]

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RECENT = 0x4000
"Delivered bytes of a direction that are remembered, to compare retransmissions with."
Flags = npt.NDArray[np.bool_]
_Row = tuple[int, int, int, bool, int]
"The segments of one direction in a batch: direction, first, last, whether to look at each, first sequence number."
Key = tuple[int, ...]
"Both ends: two numbers with address and port for IPv4, otherwise six."


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
    opener: bool | None = None
    "The direction of the side that opened it; None if the capture does not show it."
    closed: bool = False
    "A RST was seen, or both FINs."
    consumer: Consumer = field(init=False)
    _id: str = ""

    @property
    def key(self) -> Key:
        """The pair of its ends, as the segments have it."""
        low, high = self.low, self.high
        return _key((*low, *high))

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


class _Opening:
    """A connection without data so far, or one that has ended in order."""

    __slots__ = ("closed", "ended", "initial", "opener", "time")

    def __init__(self, time: int, opener: bool) -> None:
        self.time = time
        self.opener = opener
        self.closed = False
        "A RST was seen, or both FINs."
        self.ended = False
        "Both FINs were seen: whatever follows is a copy, unless it is a SYN."
        self.initial = [-1, -1]  # the numbers of the SYNs, by ``rising``


_Entry = Connection | _Opening


class Flows:
    """The connections of one capture.

    Args:
        limits: see ``capture_flows``, ``capture_flow_bytes`` and ``capture_bytes``.
        consumer: makes the consumer of a new connection.
    """

    def __init__(self, limits: Limits, consumer: Callable[[Connection], Consumer]) -> None:
        self._limits = limits
        self._consumer = consumer
        self._table: OrderedDict[Key, _Entry] = OrderedDict()
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

    def end(self) -> None:
        """Deliver what waits, and end all connections."""
        for connection in self._table.values():
            if isinstance(connection, Connection):
                self.finish(connection)
        self._table.clear()

    def finish(self, connection: Connection, packet: int = -1) -> None:
        """End a connection: missing bytes are gaps."""
        for rising, half in connection.halves.items():
            self.too_much(-half.size)
            self.hand_over(connection, rising, half.skip_all(), packet)
            self._forget(half)
            connection.consumer.end(rising, packet)

    def find(self, key: Key) -> _Entry | None:
        """Return the current connection between two ends."""
        connection = self._table.get(key)
        if connection is not None:
            self._table.move_to_end(key)
        return connection

    def opening(self, key: Key, opening: _Opening | None, rising: bool, seq: int, answer: bool, time: int) -> _Opening:
        """Note a SYN. A connection costs little until it has data: captures may contain millions of SYNs."""
        if opening is None or opening.closed or opening.initial[rising] not in (-1, seq):
            opening = _Opening(time, rising is not answer)
            self.connections += 1
            self._insert(key, opening)
        opening.initial[rising] = seq
        return opening

    def open(self, key: Key, opening: _Opening | None, time: int) -> Connection:
        """Begin a connection, whose SYNs were noted in ``opening`` if the capture has them."""
        halves = {rising: Half(self._limits) for rising in (False, True)}
        if opening is None:
            self.connections += 1
            made = Connection(*_ends(key), time, halves)
        else:
            made = Connection(*_ends(key), opening.time, halves, opening.opener, opening.closed)
            for rising, half in halves.items():
                if opening.initial[rising] >= 0:
                    half.begin(opening.initial[rising], synced=True)
        made.consumer = self._consumer(made)
        self._insert(key, made)
        return made

    def retire(self, key: Key, connection: Connection, packet: int) -> _Opening:
        """Free a connection that has ended in order, and remember only that it has."""
        self.finish(connection, packet)
        left = _Opening(connection.time, bool(connection.opener))
        left.closed = left.ended = True
        self._table[key] = left
        return left

    def _insert(self, key: Key, entry: _Entry) -> None:
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
        if found:
            last = found[-1]
            self.remember(connection.halves[rising], last if isinstance(last, bytes) else b"")

    def remember(self, half: Half, data: bytes) -> None:
        """Remember the last delivered bytes of a direction, within ``capture_bytes``."""
        self._forget(half)
        if not data:
            return
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
        return isinstance(connection, Connection) and any(half.waiting for half in connection.halves.values())


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
        if isinstance(connection, Connection):
            if connection.consumer.idle and not special[start:stop].any():
                return
            if connection.consumer.settled and self._plain(connection, rows):
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

    def _segment(self, key: Key, connection: _Entry | None, number: int) -> _Entry | None:
        """Deliver one segment; return the connection that it belongs to, None before a connection begins."""
        found = self._found
        if not self._columns:
            columns = (found.index, found.seq, found.ack, found.flags, found.at, found.size, found.cut, found.rising)
            self._columns = [self._time[found.index].tolist(), *(column.tolist() for column in columns)]
        time, packet, seq, ack, flags, at, size, cut, rising = (column[number] for column in self._columns)
        rising = bool(rising)
        if isinstance(connection, Connection) and connection.consumer.idle and not flags & SYN:
            return connection
        flows = self._flows
        if flags & SYN:
            connection = self._opened(key, connection, rising, seq, flags, time, packet)
        if not (size or cut or flags & FIN) or (isinstance(connection, _Opening) and connection.ended):
            if isinstance(connection, Connection):
                self._acknowledged(connection, rising, flags, ack, time, packet)
            elif connection is not None:
                connection.closed |= bool(flags & RST)
            return connection
        if not isinstance(connection, Connection):
            connection = flows.open(key, connection, time)
        if connection.halves[rising].expected < 0:
            connection.halves[rising].begin(seq, synced=False)
        half, other = connection.halves[rising], connection.halves[not rising]
        seq = (seq + bool(flags & SYN)) & 0xFFFF_FFFF
        before = half.size + other.size
        if size or cut:
            data = found.block[at : at + size]
            flows.hand_over(connection, rising, half.feed(seq, data, cut, time, flows.recent(half)), packet)
        if flags & FIN:
            half.finish((seq + size + cut) & 0xFFFF_FFFF)
        if flows.too_much(half.size + other.size - before):
            before = half.size
            flows.hand_over(connection, rising, half.skip_all(), packet)
            flows.too_much(-before)
        self._acknowledged(connection, rising, flags, ack, time, packet)
        ended = all(half.ended for half in connection.halves.values())
        return flows.retire(key, connection, packet) if ended else connection

    def _acknowledged(self, connection: Connection, rising: bool, flags: int, ack: int, time: int, packet: int) -> None:
        """Apply the flags of a segment whose data was delivered."""
        other = connection.halves[not rising]
        if flags & ACK and other.waiting:
            before = other.size
            self._flows.hand_over(connection, not rising, other.acknowledged(ack, time), packet)
            self._flows.too_much(other.size - before)
        self._closed(connection, flags, packet)

    def _opened(
        self, key: Key, connection: _Entry | None, rising: bool, seq: int, flags: int, time: int, packet: int
    ) -> _Entry:
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
        for rising, half in connection.halves.items():
            if half.ended:
                connection.consumer.end(rising, packet)
        connection.closed |= all(half.ended for half in connection.halves.values())


def keys_of(found: Segments) -> tuple[Ints, list[Key]]:
    """Return the distinct pairs of ends, and the number of each segment's pair. Only where the pair changes from one
    segment to the next is it looked up."""
    columns = (*found.low, *found.high)
    changes = np.zeros(len(found) - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    a0, a1, ap, b0, b1, bp = (column[starts] for column in columns)
    numbers: dict[Key, int] = {}
    if (a0 == V4).all() and (b0 == V4).all():
        short = (a1 << np.uint64(16) | ap.astype(np.uint64), b1 << np.uint64(16) | bp.astype(np.uint64))
        rows: Iterable[Key] = zip(*(column.tolist() for column in short), strict=True)
    else:
        rows = map(_key, zip(*(column.tolist() for column in (a0, a1, ap, b0, b1, bp)), strict=True))
    runs = [numbers.setdefault(row, len(numbers)) for row in rows]
    return np.repeat(np.array(runs, np.int64), np.diff(np.append(starts, len(found)))), list(numbers)


def _key(row: tuple[int, ...]) -> Key:
    """Return the key of a pair of ends: two numbers for IPv4, which are most and take less memory."""
    a0, a1, ap, b0, b1, bp = row
    return (a1 << 16 | ap, b1 << 16 | bp) if a0 == V4 == b0 else row


def long_key(key: Key) -> tuple[int, ...]:
    """Return a key as six numbers: address in two halves and port, of both ends."""
    low, high = _ends(key)
    return (*low, *high)


def _ends(key: Key) -> tuple[End, End]:
    """Return the two ends that a key stands for."""
    if len(key) == 2:
        low, high = ((V4, number >> 16, number & 0xFFFF) for number in key)
        return low, high
    a0, a1, ap, b0, b1, bp = key
    return (a0, a1, ap), (b0, b1, bp)
