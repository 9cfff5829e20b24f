"""afflux over WebSockets, with its own WebSocket server: the server and the client of afflux_aio."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST

__all__ = ["Client", "serve"]


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return afflux_aio.serving(f"ws://{HOST}:{port}", large)


class Client(afflux_aio.Client):
    """See base.Client."""

    scheme = "ws"
