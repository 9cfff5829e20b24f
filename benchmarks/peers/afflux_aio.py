"""afflux with asyncio in its most common use: ``await peer.request``, ``async for``, ``yield``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle, islice

import afflux
from benchmarks.peers.base import HOST, AsyncClient, Count, asked, in_turns, items_of, stream_request
from benchmarks.workloads import LARGE_BYTES, REQUEST_BYTES

__all__ = ["Client", "Handler", "limits", "serve", "serving"]


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
        """Yield one item at a time."""
        count, size = asked(payload.data)
        items = items_of(size)
        for item in islice(cycle(items), count):
            yield item


@asynccontextmanager
async def serving(uri: str, large: bool) -> AsyncIterator[int]:
    """Run the server at an address; yield its port."""
    async with afflux.serve(uri, Handler(), limits=limits(large)) as server:
        yield int(server.uri.rpartition(":")[2])


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return serving(f"tcp://{HOST}:{port}", large)


class Client(AsyncClient):
    """See base.Client."""

    scheme = "tcp"
    "The prefix of its address."

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        self._peer = await self.enter(afflux.connect(f"{self.scheme}://{HOST}:{port}", limits=limits(large)))

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client."""
        data, ask = bytes(REQUEST_BYTES), self._peer.request

        async def one(count: int) -> Count:
            size = 0
            for _ in range(count):
                size += len((await ask(data)).data)
            return Count(count, size)

        return await in_turns(one, n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        taken = total = 0
        async for item in self._peer.stream(stream_request(items, size), credit=credit):
            taken += 1
            total += len(item.data)
        return Count(taken, total)
