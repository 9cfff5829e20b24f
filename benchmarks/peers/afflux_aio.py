"""afflux under asyncio as most people will write it: ``await peer.request``, ``async for``, ``yield``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import afflux
from benchmarks.peers.base import HOST, AsyncClient, Count, asked, in_turns, stream_request
from benchmarks.workloads import REQUEST_BYTES

__all__ = ["Client", "serve"]


class Handler:
    """Echoes requests; streams what is asked for, item by item."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        """The same data."""
        return payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        """One item at a time."""
        count, size = asked(payload.data)
        item = bytes(size)
        for _ in range(count):
            yield item


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop) -> AsyncIterator[int]:
    """See base.Peer."""
    async with afflux.serve(f"tcp://{HOST}:{port}", Handler()) as server:
        yield int(server.uri.rpartition(":")[2])


class Client(AsyncClient):
    """See base.Client."""

    async def open(self, port: int) -> None:
        """Connect."""
        self._peer = await self.enter(afflux.connect(f"tcp://{HOST}:{port}"))

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
