"""End to end over real sockets: asyncio and blocking clients, servers, publishers on both sides, the demo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import reactive
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.demo.responder import Responder
from afflux.protocols.rsio.codes import UNBOUNDED
from tests.cli.running import Server
from tests.cli.running import afflux as command
from tests.reactive.probes import Probe, until

pytestmark = pytest.mark.repetitive

TRANSPORTS = {
    "tcp": "rsio+tcp://127.0.0.1:0",
    "ws": "rsio+ws://127.0.0.1:0/feed",
    "unix": "rsio+unix://{path}/rsio.sock",
    "mem": "rsio+mem://rsio",
}


class Prices:
    """A handler that has publishers."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def element_size(self, publisher: str) -> int:
        return 4 if publisher == "four" else 0

    async def stream(self, payload: Payload) -> AsyncIterator[Any]:
        name = payload.text
        try:
            if name == "large":
                yield b"x" * 300_000
            elif name == "four":
                yield [b"%04d" % i for i in range(3000)]
            elif name == "endless":
                number = 0
                while True:
                    yield b"%d" % number
                    number += 1
            elif name == "fails":
                yield b"one"
                raise afflux.ApplicationError(message="told to fail")
            elif name == "wrong":
                yield b"1234"
            elif name == "mine":
                async for item in afflux.current_peer().stream(b"client's", credit=2):
                    yield item
            else:
                raise afflux.Rejected("unknown-publisher")
        finally:
            self.closed.set()


@pytest.fixture(params=TRANSPORTS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[afflux.Server]:
    async with afflux.serve(TRANSPORTS[request.param].format(path=tmp_path), Prices()) as server:
        yield server


@pytest.fixture
async def peer(server: afflux.Server) -> AsyncIterator[afflux.Peer]:
    async with afflux.connect(server.uri) as peer:
        yield peer


async def test_elements_of_a_size_and_of_any(peer: afflux.Peer) -> None:
    assert [item.data async for item in peer.subscribe("four", credit=100)] == [b"%04d" % i for i in range(3000)]
    assert [len(item) async for item in peer.subscribe("large")] == [300_000]


async def test_errors(peer: afflux.Peer) -> None:
    """R-20, R-32: what was made before the error arrives before it."""
    items = peer.subscribe("fails")
    assert (await anext(items)).data == b"one"
    with pytest.raises(afflux.ApplicationError, match="told to fail"):
        await anext(items)
    with pytest.raises(afflux.Rejected, match="unknown-publisher"):
        await anext(peer.subscribe("nobody"))
    with pytest.raises(afflux.Unsupported, match='rsio has no "request"; it offers: stream'):
        await peer.request(b"x")
    with pytest.raises(afflux.Unsupported, match="no metadata"):
        await anext(peer.stream(b"four", metadata=b"m"))


async def test_leaving_early_cancels(peer: afflux.Peer, server: afflux.Server) -> None:
    async with peer.subscribe("endless", credit=8) as items:
        async for item in items:
            if item.data == b"1000":
                break
    stream: Any = server._verbs["stream"]
    handler: Prices = stream.__self__
    await handler.closed.wait()


async def test_demand_by_hand_up_to_all_numbers(peer: afflux.Peer) -> None:
    """R-24: 2^63-1 is without bound."""
    async with peer.subscribe("four", credit=0) as items:
        items.request(1)
        assert (await anext(items)).data == b"0000"
        assert items.limited_by() == "credit"
        items.request(UNBOUNDED)
        assert len([item async for item in items]) == 2999
        with pytest.raises(afflux.LocalProtocolError, match=f"1 to {UNBOUNDED}"):
            items.request(UNBOUNDED + 1)


async def test_both_sides_publish(server: afflux.Server) -> None:
    """R-18: the server subscribes to a publisher of its client, in the middle of publishing."""

    class Client:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            for word in payload.data.split(b"'"):
                yield word

    async with afflux.connect(server.uri, handler=Client()) as peer:
        assert [item.data async for item in peer.subscribe("mine")] == [b"client", b"s"]


async def test_both_know_the_extensions(peer: afflux.Peer) -> None:
    await anext(peer.subscribe("four"))
    engine: Any = peer._driver.engine
    assert engine.connection.agreed == {12, 14}


@pytest.mark.parametrize(("left_out", "used"), [("no-split", {14}), ("no-split,no-goodbye-ack", set())])
async def test_extensions_that_are_left_out(server: afflux.Server, left_out: str, used: set[int]) -> None:
    """I-3, I-4: for a peer that means something else by their numbers."""
    mark = "&" if "?" in server.uri else "?"
    async with afflux.connect(f"{server.uri}{mark}dialect={left_out}") as peer:
        assert [item.data async for item in peer.subscribe("four")]
        engine: Any = peer._driver.engine
        assert engine.connection.agreed == used


async def test_a_server_decides_who_may_come_in() -> None:
    async def nobody(setup: Any, peer: afflux.Peer) -> None:
        raise afflux.Rejected("not today")

    refused = pytest.raises(afflux.SetupRefused, match="not today")
    async with afflux.serve(TRANSPORTS["tcp"], Prices(), on_setup=nobody) as server, afflux.connect(server.uri) as peer:
        with refused:
            await anext(peer.subscribe("four"))


async def test_draining(server: afflux.Server) -> None:
    async with afflux.connect(server.uri) as peer:
        items = peer.subscribe("four", credit=0)
        items.request(1)
        await anext(items)
        closing = asyncio.ensure_future(server.close(drain=5.0))
        items.request(UNBOUNDED)
        assert len([item async for item in items]) == 2999
        await closing
        assert peer.error is None


async def test_a_server_that_goes(server: afflux.Server) -> None:
    """R-45."""
    async with afflux.connect(server.uri) as peer:
        items = peer.subscribe("endless", credit=4)
        await anext(items)
        closing = asyncio.ensure_future(server.close())
        with pytest.raises(afflux.ConnectionClosed):
            async for _ in items:
                pass
        await closing


async def test_many_at_once(peer: afflux.Peer) -> None:
    async def take(name: str) -> int:
        return len([item async for item in peer.subscribe(name, credit=16)])

    assert await asyncio.gather(*(take(name) for name in ("four", "large") * 20)) == [3000, 1] * 20


async def test_reactive_streams(peer: afflux.Peer) -> None:
    """A subscription of the wire is one of Reactive Streams: no element without demand, and an end without."""
    probe = Probe()
    reactive.stream(peer, "four").subscribe(probe)
    probe.request(3)
    await until(lambda: len(probe.items) == 3)
    probe.request(UNBOUNDED)
    await until(lambda: probe.ended is not None)
    assert (len(probe.items), probe.ended) == (3000, "on_complete")


@pytest.mark.parametrize("name", ["tcp", "ws", "unix"])
async def test_a_blocking_client(name: str, tmp_path: Path) -> None:
    def use(uri: str) -> None:
        with afflux.sync.connect(uri) as peer:
            assert [item.data for item in peer.subscribe("four")] == [b"%04d" % i for i in range(3000)]
            blocks: Any = peer.subscribe("four").blocks()
            assert sum(len(block.starts) for block in blocks) == 3000
            for number, item in enumerate(peer.subscribe("endless", credit=4)):
                assert item.data == b"%d" % number
                if number == 50:
                    break
            with pytest.raises(afflux.ApplicationError, match="told to fail"):
                list(peer.subscribe("fails"))
            with pytest.raises(afflux.Unsupported, match='no "fire"'):
                peer.fire(b"x")

    async with afflux.serve(TRANSPORTS[name].format(path=tmp_path), Prices()) as server:
        await asyncio.to_thread(use, server.uri)


async def test_subscribe_is_of_protocols_with_publishers() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Prices()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Unsupported, match='rsocket has no "subscribe"'):
            peer.subscribe("four")

        def use() -> None:
            with afflux.sync.connect(server.uri) as peer, pytest.raises(afflux.Unsupported):
                peer.subscribe("four")

        await asyncio.to_thread(use)


async def test_the_demo() -> None:
    """The publisher ``count:N:SIZE``, its elements packed; and what has another name."""
    async with afflux.serve(TRANSPORTS["tcp"], Responder()) as server, afflux.connect(server.uri) as peer:
        assert [item.data async for item in peer.subscribe("count:12:4")] == [
            b"%d" % i + b"." * (3 - i // 10) for i in range(12)
        ]
        assert [item.data async for item in peer.subscribe('{"count": 2}')] == [b"0", b"1"]
        with pytest.raises(afflux.ApplicationError, match="count:10:16"):
            await anext(peer.subscribe("nobody"))


def test_the_command_line() -> None:
    with Server("--demo", uri=TRANSPORTS["tcp"]) as server:
        result = command(f"request {server.uri} --stream -d count:3:5 -o ndjson")
        assert (result.returncode, result.stdout.split()) == (0, [f'{{"data":"{i}...."}}' for i in range(3)])
        result = command(f"request {server.uri} -d x")
        assert result.returncode == 2 and 'rsio has no "request"; it offers: stream' in result.stderr
        assert server.stop()[0] in (0, 130)


async def test_strangers_are_closed() -> None:
    """HS-01, HS-23 over sockets: silence, and something else."""
    limits = Limits.server().replace(handshake_s=0.05)
    async with afflux.serve(TRANSPORTS["tcp"], Prices(), limits=limits) as server:
        host, port = server.uri.rpartition("/")[2].split(":")
        for said in (b"", b"\x05\x01", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            heard = await reader.read()
            assert heard.startswith(b"\x02\x00\x02\x0c\x0e")
            writer.close()
            await writer.wait_closed()
