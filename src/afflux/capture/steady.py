"""Decode together the directions of connections that only continue in a batch of packets.

Theory of operation. In captures of services most directions bring a few segments in a batch, each of which continues
the one before. Such a direction needs no event: ``Sorted`` puts the data of all segments end to end, sorted by
direction, and ``Steady`` only notes which part of it is a direction's (``Run``). At the end of the batch one pass of
the kernels finds the frames of all runs, and columns.py reads their fields. A run that cannot be read so becomes an
event of its conversation, in its place among the others: both ways have the same results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from afflux.capture.packets import PAD, Ints
from afflux.capture.settings import Event, Settings
from afflux.capture.whole import Lanes, Rows, Whole

if TYPE_CHECKING:
    from afflux.capture.conversation import Conversation
    from afflux.capture.kernels import Boundaries
    from afflux.capture.segments import Segments
    from afflux.capture.sides import PlainSide
    from afflux.capture.talk import Talk
    from afflux.core.dissector import Prefixed

__all__ = ["Run", "Sorted", "Steady", "Together", "proceed"]


class Sorted:
    """The data of the segments of a batch, end to end, sorted by direction.

    Args:
        found: the segments.
        order: their order.
        stops: where the data of each ends.
        parts: the first segment of each direction, as a place in the order, and the one after the last.
        boundaries: copies the data.
    """

    __slots__ = ("_found", "_order", "block", "first", "last", "start", "stop", "stops")

    def __init__(
        self, found: Segments, order: Ints, stops: Ints, parts: tuple[Ints, Ints], boundaries: Boundaries
    ) -> None:
        self._found, self._order, self.stops = found, order, stops
        self.first, self.last = parts
        self.start = stops[self.first] - found.size[order[self.first]]
        "Where the data of each direction begins in the block."
        self.stop = stops[self.last - 1]
        "Where it ends."
        self.block = boundaries.joined(found.block, found.at[order], found.size[order], int(stops[-1]))
        "The data, and ``PAD`` after it."

    def packets(self, places: Ints | slice) -> Ints:
        """Return the packets of segments, given their places in the order."""
        found: Ints = self._found.index[self._order[places]]
        return found

    def ends(self, number: int) -> tuple[list[int], list[int]]:
        """Return where the data of a direction's segments ends, counted from its beginning, and their packets."""
        some = slice(int(self.first[number]), int(self.last[number]))
        return (self.stops[some] - self.start[number]).tolist(), self.packets(some).tolist()


class Run(NamedTuple):
    """What a batch brings to one direction."""

    conversation: Conversation
    rising: bool
    side: PlainSide
    dissector: Prefixed
    rest: bytes
    "The bytes of an incomplete frame before."
    position: int
    "The position of the data in the direction."
    number: int
    "The direction, as a number in ``Sorted``."
    place: int
    "How many events came before."


class _Group:
    """The runs of one protocol."""

    def __init__(self, runs: list[Run], data: Sorted, boundaries: Boundaries) -> None:
        self.runs = runs
        self._data = data
        self._numbers: Ints = np.array([run.number for run in runs], np.int64)
        self._rests: Ints = np.array([len(run.rest) for run in runs], np.int64)
        self.block, starts, stops, self._shift = self._joined()
        self.starts, self.stops = starts, stops
        dissector = runs[0].dissector
        prefix = dissector.prefix
        self._at, self._size, tails = boundaries.find(
            self.block, starts, stops, width=prefix.width, own=prefix.own,
            mask=(1 << 8 * prefix.width) - 1 & ~prefix.reserved, largest=dissector.largest,
        )  # fmt: skip
        self.tails = tails
        "Where the incomplete frame of each run begins; -1 if its dissector must decode the run."

    def _joined(self) -> tuple[bytes, Ints, Ints, Ints]:
        """Return the bytes of all runs: the block, where each run begins and ends in it, and how far the data of each
        is from its place in the block of the batch. Without rests, that block is the one of the batch."""
        data, rests = self._data, self._rests
        starts, stops = data.start[self._numbers], data.stop[self._numbers]
        if not rests.any():
            return data.block, starts, stops, np.zeros_like(rests)
        view, pieces = memoryview(data.block), list[bytes | memoryview]()
        for run, start, stop in zip(self.runs, starts.tolist(), stops.tolist(), strict=True):
            pieces += (run.rest, view[start:stop])
        ends: Ints = np.cumsum(rests + stops - starts)
        return b"".join((*pieces, PAD)), ends - (rests + stops - starts), ends, ends - stops

    def rows(self) -> Rows:
        """Return the frames, in the order of the packets that completed them."""
        first, last = self._data.first[self._numbers], self._data.last[self._numbers]
        counts = last - first
        lane = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(lane)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        known = np.searchsorted(self._at + self._size, self._data.stops[places] + self._shift[lane], "right")
        segment = np.repeat(np.arange(len(places)), np.diff(known, prepend=0))
        packets = self._data.packets(places)[segment]
        found = Rows(self.block, self._at, self._size, lane[segment], packets, np.zeros(len(segment), np.int64))
        return found.where(np.argsort(packets, kind="stable"))

    def lanes(self) -> Lanes:
        """Return what is needed to read the frames."""
        owners: dict[Talk, int] = {}
        conn = [owners.setdefault(run.conversation, len(owners)) for run in self.runs]
        position = np.array([run.position for run in self.runs], np.int64) - self._rests
        return Lanes(
            talks=list(owners),
            conn=np.array(conn, np.int64),
            client=np.array([run.dissector.client for run in self.runs], np.bool_),
            shift=position - self.starts,
            dissector=lambda lane: self.runs[lane].dissector,
        )


class Steady:
    """The directions that continue in a batch.

    Args:
        settings: of the conversations, which collect events (``Settings.later``).
        boundaries: finds the frames.
    """

    def __init__(self, settings: Settings, boundaries: Boundaries) -> None:
        self._settings = settings
        self._boundaries = boundaries
        self._data: list[tuple[Sorted, list[Run]]] = []

    def take(
        self, conversation: Conversation, rising: bool, data: Sorted, number: int, size: int, position: int
    ) -> bool:
        """Note what a batch brings to a direction; return False if the conversation must take it instead.

        Args:
            conversation: the connection, which does not ignore its bytes.
            rising: the direction.
            data: the data of the batch.
            number: the direction, as a number in ``data``.
            size: how many bytes there are.
            position: the position of the data in the direction.
        """
        side = conversation.joint(rising)
        if side is None or side.prefixed is None:
            return False
        rest = side.prefixed.joined(size)
        if rest is None:
            return False
        if not self._data or self._data[-1][0] is not data:
            self._data.append((data, []))
        place = len(self._settings.later or ())
        self._data[-1][1].append(Run(conversation, rising, side, side.prefixed, rest, position, number, place))
        return True

    def taken(self, events: list[Event]) -> tuple[list[Event], list[tuple[Rows, Lanes]]]:
        """Return the events since the last call, with those of runs that cannot be read together, and the frames of
        the other runs, by protocol. The dissectors continue after these frames."""
        batches, self._data = self._data, []
        if not batches:
            return events, []
        octets = sum([len(event.data) for event in events if isinstance(event.data, bytes)])
        for data, runs in batches:
            numbers = [run.number for run in runs]
            octets += int((data.stop[numbers] - data.start[numbers]).sum())
        few = octets <= self._settings.limits.capture_bytes - self._settings.buffered
        busy = {event.side for event in events}
        alone: list[tuple[int, Event]] = []
        groups: list[_Group] = []
        for data, runs in batches:
            alike: dict[str, list[int]] = {}
            for number, run in enumerate(runs if few else ()):
                if run.side not in busy:
                    alike.setdefault(run.dissector.PROTOCOL, []).append(number)
            read = np.zeros(len(runs), np.bool_)
            for some in alike.values():
                groups.append(_Group([runs[number] for number in some], data, self._boundaries))
                read[some] = groups[-1].tails >= 0
            left = [runs[number] for number in np.flatnonzero(~read).tolist()]
            alone += [(run.place, _event(run, data)) for run in left]
        return _merged(events, alone), [found for group in groups if (found := self._read(group)) is not None]

    def _read(self, group: _Group) -> tuple[Rows, Lanes] | None:
        """Let the dissectors continue after the frames of their runs; return these frames."""
        rows, block, buffered = group.rows(), group.block, 0
        columns = (
            group.tails,
            group.stops,
            group.tails - group.starts,
            np.bincount(rows.lane, minlength=len(group.runs)),
        )
        for run, tail, stop, size, count in zip(group.runs, *(column.tolist() for column in columns), strict=True):
            if tail == stop:
                run.dissector.passed(size, b"", 0)
                buffered -= len(run.rest)
            elif tail >= 0:
                rest = block[tail:stop]
                proceed(run.dissector, size, rest)
                buffered += len(rest) - len(run.rest)
            run.conversation.frames += count
        self._settings.buffered += buffered
        return (rows, group.lanes()) if len(rows) else None


class Together(NamedTuple):
    """What decodes many connections together. Their consumers, which are conversations, do not get those bytes."""

    whole: Whole
    "Decodes the connections that are whole in a batch."
    steady: Steady
    "Decodes the directions that continue in a batch."


def proceed(dissector: Prefixed, size: int, rest: bytes) -> None:
    """Let a dissector continue after ``size`` bytes of frames, with the bytes of an incomplete one."""
    prefix = dissector.prefix
    need = prefix.width if rest else 0
    if len(rest) >= prefix.width:
        need += prefix.size(rest)
    dissector.passed(size, rest, need)


def _event(run: Run, data: Sorted) -> Event:
    """Return a run as an event."""
    octets = data.block[data.start[run.number] : data.stop[run.number]]
    return Event(run.conversation, run.rising, run.side, octets, run.position, *data.ends(run.number))


def _merged(events: list[Event], others: list[tuple[int, Event]]) -> list[Event]:
    """Return events and others, each of which is in its place among them."""
    if not others:
        return events
    found: list[Event] = []
    done = 0
    for place, event in sorted(others, key=lambda one: one[0]):
        found += events[done:place]
        found.append(event)
        done = place
    return found + events[done:]
