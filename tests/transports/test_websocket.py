"""WebSocket: what every transport does is in the check; here is what only WebSocket has, and what breaks it.

The peer is the library ``websockets`` itself, or bytes by hand. Servers and clients are whole ones of ours.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as ws_connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as ws_serve
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

import afflux
from afflux import Limits, Payload
from afflux.core.events import Event
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket.engine import Engine
from afflux.transports.address import Address, parse
from afflux.transports.ws_client import ClientWire
from afflux.transports.ws_frames import binary
from afflux.transports.ws_server import ServerWire
from afflux.transports.ws_wire import Wire
from tests.aio.handlers import Demo, Waits, turns
from tests.transports.certificates import Certificates

WS = "ws://127.0.0.1:0"
SETUP = frames.Setup(stream=0, keepalive_ms=20_000, lifetime_ms=90_000, data=b"").encode()
"Frames as they stand in a message, without a length."


def request(data: bytes, stream: int = 1) -> bytes:
    return frames.RequestResponse(stream=stream, data=data).encode()


def answer(data: bytes, stream: int = 1) -> bytes:
    return frames.PayloadFrame(stream=stream, next=True, complete=True, data=data).encode()


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(3, "big") + data


def raw(uri: str, **more: Any) -> Any:
    """A client that is the library's."""
    return ws_connect(uri, **({"subprotocols": ["rsocket"], "compression": None, "proxy": None} | more))


async def close_of(client: ClientConnection) -> tuple[int, str]:
    """How the server closes; what it says before is read."""
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            await client.recv()
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


def where(uri: str) -> tuple[str, int]:
    address = parse(uri)
    return address.host, address.port or 0


async def http(uri: str, words: bytes) -> bytes:
    """What a server answers to bytes, until it hangs up."""
    reader, writer = await asyncio.open_connection(*where(uri))
    writer.write(words)
    said = await reader.read()
    writer.close()
    return said


def upgrade(path: str = "/", **headers: str) -> bytes:
    """A client's request."""
    lines = {
        "Host": "here",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "rsocket",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    return f"GET {path} HTTP/1.1\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n"


# -- what goes over the wire ------------------------------------------------------------------------------------


async def test_each_frame_is_one_binary_message_without_its_length() -> None:
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        assert client.subprotocol == "rsocket"
        await client.send(SETUP)
        await client.send(request(b"hello"))
        assert await client.recv() == answer(b"hello")
        await client.send(frames.RequestStream(stream=3, initial_n=3, data=b"3").encode())
        items = [frames.decode(await client.recv()) for _ in range(3)]
        assert [item.data for item in items if isinstance(item, frames.PayloadFrame)] == [b"0", b"1", b"2"]


async def test_our_client_speaks_to_the_library() -> None:
    said: list[Any] = []

    async def talk(peer: ServerConnection) -> None:
        assert peer.subprotocol == "rsocket"
        said.append(peer.request.headers if peer.request else None)
        said.append(await peer.recv())
        said.append(await peer.recv())
        await peer.send(answer(b"pong"))
        await peer.wait_closed()
        said.append(peer.close_code)

    async with library(talk) as uri, afflux.connect(uri + "/a%20path") as peer:
        assert await peer.request(b"ping") == Payload(b"pong")
    assert "Sec-WebSocket-Extensions" not in said[0]
    assert isinstance(frames.decode(said[1]), frames.Setup)
    assert said[2] == request(b"ping")
    assert said[3] == 1000


MIXED = (
    [64] * 20 + [119, 120, 121, 0, 0] + [1017, 1018, 1019] + [1024] * 9 + [65_529, 65_530, 70_000] + [7] * 300 + [8, 7]
)
"Of items: runs of one size, and both sides of each width of a length."


class Sizes:
    async def stream(self, payload: Payload) -> AsyncIterator[list[bytes]]:
        yield [bytes((number % 251,)) * size for number, size in enumerate(MIXED)]


async def test_messages_of_one_size_and_of_many() -> None:
    expected = [bytes((number % 251,)) * size for number, size in enumerate(MIXED)]
    async with afflux.serve(WS, Sizes()) as server:
        async with raw(server.uri) as client:
            await client.send(SETUP)
            await client.send(frames.RequestStream(stream=1, initial_n=1000, data=b"").encode())
            items = [frames.decode(await client.recv()) for _ in MIXED]
            assert [item.data for item in items if isinstance(item, frames.PayloadFrame)] == expected
        async with afflux.connect(server.uri) as peer:
            assert [item.data async for item in peer.stream(b"", credit=1000)] == expected


async def test_our_client_reads_messages_of_one_size_and_of_many() -> None:
    expected = [bytes((number % 251,)) * size for number, size in enumerate(MIXED)]

    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        for number, item in enumerate(expected):
            if number % 7 == 0:
                await peer.ping()
            parts = [frames.PayloadFrame(stream=1, next=True, data=item).encode()]
            await peer.send([parts[0][:3], parts[0][3:]] if number % 5 == 0 else parts[0])
        await peer.send(frames.PayloadFrame(stream=1, complete=True, data=b"").encode())
        await peer.wait_closed()

    async with library(talk) as uri, afflux.connect(uri) as peer:
        assert [item.data async for item in peer.stream(b"", credit=1000)] == expected


@asynccontextmanager
async def library(
    talk: Callable[[ServerConnection], Awaitable[None]], subprotocol: str | None = "rsocket", **more: Any
) -> AsyncIterator[str]:
    """A server that is the library's, and selects ``subprotocol``."""
    options: dict[str, Any] = {"compression": None, "select_subprotocol": lambda *_: subprotocol} | more
    async with ws_serve(talk, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("size", [0, 1, 100, 125, 126, 127, 65_535, 65_536, 100_000, 1_000_000])
async def test_every_length(size: int) -> None:
    data = bytes(size)
    async with afflux.serve(WS, Demo()) as server, afflux.connect(server.uri) as peer:
        assert await peer.request(data) == Payload(data)
        async with raw(server.uri) as client:
            await client.send(SETUP)
            await client.send(request(data))
            item = b""
            while len(item) < size:
                frame = frames.decode(await client.recv())
                assert isinstance(frame, frames.PayloadFrame)
                item += frame.data
            assert item == data


def in_fragments(client: ClientConnection, parts: list[bytes]) -> None:
    """Send one message in so many frames, a ping behind the first."""
    client.protocol.send_binary(parts[0], fin=False)
    client.protocol.send_ping(b"still there?")
    for part in parts[1:-1]:
        client.protocol.send_continuation(part, fin=False)
    client.protocol.send_continuation(parts[-1], fin=True)
    client.transport.write(b"".join(client.protocol.data_to_send()))


async def test_fragments_and_a_ping_between_them() -> None:
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        in_fragments(client, [SETUP[:5], SETUP[5:]])
        whole = request(b"in pieces")
        in_fragments(client, [whole[:3], b"", whole[3:]])
        assert await client.recv() == answer(b"in pieces")


async def test_a_ping_is_answered_and_a_pong_is_nothing() -> None:
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await client.send(SETUP)
        await client.pong(b"unasked for")
        await (await client.ping(b"there?"))
        await client.send(request(b"x"))
        assert await client.recv() == answer(b"x")


async def test_a_read_is_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Performance: what comes together goes up together."""
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await client.send(SETUP)
        await client.send(request(b"first"))
        await client.recv()
        driver, passes = server.connections[0]._driver, []
        receive = type(driver.engine).receive

        def watched(engine: Engine, data: bytes, now: float) -> list[Event]:
            if engine is driver.engine:
                passes.append(len(data))
            return receive(engine, data, now)

        monkeypatch.setattr(type(driver.engine), "receive", watched)
        for number in range(100):
            client.protocol.send_binary(request(b"x" * 50, 3 + 2 * number))
        client.transport.write(b"".join(client.protocol.data_to_send()))
        for _ in range(100):
            await client.recv()
        assert len(passes) < 10


# -- the handshake, at a server ---------------------------------------------------------------------------------


async def test_a_client_may_offer_no_subprotocol() -> None:
    """The clients of rsocket-js and of rsocket for Python offer none."""
    async with afflux.serve(WS, Demo()) as server, raw(server.uri, subprotocols=None) as client:
        assert client.subprotocol is None
        await client.send(SETUP)
        await client.send(request(b"x"))
        assert await client.recv() == answer(b"x")


async def test_a_client_that_offers_several() -> None:
    async with (
        afflux.serve(WS, Demo()) as server,
        raw(server.uri, subprotocols=["graphql-ws", "rsocket"]) as client,
    ):
        assert client.subprotocol == "rsocket"


async def test_a_client_that_wants_another_subprotocol_is_refused() -> None:
    """TR-07."""
    async with afflux.serve(WS, Demo()) as server:
        with pytest.raises(InvalidStatus) as caught:
            await raw(server.uri, subprotocols=["graphql-ws", "mqtt"])
        response = caught.value.response
        assert response.status_code == 400
        assert b'the subprotocol here is "rsocket", and the client offers graphql-ws, mqtt' in bytes(response.body)


@pytest.mark.parametrize("offer", ["permessage-deflate", "permessage-deflate; client_max_window_bits", "x-unknown"])
async def test_compression_is_declined(offer: str) -> None:
    """TR-09."""
    async with afflux.serve(WS, Demo()) as server:
        reader, writer = await asyncio.open_connection(*where(server.uri))
        writer.write(upgrade(Sec_WebSocket_Extensions=offer))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ") and b"extensions" not in head.lower()
        writer.close()


@pytest.mark.parametrize(
    ("at", "asked", "status"),
    [
        ("", "/", 101),
        ("", "/?token=x", 101),
        ("", "/rs", 404),
        ("/rs", "/rs", 101),
        ("/rs", "/rs?a=b&c", 101),
        ("/rs", "/rs/", 404),
        ("/rs", "/", 404),
        ("/a%20b/%C3%A9", "/a%20b/%c3%a9", 101),
    ],
)
async def test_one_path_is_served(at: str, asked: str, status: int) -> None:
    async with afflux.serve(WS + at, Demo()) as server:
        reader, writer = await asyncio.open_connection(*where(server.uri))
        writer.write(upgrade(asked))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        if status == 404:
            assert await reader.read() == b"nothing is served at this path\n"
        writer.close()


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 426, b"connect to it with a WebSocket client"),
        (upgrade().replace(b"GET", b"POST"), 405, b"POST"),
        (upgrade().replace(b"HTTP/1.1", b"HTTP/1.0"), 505, b"HTTP/1.0"),
        (upgrade(Sec_WebSocket_Version="8"), 400, b"Sec-WebSocket-Version"),
        (upgrade(Sec_WebSocket_Key="short"), 400, b"Sec-WebSocket-Key"),
        (b"\x00\x00\x2e\x00\x00\x00\x00\x04\x00\x00\x01\x00\x00" + b"\n" * 40, 400, b"begins with a request of HTTP"),
        (b"hello?\r\n\r\n", 400, b"begins with a request of HTTP"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, b"begins with a request of HTTP"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n", 414, b"no more than 8192 bytes"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 9000 + b"\r\n", 431, b"no more than 8192 bytes"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431, b"no more than 128 headers"),
        (b"GET / HTTP/1.1\r\n" + (b"A: " + b"x" * 8000 + b"\r\n") * 9, 431, b"first-frame-too-large"),
    ],
)
async def test_a_request_that_opens_nothing(words: bytes, status: int, sentence: bytes) -> None:
    async with afflux.serve(WS, Demo()) as server:
        said = await http(server.uri, words)
        assert said.startswith(b"HTTP/1.1 %d " % status)
        assert sentence in said.partition(b"\r\n\r\n")[2]
        assert said.endswith(b"\n") and said.count(b"\n", said.index(b"\r\n\r\n") + 4) == 1
        await turns()
        async with afflux.connect(server.uri) as peer:
            assert await peer.request(b"others") == Payload(b"others")


async def test_what_comes_behind_the_request_waits_for_the_answer() -> None:
    """It may come with it, and may be nonsense for who is not let in."""
    async with afflux.serve(WS + "/rs", Demo()) as server:
        masked = b"".join(binary([memoryview(SETUP), memoryview(request(b"x"))], masked=True))
        reader, writer = await asyncio.open_connection(*where(server.uri))
        writer.write(upgrade("/rs") + masked)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(2 + len(answer(b"x"))) == bytes((0x82, len(answer(b"x")))) + answer(b"x")
        writer.close()
        for rest in (masked, b"\xff" * 1000):
            assert (await http(server.uri, upgrade("/other") + rest)).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("words", [b"", upgrade()[:20], upgrade()[:-2], upgrade()], ids=len)
async def test_half_a_handshake_has_its_time(words: bytes) -> None:
    """HS-01: TLS, upgrade and SETUP are one handshake."""
    limits = Limits.server(handshake_s=0.05)
    async with afflux.serve(WS, Demo(), limits=limits) as server:
        await http(server.uri, words)
        await turns()
        assert server.connections == ()


async def test_a_request_that_dribbles_in_has_the_same_time() -> None:
    limits = Limits.server(handshake_s=0.1)
    async with afflux.serve(WS, Demo(), limits=limits) as server:
        reader, writer = await asyncio.open_connection(*where(server.uri))
        writer.write(upgrade()[:-2])
        end = asyncio.ensure_future(reader.read())
        with pytest.raises((ConnectionError, RuntimeError)):  # the latter is uvloop's
            while True:
                writer.write(b"A: b\r\n")
                await writer.drain()
                await asyncio.wait([end], timeout=0.01)
        writer.close()


async def test_half_handshakes_are_counted() -> None:
    """The oldest gives way, upgraded or not."""
    limits = Limits.tiny(half_handshakes=2, handshake_s=1)
    async with afflux.serve(WS, Demo(), limits=limits) as server:
        halves = [await asyncio.open_connection(*where(server.uri)) for _ in range(2)]
        halves[1][1].write(upgrade())
        await halves[1][0].readuntil(b"\r\n\r\n")
        for reader, writer in list(halves):
            halves.append(await asyncio.open_connection(*where(server.uri)))
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        async with afflux.connect(server.uri) as peer:
            assert await peer.request(b"x") == Payload(b"x")
        for _, writer in halves:
            writer.close()


# -- what a client may do wrong ---------------------------------------------------------------------------------


async def begun(client: ClientConnection) -> ClientConnection:
    """A client that the server has let in."""
    await client.send(SETUP)
    await client.send(request(b"hello"))
    assert await client.recv() == answer(b"hello")
    return client


async def test_a_text_message() -> None:
    """TR-07. What came before it is answered."""
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await client.send(SETUP)
        await client.send(request(b"x"))
        await client.send("text")
        await client.send(request(b"y"))
        assert await close_of(client) == (1003, "text-message: frames travel in binary messages")


async def test_frames_with_their_length_inside() -> None:
    """TR-07: rsocket-js can be told to do so (lengthPrefixedFrames)."""
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await client.send(framed(SETUP))
        error = frames.decode(await client.recv())
        assert isinstance(error, frames.ErrorFrame) and error.code == 0x001
        assert await close_of(client) == (1000, "")


async def test_an_empty_message() -> None:
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await begun(client)
        await client.send(b"")
        error = frames.decode(await client.recv())
        assert isinstance(error, frames.ErrorFrame) and error.code == 0x101
        assert await close_of(client) == (1000, "")


async def test_the_longest_message() -> None:
    """limits.md, frame_bytes: at the limit, and one byte above."""
    limits = Limits.tiny()
    most = limits.frame_bytes
    async with afflux.serve(WS, Demo(), limits=limits) as server:
        async with raw(server.uri) as client:
            await begun(client)
            await client.send(request(bytes(most - 6), 3))
            assert isinstance(frames.decode(await client.recv()), frames.PayloadFrame)
        for parts in ([most + 1], [most - 10, 11], [1] * 10 + [most - 9]):
            async with raw(server.uri) as client:
                await begun(client)
                await client.send(bytes(parts[0]) if len(parts) == 1 else [bytes(part) for part in parts])
                assert await close_of(client) == (1009, f"frame-too-large: {most + 1} bytes exceed frame_bytes={most}")


async def test_a_message_is_refused_by_its_length_alone() -> None:
    """It is never buffered."""
    async with afflux.serve(WS, Demo(), limits=Limits.tiny()) as server, raw(server.uri) as client:
        await begun(client)
        client.transport.write(b"\x82\xff" + (1 << 40).to_bytes(8, "big"))
        assert await close_of(client) == (1009, f"frame-too-large: {1 << 40} bytes exceed frame_bytes=65536")


async def test_a_first_message_is_small() -> None:
    """limits.md, first_frame_bytes."""
    limits = Limits.tiny()
    for size, end in ((limits.first_frame_bytes, 1000), (limits.first_frame_bytes + 1, 1009)):
        async with afflux.serve(WS, Demo(), limits=limits) as server, raw(server.uri) as client:
            await client.send(SETUP + bytes(size - len(SETUP)))
            if end == 1009:
                most = limits.first_frame_bytes
                told = f"first-frame-too-large: {most + 1} bytes exceed first_frame_bytes={most}"
                assert await close_of(client) == (1009, told)
            else:
                await client.send(request(bytes(20_000)))
                await client.recv()


@pytest.mark.parametrize("above", [0, 1])
async def test_a_length_that_counts_itself(above: int) -> None:
    """limits.md, first_frame_bytes and frame_bytes, in ReactiveSocket: a message has no length, and its limit is less
    by the four bytes that a length counts of itself."""
    from afflux.protocols.reactivesocket import frames as early

    limits = Limits.tiny()
    first = limits.first_frame_bytes - 4 + above
    setup = early.Setup(keepalive_ms=20_000)
    async with afflux.serve(f"reactivesocket+{WS}", Demo(), limits=limits) as server:
        async with raw(server.uri.removeprefix("reactivesocket+")) as client:
            await client.send(early.Setup(keepalive_ms=20_000, data=bytes(first - setup.encoded_size)).encode())
            if above:
                most = limits.first_frame_bytes
                told = f"first-frame-too-large: {most + 1} bytes exceed first_frame_bytes={most}"
                assert await close_of(client) == (1009, told)
            else:
                await client.send(early.RequestResponse(stream=2, data=b"q").encode())
                await client.recv()
        async with raw(server.uri.removeprefix("reactivesocket+")) as client:
            await client.send(setup.encode())
            size = limits.frame_bytes - 12 + above
            await client.send(early.RequestResponse(stream=2, data=bytes(size)).encode())
            if above:
                most = limits.frame_bytes
                assert await close_of(client) == (1009, f"frame-too-large: {most + 1} bytes exceed frame_bytes={most}")
            else:
                await client.recv()


async def test_the_fragments_of_a_message() -> None:
    """limits.md, ws_fragments; TR-08."""
    most = Limits.tiny().ws_fragments
    for count in (most, most + 1):
        async with afflux.serve(WS, Demo(), limits=Limits.tiny()) as server, raw(server.uri) as client:
            await begun(client)
            in_fragments(client, [request(b"x", 3)] + [b""] * (count - 1))
            if count == most:
                assert await client.recv() == answer(b"x", 3)
            else:
                assert await close_of(client) == (1009, f"too-many-fragments: ws_fragments={most}")


async def test_fragments_without_end() -> None:
    """TR-08."""
    async with afflux.serve(WS, Demo(), limits=Limits.tiny()) as server, raw(server.uri) as client:
        await begun(client)

        async def forever() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1000)

        with pytest.raises(ConnectionClosed) as caught:
            await client.send(forever())
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1009


async def test_a_message_has_its_time() -> None:
    """limits.md, frame_s: it is not begun anew by single bytes, and a whole message ends it."""
    limits = Limits.tiny(frame_s=0.2)
    frame = b"".join(binary([memoryview(request(b"x" * 50, 3))], masked=True))
    async with afflux.serve(WS, Demo(), limits=limits) as server, raw(server.uri) as client:
        await begun(client)
        end = asyncio.ensure_future(close_of(client))
        bytewise = iter(frame[:-1])
        while not end.done():
            with suppress(RuntimeError):  # it has just been closed
                client.transport.write(bytes((next(bytewise),)))
            await asyncio.wait([end], timeout=0.02)
        assert await end == (1008, "frame-timeout")
    async with afflux.serve(WS, Demo(), limits=limits) as server, raw(server.uri) as client:
        await begun(client)
        await client.ping(b"whole")
        for part in (frame[:1], frame[1:]):
            client.transport.write(part)
            await turns()
        assert await client.recv() == answer(b"x" * 50, 3)
        await asyncio.sleep(limits.frame_s * 1.5)
        await client.send(request(b"y", 5))
        assert await client.recv() == answer(b"y", 5)


async def test_the_time_is_each_messages_own() -> None:
    """A busy peer may be in the middle of a message whenever one looks."""
    data = b"".join(
        binary([memoryview(frames.RequestFnf(stream=i, data=b"x").encode()) for i in range(3, 83, 2)], masked=True)
    )
    size = len(data) // 40
    demo = Demo()
    limits = Limits.tiny(frame_s=0.5, streams=64)
    async with afflux.serve(WS, demo, limits=limits) as server, raw(server.uri) as client:
        await begun(client)
        client.transport.write(data[: size // 2])
        for at in range(size // 2, len(data), size):
            client.transport.write(data[at : at + size])
            await asyncio.sleep(0.03)
        for _ in range(40):
            await demo.fired.get()


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (b"\x82\x02hi", 1002, "incorrect masking"),
        (b"\xc2\x80....", 1002, "reserved bits must be 0"),
        (b"\x83\x80....", 1002, "invalid opcode"),
        (b"\x80\x80....", 1002, "unexpected continuation frame"),
        (b"\x02\x80....\x82\x80....", 1002, "expected a continuation frame"),
        (b"\x09\x80....", 1002, "fragmented control frame"),
        (b"\x89\xfe\x00\x7e...." + bytes(126), 1002, "control frame too long"),
        (b"\x88\x81....x", 1002, "close frame too short"),
        (b"\x88\x82\x00\x00\x00\x00\x03\xed", 1002, "invalid status code"),
        (b"\x88\x83\x00\x00\x00\x00\x03\xe8\xff", 1007, "invalid start byte at position 0"),
    ],
)
async def test_a_rule_of_websocket_broken(words: bytes, code: int, reason: str) -> None:
    """TR-10, among others."""
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await begun(client)
        (peer,) = server.connections
        client.transport.write(words)
        assert await close_of(client) == (code, reason)
        await peer.wait_closed()
        assert isinstance(peer.error, afflux.RemoteProtocolError)
        assert "the peer broke a rule of WebSocket: " in str(peer.error)
        async with afflux.connect(server.uri) as other:
            assert await other.request(b"others") == Payload(b"others")


async def test_a_flood_of_pings_by_one_who_does_not_read() -> None:
    """TR-10: keepalive_echoes answers wait beside what the transport holds, then nothing more is read."""
    limits = Limits.tiny()
    async with afflux.serve(WS, Demo(), limits=limits) as server, raw(server.uri) as client:
        await begun(client)
        transport = server.connections[0]._driver.state.transport
        assert transport is not None
        ping = b"\x89\xfd\x00\x00\x00\x00" + bytes(125)
        client.transport.pause_reading()
        client.transport.set_write_buffer_limits(1 << 20)
        while client.transport.get_write_buffer_size() < 1 << 20 or transport._layer.raw.is_reading():  # type: ignore
            client.transport.write(ping * 100)
            await asyncio.sleep(0)
            assert transport.get_write_buffer_size() <= limits.outbound_low_bytes + (limits.keepalive_echoes + 1) * 127
        client.transport.abort()


async def test_a_flood_of_pings_by_one_who_reads() -> None:
    async with afflux.serve(WS, Demo(), limits=Limits.tiny()) as server, raw(server.uri) as client:
        await begun(client)
        client.transport.write(b"\x89\x80...." * 20_000)
        await client.send(request(b"x", 3))
        assert await client.recv() == answer(b"x", 3)


# -- ends -------------------------------------------------------------------------------------------------------


async def test_last_words_come_before_the_close() -> None:
    """The reason of a refusal arrives, then the close, in order."""

    async def refuse(setup: object, peer: afflux.Peer) -> None:
        raise afflux.Rejected("not you")

    async with afflux.serve(WS, Demo(), on_setup=refuse) as server:
        async with raw(server.uri) as client:
            await client.send(SETUP)
            error = frames.decode(await client.recv())
            assert isinstance(error, frames.ErrorFrame) and (error.code, error.data) == (0x003, b"not you")
            assert await close_of(client) == (1000, "")
        async with afflux.connect(server.uri) as peer:
            with pytest.raises(afflux.SetupRefused, match="not you"):
                await peer.request(b"")


async def test_a_server_that_closes_announces_it() -> None:
    async with afflux.serve(WS, Demo()) as server, raw(server.uri) as client:
        await begun(client)
        closing = asyncio.ensure_future(server.close())
        assert await close_of(client) == (1000, "")
        await closing


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        (1011, "boom", r"the peer closed the WebSocket: 1011 \(boom\)"),
        (1001, "", r"the peer closed the WebSocket: 1001 \(going away\)"),
        (1009, "frame-too-large: 10 at most", r"the peer closed the WebSocket: 1009 \(frame-too-large: 10 at most\)"),
        (4321, "", "the peer closed the WebSocket: 4321$"),
        (1008, "\x1b[2J\n", r"the peer closed the WebSocket: 1008 \(\?\[2J\?\)"),
        (1000, "done", "the peer closed the connection"),
        (None, "", "the peer closed the connection"),
    ],
)
async def test_a_close_in_the_middle_fails_what_was_under_way(code: int | None, reason: str, text: str) -> None:
    """At both sides; the code and its reason reach the user."""

    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        await peer.send(frames.PayloadFrame(stream=1, next=True, data=b"first").encode())
        peer.protocol.send_close(code, reason)
        peer.transport.write(b"".join(peer.protocol.data_to_send()))

    async with library(talk) as uri, afflux.connect(uri) as peer:
        stream = peer.stream(b"", credit=5)
        assert (await anext(stream)).data == b"first"
        with pytest.raises(afflux.ConnectionClosed, match=text):
            await anext(stream)
        with pytest.raises(afflux.ConnectionClosed, match=text):
            await peer.request(b"too late")
    waits = Waits()
    async with afflux.serve(WS, waits) as server, raw(server.uri) as client:
        await client.send(SETUP)
        await client.send(request(b"x"))
        await waits.entered.get()
        (seen,) = server.connections
        client.protocol.send_close(code, reason)
        client.transport.write(b"".join(client.protocol.data_to_send()))
        assert await waits.left.get() == "request canceled"
        await seen.wait_closed()
        assert re.search(text, str(seen.error))


async def test_a_link_that_is_cut() -> None:
    """A WebSocket that ends without a close ends what was under way."""
    waits = Waits()
    async with afflux.serve(WS, waits) as server, afflux.connect(server.uri) as peer:
        waiting = asyncio.ensure_future(peer.request(b""))
        await waits.entered.get()
        server.connections[0].cut()
        with pytest.raises(afflux.ConnectionClosed):
            await waiting
        assert await waits.left.get() == "request canceled"


async def test_a_close_is_not_waited_for_without_end() -> None:
    """limits.md, flush_s."""
    limits = Limits.tiny(flush_s=0.05)
    async with afflux.serve(WS, Demo(), limits=limits) as server:
        reader, writer = await asyncio.open_connection(*where(server.uri))
        writer.write(upgrade() + b"".join(binary([memoryview(SETUP)], masked=True)))
        await reader.readuntil(b"\r\n\r\n")
        while not server.connections:
            await asyncio.sleep(0)
        await server.close()
        assert (await reader.read()).endswith(b"\x88\x02\x03\xe8")
        writer.close()


async def test_a_close_behind_a_reader_that_has_paused() -> None:
    """What came before the close is taken first, whenever that is."""

    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        for number in range(2000):
            await peer.send(frames.PayloadFrame(stream=1, next=True, data=b"%d" % number + bytes(500)).encode())
        await peer.close(1012, "restart")

    limits = Limits.tiny(connection_bytes=1 << 18)
    async with library(talk) as uri, afflux.connect(uri, limits=limits) as peer:
        stream = peer.stream(b"", credit=2000)
        got = [await anext(stream)]
        await asyncio.sleep(0.05)
        with pytest.raises(afflux.ConnectionClosed, match=r"1012 \(restart\)"):
            async for item in stream:
                got.append(item)
                if len(got) % 100 == 0:
                    await asyncio.sleep(0)
        assert [item.data.rstrip(b"\0") for item in got] == [b"%d" % number for number in range(2000)]


# -- the handshake, at a client ---------------------------------------------------------------------------------


@asynccontextmanager
async def stranger(*words: bytes, stays: bool = False) -> AsyncIterator[str]:
    """A TCP server that answers anything with the same bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        with suppress(ConnectionError):
            for piece in words:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if stays:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/here"


ANSWERS = [
    (b"", "the server closed the connection without an answer"),
    (
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\nno such page",
        "the server answered HTTP 404 Not Found: no such page",
    ),
    (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "the server answered HTTP 401 Unauthorized$"),
    (
        b"HTTP/1.1 301 Moved Permanently\r\nLocation: https://there/\r\nContent-Length: 0\r\n\r\n",
        "the server answered HTTP 301 Moved Permanently, to https://there/; redirects are not followed",
    ),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>\n<b>", "the server answered HTTP 200 OK: <html>$"),
    (b"HTTP/1.1 200 \xff\r\nContent-Length: 2\r\n\r\n\xff\x00", "the server answered HTTP 200"),
    (b"HTTP/1.1 101 Yes\r\n\r\n", "does not open a WebSocket: missing Connection header"),
    (b"HTTP/1.1 nonsense\r\n\r\n", "cannot be read, and begins with 'HTTP/1.1 nonsense'"),
    (b"HTTP/1.1 404 Not", "cannot be read, and begins with 'HTTP/1.1 404 Not'"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "the peer speaks SSH, not WebSocket, and begins with 'SSH-2.0-OpenSSH_9.6'"),
    (b"\x00\x00\x0f\n\n", "the peer does not speak WebSocket, and begins with"),
    (b"HTTP/1.1 200 OK\r\n" + (b"A: " + b"x" * 8000 + b"\r\n") * 9, "longer than 65536 bytes, and begins with 'HTTP"),
]


@pytest.mark.parametrize(("words", "text"), ANSWERS, ids=[text for _, text in ANSWERS])
async def test_a_server_that_opens_no_websocket(words: bytes, text: str) -> None:
    async with stranger(words) as uri:
        with pytest.raises(afflux.ConnectFailed, match=f"cannot connect to {uri}: .*{text}"):
            await afflux.connect(uri)
        with pytest.raises(afflux.ConnectFailed, match=f"cannot connect to {uri}: .*{text}"):
            await asyncio.to_thread(afflux.sync.connect, uri)


ANSWERS_THAT_STAY = [
    (b"HTTP/1.1 302 Found\r\nLocation: https://there/\r\n\r\n", "302 Found, to https://there/; redirects are not"),
    (b"HTTP/1.1 302 Found\r\nlocation:there\r\n\r\n<html>", "302 Found, to there; redirects are not followed"),
    (b"HTTP/1.1 307 \r\nContent-Length: 9\r\n\r\n", "HTTP 307, to nowhere; redirects are not followed"),
    (b"HTTP/1.1 308\r\n\r\n", "HTTP 308, to nowhere; redirects are not followed"),
    (b"HTTP/1.1 302 Found\nLocation: /there\n\n", "302 Found, to /there; redirects are not followed"),
    (b"HTTP/1.0 302 Found\r\nLocation: /there\r\n\r\n", "302 Found, to /there; redirects are not followed"),
    (b"HTTP/1.1 302 Found\r\nLocation: /a\x1b[2J\x00b\r\n\r\n", r"302 Found, to /a[^\x1b\x00]*b; redirects are not"),
    (b"HTTP/1.1 302 Found\r\nLocation: /" + b"x" * 20_000 + b"\r\n\r\n", "302 Found, to /x{100}"),
    (b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\n\r\n", "answered HTTP 401 Unauthorized$"),
    (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "answered HTTP 407 Proxy Authentication Required$"),
    (b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.0\r\n\r\n", "answered HTTP 426 Upgrade Required$"),
    (b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\nnot you\n", "answered HTTP 403 Forbidden"),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 90\r\n\r\nno such", "answered HTTP 404 Not Found"),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 99999999\r\n\r\nno", "answered HTTP 404 Not Found"),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: many\r\n\r\n", "answered HTTP 404 Not Found"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello", "answered HTTP 200 OK"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "answered HTTP 200 OK$"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", "answered HTTP 204 No Content$"),
    (b"HTTP/1.0 200 OK\r\n\r\n", "answered HTTP 200 OK$"),
    (
        b"HTTP/1.0 101 Yes\r\nUpgrade: websocket\r\n\r\n",
        "the server answered with HTTP/1.0, which does not support WebSocket",
    ),
    (b"HTTP/1.1 503 Busy\r\nbad header\r\n: worse\r\n\r\n", "answered HTTP 503 Busy$"),
    (b"HTTP/1.1 101 Yes\r\nbad header\r\n\r\n", "cannot be read, and begins with 'HTTP/1.1 101 Yes'"),
    (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /y\r\n\r\n", "302 Found, to /y;"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, "longer than 65536 bytes"),
    (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000, "longer than 65536 bytes, and begins with 'HTTP/1.1 200 OK'"),
    (b"HTTP/1.1 99 Low\r\n", "cannot be read, and begins with 'HTTP/1.1 99 Low'"),
    (b"HTTP/1.1 600 High\r\n", "cannot be read, and begins with 'HTTP/1.1 600 High'"),
    (b"HTTP/1.1 " + b"x" * 200, "cannot be read, and begins with 'HTTP/1.1 xxx"),
    (b"HTTP/1.1", None),
    (b"\n", "the peer does not speak WebSocket"),
]
"Of servers that leave the connection open: nothing else may be waited for. None is an answer that has not ended."
WHOLE = [
    (b"HTTP/2 200\r\n", "cannot be read, and begins with 'HTTP/2 200'"),
    (b"ICY 200 OK\r\n\r\n", "the peer does not speak WebSocket, and begins with 'ICY 200 OK'"),
    (b"\x15\x03\x03\x00\x02\x02\x0a", "the peer speaks TLS, not WebSocket"),
]
"Of these the first byte tells: what comes later is not waited for."


@pytest.mark.parametrize(
    ("words", "text", "size"),
    [
        *((*answer, size) for answer in ANSWERS_THAT_STAY for size in (1, 100_000)),
        *((*answer, 100_000) for answer in WHOLE),
    ],
)
async def test_an_answer_that_refuses_is_reported_at_once(words: bytes, text: str | None, size: int) -> None:
    """Though the server does not say where its answer ends, and does not end the connection. However it is cut."""
    if size < len(words) // 2000:
        size = 2000
    pieces = [words[i : i + size] for i in range(0, len(words), size)]
    timeout = 30.0 if text else 0.05
    async with stranger(*pieces, stays=True) as uri:
        error = text or "did not answer within 0.05 s"
        with pytest.raises(afflux.ConnectFailed, match=error):
            await afflux.connect(uri, timeout=timeout)
        error = text or "did not open a WebSocket within 0.05 s; its answer does not end, and begins with 'HTTP/1.1'"
        with pytest.raises(afflux.ConnectFailed, match=error):
            await asyncio.to_thread(afflux.sync.connect, uri, timeout=timeout)


async def test_early_hints_come_before_a_websocket() -> None:
    """RFC 8297: an informational answer is not the answer."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"

    async with afflux.serve("ws://127.0.0.1:0/here", Demo()) as server:
        port = int(server.uri.rpartition(":")[2].partition("/")[0])

        async def hinting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Between the client and the server."""
            there, back = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hints + hints)

            async def copy(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
                while some := await one.read(1000):
                    other.write(some)
                other.close()

            await asyncio.gather(copy(reader, back), copy(there, writer))

        between = await asyncio.start_server(hinting, "127.0.0.1", 0)
        async with between:
            uri = f"ws://127.0.0.1:{between.sockets[0].getsockname()[1]}/here"
            async with afflux.connect(uri) as peer:
                assert (await peer.request(b"x")).data == b"x"

            def blocking() -> None:
                with afflux.sync.connect(uri) as peer:
                    assert peer.request(b"x").data == b"x"

            await asyncio.to_thread(blocking)


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 101 Switching"])
async def test_a_server_that_takes_too_long(words: bytes) -> None:
    async with stranger(words, stays=True) as uri:
        with pytest.raises(afflux.ConnectFailed, match=r"did not answer within 0.1 s"):
            await afflux.connect(uri, timeout=0.1)
        with pytest.raises(afflux.ConnectFailed, match=r"did not open a WebSocket within 0.1 s"):
            await asyncio.to_thread(afflux.sync.connect, uri, timeout=0.1)


async def test_a_server_may_select_no_subprotocol() -> None:
    """The servers of rsocket for Python select none."""

    async def talk(peer: ServerConnection) -> None:
        assert peer.subprotocol is None
        await peer.recv()
        await peer.recv()
        await peer.send(answer(b"pong"))
        await peer.wait_closed()

    async with library(talk, None) as uri, afflux.connect(uri) as peer:
        assert await peer.request(b"ping") == Payload(b"pong")


async def test_a_server_that_selects_another_subprotocol() -> None:
    async def talk(peer: ServerConnection) -> None:
        await peer.wait_closed()

    async with library(talk, "mqtt") as uri:
        with pytest.raises(afflux.ConnectFailed, match="unsupported subprotocol: mqtt"):
            await afflux.connect(uri)


async def test_a_path_that_is_not_served() -> None:
    async with afflux.serve(WS + "/there", Demo()) as server:
        with pytest.raises(afflux.ConnectFailed, match="HTTP 404 Not Found: nothing is served at this path"):
            await afflux.connect(server.uri.replace("there", "here"))


async def test_tcp_and_websocket_do_not_mix() -> None:
    async with afflux.serve(WS, Demo()) as server, afflux.connect(server.uri.replace("ws:", "tcp:")) as peer:
        meant = rf"the peer speaks HTTP, not rsocket; did you mean {server.uri}\?"
        with pytest.raises(afflux.RemoteProtocolError, match=meant):
            await peer.request(b"")
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server:
        with pytest.raises(afflux.ConnectFailed, match="the peer speaks limit, rsocket or rsocket-draft, not WebSock"):
            await afflux.connect(server.uri.replace("tcp:", "ws:"))


async def test_a_server_that_breaks_a_rule() -> None:
    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.send("text")
        await peer.wait_closed()
        assert peer.close_code == 1003

    async with library(talk) as uri, afflux.connect(uri) as peer:
        with pytest.raises(afflux.RemoteProtocolError, match="text-message"):
            await peer.request(b"")


# -- back-pressure ----------------------------------------------------------------------------------------------


async def test_a_producer_waits_for_a_client_that_does_not_read() -> None:
    """Down to the socket: what waits is seen, the producer stops, and goes on."""
    made = 0

    class Endless:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield bytes(1000)

    async with afflux.serve(WS, Endless()) as server, raw(server.uri, max_queue=1) as client:
        await client.send(SETUP)
        await client.send(frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"").encode())
        while not server.connections or not server.connections[0]._driver.room.waiting_for_room:
            await asyncio.sleep(0.001)
        driver, stopped = server.connections[0]._driver, made
        assert driver.state.transport is not None
        unsent = driver.state.transport.get_write_buffer_size()
        assert server.limits.outbound_low_bytes <= unsent + driver.engine.queued
        assert unsent <= server.limits.outbound_high_bytes + server.limits.frame_bytes
        for _ in range(stopped + 1000):
            await client.recv()
        assert made > stopped
        client.transport.abort()


async def test_one_who_never_reads_is_given_up() -> None:
    """limits.md, write_stall_s."""
    limits = Limits.tiny(write_stall_s=0.2)
    async with afflux.serve(WS, Demo(), limits=limits) as server, raw(server.uri, max_queue=1) as client:
        await client.send(SETUP)
        await client.send(frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"1000000").encode())
        while not server.connections:
            await asyncio.sleep(0)
        (seen,) = server.connections
        client.transport.pause_reading()
        await seen.wait_closed()
        assert "write-stall" in str(seen.error)
        client.transport.abort()


async def test_a_session_goes_on_over_another_websocket() -> None:
    """Resumption: the transport of the newcomer goes to the session's driver."""
    demo = Demo()
    async with (
        afflux.serve(WS, demo, resume=True) as server,
        afflux.connect(server.uri, resume=True) as peer,
    ):
        stream = peer.stream(b"2000", credit=100)
        got = [int((await anext(stream)).data)]
        for _ in range(2):
            transport = server.connections[0]._driver.state.transport
            assert transport is not None
            transport.abort()
            got += [int((await anext(stream)).data) for _ in range(500)]
        got += [int(item.data) async for item in stream]
        assert got == list(range(2000))


# -- wss --------------------------------------------------------------------------------------------------------


async def test_the_librarys_client_over_tls(certificates: Certificates) -> None:
    async with afflux.serve("wss://127.0.0.1:0/rs", Demo(), tls=certificates.to_serve) as server:
        trust = ssl.create_default_context(cafile=certificates.ca)
        async with raw(server.uri, ssl=trust) as client:
            await begun(client)
            await client.send("text")
            assert (await close_of(client))[0] == 1003


async def test_our_clients_speak_to_the_library_over_tls(certificates: Certificates) -> None:
    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        await peer.send(answer(b"pong"))
        await peer.close(1012, "restart")

    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(certificates.server)

    def ask(peer: afflux.sync.Peer) -> None:
        assert peer.request(b"ping") == Payload(b"pong")
        with pytest.raises(afflux.ConnectionClosed, match=r"1012 \(restart\)"):
            peer.request(b"ping")

    async with library(talk, ssl=shown) as uri:
        uri = uri.replace("ws:", "wss:")
        async with afflux.connect(uri, tls=certificates.to_connect) as peer:
            assert await peer.request(b"ping") == Payload(b"pong")
            await peer.wait_closed()
            assert "1012 (restart)" in str(peer.error)
        await blocking(uri, ask, tls=certificates.to_connect)


async def test_ws_and_wss_do_not_mix(certificates: Certificates) -> None:
    async with afflux.serve("wss://127.0.0.1:0", Demo(), tls=certificates.to_serve) as server:
        plain = server.uri.replace("wss:", "ws:")
        with pytest.raises(
            afflux.ConnectFailed, match=rf"the peer speaks TLS, not WebSocket; did you mean {server.uri}\?"
        ):
            await afflux.connect(plain)
        with pytest.raises(
            afflux.ConnectFailed, match=rf"the peer speaks TLS, not WebSocket; did you mean {server.uri}\?"
        ):
            await asyncio.to_thread(afflux.sync.connect, plain)
        with pytest.raises(afflux.ConnectFailed, match="the certificate is not signed by a trusted authority"):
            await afflux.connect(server.uri)
    async with afflux.serve(WS, Demo()) as server:
        secure, trust = server.uri.replace("ws:", "wss:"), certificates.to_connect
        with pytest.raises(afflux.ConnectFailed, match="the peer does not speak TLS"):
            await afflux.connect(secure, tls=trust)
        with pytest.raises(afflux.ConnectFailed, match="the peer does not speak TLS"):
            await asyncio.to_thread(afflux.sync.connect, secure, tls=trust)


# -- the blocking client ----------------------------------------------------------------------------------------


def blocking(uri: str, work: Callable[[afflux.sync.Peer], Any], **more: Any) -> Awaitable[Any]:
    """Do something with a blocking client, in a thread."""

    def run() -> Any:
        with afflux.sync.connect(uri, **more) as peer:
            return work(peer)

    return asyncio.to_thread(run)


@pytest.mark.parametrize("size", [0, 125, 126, 65_536, 3_000_000])
async def test_blocking_verbs(size: int) -> None:
    demo = Demo()
    async with afflux.serve(WS + "/rs", demo) as server:

        def verbs(peer: afflux.sync.Peer) -> None:
            assert peer.request(bytes(size)) == Payload(bytes(size))
            assert [int(item.data) for item in peer.stream(b"1000", credit=64)] == list(range(1000))
            assert [item.data for item in peer.channel([b"a", b"b", bytes(size)])] == [b"a", b"b", bytes(size)]
            peer.fire(bytes(size))

        await blocking(server.uri, verbs)
        assert len((await demo.fired.get()).data) == size


async def test_a_blocking_client_answers_pings_and_closes_in_order() -> None:
    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        await (await peer.ping(b"there?"))
        await peer.send([answer(b"pong")[:4], answer(b"pong")[4:]])
        await peer.wait_closed()
        closed.set_result(peer.close_code)

    closed: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    async with library(talk) as uri:
        assert await blocking(uri, lambda peer: peer.request(b"ping").data) == b"pong"
        assert await closed == 1000


async def test_a_close_reaches_a_blocking_client() -> None:
    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        await peer.send(frames.PayloadFrame(stream=1, next=True, data=b"first").encode())
        await peer.close(1011, "boom")

    async with library(talk) as uri:

        def stream(peer: afflux.sync.Peer) -> None:
            items = peer.stream(b"", credit=5)
            assert next(items).data == b"first"
            with pytest.raises(afflux.ConnectionClosed, match=r"the peer closed the WebSocket: 1011 \(boom\)"):
                next(items)

        await blocking(uri, stream)


async def test_a_rule_broken_at_a_blocking_client() -> None:
    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.send("text")
        await peer.wait_closed()
        closed.set_result(peer.close_code)

    closed: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    async with library(talk) as uri:

        def ask(peer: afflux.sync.Peer) -> None:
            with pytest.raises(afflux.RemoteProtocolError, match="text-message"):
                peer.request(b"")

        await blocking(uri, ask)
        assert await closed == 1003


async def test_a_message_has_its_time_at_a_blocking_client() -> None:
    """limits.md, frame_s."""

    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        for byte in b"\x82\x7d" + bytes(100):
            if peer.transport.is_closing():
                break
            peer.transport.write(bytes((byte,)))
            await asyncio.sleep(0.01)
        await peer.wait_closed()

    async with library(talk) as uri:

        def ask(peer: afflux.sync.Peer) -> None:
            with pytest.raises(afflux.RemoteProtocolError, match="frame-timeout"):
                peer.request(b"")

        await blocking(uri, ask, limits=Limits.server(frame_s=0.1))


async def test_a_blocking_client_that_does_not_take() -> None:
    """Pings that are not read are no trouble: they wait in the sockets."""

    async def talk(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.recv()
        peer.transport.write(b"\x89\x04ping" * 20_000)
        await peer.send(answer(b"pong"))
        await peer.wait_closed()

    async with library(talk) as uri:
        assert await blocking(uri, lambda peer: peer.request(b"ping").data) == b"pong"


# -- the wire, without sockets ----------------------------------------------------------------------------------

ADDRESS = parse("ws://127.0.0.1:1/")


def opened(limits: Limits | None = None) -> tuple[ClientWire, ServerWire]:
    """Two ends of ours that have shaken hands."""
    limits = limits or Limits.server()
    client, server = ClientWire(ADDRESS, limits, secure=False), ServerWire(ADDRESS, limits)
    assert received(server, client.outgoing()) == b""
    assert received(client, server.outgoing()) == b""
    assert client.opened and server.opened
    return client, server


def received(wire: Wire, data: bytes) -> bytes:
    """The engine's bytes of one read."""
    found: list[bytes | bytearray] = []
    wire.read(data, found)
    return b"".join(found)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[one:other] for one, other in pairwise(at)]


SIZES = st.lists(st.integers(0, 300) | st.integers(0, 70_000), max_size=8)
CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)


def made(sizes: list[int]) -> list[bytes]:
    """Messages that can be told from each other."""
    return [bytes(range(number, 256 - number)) * (size // 200) + bytes(size % 200) for number, size in enumerate(sizes)]


@given(SIZES, CUTS, st.booleans())
def test_what_we_write_the_library_reads(sizes: list[int], cuts: list[int], masked: bool) -> None:
    messages = made(sizes)
    uri = parse_uri("ws://here/")
    library = ServerProtocol(max_size=None) if masked else ClientProtocol(uri, max_size=None)
    library.__init__(*(() if masked else (uri,)), state=1, max_size=None)  # type: ignore[misc] # open
    for piece in cut(b"".join(binary(map(memoryview, messages), masked=masked)), cuts):
        library.receive_data(piece)
    found = [event for event in library.events_received() if isinstance(event, Frame)]
    assert [(event.opcode, bytes(event.data), event.fin) for event in found] == [
        (Opcode.BINARY, message, True) for message in messages
    ]


@given(SIZES, CUTS, st.booleans(), st.booleans())
def test_what_the_library_writes_we_read(sizes: list[int], cuts: list[int], masked: bool, pieces: bool) -> None:
    """Whole, in pieces, in fragments, with pings between."""
    messages = made(sizes)
    client, server = opened(Limits.server(first_frame_bytes=1 << 20))
    ours: Wire = server if masked else client
    library = (client if masked else server)._library
    for message in messages:
        if pieces:
            library.send_binary(message[:10], fin=False)
            library.send_ping(b"ping")
            library.send_continuation(message[10:], fin=True)
        else:
            library.send_binary(message)
    found = b""
    for piece in cut(b"".join(library.data_to_send()), cuts):
        found += received(ours, piece)
        while ours.stopped:
            found += received(ours, b"")
    assert found == b"".join(map(framed, messages))
    assert not ours.over and not ours.midway


@given(SIZES | st.lists(st.just(100), min_size=8, max_size=20), CUTS, st.booleans())
def test_what_an_engine_writes_may_come_in_any_pieces(sizes: list[int], cuts: list[int], masked: bool) -> None:
    client, server = opened(Limits.server(first_frame_bytes=1 << 20))
    sender, receiver = (client, server) if masked else (server, client)
    stream = b"".join(map(framed, made(sizes)))
    for piece in cut(stream, cuts):
        sender.send(piece)
    assert received(receiver, sender.outgoing()) == stream


@given(SIZES | st.lists(st.just(100), min_size=8, max_size=20), CUTS, st.booleans())
def test_what_arrives_may_come_in_any_pieces(sizes: list[int], cuts: list[int], masked: bool) -> None:
    """A frame that is cut is completed by itself; several reads are joined once."""
    client, server = opened(Limits.server(first_frame_bytes=1 << 20))
    sender, receiver = (client, server) if masked else (server, client)
    stream = b"".join(map(framed, made(sizes)))
    sender.send(stream)
    found: list[bytes | bytearray] = []
    for piece in cut(sender.outgoing(), cuts):
        with memoryview(bytearray(piece)) as reused:
            receiver.read(reused, found)
            reused[:] = b"?" * len(piece)  # the buffer of a socket is used again for the next read
    assert b"".join(found) == stream
    assert not receiver.over and not receiver.midway


@given(st.lists(st.binary(max_size=50), max_size=10), st.booleans(), st.booleans())
def test_no_input_of_a_peer_raises(pieces: list[bytes], at_client: bool, shaken: bool) -> None:
    """It ends in ``over`` or waits for more, and what is kept is bounded."""
    if shaken:
        client, server = opened(Limits.tiny())
    else:
        client, server = ClientWire(ADDRESS, Limits.tiny(), secure=False), ServerWire(ADDRESS, Limits.tiny())
    wire: Wire = client if at_client else server
    for piece in pieces:
        received(wire, piece)
        wire.outgoing()
    wire.receive_eof()
    wire.outgoing()
    assert wire.over
    assert received(wire, b"more") == b""


def test_a_protocol_without_frames_uses_messages_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    jmux = Address(protocol="jmux", transport="ws", host="127.0.0.1", port=1)
    assert jmux.entry.framing is None
    limits = Limits.server()
    client, server = ClientWire(jmux, limits, secure=False), ServerWire(jmux, limits)
    received(server, client.outgoing())
    received(client, server.outgoing())
    client.send(b"any")
    client.send(b"bytes")
    assert received(server, client.outgoing()) == b"anybytes"
    server.send(b"back")
    assert received(client, server.outgoing()) == b"back"


def test_answers_to_pings_leave_in_time() -> None:
    """limits.md, keepalive_echoes: at the limit the wire stops until its answers were taken."""
    limits = Limits.tiny()
    client, server = opened(limits)
    for number in range(10):
        client._library.send_ping(b"%d" % number)
    client.send(framed(b"behind"))
    data = client.outgoing()
    assert limits.keepalive_echoes == 4
    for pongs, end in ((4, b""), (4, b""), (2, framed(b"behind"))):
        assert received(server, data) == end
        assert server.outgoing().count(b"\x8a\x01") == pongs
        data = b""
        assert server.stopped == (not end)
    for _ in range(4):
        client._library.send_ping(b"")
    received(server, client.outgoing() + b"\x82")
    assert server.stopped and not server.midway
    assert received(server, b"") == b""
    assert server.midway and not server.stopped


def test_without_the_library_it_states_what_to_install() -> None:
    code = """
import sys
sys.modules["websockets"] = None
import afflux, afflux.asgi
for connect in (afflux.connect, afflux.sync.connect):
    try:
        connect("ws://127.0.0.1:1")
    except afflux.MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == 'WebSocket needs the extra "ws": pip install "afflux[ws]"\n' * 2
