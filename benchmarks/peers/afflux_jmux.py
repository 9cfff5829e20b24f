"""afflux with Jmux: requests, and byte sessions that are echoed after the other end has sent everything."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST, Count

__all__ = ["Client", "serve"]

_SCHEME = "jmux+tcp"


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer. A request is a complete session, so the request handler serves it."""
    return afflux_aio.serving(f"{_SCHEME}://{HOST}:{port}", large)


class Client(afflux_aio.Client):
    """See base.Client and base.Sessions."""

    scheme = _SCHEME

    def exchange(self, n: int, size: int) -> Count:
        """See base.Sessions."""
        return self._runner.run(self._exchange(n, size))

    async def _exchange(self, n: int, size: int) -> Count:
        data, taken = bytes(size), 0
        for _ in range(n):
            async with await self._peer.session() as session:
                await session.write(data)
                session.finish()
                while part := await session.read():
                    taken += len(part)
        return Count(n, taken)
