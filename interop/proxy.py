"""Record connections in a loopback proxy, and inject faults. It parses framing, not frames.

WebSocket is parsed as far as a recording needs: one message after the other, without extensions.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Direction", "Link", "Proxy", "Seen"]

_RESET = struct.pack("ii", 1, 0)

Direction = Literal[">", "<"]
'">" from the side that connected, "<" towards it.'


@dataclass(frozen=True, slots=True)
class Seen:
    """A recorded frame."""

    direction: Direction
    frame: bytes
    "Without a length prefix."

    @property
    def stream(self) -> int:
        """Its stream id."""
        return int.from_bytes(self.frame[:4], "big") & 0x7FFFFFFF

    @property
    def type(self) -> int:
        """Its type."""
        return self.frame[4] >> 2

    @property
    def flags(self) -> int:
        """Its flag bits."""
        return (self.frame[4] << 8 | self.frame[5]) & 0x3FF


class _Lengths:
    """Split a stream of length-prefixed frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        held, found = self._held, []
        held += data
        while len(held) >= 3 and len(held) >= 3 + (size := int.from_bytes(held[:3], "big")):
            found.append(bytes(held[3 : 3 + size]))
            del held[: 3 + size]
        return found

    @staticmethod
    def wrapped(frame: bytes) -> bytes:
        return len(frame).to_bytes(3, "big") + frame


class _Messages:
    """Split one direction of a WebSocket connection, including the HTTP head."""

    def __init__(self, direction: Direction) -> None:
        self._held = bytearray()
        self._masked = direction == ">"
        self._head = True
        self._parts = b""

    def cut(self, data: bytes) -> list[bytes]:
        self._held += data
        if self._head:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return []
            del self._held[: end + 4]
            self._head = False
        found = []
        while (message := self._next()) is not None:
            opcode, final, body = message
            if opcode < 8:
                self._parts += body
                if final:
                    found.append(self._parts)
                    self._parts = b""
        return found

    def _next(self) -> tuple[int, bool, bytes] | None:
        held = self._held
        if len(held) < 2:
            return None
        size, at = held[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(held) < 2 + width:
                return None
            size, at = int.from_bytes(held[2 : 2 + width], "big"), 2 + width
        masked = bool(held[1] & 0x80)
        start = at + 4 * masked
        if len(held) < start + size:
            return None
        mask, at = bytes(held[at:start]), start
        opcode, final, body = held[0] & 0x0F, bool(held[0] & 0x80), bytes(held[at : at + size])
        del held[: at + size]
        return opcode, final, _unmasked(body, mask) if masked else body

    def wrapped(self, frame: bytes) -> bytes:
        size = len(frame)
        bit = 0x80 if self._masked else 0
        head = bytes((0x82, bit | size)) if size < 126 else bytes((0x82, bit | 126)) + size.to_bytes(2, "big")
        return head + (b"\0\0\0\0" if self._masked else b"") + frame


def _unmasked(body: bytes, mask: bytes) -> bytes:
    size = len(body)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(body, "big") ^ key).to_bytes(size, "big")


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.seen: list[Seen] = []
        "Every frame, in the order of the proxy."
        self._proxy = proxy
        self._writers: dict[Direction, asyncio.StreamWriter] = {">": far, "<": near}
        websocket = proxy.scheme == "ws"
        self._cutters: dict[Direction, _Lengths | _Messages] = {
            ">": _Messages(">") if websocket else _Lengths(),
            "<": _Messages("<") if websocket else _Lengths(),
        }
        self.frozen = False
        "Whether forwarding is stopped silently in both directions."
        self.mute = False
        "Whether forwarding from the server is stopped silently."
        self.over = False
        "Set when both directions have ended."

    async def pump(self, direction: Direction, reader: asyncio.StreamReader) -> None:
        """Forward one direction until it ends."""
        writer, cutter = self._writers[direction], self._cutters[direction]
        try:
            while data := await reader.read(0x10000):
                self.seen += [Seen(direction, frame) for frame in cutter.cut(data)]
                if not (self.frozen or (self.mute and direction == "<")):
                    writer.write(data)
                    await writer.drain()
                self._proxy.changed()
            if not self.frozen and writer.can_write_eof():
                writer.write_eof()
        except (ConnectionError, OSError):
            pass

    def inject(self, direction: Direction, frame: bytes) -> None:
        """Inject a frame in the name of one side; it is recorded."""
        self.seen.append(Seen(direction, frame))
        self._writers[direction].write(self._cutters[direction].wrapped(frame))

    def cut(self) -> None:
        """Break the connection like a network failure: both ends receive a reset."""
        for writer in self._writers.values():
            if not writer.transport.is_closing():
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.end()

    def end(self) -> None:
        """Close both directions."""
        for writer in self._writers.values():
            writer.transport.abort()


class Proxy:
    """Listens and connects to ``target``; ``async with`` closes it and all its links."""

    def __init__(self, target: str) -> None:
        self.scheme, _, rest = target.partition("://")
        host, _, port = rest.partition("?")[0].partition("/")[0].rpartition(":")
        self._target = host, int(port)
        self.links: list[Link] = []
        "Every connection so far, in order."
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def uri(self) -> str:
        """The address to connect to."""
        assert self._server is not None
        return f"{self.scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def link(self) -> Link:
        """The latest connection."""
        return self.links[-1]

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._welcome, "127.0.0.1", 0, limit=1 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in self.links:
            link.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def changed(self) -> None:
        """Wake waiters whose condition may now be true."""
        for test, future in self._waiters:
            if not future.done() and test():
                future.set_result(None)
        self._waiters = [(test, future) for test, future in self._waiters if not future.done()]

    async def wait(self, test: Callable[[], bool]) -> None:
        """Wait until ``test`` is true; it is evaluated after each read."""
        if not test():
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((test, future))
            await future

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connect(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # the proxy ends

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target, limit=1 << 20)
        except OSError:
            writer.transport.abort()
            return
        link = Link(self, writer, far_writer)
        self.links.append(link)
        self.changed()
        await asyncio.gather(link.pump(">", reader), link.pump("<", far_reader))
        link.over = True
        self.changed()
        writer.close()
        far_writer.close()
