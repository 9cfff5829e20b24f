"""What a connection was made of is freed by reference counting when it is over: no cycle waits for the collector."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, Kind, Place

LIMITS = Limits.server(flush_s=0.02)
RESET = struct.pack("ii", 1, 0)
WIRES = ("rsocket", "reactivesocket", "jmux", "rsio")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once: keys take time."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only references count."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Handler:
    """Handlers of every kind, which never end by themselves."""

    def __init__(self) -> None:
        self.entered = 0

    async def request(self, payload: Payload) -> bytes:
        """Answer, or wait."""
        if payload.data == b"wait":
            self.entered += 1
            await asyncio.Event().wait()
        return bytes(1000)

    async def fire(self, payload: Payload) -> None:
        """Take it."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """Items, for as long as somebody takes them."""
        self.entered += 1
        while True:
            yield bytes(1000)

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo each."""
        self.entered += 1
        async for item in items:
            yield item.data

    async def session(self, session: Any) -> None:
        """Read what never ends."""
        self.entered += 1
        while await session.read():
            pass


async def source() -> AsyncIterator[bytes]:
    """An item, and then nothing."""
    yield b"first"
    await asyncio.Event().wait()


async def tried(work: Any) -> None:
    """Wait for something that fails with its connection."""
    with suppress(afflux.Error):
        await work


async def taken(items: Any) -> None:
    """Take all items."""
    async for _ in items:
        pass


async def held_open(peer: afflux.Peer) -> None:
    """A session of bytes that stays."""
    async with await peer.session(b"data") as session:
        await session.read()


def busy(wire: str, peer: afflux.Peer) -> list[Any]:
    """Everything that can be under way."""
    if wire == "rsio":
        return [taken(peer.subscribe(b"x")) for _ in range(3)]
    waiting = [peer.request(b"wait") for _ in range(3)]
    if wire == "jmux":
        return [*waiting, held_open(peer)]
    return [*waiting, taken(peer.stream(b"")), taken(peer.stream(b"", credit=1)), taken(peer.channel(source()))]


def ours() -> Counter[str]:
    """Objects of our own classes, by class."""
    return Counter(
        type(one).__qualname__ for one in gc.get_objects() if str(type(one).__module__).startswith("afflux.")
    )


async def until(happened: Callable[[], object]) -> None:
    """Wait for something."""
    async with asyncio.timeout(10):
        while not happened():
            await asyncio.sleep(0.001)


async def left_since(before: Counter[str]) -> Counter[str]:
    """What is more than there was, when nothing becomes less any more."""
    with suppress(TimeoutError):
        await until(lambda: not ours() - before)
    return ours() - before


async def lived(place: Place, wire: str, server: afflux.Server, handler: Handler, *, work: bool, how: str) -> None:
    """One connection, from its beginning to its end."""
    peer = await place.connect(server.uri, handler=Handler(), limits=LIMITS)
    await until(lambda: server.connections)
    entered = handler.entered
    tasks = [asyncio.ensure_future(tried(one)) for one in (busy(wire, peer) if work else ())]
    await until(lambda: handler.entered == entered + len(tasks))
    if how == "reset" and (sock := peer._driver.state.transport.get_extra_info("socket")) is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    if how != "closed":
        peer.cut()
    else:
        await peer.close()
    await asyncio.gather(*tasks)
    await peer.close()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("kind", "how"),
    [*((kind, "reset") for kind in KINDS), *((kind, "closed") for kind in KINDS if kind.name in ("tcp", "wss"))],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
async def test_nothing_of_a_connection_waits_for_the_collector(
    wire: str, kind: Kind, how: str, tmp_path: Path, certificates: Certificates
) -> None:
    """A reset left an engine and its answers in cycles: 123 MB each time, until a full collection."""
    place = Place(replace(kind, uri=f"{wire}+{kind.uri}"), tmp_path, certificates)
    handler = Handler()
    async with place.serve(handler, limits=LIMITS) as server:
        for work in (False, True):
            await lived(place, wire, server, handler, work=work, how=how)  # makes what is made once
            await until(lambda: not server.connections)
            before = ours()  # with a rest of the first life, perhaps: less than three lives could leave
            for _ in range(3):
                await lived(place, wire, server, handler, work=work, how=how)
            await until(lambda: not server.connections)
            left = await left_since(before)
            assert not left, f"at work: {work}"
