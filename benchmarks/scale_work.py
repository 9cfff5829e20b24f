"""What is served and what is asked for in ``benchmarks.scale``. Processes are scale_child.py's, figures scale.py's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import repeat
from time import perf_counter
from typing import Any

import afflux
import afflux.sync
from afflux import Limits, Payload

__all__ = ["AsyncWork", "SyncWork", "limits_for", "serve"]

HOST = "127.0.0.1"
UNBOUNDED = 0x7FFFFFFF
"The most credit that one frame grants."
_MI = 1 << 20
_SLOW_S = 0.02
"What the slow handler waits before each item."


def limits_for(payload: int, streams: int) -> Limits:
    """Limits for one's own machines: payloads of so many bytes, so many streams at once."""
    trusted = Limits.trusted()
    return trusted.replace(
        payload_bytes=max(trusted.payload_bytes, payload),
        connection_bytes=max(trusted.connection_bytes, 2 * payload + 64 * _MI),
        streams=max(trusted.streams, streams),
        reassembly_s=600,  # one among 64 streams gets a 65th of the link
        cancel_bucket=(10 * streams + 2_000, 10 * streams + 200),  # all endless streams are canceled at once
    )


class Handler:
    """Answers what ``AsyncWork`` and ``SyncWork`` ask for."""

    def __init__(self) -> None:
        self._made = b""

    async def request(self, payload: Payload) -> bytes:
        """So many bytes for a small request, and how many it was for a large one."""
        if len(payload.data) <= 64:
            return self._item(int(payload.data))
        return b"%d" % len(payload.data)

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """``COUNT SIZE``: so many items, or without end for a count of 0; ``slow SIZE``: one now and then."""
        count, size = payload.data.split()
        item = self._item(int(size))
        if count == b"slow":
            while True:
                await asyncio.sleep(_SLOW_S)
                yield item
        for _ in range(int(count)) if int(count) else repeat(None):
            yield item

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[bytes]:
        """How many bytes there were, at the end."""
        size = 0
        async for item in items:
            size += len(item.data)
        yield b"%d" % size

    def _item(self, size: int) -> bytes:
        """One object for all items of a size: making it is not what is measured."""
        if size <= 0x10000:
            return b"\xa5" * size
        if len(self._made) != size:
            self._made = b""
            self._made = b"\xa5" * size
        return self._made


@asynccontextmanager
async def serve(limits: Limits) -> AsyncIterator[int]:
    """A server on loopback; inside the context it listens, on the port that the context gives."""
    async with afflux.serve(f"tcp://{HOST}:0", Handler(), limits=limits) as server:
        yield int(server.uri.rpartition(":")[2])


class Counted(dict[str, float]):
    """What a piece of work comes to: seconds, items and bytes as the application counted them."""

    def __init__(self, start: float, items: int, size: int) -> None:
        super().__init__(seconds=perf_counter() - start, items=items, bytes=size)


class AsyncWork:
    """The asyncio client."""

    def __init__(self, port: int, loop: Callable[[], asyncio.AbstractEventLoop], limits: Limits) -> None:
        self._runner = asyncio.Runner(loop_factory=loop)
        self._stack = AsyncExitStack()
        self._runner.run(self._open(port, limits))

    def do(self, what: str, **given: Any) -> dict[str, float]:
        """Do one piece of work: the method of that name."""
        work: Callable[..., Awaitable[dict[str, float]]] = getattr(self, what)
        return self._runner.run(work(**given))  # type: ignore[arg-type]  # every work is a coroutine

    def close(self) -> None:
        """End the connection."""
        try:
            self._runner.run(self._stack.aclose())
        finally:
            self._runner.close()

    async def _open(self, port: int, limits: Limits) -> None:
        self._peer = await self._stack.enter_async_context(afflux.connect(f"tcp://{HOST}:{port}", limits=limits))

    async def answer(self, n: int, size: int) -> Counted:
        """Large answers, one after the other."""
        start, got = perf_counter(), 0
        for _ in range(n):
            got += len((await self._peer.request(b"%d" % size)).data)
        return Counted(start, n, got)

    async def ask(self, n: int, size: int) -> Counted:
        """Large requests, one after the other; the server says what it got."""
        data, got = b"\xa5" * size, 0
        start = perf_counter()
        for _ in range(n):
            got += int((await self._peer.request(data)).data)
        return Counted(start, n, got)

    async def items(self, n: int, size: int, credit: int = 256) -> Counted:
        """One stream."""
        start, taken, got = perf_counter(), 0, 0
        async for item in self._peer.stream(b"%d %d" % (n, size), credit=credit):
            taken += 1
            got += len(item.data)
        return Counted(start, taken, got)

    async def source(self, n: int, size: int) -> Counted:
        """One channel, upwards; the server says what it got."""
        item, got = b"\xa5" * size, 0
        start = perf_counter()
        async for answer in self._peer.channel(repeat(item, n)):
            got += int(answer.data)
        return Counted(start, n, got)

    async def requests(self, n: int, at_once: int, size: int = 64) -> Counted:
        """Many small requests, ``at_once`` under way."""
        data = b"%d" % size
        start, left = perf_counter(), n

        async def one() -> int:
            nonlocal left
            got = 0
            while left > 0:
                left -= 1
                got += len((await self._peer.request(data)).data)
            return got

        tasks = [asyncio.ensure_future(one()) for _ in range(at_once)]
        return Counted(start, n, sum(await asyncio.gather(*tasks)))

    async def many(self, n: int, streams: int, size: int, credit: int = UNBOUNDED) -> Counted:
        """``n`` items in all of so many endless streams. Time runs when each has brought its first."""
        async with self._fast(streams, size, credit) as fast:
            return await fast.take(n)

    async def beside(
        self, n: int, streams: int, size: int, other: str, big: int, credit: int = UNBOUNDED
    ) -> dict[str, float]:
        """The same beside a stream that is not taken, a slow handler, a large payload, or nothing."""
        async with self._fast(streams, size, credit) as fast, self._other(other, size, big):
            await fast.take(n // 10)
            while other == "big" and not self._partial():  # its handler has to make it first
                await fast.take(n // 100)
            before = self._partial()
            counted = await fast.take(n)
            counted["other"] = self._partial() - before
            return counted

    def _partial(self) -> int:
        """Bytes of unfinished payloads: nothing public tells them."""
        engine: Any = self._peer._driver.engine
        return int(engine.stream_table.reassembly.size)

    async def share(self, n: int, streams: int, size: int, large: int) -> dict[str, float]:
        """``n`` bytes in streams of small items beside one of ``large`` ones: what the one got of an equal share."""
        async with self._fast(streams, size, 256) as fast, self._fast(1, large, 256) as one:
            await fast.take(n // size // 10)
            before, start = one.taken, perf_counter()
            done = await fast.take(n // size)
            got = (one.taken - before) * large
            return {"seconds": perf_counter() - start, "share": got / (done["bytes"] / streams)}

    @asynccontextmanager
    async def _fast(self, streams: int, size: int, credit: int) -> AsyncIterator[Fast]:
        fast = Fast(size)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fast.run(self._peer, credit, streams)) for _ in range(streams)]
            try:
                await fast.all_begun.wait()
                yield fast
            finally:
                for task in tasks:
                    task.cancel()

    @asynccontextmanager
    async def _other(self, other: str, size: int, big: int) -> AsyncIterator[None]:
        if other == "big":
            task = asyncio.ensure_future(self._peer.request(b"%d" % big))
            try:
                yield
            finally:
                over = task.done()
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            if over:
                raise RuntimeError("the large payload came to its end: it is too small for this")
        elif other:
            what = b"slow %d" if other == "slow" else b"0 %d"
            async with self._peer.stream(what % size) as stream:
                if other == "slow":
                    await anext(stream)
                yield
        else:
            yield


class Fast:
    """Endless streams whose items are only counted."""

    def __init__(self, size: int) -> None:
        self.taken = 0
        self.all_begun = asyncio.Event()
        self._size = size
        self._begun = 0
        self._until = 0
        self._there = asyncio.Event()

    async def run(self, peer: afflux.Peer, credit: int, streams: int) -> None:
        """Take one stream, one of ``streams``."""
        first = True
        async with peer.stream(b"0 %d" % self._size, credit=credit) as stream:
            async for _ in stream:
                self.taken += 1
                if first:
                    first = False
                    self._begun += 1
                    if self._begun == streams:
                        self.all_begun.set()
                if self.taken == self._until:
                    self._there.set()

    async def take(self, n: int) -> Counted:
        """Wait until all together have taken ``n`` more."""
        before, start = self.taken, perf_counter()
        self._until = before + n
        self._there.clear()
        await self._there.wait()
        taken = self.taken - before
        return Counted(start, taken, taken * self._size)


class SyncWork:
    """The blocking client."""

    def __init__(self, port: int, limits: Limits) -> None:
        self._connection = afflux.sync.connect(f"tcp://{HOST}:{port}", limits=limits)
        self._peer = self._connection.__enter__()

    def do(self, what: str, **given: Any) -> dict[str, float]:
        """Do one piece of work: the method of that name."""
        work: Callable[..., dict[str, float]] = getattr(self, what)
        return work(**given)

    def close(self) -> None:
        """End the connection."""
        self._connection.__exit__(None, None, None)

    def answer(self, n: int, size: int) -> Counted:
        """See AsyncWork."""
        start, got = perf_counter(), 0
        for _ in range(n):
            got += len(self._peer.request(b"%d" % size).data)
        return Counted(start, n, got)

    def ask(self, n: int, size: int) -> Counted:
        """See AsyncWork."""
        data, got = b"\xa5" * size, 0
        start = perf_counter()
        for _ in range(n):
            got += int(self._peer.request(data).data)
        return Counted(start, n, got)

    def items(self, n: int, size: int, credit: int = 256) -> Counted:
        """See AsyncWork."""
        start, taken, got = perf_counter(), 0, 0
        for item in self._peer.stream(b"%d %d" % (n, size), credit=credit):
            taken += 1
            got += len(item.data)
        return Counted(start, taken, got)

    def source(self, n: int, size: int) -> Counted:
        """See AsyncWork."""
        item, got = b"\xa5" * size, 0
        start = perf_counter()
        items: Iterator[bytes] = repeat(item, n)
        for answer in self._peer.channel(items):
            got += int(answer.data)
        return Counted(start, n, got)
