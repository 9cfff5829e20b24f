"""grpcio with its asyncio API, with generic methods whose messages are plain bytes, without protobuf.

It has its own flow control (HTTP/2 windows, in bytes) and no credit that an application could request, so it is
excluded from the workloads with a window. It runs on asyncio: under uvloop it was never faster and often slower. Its
only setting allows messages of any size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from typing import Any

import grpc  # type: ignore[import-untyped,import-not-found,unused-ignore]
import grpc.aio  # type: ignore[import-untyped,import-not-found,unused-ignore]

from benchmarks.peers.base import HOST, AsyncClient, Count, asked, in_turns, items_of, stream_request
from benchmarks.workloads import REQUEST_BYTES

__all__ = ["Client", "serve"]

_SERVICE = "bench"
_OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


async def _echo(request: bytes, context: Any) -> bytes:
    """Return the same data."""
    return request


async def _items(request: bytes, context: Any) -> AsyncIterator[bytes]:
    """Yield one item at a time."""
    count, size = asked(request)
    items = items_of(size)
    for item in islice(cycle(items), count):
        yield item


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    server = grpc.aio.server(options=_OPTIONS)
    methods = {
        "echo": grpc.unary_unary_rpc_method_handler(_echo),
        "items": grpc.unary_stream_rpc_method_handler(_items),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
    bound = server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    try:
        yield int(bound)
    finally:
        await server.stop(None)


class Client(AsyncClient):
    """See base.Client."""

    async def open(self, port: int, large: bool) -> None:
        """Connect."""
        channel = await self.enter(grpc.aio.insecure_channel(f"{HOST}:{port}", options=_OPTIONS))
        await channel.channel_ready()
        self._echo = channel.unary_unary(f"/{_SERVICE}/echo")
        self._items = channel.unary_stream(f"/{_SERVICE}/items")

    async def requests(self, n: int, concurrency: int) -> Count:
        """See base.Client."""
        data, ask = bytes(REQUEST_BYTES), self._echo

        async def one(count: int) -> Count:
            size = 0
            for _ in range(count):
                size += len(await ask(data))
            return Count(count, size)

        return await in_turns(one, n, concurrency)

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client; ``credit`` is always unbounded."""
        taken = total = 0
        async for item in self._items(stream_request(items, size)):
            taken += 1
            total += len(item)
        return Count(taken, total)
