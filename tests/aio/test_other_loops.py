"""A connection that is used in another event loop than its own: afflux says so, instead of asyncio."""

from __future__ import annotations

import asyncio
import gc

import pytest

import afflux
from tests.aio.handlers import Demo
from tests.cli.running import Server

TOLD = r"^this connection belongs to another event loop: use it in the loop that made it"


async def test_a_request_in_the_loop_of_another_thread() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            await asyncio.to_thread(asyncio.run, peer.request(b"elsewhere"))
        assert await peer.request(b"here")  # the connection is still of use


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the socket that its loop has left
def test_a_request_after_the_loop_has_closed() -> None:
    async def opened(uri: str) -> afflux.Peer:
        peer = await afflux.connect(uri)
        await peer.request(b"1")
        return peer

    with Server("--demo") as server:
        peer = asyncio.run(opened(server.uri))
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            asyncio.run(peer.request(b"2"))
        del peer
        gc.collect()
