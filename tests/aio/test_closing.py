"""How connections begin and end: in order, drained, refused, cut, silent; and what everyone hears of it."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import afflux
from afflux import Limits, Payload
from tests.aio.handlers import Demo, Waits, turns

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Stranger:
    """A TCP server that is no RSocket peer."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    async def __aenter__(self) -> str:
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in self._tasks if task is not None), return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            await self._talk(reader, writer)
        except asyncio.CancelledError:
            pass  # by __aexit__
        finally:
            writer.close()


async def test_a_drained_close_lets_streams_end(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server:
        peer = await afflux.connect(server.uri)
        request = asyncio.ensure_future(peer.request(b"x"))
        await waits.entered.get()
        closing = asyncio.ensure_future(peer.close(drain=True))
        await turns()
        with pytest.raises(afflux.ConnectionClosed):
            await peer.request(b"too late")
        waits.go.set()
        assert await request == Payload(b"x")
        await closing
        assert (peer.closed, peer.error) == (True, None)


async def test_a_drained_close_has_a_time(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        request = asyncio.ensure_future(peer.request(b"x"))
        await waits.entered.get()
        await peer.close(drain=0.01)
        with pytest.raises(afflux.ConnectionClosed):
            await request


async def test_a_server_drains(uri: str) -> None:
    waits = Waits()
    server = await afflux.serve(uri, waits)
    async with afflux.connect(server.uri) as peer:
        request = asyncio.ensure_future(peer.request(b"x"))
        await waits.entered.get()
        closing = asyncio.ensure_future(server.close(drain=True))
        await turns(20)
        assert not closing.done()
        with pytest.raises(afflux.Error):
            await peer.request(b"too late")
        waits.go.set()
        assert await request == Payload(b"x")
        await closing
        await server.wait_closed()


async def test_what_was_fired_before_a_close_arrives(uri: str) -> None:
    """A close must not reset the connection before the peer has read, though the server streams at us."""
    demo = Demo()
    async with afflux.serve(uri, demo) as server:
        for _i in range(20):
            async with afflux.connect(server.uri) as peer:
                stream = peer.stream(b"100000000", credit=10000)
                await anext(stream)
                for _ in range(50):
                    await peer.fire(bytes(1000))
            for _ in range(50):
                await demo.fired.get()


async def test_the_end_of_a_connection_reaches_everyone_once(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        requests = [asyncio.ensure_future(peer.request(b"")) for _ in range(3)]
        stream = peer.stream()
        assert (await anext(stream)).data == b"first"
        waiting = asyncio.ensure_future(anext(stream))

        async def source() -> AsyncIterator[bytes]:
            yield b""
            await asyncio.Event().wait()

        for _ in range(4):
            await waits.entered.get()
        server.connections[0].cut()
        for task in (*requests, waiting):
            with pytest.raises(afflux.ConnectionClosed):
                await task
        with pytest.raises(afflux.ConnectionClosed):
            await peer.request(b"")
        with pytest.raises(afflux.ConnectionClosed):
            await peer.fire(b"")
        with pytest.raises(afflux.ConnectionClosed):
            peer.stream(b"")
        await peer.wait_closed()


async def test_a_peer_that_dies_in_the_middle_of_an_item() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(100)
        writer.write(bytes.fromhex("000010 00000001 2820") + b"half")
        await writer.drain()

    async with Stranger(half) as uri, afflux.connect(uri) as peer:
        with pytest.raises(afflux.ConnectionClosed):
            async with asyncio.timeout(5):
                [item async for item in peer.stream(b"x" * 100)]


async def test_a_client_is_refused_with_a_reason(uri: str) -> None:
    async def refuse(setup: object, peer: afflux.Peer) -> None:
        await asyncio.sleep(0)
        raise afflux.Rejected("not you")

    demo = Demo()
    async with afflux.serve(uri, demo, on_setup=refuse) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.SetupRefused, match="not you") as caught:
            await peer.request(b"")
        assert caught.value.code == 0x003
        await peer.wait_closed()
        assert isinstance(peer.error, afflux.SetupRefused)


async def test_a_bug_in_on_setup_refuses_without_a_word(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async def bug(setup: object, peer: afflux.Peer) -> None:
        raise KeyError("a secret")

    async with afflux.serve(uri, Demo(), on_setup=bug) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.SetupRefused) as caught:
            await peer.request(b"")
        assert "secret" not in str(caught.value)
    assert "on_setup raised" in caplog.text


async def test_nothing_is_served_before_the_decision(uri: str) -> None:
    """HS-16."""
    go = asyncio.Event()
    seen: list[object] = []

    async def decide(setup: object, peer: afflux.Peer) -> None:
        seen.append((setup, peer.setup is setup))
        await go.wait()

    demo = Demo()
    async with afflux.serve(uri, demo, on_setup=decide) as server, afflux.connect(server.uri) as peer:
        for i in range(10):
            await peer.fire(b"%d" % i)
        request = asyncio.ensure_future(peer.request(b"x"))
        await turns(50)
        assert demo.fired.empty()
        assert [same for _, same in seen] == [True]  # type: ignore[misc] # tuples
        go.set()
        assert await request == Payload(b"x")
        assert demo.fired.qsize() == 10


async def test_an_acceptor_that_never_decides(uri: str) -> None:
    async def never(setup: object, peer: afflux.Peer) -> None:
        await asyncio.Event().wait()

    limits = Limits.server(handshake_s=0.05)
    async with (
        afflux.serve(uri, Demo(), on_setup=never, limits=limits) as server,
        afflux.connect(server.uri) as peer,
    ):
        with pytest.raises(afflux.SetupRefused, match="handshake-timeout"):
            await peer.request(b"")


async def test_a_silent_client_is_closed() -> None:
    """HS-01."""
    limits = Limits.server(handshake_s=0.05)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        reader, writer = await asyncio.open_connection(*server.uri.removeprefix("tcp://").split(":"))
        assert await reader.read() == b""
        writer.close()
        await turns()
        assert server.connections == ()


async def test_a_server_that_falls_silent_is_given_up() -> None:
    """SL-05."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Stranger(silent) as uri, afflux.connect(uri, keepalive=0.02, lifetime=0.1) as peer:
        with pytest.raises(afflux.ConnectionClosed, match="keepalive-timeout"):
            await peer.request(b"")


async def test_keepalives_keep_an_idle_connection() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Demo()) as server,
        afflux.connect(server.uri, keepalive=0.1, lifetime=0.8) as peer,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await peer.wait_closed()
        assert await peer.request(b"x") == Payload(b"x")


async def test_a_half_close_is_a_close() -> None:
    """SL-03."""
    demo = Demo()
    async with afflux.serve("tcp://127.0.0.1:0", demo) as server:
        peer = await afflux.connect(server.uri)
        stream = peer.stream(b"1000000000", credit=100)
        await anext(stream)
        transport = peer._driver.state.transport
        assert transport is not None
        transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        with pytest.raises(afflux.ConnectionClosed):
            while True:
                await anext(stream)
        await peer.close()
        await turns()
        assert (demo.closed, server.connections) == (1, ())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    ],
)
async def test_a_peer_that_speaks_something_else_is_named(words: bytes, name: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)
        await reader.read()

    async with Stranger(talk) as uri, afflux.connect(uri) as peer:
        with pytest.raises(afflux.RemoteProtocolError, match=f"the peer speaks {name}, not rsocket"):
            await peer.request(b"")


async def test_a_peer_that_speaks_nonsense() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff" * 1000)
        await reader.read()

    async with Stranger(talk) as uri, afflux.connect(uri) as peer:
        with pytest.raises(afflux.Error):
            await peer.request(b"")
        await peer.wait_closed()
        assert isinstance(peer.error, afflux.RemoteProtocolError)


async def test_a_peer_that_hangs_up_at_once() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    async with Stranger(talk) as uri, afflux.connect(uri) as peer:
        with pytest.raises(afflux.ConnectionClosed):
            await peer.request(b"")


async def test_no_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(afflux.ConnectFailed, match=rf"cannot connect to tcp://127.0.0.1:{port}: refused"):
            await afflux.connect(f"tcp://127.0.0.1:{port}")
    with pytest.raises(afflux.ConnectFailed, match="no listener of that name"):
        await afflux.connect("mem://nobody")


async def test_a_host_that_is_not_known() -> None:
    with pytest.raises(afflux.ConnectFailed, match="unknown host name"):
        await afflux.connect("tcp://no-such-host.invalid:7000")


async def test_a_connection_that_takes_too_long() -> None:
    """A listener whose queue is full does not answer."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        with pytest.raises(afflux.ConnectFailed, match=r"did not answer within 0.1 s"):
            await afflux.connect(f"tcp://127.0.0.1:{address[1]}", timeout=0.1)
        for filler in fillers:
            filler.close()


async def test_a_port_in_use(uri: str) -> None:
    async with afflux.serve(uri, Demo()) as server:
        with pytest.raises(afflux.BindFailed, match="in use"):
            await afflux.serve(server.uri, Demo())
    async with afflux.serve(server.uri, Demo()):
        pass


async def test_a_peer_that_does_not_read_is_given_up() -> None:
    """FL-06, SL-01: after write_stall_s."""
    limits = Limits.server(write_stall_s=0.1)
    demo = Demo()
    async with (
        afflux.serve("tcp://127.0.0.1:0", demo, limits=limits) as server,
        afflux.connect(server.uri) as peer,
        peer.stream(b"1000000000", credit=0x7FFFFFFF) as stream,
    ):
        await anext(stream)
        transport = peer._driver.state.transport
        assert transport is not None
        transport.pause_reading()
        guest = server.connections[0]
        await guest.wait_closed()
        assert "write-stall" in str(guest.error)
        assert demo.closed == 1


async def test_listener_limits() -> None:
    """Too many are closed before a byte is read; those who are in go on."""
    limits = Limits.tiny(connections=3, connections_per_address=2)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        async with afflux.connect(server.uri) as one, afflux.connect(server.uri) as two:
            await one.request(b"")
            await two.request(b"")
            async with afflux.connect(server.uri) as three:
                with pytest.raises(afflux.ConnectionClosed):
                    await three.request(b"")
            assert len(server.connections) == 2
            assert await one.request(b"x") == Payload(b"x")
        while server.connections:
            await turns()
        async with afflux.connect(server.uri) as four:
            await four.request(b"")


async def test_the_oldest_half_handshake_goes() -> None:
    """HS-27."""
    limits = Limits.tiny(half_handshakes=2, connections_per_address=None, handshake_s=1)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        host, port = server.uri.removeprefix("tcp://").split(":")
        silent = [await asyncio.open_connection(host, port) for _ in range(3)]
        try:
            assert await silent[0][0].read() == b""
        except ConnectionResetError:
            pass
        async with afflux.connect(server.uri) as peer:
            assert await peer.request(b"x") == Payload(b"x")
        for _, writer in silent:
            writer.close()


async def test_accepts_have_a_rate() -> None:
    limits = Limits.tiny(accepts_per_s=20, connections_per_address=None)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), limits=limits) as server:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for _ in range(24):
            async with afflux.connect(server.uri) as peer:
                await peer.request(b"")
        assert loop.time() - start > 0.1


async def test_a_server_does_not_hang_on_a_handler_that_ignores_it(caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    class Stubborn:
        async def request(self, payload: Payload) -> Payload:
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    pass
            return payload

    limits = Limits.server(stop_s=0.01, flush_s=0.01)
    async with afflux.serve("mem://stubborn", Stubborn(), limits=limits) as server:
        async with afflux.connect(server.uri) as peer:
            request = asyncio.ensure_future(peer.request(b""))
            await turns(10)
    with pytest.raises(afflux.ConnectionClosed):
        await request
    assert "ignores that it was canceled" in caplog.text
    go.set()
    await turns()


async def test_uvloop_runs_it_too() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def work() -> int:
        async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
            await peer.request(b"")
            return len([item async for item in peer.stream(b"5000")])

    def run() -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())

    assert await asyncio.get_running_loop().run_in_executor(None, run) == 5000


async def test_a_burst_of_small_frames_leaves_turns_to_others() -> None:
    """FR-28: a pass over the input ends after about loop_ms; the rest of what was read waits its turn."""
    demo = Demo()
    async with (
        afflux.serve("tcp://127.0.0.1:0", demo, limits=Limits.server(loop_ms=0.2)) as server,
        afflux.connect(server.uri) as peer,
    ):
        await peer.request(b"")
        guest = server.connections[0]._driver
        pushes = b"\x00\x00\x07\x00\x00\x00\x00\x31\x00x" * 20_000
        turns_taken = 0
        guest.pump.data_received(pushes)
        while guest.input.held:
            assert not guest.input.reading
            turns_taken += 1
            await asyncio.sleep(0)
        assert turns_taken > 5
        assert await peer.request(b"x") == Payload(b"x")
        for _ in range(20_000):
            assert await demo.pushed.get() == b"x"
        assert guest.input.reading


async def test_draining_ends_in_time_though_a_stream_does_not(uri: str) -> None:
    """A number of seconds is kept, by a server as by a peer."""

    class Endless:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            while True:
                yield b"tick"

    server = await afflux.serve(uri, Endless())
    peer = await afflux.connect(server.uri)
    stream = peer.stream(credit=4)
    await anext(stream)
    async with asyncio.timeout(30):
        await server.close(drain=0.05)
    with pytest.raises(afflux.ConnectionClosed):
        async for _ in stream:
            pass
    await peer.close()
