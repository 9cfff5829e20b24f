"""Decode the connections that are whole in one batch of packets together: those that begin and end in it, in order.

Theory of operation. Captures of services have many short connections. Nothing of them has to be kept from batch to
batch, so they need no objects for their directions, their bytes and their events. They are chosen by arithmetic on all
segments of the batch: both SYNs come first, both FINs come last, and every segment of a direction continues the one
before. The bytes of all such connections are put end to end, and one pass of the kernels finds their frames, whose
fields columns.py reads. Connections with anything else, such as lost, repeated or incomplete bytes, TLS, or a protocol
that the first segment does not show, are left to flows.py and conversation.py. Both ways have the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from afflux.capture.connections import Connection, Key, ends_of, ids_of
from afflux.capture.kernels import Boundaries
from afflux.capture.packets import Ints, Packets
from afflux.capture.segments import ACK, FIN, RST, SYN, Segments
from afflux.capture.settings import EXAMINED, OTHERS, Content, Settings
from afflux.capture.sides import PlainSide, prefixed
from afflux.core.dissector import Prefixed
from afflux.core.entry import ProtocolEntry

if TYPE_CHECKING:
    from afflux.capture.talk import Talk

__all__ = ["Brief", "Lanes", "Rows", "Whole"]

Flags = npt.NDArray[np.bool_]


class Brief:
    """A connection that is whole in one batch; see Talk."""

    __slots__ = ("client", "flow", "id", "key", "octets", "packet", "shape", "time")
    synced = (True, True)

    def __init__(
        self, key: Key, flow: int, id: str, shape: Shape, client: bool, time: int, packet: int, octets: Sequence[int]
    ) -> None:
        self.key = key
        self.flow = flow
        "The number of its ends in the batch."
        self.id = id
        self.shape = shape
        self.client = client
        self.time = time
        "When its first packet was captured, in nanoseconds."
        self.packet = packet
        "The first packet with data, as an index in its batch."
        self.octets = octets
        "The bytes of the client and of the server."

    @property
    def protocol(self) -> ProtocolEntry:
        """See Talk."""
        return self.shape.protocol

    @property
    def others(self) -> tuple[ProtocolEntry, ...]:
        """See Talk."""
        return self.shape.others

    @property
    def connection(self) -> Connection:
        """See Talk. It has no directions."""
        return Connection(*ends_of(self.key), self.time, {}, self.client, closed=True)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What the first bytes of a client show."""

    protocol: ProtocolEntry
    others: tuple[ProtocolEntry, ...]
    "See Talk."
    client: Prefixed
    "Reads the frames of clients."
    server: Prefixed
    "Reads those of servers."


@dataclass(slots=True)
class Rows:
    """Where the frames of some directions are."""

    block: bytes
    at: Ints
    "Where each begins, without its prefix."
    size: Ints
    lane: Ints
    "The direction."
    packet: Ints
    "The packet that completed it."
    event: Ints
    "The event that completed it; 0 where there are no events."

    def __len__(self) -> int:
        return len(self.at)

    def where(self, chosen: Any) -> Rows:
        """Return some of them."""
        columns = (self.at, self.size, self.lane, self.packet, self.event)
        return Rows(self.block, *(column[chosen] for column in columns))


@dataclass(slots=True)
class Lanes:
    """Some directions of one protocol. The columns have an element for each direction."""

    talks: list[Talk]
    "The connections."
    conn: Ints
    "The connection, an index of ``talks``."
    client: Flags
    "Whether the client sends the bytes."
    shift: Ints
    "What a place in the block is less than the position in the direction."
    dissector: Callable[[int], Prefixed]
    "Returns the dissector of a direction."


class _Columns:
    """The segments of the pairs of ends that may be whole connections, one pair after the other."""

    def __init__(self, found: Segments, flow: Ints, fits: Flags) -> None:
        rows = np.flatnonzero(fits[flow])
        self.rows = rows[np.argsort(flow[rows], kind="stable")]
        self.flow = flow[self.rows]
        self.flags, self.rising = found.flags[self.rows], found.rising[self.rows]
        self.seq, self.size = found.seq[self.rows], found.size[self.rows]
        self.starts = np.concatenate(([0], np.flatnonzero(np.diff(self.flow)) + 1)) if len(rows) else rows

    def opened_in_order(self) -> Flags:
        """Return for each pair whether its first segments are the SYN of the client and that of the server."""
        first, second = self.flags[self.starts], self.flags[self.starts + 1]
        turned = self.rising[self.starts] != self.rising[self.starts + 1]
        both: Flags = ((first & (SYN | ACK)) == SYN) & ((second & (SYN | ACK)) == (SYN | ACK)) & turned
        return both

    def broken(self) -> Ints:
        """Return the pairs with a direction that is not a SYN, data without a gap or a copy, and a FIN."""
        opens, ends = self.flags & SYN != 0, self.flags & FIN != 0
        carrying = np.flatnonzero((self.size > 0) | opens | ends)
        half = self.flow[carrying] * 2 + self.rising[carrying]
        sort = np.argsort(half, kind="stable")
        carrying, half = carrying[sort], half[sort]
        opens, ends, seq = opens[carrying], ends[carrying], self.seq[carrying]
        after = (seq + self.size[carrying] + opens + ends) & 0xFFFF_FFFF
        same = half[1:] == half[:-1]
        wrong = (opens != np.concatenate(([True], ~same))) | (ends != np.concatenate((~same, [True])))
        wrong[1:] |= same & (seq[1:] != after[:-1])
        pairs: Ints = half[wrong] >> 1
        return pairs


class Whole:
    """The connections that are whole in a batch.

    Args:
        settings: of all connections.
        boundaries: finds the frames.
    """

    def __init__(self, settings: Settings, boundaries: Boundaries) -> None:
        self._settings = settings
        self._boundaries = boundaries
        self._shapes: dict[tuple[str, ...], Shape | None] = {}
        self._found: list[tuple[Rows, Lanes]] = []
        self.passed: Callable[[Brief], None] | None = None
        "Is told of each connection, in the order of all that end with the batch."

    def taken(self) -> list[tuple[Rows, Lanes]]:
        """Return the frames since the last call, by protocol."""
        found, self._found = self._found, []
        return found

    def take(self, packets: Packets, found: Segments, flow: Ints, keys: list[Key], fits: Flags) -> list[Brief]:
        """Return the connections that are whole in a batch, in the order of their pairs of ends, and keep their frames.

        Args:
            packets: the batch.
            found: its segments.
            flow: the pair of ends of each segment, an index of ``keys``.
            keys: the pairs of ends.
            fits: the pairs without a connection so far, and of which no segment shows that bytes are missing.
        """
        settings = self._settings
        if settings.ports or int(found.size.sum()) > settings.limits.capture_bytes - settings.buffered:
            return []
        fits = fits & _candidates(found, flow, len(keys))
        if not fits.any():
            return []
        columns = _Columns(found, flow, fits)
        flows = columns.flow[columns.starts]
        fits[flows[~columns.opened_in_order()]] = False
        fits[columns.broken()] = False
        client = np.zeros(len(keys), np.bool_)
        client[flows] = columns.rising[columns.starts]
        data = np.flatnonzero((columns.size > 0) & fits[columns.flow])
        first = data[np.flatnonzero(np.diff(columns.flow[data], prepend=-1))]
        first = first[columns.rising[first] == client[columns.flow[first]]]
        begins = np.zeros(len(keys), np.int64)
        begins[flows] = columns.rows[columns.starts]
        made: list[Brief] = []
        for shape, some in self._by_shape(found, columns.rows[first], columns.flow[first]).items():
            chosen = np.zeros(len(keys), np.bool_)
            chosen[some] = True
            rows = columns.rows[data[chosen[columns.flow[data]]]]
            made += self._decoded(packets, found, flow, keys, shape, client, begins, rows)
        made.sort(key=lambda brief: brief.flow)
        return made

    def _by_shape(self, found: Segments, rows: Ints, flows: Ints) -> dict[Shape, list[int]]:
        """Return the pairs of ends whose first bytes, those of some segments, show the protocol, by what they show."""
        settings, block = self._settings, found.block
        known: dict[bytes, Shape | None] = {}
        made: dict[Shape, list[int]] = {}
        at = found.at[rows]
        places = zip(at.tolist(), (at + np.minimum(found.size[rows], EXAMINED)).tolist(), flows.tolist(), strict=True)
        for begin, end, flow in places:
            start = block[begin:end]
            if start not in known:
                result = None if start[0] in OTHERS else settings.recognize(start, True)
                known[start] = self._shape(result.protocol, result.candidates) if result is not None else None
            shape = known[start]
            if shape is not None:
                made.setdefault(shape, []).append(flow)
        return made

    def _shape(self, protocol: ProtocolEntry | None, candidates: tuple[ProtocolEntry, ...]) -> Shape | None:
        """Return how a protocol is read; None if it is not known, or needs more than frames with lengths."""
        if protocol is None or protocol.dissector is None:
            return None
        others = tuple(entry for entry in candidates if entry is not protocol and entry.unguessed)
        names = tuple(entry.name for entry in (protocol, *others))
        if names not in self._shapes:
            sides = [protocol.dissector(client, self._settings.payload) for client in (True, False)]
            client, server = (PlainSide(one, self._settings.limits).dissector for one in sides)
            made = Shape(protocol, others, client, server) if prefixed(client) and prefixed(server) else None
            self._shapes[names] = made
        return self._shapes[names]

    def _decoded(
        self, packets: Packets, found: Segments, flow: Ints, keys: list[Key], shape: Shape, client: Flags, begins: Ints,
        rows: Ints,
    ) -> list[Brief]:  # fmt: skip
        """Return the connections whose segments with data are ``rows``, and whose bytes are nothing but frames."""
        flows, conn = np.unique(flow[rows], return_inverse=True)
        lane = conn * 2 + (found.rising[rows] != client[flow[rows]])
        sort = np.argsort(lane, kind="stable")
        rows, lane = rows[sort], lane[sort]
        size = found.size[rows]
        ends = np.cumsum(size)
        octets = np.bincount(lane, size, 2 * len(flows)).astype(np.int64)
        stops = np.cumsum(octets)
        block = self._boundaries.joined(found.block, found.at[rows], size, ends - size, int(ends[-1]))
        prefix = shape.client.prefix
        at, sizes, tails = self._boundaries.find(
            block, stops - octets, stops, width=prefix.width, own=prefix.own,
            mask=(1 << 8 * prefix.width) - 1 & ~prefix.reserved, largest=shape.client.largest,
        )  # fmt: skip
        good = (tails == stops).reshape(-1, 2).all(axis=1)
        if not good.any():
            return []
        segment = np.repeat(np.arange(len(rows)), np.diff(np.searchsorted(at + sizes, ends, "right"), prepend=0))
        frames = Rows(block, at, sizes, lane[segment], found.index[rows][segment], np.zeros(len(at), np.int64))
        frames = frames.where(good[frames.lane >> 1]) if not good.all() else frames
        frames = frames.where(np.argsort(frames.packet, kind="stable"))
        places = np.flatnonzero(good)
        first = rows[np.searchsorted(lane, places * 2)]
        made = self._briefs(
            packets, keys, shape, flows[good], client[flows[good]], begins[flows[good]], first, found.index,
            octets.reshape(-1, 2)[good],
        )  # fmt: skip
        number = np.zeros(len(flows), np.int64)
        number[places] = np.arange(len(places))
        sides = np.arange(2 * len(flows))
        lanes = Lanes(
            talks=list(made), conn=number[sides >> 1], client=sides & 1 == 0, shift=octets - stops,
            dissector=lambda lane: shape.server if lane & 1 else shape.client,
        )  # fmt: skip
        self._found.append((frames, lanes))
        self._settings.counted(shape.protocol.name, Content.FRAMES, len(made))
        return made

    @staticmethod
    def _briefs(
        packets: Packets, keys: list[Key], shape: Shape, flows: Ints, client: Flags, begins: Ints, first: Ints,
        index: Ints, octets: Ints,
    ) -> list[Brief]:  # fmt: skip
        """Return the connections of some pairs of ends. ``begins`` and ``first`` are their first segments, and the
        first ones with data."""
        numbers, times = flows.tolist(), packets.time[index[begins]].tolist()
        ends = [keys[number] for number in numbers]
        columns = (client.tolist(), times, index[first].tolist(), octets.tolist())
        return [
            Brief(key, number, id, shape, *row)
            for key, number, id, row in zip(ends, numbers, ids_of(ends, times), zip(*columns, strict=True), strict=True)
        ]


def _candidates(found: Segments, flow: Ints, count: int) -> Flags:
    """Return for each pair of ends whether two sides have opened and ended something, without a RST."""
    flags = found.flags
    opens, ends = flags & SYN != 0, flags & FIN != 0
    fits: Flags = (np.bincount(flow[opens], minlength=count) == 2) & (np.bincount(flow[ends], minlength=count) == 2)
    fits[flow[(flags & RST != 0) | (found.cut > 0) | (opens & (ends | (found.size > 0)))]] = False
    return fits
