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
    from afflux.capture.sides import Side
    from afflux.capture.talk import Talk
    from afflux.core.dissector import Prefixed

__all__ = ["Run", "Sorted", "Steady", "Together", "proceed"]


class Sorted:
    """The data of the segments of a batch, end to end, sorted by direction.

    Args:
        found: the segments.
        order: their order.
        stops: where the data of each ends.
        boundaries: copies the data.
    """

    __slots__ = ("_found", "_order", "block", "stops")

    def __init__(self, found: Segments, order: Ints, stops: Ints, boundaries: Boundaries) -> None:
        self._found, self._order, self.stops = found, order, stops
        self.block = boundaries.joined(found.block, found.at[order], found.size[order], int(stops[-1]))
        "The data, and ``PAD`` after it."

    def packets(self, places: Ints | slice) -> Ints:
        """Return the packets of segments, given their places in the order."""
        found: Ints = self._found.index[self._order[places]]
        return found

    def parts(self, first: int, last: int, start: int) -> tuple[list[int], list[int]]:
        """Return where the data of segments ends, counted from ``start``, and their packets."""
        some = slice(first, last)
        return (self.stops[some] - start).tolist(), self.packets(some).tolist()


class Run(NamedTuple):
    """What a batch brings to one direction."""

    conversation: Conversation
    rising: bool
    side: Side
    dissector: Prefixed
    rest: bytes
    "The bytes of an incomplete frame before."
    position: int
    "The position of the data in the direction."
    first: int
    "The first segment, as a place in the order of the batch."
    last: int
    "The segment after the last one."
    start: int
    "Where the data begins in the block of the batch."
    stop: int
    "Where it ends."
    place: int
    "How many events came before."


class _Group:
    """The runs of one protocol."""

    def __init__(self, runs: list[Run], data: Sorted, boundaries: Boundaries) -> None:
        self.runs = runs
        self._data = data
        self.block, starts, stops, self._shift = self._joined()
        self.starts, self.stops = starts, stops
        dissector = runs[0].dissector
        prefix = dissector.prefix
        self._at, self._size, tails = boundaries.find(
            self.block, starts, stops, width=prefix.width, own=prefix.own,
            mask=(1 << 8 * prefix.width) - 1 & ~prefix.reserved, largest=dissector.largest,
        )  # fmt: skip
        self.tails: list[int] = tails.tolist()
        "Where the incomplete frame of each run begins; -1 if its dissector must decode the run."

    def _joined(self) -> tuple[bytes, Ints, Ints, Ints]:
        """Return the bytes of all runs: the block, where each run begins and ends in it, and how far the data of each
        is from its place in the block of the batch. Without rests, that block is the one of the batch."""
        rests: Ints = np.array([len(run.rest) for run in self.runs], np.int64)
        starts: Ints = np.array([run.start for run in self.runs], np.int64)
        stops: Ints = np.array([run.stop for run in self.runs], np.int64)
        if not rests.any():
            return self._data.block, starts, stops, np.zeros_like(rests)
        view, pieces = memoryview(self._data.block), list[bytes | memoryview]()
        for run in self.runs:
            pieces += (run.rest, view[run.start : run.stop])
        ends: Ints = np.cumsum(rests + stops - starts)
        return b"".join((*pieces, PAD)), ends - (rests + stops - starts), ends, ends - stops

    def rows(self) -> Rows:
        """Return the frames, in the order of the packets that completed them."""
        first, last = (np.array([getattr(run, name) for run in self.runs], np.int64) for name in ("first", "last"))
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
        position = np.array([run.position - len(run.rest) for run in self.runs], np.int64)
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
        self, conversation: Conversation, rising: bool, data: Sorted, span: tuple[int, int, int, int], position: int
    ) -> bool:
        """Note what a batch brings to a direction; return False if the conversation must take it instead.

        Args:
            conversation: the connection, which does not ignore its bytes.
            rising: the direction.
            data: the data of the batch.
            span: the first segment, the one after the last, and where their data begins and ends in the block.
            position: the position of the data in the direction.
        """
        side = conversation.joint(rising)
        if side is None or side.prefixed is None:
            return False
        dissector = side.prefixed
        rest = dissector.rest
        if rest is None or span[3] - span[2] < dissector.missing:
            return False
        if not self._data or self._data[-1][0] is not data:
            self._data.append((data, []))
        place = len(self._settings.later or ())
        self._data[-1][1].append(Run(conversation, rising, side, dissector, rest, position, *span, place))
        return True

    def taken(self, events: list[Event]) -> tuple[list[Event], list[tuple[Rows, Lanes]]]:
        """Return the events since the last call, with those of runs that cannot be read together, and the frames of
        the other runs, by protocol. The dissectors continue after these frames."""
        batches, self._data = self._data, []
        if not batches:
            return events, []
        octets = sum([len(event.data) for event in events if isinstance(event.data, bytes)])
        octets += sum([run.stop - run.start for _, runs in batches for run in runs])
        few = octets <= self._settings.limits.capture_bytes - self._settings.buffered
        busy = {event.side for event in events}
        alone: list[tuple[int, Event]] = []
        groups: list[_Group] = []
        for data, runs in batches:
            alike: dict[str, list[Run]] = {}
            for run in runs if few else ():
                if run.side not in busy:
                    alike.setdefault(run.dissector.PROTOCOL, []).append(run)
            made = [_Group(some, data, self._boundaries) for some in alike.values()]
            read = {run.side for group in made for run, tail in zip(group.runs, group.tails, strict=True) if tail >= 0}
            alone += [(run.place, _event(run, data)) for run in runs if run.side not in read]
            groups += made
        return _merged(events, alone), [found for group in groups if (found := self._read(group)) is not None]

    def _read(self, group: _Group) -> tuple[Rows, Lanes] | None:
        """Let the dissectors continue after the frames of their runs; return these frames."""
        block, buffered = group.block, 0
        for run, start, stop, tail in zip(
            group.runs, group.starts.tolist(), group.stops.tolist(), group.tails, strict=True
        ):
            if tail >= 0:
                rest = block[tail:stop] if tail < stop else b""
                proceed(run.dissector, tail - start, rest)
                buffered += len(rest) - len(run.rest)
        self._settings.buffered += buffered
        rows = group.rows()
        for run, count in zip(group.runs, np.bincount(rows.lane, minlength=len(group.runs)).tolist(), strict=True):
            run.conversation.frames += count
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
    octets = data.block[run.start : run.stop]
    ends, packets = data.parts(run.first, run.last, run.start)
    return Event(run.conversation, run.rising, run.side, octets, run.position, ends, packets)


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
