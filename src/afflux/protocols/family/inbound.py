"""Parse received bytes: split blocks into frames, and turn plain items directly into events.

Theory of operation. One read is one pass: whole frames are processed in place, and the tail is stored once. Items
within credit bypass the tables (there the same step is ITEM/DELIVER), because they are the bulk of all traffic: a run
of them is one event. Whole requests (IDLE/APP_OPEN_LAST) and their answers (ITEM_LAST/COMPLETE_IN) bypass the tables
too, and a run of them is also one event. The last item of a stream (ITEM_LAST/COMPLETE_IN), in one event with the items
before it, and a grant (short.py) bypass them as well. Everything else is decoded and passes through the tables.

A length is checked as soon as it has arrived (FR-01, FR-02); nothing is allocated for it before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Protocol

from afflux.core.alike import MANY, alike
from afflux.core.buffer import ReceiveBuffer
from afflux.core.errors import Violation
from afflux.core.events import Block, Items
from afflux.core.limits import oversize
from afflux.core.payload import Payload, Plain, Run
from afflux.protocols.family.marked import take_marked
from afflux.protocols.family.short import end_of_last, end_with, take_grant, take_last
from afflux.protocols.family.states import StreamState
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams
from afflux.protocols.family.varied import LONG, add_more

__all__ = ["Counting", "Inbound", "Runs"]

_FAR = 1 << 62
_FEW = 3
"Items of one event that become objects immediately; an object for each of more is created when it is consumed."
# Enum members are slow to look up.
_IN_DONE, _CLOSED = StreamState.IN_DONE, StreamState.CLOSED

Treat = Callable[[bytes, int, int], None]
"``treat(block, start, end)`` decodes and applies one frame."


class Counting(Protocol):
    """A counter of received bytes, for resumption."""

    def count(self, block: bytes, start: int, end: int) -> None:
        """Count the whole frames in ``block[start:end]`` as received."""


class Runs(Protocol):
    """A further short path, for items whose word is not a plain one."""

    def take(self, streams: Streams, id: int, word: int, block: bytes, position: int, end: int, limit: int) -> int:
        """Deliver a run of whole items, which begins with a whole frame of at most ``limit`` bytes; return where it
        ends, which is where it starts when the frame must go through the tables."""


class Inbound:
    """The bytes that were received and not processed yet."""

    __slots__ = (
        "_counted",
        "_limit",
        "_parsing",
        "_plain",
        "_streams",
        "buffer",
        "established",
        "first",
        "held",
        "incomplete_since",
        "over",
        "retained",
        "runs",
    )

    def __init__(self, streams: Streams, first: bool) -> None:
        limits = streams.limits
        self._streams = streams
        self.buffer = ReceiveBuffer(limits.connection_bytes + limits.frame_bytes)
        "Bytes of an incomplete frame."
        self._parsing = streams.member.parsing
        self._plain = min(limits.frame_bytes, limits.payload_bytes + streams.member.layout.least)
        "The longest frame of the short paths: its payload cannot exceed ``payload_bytes``."
        self.first = first
        "The first frame of an unknown peer has not arrived: its limit is lower (HS-12)."
        self._limit = limits.first_frame_bytes if first else limits.frame_bytes
        "The highest length of a frame."
        self.established = False
        "The connection may be used: the short paths are enabled."
        self.held = False
        "Stop after the current frame and buffer the rest: the application is deciding."
        self.over = False
        "The connection has ended: drop the rest."
        self.incomplete_since: float | None = None
        "When the unfinished frame at the end began to arrive."
        self.retained: Counting | None = None
        "Counts the received position (R-44); None without resumption."
        self.runs: Runs | None = None
        "A further short path; None for most protocols."
        self._counted = 0

    @property
    def pending(self) -> int:
        """Bytes buffered."""
        return self.buffer.pending

    def receive(self, data: bytes | memoryview, treat: Treat) -> None:
        """Receive bytes and process every complete frame.

        Raises:
            Violation: the peer broke a rule; the frames before have been processed.
        """
        block = self.buffer.feed(data)
        if block is not None:
            self.parse(block, treat)

    def admit(self) -> None:
        """The first frame was accepted: the next ones may be as long as any."""
        self.first = False
        self._limit = self._streams.limits.frame_bytes

    def resume(self, treat: Treat) -> None:
        """Process the buffered input, after the application's decision."""
        self.held = False
        if block := self.buffer.take():
            self.parse(block, treat)

    def hold(self, now: float) -> None:
        """Exclude the time until ``now`` from the unfinished frame's time: this side did not read."""
        if self.incomplete_since is not None:
            self.incomplete_since = now

    def close(self) -> None:
        """Drop the incomplete frame: the connection or its transport has ended."""
        self.over = True
        self.incomplete_since = None
        self.buffer.clear()

    def parse(self, block: bytes, treat: Treat) -> None:  # long: a call for each frame would cost more than the frame
        """Process every whole frame of a block and buffer the tail.

        Raises:
            Violation: the peer broke a rule; the frames before have been processed.
        """
        position, end = 0, len(block)
        self._counted = 0
        unpack, header_size, own, least, id_first, answers, requests, metadata, complete, grant = self._parsing
        live, limit, plain = self._streams.live, self._limit, self._plain
        while end - position >= header_size:
            high, low, id, word = unpack(block, position)
            if not id_first:
                id, word = word, id
            length = high << 16 | low
            stop = position + own + length
            if stop > end or length > limit or length < least:
                stop = position + self._masked(block, position, end)
                if stop == position:
                    break
            if self.established and length <= plain:
                after, stream = position, live.get(id)
                if stream is None:
                    if word in requests:
                        after = self._take_requests(block, position, end)
                elif word == grant:
                    if take_grant(self._streams, stream, block, position + header_size, stop):
                        after = stop
                elif hot := stream.hot:
                    if word == hot:
                        take = self._take_columns if stream.columnar else self._take_items
                        after = take(stream, block, position, end)
                    elif word == hot ^ metadata:
                        after = take_marked(self._streams, stream, block, position, end, plain)
                    elif word == hot ^ complete:
                        after = take_last(self._streams, stream, block, position, end, plain)
                elif stream.answering and word in answers:
                    after = self._take_answers(block, position, end)
                if after == position and self.runs is not None:
                    after = self.runs.take(self._streams, id, word, block, position, end, plain)
                if after > position:
                    position = after
                    continue
            if not id:
                self._count(block, position)  # a KEEPALIVE reports the position before it
            treat(block, position + self._streams.member.layout.prefix, stop)
            limit = self._limit
            position = stop
            if self.held or self.over:
                break
        if position == end and self.retained is None and not (self.held or self.over):
            self.incomplete_since = None  # nothing to keep
        else:
            self._keep(block, position, end)

    def _masked(self, block: bytes, position: int, end: int) -> int:
        """Charge a length whose reserved bit is set (FR-03), and return the size of the frame; 0 unless it is whole and
        fits."""
        streams = self._streams
        layout = streams.member.layout
        raw = int.from_bytes(block[position : position + layout.prefix], "big")
        length = raw & ~layout.reserved
        if raw == length or layout.own + length > end - position or not layout.least <= length <= self._limit:
            return 0
        streams.current.charge(1, 0, streams.member.rules.reserved, "the reserved bit of a length is set")
        return layout.own + length

    def _take_items(self, stream: Stream, block: bytes, position: int, end: int) -> int:
        """Deliver a run of plain items of one stream, at least one; return where it ends."""
        streams, id, owed, limit, start = self._streams, stream.id, stream.to_receive.available, self._plain, position
        layout = streams.member.layout
        unpack, header_size, own, least, _ = layout.parsing
        high, low, first, second = unpack(block, position)
        stride = own + (high << 16 | low)
        if owed >= MANY <= (end - position) // stride and (
            count := alike(block, position, end, stride, owed, header_size)
        ):
            # One object per item would be created long before it is used: 0.3 µs each, mostly for the collector.
            stop: int = position + count * stride
            if (stop - start) * 2 < len(block):
                block, position = block[start:stop], 0  # the waiting run does not keep the rest of the block alive
            size = stride - header_size
            streams.took(stream, count, size * count)
            streams.current.events.append(Items(id, Run(block, position, header_size, size, count)))
            return stop
        datas: list[bytes] = []
        append = datas.append
        while owed and end - position >= header_size:
            high, low, frame_first, frame_second = unpack(block, position)
            length = high << 16 | low
            stop = position + own + length
            if frame_first != first or frame_second != second or stop > end or length > limit or length < least:
                break
            append(block[position + header_size : stop])
            owed -= 1
            position = stop
            if len(datas) == LONG:
                position = add_more(streams, stream, datas, block, start, position, end, limit)
                break
        owed = stream.to_receive.available - len(datas)
        if stop := end_of_last(streams, stream, owed, block, position, end, limit):
            append(block[position + header_size : stop])
            position = stop
        streams.took(stream, len(datas), position - start - header_size * len(datas))
        found = Plain(datas) if len(datas) > _FEW else list(map(Payload, datas))
        streams.current.events.append(Items(id, found, stop > 0))
        if stop:
            end_with(streams, stream)
        return position

    def _take_columns(self, stream: Stream, block: bytes, position: int, end: int) -> int:
        """Deliver a run of items as a Block."""
        starts, ends = array("q"), array("q")
        streams, owed, start, limit = self._streams, stream.to_receive.available, position, self._plain
        layout = streams.member.layout
        unpack, header_size, own, least, _ = layout.parsing
        _, _, first, second = unpack(block, position)
        while owed and end - position >= header_size:
            high, low, frame_first, frame_second = unpack(block, position)
            length = high << 16 | low
            stride = own + length
            other = frame_first != first or frame_second != second
            if other or position + stride > end or length > limit or length < least:
                break
            count = alike(block, position, end, stride, owed, header_size) or 1
            stop = position + count * stride
            starts.extend(range(position + header_size, stop + header_size, stride))
            ends.extend(range(position + stride, stop + stride, stride))
            owed -= count
            position = stop
        streams.took(stream, len(ends), position - start - header_size * len(ends))
        streams.current.events.append(Block(stream.id, block, starts, ends))
        return position

    def _take_answers(self, block: bytes, position: int, end: int) -> int:
        """Deliver a run of whole answers to requests, at least one; return where it ends."""
        ids: list[int] = []
        payloads: list[Payload] = []
        streams, limit, start = self._streams, self._plain, position
        live = streams.live
        unpack, header_size, own, least, id_first, answers, _, _, _, _ = self._parsing
        while end - position >= header_size:
            high, low, id, word = unpack(block, position)
            if not id_first:
                id, word = word, id
            length = high << 16 | low
            stop = position + own + length
            if word not in answers or stop > end or length > limit or length < least:
                break
            stream = live.get(id)
            if stream is None or not stream.answering:
                break
            stream.state = _CLOSED
            del live[id]
            ids.append(id)
            payloads.append(Payload(block[position + header_size : stop]))
            position = stop
        streams.answered(ids, payloads, position - start - header_size * len(ids))
        return position

    def _take_requests(self, block: bytes, position: int, end: int) -> int:
        """Deliver a run of whole REQUEST_RESPONSE; return where it ends, which is where it starts when the first one
        must go through the tables."""
        streams = self._streams
        newest, most, parity, limit = streams.newest, streams.startable(), streams.peer_parity, self._plain
        live, layout = streams.live, streams.member.layout
        unpack, header_size, own, least, id_first = layout.parsing
        role, last_id, bare, with_metadata, unpack_marked = streams.member.asking
        ids: list[int] = []
        payloads: list[Payload] = []
        size = 0
        while end - position >= header_size and most > 0:
            high, low, id, word = unpack(block, position)
            if not id_first:
                id, word = word, id
            length = high << 16 | low
            stop = position + own + length
            if stop > end or length > limit or length < least or id <= newest or id & 1 != parity or id > last_id:
                break
            start = position + header_size
            if word == bare:
                payload = Payload(block[start:stop])
                size += stop - start
            elif word == with_metadata and stop - start >= layout.metadata_size:
                _, _, _, _, more, counted = unpack_marked(block, position)
                data = start + layout.metadata_size
                middle = data - layout.metadata_counts + (more << 16 | counted)
                if not data <= middle <= stop:
                    break
                payload = Payload(block[middle:stop], block[data:middle])
                size += stop - data
            else:
                break
            newest = id
            most -= 1
            stream = live[id] = Stream(id, "request", role)
            stream.state = _IN_DONE
            ids.append(id)
            payloads.append(payload)
            position = stop
        if ids:
            streams.asked(ids, payloads, size)
        return position

    def _count(self, block: bytes, position: int) -> None:
        """Count everything processed so far as received (R-44)."""
        if self.retained is not None:
            self.retained.count(block, self._counted, position)
            self._counted = position

    def _keep(self, block: bytes, position: int, end: int) -> None:
        if self.over:  # a frame that ended a transport is not received (RE-04): only RESUME_OK may precede the opening
            self.buffer.clear()
            return
        self._count(block, position)
        need = 0
        if self.held:
            need = _FAR
        elif end - position >= self._streams.member.layout.prefix:
            need = self._judge(block, position, end)
        if position:
            self.incomplete_since = None
        if position < end and not self.held and self.incomplete_since is None:
            self.incomplete_since = self._streams.current.now
        self.buffer.keep(block, position, need)

    def _judge(self, block: bytes, position: int, end: int) -> int:
        """Return how many bytes make the next frame whole; a length out of bounds is a violation."""
        member = self._streams.member
        layout, code = member.layout, member.codes.Code
        length = layout.length_of(block, position)
        if length < layout.least:
            text = f"a frame of {length} bytes is shorter than its header"
            raise Violation(text, rule=member.rules.length, code=code.INVALID_SETUP if self.first else None)
        if length <= self._limit:
            return layout.own + length
        if not self.first:
            text = oversize(self._streams.limits, "frame_bytes", length)
            raise Violation(text, rule="frame_bytes", too_large=True)
        reason = oversize(self._streams.limits, "first_frame_bytes", length)
        if layout.id_first and any(block[position + layout.prefix : min(end, position + layout.prefix + 4)]):
            # HS-12: a first frame is on stream 0, whatever its type
            raise Violation(reason, rule="first_frame_bytes", code=code.INVALID_SETUP)
        if end - position < layout.typed:  # HS-12: the type decides the code
            return end - position + 1 if layout.id_first else layout.typed
        refusal = member.first_codes.get(layout.type_of(block, position), code.INVALID_SETUP)
        raise Violation(reason, rule="first_frame_bytes", code=refusal)
