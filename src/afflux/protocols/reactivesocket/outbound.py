"""What waits to be written, as frames of ReactiveSocket. Whose turn it is, is RSocket's (``Turns``).

An item of a stream is a RESPONSE where the peer asked, and a REQUEST_CHANNEL where this side did. Only these two are
cut into fragments (R-42); any other request leaves whole, whatever its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.frames import (
    FLAG_COMPLETE,
    FLAG_FOLLOWS,
    FLAG_INITIAL_N,
    FLAG_METADATA,
    RequestChannel,
    RequestN,
    Response,
)
from afflux.protocols.rsocket.fragments import Fragments as RSocketFragments
from afflux.protocols.rsocket.fragments import Whole
from afflux.protocols.rsocket.outbound import Outbound as RSocketOutbound

__all__ = ["CHANNEL", "HEADER", "HEADER_SIZE", "RESPONSE", "Fragments", "Outbound"]

HEADER: Final = Struct(">III")
"Length, type and flags, stream id: what every frame starts with on a byte stream."
HEADER_SIZE: Final = 12
RESPONSE: Final = Response.TYPE << 16
CHANNEL: Final = RequestChannel.TYPE << 16

_COPY_BELOW = 0x1000
"Joining header and data at once is cheaper below this size; above it the copy costs more than the object."
_GRANT = RequestN.TYPE.to_bytes(2, "big")


class Fragments(RSocketFragments):
    """One payload, cut into frames of its own type as they are wanted (R-42, R-43)."""

    __slots__ = ("_begun", "_later", "_later_extra")

    def __init__(
        self, first: tuple[int, int, bytes], later: tuple[int, bytes], payload: Payload, mtu: int, asks: bool
    ) -> None:
        """``first`` is the stream, the word and what follows in the first frame, ``later`` that of the others;
        ``asks`` is whether it is a request: its type alone does not say so, nor does an N in the dialect of Java."""
        stream, word, extra = first
        complete = word & FLAG_COMPLETE != 0
        super().__init__(stream, word & ~FLAG_COMPLETE, extra, payload.metadata, payload.data, complete, mtu)
        self._later, self._later_extra = later
        self._begun = False
        self.asks = asks

    @property
    def begun(self) -> bool:
        """Whether a request's first frame was handed over."""
        return self._begun

    def next(self) -> list[bytes | memoryview]:
        """The chunks of the next frame; ``size`` is 0 after the last one."""
        header_size = HEADER_SIZE + len(self._extra) + (4 if self._with_metadata else 0)
        room = self._mtu - header_size
        metadata, self._metadata = self._metadata[:room], self._metadata[room:]
        room -= len(metadata)
        data, self._data = self._data[:room], self._data[room:]
        self.size -= len(metadata) + len(data)
        word = self._word | (FLAG_METADATA if self._with_metadata else 0)
        if self.size:
            word |= FLAG_FOLLOWS
        elif self.complete:
            word |= FLAG_COMPLETE
        header = HEADER.pack(header_size + len(metadata) + len(data), word, self._stream) + self._extra
        if self._with_metadata:
            header += (4 + len(metadata)).to_bytes(4, "big")
        self._word, self._extra, self._with_metadata = self._later, self._later_extra, bool(self._metadata)
        self._begun = True
        return [header, metadata, data]


class Outbound(RSocketOutbound):
    """The queue of one connection. ``parity`` is that of the ids of this side's streams."""

    __slots__ = ("_channel", "_extra", "_parity")

    def __init__(self, mtu: int, parity: int, dialect: Dialect) -> None:
        super().__init__(mtu)
        self._parity = parity
        # Java reads an N in every REQUEST_CHANNEL
        self._channel = CHANNEL | (FLAG_INITIAL_N if dialect.java_compat else 0)
        self._extra = bytes(4) if dialect.java_compat else b""

    def ask(self, stream: int, word: int, extra: bytes, payload: Payload, cut: bool) -> None:
        """Queue a request: whole, or with ``cut`` as fragments when it is above the MTU."""
        later = (self._channel, self._extra) if word & 0xFFFF0000 == CHANNEL else (word, extra)
        self._queue(stream, word, extra, payload, later, cut, True)

    def payload(self, stream: int, word: int, extra: bytes, payload: Payload, complete: bool) -> None:
        """Queue one item. ``word`` and ``extra`` are RSocket's."""
        word, extra = self._item(stream)
        first = word | FLAG_COMPLETE if complete else word
        self._queue(stream, first, extra, payload, (word, extra), True, False)

    def payloads(self, streams: Sequence[int], word: int, payloads: Sequence[Payload]) -> None:
        """Queue the one answer of each request: one chunk for a run of small ones. ``word`` is RSocket's."""
        self.batch(streams, RESPONSE | FLAG_COMPLETE, payloads, True)

    def batch(self, streams: Sequence[int], word: int, payloads: Sequence[Payload], cut: bool) -> None:
        """Queue one payload for each of several streams that have nothing queued."""
        chunks: list[bytes] = []
        size = frames = 0
        small = min(_COPY_BELOW, self.mtu)
        for stream, payload in zip(streams, payloads, strict=True):
            data, metadata = payload.data, payload.metadata
            length = HEADER_SIZE + len(data) + (0 if metadata is None else 4 + len(metadata))
            if length > small:
                self._chunk(chunks, size, frames)
                chunks, size, frames = [], 0, 0
                asks = word & 0xFFFF0000 != RESPONSE
                self._queue(stream, word, b"", payload, (word & ~FLAG_COMPLETE, b""), cut, asks)
                continue
            if metadata is None:
                chunks += (HEADER.pack(length, word, stream), data)
            else:
                head = HEADER.pack(length, word | FLAG_METADATA, stream)
                chunks += (head, (4 + len(metadata)).to_bytes(4, "big"), metadata, data)
            size += length
            frames += 1
            if size > 0x10000:
                self._chunk(chunks, size, frames)
                chunks, size, frames = [], 0, 0
        self._chunk(chunks, size, frames)

    def run(self, stream: int, payloads: Sequence[PayloadLike], last: int) -> None:
        """Queue many items at once: one chunk for a run of small ones, one header for a run of one size.

        ``last`` is the index of the item that completes the stream, or -1.
        """
        chunks: list[bytes] = []
        size = frames = 0
        length, header = -1, b""
        word, extra = self._item(stream)
        own = HEADER_SIZE + len(extra)
        small = min(_COPY_BELOW, self.mtu - own)
        for index, item in enumerate(payloads):
            if isinstance(item, bytes):
                data = item
            elif isinstance(item, Payload) and item.metadata is None:
                data = item.data
            else:
                data = None
            if data is None or index == last or len(data) > small:
                if chunks:
                    self.put(stream, b"".join(chunks), frames)
                    chunks, frames, size = [], 0, 0
                self.payload(stream, word, b"", payload_of(item), index == last)
                continue
            if len(data) != length:
                length = len(data)
                header = HEADER.pack(length + own, word, stream) + extra
            chunks += (header, data)
            frames += 1
            size += length
            if size > 0x10000:
                self.put(stream, b"".join(chunks), frames)
                chunks, frames, size = [], 0, 0
        if chunks:
            self.put(stream, b"".join(chunks), frames)

    def drop(self, stream: int, *, credit: bool = False) -> None:
        """As RSocket's. With ``credit`` what the stream grants stays, wherever it stands."""
        queue = self._queues.get(stream)
        entries = list(queue) if isinstance(queue, deque) else []
        super().drop(stream)
        if not credit:
            return
        kept = self._queues.get(stream)
        left = kept if isinstance(kept, deque) else ()
        for entry in entries:
            if isinstance(entry, bytes) and entry[4:6] == _GRANT and not any(entry is other for other in left):
                self.queue(stream, entry, len(entry), 1)

    def _item(self, stream: int) -> tuple[int, bytes]:
        """How an item of a stream begins."""
        return (self._channel, self._extra) if stream & 1 == self._parity else (RESPONSE, b"")

    def _queue(
        self, stream: int, word: int, extra: bytes, payload: Payload, later: tuple[int, bytes], cut: bool, asks: bool
    ) -> None:
        """``cut``: it is cut above the MTU; ``asks``: it is a request."""
        data, metadata = payload.data, payload.metadata
        size = HEADER_SIZE + len(extra) + len(data) + (0 if metadata is None else 4 + len(metadata))
        if cut and size > self.mtu:
            self.queue_payload(stream, Fragments((stream, word, extra), later, payload, self.mtu, asks))
            return
        if metadata is None:
            header = HEADER.pack(size, word, stream) + extra
        else:
            header = HEADER.pack(size, word | FLAG_METADATA, stream) + extra
            header += (4 + len(metadata)).to_bytes(4, "big") + metadata
        self.queue(stream, header + data if size < _COPY_BELOW else Whole((header, data), 1, size), size, 1)
