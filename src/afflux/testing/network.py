"""Join the ``mem://`` addresses of a loop by links with faults: ``afflux.connect`` and ``afflux.serve`` run unchanged.

A link behaves as a TCP connection does. It buffers a bounded number of bytes, so that a stopped reader suspends the
writer; an end that closes sends its end after its bytes; an end that is gone answers further bytes with a reset.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Final, Literal, Self, cast

from afflux.core.errors import ConnectFailed
from afflux.testing.faults import FLAWLESS, Faults, Plan, Weather
from afflux.transports import mem
from afflux.transports.address import Address
from afflux.transports.reading import GONE, Receiver
from afflux.transports.stream import BufferedTransport

__all__ = ["Link", "Network", "Side"]

Side = Literal["client", "server"]

_HIGH: Final = 0x10000
"Bytes that a writer may be ahead of its link, unless it sets limits."


class Network:
    """Joins the ends of ``mem://`` addresses by links with faults: ``with Network(…) as network:`` in a running loop.

    Args:
        to_server, to_client: the faults of each direction.
        plan: returns both for each connection; called with the connection's number. Replaces the two.
        window: bytes that a link buffers in each direction; a writer that is ahead by more waits.
        seed: seed of all random decisions.
    """

    def __init__(
        self,
        *,
        to_server: Faults = FLAWLESS,
        to_client: Faults = FLAWLESS,
        plan: Plan | None = None,
        window: int = 0x10000,
        seed: int = 0,
    ) -> None:
        self.window = window
        self.reachable = True
        "Set it to False to refuse further connections."
        self.links: list[Link] = []
        "All links so far, including those that are over."
        self.connections = 0
        "Attempts to connect so far."
        self.happened: Counter[str] = Counter()
        "Number of occurrences of each fault, by its name."
        self._plan: Plan = plan or (lambda number: (to_server, to_client))
        self._random = Random(seed)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if self._loop in mem.networks:
            raise RuntimeError("this loop has a network already")
        mem.networks[self._loop] = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            mem.networks.pop(self._loop, None)

    def cut(self) -> None:
        """Break every link."""
        for link in self.links:
            if not link.over:
                link.cut()

    # Called by the transport mem.

    async def reach(self, address: Address) -> Callable[[Receiver, Receiver], object]:
        """Wait as long as a handshake takes; return a function that joins two protocol objects by a link.

        Raises:
            ConnectFailed: connections are refused.
        """
        number = self.connections
        self.connections += 1
        there, back = self._plan(number)
        await asyncio.sleep(there.delay + back.delay)
        if not self.reachable:
            self.happened["refused"] += 1
            raise ConnectFailed(f"cannot connect to {address}: the network refuses")
        return Link(self, number, there, back, random=self._random).begin


class Link:
    """One connection of a network."""

    def __init__(self, network: Network, number: int, to_server: Faults, to_client: Faults, *, random: Random) -> None:
        self.number = number
        "The number of the connection in its network, from 0."
        self.to_server = _Way(network, to_server, random)
        self.to_client = _Way(network, to_client, random)
        self.over = False
        "Whether both ends have gone."
        self._network = network

    def begin(self, client: Receiver, server: Receiver) -> None:
        """Notify both ends that they are connected."""
        near, far = _Transport(self, client, self.to_server), _Transport(self, server, self.to_client)
        self.to_server.join(near, far)
        self.to_client.join(far, near)
        self._network.links.append(self)
        client.connection_made(near)
        server.connection_made(far)

    def cut(self, end: Side | None = None) -> None:
        """Break the link: bytes in flight are lost, and both ends are notified. With ``end`` only that end is notified;
        the other is half open, and the bytes that it sends are lost."""
        self._network.happened["cut" if end is None else "half open"] += 1
        for way in (self.to_server, self.to_client):
            way.break_off()
            if end is None or way is (self.to_server if end == "server" else self.to_client):
                way.target.lose(ConnectionResetError("the network has cut the link"))


class _Way:
    """One direction of a link."""

    source: _Transport
    target: _Transport

    def __init__(self, network: Network, faults: Faults, random: Random) -> None:
        self.weather = Weather(faults, random)
        self.held = False
        self.happened = network.happened
        self._window = network.window
        self._loop = asyncio.get_running_loop()
        self._written: deque[bytes] = deque()
        self._ends = False
        self._travelling: deque[tuple[float, bytes]] = deque()
        self._carried = 0
        self._broken = False
        self._timer: asyncio.Handle | None = None

    def join(self, source: _Transport, target: _Transport) -> None:
        """Set the two ends of the direction."""
        self.source, self.target = source, target

    @property
    def faults(self) -> Faults:
        """The faults from now on; assign to change them."""
        return self.weather.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self.weather.faults = faults

    @property
    def passed(self) -> int:
        """Bytes that have arrived."""
        return self.weather.passed

    def hold(self) -> None:
        """Deliver nothing until ``release``."""
        self.held = True
        self.happened["held"] += 1

    def release(self) -> None:
        """Deliver again."""
        self.held = False
        self.deliver_soon()

    # Called by the ends.

    def write(self, data: bytes) -> None:
        """Accept bytes from the writer."""
        self._written.append(data)
        self.source.unsent += len(data)
        self.take()

    def end(self) -> None:
        """The writer has ended this direction."""
        if not self._ends:
            self._ends = True
            self.take()

    def take(self) -> None:
        """Put bytes in flight, as many as the link carries at a time."""
        while self._written and self._carried < self._window and not self._broken:
            head = self._written[0]
            size = self.weather.piece(min(len(head), self._window - self._carried))
            if size < len(head):
                self._written[0] = head[size:]
                self.happened["sliced"] += 1
            else:
                self._written.popleft()
            self.source.unsent -= size
            self._carried += size
            self._travelling.append((self.weather.due(size, self._loop.time()), head[:size]))
        if self._ends and not self._written and not self._broken:
            self._broken = True  # nothing follows the end
            self._travelling.append((self.weather.due(0, self._loop.time()), b""))
        self.deliver_soon()

    def break_off(self) -> None:
        """Drop all bytes that have not arrived, and all that will be written."""
        self._broken = True
        self._written.clear()
        self._travelling.clear()
        self.source.unsent = self._carried = 0
        self.source.look()

    def reset(self) -> None:
        """Break off, and notify the target."""
        self.break_off()
        if not self.weather.silent:
            error = ConnectionResetError("the peer has reset the link")
            self._loop.call_later(self.faults.delay, self.target.lose, error)

    def deliver_soon(self) -> None:
        """Schedule the next delivery, when it is due and the reader reads."""
        if self._travelling and self._timer is None and not self.held and self.target.wants:
            due = self._travelling[0][0]
            if due <= self._loop.time():
                self._timer = self._loop.call_soon(self._deliver)
            else:
                self._timer = self._loop.call_at(due, self._deliver)

    def _deliver(self) -> None:
        """Deliver one read to the target."""
        self._timer = None
        if not self._travelling or self.held or not self.target.wants:
            return
        _, data = self._travelling.popleft()
        if not data:
            if not self.weather.silent:
                self.target.ended()
            return
        self._carried -= len(data)
        size, breaks = self.weather.arriving(len(data))
        if size < len(data) and not breaks:
            self.happened["lost"] += 1
        if size:
            self.target.receive(data[:size])
        if breaks:
            self.source.link.cut()
            return
        self.take()
        self.source.look()


class _Transport(BufferedTransport):
    """One end of a link."""

    def __init__(self, link: Link, protocol: Receiver, way: _Way) -> None:
        super().__init__(protocol, high=_HIGH, extra={"peername": ("mem", 0)})
        self.link = link
        self._loop = asyncio.get_running_loop()
        self._way = way
        self._lost = self._ended = self._unread = False
        self.gone = False
        "The protocol object has been notified that the link is gone."

    @property
    def wants(self) -> bool:
        """Whether bytes that arrive are accepted: read, or answered by a reset."""
        return self.reading or self.closing

    # Called by a protocol.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if data and not (self.closing or self._ended):
            self._way.write(bytes(data))
            self.look()

    def write_eof(self) -> None:
        """End this half, after the bytes that were written."""
        self._ended = True
        self._way.end()

    def resume_reading(self) -> None:
        """Accept bytes that arrive."""
        self.reading = True
        self._other_way.deliver_soon()

    def close(self) -> None:
        """Send the bytes that were written, then the end."""
        if not self.closing:
            self.closing = True
            self._way.end()
            self._other_way.deliver_soon()
            self.look()

    def abort(self) -> None:
        """Break the link: bytes that have not arrived are lost."""
        if not self._lost:
            self._way.reset()
            self.lose(None)

    # Called by the link.

    def look(self) -> None:
        """Pause or resume the writer, and end when all bytes written before ``close`` have left."""
        if self._lost:
            return
        if self.unsent > self.high and not self.full:
            self.full = True
            self._way.happened["full"] += 1
            self.protocol.pause_writing()
        elif self.full and self.unsent <= self.low:
            self.full = False
            self._loop.call_soon(self._resume_writing)
        if self.closing and not self.unsent:
            if self._unread:
                self._way.reset()
            self.lose(None)

    def receive(self, data: bytes) -> None:
        """Receive bytes. An end that is gone answers with a reset; one that closes does so after its last byte."""
        if self._lost:
            self._way.reset()
        elif self.closing:
            self._unread = True
        elif isinstance(protocol := cast("object", self.protocol), asyncio.BufferedProtocol):
            memoryview(protocol.get_buffer(len(data)))[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            cast("asyncio.Protocol", protocol).data_received(data)

    def ended(self) -> None:
        """Receive the peer's end."""
        if not self.closing and not self.protocol.eof_received():
            self.close()

    def lose(self, error: Exception | None) -> None:
        """The link is gone for this end."""
        self.closing = True
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        protocol, self.protocol = self.protocol, GONE
        self.gone = True
        self.link.over = self._way.target.gone
        protocol.connection_lost(error)

    def _resume_writing(self) -> None:
        if not (self.full or self._lost):
            self.protocol.resume_writing()

    @property
    def _other_way(self) -> _Way:
        link = self.link
        return link.to_client if self._way is link.to_server else link.to_server
