"""Samples of a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import afflux
from afflux.observing import CAUSES, sample


class Handler:
    """Items without end, in one stream; one item and then silence in the other."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b"first"
        if payload.data == b"silent":
            await asyncio.Event().wait()
        while True:
            yield b"more"


async def test_a_stream_is_stalled_while_it_does_not_move() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Handler()) as server,
        afflux.connect(server.uri) as peer,
        peer.stream(b"", credit=0) as waits,
        peer.stream(b"silent", credit=5) as silent,
    ):
        waits.request(2)
        assert [await anext(waits), await anext(waits), await anext(silent)]
        first = await sample(server)
        assert (first.live, first.credit, first.stalled.total()) == (2, 4, 0)  # nothing to compare with
        second = await sample(server, first)
        assert second.stalled == {"credit": 1}  # the silent one has credit: it is no stall
        waits.request(1)
        await anext(waits)
        assert (await sample(server, second)).stalled == {}
    assert "credit" in CAUSES and "producer" not in CAUSES
    assert (await sample(server, second)).connections == 0


async def test_all_of_many_connections_are_visited() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(afflux.serve("mem://many", Handler()))
        for _ in range(130):
            peer = await stack.enter_async_context(afflux.connect(server.uri))
            await anext(await stack.enter_async_context(peer.stream(b"silent")))
        found = await sample(server)
    assert (found.connections, found.live, found.traffic.connections) == (130, 130, 130)


async def test_a_busy_loop_with_many_connections_is_sampled_in_a_few_turns() -> None:
    loop, turns = asyncio.get_running_loop(), 0

    def work() -> None:
        """What other connections do to the loop: every turn of it is long."""
        nonlocal turns, due
        turns += 1
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        due = loop.call_soon(work)

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(afflux.serve("mem://busy", Handler()))
        for _ in range(640):
            await stack.enter_async_context(afflux.connect(server.uri))
        due = loop.call_soon(work)
        found = await sample(server)
        due.cancel()
    assert found.connections == 640
    assert turns < 5
