"""``credit="auto"`` on real sockets: all arrives, nothing runs ahead, and it is seen what it settles at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import afflux
import afflux.sync
from afflux import Payload
from afflux.aio.flow import ItemStream

ITEMS = 20_000
ADDRESS = "tcp://127.0.0.1:0"


class Numbers:
    """Numbers on request, and those of a channel back again."""

    def __init__(self) -> None:
        self.made = 0

    async def request(self, payload: Payload) -> bytes:
        return payload.data

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for number in range(int(payload.data)):
            self.made += 1
            yield b"%d" % number

    async def channel(self, items: ItemStream) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data


async def test_every_item_arrives_in_order() -> None:
    async with afflux.serve(ADDRESS, Numbers()) as server, afflux.connect(server.uri) as peer:
        taken = [int(item.data) async for item in peer.stream(b"%d" % ITEMS, credit="auto")]
    assert taken == list(range(ITEMS))


async def test_a_channel_has_it_on_both_sides() -> None:
    async with afflux.serve(ADDRESS, Numbers(), credit="auto") as server, afflux.connect(server.uri) as peer:
        source = (b"%d" % number for number in range(3000))
        taken = [int(item.data) async for item in peer.channel(source, credit="auto")]
    assert taken == list(range(3000))


async def test_who_stops_taking_is_sent_no_more() -> None:
    """What the producer made is what was taken, what is granted, and one ahead. The other stream goes on meanwhile."""
    numbers = Numbers()
    async with afflux.serve(ADDRESS, numbers) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"%d" % ITEMS, credit="auto")
        for _ in range(500):
            await anext(stream)
        (before,) = peer.streams()
        for _ in range(3):
            await peer.request(b"")  # everything that was under way has arrived
            assert numbers.made <= before.granted + 1
        assert stream.limited_by() == "application"
        (after,) = peer.streams()
        assert after.granted == before.granted
        stream.cancel()


async def test_a_slow_consumer_gets_a_small_window_and_a_fast_one_a_large_one() -> None:
    async with afflux.serve(ADDRESS, Numbers()) as server, afflux.connect(server.uri) as peer:
        windows = []
        for pause in (0.002, 0):  # the pace of this consumer, not a wait for something
            stream, taken = peer.stream(b"%d" % ITEMS, credit="auto"), 200 if pause else 10_000
            for _ in range(taken):
                await anext(stream)
                if pause:
                    await asyncio.sleep(pause)
            (status,) = peer.streams()
            windows.append(status.granted - taken)
            stream.cancel()
        assert windows[0] <= 16 <= windows[1]


async def test_a_blocking_client_has_it_too() -> None:
    def take(uri: str) -> list[int]:
        with afflux.sync.connect(uri) as peer:
            return [int(item.data) for item in peer.stream(b"%d" % ITEMS, credit="auto")]

    async with afflux.serve(ADDRESS, Numbers()) as server:
        assert await asyncio.to_thread(take, server.uri) == list(range(ITEMS))


async def test_what_it_may_be() -> None:
    async with afflux.serve(ADDRESS, Numbers()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(TypeError, match="or \"auto\", not 'some'"):
            peer.stream(b"1", credit="some")  # type: ignore[arg-type]  # what a user may write
