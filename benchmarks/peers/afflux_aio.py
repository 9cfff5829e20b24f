"""afflux with asyncio in its most common use: ``await peer.request``, ``async for``, ``yield``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle, islice

import afflux
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
from benchmarks.workloads import LARGE_BYTES, METADATA_BYTES, REQUEST_BYTES, ROUTE, SHORT

__all__ = ["Client", "Handler", "limits", "serve", "serve_routes", "serving"]


def limits(large: bool) -> afflux.Limits | None:
    """Return the default limits, or those of trusted links with room for one large payload."""
    if not large:
        return None
    return afflux.Limits.trusted(payload_bytes=LARGE_BYTES, connection_bytes=2 * LARGE_BYTES)


class Handler:
    """Echo requests; stream the requested items one by one."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        """Return the same data."""
        return payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        """Yield one item at a time; if the request has metadata, with the same."""
        count, size = asked(payload.data)
        items = items_of(size)
        if payload.metadata is None:
            for item in islice(cycle(items), count):
                yield item
        else:
            for item in islice(cycle(items), count):
                yield afflux.Payload(item, payload.metadata)

    async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[afflux.Payload]:
        """Yield each item that arrives."""
        async for item in items:
            yield item


router = afflux.Router()


@router.request(ROUTE)
async def echo(payload: afflux.Payload) -> afflux.Payload:
    """Return the same data."""
    return afflux.Payload(payload.data)


@asynccontextmanager
async def serving(uri: str, large: bool, handler: object = None, tls: afflux.Tls | None = None) -> AsyncIterator[int]:
    """Run the server at an address; yield its port."""
    async with afflux.serve(uri, handler or Handler(), limits=limits(large), tls=tls) as server:
        yield int(server.uri.rpartition(":")[2])


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return serving(f"tcp://{HOST}:{port}", large)


def serve_routes(port: int) -> AbstractAsyncContextManager[int]:
    """See base.Further."""
    return serving(f"tcp://{HOST}:{port}", False, router)


class Client(AsyncClient):
    """See base.Client."""

    scheme = "tcp"
    "The prefix of its address."

    tls: afflux.Tls | None = None
    "What it trusts."

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        self._uri = f"{self.scheme}://{HOST}:{port}"
        self._peer = await self.enter(afflux.connect(self._uri, limits=limits(large), tls=self.tls))
        self._crowd: list[afflux.Peer] = []

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client."""
        return await _ask(self._peer, n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        taken = total = 0
        async for item in self._peer.stream(stream_request(items, size), credit=credit):
            taken += 1
            total += len(item.data)
        return Count(taken, total)

    def stream_metadata(self, items: int, size: int, credit: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._stream_metadata(items, size, credit))

    async def _stream_metadata(self, items: int, size: int, credit: int) -> Count:
        taken = total = marked = 0
        request = stream_request(items, size)
        async for item in self._peer.stream(request, metadata=b"m" * METADATA_BYTES, credit=credit):
            taken += 1
            total += len(item.data)
            marked += len(item.metadata or b"")
        return check_metadata(Count(taken, total), marked)

    def request_routes(self, n: int, concurrency: int) -> Count:
        """See base.FurtherWork."""
        return self.run(_ask(self._peer, n, concurrency, ROUTE))

    def short_streams(self, n: int, concurrency: int, credit: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._short_streams(n, concurrency, credit))

    async def _short_streams(self, n: int, concurrency: int, credit: int) -> Count:
        request, stream = stream_request(SHORT, 0), self._peer.stream

        async def one(count: int) -> Count:
            size = 0
            for _ in range(count):
                async for item in stream(request, credit=credit):
                    size += len(item.data)
            return Count(count, size)

        return await in_turns(one, n, concurrency)

    def channel(self, items: int, size: int, credit: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._channel(items, size, credit))

    async def _channel(self, items: int, size: int, credit: int) -> Count:
        taken = total = 0
        async with self._peer.channel(_repeated(items, size), credit=credit) as channel:
            async for item in channel:
                taken += 1
                total += len(item.data)
        return Count(taken, total)

    def many_connections(self, n: int, concurrency: int, connections: int) -> Count:
        """See base.FurtherWork."""
        return self.run(self._many_connections(n, concurrency, connections))

    async def _many_connections(self, n: int, concurrency: int, connections: int) -> Count:
        while len(self._crowd) < connections:
            self._crowd.append(await self.enter(afflux.connect(self._uri)))
        each = iter(self._crowd)
        return await in_turns(lambda count: _ask(next(each), count, concurrency), n, connections)


async def _ask(peer: afflux.Peer, n: int, concurrency: int, route: str | None = None) -> Count:
    """Send ``n`` requests, ``concurrency`` at a time."""
    data, ask = bytes(REQUEST_BYTES), peer.request

    async def one(count: int) -> Count:
        size = 0
        for _ in range(count):
            size += len((await ask(data)).data)
        return Count(count, size)

    async def routed(count: int) -> Count:
        size = 0
        for _ in range(count):
            size += len((await ask(data, route=route)).data)
        return Count(count, size)

    return await in_turns(one if route is None else routed, n, concurrency)


async def _repeated(items: int, size: int) -> AsyncIterator[bytes]:
    for item in islice(cycle(items_of(size)), items):
        yield item
