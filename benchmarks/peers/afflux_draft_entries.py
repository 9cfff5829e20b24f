"""afflux with RSocket's extensible draft, and three extension entries on each request, answer and item.

The handler creates the items that it repeats beforehand, as those of the other peers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import cycle, islice
from typing import Any, Final

import afflux
from afflux.protocols.rsocket_draft import Entry, ExtendedPayload
from benchmarks.peers import afflux_aio
from benchmarks.peers.afflux_draft import SCHEME
from benchmarks.peers.base import HOST, Count, asked, in_turns, items_of, stream_request
from benchmarks.workloads import REQUEST_BYTES

__all__ = ["Client", "Handler", "serve"]

ENTRIES: Final = (
    Entry("trace", b"0123456789abcdef", ignorable=True),
    Entry("tenant", b"12345678", ignorable=True),
    Entry("zone", b"west", ignorable=True),
)


async def _unused(stream: int, body: bytes) -> None:
    """No EXT is sent."""


KNOWN: Final[Mapping[int | str, Any]] = {str(entry.name): _unused for entry in ENTRIES}
"Both ends understand the entries: they are kept for the application."


class Handler(afflux_aio.Handler):
    """The same with entries; an echo has those of its request."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[afflux.Payload]:  # type: ignore[override]  # items
        """Yield one item at a time."""
        count, size = asked(payload.data)
        items = [ExtendedPayload(item, entries=ENTRIES) for item in items_of(size)]
        for item in islice(cycle(items), count):
            yield item


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    uri = f"{SCHEME}://{HOST}:{port}"
    async with afflux.serve(uri, Handler(), limits=afflux_aio.limits(large), extensions=KNOWN) as server:
        yield int(server.uri.rpartition(":")[2])


class Client(afflux_aio.Client):
    """See base.Client."""

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        limits = afflux_aio.limits(large)
        self._peer = await self.enter(afflux.connect(f"{SCHEME}://{HOST}:{port}", limits=limits, extensions=KNOWN))

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client."""
        data, ask = bytes(REQUEST_BYTES), self._peer.request

        async def one(count: int) -> Count:
            size = 0
            for _ in range(count):
                size += len((await ask(ExtendedPayload(data, entries=ENTRIES))).data)
            return Count(count, size)

        return await in_turns(one, n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client; the request has entries too."""
        taken = total = 0
        ask = ExtendedPayload(stream_request(items, size), entries=ENTRIES)
        async for item in self._peer.stream(ask, credit=credit):
            taken += 1
            total += len(item.data)
        return Count(taken, total)
