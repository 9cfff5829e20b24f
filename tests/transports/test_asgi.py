"""The ASGI application: inside Starlette, under a real uvicorn on 127.0.0.1, with our client and the library's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import afflux
from afflux import Limits, Payload
from afflux.cli.exits import code_of
from afflux.demo.responder import Responder
from afflux.protocols.rsocket import frames
from tests.aio.handlers import Demo, Waits
from tests.transports.test_websocket import SETUP, answer, close_of, http, raw, request
from tests.transports.test_wrong_protocol import WRONG_PROTOCOL, ask, ask_blocking


@asynccontextmanager
async def running(app: Any, kind: type[socket.socket] = socket.socket, **more: Any) -> AsyncIterator[str]:
    """A web server on a free port, whose socket is of this kind."""
    with kind() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, **more))
        serving = asyncio.create_task(server.serve([sock]))
        while not server.started:
            await asyncio.sleep(0)
        try:
            yield f"ws://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def mounted() -> AsyncIterator[tuple[str, Demo, afflux.asgi.App]]:
    demo = Demo()
    app = afflux.asgi.app(demo)
    async with running(Starlette(routes=[Mount("/rs", app)])) as uri:
        yield f"{uri}/rs/", demo, app


Mounted = tuple[str, Demo, "afflux.asgi.App"]


async def test_every_verb_through_a_mounted_application(mounted: Mounted) -> None:
    uri, demo, app = mounted
    async with afflux.connect(uri) as peer:
        assert await peer.request(Payload(b"x", b"y")) == Payload(b"x", b"y")
        assert [int(item.data) async for item in peer.stream(b"5000", credit=100)] == list(range(5000))

        async def source() -> AsyncIterator[bytes]:
            for number in range(1000):
                yield b"%d" % number

        assert [int(item.data) async for item in peer.channel(source(), credit=50)] == list(range(1000))
        await peer.fire(b"fired")
        await peer.push(b"pushed")
        assert await demo.fired.get() == Payload(b"fired")
        assert await demo.pushed.get() == b"pushed"
        assert await peer.request(bytes(500_000)) == Payload(bytes(500_000))
        (seen,) = app.server.connections
        assert (seen.host, seen.uri) == ("127.0.0.1", uri)
    while app.server.connections:
        await asyncio.sleep(0)


async def test_the_blocking_client(mounted: Mounted) -> None:
    def verbs() -> list[bytes]:
        with afflux.sync.connect(mounted[0]) as peer:
            return [peer.request(b"x").data, *(item.data for item in peer.stream(b"3", credit=1))]

    assert await asyncio.to_thread(verbs) == [b"x", b"0", b"1", b"2"]


async def test_the_librarys_client(mounted: Mounted) -> None:
    for offer, taken in ((["rsocket"], "rsocket"), (["mqtt", "rsocket"], "rsocket"), (None, None)):
        async with raw(mounted[0], subprotocols=offer, compression="deflate") as client:
            assert client.subprotocol == taken
            await client.send(SETUP)
            await client.send(request(b"hello"))
            assert await client.recv() == answer(b"hello")


async def test_other_subprotocols_are_refused(mounted: Mounted) -> None:
    with pytest.raises(InvalidStatus) as caught:
        await raw(mounted[0], subprotocols=["mqtt"])
    assert caught.value.response.status_code == 400
    assert b'"rsocket", and the client offers mqtt' in bytes(caught.value.response.body)


@pytest.mark.parametrize(("asked", "status"), [("", 101), ("/", 101), ("/other", 404)])
async def test_a_path_of_its_own(asked: str, status: int) -> None:
    app = afflux.asgi.app(Demo(), path="/")
    async with running(app) as uri:
        if status == 101:
            async with afflux.connect(uri + asked) as peer:
                assert await peer.request(b"x") == Payload(b"x")
        else:
            with pytest.raises(afflux.ConnectFailed, match="HTTP 404 Not Found: nothing is served at this path"):
                await afflux.connect(uri + asked)
        said = await http(uri, f"GET {asked or '/'} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 %d " % (426 if status == 101 else 404))


async def test_what_mounts_it_does_not_count_for_the_path() -> None:
    app = Starlette(routes=[Mount("/a", Starlette(routes=[Mount("/b", afflux.asgi.app(Demo(), path="/c"))]))])
    async with running(app) as uri:
        async with afflux.connect(f"{uri}/a/b/c") as peer:
            assert await peer.request(b"x") == Payload(b"x")
        with pytest.raises(afflux.ConnectFailed, match="404"):
            await afflux.connect(f"{uri}/a/b/d")


def test_a_protocol_that_does_not_exist() -> None:
    with pytest.raises(afflux.AddressError, match='unknown protocol "rsoket"; did you mean "rsocket"'):
        afflux.asgi.app(Demo(), protocol="rsoket")
    with pytest.raises(afflux.AddressError, match='unknown protocol "nonsense"; known: jmux, '):
        afflux.asgi.app(Demo(), protocol="nonsense")


@pytest.mark.parametrize(
    ("server", "client"), [("rsocket", "jmux"), ("jmux", "rsocket"), ("reactivesocket", "rsocket"), ("limit", "rsio")]
)
async def test_a_client_of_another_protocol_is_told_both(server: str, client: str) -> None:
    async with running(afflux.asgi.app(Responder(), protocol=server)) as uri:
        with pytest.raises(afflux.Error) as caught:
            async with asyncio.timeout(30), afflux.connect(f"{client}+{uri}") as peer:
                await ask(peer, client)
        with pytest.raises(afflux.Error) as blocking:
            await asyncio.to_thread(ask_blocking, f"{client}+{uri}", client)
    for error in (caught.value, blocking.value):
        assert error.message.endswith(f"the peer speaks {server}, not {client}")
        assert code_of(error) == WRONG_PROTOCOL


async def test_a_browser_gets_a_sentence(mounted: Mounted) -> None:
    said = await http(mounted[0], b"GET /rs/ HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 426 ") and b"upgrade: websocket" in head.lower()
    assert body == b"this is a WebSocket: connect to it with a WebSocket client\n"


async def test_a_full_server_takes_no_more() -> None:
    app = afflux.asgi.app(Demo(), limits=Limits.tiny(connections=1))
    async with running(app) as uri, afflux.connect(uri) as peer:
        await peer.request(b"x")
        with pytest.raises(afflux.ConnectFailed, match=r"HTTP 503 .*: too-many-connections: connections=1$"):
            await afflux.connect(uri)


async def test_a_client_is_decided_about() -> None:
    async def refuse(setup: object, peer: afflux.Peer) -> None:
        raise afflux.Rejected("not you")

    async with running(afflux.asgi.app(Demo(), on_setup=refuse)) as uri, raw(uri) as client:
        await client.send(SETUP)
        error = frames.decode(await client.recv())
        assert isinstance(error, frames.ErrorFrame) and error.data == b"not you"
        assert await close_of(client) == (1000, "")


async def test_a_text_message(mounted: Mounted) -> None:
    async with raw(mounted[0]) as client:
        await client.send(SETUP)
        await client.send("text")
        assert await close_of(client) == (1003, "text-message: frames travel in binary messages")


@pytest.mark.parametrize("first", [True, False])
async def test_a_message_that_is_too_large(first: bool) -> None:
    limits = Limits.tiny()
    most, word = (limits.first_frame_bytes, "first-") if first else (limits.frame_bytes, "")
    async with running(afflux.asgi.app(Demo(), limits=limits)) as uri, raw(uri) as client:
        if not first:
            await client.send(SETUP)
            await client.send(request(bytes(most - 6)))
            await client.recv()
        await client.send(bytes(most + 1))
        told = f"{word}frame-too-large: {most + 1} bytes exceed {word.replace('-', '_')}frame_bytes={most}"
        assert await close_of(client) == (1009, told)


@pytest.mark.parametrize("above", [0, 1])
async def test_a_length_that_counts_itself(above: int) -> None:
    """limits.md, first_frame_bytes, in ReactiveSocket: less by the four bytes that a length counts of itself."""
    from afflux.protocols.reactivesocket import frames as early

    limits = Limits.tiny()
    size = limits.first_frame_bytes - 4 + above - early.Setup(keepalive_ms=20_000).encoded_size
    mounted = afflux.asgi.app(Demo(), limits=limits, protocol="reactivesocket")
    async with running(mounted) as uri, raw(uri) as client:
        await client.send(early.Setup(keepalive_ms=20_000, data=bytes(size)).encode())
        if above:
            most = limits.first_frame_bytes
            told = f"first-frame-too-large: {most + 1} bytes exceed first_frame_bytes={most}"
            assert await close_of(client) == (1009, told)
        else:
            await client.send(early.RequestResponse(stream=2, data=b"q").encode())
            await client.recv()


async def test_a_close_fails_what_was_under_way() -> None:
    waits = Waits()
    app = afflux.asgi.app(waits)
    async with running(app) as uri, raw(uri) as client:
        await client.send(SETUP)
        await client.send(request(b"x"))
        await waits.entered.get()
        (seen,) = app.server.connections
        await client.close(1011, "boom")
        assert await waits.left.get() == "request canceled"
        await seen.wait_closed()
        assert str(seen.error) == "the peer closed the WebSocket: 1011 (boom)"


async def test_a_client_that_vanishes() -> None:
    waits = Waits()
    async with running(afflux.asgi.app(waits)) as uri, raw(uri) as client:
        await client.send(SETUP)
        await client.send(request(b"x"))
        await waits.entered.get()
        client.transport.abort()
        assert await waits.left.get() == "request canceled"


async def test_half_a_handshake_has_its_time() -> None:
    app = afflux.asgi.app(Demo(), limits=Limits.server(handshake_s=0.05))
    async with running(app) as uri, raw(uri) as client:
        with pytest.raises(ConnectionClosed):
            await client.recv()
    assert app.server.connections == ()


async def test_the_web_server_ends() -> None:
    """uvicorn closes its WebSockets, then tells the application."""
    waits = Waits()
    app = afflux.asgi.app(waits)
    async with running(app) as uri:
        peer = await afflux.connect(uri)
        waiting = asyncio.ensure_future(peer.request(b"x"))
        await waits.entered.get()
    with pytest.raises(afflux.ConnectionClosed, match=r"1012 \(service restart\)"):
        await waiting
    assert app.server.connections == ()


async def test_the_application_closes() -> None:
    app = afflux.asgi.app(Demo())
    async with running(app) as uri, raw(uri) as client:
        await client.send(SETUP)
        await client.send(request(b"x"))
        await client.recv()
        await app.close()
        assert await close_of(client) == (1000, "")


async def test_a_client_that_does_not_read() -> None:
    """Back-pressure comes through uvicorn: the producer stops, and goes on."""
    made = 0

    class Endless:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield bytes(1000)

    app = afflux.asgi.app(Endless())
    async with running(app) as uri, ws_connect(uri, max_queue=1, compression=None, proxy=None) as client:
        await client.send(SETUP)
        await client.send(frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"").encode())
        while not app.server.connections or not app.server.connections[0]._driver.room.waiting_for_room:
            await asyncio.sleep(0)
        driver, limits, stopped = app.server.connections[0]._driver, app.server.limits, made
        assert driver.state.transport is not None
        assert driver.state.transport.get_write_buffer_size() + driver.engine.queued >= limits.outbound_low_bytes
        for _ in range(stopped + 1000):
            await client.recv()
        assert made > stopped
        client.transport.abort()


# -- the contract of ASGI, without a web server ------------------------------------------------------------------


class Caller:
    """An ASGI server by hand, to reach what uvicorn does not do."""

    def __init__(self, **scope: Any) -> None:
        self.scope = {"type": "websocket", "path": "/", "subprotocols": [], "client": ("1.2.3.4", 5)} | scope
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.said: list[Any] = []
        self.received = 0
        self.ready = asyncio.Event()
        self.ready.set()
        self.inbox.put_nowait({"type": "websocket.connect"})

    def message(self, data: bytes | None) -> None:
        self.inbox.put_nowait({"type": "websocket.receive", "bytes": data})

    async def receive(self) -> dict[str, Any]:
        self.received += 1
        return await self.inbox.get()

    async def send(self, message: Any) -> None:
        await self.ready.wait()
        self.said.append(message)

    async def until(self, count: int) -> None:
        while len(self.said) < count:
            await asyncio.sleep(0)


async def test_a_server_without_the_extension_for_refusals() -> None:
    for app, scope, code in (
        (afflux.asgi.app(Demo(), path="/there"), {}, 1008),
        (afflux.asgi.app(Demo()), {"subprotocols": ["mqtt"]}, 1008),
        (afflux.asgi.app(Demo(), limits=Limits.tiny(connections=0)), {"client": None}, 1013),
    ):
        caller = Caller(**scope)
        await app(caller.scope, caller.receive, caller.send)
        (said,) = caller.said
        assert (said["type"], said["code"]) == ("websocket.close", code) and 0 < len(said["reason"]) <= 123


async def test_a_lifespan_of_its_own() -> None:
    caller = Caller(type="lifespan")
    caller.inbox = asyncio.Queue()
    for event in ("startup", "shutdown"):
        caller.inbox.put_nowait({"type": f"lifespan.{event}"})
    await afflux.asgi.app(Demo())(caller.scope, caller.receive, caller.send)
    assert [said["type"] for said in caller.said] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_nothing_is_received_while_the_driver_takes_nothing() -> None:
    app = afflux.asgi.app(Demo())
    caller = Caller()
    call = asyncio.ensure_future(app(caller.scope, caller.receive, caller.send))
    caller.message(SETUP)
    caller.message(request(b"x"))
    await caller.until(2)
    driver = app.server.connections[0]._driver
    assert driver.state.transport is not None
    driver.state.transport.pause_reading()
    before = caller.received
    for number in range(100):
        caller.message(request(b"x", 3 + 2 * number))
    for _ in range(50):
        await asyncio.sleep(0)
    assert caller.received == before and caller.inbox.qsize() == 99 and len(caller.said) == 2
    driver.state.transport.resume_reading()
    await caller.until(102)
    caller.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await call


async def test_a_send_that_waits_stops_the_producer_and_is_given_up() -> None:
    """limits.md, write_stall_s."""
    limits = Limits.tiny(write_stall_s=0.2)
    demo = Demo()
    app = afflux.asgi.app(demo, limits=limits)
    caller = Caller()
    call = asyncio.ensure_future(app(caller.scope, caller.receive, caller.send))
    caller.message(SETUP)
    await caller.until(1)
    caller.ready.clear()
    caller.message(frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"100000").encode())
    await call
    assert 0 < demo.made < 100_000
    (accepted,) = caller.said
    assert accepted["type"] == "websocket.accept"


@pytest.mark.parametrize(("error", "told"), [(OSError("gone"), False), (RuntimeError("a bug"), True)])
@pytest.mark.parametrize("accepted", [False, True])
async def test_a_web_server_that_breaks(
    error: Exception, told: bool, accepted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = afflux.asgi.app(Demo())
    caller = Caller()
    sent = caller.send

    async def breaks(message: Any) -> None:
        if len(caller.said) < accepted:
            return await sent(message)
        raise error

    call = asyncio.ensure_future(app(caller.scope, caller.receive, breaks))
    caller.message(SETUP)
    caller.message(request(b"x"))
    await call
    while app.server.connections:
        await asyncio.sleep(0)
    assert ("a bug" in caplog.text) == told


async def test_a_call_that_is_canceled() -> None:
    app = afflux.asgi.app(Demo())
    caller = Caller()
    call = asyncio.ensure_future(app(caller.scope, caller.receive, caller.send))
    caller.message(SETUP)
    await caller.until(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while app.server.connections:
        await asyncio.sleep(0)
