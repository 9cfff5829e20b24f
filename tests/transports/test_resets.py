"""A load of connections that are reset at any time, under both loops: nobody hears of it, and nothing is left."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.transports.address import parse
from afflux.transports.reading import end_half
from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, Kind, Place

RESET = struct.pack("ii", 1, 0)
"SO_LINGER: a close is a reset."
SETUP = bytes.fromhex("000035 00000000 0400 00010000 00004e20 00015f90") + b"\x03a/b\x03a/b" + bytes(100)
WORDS = (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 200, SETUP[:30], SETUP, b"\x16\x03\x01\x02\0" + bytes(600))


class Talkative:
    """Has much to say."""

    async def request(self, payload: Payload) -> bytes:
        """A large answer."""
        return bytes(200_000)

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """Items without end."""
        while True:
            yield bytes(20_000)


@pytest.fixture(params=[kind for kind in KINDS if kind.sockets], ids=lambda kind: kind.name)
def place(request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates) -> Place:
    """Each transport in turn."""
    kind: Kind = request.param
    return Place(kind, tmp_path, certificates)


def reset(sock: Any) -> None:
    """Make the close of a socket a reset."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def stranger(place: Place, uri: str, random: Random) -> None:
    """Says something, or the half of it, and is gone."""
    address, loop = parse(uri), asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX if place.kind.name == "unix" else socket.AF_INET)
    sock.setblocking(False)
    try:
        target: Any = address.path if place.kind.name == "unix" else (address.host, address.port)
        await loop.sock_connect(sock, target)
        for _ in range(random.randrange(3)):
            await loop.sock_sendall(sock, random.choice(WORDS) * random.choice((1, 1, 200)))
            await asyncio.sleep(random.choice((0, 0, 0.001)))
        if random.random() < 0.3:
            sock.shutdown(socket.SHUT_WR)
            await asyncio.sleep(random.choice((0, 0.001)))
    except OSError:
        pass  # the server was faster
    finally:
        if random.random() < 0.8:
            reset(sock)
        sock.close()


async def guest(place: Place, uri: str, random: Random) -> None:
    """One of our clients, which is cut in the middle of what it does."""
    peer = await place.connect(uri)
    try:
        tasks = [asyncio.ensure_future(peer.request(bytes(50_000))) for _ in range(random.randrange(4))]
        tasks += [asyncio.ensure_future(taken(peer)) for _ in range(random.randrange(3))]
        await asyncio.sleep(random.choice((0, 0.001, 0.003)))
        transport = peer._driver.state.transport
        if transport is not None and random.random() < 0.8:
            reset(transport.get_extra_info("socket"))
        if random.random() < 0.7:
            peer.cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await peer.close()


async def taken(peer: afflux.Peer) -> None:
    """Take items."""
    async for _ in peer.stream(b""):
        pass


@pytest.mark.parametrize("seed", range(3))
async def test_connections_that_are_reset_end_without_a_word(
    place: Place, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random, loop, said = Random(seed), asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: said.append(context))
    limits = Limits.server(flush_s=0.1, connections_per_address=None)
    async with place.serve(Talkative(), limits=limits) as server:
        tasks: set[asyncio.Task[None]] = set()
        for _ in range(60):
            work = (stranger if random.random() < 0.6 else guest)(place, server.uri, random)
            tasks.add(asyncio.ensure_future(work))
            if len(tasks) > 8:
                _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*tasks)
        async with asyncio.timeout(10):
            while server.connections:
                await asyncio.sleep(0.001)
    assert not said
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_client_that_gives_up_connecting_at_any_time_leaves_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """uvloop closes a transport whose connecting is canceled without a word to its protocol."""
    loop, said = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: said.append(context))
    async with place.serve(Talkative(), limits=Limits.server(flush_s=0.1)) as server:
        for count in range(60):
            connecting = asyncio.ensure_future(_connected(place, server.uri))
            for _ in range(count % 30):
                await asyncio.sleep(0)
            connecting.cancel()
            for peer in await asyncio.gather(connecting, return_exceptions=True):
                if isinstance(peer, afflux.Peer):
                    await peer.close()
        async with asyncio.timeout(10):
            while server.connections or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)  # until flush_s is over for those that were given up
    assert not said
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_half_of_a_closed_transport_ends_without_a_word() -> None:
    """asyncio raises OSError where it is too late, uvloop RuntimeError: neither gets out."""
    near, far = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=near)
    transport.abort()
    end_half(transport)
    await asyncio.sleep(0)
    end_half(transport)
    far.close()
    assert transport.is_closing()


async def _connected(place: Place, uri: str) -> afflux.Peer:
    peer: afflux.Peer = await place.connect(uri)
    return peer
