"""afflux with Limit-Stream: streams of texts whose session type both ends check, item by item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle, islice
from typing import Any

import afflux
from afflux.sessions import Chan, SessionType, session_type
from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST, Count, asked, items_of, stream_request

__all__ = ["Client", "serve", "serving"]

_SCHEME = "limit+tcp"
ITEMS: SessionType[Any, Any] = session_type(
    {"name": "items", "states": [["recv", "string", 1], ["choose", 2, 3], ["send", "string", 1], ["end"]], "types": {}}
)
"``items = recv string -> choose | more | end``, and ``more = send string -> choose | more | end``."
router = afflux.Router()


@router.session(ITEMS)
async def serve_items(chan: Chan[Any]) -> None:
    """Send the requested items one by one."""
    request, chan = await chan.recv()
    count, size = asked(request)
    texts = [item.decode() for item in items_of(size)]
    await chan.loop().send_each(islice(cycle(texts), count))
    await (await chan.choose(2)).end()


@asynccontextmanager
async def serving(port: int, handler: object) -> AsyncIterator[int]:
    """Run the server; yield its port."""
    async with afflux.serve(f"{_SCHEME}://{HOST}:{port}", handler) as server:
        yield int(server.uri.rpartition(":")[2])


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return serving(port, router)


class Client(afflux_aio.Client):
    """See base.Client."""

    scheme = _SCHEME

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        taken = total = 0
        async with self._peer.open(ITEMS, credit=credit) as chan:
            chan = await chan.send(stream_request(items, size).decode())
            async for item in chan.loop().recv_each():
                taken += 1
                total += len(item)
            _, chan = await chan.offer()
            await chan.end()
        return Count(taken, total)
