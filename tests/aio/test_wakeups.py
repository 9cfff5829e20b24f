"""Those who wait for a turn, for room or for a lease: whoever gives up takes nothing from those behind, and leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.protocols.rsocket import frames
from tests.aio.handlers import turns
from tests.aio.test_closing import Stranger

SEVERAL = 600
"More than are called at once."


class Held:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.entered = 0
        self.fired = 0
        self.gate = asyncio.Event()

    async def request(self, payload: Payload) -> Payload:
        """Echo, when told."""
        self.entered += 1
        await self.gate.wait()
        return payload

    async def fire(self, payload: Payload) -> None:
        """Count."""
        self.fired += 1


class Deaf:
    """A server that does not read before it is told."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.heard = bytearray()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read, from then on."""
        await self.reads.wait()
        while data := await reader.read(0x10000):
            self.heard += data

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for what comes to be read."""
        while not happened():
            await asyncio.sleep(0)


def begun(work: Callable[[], Coroutine[Any, Any, Any]], count: int) -> list[asyncio.Task[Any]]:
    """Tasks that do the same."""
    return [asyncio.ensure_future(work()) for _ in range(count)]


async def given_up(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel them, and wait for them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def stuffed(peer: afflux.Peer) -> list[asyncio.Task[Any]]:
    """Fire until nothing more goes; those that still wait."""
    waiting: list[asyncio.Task[Any]] = []
    while not waiting:
        firing = begun(lambda: peer.fire(bytes(0x8000)), 64)
        await turns(50)
        waiting = [task for task in firing if not task.done()]
    return waiting


async def test_canceled_fires_take_no_turn_from_those_behind() -> None:
    deaf = Deaf()
    async with Stranger(deaf.talk) as uri, afflux.connect(uri) as peer:
        waiting = await stuffed(peer)
        waiting += begun(lambda: peer.fire(b"never"), SEVERAL)
        await turns(5)
        await given_up(waiting)
        later = begun(lambda: peer.fire(b"later"), 5)
        await turns(5)
        deaf.reads.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*later)
            await deaf.until(lambda: deaf.heard.count(b"later") == 5)


async def test_fires_that_are_canceled_when_it_is_their_turn_pass_it_on() -> None:
    deaf, random = Deaf(), Random(10)
    async with Stranger(deaf.talk) as uri, afflux.connect(uri) as peer:
        waiting = await stuffed(peer)
        waiting += begun(lambda: peer.fire(b"later"), SEVERAL)
        await turns(5)
        deaf.reads.set()
        async with asyncio.timeout(20):
            while any(not task.done() for task in waiting[:-5]):
                for task in waiting[:-5]:  # the first that wait are those that are called next
                    if not task.done() and random.random() < 0.1:
                        task.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(*waiting[-5:])


async def test_canceled_requests_take_no_turn_from_those_behind(uri: str) -> None:
    held, limits = Held(), Limits.server(streams=4)
    async with afflux.serve(uri, held) as server, afflux.connect(server.uri, limits=limits) as peer:
        first = begun(lambda: peer.request(b"first"), 4)
        while held.entered < 4:
            await asyncio.sleep(0)
        never = begun(lambda: peer.request(b"never"), SEVERAL)
        await turns(5)
        await given_up(never)
        later = begun(lambda: peer.request(b"later"), 5)
        held.gate.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*first, *later)
        assert held.entered == 9


@pytest.mark.parametrize("seed", range(3))
async def test_requests_that_are_canceled_at_any_time_pass_their_turn_on(uri: str, seed: int) -> None:
    random = Random(seed)

    class Slow(Held):
        async def request(self, payload: Payload) -> Payload:
            await turns(random.randrange(4))
            return payload

    limits = Limits.server(streams=4)
    async with afflux.serve(uri, Slow()) as server, afflux.connect(server.uri, limits=limits) as peer:
        asked: list[asyncio.Task[Any]] = []
        kept: list[asyncio.Task[Any]] = []
        for _ in range(100):
            asked += begun(lambda: peer.request(b"x"), random.randrange(12))
            kept += begun(lambda: peer.request(b"x"), 1)
            await turns(random.randrange(3))
            for task in asked:
                if random.random() < 0.5:
                    task.cancel()
            asked = [task for task in asked if not task.done()]
        await given_up(asked)
        async with asyncio.timeout(10):
            await asyncio.gather(*kept)
    gc.collect()


async def test_no_more_requests_are_under_way_than_may_be_though_they_waited_for_room() -> None:
    limits = Limits.server(streams=8)
    deaf = Deaf()
    async with Stranger(deaf.talk) as uri, afflux.connect(uri, limits=limits) as peer:
        waiting = await stuffed(peer)
        requests = begun(lambda: peer.request(b"asked"), 100)
        await turns(5)
        deaf.reads.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*waiting)
            await deaf.until(lambda: b"asked" in deaf.heard)
            await peer.fire(b"behind them")
            await deaf.until(lambda: b"behind them" in deaf.heard)
        assert deaf.heard.count(b"asked") == 8
        await given_up(requests)


async def test_whoever_gives_up_leaves_nothing_behind() -> None:
    """25,000 entries were left in the queue of those who wait, in six seconds."""
    deaf, limits = Deaf(), Limits.server(streams=4)
    async with Stranger(deaf.talk) as uri, afflux.connect(uri, limits=limits) as peer:
        asked = begun(lambda: peer.request(b"x"), 4)
        fired = await stuffed(peer)
        found = []
        for count in range(41):
            await given_up(begun(lambda: peer.request(b"never"), 50))
            tasks = begun(lambda: peer.request(b"never"), 50) + begun(lambda: peer.fire(b"never"), 50)
            await turns(3)
            await given_up(tasks)
            if count % 20 == 0:
                gc.collect()
                found.append(len(gc.get_objects()))
        assert found[2] - found[1] < 200
        await given_up(asked + fired)


async def test_room_is_passed_on_by_streams_whose_source_has_nothing() -> None:
    idle, limits = 500, Limits.server(streams=1000)
    begun = [0]

    class Many:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            if payload.data == b"flood":
                for _ in range(400):
                    yield bytes(0x8000)
                return
            begun[0] += 1
            await asyncio.Event().wait()

    async with afflux.serve("tcp://127.0.0.1:0", Many(), limits=limits) as server:
        reader, writer = await asyncio.open_connection(*server.uri.removeprefix("tcp://").split(":"))
        writer.write(SETUP + asked(1, b"flood"))
        await reader.readexactly(3)
        await turns(200)  # it is written until nothing more goes
        writer.write(b"".join(asked(stream, b"idle") for stream in range(3, 3 + 2 * idle, 2)))
        await turns(200)
        assert begun[0] < idle, "all have room: nothing is tried here"
        reading = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(10):
            while begun[0] < idle:
                await asyncio.sleep(0)
        reading.cancel()
        writer.close()


SETUP = frames.Setup(stream=0, keepalive_ms=20_000, lifetime_ms=90_000, data=b"").encode(prefixed=True)


def asked(stream: int, data: bytes) -> bytes:
    """A request for a stream of items."""
    return frames.RequestStream(stream=stream, initial_n=1000, data=data).encode(prefixed=True)
