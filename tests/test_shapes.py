"""Items of every shape, through every way of sending and receiving them: sizes and metadata arrive as they were sent.

Engines and drivers have short paths for items that are alike, and for neighbours that differ; each of them must give
what the others give.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Payload
from afflux.journal import Journalled

LARGE = 200_000
"Bytes of an item that is sent in fragments."
COUNT = 150
SHAPES: dict[str, list[Payload]] = {
    "one size": [Payload(b"%06d" % n) for n in range(COUNT)],
    "one size, metadata of one size": [Payload(b"%06d" % n, b"m%04d" % n) for n in range(COUNT)],
    "one size, empty metadata": [Payload(b"%06d" % n, b"") for n in range(COUNT)],
    "one size, metadata of many sizes": [Payload(b"%06d" % n, b"m" * (n % 7)) for n in range(COUNT)],
    "metadata only": [Payload(b"", b"m%04d" % n) for n in range(COUNT)],
    "one length of both": [Payload(b"x" * (n % 8), b"m" * (7 - n % 8)) for n in range(COUNT)],
    "empty": [Payload()] * COUNT,
    "many sizes": [Payload(b"%d" % n * (n % 40)) for n in range(COUNT)],
    "many sizes, metadata": [Payload(b"%d" % n * (n % 40), b"m%d" % n) for n in range(COUNT)],
    "some metadata": [Payload(b"%06d" % n, b"m%04d" % n if n % 50 > 20 else None) for n in range(COUNT)],
    "now and then metadata": [Payload(b"%06d" % n, b"m" if n % 60 == 45 else None) for n in range(COUNT)],
    "none or empty metadata": [Payload(b"%06d" % n, b"" if n % 30 > 15 else None) for n in range(COUNT)],
    "sizes around every limit of a short path": [Payload(b"x" * (n * n % 5_000)) for n in range(COUNT)],
    "fragments": [Payload(b"%06d" % n, b"m" * (n % 2)) for n in range(20)]
    + [Payload(b"d" * LARGE, b"m" * LARGE), Payload(b"d" * LARGE), Payload(b"", b"m" * LARGE)]
    + [Payload(b"%06d" % n, b"") for n in range(20)],
}
BARE = [shape for shape, items in SHAPES.items() if all(item.metadata is None for item in items)]
PROTOCOLS = ["rsocket", "rsocket-draft", "reactivesocket"]


class Shapes:
    """Streams of each shape, item by item or in lists, and a channel that sends its items back."""

    async def stream(self, payload: Payload) -> AsyncIterator[Payload | list[Payload]]:
        shape, _, size = payload.data.decode().partition("/")
        items = SHAPES[shape]
        for item in items if not size else parts(items, int(size)):
            yield item

    async def channel(self, items: Any) -> AsyncIterator[Payload | list[Payload]]:
        first = await anext(items)
        if first.data == b"each":
            async for item in items:
                yield item
        else:
            async for batch in items.batches():
                yield batch


def parts(items: list[Payload], size: int) -> Iterator[list[Payload]]:
    return (items[start : start + size] for start in range(0, len(items), size))


async def each(peer: Any, request: str) -> list[Payload]:
    return [item async for item in peer.stream(request)]


async def few(peer: Any, request: str) -> list[Payload]:
    return [item async for item in peer.stream(request, credit=3)]


async def batched(peer: Any, request: str) -> list[Payload]:
    return [item async for batch in peer.stream(request).batches() for item in batch]


async def wrapped(peer: Any, request: str) -> list[Payload]:
    return await each(afflux.wrap(peer, afflux.Middleware()), request)


def echoed(how: str) -> Callable[[Any, str], Awaitable[list[Payload]]]:
    """The same items through a channel, whose handler sends each back, or each list."""

    async def through(peer: Any, request: str) -> list[Payload]:
        shape, _, size = request.partition("/")

        async def given() -> AsyncIterator[Payload | list[Payload]]:
            yield Payload(how.encode())
            for items in parts(SHAPES[shape], int(size or 1)):
                yield items if size else items[0]

        return [item async for item in peer.channel(given())]

    return through


def blocking(uri: str, request: str) -> list[Payload]:
    with afflux.sync.connect(uri) as peer, peer.stream(request) as items:
        return list(items)


WAYS: dict[str, Callable[[Any, str], Awaitable[list[Payload]]]] = {
    "each": each,
    "credit": few,
    "batches": batched,
    "wrapped": wrapped,
}
WAYS |= {"channel": echoed("each"), "channel of batches": echoed("batches")}


@pytest.mark.parametrize(("transport", "size"), [("tcp", ""), ("tcp", "/1"), ("tcp", "/64"), ("ws", "/1000")])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_items_arrive_as_they_were_sent(protocol: str, transport: str, size: str) -> None:
    async with (
        afflux.serve(f"{protocol}+{transport}://127.0.0.1:0", Shapes()) as server,
        afflux.connect(server.uri) as peer,
    ):
        for shape, items in SHAPES.items():
            for way, receive in WAYS.items():
                assert await receive(peer, shape + size) == items, (shape, way)


@pytest.mark.parametrize("transport", ["tcp", "ws"])
async def test_items_arrive_where_there_is_no_metadata(transport: str) -> None:
    async with (
        afflux.serve(f"rsio+{transport}://127.0.0.1:0", Shapes()) as server,
        afflux.connect(server.uri) as peer,
    ):
        for shape in BARE:
            for size in ("", "/1", "/64", "/1000"):
                for receive in (each, few, batched):
                    assert await receive(peer, shape + size) == SHAPES[shape], (shape, size, receive)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_blocking_client_receives_them(protocol: str) -> None:
    async with afflux.serve(f"{protocol}+tcp://127.0.0.1:0", Shapes()) as server:
        for shape, items in SHAPES.items():
            assert await asyncio.to_thread(blocking, server.uri, f"{shape}/64") == items, shape


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "cursor"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_relay_stores_them(protocol: str, stored: bool, tmp_path: Path) -> None:
    here = f"{protocol}+tcp://127.0.0.1:0"
    async with (
        Journalled(Shapes(), tmp_path / "remote") as journalled,
        afflux.serve(here, journalled if stored else Shapes()) as remote,
    ):
        for number, (shape, items) in enumerate(SHAPES.items()):
            origin = afflux.Origin(remote.uri, data=f"{shape}/64")
            async with (
                afflux.relay(origin, journal=tmp_path / str(number), listen="tcp://127.0.0.1:0") as relay,
                afflux.connect(relay.uri) as peer,
            ):
                assert [item async for item in peer.stream()] == items, shape
