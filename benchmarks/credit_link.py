"""A long way, as a process of its own: what goes through takes half a round trip, and no more than fits the wire.

``python -m benchmarks.credit_link PORT RTT_MS BYTES_PER_S`` listens on a free port of loopback, says it, and passes
each connection on to PORT. It ends with its input. Real TCP on both sides; nothing is lost and nothing is reordered.

1. Each direction is a wire: bytes leave one after the other at BYTES_PER_S, and arrive half a round trip later.
2. Before the wire stands a router whose buffer holds one round trip of the wire, as the classical rule has it. When it
   is full we stop reading, and TCP tells the sender: what else it sends waits in its own socket.
3. Who does not read what arrives holds the wire up, as a receiver's closed TCP window does.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import cast

__all__ = ["Link", "main", "serve"]

_SLICE_S = 0.001
"Bytes are passed on in slices of so much of the wire's time."
_SOCKET_BYTES = 0x10000
"What the socket behind the router takes beside it; the kernel would grow it to many round trips."
_SEGMENT_BYTES = 1448
"As on a real way. On loopback a segment would be as large as that buffer, and TCP would wait a second now and then."


class Wire:
    """One direction: when which bytes arrive. Time is an argument."""

    def __init__(self, delay: float, rate: float) -> None:
        self._delay = delay
        self._rate = rate
        self._slice = max(1, int(rate * _SLICE_S))
        self._router = rate * delay * 2 + self._slice
        self._free_at = 0.0
        self._under_way: deque[tuple[float, bytes]] = deque()

    def put(self, data: bytes, now: float) -> None:
        """The sender hands bytes over."""
        for start in range(0, len(data), self._slice):
            piece = data[start : start + self._slice]
            self._free_at = max(self._free_at, now) + len(piece) / self._rate
            self._under_way.append((self._free_at + self._delay, piece))

    def take(self, now: float) -> bytes:
        """What has arrived."""
        arrived = []
        while self._under_way and self._under_way[0][0] <= now:
            arrived.append(self._under_way.popleft()[1])
        return b"".join(arrived)

    def due(self) -> float | None:
        """When the next bytes arrive; None when none are under way."""
        return self._under_way[0][0] if self._under_way else None

    def full_until(self, now: float) -> float | None:
        """When the router has room again; None when it has."""
        waiting = (self._free_at - now) * self._rate - self._router
        return now + waiting / self._rate + _SLICE_S if waiting > 0 else None


class Side(asyncio.Protocol):
    """One connection of the two; what it reads goes over ``wire`` to ``other``."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._held = False
        self._ended = False
        self.other: Side | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        if self.other is not None:
            self.transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        now = self._loop.time()
        self._wire.put(data, now)
        self._deliver()
        if (then := self._wire.full_until(now)) is not None and self.transport is not None:
            self.transport.pause_reading()
            self._loop.call_at(then, self._read_on)

    def pause_writing(self) -> None:
        """The other end does not read: what arrives for it has to wait."""
        if self.other is not None:
            self.other._held = True

    def resume_writing(self) -> None:
        """It does again."""
        if self.other is not None:
            self.other._held = False
            self.other._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end travels behind the last bytes."""
        self._ended = True
        self._deliver()

    def _read_on(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            if (then := self._wire.full_until(self._loop.time())) is not None:
                self._loop.call_at(then, self._read_on)
            elif not self._held:
                self.transport.resume_reading()
            else:
                self._loop.call_later(_SLICE_S, self._read_on)

    def _deliver(self) -> None:
        """Pass on what has arrived, and come back for the rest."""
        out = self.other.transport if self.other is not None else None
        if self._held or out is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if data := self._wire.take(self._loop.time()):
            out.write(data)
        if self._held:
            return
        if (due := self._wire.due()) is not None:
            self._timer = self._loop.call_at(due, self._deliver)
        elif self._ended:
            out.close()


class Link:
    """Where the far side is, and how far."""

    def __init__(self, port: int, rtt: float, rate: float) -> None:
        self._port = port
        self._rtt = rtt
        self._rate = rate
        self._dialling: set[asyncio.Task[None]] = set()

    def near(self) -> Side:
        """A client connects: connect to the server for it."""
        near, far = (Side(Wire(self._rtt / 2, self._rate)) for _ in range(2))
        near.other, far.other = far, near
        task = asyncio.get_running_loop().create_task(self._dial(far))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        return near

    async def _dial(self, far: Side) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", self._port))
        await loop.create_connection(lambda: far, sock=sock)
        if far.other is not None:
            far.other._deliver()


async def serve(port: int, rtt: float, rate: float, said: Callable[[int], None], ended: asyncio.Future[None]) -> None:
    """Pass connections on to ``port`` until ``ended``; ``said`` hears where we listen."""
    link = Link(port, rtt, rate)
    server = await asyncio.get_running_loop().create_server(link.near, "127.0.0.1", 0)
    said(server.sockets[0].getsockname()[1])
    await ended
    server.close()


async def _until_input_ends(port: int, rtt: float, rate: float) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def heard() -> None:
        if not sys.stdin.buffer.read1(0x1000) and not ended.done():
            ended.set_result(None)

    loop.add_reader(sys.stdin.fileno(), heard)
    try:
        await serve(port, rtt, rate, lambda own: print(json.dumps({"port": own}), flush=True), ended)
    finally:
        loop.remove_reader(sys.stdin.fileno())


def main(arguments: list[str]) -> int:
    """Be a link until the input ends."""
    if len(arguments) != 3:
        print("usage: python -m benchmarks.credit_link PORT RTT_MS BYTES_PER_S", file=sys.stderr)
        return 2
    port, rtt_ms, rate = arguments
    asyncio.run(_until_input_ends(int(port), float(rtt_ms) / 1000, float(rate)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
