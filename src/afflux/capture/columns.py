"""Decode what a batch of packets brings to all connections together, into columns.

Theory of operation. The events of a batch are collected (``Settings.later``). The bytes of each direction that has
length-prefixed frames are joined, with the rest of the last batch before them; a kernel finds the frames (kernels.py)
and their fields are read as the declarations define them (layouts.py). The dissector of the direction then continues
after these frames. It decodes all else, event by event: other protocols, directions with missing bytes or wrong
lengths, and the frames that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture import frame_kernels as kernel
from afflux.capture.conversation import Conversation
from afflux.capture.frames import Frames, Kinds, Payloads, protocol_of
from afflux.capture.kernels import SHARED, Boundaries
from afflux.capture.layouts import Columns, Layout
from afflux.capture.packets import PAD, Ints
from afflux.capture.settings import Event, Found, Settings
from afflux.capture.sides import PlainSide, Side
from afflux.capture.steady import Steady, Together, proceed
from afflux.capture.talk import Talk
from afflux.capture.whole import Lanes, Rows, Whole
from afflux.core.dissector import Prefixed, Record

__all__ = ["BatchReader"]

_ALIKE: Final = 256
"Frames read by a dissector whose records are kept: the clients of a service begin alike."
_SHORT: Final = 1_024
"Bytes of the longest of them."
LAST: Final = 1 << 40
"Stands for the packet -1 in an order."
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Lane:
    """What a batch brings to one direction with length-prefixed frames."""

    conversation: Conversation
    dissector: Prefixed
    rest: bytes
    "The bytes before."
    base: int
    "The position of ``rest`` in the direction."
    numbers: list[int]
    "The events with bytes."
    pieces: list[bytes]
    "Their bytes."
    end: int | None
    "The event that ends the direction."
    start: int = 0
    "Where ``rest`` is in the joined bytes."
    stop: int = 0
    "Where the lane ends there."


class _Joined:
    """The bytes of some lanes, one lane after the other, and the packets that brought them."""

    def __init__(self, lanes: list[_Lane], events: list[Event]) -> None:
        pieces: list[bytes] = []
        ends: list[Sequence[int]] = []
        packets: list[Sequence[int]] = []
        shifts: list[int] = []
        owner: list[int] = []
        position = 0
        for number, lane in enumerate(lanes):
            lane.start = position
            pieces.append(lane.rest)
            position += len(lane.rest)
            pieces += lane.pieces
            owner += [number] * len(lane.pieces)
            for one, data in zip(lane.numbers, lane.pieces, strict=True):
                _, _, _, _, _, parts, numbers = events[one]
                ends.append(parts if len(parts) > 1 else (len(data),))
                packets.append(numbers)
                shifts.append(position)
                position += len(data)
            lane.stop = position
        self.block = b"".join((*pieces, PAD))
        counts = np.array([len(piece) for piece in ends], np.int64)
        self._end = np.array(list(chain.from_iterable(ends)), np.int64) + np.repeat(np.array(shifts, np.int64), counts)
        self._packet = np.array(list(chain.from_iterable(packets)), np.int64)
        self._event = np.repeat(np.array(list(chain.from_iterable(lane.numbers for lane in lanes)), np.int64), counts)
        self._lane = np.repeat(np.array(owner, np.int64), counts)

    def rows(self, at: Ints, size: Ints) -> Rows:
        """Return the frames that are at these places, in ascending order: each with the packet that completed it."""
        known = np.searchsorted(at + size, self._end, "right")
        segment = np.repeat(np.arange(len(self._end)), np.diff(known, prepend=0))
        return Rows(self.block, at, size, self._lane[segment], self._packet[segment], self._event[segment])


class BatchReader:
    """Makes the frames of a batch out of its events.

    Args:
        settings: of the conversations. Their events are collected from now on.
        boundaries: finds the frames.
    """

    def __init__(self, settings: Settings, boundaries: Boundaries = SHARED) -> None:
        self._settings = settings
        self._payload = settings.payload == "bytes"
        self._boundaries = boundaries
        self._layouts: dict[str, Layout] = {}
        self._alike: dict[tuple[str, bool, bytes], Record] = {}
        self.together = Together(Whole(settings, boundaries), Steady(settings, boundaries))
        "Decodes what needs no events."
        settings.later = []

    def frames(self, time: Ints, kinds: Kinds) -> Frames:
        """Return the frames that the events since the last call complete.

        Args:
            time: when the packets of the batch were captured; the last one stands for those after it.
            kinds: the types of frames, which this adds to.
        """
        later, self._settings.later = self._settings.later or [], []
        events, steady = self.together.steady.taken(later)
        lanes, rest = self._lanes(events)
        parts: list[Frames] = []
        orders: list[Ints] = []
        for rows, together in (*self.together.whole.taken(), *steady):
            parts.append(self._read(rows, together, time, kinds))
            orders.append(rows.event)
        for group in lanes.values():
            rows, tails = self._found(group, events)
            rest += self._settled(group, tails)
            if len(rows):
                parts.append(self._read(rows, _read_as(group, rows), time, kinds))
                orders.append(rows.event)
        found, numbers = self._replayed(events, sorted(rest))
        if found or not parts:
            parts.append(Frames.made_of(found, time, kinds, payload=self._payload))
            orders.append(np.array(numbers, np.int64))
        return _ordered(Frames.joined(parts), np.concatenate(orders)) if len(parts) > 1 or found else parts[0]

    def _lanes(self, events: list[Event]) -> tuple[dict[str, list[_Lane]], list[int]]:
        """Return the lanes of each protocol, and the events of the other directions."""
        sides: dict[Side, list[int]] = {}
        for number, event in enumerate(events):
            sides.setdefault(event.side, []).append(number)
        most = self._settings.limits.capture_bytes - self._settings.buffered
        few = sum([len(event.data) for event in events if isinstance(event.data, bytes)]) <= most
        lanes: dict[str, list[_Lane]] = {}
        rest: list[int] = []
        for side, numbers in sides.items():
            lane = _lane(side, numbers, events) if few else None
            if lane is None:
                rest += numbers
            else:
                lanes.setdefault(lane.dissector.PROTOCOL, []).append(lane)
        return lanes, rest

    def _found(self, lanes: list[_Lane], events: list[Event]) -> tuple[Rows, list[bytes | None]]:
        """Return the frames of some lanes of one protocol, and the rest of each lane. The rest is None for a lane that
        its dissector must decode."""
        joined = _Joined(lanes, events)
        prefix = lanes[0].dissector.prefix
        at, size, tails = self._boundaries.find(
            joined.block,
            np.array([lane.start for lane in lanes], np.int64),
            np.array([lane.stop for lane in lanes], np.int64),
            width=prefix.width,
            own=prefix.own,
            mask=(1 << 8 * prefix.width) - 1 & ~prefix.reserved,
            largest=lanes[0].dissector.largest,
        )
        places = zip(tails.tolist(), lanes, strict=True)
        rests = [joined.block[tail : lane.stop] if tail >= 0 else None for tail, lane in places]
        rows = joined.rows(at, size)
        key = np.where(rows.packet < 0, LAST, rows.packet) * (len(events) + 1) + rows.event
        return (rows if _sorted(key) else rows.where(np.argsort(key, kind="stable"))), rests

    def _settled(self, lanes: list[_Lane], tails: list[bytes | None]) -> list[int]:
        """Let the dissectors continue after what was read; return the events that they must handle."""
        rest: list[int] = []
        for lane, tail in zip(lanes, tails, strict=True):
            if tail is None:
                rest += lane.numbers
            else:
                proceed(lane.dissector, lane.stop - lane.start - len(tail), tail)
                self._settings.buffered += len(tail) - len(lane.rest)
            if lane.end is not None and (tail is None or tail):
                rest.append(lane.end)
        return rest

    def _replayed(self, events: list[Event], numbers: list[int]) -> tuple[list[Found], list[int]]:
        """Let the dissectors handle events; return the frames, and the event of each."""
        order: list[int] = []
        for number in numbers:
            events[number].conversation.handle(events[number])
            order += [number] * (len(self._settings.found) - len(order))
        found = self._settings.taken()
        return found, order

    def _read(self, rows: Rows, lanes: Lanes, time: Ints, kinds: Kinds) -> Frames:
        """Read the fields of frames."""
        dissector = lanes.dissector(0)
        layout = self._layouts.get(dissector.PROTOCOL)
        if layout is None:
            layout = self._layouts[dissector.PROTOCOL] = Layout(dissector.declared)
        found = layout.read(rows.block, rows.at, rows.size)
        numbers: dict[str, Any] = found.numbers | {f"{name}_len": sizes for name, sizes in found.sizes.items()}
        number, mask = _kinds(layout, found, lanes.talks[0], kinds)
        made = Frames(
            conversations=lanes.talks,
            kinds=kinds,
            packet=rows.packet,
            **_details(rows, lanes, found, number, mask, time, self._boundaries),
            **numbers,
            length=rows.size,
            payloads=Payloads(rows.block, **found.at) if self._payload else None,
        )
        wrong = np.flatnonzero(~found.read)
        for code, (here, values) in found.own.items():
            if layout.own[code]:
                _fields(made, partial(self._record, rows, lanes), here, found.read[here], values)
        if not len(wrong):
            return made
        return made.put(wrong, self._alone(rows, lanes, wrong, made, kinds))

    def _alone(self, rows: Rows, lanes: Lanes, wrong: Ints, made: Frames, kinds: Kinds) -> Frames:
        """Return the frames of some rows, each read by a dissector; those with the same bytes are read once."""
        at, lane = rows.at[wrong], rows.lane[wrong]
        columns = (wrong, at, at + rows.size[wrong], lanes.client[lane])
        known: dict[tuple[bool, bytes], int] = {}
        samples: list[Found] = []
        numbers: list[int] = []
        for row, begin, end, client in zip(*(column.tolist() for column in columns), strict=True):
            number = known.setdefault((client, rows.block[begin:end]), len(samples))
            if number == len(samples):
                samples.append(self._record(rows, lanes, row, 0))
            numbers.append(number)
        found = Frames.made_of(samples, np.empty(0, np.int64), kinds, payload=self._payload)
        mine = {name: getattr(made, name)[wrong] for name in ("packet", "time", "conn", "offset")}
        return found.repeated(np.array(numbers, np.int64), conversations=lanes.talks, **mine)

    def _record(self, rows: Rows, lanes: Lanes, row: int, offset: int) -> Found:
        """Return the record of one frame."""
        at, lane = int(rows.at[row]), int(rows.lane[row])
        data, dissector = rows.block[at : at + int(rows.size[row])], lanes.dissector(lane)
        key = (dissector.PROTOCOL, dissector.client, data)
        made = self._alike.get(key)
        if made is None:
            made = dissector.at(data, offset)
            if len(data) <= _SHORT:
                if len(self._alike) >= _ALIKE:
                    self._alike.clear()
                self._alike[key] = made
        made = {**made, "offset": offset}
        return int(rows.packet[row]), lanes.talks[lanes.conn[lane]], made


def _lane(side: Side, numbers: list[int], events: list[Event]) -> _Lane | None:
    """Return the lane of a direction whose frames can be found together; None if its dissector must find them."""
    dissector = side.prefixed if isinstance(side, PlainSide) else None
    if dissector is None:
        return None
    last = events[numbers[-1]]
    end = numbers[-1] if last.data is None else None
    given = numbers if end is None else numbers[:-1]
    pieces = [data for number in given if isinstance(data := events[number].data, bytes)]
    rest = dissector.joined(sum(map(len, pieces))) if pieces and len(pieces) == len(given) else None
    if rest is None:
        return None
    return _Lane(last.conversation, dissector, rest, dissector.offset, given, pieces, end)


def _read_as(lanes: list[_Lane], rows: Rows) -> Lanes:
    """Return what is needed of lanes to read their frames, and count these."""
    owners: dict[Talk, int] = {}
    conn = np.array([owners.setdefault(lane.conversation, len(owners)) for lane in lanes], np.int64)
    for lane, count in zip(lanes, np.bincount(rows.lane, minlength=len(lanes)).tolist(), strict=True):
        lane.conversation.frames += count
    return Lanes(
        talks=list(owners),
        conn=conn,
        client=np.array([lane.dissector.client for lane in lanes], np.bool_),
        shift=np.array([lane.base - lane.start for lane in lanes], np.int64),
        dissector=lambda lane: lanes[lane].dissector,
    )


def _kinds(layout: Layout, found: Columns, conversation: Talk, kinds: Kinds) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return the kind of each type on the wire of which frames were read, and the bits of its declared flags."""
    entry = protocol_of(conversation)
    size = max(max(layout.frames), int(found.code.max())) + 1
    number, mask = np.zeros(size, np.int32), np.zeros(size, np.int64)
    for code in found.own:
        number[code] = kinds.of(entry, layout.frames[code][0].NAME)
        mask[code] = sum(flag.bit for flag, _ in layout.frames[code][0].FLAGS)
    return number, mask


def _details(
    rows: Rows, lanes: Lanes, found: Columns, number: npt.NDArray[np.int32], mask: Ints, time: Ints,
    boundaries: Boundaries,
) -> dict[str, Any]:  # fmt: skip
    """Return the columns that follow from the type, the lane and the packet of frames. ``number`` and ``mask`` are what
    ``_kinds`` returns; ``boundaries`` has the kernel, if it is compiled."""
    function = boundaries.compiled(kernel.details)
    if function is None:
        return {
            "time": time[rows.packet],
            "conn": lanes.conn[rows.lane],
            "client": lanes.client[rows.lane],
            "kind": number[found.code],
            "flags": (found.word & mask[found.code]).astype(np.int32),
            "offset": rows.at + lanes.shift[rows.lane],
        }
    count = len(rows.at)
    kinds = {
        "kind": np.int32,
        "flags": np.int32,
        "time": np.int64,
        "conn": np.int64,
        "client": np.bool_,
        "offset": np.int64,
    }
    made: dict[str, npt.NDArray[Any]] = {name: np.empty(count, kind) for name, kind in kinds.items()}
    function(
        found.code, found.word, rows.lane, rows.packet, rows.at, number, mask, time, lanes.conn, lanes.client,
        lanes.shift, *made.values(),
    )  # fmt: skip
    return made


def _fields(
    made: Frames, record: Callable[[int, int], Found], here: Ints, read: Flags, values: dict[str, list[int]]
) -> None:
    """Note the other declared fields of the frames of one type. Those without a number in ``values`` are the same in
    all frames that were read: the dissector shows one."""
    good = np.flatnonzero(read).tolist()
    if not good:
        return
    first = int(here[good[0]])
    sample = record(first, 0)[2]["fields"]
    places = here[good].tolist()
    if not values:
        made.fields.update(dict.fromkeys(places, sample))
        return
    names, made_of = list(values), dict[tuple[int, ...], dict[str, Any]]()
    listed = [[values[name][one] for one in good] for name in names]
    for place, row in zip(places, zip(*listed, strict=True), strict=True):
        found = made_of.get(row)
        if found is None:
            found = made_of[row] = {**sample, **dict(zip(names, row, strict=True))}
        made.fields[place] = found


def _sorted(key: Ints) -> bool:
    return bool((key[1:] >= key[:-1]).all())


def _ordered(frames: Frames, events: Ints) -> Frames:
    """Return frames in the order of their packets, and of the events of one packet."""
    key = np.where(frames.packet < 0, LAST, frames.packet)
    order = np.lexsort((events, key))
    return frames if _sorted(order) else frames.taken(order)
