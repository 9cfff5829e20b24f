"""Deliver the segments of one batch, connection by connection; see flows.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from afflux.capture.connections import Connection, Entry, Key, Opening
from afflux.capture.kernels import SHARED
from afflux.capture.missing import Numbered, Row, missing, verdict
from afflux.capture.packets import Ints, Packets
from afflux.capture.reassembly import FARTHEST, ahead
from afflux.capture.recent import REMEMBERED
from afflux.capture.segments import ACK, FIN, RST, SYN, Segments
from afflux.capture.steady import Sorted

if TYPE_CHECKING:
    from afflux.capture.conversation import Conversation
    from afflux.capture.flows import Flows
    from afflux.capture.whole import Brief

__all__ = ["Delivering", "Flags"]

Flags: TypeAlias = npt.NDArray[np.bool_]
_FEW = 64
"Connections of a batch whose segments are converted to rows one connection after the other; all segments are then."
_ROW_BYTES = 64
"Bytes that a segment that has to wait counts as, without its data."


class Delivering:
    """The delivery of one batch."""

    def __init__(
        self, flows: Flows, packets: Packets, found: Segments, keys: list[Key], flow: Ints, suspect: Flags,
        following: Ints, final: bool,
    ) -> None:  # fmt: skip
        self.postponed: list[int] = []
        "The segments that have to wait for the next batch."
        self.briefs: list[Brief] = []
        "The connections that are decoded already, in the order of their pairs of ends; they pass in that order."
        self._passed = 0
        self._suspect, self._following = suspect, following
        self._final = final
        self._flows = flows
        self._found = found
        self._keys = keys
        self._listed = _Listed(packets, found, flow)
        self._sorted: Sorted | None = None
        self._steady = flows.together.steady if flows.together is not None else None
        self._remember = flows.recent.remember

    def deliver(self, order: Ints, half: Ints, special: Flags) -> None:
        """Deliver the segments ``order``, which are sorted by direction."""
        if len(order):
            self._all_of(order, half, special)
        self._pass(len(self._keys))

    def _all_of(self, order: Ints, half: Ints, special: Flags) -> None:
        """Deliver one segment or more."""
        found = self._found
        seq, size, cut = found.seq[order], found.size[order], found.cut[order]
        after = (seq + size + cut) & 0xFFFF_FFFF
        same = half[1:] == half[:-1]
        broken = special | (cut > 0)
        broken[1:] |= same & (seq[1:] != after[:-1])
        starts = np.concatenate(([0], np.flatnonzero(~same) + 1))
        stops = np.append(starts[1:], len(order))
        ends = np.cumsum(size)
        self._order, self._stops, self._parts = order, ends, (starts, stops)
        ways = half[starts]
        columns = ((ways & 1).astype(np.bool_), ends[starts] - size[starts], ends[stops - 1])
        self._ways, self._begins, self._ends = (column.tolist() for column in columns)
        flows = ways >> 1
        firsts = np.flatnonzero(np.diff(flows, prepend=-1))
        wrong = np.logical_or.reduceat(broken, starts) | (self._following[ways] != seq[starts])
        single = np.logical_or.reduceat(wrong, firsts)
        marked = np.logical_or.reduceat(np.logical_or.reduceat(special, starts), firsts)
        owners = flows[firsts]
        lists = [column.tolist() for column in (owners, firsts, single, marked, self._suspect[owners])]
        nexts = [*lists[1][1:], len(starts)]
        for flow, first, alone, signs, judged, after_last in zip(*lists, nexts, strict=True):
            self._connection(flow, range(first, after_last), alone, signs, judged)

    def _connection(self, flow: int, numbers: range, alone: bool, special: bool, judged: bool) -> None:
        """Deliver the segments of one connection.

        Args:
            flow: the pair of its ends.
            numbers: its directions in this batch, one or two.
            alone: some segment does not simply continue its direction: others are missing or wait, or it has a flag or
                is cut short.
            special: some segment has a flag.
            judged: bytes may be missing.
        """
        if self.briefs:
            self._pass(flow)
        key = self._keys[flow]
        connection = self._flows.find(key)
        if isinstance(connection, Connection) and not judged:
            consumer = connection.consumer
            if consumer.idle and not special:
                return
            if not alone and consumer.settled:
                for number in numbers:
                    self._bulk(connection, number)
                return
        self._single(key, connection, self._listed.of_pair(flow), judged)

    def _pass(self, flow: int) -> None:
        """Note the connections that are decoded already, up to a pair of ends."""
        while self._passed < len(self.briefs) and self.briefs[self._passed].flow < flow:
            self._flows.passed(self.briefs[self._passed])
            self._passed += 1

    def _single(self, key: Key, entry: Entry | None, numbers: list[int], judged: bool) -> None:
        """Deliver the segments of a connection one by one, and those that continue both directions together if that is
        allowed. ``judged``: bytes may be missing."""
        rows, place, last = self._listed.rows(numbers), 0, len(numbers)
        until = [0, 0]
        while place < last:
            row = rows[numbers[place]]
            judged |= _begins_late(entry, row)
            if judged and not (isinstance(entry, Connection) and entry.consumer.idle):
                gap = missing(entry, row, (place < until[0], place < until[1]))
                if gap is not None:
                    found, lost = verdict(entry, gap, rows, numbers, place, self._flows.limits, self._final)
                    if found >= 0:
                        until[gap.rising] = found
                    elif lost or not self._postpone(rows, numbers[place:]):
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
                    stop = self._run(entry, rows, numbers, place, judged)
                    if stop > place:
                        place = stop
                        continue
            entry = self._segment(key, entry, row)
            place += 1

    def _postpone(self, rows: Numbered, numbers: list[int]) -> bool:
        """Let segments wait for the next batch, if there is room for them."""
        if not self._flows.postpones(sum(_ROW_BYTES + rows[number][6] for number in numbers)):
            return False
        self.postponed += numbers
        return True

    def _lose(self, key: Key, entry: Entry | None, rising: bool, size: int, row: Row) -> Connection:
        """Bytes before a segment are lost; return the connection."""
        flows = self._flows
        connection = entry if isinstance(entry, Connection) else flows.open(key, entry, row[0], row[1])
        half = connection.halves[rising]
        before = half.size
        flows.hand_over(connection, rising, half.lose(size), row[1])
        flows.too_much(half.size - before)
        return connection

    def _run(self, connection: Connection, rows: Numbered, numbers: list[int], place: int, judged: bool) -> int:
        """Deliver segments that continue both directions, up to the first that does not; return its place. ``judged``:
        also up to the first that shows that bytes are missing."""
        halves = connection.halves
        if halves[False].waiting or halves[True].waiting:
            return place
        following = [halves[rising].expected for rising in (False, True)]
        runs: tuple[list[Row], list[Row]] = ([], [])
        while place < len(numbers):
            row = rows[numbers[place]]
            _, _, seq, ack, flags, _, size, cut, rising = row
            if flags & (SYN | FIN | RST) or cut:
                break
            if judged and (
                (not size and ahead(seq, following[rising]) > 0)
                or (flags & ACK and following[1 - rising] >= 0 and ahead(ack, following[1 - rising]) > 0)
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

    def _deliver(self, connection: Connection, rising: bool, run: list[Row]) -> None:
        """Deliver segments of one direction that continue each other."""
        block, half = self._found.block, connection.halves[rising]
        data = b"".join([block[row[5] : row[5] + row[6]] for row in run])
        half.advance(len(data))
        self._remember(half, data)
        ends = list(accumulate(row[6] for row in run))
        connection.consumer.data(rising, data, ends, [row[1] for row in run])

    def _bulk(self, connection: Connection, number: int) -> None:
        """Deliver segments that continue each other: those of one direction."""
        rising, start, stop = self._ways[number], self._begins[number], self._ends[number]
        half, consumer = connection.halves[rising], connection.consumer
        position = half.position
        half.advance(stop - start)
        if consumer.idle:
            return
        data = self._sorted
        if data is None:
            data = self._sorted = Sorted(self._found, self._order, self._stops, self._parts, SHARED)
        self._remember(half, data.tail(number, REMEMBERED))
        # a consumer is a conversation if directions are decoded together
        if self._steady is None or not self._steady.take(
            cast("Conversation", consumer), rising, data, number, stop - start, position
        ):
            consumer.data(rising, data.octets(number), *data.ends(number))

    def _segment(self, key: Key, entry: Entry | None, row: Row) -> Entry | None:
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
                self._closed(entry, flags, packet)
            elif entry is not None:
                entry.closed |= bool(flags & RST)
            return entry
        flows = self._flows
        connection = entry if isinstance(entry, Connection) else flows.open(key, entry, time, packet)
        half, other = connection.halves[rising], connection.halves[not rising]
        if connection is not entry and flags & ACK and other.expected < 0:
            other.acked = ack
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
        flows.hand_over(connection, rising, half.feed(seq, data, cut, flows.recent.of(half)), packet)
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
            self._flows.free(connection, packet)
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


class _Listed:
    """The segments of a batch as rows, for the connections whose segments are looked at one by one.

    Args:
        packets: the batch.
        found: its segments.
        flow: the pair of ends of each.
    """

    def __init__(self, packets: Packets, found: Segments, flow: Ints) -> None:
        self._time, self._found, self._flow = packets.time, found, flow
        self._rows: list[Row] = []
        self._calls = 0
        self._all: tuple[Ints, Ints] | None = None

    def of_pair(self, flow: int) -> list[int]:
        """Return the numbers of all segments of a connection, those without data included: they acknowledge."""
        if self._all is None:
            self._all = np.argsort(self._flow, kind="stable"), np.cumsum(np.bincount(self._flow))
        order, stops = self._all
        numbers: list[int] = order[stops[flow - 1] if flow else 0 : stops[flow]].tolist()
        return numbers

    def rows(self, numbers: list[int]) -> Numbered:
        """Return segments by number, some at least."""
        self._calls += 1
        if self._rows or self._calls > _FEW:
            self._rows = self._rows or list(self._some(slice(None)))
            return self._rows
        return dict(zip(numbers, self._some(numbers), strict=True))

    def _some(self, chosen: Any) -> Iterator[Row]:
        """Return some segments as rows."""
        found = self._found
        index = found.index[chosen]
        columns = (found.seq, found.ack, found.flags, found.at, found.size, found.cut, found.rising)
        return zip(
            self._time[index].tolist(), index.tolist(), *(column[chosen].tolist() for column in columns), strict=True
        )


def _begins_late(entry: Entry | None, row: Row) -> bool:
    """Whether a segment with data is the first of its direction, and bytes before it are missing: the other side has
    acknowledged less. The direction begins with those bytes then."""
    _, _, seq, _, flags, _, size, cut, way = row
    if not isinstance(entry, Connection) or flags & (SYN | RST) or not (size or cut or flags & FIN):
        return False
    half = entry.halves[bool(way)]
    if half.expected >= 0 or half.acked < 0 or not 0 < ahead(seq, half.acked) <= FARTHEST:
        return False
    half.begin(half.acked, synced=False)
    return True


def _waits(entry: Entry | None) -> bool:
    """Whether bytes of a connection wait for missing ones."""
    return isinstance(entry, Connection) and bool(entry.halves[False].waiting or entry.halves[True].waiting)
