"""A peer made of a socket and frames, for conversations that no client of ours would have. No tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from afflux.core.frame import Frame
from afflux.protocols.rsocket import frames as f

__all__ = ["Raw", "listening", "reaching"]

F = TypeVar("F", bound=Frame)


class Raw:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def say(self, *said: Frame | bytes) -> None:
        """Send frames, in one piece; bytes are a frame without its length."""
        bare = [one if isinstance(one, bytes) else one.encode() for one in said]
        self._writer.write(b"".join(len(one).to_bytes(3, "big") + one for one in bare))

    async def hear(self, kind: type[F]) -> F:
        """The next frame, which is of that kind."""
        frame = await self.frame()
        assert isinstance(frame, kind), f"expected {kind.__name__}, got {frame!r}"
        return frame

    async def frame(self) -> Frame:
        """The next frame; KEEPALIVE is passed over."""
        while isinstance(frame := await self._next(), f.Keepalive):
            pass
        return frame

    async def beat(self) -> None:
        """Everything that was said before has been heard: a KEEPALIVE is answered."""
        self.say(f.Keepalive(respond=True, data=b"tick"))
        answer = await self._next()
        assert answer == f.Keepalive(data=b"tick"), answer

    async def rest(self) -> list[Frame]:
        """Every frame up to the end of the connection."""
        found = []
        try:
            while True:
                found.append(await self.frame())
        except (asyncio.IncompleteReadError, ConnectionError):
            return found

    async def echo(self, stream: int) -> None:
        """The connection works: a request comes back."""
        self.say(f.RequestResponse(stream=stream, data=b"still here"))
        answer = await self.hear(f.PayloadFrame)
        assert (answer.stream, answer.data, answer.complete) == (stream, b"still here", True)

    async def _next(self) -> Frame:
        size = int.from_bytes(await self.reader.readexactly(3), "big")
        return f.decode(await self.reader.readexactly(size))

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def reaching(uri: str, setup: Frame | None = None, buffer: int = 1 << 16) -> AsyncIterator[Raw]:
    """Connect to a server, and say SETUP unless told otherwise: ``setup=f.Cancel(...)`` says something else."""
    host, _, port = uri.removeprefix("tcp://").rpartition(":")
    raw = Raw(*await asyncio.open_connection(host, int(port), limit=buffer))
    raw.say(setup or f.Setup())
    try:
        yield raw
    finally:
        await raw.close()


@asynccontextmanager
async def listening(talk: Callable[[Raw], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that has one conversation with each client that comes; gives its address."""
    tasks: set[asyncio.Task[None]] = set()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        raw = Raw(reader, writer)
        try:
            await talk(raw)
            await raw.rest()
        except asyncio.CancelledError:
            pass  # the server ends
        finally:
            writer.close()

    server = await asyncio.start_server(welcome, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
