"""Decode together the directions of connections that only continue in a batch of packets.

Theory of operation. In captures of services most directions bring a few segments in a batch, each of which continues
the one before. Such a direction needs no event: ``Sorted`` sorts the segments by direction,
and ``Steady`` only notes which of them are a direction's (``Run``). At the end of the batch one pass of
the kernels finds the frames of all runs, and columns.py reads their fields. A run that cannot be read so becomes an
event of its conversation, in its place among the others: both ways have the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from afflux.capture import frame_kernels as kernel
from afflux.capture.packets import Ints
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

_FEW: Final = 16
"Segments whose last bytes are looked for first: most have 1,448 bytes, and 16 KiB are remembered (recent.py)."


class Sorted:
    """The data of the segments of a batch, sorted by direction. Nothing is copied before it is asked for.

    Args:
        found: the segments.
        order: their order.
        stops: where the data of each would end if it was put end to end.
        parts: the first segment of each direction, as a place in the order, and the one after the last.
        boundaries: copies the data.
    """

    __slots__ = ("_at", "_boundaries", "_order", "_size", "first", "found", "last", "start", "stop", "stops")

    def __init__(
        self, found: Segments, order: Ints, stops: Ints, parts: tuple[Ints, Ints], boundaries: Boundaries
    ) -> None:
        self.found = found
        self._order, self.stops, self._boundaries = order, stops, boundaries
        self._at, self._size = found.at[order], found.size[order]
        self.first, self.last = parts
        self.start = stops[self.first] - self._size[self.first]
        "Where the data of each direction would begin."
        self.stop = stops[self.last - 1]
        "Where it would end."

    def packets(self, places: Ints | slice) -> Ints:
        """Return the packets of segments, given their places in the order."""
        found: Ints = self.found.index[self._order[places]]
        return found

    def ends(self, number: int) -> tuple[list[int], list[int]]:
        """Return where the data of a direction's segments ends, counted from its beginning, and their packets."""
        some = slice(int(self.first[number]), int(self.last[number]))
        return (self.stops[some] - self.start[number]).tolist(), self.packets(some).tolist()

    def octets(self, number: int) -> bytes:
        """Return the data of a direction."""
        return self.tail(number, int(self.stop[number] - self.start[number]))

    def tail(self, number: int, size: int) -> bytes:
        """Return the last bytes of a direction, ``size`` at most."""
        first, place, some = int(self.first[number]), int(self.last[number]), _FEW
        block, pieces = self.found.block, list[bytes]()
        while size and place > first:
            begin = max(first, place - some)
            at, sizes = self._at[begin:place].tolist(), self._size[begin:place].tolist()
            while size and at:
                start, octets = at.pop(), sizes.pop()
                pieces.append(block[start + max(0, octets - size) : start + octets])
                size -= len(pieces[-1])
            place, some = begin, some * 4
        return pieces[0] if len(pieces) == 1 else b"".join(reversed(pieces))

    def joined(self, places: Ints, shift: Ints, total: int, others: list[tuple[int, bytes]]) -> bytes:
        """Return a block of ``total`` bytes, and ``PAD`` after them: the data of segments, and other bytes.

        Args:
            places: the segments, as places in the order.
            shift: how far each is behind the place that ``stops`` tells.
            total: the bytes of the block.
            others: where other bytes are in the block, and these.
        """
        size = self._size[places]
        begin = self.stops[places] - size + shift
        return self._boundaries.joined(self.found.block, self._at[places], size, begin, total, others)


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
        self._boundaries = boundaries
        self._numbers: Ints = np.array([run.number for run in runs], np.int64)
        self._rests: Ints = np.array([len(run.rest) for run in runs], np.int64)
        first = data.first[self._numbers]
        counts = data.last[self._numbers] - first
        self._lane = np.repeat(np.arange(len(counts)), counts)
        self._places = np.arange(len(self._lane)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        self.block, self.starts, self.stops, self._shift = self._joined()
        dissector = runs[0].dissector
        prefix = dissector.prefix
        self._at, self._size, tails = boundaries.find(
            self.block, self.starts, self.stops, width=prefix.width, own=prefix.own,
            mask=(1 << 8 * prefix.width) - 1 & ~prefix.reserved, largest=dissector.largest,
        )  # fmt: skip
        self.tails = tails
        "Where the incomplete frame of each run begins; -1 if its dissector must decode the run."

    def _joined(self) -> tuple[bytes, Ints, Ints, Ints]:
        """Return the bytes of all runs: the block, where each run begins and ends in it, and how far the data of each
        segment is from the place that ``Sorted`` tells."""
        data, rests = self._data, self._rests
        stops = data.stop[self._numbers]
        sizes = rests + stops - data.start[self._numbers]
        ends: Ints = np.cumsum(sizes)
        starts, shift = ends - sizes, (ends - stops)[self._lane]
        others = [(start, run.rest) for start, run in zip(starts.tolist(), self.runs, strict=True) if run.rest]
        return data.joined(self._places, shift, int(ends[-1]), others), starts, ends, shift

    def rows(self) -> Rows:
        """Return the frames, in the order of the packets that completed them."""
        function = self._boundaries.compiled(kernel.ordered)
        if function is not None:
            return self._sorted(function)
        known = np.searchsorted(self._at + self._size, self._data.stops[self._places] + self._shift, "right")
        segment = np.repeat(np.arange(len(known)), np.diff(known, prepend=0))
        packets = self._data.packets(self._places)[segment]
        lane = self._lane[segment]
        found = Rows(self.block, self._at, self._size, lane, packets, np.zeros(len(segment), np.int64))
        return found.where(np.argsort(packets, kind="stable"))

    def _sorted(self, function: Callable[..., None]) -> Rows:
        """Return what ``rows`` does."""
        count, packets = len(self._at), self._data.packets(self._places)
        ends = self._data.stops[self._places] + self._shift
        counts = np.zeros(int(packets.max(initial=0)) + 2, np.int64)
        out: Ints = np.empty((4, count), np.int64)
        function(self._at, self._size, ends, self._lane, packets, counts, np.empty(count, np.int32), out)
        at, size, lane, packet = out
        return Rows(self.block, at, size, lane, packet, np.zeros(count, np.int64))

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
    octets = data.octets(run.number)
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
