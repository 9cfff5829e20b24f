"""A server in another thread for the tests of the blocking client. No tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import afflux
from afflux import Limits, Payload

ENDLESS = 1_000_000_000
LIMITS = Limits.server(cancel_bucket=(1_000_000, 1_000_000), glitch_bucket=(1_000_000, 1_000_000))


class Counting:
    """Handlers that are counted while they are at work."""

    def __init__(self) -> None:
        self.live = 0
        self.entered = 0
        self.taken = 0
        "Items of channels."

    async def request(self, payload: Payload) -> bytes:
        """``live`` and ``taken`` ask for numbers, ``wait`` for nothing, ``give N`` for N bytes; else an echo."""
        words = payload.data.split()
        if words == [b"live"]:
            return b"%d" % self.live
        if words == [b"taken"]:
            return b"%d" % self.taken
        self.begin()
        try:
            if words == [b"wait"]:
                await asyncio.Event().wait()
            return bytes(int(words[1])) if words[:1] == [b"give"] else payload.data
        finally:
            self.live -= 1

    async def fire(self, payload: Payload) -> None:
        """Nothing."""

    async def push(self, metadata: bytes) -> None:
        """Nothing."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """``N SIZE``: so many items, of so many bytes."""
        self.begin()
        try:
            count, size = map(int, payload.data.split())
            for _ in range(count):
                yield bytes(size)
        finally:
            self.live -= 1

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo each item; ``enough`` is the last."""
        self.begin()
        try:
            async for item in items:
                self.taken += 1
                yield item.data
                if item.data == b"enough":
                    return
        finally:
            self.live -= 1

    def begin(self) -> None:
        """A handler begins."""
        self.live += 1
        self.entered += 1


class CountingSessions(Counting):
    """The same for sessions of bytes."""

    async def session(self, session: Any) -> None:
        """Echo, or what ``request`` answers to these words."""
        some = await session.read()
        if some[:4] in (b"live", b"wait", b"give"):
            answer = await self.request(Payload(some))
            await session.write(answer)
            session.finish()
            return
        self.begin()
        try:
            while some:
                await session.write(some)
                some = await session.read()
            session.finish()
        finally:
            self.live -= 1


@contextmanager
def serving(handler: object, uri: str = "tcp://127.0.0.1:0", **terms: Any) -> Iterator[str]:
    """A server in a thread of its own: its address."""
    started, found = threading.Event(), {}

    async def main() -> None:
        found["stop"], found["loop"] = asyncio.Event(), asyncio.get_running_loop()
        async with afflux.serve(uri, handler, **{"limits": LIMITS} | terms) as server:
            found["uri"] = server.uri
            started.set()
            await found["stop"].wait()

    def run() -> None:
        try:
            asyncio.run(main())
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        yield found["uri"]
    finally:
        found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join(30)
        assert not thread.is_alive()
