"""Receive payloads with entries or MIME types by short paths: runs of items, whole requests and their answers.

Theory of operation. The bytes before the content of a payload are its *prelude*: entries, then MIME types (R-5, R-6).
Most senders repeat them. A prelude is decoded once; equal bytes then mean the same, and bytes of the same shape differ
in nothing but the payloads of their entries, which are parsed when the application accesses them (shapes.py). What a
frame has of its own is then only its content. Fragments, items with metadata and the last item of a stream pass through
the tables, and so does every frame whose entries cannot be understood.
"""

from __future__ import annotations

from itertools import chain
from struct import iter_unpack
from typing import Final

from afflux.core.alike import MANY
from afflux.core.cut import SMALL, cut
from afflux.core.errors import Violation
from afflux.core.events import Items
from afflux.core.payload import Payload, Payloads, Plain, Run
from afflux.protocols.family.states import StreamState
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams
from afflux.protocols.family.varied import AHEAD, LONG
from afflux.protocols.rsocket.frames import FLAG_METADATA, NEXT, NEXT_COMPLETE
from afflux.protocols.rsocket_draft.extending import understood
from afflux.protocols.rsocket_draft.frames import (
    DATA_MIME,
    EXTENSIONS,
    METADATA_MIME,
    PayloadFrame,
    RequestResponse,
)
from afflux.protocols.rsocket_draft.negotiation import Negotiation
from afflux.protocols.rsocket_draft.payload import (
    MOST_PRELUDE,
    PLAIN,
    ExtendedItems,
    Own,
    ReceivedPayload,
    Source,
)
from afflux.protocols.rsocket_draft.shapes import Prelude, Shape, Unpack
from afflux.protocols.rsocket_draft.strategies import FramesGranted

__all__ = ["SharedRuns"]

_PREFIX: Final = 3
_HEADER: Final = 9
_FLAGS: Final = EXTENSIONS | DATA_MIME | METADATA_MIME
"The flags that say what a prelude contains."


def _words(word: int) -> frozenset[int]:
    """Return a word with each combination of these flags."""
    return frozenset(
        word | extensions | data | metadata
        for extensions in (0, EXTENSIONS)
        for data in (0, DATA_MIME)
        for metadata in (0, METADATA_MIME)
    )


_ITEMS: Final = _words(NEXT)
"The words of whole items without metadata that do not complete the stream."
_ANSWERS: Final = _words(NEXT_COMPLETE) | _words(NEXT_COMPLETE | FLAG_METADATA)
"The words of whole answers to requests."
_ANSWER: Final = NEXT_COMPLETE | EXTENSIONS
_REQUEST: Final = RequestResponse.TYPE << 10 | EXTENSIONS
_REQUESTS: Final = frozenset((_REQUEST, _REQUEST | FLAG_METADATA))
"The words of whole REQUEST_RESPONSE frames with entries."
_IN_DONE, _CLOSED = StreamState.IN_DONE, StreamState.CLOSED


class SharedRuns:
    """The short paths of a connection for payloads with entries or MIME types (family/inbound.py)."""

    __slots__ = ("_flags", "_part", "_prelude")

    def __init__(self, part: Negotiation) -> None:
        self._part = part
        self._flags = -1
        "The flags of the prelude that was received last."
        self._prelude = Prelude(Shape(b"", 0, (), PLAIN), b"", PLAIN)
        "That prelude."

    def take(self, streams: Streams, id: int, word: int, block: bytes, position: int, end: int, limit: int) -> int:
        """Deliver a run of items, requests or answers; see ``family.inbound.Runs``."""
        leases = streams.leases
        if leases is not None and isinstance(leases.issued, FramesGranted):
            return position  # each frame counts
        if word in _ITEMS:
            stream = streams.live.get(id)
            if stream is None or stream.hot != NEXT or stream.columnar:
                return position
            return self._take_items(streams, stream, word, block, position, end, limit)
        if word in _REQUESTS:
            return self._take_requests(streams, block, position, end, limit)
        if word in _ANSWERS and word & _FLAGS:
            return self._take_answers(streams, block, position, end, limit)
        return position

    # -- preludes ---------------------------------------------------------------------------------------------

    def _knows(self, word: int, block: bytes, begin: int, stop: int) -> bool:
        """Recognize the prelude at ``begin`` in a frame that ends at ``stop``; False if the frame must go through the
        tables."""
        if word & _FLAGS == self._flags:
            if block.startswith(self._prelude.raw, begin, stop):
                return True
            shape = self._prelude.shape
            unpack = shape.unpack
            if unpack is not None and begin + shape.size <= stop and unpack(block, begin) == shape.heads:
                self._prelude = Prelude(shape, block[begin : begin + shape.size])
                return True
        return self._learn(word, block, begin, stop)

    def _learn(self, word: int, block: bytes, begin: int, stop: int) -> bool:
        """Decode the frame, and remember its prelude."""
        kind = RequestResponse if word & ~FLAG_METADATA == _REQUEST else PayloadFrame
        try:
            frame = kind.decode(block, begin - _HEADER + _PREFIX, stop)
            entries = understood(self._part, frame)
        except Violation:
            return False
        size = stop - begin - len(frame.data)
        if frame.metadata is not None:
            size -= 3 + len(frame.metadata)
        if size > MOST_PRELUDE:
            return False  # skipped entries are not retained
        own: Own = (entries, getattr(frame, "data_mime", None), getattr(frame, "metadata_mime", None))
        raw, self._flags = block[begin : begin + size], word & _FLAGS
        self._prelude = Prelude(Shape(raw, self._flags, frame.extensions, own), raw, own)
        return True

    def _payload(self, word: int, block: bytes, begin: int, stop: int) -> Payload | None:
        """Return the whole payload at ``begin``; None if the frame must go through the tables."""
        if not self._knows(word, block, begin, stop):
            return None
        prelude = self._prelude
        start = begin + prelude.shape.size
        metadata = None
        if word & FLAG_METADATA:
            data = start + 3
            start = data + int.from_bytes(block[start:data], "big")
            if not data <= start <= stop:
                return None
            metadata = block[data:start]
        if prelude.shape.is_plain:
            return Payload(block[start:stop], metadata)
        return ReceivedPayload(block[start:stop], prelude, metadata)

    def _usual(self) -> tuple[Prelude | None, bytes, int]:
        """The prelude that was received last, if it has entries only and the application gets them; its bytes and their
        number."""
        prelude = self._prelude
        shape = prelude.shape
        return None if shape.is_plain or shape.flags != EXTENSIONS else prelude, prelude.raw, shape.size

    # -- requests ---------------------------------------------------------------------------------------------

    def _take_requests(self, streams: Streams, block: bytes, position: int, end: int, limit: int) -> int:
        """Deliver a run of whole REQUEST_RESPONSE frames, as ``family.inbound`` does without entries."""
        newest, most, parity = streams.newest, streams.startable(), streams.peer_parity
        live, role, unpack = streams.live, streams.member.responder, streams.member.layout.header.unpack_from
        ids: list[int] = []
        payloads: list[Payload] = []
        size = entries = 0
        usual, raw, own = self._usual()
        while end - position >= _HEADER and len(ids) < most:
            high, low, id, word = unpack(block, position)
            length = high << 16 | low
            stop: int = position + _PREFIX + length
            if word not in _REQUESTS or stop > end or length > limit or id & 1 != parity:
                break
            if not newest < id <= 0x7FFFFFFF:
                break
            begin = position + _HEADER
            payload: Payload | None
            if word == _REQUEST and usual is not None and block.startswith(raw, begin, stop):
                payload = ReceivedPayload(block[begin + own : stop], usual)
                size += stop - begin - own
                entries += own
            else:
                payload = self._payload(word, block, begin, stop)
                if payload is None:
                    break
                size += len(payload)
                usual, raw, own = self._usual()
                entries += 0 if self._prelude.shape.is_plain else self._prelude.shape.size
            newest = id
            stream = live[id] = Stream(id, "request", role)
            stream.state = _IN_DONE
            ids.append(id)
            payloads.append(payload)
            position = stop
        if ids:
            streams.asked(ids, payloads, size)
            self._part.deliver(streams, entries)
        return position

    def _take_answers(self, streams: Streams, block: bytes, position: int, end: int, limit: int) -> int:
        """Deliver a run of whole answers to requests; return where it ends."""
        live, unpack = streams.live, streams.member.layout.header.unpack_from
        ids: list[int] = []
        payloads: list[Payload] = []
        size = 0
        usual, raw, own = self._usual()
        while end - position >= _HEADER:
            high, low, id, word = unpack(block, position)
            length = high << 16 | low
            stop: int = position + _PREFIX + length
            if word not in _ANSWERS or not word & _FLAGS or stop > end or length > limit:
                break
            stream = live.get(id)
            if stream is None or not stream.answering:
                break
            begin = position + _HEADER
            payload: Payload | None
            if word == _ANSWER and usual is not None and block.startswith(raw, begin, stop):
                payload = ReceivedPayload(block[begin + own : stop], usual)
                size += stop - begin - own
            else:
                payload = self._payload(word, block, begin, stop)
                if payload is None:
                    break
                size += len(payload)
                usual, raw, own = self._usual()
            stream.state = _CLOSED
            del live[id]
            ids.append(id)
            payloads.append(payload)
            position = stop
        if ids:
            streams.answered(ids, payloads, size)
        return position

    # -- items ------------------------------------------------------------------------------------------------

    def _take_items(
        self, streams: Streams, stream: Stream, word: int, block: bytes, position: int, end: int, limit: int
    ) -> int:
        """Deliver a run of items of one stream, at least one unless the first must go through the tables."""
        high, low, _, _ = streams.member.layout.header.unpack_from(block, position)
        stride = _PREFIX + (high << 16 | low)
        if not self._knows(word, block, position + _HEADER, position + stride):
            return position
        shape = self._prelude.shape
        head = _HEADER + shape.size
        most = min(stream.to_receive.available, (end - position) // stride)
        far = position + (MANY - 1) * stride
        found: Payloads
        if most < MANY or block[far : far + head] != block[position : position + head]:
            found, after = self._loose(block, position, end, limit, stream.to_receive.available)
        else:
            datas = _alike(block, position, stride, most, head)
            after = position + len(datas) * stride
            found = (
                Run(block[position:after], 0, head, stride - head, len(datas))
                if shape.is_plain
                else ExtendedItems(datas, self._prelude, stride - head)
            )
        count = len(found)
        streams.took(stream, count, after - position - count * head)
        if not shape.is_plain:
            self._part.deliver(streams, count * shape.size)
        streams.current.events.append(Items(stream.id, found))
        return after

    def _loose(self, block: bytes, position: int, end: int, limit: int, owed: int) -> tuple[Payloads, int]:
        """Return the items at ``position`` with equal preludes, or if the second differs with preludes of one shape,
        at most ``owed``; and where they end."""
        shape = self._prelude.shape
        sources: Source | list[Source] = self._prelude
        datas, after = _equal(block, position, end, limit, owed, _HEADER + shape.size)
        if len(datas) == 1 and (unpack := shape.unpack) is not None:
            datas, raws, after = _of_shape(shape, unpack, block, position, end, limit, owed)
            if len(datas) > 1:
                sources = [Prelude(shape, raw) for raw in raws]
                self._prelude = Prelude(shape, raws[-1])
        if shape.is_plain:
            return Plain(datas) if len(datas) > LONG else list(map(Payload, datas)), after
        return ExtendedItems(datas, sources), after


def _equal(block: bytes, position: int, end: int, limit: int, owed: int, head: int) -> tuple[list[bytes], int]:
    """Return the data of the items at ``position`` with the same bytes before it, at least one and at most ``owed``,
    and where they end."""
    found: list[bytes] = []
    start, alike = position, block[position + _PREFIX : position + head]
    while end - position >= head and len(found) < owed:
        length = block[position] << 16 | block[position + 1] << 8 | block[position + 2]
        stop: int = position + _PREFIX + length
        if stop > end or length > limit or not block.startswith(alike, position + _PREFIX, stop):
            break
        found.append(block[position + head : stop])
        position = stop
        if len(found) == LONG < owed and limit >= SMALL:
            ahead = AHEAD * (position - start)
            more, position = cut(block, position, end, _PREFIX, alike, len(alike), owed - LONG, ahead)
            return found + more, position
    return found, position


def _of_shape(
    shape: Shape, unpack: Unpack, block: bytes, position: int, end: int, limit: int, owed: int
) -> tuple[list[bytes], list[bytes], int]:
    """Return the data and the preludes of the items at ``position`` whose preludes are of one shape, and where they
    end."""
    found: list[bytes] = []
    raws: list[bytes] = []
    heads, head = shape.heads, _HEADER + shape.size
    word = block[position + _PREFIX : position + _HEADER]
    while end - position >= head and len(found) < owed:
        length = block[position] << 16 | block[position + 1] << 8 | block[position + 2]
        stop: int = position + _PREFIX + length
        begin, content = position + _HEADER, position + head
        if not content <= stop <= end or length > limit or block[position + _PREFIX : begin] != word:
            break
        if unpack(block, begin) != heads:
            break
        raws.append(block[begin:content])
        found.append(block[content:stop])
        position = stop
    return found, raws, position


def _alike(block: bytes, position: int, stride: int, most: int, head: int) -> list[bytes]:
    """Return the data of the items of one size at ``position`` that have the same ``head`` bytes before it as the
    first, at most ``most``."""
    first = block[position : position + head]
    parts = f"{head}s{stride - head}s"
    found: list[bytes] = []
    tried = 2 * MANY
    with memoryview(block) as view:
        while len(found) < most:
            some = min(tried, most - len(found))
            begin = position + len(found) * stride
            both = list(chain.from_iterable(iter_unpack(parts, view[begin : begin + some * stride])))
            heads, datas = both[::2], both[1::2]
            if heads.count(first) < some:
                return found + datas[: list(map(first.__eq__, heads)).index(False)]
            found += datas
            tried *= 4
    return found
