"""Follow the windows of TCP connections: for how long each side could not have sent more, and why a stream stood still.

A side is held back while the window of its peer has no room for a segment (RFC 9293, 3.8.6), while bytes that it sent
again are not acknowledged, and while the capture waits for earlier bytes of it. For every segment of a batch,
``Windows`` returns how long each side of its connection had been held back until then. Two of these numbers tell how
much of the time between them the sender was held back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from afflux.capture.compiling import Column, Table, build, compiled, is_built, is_loaded
from afflux.capture.flows import Key
from afflux.capture.packets import Ints, Packets
from afflux.capture.segments import ACK, FIN, RST, SYN, Segments
from afflux.core.limits import Limits

__all__ = ["Seen", "Windows", "follow"]

_MOST_MSS: Final = 1_460
"Bytes of a segment if the handshake does not tell."
_FORMER: Final = 16
"Former connections between the same ends that are remembered."
_FEW: Final = 4_096
"Segments that are followed without a compiled kernel."
_FEWER: Final = 512
"The same where numba is in use already."

# Columns of a connection. Pairs are by direction, 1 is rising.
NEXT: Final = 0
"The sequence number after the last byte sent; -1 before the first segment."
ACKED: Final = 2
"The sequence number that the peer has acknowledged; -1 for none."
WINDOW: Final = 4
"The window for this direction, in bytes; -1 if it is unknown."
WIDEST: Final = 6
SCALE: Final = 8
"The shift that the sender of this direction has offered for its own windows; -1 if its SYN was not seen."
_NO_SCALE: Final = -2
"Its SYN has no shift: windows are not scaled (RFC 7323)."
MSS: Final = 10
AGAIN: Final = 12
"Bytes sent again end here; -1 for none."
HOLE: Final = 14
"The end of bytes that came before earlier ones; -1 for none."
SINCE: Final = 16
"Since when the direction is held back; -1 if it is not."
HELD: Final = 18
"For how long it was held back before, in nanoseconds."
ACTIVE: Final = 20
"When it last sent something new, or something of it was acknowledged."
COUNT: Final = 22
"Segments."
SENT: Final = 24
"Bytes, each counted once."
REPEATED: Final = 26
CLOSES: Final = 28
"1 after a FIN, 2 after a RST."
STARTED: Final = 30
"When the first segment was captured; the same in both."
LAST: Final = 31
CLOSER: Final = 32
"The direction of the first FIN or RST; -1 before it."
WIDTH: Final = 33
_NEW: Final = np.full(WIDTH, -1, np.int64)
"A connection without segments."
_NEW[HELD:STARTED] = 0
_NEW[MSS : MSS + 2] = _MOST_MSS


class Seen(NamedTuple):
    """What was seen of a connection, by direction: falling, rising."""

    held: tuple[int, int]
    "For how long it was held back, in nanoseconds."
    segments: tuple[int, int]
    octets: tuple[int, int]
    "Bytes of data, each counted once."
    repeated: tuple[int, int]
    "Bytes that were sent again."
    last: int
    "The time of the last segment."
    closing: str
    "``fin``, ``rst``, or empty if neither was seen."
    closer: int
    "The direction of the first FIN or RST; -1 for none."


class Ended(NamedTuple):
    """What was seen of some connections that have ended: see ``Seen``. Columns with an element for each."""

    known: npt.NDArray[np.bool_]
    "Whether it is not forgotten; the other columns have then what would be there without packets."
    last: Ints
    held: Ints
    segments: Ints
    reset: npt.NDArray[np.bool_]
    "Whether a RST was seen."
    closer: Ints


@compiled
def _ahead(a: int, b: int) -> int:
    """Return how far a sequence number is ahead of another one."""
    return ((a - b + 0x80000000) & 0xFFFFFFFF) - 0x80000000


_UNSEEN: Final = Seen((0, 0), (0, 0), (0, 0), (0, 0), 0, "", -1)


@compiled
def _held_back(table: Table, row: int, way: int) -> bool:
    """Whether a direction is held back now."""
    if table[row, AGAIN + way] >= 0 or table[row, HOLE + way] >= 0:
        return True
    window = table[row, WINDOW + way]
    if window < 0 or table[row, ACKED + way] < 0 or table[row, NEXT + way] < 0:
        return False
    room = window - _ahead(table[row, NEXT + way], table[row, ACKED + way])
    return bool(room < max(1, min(table[row, MSS + way], table[row, WIDEST + way] // 2)))


@compiled
def _unseen(table: Table, row: int, way: int) -> bool:
    """Whether the peer has acknowledged bytes that the capture does not have, or that are in it later."""
    acked = table[row, ACKED + way]
    if acked < 0 or table[row, NEXT + way] < 0:
        return False
    return bool(table[row, HOLE + way] >= 0 or _ahead(acked, table[row, NEXT + way]) > 1)


@compiled
def _sends(table: Table, row: int, way: int, seq: int, size: int, time: int) -> None:
    """Apply the bytes of a segment."""
    end = (seq + size) & 0xFFFFFFFF
    if table[row, NEXT + way] < 0:
        table[row, NEXT + way] = seq
        table[row, ACTIVE + way] = time
    ahead = _ahead(end, table[row, NEXT + way])
    if ahead <= 0:
        table[row, REPEATED + way] += size
        acked = table[row, ACKED + way]
        if table[row, HOLE + way] < 0 and acked >= 0 and _ahead(end, acked) > 0:
            if table[row, SINCE + way] < 0:
                table[row, HELD + way] += max(0, time - table[row, ACTIVE + way])
            table[row, AGAIN + way] = end
        return
    if _ahead(seq, table[row, NEXT + way]) > 0:
        table[row, HOLE + way] = end
    table[row, SENT + way] += min(ahead, size)
    table[row, NEXT + way] = end
    table[row, ACTIVE + way] = time


@compiled
def follow(  # long: what one segment changes, in the order in which TCP applies it
    table: Table,
    rows: Column,
    ways: Column,
    time: Column,
    seq: Column,
    ack: Column,
    flags: Column,
    size: Column,
    window: Column,
    scale: Column,
    mss: Column,
    held: Table,
) -> None:
    """Apply segments.

    Args:
        table: the connections.
        rows: the connection of each segment.
        ways: its direction.
        time: when it was captured.
        seq: the sequence number of its first byte; of a SYN, of the byte after it.
        ack: the acknowledged sequence number.
        flags: its flags.
        size: its bytes, those that were not captured included.
        window: its window field.
        scale: the shift that a SYN offers, otherwise -1.
        mss: the segment size that a SYN offers, otherwise -1.
        held: takes for each segment how long both directions had been held back until then, and what is missing: 1 if
            bytes were acknowledged that the capture does not have so far, 2 and 4 if it has no segment of the falling
            direction, of the rising one.
    """
    for number in range(len(rows)):
        row, way, now = rows[number], ways[number], time[number]
        other = 1 - way
        if flags[number] & SYN:
            table[row, SCALE + way] = scale[number] if scale[number] >= 0 else _NO_SCALE
            table[row, MSS + other] = mss[number] if mss[number] > 0 else _MOST_MSS
        table[row, COUNT + way] += 1
        table[row, LAST] = now
        if size[number] > 0:
            _sends(table, row, way, seq[number], size[number], now)
        elif table[row, NEXT + way] < 0:
            table[row, NEXT + way] = seq[number]
        if flags[number] & (FIN | RST) and table[row, CLOSER] < 0:
            table[row, CLOSER] = way
        if flags[number] & RST:
            table[row, CLOSES] = 2
        elif flags[number] & FIN and table[row, CLOSES + way] == 0:
            table[row, CLOSES + way] = 1
        if flags[number] & ACK:
            acked = table[row, ACKED + other]
            if acked < 0 or _ahead(ack[number], acked) > 0:
                table[row, ACKED + other] = ack[number]
                table[row, ACTIVE + other] = now
            for mark in (AGAIN, HOLE):
                if table[row, mark + other] >= 0 and _ahead(ack[number], table[row, mark + other]) >= 0:
                    table[row, mark + other] = -1
            shift = table[row, SCALE + way]
            if flags[number] & SYN or shift == _NO_SCALE or table[row, SCALE + other] == _NO_SCALE:
                shift = 0
            if shift >= 0:
                table[row, WINDOW + other] = window[number] << shift
                table[row, WIDEST + other] = max(table[row, WIDEST + other], table[row, WINDOW + other])
            else:
                table[row, WINDOW + other] = 0 if window[number] == 0 else -1
        for side in range(2):
            since = table[row, SINCE + side]
            stuck = _held_back(table, row, side)
            if since >= 0 and not stuck:
                table[row, HELD + side] += now - since
                table[row, SINCE + side] = -1
            elif since < 0 and stuck:
                table[row, SINCE + side] = now
            since = table[row, SINCE + side]
            held[number, side] = table[row, HELD + side] + (now - since if since >= 0 else 0)
        unseen = _unseen(table, row, 0) or _unseen(table, row, 1)
        held[number, 2] = int(unseen) | int(table[row, COUNT] == 0) << 1 | int(table[row, COUNT + 1] == 0) << 2


class Windows:
    """The windows of the connections of one capture.

    Args:
        limits: see ``capture_flows``.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.capture_flows
        self._rows: OrderedDict[Key, int] = OrderedDict()
        self._table: Table = np.empty((64, WIDTH), np.int64)
        self._free = list(range(64))
        self._former: OrderedDict[Key, list[tuple[int, Seen]]] = OrderedDict()
        self._followed = 0

    @property
    def compiled(self) -> bool:
        """Whether the kernel is compiled."""
        return is_built(follow)

    def take(self, packets: Packets, found: Segments, flow: Ints, keys: list[Key]) -> Table:
        """Return for each packet of a batch how long both directions of its connection had been held back until then,
        falling and rising, in nanoseconds, and what is missing of it so far (see ``follow``). ``flow`` is the number
        of each segment's pair of ends in ``keys``."""
        held = np.zeros((len(packets), 3), np.int64)
        if not len(found):
            return held
        time = packets.time[found.index]
        numbers = self._numbers(keys)
        rows, firsts = numbers[flow], np.empty(len(keys), np.int64)
        firsts[flow[::-1]] = np.arange(len(found) - 1, -1, -1)
        fresh = self._table[numbers, STARTED] < 0
        self._table[numbers[fresh], STARTED] = time[firsts[fresh]]
        opens = (found.flags & (SYN | ACK)) == SYN
        opens[firsts[fresh]] = False
        out = np.zeros((len(found), 3), np.int64)
        start = 0
        for stop in (*np.flatnonzero(opens).tolist(), len(found)):
            self._follow(found, rows, time, out, start, stop)
            if stop < len(found):
                self._again(keys[flow[stop]], int(rows[stop]), found, stop, int(time[stop]))
            start = stop
        held[found.index] = out
        return held

    def seen(self, key: Key, time: int, end: int, *, forget: bool = False) -> Seen | None:
        """Return what was seen of the connection between two ends that began at a time, None if that is forgotten.
        ``end`` is the time now. ``forget``: the connection has ended."""
        row = self._rows.get(key)
        if row is None or self._table[row, STARTED] > time:
            formers = [one for one in self._former.get(key, []) if one[0] <= time]
            return formers[-1][1] if formers else None
        made = self._seen(row, end)
        if forget:
            del self._rows[key]
            self._free.append(row)
        return made

    def ended(self, keys: Sequence[Key], times: Ints, end: int) -> Ended:
        """Return what ``seen`` does, for many connections, and forget them."""
        rows = np.array([self._rows.get(key, -1) for key in keys], np.int64)
        current = (rows >= 0) & (self._table[rows, STARTED] <= times)
        state = self._table[rows]
        since = state[:, SINCE : SINCE + 2]
        more = np.where(since >= 0, np.maximum(end - since, 0), 0)
        found = Ended(
            known=current.copy(), last=state[:, LAST], held=state[:, HELD : HELD + 2] + more,
            segments=state[:, COUNT : COUNT + 2], reset=(state[:, CLOSES : CLOSES + 2] == 2).any(axis=1),
            closer=state[:, CLOSER],
        )  # fmt: skip
        for number in np.flatnonzero(~current).tolist():
            former = self.seen(keys[number], int(times[number]), end) or _UNSEEN._replace(last=end)
            found.known[number] = sum(former.segments) > 0
            found.last[number], found.held[number], found.segments[number] = former.last, former.held, former.segments
            found.reset[number], found.closer[number] = former.closing == "rst", former.closer
        for number in np.flatnonzero(current).tolist():
            self._free.append(self._rows.pop(keys[number]))
        return found

    def quiet(self) -> list[Key]:
        """Return the ends of the connections on which both sides acknowledged the other one, and none sent data."""
        rows = np.fromiter(self._rows.values(), np.int64, len(self._rows))
        state = self._table[rows]
        idle = (state[:, ACKED : ACKED + 2] >= 0).all(axis=1) & (state[:, SENT : SENT + 2] == 0).all(axis=1)
        return [key for key, one in zip(self._rows, idle.tolist(), strict=True) if one]

    def _follow(self, found: Segments, rows: Ints, time: Ints, out: Table, start: int, stop: int) -> None:
        if start == stop:
            return
        part = slice(start, stop)
        flags = found.flags[part]
        seq = (found.seq[part] + (flags & SYN != 0)) & 0xFFFF_FFFF
        self._followed += stop - start
        enough = self._followed >= (_FEWER if is_loaded() else _FEW)
        function = build(follow) if enough or is_built(follow) else follow
        function(
            self._table,
            np.ascontiguousarray(rows[part]),
            found.rising[part].astype(np.int64),
            time[part],
            seq,
            found.ack[part],
            flags,
            (found.size + found.cut)[part],
            found.window[part],
            found.scale[part],
            found.mss[part],
            out[part],
        )

    def _numbers(self, keys: list[Key]) -> Ints:
        """Return the rows of connections; the least recently used ones are given up if there are too many."""
        rows, known, new = self._rows, [], list[int]()
        for key in keys:
            row = rows.get(key)
            if row is None:
                row = rows[key] = self._new()
                new.append(row)
            else:
                rows.move_to_end(key)
            known.append(row)
        self._table[new] = _NEW
        return np.array(known, np.int64)

    def _new(self) -> int:
        """Return a row for one more connection."""
        if len(self._rows) >= self._most:
            _, old = self._rows.popitem(last=False)
            self._free.append(old)
        if not self._free:
            size = len(self._table)
            self._table = np.concatenate((self._table, np.empty_like(self._table)))
            self._free = list(range(size, 2 * size))
        return self._free.pop()

    def _again(self, key: Key, row: int, found: Segments, number: int, time: int) -> None:
        """A SYN without ACK begins a connection anew, unless it is a copy of the first one."""
        state, way = self._table[row], int(found.rising[number])
        after = (int(found.seq[number]) + 1) & 0xFFFF_FFFF
        if state[COUNT] + state[COUNT + 1] == 0 or state[NEXT + way] == after:
            return
        self._former.setdefault(key, []).append((int(state[STARTED]), self._seen(row, time)))
        del self._former[key][:-_FORMER]
        if len(self._former) > self._most:
            self._former.popitem(last=False)
        state[:] = _NEW
        state[STARTED] = time

    def _seen(self, row: int, end: int) -> Seen:
        state = self._table[row].tolist()
        more = [max(0, end - since) if since >= 0 else 0 for since in state[SINCE : SINCE + 2]]
        closes = state[CLOSES : CLOSES + 2]
        counts, sent, repeated = ((state[column], state[column + 1]) for column in (COUNT, SENT, REPEATED))
        closing = "rst" if 2 in closes else "fin" if closes == [1, 1] else ""
        held = (state[HELD] + more[0], state[HELD + 1] + more[1])
        return Seen(held, counts, sent, repeated, state[LAST], closing, state[CLOSER])
