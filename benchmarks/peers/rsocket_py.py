"""rsocket, the RSocket implementation on PyPI: its own client and server on its own TCP transport.

Two of its settings are changed, in its favour. It reads 16 KiB at a time instead of 1 KiB: twice as fast with large
items, and as fast with small ones (slower with 64 KiB, because it copies the rest of its buffer for each frame). Its
client sends keepalives every 20 s, like afflux, instead of twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle, islice
from typing import Any

from rsocket.helpers import create_response, single_transport_provider  # type: ignore[import-untyped]
from rsocket.payload import Payload  # type: ignore[import-untyped]
from rsocket.request_handler import BaseRequestHandler  # type: ignore[import-untyped]
from rsocket.rsocket_client import RSocketClient  # type: ignore[import-untyped]
from rsocket.rsocket_server import RSocketServer  # type: ignore[import-untyped]
from rsocket.streams.stream_from_generator import StreamFromGenerator  # type: ignore[import-untyped]
from rsocket.transports.tcp import TransportTCP  # type: ignore[import-untyped]

from benchmarks.peers.base import HOST, AsyncClient, Count, asked, in_turns, items_of, stream_request
from benchmarks.workloads import REQUEST_BYTES

__all__ = ["Client", "serve"]

READ_BYTES = 0x4000
FRAGMENT_BYTES = 0x20000
"Bytes per fragment, as with afflux; by default it does not fragment."


class Handler(BaseRequestHandler):  # type: ignore[misc]  # it has no types
    """Echo requests; stream the requested items."""

    async def request_response(self, payload: Payload) -> Any:
        """Return the same data."""
        return create_response(payload.data)

    async def request_stream(self, payload: Payload) -> Any:
        """Return items from a generator, which the library consumes as credit arrives."""
        count, size = asked(bytes(payload.data))
        rows = items_of(size)

        def items() -> Iterator[tuple[Payload, bool]]:
            for number, item in enumerate(islice(cycle(rows), count), 1):
                yield Payload(item), number == count

        return StreamFromGenerator(items)


class Counter:
    """A subscriber that counts, and grants again when half of the window is consumed."""

    def __init__(self, credit: int) -> None:
        self.done: asyncio.Future[Count] = asyncio.get_running_loop().create_future()
        self._mark = max(1, credit // 2)
        self._taken = self._items = self._bytes = 0
        self._subscription: Any = None

    def on_subscribe(self, subscription: Any) -> None:
        """The stream begins."""
        self._subscription = subscription

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        """An item."""
        self._items += 1
        self._bytes += len(value.data)
        self._taken += 1
        if is_complete:
            self.on_complete()
        elif self._taken == self._mark:
            self._taken = 0
            self._subscription.request(self._mark)

    def on_complete(self) -> None:
        """The end."""
        self.done.set_result(Count(self._items, self._bytes))

    def on_error(self, exception: Exception) -> None:
        """Another end."""
        self.done.set_exception(exception)


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    sockets = []

    def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = TransportTCP(reader, writer, READ_BYTES)
        fragment = FRAGMENT_BYTES if large else None
        sockets.append(RSocketServer(transport, handler_factory=Handler, fragment_size_bytes=fragment))

    server = await asyncio.start_server(session, HOST, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Client(AsyncClient):
    """See base.Client."""

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        reader, writer = await asyncio.open_connection(HOST, port)
        transport = TransportTCP(reader, writer, READ_BYTES)
        self._peer = await self.enter(
            RSocketClient(single_transport_provider(transport), keep_alive_period=timedelta(seconds=20))
        )

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client."""
        data, ask = bytes(REQUEST_BYTES), self._peer.request_response

        async def one(count: int) -> Count:
            size = 0
            for _ in range(count):
                size += len((await ask(Payload(data))).data)
            return Count(count, size)

        return await in_turns(one, n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        counter = Counter(credit)
        stream = self._peer.request_stream(Payload(stream_request(items, size)))
        stream.initial_request_n(credit).subscribe(counter)
        return await counter.done
