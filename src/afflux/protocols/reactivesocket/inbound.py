"""Received bytes become frames, and frames become events.

Three short ways go round the state tables, as RSocket's do: items without a flag of a stream that is owed them, whole
REQUEST_RESPONSE, and their answers. Everything else goes through ``Dialect.decode`` and the engine.

A length is judged as soon as its four bytes are there (R-10); nothing is allocated for it before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from afflux.core.alike import MANY, alike
from afflux.core.errors import Violation
from afflux.core.events import Block, Items
from afflux.core.limits import Limits
from afflux.core.payload import Payload, Run
from afflux.protocols.reactivesocket.codes import Code
from afflux.protocols.reactivesocket.frames import FLAG_COMPLETE, FLAG_METADATA, RequestResponse, Setup
from afflux.protocols.reactivesocket.outbound import CHANNEL, HEADER, HEADER_SIZE, RESPONSE
from afflux.protocols.reactivesocket.streams import Streams
from afflux.protocols.rsocket.inbound import Inbound as RSocketInbound
from afflux.protocols.rsocket.stream import Stream
from afflux.protocols.rsocket.streams import CLOSED

__all__ = ["Inbound"]

_REQUEST: Final = RequestResponse.TYPE << 16
_REQUESTS: Final = (_REQUEST, _REQUEST | FLAG_METADATA)
_ANSWERS: Final = (RESPONSE, RESPONSE | FLAG_COMPLETE)
_ITEMS: Final = (RESPONSE, CHANNEL)
_RESERVED: Final = 0x80000000


class Inbound(RSocketInbound):
    """What has been received and not yet treated."""

    __slots__ = ("_own",)

    def __init__(self, limits: Limits, streams: Streams, treat: Callable[[bytes, int, int], None], first: bool) -> None:
        super().__init__(limits, streams, treat, first)
        self._own = streams
        "The same streams, by the class that they have here."

    def parse(self, block: bytes) -> None:
        """Treat every whole frame of a block and keep the tail.

        Raises:
            Violation: the peer broke a rule; what came before it has been treated.
        """
        position, end = 0, len(block)
        unpack, live = HEADER.unpack_from, self._streams.live
        limit, plain = self._limit, self._plain_limit
        while end - position >= HEADER_SIZE:
            length, word, id = unpack(block, position)
            stop = position + length
            if stop > end or length > limit or length < HEADER_SIZE:
                stop = position + self._masked(block, position, end)
                if stop == position:
                    break
            if not self.established:
                self._treat(block, position + 4, stop)  # the first frame of a peer is looked at, whatever it is
                limit = self._limit
            elif length > plain:  # or its reserved bit is set
                self._treat(block, position + 4, stop)
            elif word in _ITEMS and (stream := live.get(id)) is not None and _plain(stream, word):
                take = self._take_columns if stream.columnar else self._take_items
                position = take(stream, block, position, end)
                continue
            elif word in _ANSWERS and (stream := live.get(id)) is not None and stream.answering:
                position = self._take_answers(block, position, end)
                continue
            elif word in _REQUESTS and (after := self._take_requests(block, position, end)) > position:
                position = after
                continue
            else:
                self._treat(block, position + 4, stop)
            position = stop
            if self.held or self.over:
                break
        self._keep(block, position, end)

    def _masked(self, block: bytes, position: int, end: int) -> int:
        """The length of a frame whose reserved bit is set, which is charged (FR-03); 0 unless it is whole and fits."""
        length = int.from_bytes(block[position : position + 4], "big")
        rest = length & ~_RESERVED
        if length == rest or rest > end - position or not HEADER_SIZE <= rest <= self._limit:
            return 0
        self._own.charge(1, 0, "R-4", "the reserved bit of a length is set")
        return rest

    def _take_items(self, stream: Stream, block: bytes, position: int, end: int) -> int:
        """A run of plain items of one stream, at least one; returns where it ends."""
        unpack, id, owed, limit, start = HEADER.unpack_from, stream.id, stream.owed, self._plain_limit, position
        stride, word, _ = unpack(block, position)
        if owed >= MANY <= (end - position) // stride and (
            count := alike(block, position, end, stride, owed, HEADER_SIZE)
        ):
            stop: int = position + count * stride
            if (stop - start) * 2 < len(block):
                block, position = block[start:stop], 0  # what waits does not keep alive what does not
            size = stride - HEADER_SIZE
            self._streams.took(stream, count, size * count)
            self._streams.events.append(Items(id, Run(block, position, HEADER_SIZE, size, count)))
            return stop
        payloads: list[Payload] = []
        append = payloads.append
        while owed and end - position >= HEADER_SIZE:
            length, frame_word, frame_id = unpack(block, position)
            stop = position + length
            if frame_word != word or frame_id != id or stop > end or length > limit or length < HEADER_SIZE:
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
        word = unpack(block, position)[1]
        while owed and end - position >= HEADER_SIZE:
            stride, frame_word, id = unpack(block, position)
            stop = position + stride
            if frame_word != word or id != stream.id or stop > end or stride > limit or stride < HEADER_SIZE:
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
        """A run of whole answers of requests, at least one; returns where it ends. With C or without (R-28)."""
        ids: list[int] = []
        payloads: list[Payload] = []
        unpack, live, limit, start = HEADER.unpack_from, self._streams.live, self._plain_limit, position
        while end - position >= HEADER_SIZE:
            length, word, id = unpack(block, position)
            stop = position + length
            if word not in _ANSWERS or stop > end or length > limit or length < HEADER_SIZE:
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
        streams = self._own
        newest, most = streams.newest, streams.startable()
        parity, limit, live, unpack = streams.peer_parity, self._plain_limit, streams.live, HEADER.unpack_from
        ids: list[int] = []
        payloads: list[Payload] = []
        size = 0
        while end - position >= HEADER_SIZE and len(ids) < most:
            length, word, id = unpack(block, position)
            stop = position + length
            if stop > end or length > limit or length < HEADER_SIZE or id <= newest or id & 1 != parity:
                break
            start = position + HEADER_SIZE
            if word == _REQUEST:
                payload = Payload(block[start:stop])
            elif word == _REQUESTS[1] and start + 4 <= stop:
                middle = start + int.from_bytes(block[start : start + 4], "big")
                if not start + 4 <= middle <= stop:
                    break
                payload = Payload(block[middle:stop], block[start + 4 : middle])
            else:
                break
            size += len(payload)
            newest = id
            live[id] = streams.serve(id)
            ids.append(id)
            payloads.append(payload)
            position = stop
        if ids:
            streams.asked(ids, payloads, size)
        return position

    @property
    def _plain_limit(self) -> int:
        """The longest frame on the short ways: its payload is within ``payload_bytes`` without a look."""
        return min(self._limits.frame_bytes, self._limits.payload_bytes + HEADER_SIZE)

    def _judge(self, block: bytes, position: int, end: int) -> int:
        """How many bytes make the next frame whole; a length out of bounds is a violation (R-10)."""
        if end - position < 4:
            return 4
        length = int.from_bytes(block[position : position + 4], "big") & ~_RESERVED
        if length < HEADER_SIZE:
            code = Code.INVALID_SETUP if self.first else Code.CONNECTION_ERROR
            raise Violation(f"a frame of {length} bytes is shorter than its header", rule="R-2", code=code)
        if length <= self._limit:
            return length
        if not self.first:
            raise Violation("frame-too-large", rule="frame_bytes", code=Code.CONNECTION_ERROR)
        if end - position < 6:
            return 6  # HS-12: the type decides the code
        setup = int.from_bytes(block[position + 4 : position + 6], "big") == Setup.TYPE
        code = Code.REJECTED_SETUP if setup else Code.INVALID_SETUP
        raise Violation("first-frame-too-large", rule="first_frame_bytes", code=code)


def _plain(stream: Stream, word: int) -> bool:
    """Whether an item goes the right way on a stream that may take it by the short path."""
    return stream.hot and stream.requester == (word == RESPONSE)
