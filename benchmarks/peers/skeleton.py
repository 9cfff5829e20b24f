"""The minimal Python that moves the frames: one buffered Protocol, one struct unpack and one slots object per frame.

There is no credit, state, error or task per request, so it implements no protocol: it is the practical limit of pure
Python, and the distance to it is the cost of an engine. One write per 64 KiB; the sender waits while the transport is
full, otherwise the speed of filling memory would be measured. An item above 64 KiB is sent in fragments of that size,
and the receiver assembles it.

It reads into one buffer of 64 KiB. A plain Protocol receives up to 256 KiB in a new object each time, and the C library
may allocate that from the system and return it each time: sometimes half the speed for items of 1 KiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import Struct
from typing import cast

from benchmarks.peers.base import HOST, AsyncClient, Count, asked, items_of, stream_request
from benchmarks.workloads import REQUEST_BYTES

__all__ = ["Client", "serve"]

_HEADER = Struct(">BHIH")
"Length (8 + 16 bits), stream, type and flags."
_REQUEST_RESPONSE = 0x04 << 10
_REQUEST_STREAM = 0x06 << 10
_NEXT = 0x0A << 10 | 0x20
_NEXT_COMPLETE = _NEXT | 0x40
_FOLLOWS = 0x80
_BLOCK = 0x10000


class Frame:
    """The content of one frame."""

    __slots__ = ("data", "stream", "word")

    def __init__(self, stream: int, word: int, data: bytes) -> None:
        self.stream = stream
        self.word = word
        self.data = data


def pack(stream: int, word: int, data: bytes) -> bytes:
    """One frame, with its length."""
    length = len(data) + 6
    return _HEADER.pack(length >> 16, length & 0xFFFF, stream, word) + data


class Wire(asyncio.BufferedProtocol):
    """Convert bytes to frames, for both ends."""

    def __init__(self) -> None:
        self._rest = b""
        self._buffer = memoryview(bytearray(_BLOCK))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So much was read."""
        self.received(bytes(self._buffer[:nbytes]))

    def received(self, data: bytes) -> None:
        """What was read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The link is there."""
        self.transport = cast("asyncio.Transport", transport)

    def frames(self, data: bytes) -> list[Frame]:
        """The whole frames in what was received."""
        if self._rest:
            data = self._rest + data
        found: list[Frame] = []
        append, unpack, position, end = found.append, _HEADER.unpack_from, 0, len(data)
        while end - position >= 9:
            high, low, stream, word = unpack(data, position)
            stop = position + 3 + (high << 16 | low)
            if stop > end:
                break
            append(Frame(stream, word, data[position + 9 : stop]))
            position = stop
        self._rest = data[position:]
        return found


class Responder(Wire):
    """Echo requests; send as many items as a stream requests, ignoring its credit."""

    def __init__(self) -> None:
        super().__init__()
        self._left = self._stream = self._at = 0
        self._items = [b""]
        self._full = False

    def received(self, data: bytes) -> None:
        """Answer all requests of one read with one write."""
        answers = []
        for frame in self.frames(data):
            if frame.word == _REQUEST_RESPONSE:
                answers.append(pack(frame.stream, _NEXT_COMPLETE, frame.data))
            elif frame.word == _REQUEST_STREAM:
                self._stream = frame.stream
                self._left, size = asked(frame.data[4:])
                self._items = items_of(size)
                self._more()
        if answers:
            self.transport.write(b"".join(answers))

    def pause_writing(self) -> None:
        """The transport is full."""
        self._full = True

    def resume_writing(self) -> None:
        """It has room."""
        self._full = False
        self._more()

    def _more(self) -> None:
        """Send the next 64 KiB of items, while there is room."""
        items = self._items
        if len(items[0]) > _BLOCK:
            return self._fragments()
        turns = max(1, _BLOCK // sum(map(len, items)))
        period: list[bytes] = []
        for item in items:
            length = len(item) + 6
            period += (_HEADER.pack(length >> 16, length & 0xFFFF, self._stream, _NEXT), item)
        while self._left and not self._full:
            count = min(turns * len(items), self._left)
            self._left -= count
            chunks = (period * turns)[: 2 * count]
            if not self._left:
                chunks[-2:] = [pack(self._stream, _NEXT_COMPLETE, chunks[-1])]
            self.transport.write(b"".join(chunks))
        return None

    def _fragments(self) -> None:
        """Send the next fragments of the current item, and of those after it."""
        while self._left and not self._full:
            item = self._items[0]
            data = item[self._at : self._at + _BLOCK]
            self._at += len(data)
            word = _NEXT | _FOLLOWS
            if self._at == len(item):
                self._at = 0
                self._left -= 1
                word = _NEXT if self._left else _NEXT_COMPLETE
            self.transport.write(pack(self._stream, word, data))


class Requester(Wire):
    """Count what arrives, and send further requests until there are enough."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = 1
        self._to_send = self._left = 0
        self._items = self._bytes = 0
        self._parts: list[bytes] = []
        self._in_parts = False
        self._request = bytes(REQUEST_BYTES)
        self._done: asyncio.Future[Count] | None = None

    def requests(self, n: int, concurrency: int) -> asyncio.Future[Count]:
        """Send ``n`` requests."""
        done = self._begin(n)
        self._to_send = n
        self._ask(min(n, concurrency))
        return done

    def items(self, items: int, size: int, credit: int) -> asyncio.Future[Count]:
        """Consume one stream."""
        done = self._begin(items)
        self._in_parts = size > _BLOCK
        frame = pack(self._stream, _REQUEST_STREAM, credit.to_bytes(4, "big") + stream_request(items, size))
        self._stream += 2
        self.transport.write(frame)
        return done

    def received(self, data: bytes) -> None:
        """Count one read, and send as many requests in one write."""
        frames = self.frames(data)
        if self._in_parts:
            frames = self._joined(frames)
        size = 0
        for frame in frames:
            size += len(frame.data)
        self._bytes += size
        self._items += len(frames)
        self._left -= len(frames)
        if self._to_send:
            self._ask(min(self._to_send, len(frames)))
        if self._left <= 0 and self._done is not None and not self._done.done():
            self._done.set_result(Count(self._items, self._bytes))

    def connection_lost(self, exc: Exception | None) -> None:
        """The link is lost: wake the waiting call."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server disconnected"))

    def _joined(self, frames: list[Frame]) -> list[Frame]:
        """Yield the complete items."""
        whole = []
        for frame in frames:
            self._parts.append(frame.data)
            if not frame.word & _FOLLOWS:
                frame.data = b"".join(self._parts)
                self._parts.clear()
                whole.append(frame)
        return whole

    def _begin(self, amount: int) -> asyncio.Future[Count]:
        self._in_parts = False
        self._left = amount
        self._items = self._bytes = self._to_send = 0
        self._done = asyncio.get_running_loop().create_future()
        return self._done

    def _ask(self, count: int) -> None:
        self._to_send -= count
        first = self._stream
        self._stream += 2 * count
        requests = [pack(stream, _REQUEST_RESPONSE, self._request) for stream in range(first, self._stream, 2)]
        self.transport.write(b"".join(requests))


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    server = await loop.create_server(Responder, HOST, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Client(AsyncClient):
    """See base.Client."""

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        _, self._wire = await asyncio.get_running_loop().create_connection(Requester, HOST, port)

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client; the answers of one read are the next requests."""
        return await self._wire.requests(n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client; ``credit`` is neither sent nor obeyed."""
        return await self._wire.items(items, size, credit)

    def close(self) -> None:
        """See base.Client."""
        self._wire.transport.abort()
        super().close()
