"""Count the turns of the loop for one round trip: nothing waits a turn, and a poll of the sockets, without need.

A round over ``mem://`` takes four turns: the bytes arrive, then the task that waits for them runs and its reply is
written in the same turn, and the same at the other end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.testing import VirtualLoop

ROUNDS = 50
ROUND = 4
"Turns of a round."
BESIDE = 20
"Turns at most for opening and ending a stream."


class Handler:
    """Yields one item for each grant, and repeats what it receives."""

    async def request(self, payload: Payload) -> Payload:
        """Return the request."""
        return payload

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """Yield items."""
        for _ in range(ROUNDS):
            yield b"item"

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[Payload]:
        """Yield the items of the requester."""
        async for item in items:
            yield item


class Repeats:
    """Repeats the bytes of a session."""

    async def session(self, session: Any) -> None:
        """Write what was read."""
        while data := await session.read():
            await session.write(data)


async def _requests(peer: afflux.Peer) -> None:
    for _ in range(ROUNDS):
        await peer.request(b"data")


async def _stream(peer: afflux.Peer) -> None:
    assert len([item async for item in peer.stream(credit=1)]) == ROUNDS


async def _subscription(peer: afflux.Peer) -> None:
    assert len([item async for item in peer.subscribe(b"name", credit=1)]) == ROUNDS


async def _channel(peer: afflux.Peer) -> None:
    async def source() -> AsyncIterator[bytes]:
        for _ in range(ROUNDS):
            yield b"item"

    async with peer.channel(source(), credit=1) as items:
        assert len([item async for item in items]) == ROUNDS


async def _session(peer: afflux.Peer) -> None:
    async with await peer.session() as session:
        for _ in range(ROUNDS):
            await session.write(b"data")
            assert await session.read() == b"data"


Verb = Callable[[afflux.Peer], Awaitable[None]]


@pytest.mark.parametrize(
    ("protocol", "verb"),
    [
        ("rsocket", _requests),
        ("rsocket", _stream),
        ("rsocket", _channel),
        ("reactivesocket", _requests),
        ("reactivesocket", _stream),
        ("reactivesocket", _channel),
        ("rsio", _stream),
        ("rsio", _subscription),
        ("jmux", _session),
    ],
)
def test_a_round_trip_takes_four_turns(protocol: str, verb: Verb) -> None:
    """In particular, a grant is written in the turn in which the last items are consumed."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        handler = Repeats() if protocol == "jmux" else Handler()
        async with (
            afflux.serve(f"{protocol}+mem://turns", handler) as server,
            afflux.connect(server.uri) as peer,
        ):
            before = loop.turns
            await verb(peer)
            return loop.turns - before

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        turns = runner.run(main())
    assert ROUNDS * ROUND <= turns <= ROUNDS * ROUND + BESIDE


class Steady:
    """Yields items without ever waiting, and counts those of each stream by turn."""

    def __init__(self, size: int, lists: int) -> None:
        self.size = size
        self.lists = lists
        self.turns: Counter[tuple[bytes, int]] = Counter()

    async def stream(self, payload: Payload) -> AsyncIterator[bytes | list[bytes]]:
        """Yield items, or lists, which are counted before they are sent."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for _ in range(400):
            self.turns[payload.data, loop.turns] += max(1, self.lists)
            yield [bytes(self.size)] * self.lists if self.lists else bytes(self.size)


@pytest.mark.parametrize("lists", [0, 1])
@pytest.mark.parametrize(
    ("producers", "size", "items"), [(1, 0x400, 64), (1, 0x2000, 8), (1, 0x10000, 3), (2, 0x10000, 1), (5, 0x2000, 8)]
)
def test_what_producers_send_in_a_turn(producers: int, size: int, items: int, lists: int) -> None:
    """Limits.loop_bytes: a share each, or three items of a producer that is alone; one item more detects the end."""
    handler = Steady(size, lists)
    assert (items - 1) * size < Limits.server().loop_bytes or items == 3

    async def take(peer: afflux.Peer, name: bytes) -> int:
        return len([item async for item in peer.stream(name, credit=10_000)])

    async def main() -> list[int]:
        async with afflux.serve("mem://shares", handler) as server, afflux.connect(server.uri) as peer:
            return await asyncio.gather(*(take(peer, b"%d" % number) for number in range(producers)))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == [400 * max(1, lists)] * producers
    together = Counter(turn for _, turn in handler.turns)
    busy = [count for (_, turn), count in handler.turns.items() if together[turn] == producers]
    assert items <= max(busy) <= items + 1
