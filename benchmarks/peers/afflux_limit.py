"""afflux with Limit-Stream: streams of texts whose session type both ends check, item by item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import afflux
from afflux.protocols.limit import Choice, Opening, Steps, Typed, Value
from afflux.sessions import SessionType, session_type
from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST, Count, asked, item_of, stream_request

__all__ = ["Client", "Handler", "serve", "serving"]

_SCHEME = "limit+tcp"
_NAME = "items"
ITEMS: SessionType[Any, Any] = session_type(
    {"name": _NAME, "states": [["recv", "string", 1], ["choose", 2, 3], ["send", "string", 1], ["end"]], "types": {}}
)
"``items = recv string -> choose | more | end``, and ``more = send string -> choose | more | end``."


class Handler:
    """Stream the requested items one by one."""

    def session_steps(self, channel: str) -> Steps:
        """Return the server's steps."""
        return Typed(ITEMS.server)

    async def channel(self, items: AsyncIterator[Any]) -> AsyncIterator[Value | Choice]:
        """Yield one item at a time."""
        await anext(items)
        count, size = asked((await anext(items)).value)
        item = item_of(size).decode()
        for _ in range(count):
            yield Value(item)
        yield Choice(1)


@asynccontextmanager
async def serving(port: int, handler: object) -> AsyncIterator[int]:
    """Run the server; yield its port."""
    async with afflux.serve(f"{_SCHEME}://{HOST}:{port}", handler) as server:
        yield int(server.uri.rpartition(":")[2])


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return serving(port, Handler())


class Client(afflux_aio.Client):
    """See base.Client."""

    scheme = _SCHEME

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        taken = total = 0
        source = [Opening(_NAME, steps=Typed(ITEMS.client)), Value(stream_request(items, size).decode())]
        async with self._peer.channel(source, credit=credit) as answers:
            async for item in answers:
                if isinstance(item, Value):
                    taken += 1
                    total += len(item.value)
        return Count(taken, total)
