"""Carry the bytes of a nats-py client. Its own transport reads 32 KiB at a time through asyncio's streams, which copy
each byte twice; a block of a journal has up to 512 KiB, so here chunks are passed on as the socket returns them."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from urllib.parse import ParseResult

from nats.aio.transport import Transport

from afflux.journal.access import Insecure

__all__ = ["Chunks"]

_MOST_BYTES = 0x200000
"Reading from the socket pauses above this."
_MOST_LINE_BYTES = 0x10000
"The longest line before the client's own parser takes over; a server's first one has a few hundred bytes."


class _Arrived(asyncio.Protocol):
    """What has arrived and is not read yet, and whether more may be written."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.chunks: deque[bytes] = deque()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        "That which delivers the chunks: of TCP, or of TLS."
        self._size = 0
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self._size += len(data)
        if self._size > _MOST_BYTES and self.transport is not None:
            self.transport.pause_reading()
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        if not self.closed.done():
            self.closed.set_result(None)
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def read(self) -> bytes:
        """Return the next chunk; empty at the end.

        Raises:
            OSError: the connection has failed.
        """
        while not self.chunks:
            if self.closed.done():
                if self.error is not None:
                    raise self.error
                return b""
            self._changed.clear()
            await self._changed.wait()
        chunk = self.chunks.popleft()
        before, self._size = self._size, self._size - len(chunk)
        if before > _MOST_BYTES >= self._size and self.transport is not None and not self.closed.done():
            self.transport.resume_reading()
        return chunk

    def unread(self, data: bytes) -> None:
        """Put back the end of a chunk."""
        if data:
            self.chunks.appendleft(data)
            self._size += len(data)

    async def writable(self) -> None:
        """Wait until more may be written.

        Raises:
            OSError: the connection is lost.
        """
        await self._writable.wait()
        if self.closed.done():
            raise self.error or ConnectionResetError("the connection is lost")


class Chunks(Transport):
    """A connection over TCP, or TLS. See ``Transport`` for its methods.

    Args:
        secure: write nothing without TLS. The client begins with TLS only if the server asks for it.
    """

    def __init__(self, *, secure: bool) -> None:
        self._arrived: _Arrived | None = None
        self._secure = secure

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect. ``buffer_size`` is without effect."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(connect_timeout):
            transport, self._arrived = await loop.create_connection(_Arrived, uri.hostname or "", uri.port or 0)
        self._arrived.transport = transport

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Continue with TLS. ``buffer_size`` is without effect.

        Raises:
            ConnectionError: the server has sent data that TLS would not protect.
        """
        arrived = self._connected
        if arrived.chunks:
            raise ConnectionError("the server has sent data before TLS")
        name = uri if isinstance(uri, str) else uri.hostname
        loop = asyncio.get_running_loop()
        if arrived.transport is None:
            raise ConnectionError("there is no connection")
        async with asyncio.timeout(connect_timeout):
            arrived.transport = await loop.start_tls(arrived.transport, arrived, ssl_context, server_hostname=name)
        self._secure = False

    def write(self, payload: bytes) -> None:
        """Write bytes.

        Raises:
            Insecure: there is no TLS.
        """
        self._writer.write(payload)

    def writelines(self, payload: Sequence[bytes]) -> None:
        """Write bytes, together. Raises as ``write`` does."""
        self._writer.writelines(payload)

    async def read(self, buffer_size: int) -> bytes:
        """Return what has arrived, of any size; empty at the end."""
        return await self._connected.read()

    async def readline(self) -> bytes:
        """Return the bytes up to the end of the line; without it, at the end of the connection."""
        arrived = self._connected
        line = bytearray()
        while b"\n" not in line and len(line) < _MOST_LINE_BYTES and (chunk := await arrived.read()):
            line += chunk
        first, end, rest = bytes(line).partition(b"\n")
        arrived.unread(rest)
        return first + end

    async def drain(self) -> None:
        """Wait until more may be written."""
        await self._connected.writable()

    async def wait_closed(self) -> None:
        """Wait for the end of the connection."""
        if self._arrived is not None:
            await asyncio.shield(self._arrived.closed)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._arrived is not None and self._arrived.transport is not None:
            self._arrived.transport.close()

    def at_eof(self) -> bool:
        """Whether the connection has ended, and everything is read."""
        arrived = self._connected
        return arrived.closed.done() and not arrived.chunks and arrived.error is None

    def __bool__(self) -> bool:
        """True, also before it is connected: the client uses this transport instead of its own."""
        return True

    @property
    def _writer(self) -> asyncio.Transport:
        transport = self._connected.transport
        if transport is None:
            raise ConnectionError("there is no connection")
        if self._secure:
            raise Insecure("the server does not require TLS")
        return transport

    @property
    def _connected(self) -> _Arrived:
        if self._arrived is None:
            raise ConnectionError("there is no connection")
        return self._arrived
