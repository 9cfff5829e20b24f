"""ReactiveSocket over real sockets, by asyncio and blocking, on every transport that carries it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import ApplicationError, Payload, Rejected
from tests.aio.handlers import Demo

ADDRESSES = ["tcp://127.0.0.1:0", "ws://127.0.0.1:0", "unix://{}/socket", "mem://reactivesocket-{}"]


@pytest.fixture(params=ADDRESSES, ids=lambda address: address.partition(":")[0])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path) if "unix" in request.param else tmp_path.name
    return "reactivesocket+" + request.param.format(place)


@pytest.fixture
def demo() -> Demo:
    return Demo()


@pytest.fixture
async def peer(uri: str, demo: Demo) -> AsyncIterator[afflux.Peer]:
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        yield peer


async def counted() -> AsyncIterator[bytes]:
    for i in range(300):
        yield b"%d" % i


async def test_every_verb(peer: afflux.Peer, demo: Demo) -> None:
    assert await peer.request(Payload(b"d", b"m")) == Payload(b"d", b"m")
    answers = await asyncio.gather(*(peer.request(b"%d" % i) for i in range(600)))
    assert [answer.data for answer in answers] == [b"%d" % i for i in range(600)]
    await peer.fire(b"f")
    assert await demo.fired.get() == Payload(b"f")
    await peer.push(b"m")
    assert await demo.pushed.get() == b"m"
    assert [item.data async for item in peer.stream(b"1000")] == [b"%d" % i for i in range(1000)]
    assert [item.data async for item in peer.channel(counted())] == [b"%d" % i for i in range(300)]


async def test_large_items_and_requests(peer: afflux.Peer) -> None:
    """R-42: a request is one frame, its answer is cut."""
    data = bytes(range(256)) * 2048
    assert (await peer.request(data, metadata=b"m" * 300)).data == data


async def test_a_stream_that_is_left(peer: afflux.Peer, demo: Demo) -> None:
    async for item in peer.stream(b"100000"):
        if item.data == b"5":
            break
    assert await peer.request(b"on") == Payload(b"on")
    assert demo.made < 100_000


class Fails:
    """Answers nothing."""

    async def request(self, payload: Payload) -> Payload:
        if payload.data == b"no":
            raise Rejected("not now")
        raise ApplicationError(0x25, "mine")

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        yield b"first"
        yield b"last"  # and it is over, whatever the requester still wanted to say


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"again"


async def test_errors_and_the_end_of_a_channel(uri: str) -> None:
    async with afflux.serve(uri, Fails()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(Rejected, match="not now") as caught:
            await peer.request(b"no")
        assert caught.value.code == 0x22
        with pytest.raises(ApplicationError, match="mine") as failed:
            await peer.request(b"yes")
        assert failed.value.code == 0x25
        assert [item.data async for item in peer.channel(endless())] == [b"first", b"last"]


async def test_leases(uri: str) -> None:
    lease = afflux.FixedLease(2, 60.0)
    async with (
        afflux.serve(uri, Demo(), lease=lease) as server,
        afflux.connect(server.uri, lease=True) as peer,
    ):
        assert await peer.request(b"1") == Payload(b"1")
        assert await peer.request(b"2") == Payload(b"2")
        with pytest.raises(afflux.LeaseExpired):
            await peer.request(b"3")


async def test_a_dialect_in_the_address(demo: Demo) -> None:
    words = "?dialect=java,half-close"
    async with afflux.serve(f"reactivesocket+tcp://127.0.0.1:0{words}", demo) as server:
        target = server.uri if "dialect" in server.uri else server.uri + words
        async with afflux.connect(target) as peer:
            assert [item.data async for item in peer.channel(counted())] == [b"%d" % i for i in range(300)]


async def test_a_peer_of_another_protocol_gets_an_error() -> None:
    limits = afflux.Limits.server(handshake_s=0.5)  # no frame of the two looks like one of the other
    async with afflux.serve("reactivesocket+tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        with pytest.raises(afflux.Error):
            async with afflux.connect(server.uri.replace("reactivesocket+", ""), timeout=5) as peer:
                await peer.request(b"hello")


@pytest.fixture
def serving() -> Iterator[str]:
    """The address of a server in another thread."""
    ready = threading.Event()
    found: list[Any] = []

    async def main() -> None:
        async with afflux.serve("reactivesocket+tcp://127.0.0.1:0", Demo()) as server:
            stop = asyncio.Event()
            found.extend((server.uri, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    yield found[0]
    found[1].call_soon_threadsafe(found[2].set)
    thread.join()


def test_the_blocking_client(serving: str) -> None:
    with afflux.sync.connect(serving) as peer:
        assert peer.request(b"q") == Payload(b"q")
        peer.fire(b"f")
        assert [item.data for item in peer.stream(b"500")] == [b"%d" % i for i in range(500)]
