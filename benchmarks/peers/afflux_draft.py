"""afflux with RSocket's extensible draft: the server and the client of afflux_aio at another address, no entries."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from benchmarks.peers import afflux_aio
from benchmarks.peers.base import HOST

__all__ = ["SCHEME", "Client", "serve"]

SCHEME = "rsocket-draft+tcp"


def serve(port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
    """See base.Peer."""
    return afflux_aio.serving(f"{SCHEME}://{HOST}:{port}", large)


class Client(afflux_aio.Client):
    """See base.Client."""

    scheme = SCHEME
