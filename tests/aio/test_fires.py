"""Fires that come faster than their handlers work: each is handled, so many at once, and reading waits for them."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio

import afflux
from afflux import Limits, Payload

FIRES = 5_000


class Counting:
    """Counts what arrived, and how many handlers run."""

    def __init__(self, *, waits: bool, enough: int) -> None:
        self.order: list[int] = []
        self.most = 0
        self.all_there = asyncio.Event()
        self.go = asyncio.Event()
        self._running = 0
        self._waits = waits
        self._enough = enough

    async def request(self, payload: Payload) -> Payload:
        return payload

    async def fire(self, payload: Payload) -> None:
        self._running += 1
        self.most = max(self.most, self._running)
        self.order.append(int(payload.data))
        if len(self.order) == self._enough:
            self.all_there.set()
        if self._waits:
            await self.go.wait()
        self._running -= 1


async def test_none_is_lost_when_they_come_all_at_once() -> None:
    handler = Counting(waits=False, enough=FIRES)
    async with afflux.serve("tcp://127.0.0.1:0", handler) as server, afflux.connect(server.uri) as peer:
        for number in range(FIRES):
            await peer.fire(b"%d" % number)
        await handler.all_there.wait()
    assert handler.order == list(range(FIRES))


async def test_no_more_run_than_may_and_requests_go_beside_them() -> None:
    limits = Limits.server(streams=8)
    handler = Counting(waits=True, enough=100)
    async with afflux.serve("tcp://127.0.0.1:0", handler, limits=limits) as server:
        async with afflux.connect(server.uri) as peer:
            for number in range(100):
                await peer.fire(b"%d" % number)
            assert (await peer.request(b"beside")).data == b"beside"
            assert handler.most == len(handler.order) == 8
            handler.go.set()
            await handler.all_there.wait()
    assert handler.most == 8
    assert handler.order == list(range(100))


async def test_what_was_fired_before_the_end_is_handled() -> None:
    limits = Limits.server(streams=8)
    handler = Counting(waits=True, enough=100)
    async with afflux.serve("tcp://127.0.0.1:0", handler, limits=limits) as server:
        async with afflux.connect(server.uri) as peer:
            for number in range(100):
                await peer.fire(b"%d" % number)
            await peer.request(b"")
        handler.go.set()
        await handler.all_there.wait()
    assert handler.order == list(range(100))


async def test_a_server_that_drains_handles_the_fires_that_came() -> None:
    handler = Counting(waits=True, enough=100)
    async with afflux.serve("tcp://127.0.0.1:0", handler, limits=Limits.server(streams=8)) as server:
        async with afflux.connect(server.uri) as peer:
            for number in range(100):
                await peer.fire(b"%d" % number)
            await peer.request(b"")
            closing = asyncio.ensure_future(server.close(drain=True))
            await peer.wait_closed()
            assert not closing.done()
            handler.go.set()
            await closing
    assert handler.order == list(range(100))


async def test_a_server_without_fire_frees_what_they_hold() -> None:
    class Deaf:
        async def request(self, payload: Payload) -> Payload:
            return payload

    async with afflux.serve("tcp://127.0.0.1:0", Deaf()) as server, afflux.connect(server.uri) as peer:
        for _ in range(300):
            await peer.fire(bytes(1000))
        await peer.request(b"")
        (guest,) = server.connections
        driver = guest._driver
        assert driver is not None
        engine = driver.engine
        streams = engine.stream_table  # type: ignore[attr-defined]  # nothing public tells it
        assert (streams.objects, len(streams.work.fires)) == (0, 0)
