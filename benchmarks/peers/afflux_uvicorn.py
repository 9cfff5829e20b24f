"""afflux in an ASGI application under Uvicorn, with the client of afflux_ws."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

import afflux.asgi
from benchmarks.peers.afflux_aio import Handler, limits
from benchmarks.peers.afflux_ws import Client
from benchmarks.peers.base import HOST

__all__ = ["Client", "serve"]


@asynccontextmanager
async def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AsyncIterator[int]:
    """See base.Peer."""
    application = afflux.asgi.app(Handler(), limits=limits(large))
    # Without pings: a client that is busy for long answers them too late, and Uvicorn would close the connection.
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning", ws_ping_interval=None))
    with socket.create_server((HOST, port)) as listener:
        running = loop.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running
