"""Remote servers and readers for the tests of the relay. Contains no tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import afflux
from afflux.core.payload import Payload
from afflux.gateway import Origin, Relay
from afflux.gateway.relaying import Relaying
from afflux.journal import Journal, Journalled
from afflux.protocols.rsocket.cursor import Acknowledge, Head, Read, State, split_position, state_of
from afflux.protocols.rsocket.gap import Gap, gap_of

HERE = "tcp://127.0.0.1:0"
SOON = afflux.Backoff(first=0.01, most=0.05)


def number(n: int) -> bytes:
    return b"%06d" % n


class Counter:
    """A live stream without a cursor: each subscription continues where the last one has ended, after a jump."""

    def __init__(self, stop: int = 0, jump: int = 0) -> None:
        self.next = 0
        self.jump = jump
        self.subscriptions = 0
        self._stop = stop
        self._more = asyncio.Event()

    async def subscribed(self, times: int) -> None:
        """Wait until there were so many subscriptions."""
        while self.subscriptions < times:
            await asyncio.sleep(0)

    def allow(self, stop: int) -> None:
        """Send items up to this number."""
        self._stop = stop
        self._more.set()

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        self.next += self.jump if self.subscriptions else 0
        self.subscriptions += 1
        while True:
            while self.next >= self._stop:
                self._more.clear()
                await self._more.wait()
            self.next += 1
            yield number(self.next - 1)


class Replay:
    """A stream that always begins with its first item."""

    def __init__(self, count: int, *, ends: bool = True) -> None:
        self.count = count
        self.ends = ends

    async def stream(self, payload: Payload) -> AsyncIterator[list[bytes]]:
        for first in range(0, self.count, 50):
            yield [number(n) for n in range(first, min(self.count, first + 50))]
        if not self.ends:
            await asyncio.Event().wait()


class Stored:
    """A handler with a journal of its own, in which a test stores items: a remote with a cursor."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, *items: Any) -> None:
        for item in items:
            self.items.put_nowait(item)

    async def stream(self, payload: Payload) -> AsyncIterator[Any]:
        while (item := await self.items.get()) is not None:
            yield item

    def served(self, directory: Path) -> Journalled:
        return Journalled(self, directory, linger_s=0)


def relaying(origin: str | Origin | Sequence[str | Origin], journal: Path, **given: Any) -> Relaying:
    return afflux.relay(origin, journal=journal, listen=HERE, backoff=SOON, **given)


async def head(peer: Any, *, after: int = 0, shard: int = 0) -> State:
    """Wait for a head above ``after``; the state of a sealed stream as it is."""
    answer = [item async for item in peer.stream(cursor=Head(after=after, shard=shard, wait_ms=30_000 if after else 0))]
    return state_of(answer[0].metadata)


async def read(peer: Any, count: int, *, first: int = 0, shard: int = 0) -> list[bytes | Gap]:
    """Read ``count`` items by cursor, checking their positions; gap records as values."""
    found: list[bytes | Gap] = []
    async with peer.stream(cursor=Read(first=first, limit=count, shard=shard)) as items:
        async for item in items:
            position, own = split_position(item.metadata)
            if position is not None:
                assert (position.offset, position.shard) == (first + len(found), shard)
            gap = gap_of(own)
            found.append(item.data if gap is None else gap)
    return found


async def read_from(relay: Relay, count: int, *, first: int = 0, shard: int = 0) -> list[bytes | Gap]:
    async with afflux.connect(relay.uri) as peer:
        return await read(peer, count, first=first, shard=shard)


async def acknowledge(relay: Relay, offset: int) -> State:
    async with afflux.connect(relay.uri) as peer:
        epoch = (await head(peer)).epoch
        request = Acknowledge(epoch=epoch, offset=offset, owner=1, name="test")
        answer = [item async for item in peer.stream(cursor=request)]
        return state_of(answer[0].metadata)


def stored(path: Path) -> list[bytes | Gap]:
    """Everything in the journal of a relay that is not running."""
    found: list[bytes | Gap] = []
    with Journal(path, key=key_of(path)) as journal:
        while (offset := journal.first + len(found)) < journal.head:
            for block in journal.read(offset):
                found += [gap_of(item.metadata) or item.data for item in block.payloads()]
    return found


def key_of(path: Path) -> bytes:
    import sqlite3

    with sqlite3.connect(path) as database:
        key: bytes = database.execute("SELECT key FROM state").fetchone()[0]
    return key
