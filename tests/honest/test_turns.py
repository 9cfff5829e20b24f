"""A peer that sends as fast as it can takes its turn of the event loop, and no more: others are served in between.

libuv, which uvloop stands on, reads a socket up to 32 times in one turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.flood_ends import FLOODS, Attacker

import afflux
from afflux import Limits
from tests.honest import rsocket as rs
from tests.honest.catalogue import MiB, Place
from tests.honest.rsocket import Client

uvloop = pytest.importorskip("uvloop")


class Counting:
    """Counts the bytes of pushes by the turn of the loop in which they were handled."""

    def __init__(self) -> None:
        self.turn = 0
        self.bytes = Counter[int]()

    async def push(self, metadata: bytes) -> None:
        self.bytes[self.turn] += len(metadata)

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


def web_pushes() -> Iterator[bytes]:
    """The same over WebSocket."""
    key = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="
    yield b"GET / HTTP/1.1\r\nHost: x\r\n" + key + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
    for frame in FLOODS["pushes"].says():
        yield b"\x82\xfe" + (len(frame) - 3).to_bytes(2, "big") + bytes(4) + frame[3:]


FLOOD = {"tcp": FLOODS["pushes"], "ws": replace(FLOODS["pushes"], says=web_pushes)}


@pytest.mark.parametrize("transport", ["tcp", "ws"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_flood_takes_its_turn(loop: Any, transport: str) -> None:
    """METADATA_PUSHes of 60 KB as fast as they go: what is handled in one turn is a few reads."""

    async def flooded() -> None:
        handler = Counting()
        turns = asyncio.create_task(handler.count_turns())
        # The queue of pushes is long: each is handled in the turn behind the one in which it was read.
        limits = Limits.server(metadata_push_queue=1_000)
        async with afflux.serve(f"{transport}://127.0.0.1:0", handler, limits=limits) as server:
            attacker = Attacker(FLOOD[transport], int(server.uri.rpartition(":")[2].strip("/")), 1e12)
            attacker.start()
            while handler.bytes.total() < 100 * MiB:
                await asyncio.sleep(0.01)
            attacker.until = 0
            await asyncio.to_thread(attacker.join)
        turns.cancel()
        assert max(handler.bytes.values()) <= 2 * MiB

    run(flooded(), loop)


def run(main: Coroutine[Any, Any, None], loop: Any) -> None:
    """To its end, on a loop of this kind."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main)


def test_a_stranger_begins_with_a_small_turn() -> None:
    """What a connection sends first is handled in small passes, until it is known how long one takes: 3,000 frames in
    the first read would be a turn of 100 ms on some wires."""

    async def many() -> None:
        handler = Counting()
        turns = asyncio.create_task(handler.count_turns())
        limits = Limits.server(metadata_push_queue=10_000)
        async with afflux.serve("tcp://127.0.0.1:0", handler, limits=limits) as server:
            place = Place("rsocket", "tcp", "127.0.0.1", int(server.uri.rpartition(":")[2]))
            client = await Client.open(place, rs.setup(), *[rs.frame(0, rs.PUSH, b"0123456789", rs.M)] * 3_000)
            while handler.bytes.total() < 30_000:
                await asyncio.sleep(0)
            await client.link.gone()
        turns.cancel()
        first = min(handler.bytes)
        assert handler.bytes[first] <= 0x2000

    run(many(), asyncio.new_event_loop)
