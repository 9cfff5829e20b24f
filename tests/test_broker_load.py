"""A broker under a random load of clients that come, ask, give up and are cut: nothing of them stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import afflux
from afflux import Limits
from afflux.broker import Address, RouteSetup

SERVICE = {"ServiceName": "svc"}


class Worker:
    """Answers at random: now, later, never, with an error."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def _dawdle(self) -> None:
        chance = self._random.random()
        if chance < 0.1:
            await asyncio.Event().wait()
        if chance < 0.2:
            raise afflux.ApplicationError(0x301, "no")
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    async def fire(self, payload: afflux.Payload) -> None:
        await self._dawdle()

    async def request(self, payload: afflux.Payload) -> bytes:
        await self._dawdle()
        return payload.data

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for _ in range(self._random.randrange(100)):
            await self._dawdle()
            yield b"item"

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        async for item in items:
            await self._dawdle()
            yield item.data


class Load:
    """Clients of one broker, who do what a seed says."""

    def __init__(self, seed: int, server: afflux.Server) -> None:
        self.random = Random(seed)
        self.server = server
        self.peers: list[afflux.Peer] = []
        self.asking: set[asyncio.Task[None]] = set()

    async def join(self) -> None:
        """One more client, which answers or only asks."""
        random = self.random
        name = bytes([random.randrange(8)]) * 16
        setup = RouteSetup(name, "svc") if random.random() < 0.6 else None
        self.peers.append(await afflux.connect(self.server.uri, handler=Worker(random), setup=setup))

    async def leave(self) -> None:
        """A client goes, in order or not."""
        peer = self.peers.pop(self.random.randrange(len(self.peers)))
        if self.random.random() < 0.5:
            peer.cut()
        await peer.close()

    def ask(self) -> None:
        """A client asks for something, and may take little of it."""
        random = self.random
        peer = random.choice(self.peers)
        address = Address(SERVICE, method="multicast") if random.random() < 0.5 else Address(SERVICE)
        verb = random.choice((self._fire, self._request, self._stream, self._channel))
        task = asyncio.ensure_future(self._tried(verb(peer, address)))
        self.asking.add(task)
        task.add_done_callback(self.asking.discard)

    async def run(self, steps: int) -> None:
        """The load."""
        for _ in range(steps):
            chance = self.random.random()
            if len(self.peers) < 4 or (chance < 0.06 and len(self.peers) < 12):
                await self.join()
            elif chance < 0.12:
                await self.leave()
            elif chance < 0.75:
                self.ask()
            elif chance < 0.85 and self.asking:
                sorted(self.asking, key=id)[self.random.randrange(len(self.asking))].cancel()
            await asyncio.sleep(0)
        for task in list(self.asking):
            task.cancel()
        await asyncio.gather(*self.asking, return_exceptions=True)
        while self.peers:
            await self.leave()

    async def _tried(self, work: Any) -> None:
        with suppress(afflux.Error):
            await work

    async def _fire(self, peer: afflux.Peer, address: Address) -> None:
        await peer.fire(b"fired", metadata=address)

    async def _request(self, peer: afflux.Peer, address: Address) -> None:
        await peer.request(b"asked", metadata=address)

    async def _stream(self, peer: afflux.Peer, address: Address) -> None:
        left = self.random.randrange(40)
        async with peer.stream(b"", metadata=address, credit=4) as items:
            async for _ in items:
                left -= 1
                if left < 0:
                    return

    async def _channel(self, peer: afflux.Peer, address: Address) -> None:
        left = self.random.randrange(20)

        async def source() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"sent"
            await asyncio.Event().wait()

        async with peer.channel(source(), metadata=address) as items:
            async for _ in items:
                left -= 1
                if left < 0:
                    return


@pytest.mark.parametrize("seed", range(6))
async def test_no_connection_and_no_route_is_left_after_a_random_load(seed: int) -> None:
    limits = Limits.server(stop_s=1)
    broker = afflux.Broker()
    uri = "tcp://127.0.0.1:0"
    async with afflux.serve(uri, broker, on_setup=broker.on_setup, limits=limits) as server:
        await Load(seed, server).run(400)
        async with asyncio.timeout(10):
            while server.connections or len(broker.table):
                await asyncio.sleep(0.001)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left
