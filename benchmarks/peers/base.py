"""Define the interface of every peer, and the shared part of asyncio clients."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from benchmarks.workloads import METADATA_BYTES, VARIED

__all__ = [
    "HOST",
    "AsyncClient",
    "Client",
    "Count",
    "Further",
    "FurtherWork",
    "Peer",
    "Sessions",
    "asked",
    "check_metadata",
    "in_turns",
    "items_of",
    "loop_factory",
    "stream_request",
]

HOST = "127.0.0.1"


class Count(NamedTuple):
    """The counts of the receiving application."""

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
        """Send ``n`` requests of 64 bytes, ``concurrency`` at a time; each is answered by an echo."""

    def stream(self, items: int, size: int, credit: int) -> Count:
        """Consume one stream of ``items`` items of ``size`` bytes (or VARIED ones), with a window of ``credit``."""

    def close(self) -> None:
        """End the connection."""


class Sessions(Protocol):
    """Further methods of a client whose protocol has byte sessions."""

    def exchange(self, n: int, size: int) -> Count:
        """Run ``n`` sessions in sequence: send ``size`` bytes, receive as many."""


class FurtherWork(Protocol):
    """Further methods of a client that has them, with the kind of workload they are for."""

    def stream_metadata(self, items: int, size: int, credit: int) -> Count:
        """``metadata``: as ``Client.stream``; each item has METADATA_BYTES of metadata, which are counted, too."""

    def request_routes(self, n: int, concurrency: int) -> Count:
        """``routed``: as ``Client.request_response``, each request with ROUTE in composite metadata."""

    def short_streams(self, n: int, concurrency: int, credit: int) -> Count:
        """``short``: consume ``n`` streams of SHORT rows, ``concurrency`` at a time; count streams, and their bytes."""

    def channel(self, items: int, size: int, credit: int) -> Count:
        """``channel``: send the items of a stream, and consume their echo, both with a window of ``credit``."""

    def many_connections(self, n: int, concurrency: int, connections: int) -> Count:
        """``many``: as ``Client.request_response``, on so many connections, which stay open."""


class Further(Protocol):
    """A further function of a module whose client has ``request_routes``."""

    def serve_routes(self, port: int) -> AbstractAsyncContextManager[int]:
        """A server as ``Peer.serve``, which finds the function that answers a request by its route."""


class Peer(Protocol):
    """A module in this package."""

    def serve(self, port: int, loop: asyncio.AbstractEventLoop, large: bool) -> AbstractAsyncContextManager[int]:
        """A server on loopback; inside the context it listens, on the port that the context yields.

        ``large``: payloads may have ``LARGE_BYTES``; otherwise the peer uses its default settings.
        """

    def Client(self, port: int, loop: str, large: bool) -> Client:  # noqa: N802 -- a class in every peer
        """The client's constructor."""


class AsyncClient(ABC):
    """A client on an event loop that runs only during calls. Subclasses define the calls."""

    def __init__(self, port: int, loop: str, large: bool) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory(loop))
        self._stack = AsyncExitStack()
        self._runner.run(self.open(port, large))

    @abstractmethod
    async def open(self, port: int, large: bool) -> None:
        """Connect; register with ``enter`` what must be closed at the end."""

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

    def run(self, work: Coroutine[Any, Any, Count]) -> Count:
        """Run further work."""
        return self._runner.run(work)

    def close(self) -> None:
        """See Client."""
        try:
            self._runner.run(self._stack.aclose())
        finally:
            self._runner.close()


async def in_turns(one: Callable[[int], Any], n: int, concurrency: int) -> Count:
    """Split ``n`` requests among ``concurrency`` tasks; ``one(m)`` sends m of them in sequence."""
    share, rest = divmod(n, concurrency)
    shares = [share + (index < rest) for index in range(concurrency)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(m)) for m in shares if m]
    return sum((task.result() for task in tasks), Count(0, 0))


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the event loop factory: "asyncio" or "uvloop"."""
    if name == "asyncio":
        return asyncio.new_event_loop
    return cast("Callable[[], asyncio.AbstractEventLoop]", import_module(name).new_event_loop)


def stream_request(items: int, size: int) -> bytes:
    """Return the request of a stream: number and size of items; the size is a key of VARIED where it varies."""
    return b"%d %d" % (items, size)


def asked(request: bytes) -> tuple[int, int]:
    """Parse the number and size of items from a stream's request."""
    items, size = request.split()
    return int(items), int(size)


def items_of(size: int) -> list[bytes]:
    """Return the items that a stream repeats: one of ``size`` bytes, or of varied sizes. Their memory is allocated:
    pages of zeros would not be."""
    return [b"x" * one for one in VARIED.get(size, (size,))]


def check_metadata(counted: Count, size: int) -> Count:
    """Return the count, if the items had ``size`` bytes of metadata together.

    Raises:
        ValueError: they had not.
    """
    if size != METADATA_BYTES * counted.items:
        raise ValueError(f"{counted.items} items with {size} bytes of metadata")
    return counted
