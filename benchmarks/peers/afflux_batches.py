"""afflux with asyncio on its fast path: a handler that yields lists of items, a client that consumes batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice

import afflux
from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST, Count, asked, items_of, stream_request

__all__ = ["Client", "serve"]

LIST_ITEMS = 256
LIST_BYTES = 0x10000
"Maximum items and bytes of a list."


class Handler:
    """Stream the requested items in lists."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[list[bytes]]:
        """Yield lists of items; each item counts separately."""
        count, size = asked(payload.data)
        items = items_of(size)
        source = cycle(items)
        step = max(1, min(LIST_ITEMS, LIST_BYTES // max(map(len, items))))
        for first in range(0, count, step):
            yield list(islice(source, min(step, count - first)))


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    async with afflux.serve(f"tcp://{HOST}:{port}", Handler(), limits=afflux_aio.limits(large)) as server:
        yield int(server.uri.rpartition(":")[2])


class Client(afflux_aio.Client):
    """See base.Client."""

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client; every item is inspected here too."""
        taken = total = 0
        async for batch in self._peer.stream(stream_request(items, size), credit=credit).batches():
            taken += len(batch)
            for item in batch:
                total += len(item.data)
        return Count(taken, total)
