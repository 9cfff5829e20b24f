"""rsocket, the RSocket implementation on PyPI: its own client and server on its own TCP transport.

Two of its settings are changed, in its favour. It reads 16 KiB at a time instead of 1 KiB: twice as fast with large
items, and as fast with small ones (slower with 64 KiB, because it copies the rest of its buffer for each frame). Its
client sends keepalives every 20 s, like afflux, instead of twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from itertools import cycle, islice
from typing import Any

from rsocket.extensions.helpers import composite, route  # type: ignore[import-untyped]
from rsocket.extensions.mimetypes import WellKnownMimeTypes  # type: ignore[import-untyped]
from rsocket.helpers import create_response, single_transport_provider  # type: ignore[import-untyped]
from rsocket.payload import Payload  # type: ignore[import-untyped]
from rsocket.request_handler import BaseRequestHandler  # type: ignore[import-untyped]
from rsocket.routing.request_router import RequestRouter  # type: ignore[import-untyped]
from rsocket.routing.routing_request_handler import RoutingRequestHandler  # type: ignore[import-untyped]
from rsocket.rsocket_client import RSocketClient  # type: ignore[import-untyped]
from rsocket.rsocket_server import RSocketServer  # type: ignore[import-untyped]
from rsocket.streams.stream_from_generator import StreamFromGenerator  # type: ignore[import-untyped]
from rsocket.transports.tcp import TransportTCP  # type: ignore[import-untyped]

from benchmarks.peers.base import (
    HOST,
    AsyncClient,
    Count,
    asked,
    check_metadata,
    in_turns,
    items_of,
    stream_request,
)
from benchmarks.workloads import METADATA_BYTES, REQUEST_BYTES, ROUTE, SHORT

__all__ = ["Client", "serve", "serve_routes"]

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
        rows, metadata = items_of(size), payload.metadata

        def items() -> Iterator[tuple[Payload, bool]]:
            for number, item in enumerate(islice(cycle(rows), count), 1):
                yield Payload(item, metadata), number == count

        return StreamFromGenerator(items)


router = RequestRouter()


@router.response(ROUTE)
async def echo(payload: Payload) -> Any:
    """Return the same data."""
    return create_response(payload.data)


class Counter:
    """A subscriber that counts, and grants again when half of the window is consumed."""

    def __init__(self, credit: int) -> None:
        self.done: asyncio.Future[Count] = asyncio.get_running_loop().create_future()
        self._mark = max(1, credit // 2)
        self._taken = self._items = self._bytes = 0
        self.metadata_bytes = 0
        self._subscription: Any = None

    def on_subscribe(self, subscription: Any) -> None:
        """The stream begins."""
        self._subscription = subscription

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        """An item."""
        self._items += 1
        self._bytes += len(value.data)
        if value.metadata is not None:
            self.metadata_bytes += len(value.metadata)
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
async def _serving(port: int, large: bool, handler: Callable[[], Any]) -> AsyncIterator[int]:
    sockets = []

    def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = TransportTCP(reader, writer, READ_BYTES)
        fragment = FRAGMENT_BYTES if large else None
        sockets.append(RSocketServer(transport, handler_factory=handler, fragment_size_bytes=fragment))

    server = await asyncio.start_server(session, HOST, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return _serving(port, large, Handler)


def serve_routes(port: int) -> AbstractAsyncContextManager[int]:
    """See base.Further."""
    return _serving(port, False, lambda: RoutingRequestHandler(router))


class Client(AsyncClient):
    """See base.Client."""

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        self._port = port
        self._crowd: list[Any] = []
        self._peer = await self._connect()

    async def _connect(self) -> Any:
        reader, writer = await asyncio.open_connection(HOST, self._port)
        transport = TransportTCP(reader, writer, READ_BYTES)
        client = RSocketClient(
            single_transport_provider(transport),
            keep_alive_period=timedelta(seconds=20),
            metadata_encoding=WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA,
        )
        return await self.enter(client)

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client."""
        return await _ask(self._peer, n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        return await self._stream(Payload(stream_request(items, size)), Counter(credit), credit)

    async def _stream(self, request: Payload, counter: Counter, credit: int) -> Count:
        self._peer.request_stream(request).initial_request_n(credit).subscribe(counter)
        return await counter.done

    def stream_metadata(self, items: int, size: int, credit: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._stream_metadata(items, size, credit))

    async def _stream_metadata(self, items: int, size: int, credit: int) -> Count:
        counter = Counter(credit)
        request = Payload(stream_request(items, size), b"m" * METADATA_BYTES)
        return check_metadata(await self._stream(request, counter, credit), counter.metadata_bytes)

    def request_routes(self, n: int, concurrency: int) -> Count:
        """See base.FurtherWork."""
        return self.run(_ask(self._peer, n, concurrency, routed=True))

    def short_streams(self, n: int, concurrency: int, credit: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._short_streams(n, concurrency, credit))

    async def _short_streams(self, n: int, concurrency: int, credit: int) -> Count:
        request = stream_request(SHORT, 0)

        async def one(count: int) -> Count:
            size = 0
            for _ in range(count):
                size += (await self._stream(Payload(request), Counter(credit), credit)).bytes
            return Count(count, size)

        return await in_turns(one, n, concurrency)

    def many_connections(self, n: int, concurrency: int, connections: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._many_connections(n, concurrency, connections))

    async def _many_connections(self, n: int, concurrency: int, connections: int) -> Count:
        while len(self._crowd) < connections:
            self._crowd.append(await self._connect())
        each = iter(self._crowd)
        return await in_turns(lambda count: _ask(next(each), count, concurrency), n, connections)


async def _ask(peer: Any, n: int, concurrency: int, *, routed: bool = False) -> Count:
    """Send ``n`` requests, ``concurrency`` at a time."""
    data, ask = bytes(REQUEST_BYTES), peer.request_response

    async def one(count: int) -> Count:
        size = 0
        for _ in range(count):
            size += len((await ask(Payload(data, composite(route(ROUTE)) if routed else None))).data)
        return Count(count, size)

    return await in_turns(one, n, concurrency)
