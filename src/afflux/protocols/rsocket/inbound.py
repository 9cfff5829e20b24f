"""The pass over received bytes: from a block of bytes to frames, and for plain items straight to events.

Theory of operation. One read is one pass: whole frames are treated in place, the tail is kept once. Items within
credit go round the tables of states.py (there the same step is ITEM/DELIVER), because they are most of all
traffic: a run of them is one event. So do whole requests (IDLE/APP_OPEN_LAST) and their answers (ITEM_LAST/
COMPLETE_IN), of which a run is one event as well. Everything else goes through ``frames.decode`` and the engine.

A length is judged as soon as its three bytes are there (FR-01, FR-02); nothing is allocated for it before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from afflux.core.alike import MANY, alike
from afflux.core.buffer import ReceiveBuffer
from afflux.core.errors import Violation
from afflux.core.events import Block, Items
from afflux.core.limits import Limits
from afflux.core.payload import Payload, Run
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import FLAG_METADATA, NEXT, NEXT_COMPLETE, RequestResponse, Resume, Setup
from afflux.protocols.rsocket.outbound import HEADER, HEADER_SIZE
from afflux.protocols.rsocket.resume import Retained, counted
from afflux.protocols.rsocket.stream import Stream
from afflux.protocols.rsocket.streams import CLOSED, SERVES_LAST, Streams

__all__ = ["Inbound"]

_FAR = 1 << 62
_REQUEST = RequestResponse.TYPE << 10
_REQUESTS = (_REQUEST, _REQUEST | FLAG_METADATA)
_LAST_ID = 0x7FFFFFFF


class Inbound:
    """What has been received and not yet treated.

    ``treat(block, start, end)`` is the engine's: it decodes and treats one frame.
    """

    __slots__ = (
        "_counted",
        "_limits",
        "_now",
        "_streams",
        "_treat",
        "buffer",
        "established",
        "first",
        "held",
        "incomplete_since",
        "over",
        "retained",
    )

    def __init__(self, limits: Limits, streams: Streams, treat: Callable[[bytes, int, int], None], first: bool) -> None:
        self._limits = limits
        self._streams = streams
        self._treat = treat
        self.buffer = ReceiveBuffer(limits.connection_bytes + limits.frame_bytes)
        "Bytes that are not a whole frame yet."
        self._now = 0.0
        self.first = first
        "The first frame of a stranger is still to come: it gets little (HS-12)."
        self.established = False
        "The connection may be used: the short paths are open."
        self.held = False
        "Stop after the current frame and keep the rest: the application is deciding."
        self.over = False
        "The connection has ended: drop the rest."
        self.incomplete_since: float | None = None
        "When the unfinished frame at the end began to arrive."
        self.retained: Retained | None = None
        "With resumption: where the received position is kept (R-44)."
        self._counted = 0

    @property
    def pending(self) -> int:
        """Bytes kept."""
        return self.buffer.pending

    def receive(self, data: bytes | memoryview, now: float) -> None:
        """Take received bytes and treat every frame that is whole by now.

        Raises:
            Violation: the peer broke a rule; what came before it has been treated.
        """
        self._now = now
        block = self.buffer.feed(data)
        if block is not None:
            self.parse(block)

    def resume(self, now: float) -> None:
        """The application has decided: treat what was held."""
        self._now = now
        self.held = False
        if block := self.buffer.take():
            self.parse(block)

    def hold(self, now: float) -> None:
        """The time until ``now`` does not count for the unfinished frame: this side did not read."""
        if self.incomplete_since is not None:
            self.incomplete_since = now

    def close(self) -> None:
        """The connection has ended, or its transport has: drop what is not a whole frame."""
        self.over = True
        self.incomplete_since = None
        self.buffer.clear()

    def end(self) -> None:
        """The connection is over for good: no frame will be treated. Who treats them holds this object, and is let go:
        what is over is freed at once, not when the garbage collector comes to it."""
        self.close()
        self._treat = _nobody

    def reopen(self) -> None:
        """There is a new transport."""
        self.over = False

    def hand_over(self) -> bytes:
        """What was held, for another engine."""
        return self.buffer.take()

    def parse(self, block: bytes) -> None:
        """Treat every whole frame of a block and keep the tail.

        Raises:
            Violation: the peer broke a rule; what came before it has been treated.
        """
        position, end = 0, len(block)
        self._counted = 0
        unpack, live, treat = HEADER.unpack_from, self._streams.live, self._treat
        limit, plain = self._limit, self._plain_limit
        while end - position >= HEADER_SIZE:
            high, low, id, word = unpack(block, position)
            length = high << 16 | low
            stop = position + 3 + length
            if stop > end or length > limit or length < 6:
                break
            if not self.established:
                treat(block, position + 3, stop)  # the first frame of a peer is looked at, whatever it is
                limit = self._limit
            elif word == NEXT and length <= plain and (stream := live.get(id)) is not None and stream.hot:
                take = self._take_columns if stream.columnar else self._take_items
                position = take(stream, block, position, end)
                continue
            elif (
                word == NEXT_COMPLETE and length <= plain and (stream := live.get(id)) is not None and stream.answering
            ):
                position = self._take_answers(block, position, end)
                continue
            elif word in _REQUESTS and (after := self._take_requests(block, position, end)) > position:
                position = after
                continue
            else:
                if not id:
                    self._count(block, position)  # a KEEPALIVE says the position before it
                treat(block, position + 3, stop)
                limit = self._limit
            position = stop
            if self.held or self.over:
                break
        self._keep(block, position, end)

    def _take_items(self, stream: Stream, block: bytes, position: int, end: int) -> int:
        """A run of plain items of one stream, at least one; returns where it ends."""
        unpack, id, owed, limit, start = HEADER.unpack_from, stream.id, stream.owed, self._plain_limit, position
        stride = 3 + int.from_bytes(block[position : position + 3], "big")
        if owed >= MANY <= (end - position) // stride and (
            count := alike(block, position, end, stride, owed, HEADER_SIZE)
        ):
            # An object for each would be made long before it is wanted: 0.3 µs an item, most of it for the collector.
            stop = position + count * stride
            if (stop - start) * 2 < len(block):
                block, position = block[start:stop], 0  # what waits does not keep alive what does not
            size = stride - HEADER_SIZE
            self._streams.took(stream, count, size * count)
            self._streams.events.append(Items(id, Run(block, position, HEADER_SIZE, size, count)))
            return stop
        payloads: list[Payload] = []
        append = payloads.append
        while owed and end - position >= HEADER_SIZE:
            high, low, frame_id, word = unpack(block, position)
            length = high << 16 | low
            stop = position + 3 + length
            if word != NEXT or frame_id != id or stop > end or length > limit or length < 6:
                break
            append(Payload(block[position + HEADER_SIZE : stop]))
            owed -= 1
            position = stop
        self._streams.took(stream, len(payloads), position - start - HEADER_SIZE * len(payloads))
        self._streams.events.append(Items(id, payloads))
        return position

    def _take_columns(self, stream: Stream, block: bytes, position: int, end: int) -> int:
        """The same as a Block."""
        starts, ends = array("q"), array("q")
        unpack, owed, start, limit = HEADER.unpack_from, stream.owed, position, self._plain_limit
        while owed and end - position >= HEADER_SIZE:
            high, low, id, word = unpack(block, position)
            length = high << 16 | low
            stride = 3 + length
            if word != NEXT or id != stream.id or position + stride > end or length > limit or length < 6:
                break
            count = alike(block, position, end, stride, owed, HEADER_SIZE) or 1
            stop = position + count * stride
            starts.extend(range(position + HEADER_SIZE, stop + HEADER_SIZE, stride))
            ends.extend(range(position + stride, stop + stride, stride))
            owed -= count
            position = stop
        self._streams.took(stream, len(ends), position - start - HEADER_SIZE * len(ends))
        self._streams.events.append(Block(stream.id, block, starts, ends))
        return position

    def _take_answers(self, block: bytes, position: int, end: int) -> int:
        """A run of whole answers of requests, at least one; returns where it ends."""
        ids: list[int] = []
        payloads: list[Payload] = []
        unpack, live, limit, start = HEADER.unpack_from, self._streams.live, self._plain_limit, position
        while end - position >= HEADER_SIZE:
            high, low, id, word = unpack(block, position)
            length = high << 16 | low
            stop = position + 3 + length
            if word != NEXT_COMPLETE or stop > end or length > limit or length < 6:
                break
            stream = live.get(id)
            if stream is None or not stream.answering:
                break
            stream.state = CLOSED
            del live[id]
            ids.append(id)
            payloads.append(Payload(block[position + HEADER_SIZE : stop]))
            position = stop
        self._streams.answered(ids, payloads, position - start - HEADER_SIZE * len(ids))
        return position

    def _take_requests(self, block: bytes, position: int, end: int) -> int:
        """A run of whole REQUEST_RESPONSE; returns where it ends, which is where it starts when the first one needs a
        closer look."""
        streams = self._streams
        newest, most = streams.newest, streams.startable()
        parity, limit, live, unpack = streams.peer_parity, self._plain_limit, streams.live, HEADER.unpack_from
        ids: list[int] = []
        payloads: list[Payload] = []
        size = 0
        while end - position >= HEADER_SIZE and len(ids) < most:
            high, low, id, word = unpack(block, position)
            length = high << 16 | low
            stop = position + 3 + length
            if stop > end or length > limit or length < 6 or id <= newest or id & 1 != parity or id > _LAST_ID:
                break
            start = position + HEADER_SIZE
            if word == _REQUEST:
                payload = Payload(block[start:stop])
                size += stop - start
            elif word == _REQUEST | FLAG_METADATA:
                middle = start + 3 + int.from_bytes(block[start : start + 3], "big")
                if start + 3 > stop or middle > stop:
                    break
                payload = Payload(block[middle:stop], block[start + 3 : middle])
                size += stop - start - 3
            else:
                break
            newest = id
            stream = live[id] = Stream(id, "request", False)
            stream.allowed = 1
            stream.state = SERVES_LAST
            ids.append(id)
            payloads.append(payload)
            position = stop
        if ids:
            streams.asked(ids, payloads, size)
        return position

    def _count(self, block: bytes, position: int) -> None:
        """What was treated so far is received (R-44)."""
        if self.retained is not None:
            self.retained.received += counted(block, self._counted, position)
            self._counted = position

    def _keep(self, block: bytes, position: int, end: int) -> None:
        if self.over:  # what ended a transport is not received (RE-04): only RESUME_OK may come before it is open
            self.buffer.clear()
            return
        self._count(block, position)
        need = 0
        if self.held:
            need = _FAR
        elif end - position >= 3:
            need = self._judge(block, position, end)
        if position:
            self.incomplete_since = None
        if position < end and not self.held and self.incomplete_since is None:
            self.incomplete_since = self._now
        self.buffer.keep(block, position, need)

    def _judge(self, block: bytes, position: int, end: int) -> int:
        """How many bytes make the next frame whole; a length out of bounds is a violation."""
        length = int.from_bytes(block[position : position + 3], "big")
        if length < 6:
            code = Code.INVALID_SETUP if self.first else Code.CONNECTION_ERROR
            raise Violation(f"a frame of {length} bytes is shorter than its header", rule="R-7", code=code)
        if length <= self._limit:
            return 3 + length
        if not self.first:
            raise Violation("frame-too-large", rule="frame_bytes")
        if end - position < HEADER_SIZE:
            return HEADER_SIZE  # HS-12: the type decides the code
        kind = HEADER.unpack_from(block, position)[3] >> 10
        codes = {Setup.TYPE: Code.REJECTED_SETUP, Resume.TYPE: Code.REJECTED_RESUME}
        raise Violation("first-frame-too-large", rule="first_frame_bytes", code=codes.get(kind, Code.INVALID_SETUP))

    @property
    def _limit(self) -> int:
        return self._limits.first_frame_bytes if self.first else self._limits.frame_bytes

    @property
    def _plain_limit(self) -> int:
        """The longest frame on the short ways: its payload is within ``payload_bytes`` without a look."""
        return min(self._limits.frame_bytes, self._limits.payload_bytes + HEADER_SIZE - 3)


def _nobody(block: bytes, start: int, end: int) -> None:
    """Who treats the frames of a connection that is over."""
