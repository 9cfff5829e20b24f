"""Simulate a long link as a process, with a latency and a bandwidth.

``python -m benchmarks.credit_link PORT RTT_MS BYTES_PER_S`` listens on a free loopback port, prints it, and forwards
each connection to PORT. It exits at the end of its input. Both sides are real TCP; nothing is lost or reordered.

1. Each direction is a wire: bytes leave in sequence at BYTES_PER_S, and arrive half a round trip later.
2. In front of the wire is a router whose buffer is one round trip of the wire, the classical rule. When it is full,
   reading stops, and TCP makes the sender buffer further bytes in its own socket.
3. A receiver that does not read blocks the wire, like a closed TCP window.
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
"Bytes are forwarded in slices of this time on the wire."
_SOCKET_BYTES = 0x10000
"Socket buffer behind the router; the kernel would enlarge it to many round trips."
_SEGMENT_BYTES = 1448
"Segment size of a real link. On loopback a segment would fill that buffer, and TCP would sometimes wait for a second."


class Wire:
    """One direction: computes when bytes arrive. Time is an argument."""

    def __init__(self, delay: float, rate: float) -> None:
        self._delay = delay
        self._rate = rate
        self._slice = max(1, int(rate * _SLICE_S))
        self._router = rate * delay * 2 + self._slice
        self._free_at = 0.0
        self._under_way: deque[tuple[float, bytes]] = deque()

    def put(self, data: bytes, now: float) -> None:
        """Accept bytes from the sender."""
        for start in range(0, len(data), self._slice):
            piece = data[start : start + self._slice]
            self._free_at = max(self._free_at, now) + len(piece) / self._rate
            self._under_way.append((self._free_at + self._delay, piece))

    def take(self, now: float) -> bytes:
        """Return bytes that have arrived."""
        arrived = []
        while self._under_way and self._under_way[0][0] <= now:
            arrived.append(self._under_way.popleft()[1])
        return b"".join(arrived)

    def due(self) -> float | None:
        """Return when the next bytes arrive; None if none are in flight."""
        return self._under_way[0][0] if self._under_way else None

    def full_until(self, now: float) -> float | None:
        """Return when the router has room again; None if it has room."""
        waiting = (self._free_at - now) * self._rate - self._router
        return now + waiting / self._rate + _SLICE_S if waiting > 0 else None


class Side(asyncio.Protocol):
    """One connection of the two; its input goes over ``wire`` to ``other``."""

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
        """The other end does not read: arriving bytes must wait."""
        if self.other is not None:
            self.other._held = True

    def resume_writing(self) -> None:
        """The other end reads again."""
        if self.other is not None:
            self.other._held = False
            self.other._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        """Send the end of the stream after the last bytes."""
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
        """Forward what has arrived, and schedule the rest."""
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
    """The address of the far side, and its distance."""

    def __init__(self, port: int, rtt: float, rate: float) -> None:
        self._port = port
        self._rtt = rtt
        self._rate = rate
        self._dialling: set[asyncio.Task[None]] = set()

    def near(self) -> Side:
        """Connect to the server for a new client."""
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
    """Forward connections to ``port`` until ``ended``; call ``said`` with the listening port."""
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
    """Run a link until the input ends."""
    if len(arguments) != 3:
        print("usage: python -m benchmarks.credit_link PORT RTT_MS BYTES_PER_S", file=sys.stderr)
        return 2
    port, rtt_ms, rate = arguments
    asyncio.run(_until_input_ends(int(port), float(rtt_ms) / 1000, float(rate)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
