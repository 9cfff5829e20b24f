"""afflux with Limit-Stream, without a session type: streams of bytes, item by item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import cycle, islice
from typing import Any

from afflux.protocols.limit import Opening, Steps, Unchecked
from benchmarks.peers import afflux_limit
from benchmarks.peers.base import Count, asked, items_of, stream_request

__all__ = ["Client", "Handler", "serve"]


class Handler:
    """Stream the requested items one by one."""

    def session_steps(self, channel: str) -> Steps:
        """Permit every step."""
        return Unchecked()

    async def channel(self, items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        """Yield one item at a time."""
        count, size = asked((await anext(items)).data)
        for item in islice(cycle(items_of(size)), count):
            yield item


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return afflux_limit.serving(port, Handler())


class Client(afflux_limit.Client):
    """See base.Client."""

    async def items(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        taken = total = 0
        source = [Opening("items", stream_request(items, size), Unchecked())]
        async with self._peer.channel(source, credit=credit) as answers:
            async for item in answers:
                taken += 1
                total += len(item.data)
        return Count(taken, total)
