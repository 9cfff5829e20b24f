"""A raw TCP or WebSocket client that writes the bytes it is given and collects what comes back. No afflux code.

A WebSocket's messages and a TCP stream with length prefixes look alike from outside: ``send`` takes frames without a
prefix, ``frame`` returns one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence

__all__ = ["Framing", "Link", "Lost", "prefixed"]

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Lost(AssertionError):
    """The server has ended a connection that should live."""


class Framing:
    """How frames stand in a byte stream: a length of ``width`` bytes, which may count itself. 0: a stream without."""

    def __init__(self, width: int, *, inclusive: bool = False, subprotocol: str = "") -> None:
        self.width = width
        self.own = width if inclusive else 0
        self.subprotocol = subprotocol

    def wrap(self, frame: bytes) -> bytes:
        """The frame with its length before it."""
        return (len(frame) + self.own).to_bytes(self.width, "big") + frame if self.width else frame

    def cut(self, data: bytearray) -> bytes | None:
        """The next whole frame, taken out of ``data``; of a stream without lengths, everything there is."""
        if not self.width:
            taken = bytes(data)
            data.clear()
            return taken or None
        if len(data) < self.width:
            return None
        end = self.width + int.from_bytes(data[: self.width], "big") - self.own
        if len(data) < end:
            return None
        frame = bytes(data[self.width : end])
        del data[:end]
        return frame


def prefixed(width: int, frames: Iterable[bytes]) -> bytes:
    """Frames as they stand on TCP."""
    return b"".join(len(frame).to_bytes(width, "big") + frame for frame in frames)


class Link(asyncio.Protocol):
    """One connection. It reads all the time, as clients do, unless ``pause`` is called."""

    def __init__(self, framing: Framing, web: bool) -> None:
        self.framing = framing
        self.web = web
        self.received = 0
        "Bytes read from the socket so far."
        self.ended: str | None = None
        "Why the server has ended it; None while it lives."
        self.pongs: list[bytes] = []
        "What a WebSocket's pings were answered with."
        self._raw = bytearray()
        self._stream = bytearray()
        self._frames: deque[bytes] = deque()
        self._message = b""
        self._upgraded = not web
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = asyncio.Event()
        self._transport: asyncio.Transport

    @classmethod
    async def dial(
        cls,
        host: str,
        port: int,
        framing: Framing,
        *,
        web: bool = False,
        receive_buffer: int = 0,
        headers: Sequence[str] = (),
        path: str = "/",
    ) -> Link:
        """Connect; of a WebSocket, the handshake too, with further ``headers``."""
        link = cls(framing, web)
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(sock, (host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.create_connection(lambda: link, sock=sock)
        except BaseException:
            sock.close()
            raise
        if web:
            try:
                await link._upgrade(host, port, path, headers)
            except BaseException:
                await link.gone()
                raise
        return link

    # -- writing --------------------------------------------------------------------------------------------------

    def wrapped(self, frames: Iterable[bytes]) -> bytes:
        """Frames as they stand on this transport."""
        wrap = _message if self.web else self.framing.wrap
        return b"".join(map(wrap, frames))

    async def send(self, *frames: bytes) -> None:
        """All of the frames in one write; it waits until the kernel has them."""
        await self.write(self.wrapped(frames))

    async def send_split(self, message: bytes, size: int) -> None:
        """A WebSocket message in frames of ``size`` bytes, a ping between each two."""
        parts = [message[at : at + size] for at in range(0, len(message), size)]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            await self.write(_message(part, opcode=0x0 if number else 0x2, last=last))
            if not last:
                await self.ping(b"%d" % number)

    async def ping(self, body: bytes) -> None:
        """A ping of WebSocket's own."""
        await self.write(_message(body, opcode=0x9))

    async def write(self, data: bytes) -> None:
        """Bytes as they are."""
        if self.ended is None:
            self._transport.write(data)
            await self._room.wait()

    def finish(self) -> None:
        """End this side's half of the connection."""
        self._transport.write_eof()

    def close(self) -> None:
        """Go away in order."""
        self._transport.close()

    async def gone(self) -> None:
        """Drop the connection, and wait until its socket is closed."""
        self._transport.abort()
        await self._closed.wait()

    def reset(self) -> None:
        """Go away without a word: what a process does that is killed with unread data."""
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    # -- reading --------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading from the socket."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    async def frame(self) -> bytes:
        """The next frame, without its length.

        Raises:
            Lost: the server has ended the connection.
        """
        while not self._frames:
            if self.ended is not None:
                raise Lost(self.ended)
            self._news.clear()
            await self._news.wait()
        return self._frames.popleft()

    def waiting(self) -> list[bytes]:
        """All frames that are there and were not taken."""
        frames = list(self._frames)
        self._frames.clear()
        return frames

    async def end(self) -> None:
        """Wait until the server has ended the connection."""
        while self.ended is None:
            self._news.clear()
            await self._news.wait()

    # -- called by asyncio ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._raw += data
        if self.web:
            if not self._upgraded:
                self._news.set()
                return
            self._unwrap()
        else:
            while (frame := self.framing.cut(self._raw)) is not None:
                self._frames.append(frame)
        self._news.set()

    def eof_received(self) -> bool:
        self._over("the server has ended its half")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._over(f"the connection is lost: {error!r}")
        self._closed.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _over(self, reason: str) -> None:
        if self.ended is None:
            self.ended = reason
        self._room.set()
        self._news.set()

    async def _upgrade(self, host: str, port: int, path: str, headers: Sequence[str]) -> None:
        key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
            *headers,
        ]
        if self.framing.subprotocol:
            lines.append(f"Sec-WebSocket-Protocol: {self.framing.subprotocol}")
        self._transport.write("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._raw:
            if self.ended is not None:
                raise Lost(self.ended)
            self._news.clear()
            await self._news.wait()
        head, _, rest = bytes(self._raw).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        assert base64.b64encode(hashlib.sha1(key + _GUID).digest()) in head
        self._raw = bytearray(rest)
        self._upgraded = True
        self._unwrap()

    def _unwrap(self) -> None:
        """Messages out of WebSocket frames; pings are answered."""
        at = 0
        while (cut := _cut(self._raw, at)) is not None:
            first, start, end = cut
            body, at = bytes(self._raw[start:end]), end
            match first & 0x0F:
                case 0x0 | 0x1 | 0x2:
                    self._message += body
                    if first & 0x80:
                        self._frames.append(self._message)
                        self._message = b""
                case 0x8:
                    self._over(f"WebSocket close: {body!r}")
                case 0xA:
                    self.pongs.append(body)
                case 0x9:
                    self._transport.write(_message(body, opcode=0xA))
        del self._raw[:at]


def _cut(data: bytearray, at: int) -> tuple[int, int, int] | None:
    """The next WebSocket frame of a server: its first byte, and where its body starts and ends."""
    if len(data) < at + 2:
        return None
    size, start = data[at + 1] & 0x7F, at + 2
    if size >= 126:
        width = 2 if size == 126 else 8
        start += width
        if len(data) < start:
            return None
        size = int.from_bytes(data[start - width : start], "big")
    return (data[at], start, start + size) if len(data) >= start + size else None


def _message(body: bytes, opcode: int = 0x2, *, last: bool = True) -> bytes:
    """One WebSocket frame of a client. The mask is zero, so that the body stays readable."""
    size = len(body)
    if size < 126:
        length = struct.pack("!B", 0x80 | size)
    elif size < 0x10000:
        length = struct.pack("!BH", 0x80 | 126, size)
    else:
        length = struct.pack("!BQ", 0x80 | 127, size)
    return bytes(((0x80 if last else 0) | opcode,)) + length + bytes(4) + body
