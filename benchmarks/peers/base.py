"""What every peer offers, and the part that all asyncio clients share. No protocol lives here."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

__all__ = [
    "HOST",
    "AsyncClient",
    "Client",
    "Count",
    "Peer",
    "Sessions",
    "asked",
    "in_turns",
    "item_of",
    "loop_factory",
    "stream_request",
]

HOST = "127.0.0.1"


class Count(NamedTuple):
    """What the application that receives has counted."""

    items: int
    "Replies or items."
    bytes: int
    "Bytes of data in them."

    def __add__(self, other: object) -> Count:
        if not isinstance(other, Count):
            return NotImplemented
        return Count(self.items + other.items, self.bytes + other.bytes)


class Client(Protocol):
    """One connection, opened by its constructor; calls block until the work is done."""

    def request_response(self, n: int, concurrency: int) -> Count:
        """Make ``n`` requests of 64 bytes, ``concurrency`` at once; each is answered by an echo."""

    def stream(self, items: int, size: int, credit: int) -> Count:
        """Take one stream of ``items`` items of ``size`` bytes, keeping ``credit`` of them granted."""

    def close(self) -> None:
        """End the connection."""


class Sessions(Protocol):
    """What a client has besides, where the protocol has sessions of bytes."""

    def exchange(self, n: int, size: int) -> Count:
        """Have ``n`` sessions, one after the other: say ``size`` bytes, take as many back."""


class Peer(Protocol):
    """A module in this package."""

    def serve(self, port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
        """A server on loopback; inside the context it listens, on the port that the context gives.

        ``large``: payloads may have ``LARGE_BYTES``; else the peer has its default settings.
        """

    def Client(self, port: int, loop: str, large: bool) -> Client:  # noqa: N802 -- a class in every peer
        """The client's constructor."""


class AsyncClient(ABC):
    """A client on an event loop that stands still between two calls. Subclasses say what is done on it."""

    def __init__(self, port: int, loop: str, large: bool) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory(loop))
        self._stack = AsyncExitStack()
        self._runner.run(self.open(port, large))

    @abstractmethod
    async def open(self, port: int, large: bool) -> None:
        """Connect; ``enter`` what has to be left at the end."""

    @abstractmethod
    async def requests(self, n: int, concurrency: int) -> Count:
        """See Client.request_response."""

    @abstractmethod
    async def items(self, items: int, size: int, credit: int) -> Count:
        """See Client.stream."""

    async def enter(self, context: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a context until close."""
        return await self._stack.enter_async_context(context)

    def request_response(self, n: int, concurrency: int) -> Count:
        """See Client."""
        return self._runner.run(self.requests(n, concurrency))

    def stream(self, items: int, size: int, credit: int) -> Count:
        """See Client."""
        return self._runner.run(self.items(items, size, credit))

    def close(self) -> None:
        """See Client."""
        try:
            self._runner.run(self._stack.aclose())
        finally:
            self._runner.close()


async def in_turns(one: Callable[[int], Any], n: int, concurrency: int) -> Count:
    """Share ``n`` requests between ``concurrency`` tasks; ``one(m)`` makes m of them, one after the other."""
    share, rest = divmod(n, concurrency)
    shares = [share + (index < rest) for index in range(concurrency)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(m)) for m in shares if m]
    return sum((task.result() for task in tasks), Count(0, 0))


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """How to make an event loop: "asyncio" or "uvloop"."""
    if name == "asyncio":
        return asyncio.new_event_loop
    return cast("Callable[[], asyncio.AbstractEventLoop]", import_module(name).new_event_loop)


def stream_request(items: int, size: int) -> bytes:
    """The request of a stream: how many items of which size."""
    return b"%d %d" % (items, size)


def asked(request: bytes) -> tuple[int, int]:
    """Items and size that a stream's request asks for."""
    items, size = request.split()
    return int(items), int(size)


def item_of(size: int) -> bytes:
    """An item that has all its memory: zeros would be pages that the system has only promised."""
    return b"x" * size
