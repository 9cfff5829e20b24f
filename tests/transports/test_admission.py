"""Which connections a server takes, and what the others are told: on every wire, over every transport."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.protocols.jmux.frames import ClientConnectionHeader
from afflux.protocols.reactivesocket.frames import Setup as OldSetup
from afflux.protocols.rsio.frames import ClientHello
from afflux.protocols.rsocket.frames import Setup
from tests.aio.handlers import Demo
from tests.cli.running import here
from tests.transports.certificates import Certificates
from tests.transports.test_asgi import running

WIRES = ("rsocket", "reactivesocket", "jmux", "rsio")
HELLO = {
    "rsocket": Setup(keepalive_ms=20_000, lifetime_ms=90_000).encode(prefixed=True),
    "reactivesocket": OldSetup(keepalive_ms=20_000, lifetime_ms=90_000).encode(prefixed=True),
    "jmux": ClientConnectionHeader(initial_ration=128).encode(),
    "rsio": ClientHello().encode(),
}
"The first words of a client."
FULL = "too-many-connections: connections=1"
EXIT_CODES = {"rsocket": (70,), "reactivesocket": (70,), "jmux": (1, 65), "rsio": (4,)}
"What `afflux request` ends with. Jmux has no refusal of its own: the connection is over, or the request rejected."

every_wire = pytest.mark.parametrize("wire", WIRES)


def tcp(wire: str) -> str:
    return f"{wire}+tcp://127.0.0.1:0"


def place_of(server: afflux.Server) -> tuple[str, int]:
    host, _, port = server.uri.rpartition("/")[2].rpartition(":")
    return host, int(port)


async def works(wire: str, peer: Any) -> None:
    """One call that is answered."""
    if wire == "rsio":
        assert [item.data async for item in peer.subscribe("2", credit=8)] == [b"0", b"1"]
    else:
        assert await peer.request(b"x") == Payload(b"x")


def works_blocking(wire: str, uri: str) -> None:
    with afflux.sync.connect(uri) as peer:
        if wire == "rsio":
            assert [item.data for item in peer.subscribe("2", credit=8)] == [b"0", b"1"]
        else:
            assert peer.request(b"x") == Payload(b"x")


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


# -- how many -------------------------------------------------------------------------------------------------


@every_wire
async def test_three_hundred_connections_from_one_address(wire: str) -> None:
    """A proxy, a mesh, a NAT: by default there is no number for an address."""
    limits = Limits.server(accepts_per_s=10_000)
    async with afflux.serve(tcp(wire), Demo(), limits=limits) as server, AsyncExitStack() as stack:
        for _ in range(300):
            peer = await stack.enter_async_context(afflux.connect(server.uri))
            await works(wire, peer)
        assert len(server.connections) == 300
        assert server.refused == {}


async def test_an_address_may_take_a_quarter_once_connections_are_scarce() -> None:
    """Up to three quarters of ``connections`` anybody comes in; beyond that an address that has a quarter does not."""
    limits = Limits.server(connections=8, connections_per_address=0.25)
    async with afflux.serve("tcp://0.0.0.0:0", Demo(), limits=limits) as server:
        port = place_of(server)[1]
        socks = []
        for number, host in enumerate(("127.0.0.1",) * 6 + ("127.0.0.2",) * 2, 1):
            socks.append(socket.create_connection((host, port), source_address=(host, 0)))
            await until(lambda: len(server.connections) == number)  # noqa: B023
        for sock in (socks.pop(), socks.pop()):
            sock.close()
        await until(lambda: len(server.connections) == 6)
        with socket.create_connection(("127.0.0.1", port)) as refused:
            told = await asyncio.to_thread(refused.recv, 1000)
            assert b"too-many-connections: connections_per_address=0.25 of connections=8" in told
        socks.append(socket.create_connection(("127.0.0.2", port), source_address=("127.0.0.2", 0)))
        await until(lambda: len(server.connections) == 7)
        assert server.refused == {"connections_per_address": 1}
        for sock in socks:
            sock.close()


@pytest.mark.parametrize(("most", "taken"), [(2, 2), (1.0, 4), (None, 4)])
async def test_a_fixed_count_and_no_bound(most: float | None, taken: int) -> None:
    """An int always holds; a share of 1.0, and None, leave only ``connections``."""
    limits = Limits.server(connections=4, connections_per_address=most)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        socks = [socket.create_connection(place_of(server)) for _ in range(5)]
        await until(lambda: sum(server.refused.values()) == 5 - taken)
        await until(lambda: len(server.connections) == taken)
        for sock in socks:
            sock.close()


# -- what the others are told -----------------------------------------------------------------------------------


@every_wire
@pytest.mark.parametrize("transport", ["tcp", "unix", "ws", "mem"])
async def test_a_refused_client_gets_the_reason(wire: str, transport: str, tmp_path: Path) -> None:
    """By name and value, under asyncio and blocking; who is in goes on."""
    places = {"unix": f"unix://{tmp_path}/x.sock", "mem": f"mem://{wire}", "ws": "ws://127.0.0.1:0/"}
    uri = f"{wire}+{places.get(transport, 'tcp://127.0.0.1:0')}"
    async with afflux.serve(uri, Demo(), limits=Limits.server(connections=1)) as server:
        async with afflux.connect(server.uri) as one:
            await works(wire, one)
            with pytest.raises(afflux.Error, match=FULL) as caught:
                async with afflux.connect(server.uri) as two:
                    await works(wire, two)
            assert not caught.value.may_have_been_processed
            if transport != "mem":
                with pytest.raises(afflux.Error, match=FULL) as caught:
                    await asyncio.to_thread(works_blocking, wire, server.uri)
                assert not caught.value.may_have_been_processed
            await works(wire, one)
        assert server.refused == {"connections": 1 if transport == "mem" else 2}
        await until(lambda: not server.connections)
        async with afflux.connect(server.uri) as three:
            await works(wire, three)


@every_wire
async def test_the_command_shows_why(wire: str) -> None:
    limits = Limits.server(connections=1)
    async with afflux.serve(tcp(wire), Demo(), limits=limits) as server, afflux.connect(server.uri) as one:
        await works(wire, one)
        verb = ("--stream",) if wire == "rsio" else ()
        ran = await asyncio.to_thread(here, "request", server.uri, *verb, "-d", "2")
        assert FULL in ran.errors
        assert ran.code in EXIT_CODES[wire]
        assert not ran.out


async def test_the_command_shows_why_over_a_websocket() -> None:
    """An HTTP answer that is no WebSocket is a handshake that was refused."""
    limits = Limits.server(connections=1)
    async with afflux.serve("ws://127.0.0.1:0", Demo(), limits=limits) as server, afflux.connect(server.uri) as one:
        await works("rsocket", one)
        ran = await asyncio.to_thread(here, "request", server.uri, "-d", "x")
        assert f"HTTP 503 Service Unavailable: {FULL}" in ran.errors
        assert (ran.code, ran.out) == (4, "")


@every_wire
async def test_the_application_in_a_web_server_reports_it(wire: str) -> None:
    app = afflux.asgi.app(Demo(), protocol=wire, limits=Limits.server(connections=1))
    async with running(app) as uri, afflux.connect(f"{wire}+{uri}") as one:
        await works(wire, one)
        with pytest.raises(afflux.ConnectFailed, match=f"503 .*{FULL}"):
            await afflux.connect(f"{wire}+{uri}")
        assert app.server.refused == {"connections": 1}


@pytest.mark.parametrize("transport", ["tls", "wss"])
async def test_a_refused_connection_gets_no_tls_handshake(transport: str, certificates: Certificates) -> None:
    limits = Limits.server(connections=1)
    uri = f"{transport}://127.0.0.1:0"
    async with afflux.serve(uri, Demo(), limits=limits, tls=certificates.to_serve) as server:
        async with afflux.connect(server.uri, tls=certificates.to_connect) as one:
            await works("rsocket", one)
            with pytest.raises(afflux.ConnectFailed, match="closed the connection during the handshake"):
                await afflux.connect(server.uri, tls=certificates.to_connect)
            await works("rsocket", one)
        assert server.refused == {"connections": 1}


@every_wire
async def test_unread_input_does_not_take_the_words_back(wire: str) -> None:
    """A close with unread input resets a connection: what a client has sent is read and dropped first."""
    async with afflux.serve(tcp(wire), Demo(), limits=Limits.server(connections=0)) as server:
        for _ in range(20):
            with socket.create_connection(place_of(server)) as sock:
                sock.sendall(HELLO[wire] + bytes(30_000))
                await until(lambda: readable(sock))
                sock.settimeout(5)
                told = b""
                while piece := await asyncio.to_thread(sock.recv, 1000):
                    told += piece
                assert b"too-many-connections: connections=0" in told


def readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


async def test_refused_connections_are_not_kept() -> None:
    """However many there are, at most 64 are still being told; the others are closed. All are closed in ``flush_s``."""
    limits = Limits.server(connections=0, accepts_per_s=10_000, flush_s=0.2)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        before = len(os.listdir("/proc/self/fd"))
        socks = [socket.create_connection(place_of(server)) for _ in range(300)]
        await until(lambda: server.refused.get("connections") == 300)
        assert len(os.listdir("/proc/self/fd")) - before - 300 <= 64
        await until(lambda: len(os.listdir("/proc/self/fd")) - before == 300)
        for sock in socks:
            sock.close()


async def test_a_refused_client_that_talks_on_is_closed() -> None:
    """It may have sent its first words; whoever sends much more does not listen."""
    limits = Limits.server(connections=0, flush_s=30)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        _, writer = await asyncio.open_connection(*place_of(server))
        with pytest.raises(ConnectionError):
            while True:
                writer.write(bytes(0x4000))
                await writer.drain()
        writer.close()


async def test_refusals_are_logged_once_a_second_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits.server(connections=0, accepts_per_s=10_000)
    with caplog.at_level(logging.WARNING, "afflux"):
        async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
            uri = server.uri
            socks = [socket.create_connection(place_of(server)) for _ in range(50)]
            await until(lambda: server.refused == {"connections": 50})
            assert len(caplog.messages) == 1
        for sock in socks:
            sock.close()
    text = f"afflux: connections to {uri} refused: %d (too-many-connections: connections=0)"
    assert caplog.messages == [text % 1, text % 49]


# -- handshakes -------------------------------------------------------------------------------------------------


@every_wire
async def test_young_handshakes_are_waited_for(wire: str) -> None:
    """Honest clients that connect at once: later ones wait in the system's queue, and nobody is closed."""
    limits = Limits.server(half_handshakes=2)
    async with afflux.serve(tcp(wire), Demo(), limits=limits) as server:
        links = [await asyncio.open_connection(*place_of(server)) for _ in range(6)]
        await until(lambda: len(server.connections) == 2)
        for reader, writer in links:
            writer.write(HELLO[wire])
            if wire == "rsio":
                await reader.readexactly(1)  # its hello
            elif wire == "jmux":
                await reader.readexactly(8)
        await until(lambda: len(server.connections) == 6)
        assert not any(peer.closed for peer in server.connections)
        for _, writer in links:
            writer.close()


async def test_a_storm_of_honest_clients_gets_in() -> None:
    """A deploy: all connect at once, from one address, through a door that is narrow."""
    limits = Limits.server(half_handshakes=16, accepts_per_s=10_000)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:

        async def client() -> afflux.Peer:
            peer = await afflux.connect(server.uri)
            await works("rsocket", peer)
            return peer

        peers = await asyncio.gather(*(client() for _ in range(400)))
        assert len(server.connections) == 400
        assert server.refused == {}
        await asyncio.gather(*(peer.close() for peer in peers))
