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

import numpy as np

from afflux.capture.carrying import Carried, segments_at
from afflux.capture.connections import Conflict, Connection, Consumer, Entry, Key, Opening, ends_of, keys_of
from afflux.capture.delivering import Delivering, Flags
from afflux.capture.missing import expected, suspects
from afflux.capture.packets import PAD, Ints, Packets
from afflux.capture.reassembly import Delivery, Half, Overlap
from afflux.capture.recent import Recent
from afflux.capture.segments import FIN, RST, SYN, Segments
from afflux.capture.skipping import UNKNOWN, Place
from afflux.capture.steady import Together
from afflux.capture.whole import Brief
from afflux.core.limits import Limits

__all__ = ["Conflict", "Connection", "Consumer", "Flows", "Key"]

_MOST_CONFLICTS = 1_024
"Conflicts that are listed between two calls of ``Flows.disputes``; the others are only counted."
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
        together: decodes connections that are whole in a batch, for which ``consumer`` is not called, and directions
            that continue in a batch.
    """

    def __init__(
        self,
        limits: Limits,
        consumer: Callable[[Connection], Consumer],
        *,
        overlap: Overlap = "first",
        together: Together | None = None,
    ) -> None:
        self.limits = limits
        self.together = together
        self._consumer = consumer
        self._overlap = overlap
        self._conflicts: list[Conflict] = []
        self._table: OrderedDict[Key, Entry] = OrderedDict()
        self.recent = Recent(limits)
        "The last delivered bytes of the directions."
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
        self.opened = -1
        "The packet with which the newest connection has begun to have data, -1 for none."
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
        entries = [self._table.get(key) for key in keys]
        suspect, following = self._suspect(found, flow, entries)
        single = special | (found.size + found.cut > 0) | suspect[flow]
        batch = Delivering(self, packets, found, keys, flow, suspect, following, final)
        if self.together is not None:
            fresh = np.array([entry is None or (isinstance(entry, Opening) and entry.closed) for entry in entries])
            batch.briefs = self.together.whole.take(packets, found, flow, keys, fresh & ~suspect)
            single &= ~np.isin(flow, [brief.flow for brief in batch.briefs]) if batch.briefs else True
        carrying = np.flatnonzero(single)
        half = (flow * 2 + found.rising)[carrying]
        sort = np.argsort(half.astype(np.uint16) if len(keys) < 0x8000 else half, kind="stable")
        batch.deliver(carrying[sort], half[sort], special[carrying[sort]])
        self._postponed = 0
        if batch.postponed:
            late = np.zeros(len(found), np.bool_)
            late[batch.postponed] = True
            self._carried.keep(packets, found, np.flatnonzero(late), files, self.file)
            self.segments = segments_at(found, ~late)
            self.flow, self.keys = (np.empty(0, np.int64), []) if late.all() else keys_of(self.segments)

    def _suspect(self, found: Segments, flow: Ints, entries: list[Entry | None]) -> tuple[Flags, Ints]:
        """Return for each pair of ends whether its segments must be looked at one by one, because bytes may be
        missing, and the sequence numbers with which both directions continue; -1 where no segment simply does."""
        places, seqs, waiting, idle, others = list[int](), list[int](), list[bool](), list[bool](), list[int]()
        for number, entry in enumerate(entries):
            if isinstance(entry, Connection):
                low, high = entry.halves[False], entry.halves[True]
                places.append(number)
                seqs += (low.expected, high.expected)
                waiting.append(bool(low.waiting or high.waiting))
                idle.append(entry.consumer.idle)
                if low.end is not None or high.end is not None:
                    others.append(number)
            elif entry is not None:
                others.append(number)
        following = np.full((len(entries), 2), -1, np.int64)
        following[places] = np.array(seqs, np.int64).reshape(-1, 2)
        known = following.copy()
        for number in others:
            known[number] = expected(entries[number])
        suspect = suspects(found, flow, known.reshape(-1))
        opening = np.zeros(len(entries), np.bool_)
        opening[flow[found.flags & SYN != 0]] = True
        waits, ignored = np.array(waiting, np.bool_), np.array(idle, np.bool_) & ~opening[places]
        suspect[places] = ~ignored & (suspect[places] | waits)
        following[np.array(places, np.int64)[waits]] = -1
        return suspect, following.reshape(-1)

    def postpones(self, size: int) -> bool:
        """Count bytes of segments that have to wait; return whether there is room for them."""
        self._postponed += size
        return self._waiting_bytes + self._postponed <= self.limits.capture_bytes

    def place_of(self, packet: int) -> Place:
        """Return where a packet of the last batch is, and where its data begins; -1 stands for none."""
        found = self.segments
        if packet < 0 or found is None:
            return UNKNOWN
        at = int(np.searchsorted(found.index, packet))
        offset = int(found.position[at]) if at < len(found) and found.index[at] == packet else -1
        return Place(self.packets.numbered(packet) - 1, offset, int(self.packets.time[packet]))

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
                self.free(connection)
        self._table.clear()

    def finish(self, connection: Connection, packet: int = -1, *, told: bool = False) -> None:
        """End a connection: missing bytes are gaps. ``told``: the consumer knows the end of both directions."""
        for rising, half in connection.halves.items():
            waits = bool(half.waiting)
            if waits:
                self.too_much(-half.size)
                self.hand_over(connection, rising, half.skip_all(), packet)
            self.recent.forget(half)
            if waits or not told:
                connection.consumer.end(rising, packet)

    def free(self, connection: Connection, packet: int = -1, *, told: bool = False) -> None:
        """End a connection that gets no more segments. It and its consumer know each other: this lets them be freed
        without the garbage collector. ``told``: see ``finish``."""
        self.finish(connection, packet, told=told)
        del connection.consumer

    def find(self, key: Key) -> Entry | None:
        """Return the current connection between two ends."""
        connection = self._table.get(key)
        if connection is not None:
            self._table.move_to_end(key)
        return connection

    def passed(self, brief: Brief) -> None:
        """Note a connection that was decoded as a whole: remember only that it has ended, as ``retire`` does."""
        self.connections += 1
        left = Opening(brief.time, brief.client)
        left.closed = left.ended = True
        self._insert(brief.key, left)
        if self.together is not None and self.together.whole.passed is not None:
            self.together.whole.passed(brief)

    def peek(self, key: Key) -> Entry | None:
        """Return what ``find`` does. This is no use of the connection, so it may be dropped as early as before."""
        return self._table.get(key)

    def opening(self, key: Key, opening: Opening | None, rising: bool, seq: int, answer: bool, time: int) -> Opening:
        """Note a SYN. A connection costs little until it has data: captures may contain millions of SYNs."""
        if opening is None or opening.closed or opening.initial[rising] not in (-1, seq):
            opening = Opening(time, rising is not answer)
            self.connections += 1
            self._insert(key, opening)
        opening.initial[rising] = seq
        return opening

    def open(self, key: Key, opening: Opening | None, time: int, packet: int) -> Connection:
        """Begin a connection, whose SYNs were noted in ``opening`` if the capture has them. ``packet`` is the first one
        with data, -1 for none."""
        self.opened = packet
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
        self.free(connection, packet, told=told)
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
                self.free(oldest)

    def hand_over(self, connection: Connection, rising: bool, found: list[Delivery], packet: int) -> None:
        """Give bytes and gaps to the consumer."""
        consumer = connection.consumer
        for delivery in found:
            if isinstance(delivery, int):
                consumer.gap(rising, delivery, packet)
            elif not consumer.idle:
                consumer.data(rising, delivery, (len(delivery),), (packet,))
            self.recent.remember(connection.halves[rising], delivery)

    def too_much(self, change: int) -> bool:
        """Count bytes that wait for missing ones; return whether those of all connections exceed ``capture_bytes``."""
        self._waiting_bytes += change
        return self._waiting_bytes > self.limits.capture_bytes
