"""A server that recognizes its clients' protocols: every wire at the same time, over every transport, and what no wire
begins with."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as websocket

import afflux
from afflux import Limits, Payload, auth
from afflux.protocols.registry import PROTOCOLS, recognizable
from afflux.protocols.rsocket.frames import Setup
from tests.aio.handlers import Demo
from tests.protocols.generic.every import WIRES as DECLARED
from tests.transports.certificates import Certificates

WIRES = [entry.name for entry in recognizable() if not entry.unguessed]
HELLO = {wire.name: wire.hello("server") for wire in DECLARED}
"What a client says first."
TCP = "auto+tcp://127.0.0.1:0"

every_wire = pytest.mark.parametrize("wire", WIRES)


class Named(Demo):
    """Answers with the protocol of its client."""

    async def request(self, payload: Payload) -> Payload:
        return Payload(f"{payload.text} {afflux.current_peer().protocol}".encode())

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        yield f"{payload.text} {afflux.current_peer().protocol}".encode()

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[Payload]:
        async for item in items:
            yield Payload(f"{item.text} {afflux.current_peer().protocol}".encode())


def uri_for(server: afflux.Server, wire: str) -> str:
    return server.uri.replace("auto+", f"{wire}+", 1)


def place_of(server: afflux.Server) -> tuple[str, int]:
    host, _, port = server.uri.rpartition("/")[2].rpartition(":")
    return host, int(port)


async def works(wire: str, peer: Any) -> None:
    """One call that is answered, on this wire."""
    verbs = PROTOCOLS[wire].verbs
    if "request" in verbs:
        assert (await peer.request(b"x")).text == f"x {wire}"
    elif "stream" in verbs:
        assert [item.text async for item in peer.stream(b"x")] == [f"x {wire}"]
    else:
        async with peer.channel([b"x"]) as items:
            assert [item.text async for item in items] == [f"x {wire}"]


def works_blocking(wire: str, uri: str) -> None:
    with afflux.sync.connect(uri) as peer:
        assert peer.protocol == wire
        if "request" in PROTOCOLS[wire].verbs:
            assert peer.request(b"x", timeout=20).text == f"x {wire}"
        elif "stream" in PROTOCOLS[wire].verbs:
            assert [item.text for item in peer.stream(b"x")] == [f"x {wire}"]
        else:
            assert [item.text for item in peer.channel([b"x"])] == [f"x {wire}"]


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


async def answer(server: afflux.Server, *pieces: bytes) -> bytes:
    """What a server says to such bytes, until it closes."""
    reader, writer = await asyncio.open_connection(*place_of(server))
    heard = b""
    with suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        heard = await reader.read()
    writer.close()
    return heard


# -- every wire ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["tcp", "unix", "ws", "mem", "tls", "wss"])
async def test_every_wire_at_the_same_time(transport: str, tmp_path: Path, certificates: Certificates) -> None:
    """Each connection is one of its protocol: in its address, in its handlers, in its streams."""
    places = {"unix": f"unix://{tmp_path}/x.sock", "mem": "mem://recognition", "ws": "ws://127.0.0.1:0/rs"}
    secure = transport in ("tls", "wss")
    to_serve, to_connect = (certificates.to_serve, certificates.to_connect) if secure else (None, None)
    uri = f"auto+{places.get(transport, f'{transport}://127.0.0.1:0')}"
    async with afflux.serve(uri, Named(), tls=to_serve) as server, AsyncExitStack() as stack:
        assert server.protocols == tuple(WIRES)
        opened = [
            await stack.enter_async_context(afflux.connect(uri_for(server, wire), tls=to_connect))
            for wire in (*WIRES, *WIRES)
        ]
        for _ in range(3):
            for wire, peer in zip((*WIRES, *WIRES), opened, strict=True):
                await works(wire, peer)
        found = server.connections
        assert sorted(peer.protocol for peer in found) == sorted((*WIRES, *WIRES))
        assert {peer.uri for peer in found} == {str(uri_for(server, wire)).removeprefix("rsocket+") for wire in WIRES}
        if transport != "mem" and not secure:
            for wire in WIRES:
                await asyncio.to_thread(works_blocking, wire, uri_for(server, wire))
        assert server.refused == {}


@every_wire
async def test_at_every_split(wire: str) -> None:
    """The first bytes in two reads, and one by one."""
    hello = HELLO[wire]
    async with afflux.serve(TCP, Named(), limits=Limits.server(accepts_per_s=10_000)) as server:
        for cut in range(1, min(len(hello), 24)):
            await heard_as(server, wire, [hello[:cut], hello[cut:]])
        await heard_as(server, wire, [hello[at : at + 1] for at in range(len(hello))])
        assert server.refused == {}


async def heard_as(server: afflux.Server, wire: str, pieces: list[bytes]) -> None:
    with socket.create_connection(place_of(server)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            sock.sendall(piece)
            await asyncio.sleep(0.001)
        await until(lambda: server.connections)
        (peer,) = server.connections
        assert peer.protocol == wire
    await until(lambda: not server.connections)


@every_wire
async def test_messages_of_a_websocket(wire: str) -> None:
    """The first message decides; a stream of bytes may come in messages of one byte."""
    framing = PROTOCOLS[wire].framing
    hello = HELLO[wire] if framing is None else HELLO[wire][framing.width :]
    messages = [hello[at : at + 1] for at in range(len(hello))] if framing is None else [hello]
    serving = afflux.serve("auto+ws://127.0.0.1:0", Named())
    async with serving as server, websocket(server.uri.removeprefix("auto+")) as client:
        for message in messages:
            await client.send(message)
        await until(lambda: server.connections)
        assert server.connections[0].protocol == wire


async def test_a_subprotocol_decides() -> None:
    """A known one is selected, an unknown one is not; the bytes then have to be of that protocol."""
    async with afflux.serve("auto+ws://127.0.0.1:0", Named()) as server:
        uri = server.uri.removeprefix("auto+")
        async with websocket(uri, subprotocols=["chat", "rsocket"]) as client:  # type: ignore[list-item]
            assert client.subprotocol == "rsocket"
            await client.send(HELLO["jmux"])
            await until(lambda: server.connections)
            assert server.connections[0].protocol == "rsocket"
            assert b"SETUP" in await client.recv()
        async with websocket(uri, subprotocols=["chat"]) as client:  # type: ignore[list-item]
            assert client.subprotocol is None
            await client.send(HELLO["jmux"])
            assert (await client.recv())[:4] == b"Jmux"


async def test_a_client_of_the_draft_is_refused_by_rsocket() -> None:
    """The draft is never guessed: its SETUP is read as one of another version."""
    async with afflux.serve(TCP, Named()) as server:
        with pytest.raises(afflux.RemoteProtocolError, match=r"^the peer speaks rsocket, not rsocket-draft$"):
            async with afflux.connect(uri_for(server, "rsocket-draft")) as peer:
                await peer.request(b"x")


async def test_a_session_is_resumed() -> None:
    """RESUME is recognized as SETUP is."""
    serving = afflux.serve(TCP, Named(), resume=True)
    async with serving as server, afflux.connect(uri_for(server, "rsocket"), resume=True) as peer:
        await works("rsocket", peer)
        (connection,) = server.connections
        peer.cut()
        await works("rsocket", peer)
        assert server.connections == (connection,)


# -- limits and terms ---------------------------------------------------------------------------------------------


async def test_a_protocol_that_does_not_support_the_terms_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """No client gets past ``on_setup`` by speaking a protocol that has no setup."""
    check = auth.at_setup(lambda credentials, peer: "user" if credentials == auth.Bearer("good") else None)
    async with afflux.serve(TCP, Named(), on_setup=check) as server:
        assert "jmux" not in server.protocols
        assert "does not serve jmux: a jmux connection has no setup" in caplog.text
        async with afflux.connect(uri_for(server, "rsocket"), setup=[auth.Bearer("good")]) as peer:
            await works("rsocket", peer)
        for wire in WIRES:
            with pytest.raises(afflux.Error):
                async with afflux.connect(uri_for(server, wire)) as peer:
                    await works(wire, peer)
        assert server.refused == {"unrecognized": 1}
    assert "jmux is not served: a jmux connection has no setup" in caplog.text


async def test_a_file_of_sessions_needs_one_protocol(tmp_path: Path) -> None:
    with pytest.raises(afflux.Unsupported, match=r"auto has no .store."):
        afflux.serve(TCP, Named(), resume=True, store=tmp_path / "sessions")


async def test_an_address_that_recognizes_is_for_servers() -> None:
    words = "auto is for servers; a client names the protocol that it speaks, one of .*jmux.tcp"
    with pytest.raises(afflux.AddressError, match=words):
        await afflux.connect("auto+tcp://127.0.0.1:1")
    with pytest.raises(afflux.AddressError, match=words):
        afflux.sync.connect("auto+tcp://127.0.0.1:1")
    with pytest.raises(afflux.AddressError, match=r'unknown option "keepalive"'):
        afflux.serve("auto+tcp://127.0.0.1:0?keepalive=3", Named())
    with pytest.raises(afflux.AddressError, match=r'did you mean "auto\+tcp"'):
        afflux.serve("auto://127.0.0.1:0", Named())


async def test_a_full_server_refuses_without_words() -> None:
    async with afflux.serve(TCP, Named(), limits=Limits.server(connections=1)) as server:
        async with afflux.connect(uri_for(server, "jmux")) as peer:
            await works("jmux", peer)
            assert await answer(server, HELLO["jmux"]) == b""
            await works("jmux", peer)
        assert server.refused == {"connections": 1}


# -- what no protocol begins with -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "47 45 54 20 2f 20 48 54 … (HTTP)"),
        (bytes.fromhex("160301020001000100"), "16 03 01 02 00 01 00 01 … (TLS)"),
        (b"JPEG", "4a 50 45 47;"),
        (bytes(64), "00 00 00 00 00 00 00 00 …;"),
        (bytes.fromhex("00000a 00000001 1000"), "00 00 0a 00 00 00 01 10 …;"),
    ],
)
async def test_HS_28_it_is_closed_counted_and_logged(data: bytes, words: str, caplog: pytest.LogCaptureFixture) -> None:
    async with afflux.serve(TCP, Named()) as server:
        assert await answer(server, data) == b""
        assert server.refused == {"unrecognized": 1}
        assert f"refused: 1 (unknown first bytes {words}" in caplog.text
        assert f"served here: {', '.join(WIRES)})" in caplog.text
        async with afflux.connect(uri_for(server, "rsio")) as peer:
            await works("rsio", peer)


async def test_a_message_that_no_protocol_begins_with(caplog: pytest.LogCaptureFixture) -> None:
    async with afflux.serve("auto+ws://127.0.0.1:0", Named()) as server:
        async with websocket(server.uri.removeprefix("auto+")) as client:
            await client.send(b"hello")
            await client.wait_closed()
            assert client.close_code == 1008
            assert "unknown first bytes 68 65 6c 6c 6f" in str(client.close_reason)
        await until(lambda: server.refused == {"unrecognized": 1})
    assert "refused: 1 (unknown first bytes 68 65 6c 6c 6f of a WebSocket" in caplog.text


@pytest.mark.parametrize(
    "pieces", [(), (b"\0",), (b"J",), (b"\1",), (b"\0", b"\0"), (bytes.fromhex("00004000000000"),)]
)
async def test_HS_28_silence_ends_with_the_handshake(
    pieces: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing, and bytes that several protocols begin with. Silence without a byte is not worth a line."""
    async with afflux.serve(TCP, Named(), limits=Limits.server(handshake_s=0.05)) as server:
        assert await answer(server, *pieces) == b""
        await until(lambda: not server._clients.gate.handshakes)
        assert server.refused == ({"unrecognized": 1} if pieces else {})
        assert server._clients.gate.admitted == 0
    assert ("incomplete first bytes" in caplog.text) == bool(pieces)


async def test_HS_28_a_slow_drip_has_one_handshake() -> None:
    """A byte from time to time does not start the time again, neither before nor after recognition."""
    async with afflux.serve(TCP, Named(), limits=Limits.server(handshake_s=0.2)) as server:
        for wire in WIRES:
            hello, loop = HELLO[wire], asyncio.get_running_loop()
            if len(hello) < 16:
                continue
            reader, writer = await asyncio.open_connection(*place_of(server))
            begun = loop.time()
            read = asyncio.ensure_future(reader.read())
            with suppress(ConnectionError):
                for at in range(len(hello)):
                    writer.write(hello[at : at + 1])
                    await asyncio.wait([read], timeout=0.03)
                    if read.done():
                        break
                await read
            assert loop.time() - begun < 2
            writer.close()
        await until(lambda: not server._clients.gate.handshakes)


async def test_the_end_before_a_decision(caplog: pytest.LogCaptureFixture) -> None:
    async with afflux.serve(TCP, Named()) as server:
        for data in (b"", b"Jmu"):
            _, writer = await asyncio.open_connection(*place_of(server))
            writer.write(data)
            writer.write_eof()
            await until(lambda: server._clients.gate.admitted)
            await until(lambda: not server._clients.gate.admitted)
            writer.close()
        assert server.refused == {"unrecognized": 1}
    assert "incomplete first bytes 4a 6d 75;" in caplog.text


async def test_the_oldest_that_says_nothing_makes_room() -> None:
    limits = Limits.tiny(half_handshakes=2, connections_per_address=None, handshake_s=1)
    async with afflux.serve(TCP, Named(), limits=limits) as server:
        silent = [await asyncio.open_connection(*place_of(server)) for _ in range(3)]
        with suppress(ConnectionResetError):
            assert await silent[0][0].read() == b""
        async with afflux.connect(uri_for(server, "jmux")) as peer:
            await works("jmux", peer)
        for _, writer in silent:
            writer.close()


async def test_a_server_that_closes_ends_them() -> None:
    server = await afflux.serve(TCP, Named())
    reader, writer = await asyncio.open_connection(*place_of(server))
    writer.write(b"J")
    await until(lambda: server._clients.gate.handshakes)
    await server.close()
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert not server._clients.gate.handshakes
    assert server._clients.gate.admitted == 0


async def test_HS_28_garbage_of_many_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Limits bound how many there are at a time, one line a second is logged, and clients are served meanwhile."""
    caplog.set_level(logging.WARNING)
    chance, count = random.Random(12), 10_000
    limits = Limits.server(accepts_per_s=1_000_000, half_handshakes=64, connections=512)
    loop = asyncio.get_running_loop()
    async with afflux.serve(TCP, Named(), limits=limits) as server, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(afflux.connect(uri_for(server, wire))) for wire in WIRES]
        begun, most = loop.time(), 0
        for number in range(count):
            with socket.create_connection(place_of(server)) as sock:
                sock.sendall(b"\xff" + chance.randbytes(number % 40))
            while number - sum(server.refused.values()) >= 1_000:  # the system's queue of a listener is bounded
                await asyncio.sleep(0)
                most = max(most, server._clients.gate.admitted)
            if number % 1000 == 0:
                for wire, peer in zip(WIRES, peers, strict=True):
                    await works(wire, peer)
        while sum(server.refused.values()) < count:
            await asyncio.sleep(0.01)
        took = loop.time() - begun
        assert 0 < most <= limits.connections
        assert set(server.refused) <= {"unrecognized", "connections"}
        assert len(server.connections) == len(WIRES)
    assert len([line for line in caplog.messages if "refused:" in line]) <= took + 3


async def test_HS_28_what_strangers_cost() -> None:
    """16 KiB each, for sockets that say a byte; the test's own ends are among it."""
    count, limits = 100, Limits.server(connections_per_address=None, accepts_per_s=10_000)
    async with afflux.serve(TCP, Named(), limits=limits) as server:
        loop = asyncio.get_running_loop()
        socks = [socket.socket() for _ in range(count)]
        tracemalloc.start()
        try:
            for sock in socks:
                sock.setblocking(False)
                await loop.sock_connect(sock, place_of(server))
                sock.send(b"\0")
            await until(lambda: len(server._clients.gate.handshakes) == count)
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for sock in socks:
                sock.close()
    assert used <= count * 16 * 1024


@pytest.mark.parametrize("attempt", ["twin", "one of its own"])
async def test_HS_28_candidates_that_cannot_be_told_apart(
    attempt: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A protocol that a program adds: recognized too, unless another begins with the same bytes."""

    def begins(start: bytes, client: bool) -> bool | None:
        magic = b"Jmux" if attempt == "twin" else b"Twin"
        return start.startswith(magic) if len(start) >= 4 or not magic.startswith(start) else None

    monkeypatch.setitem(PROTOCOLS, "twin", replace(PROTOCOLS["jmux"], name="twin", recognize=begins))
    async with afflux.serve(TCP, Named()) as server:
        assert "twin" in server.protocols
        if attempt == "twin":
            assert await answer(server, HELLO["jmux"]) == b""
            assert server.refused == {"unrecognized": 1}
            assert "4a 6d 75 78 01 00 80 00 (jmux or twin); served here:" in caplog.text
        else:
            assert b"Error" in await answer(server, b"Twin" + bytes(4)) or not server.refused


async def test_no_protocol_supports_the_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WIRES:
        if name != "jmux":
            monkeypatch.setitem(PROTOCOLS, name, replace(PROTOCOLS[name], recognize=None))

    async def decide(setup: object, peer: object) -> None:
        """Accept."""

    monkeypatch.setitem(PROTOCOLS, "rsocket-draft", replace(PROTOCOLS["rsocket-draft"], recognize=None))
    with pytest.raises(afflux.Unsupported, match="no protocol can be served: a jmux connection has no setup"):
        await afflux.serve(TCP, Named(), on_setup=decide)
    with pytest.raises(afflux.Unsupported, match="a jmux connection has no setup"):
        await afflux.serve("jmux+tcp://127.0.0.1:0", Named(), on_setup=decide)


async def test_a_first_frame_longer_than_any_is_not_waited_for() -> None:
    """Its length alone decides."""
    async with afflux.serve(TCP, Named()) as server:
        big = Setup(keepalive_ms=1, lifetime_ms=1, data=bytes(70_000)).encode(prefixed=True)
        assert await answer(server, big[:2]) == b""
        assert server.refused == {"unrecognized": 1}
