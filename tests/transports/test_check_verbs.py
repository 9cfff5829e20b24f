"""The transport check, its upper half: the verbs, errors and faults over every transport, from both sides of afflux."""

# ruff: noqa: SIM117 -- a server, a client, then what happens: the nesting is the story

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.testing import Faults, Proxy
from afflux.transports.address import parse
from tests.aio.handlers import Demo
from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, Kind, Place, turns_until

every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
blocking = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.blocking], ids=lambda kind: kind.name)
sockets = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.sockets], ids=lambda kind: kind.name)

LARGE = bytes(range(256)) * 4096


@pytest.fixture
def place(kind: Kind, tmp_path: Path, certificates: Certificates) -> Place:
    return Place(kind, tmp_path, certificates)


class Large(Demo):
    """Streams large items."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """``b"N"``: so many items of 10,000 bytes."""
        try:
            for i in range(int(payload.data)):
                self.made += 1
                yield b"%d" % i * (10_000 // len(b"%d" % i))
        finally:
            self.closed += 1


# -- the five verbs -----------------------------------------------------------------------------------------------


@every
async def test_the_five_verbs(place: Place) -> None:
    demo = Demo()
    async with place.serve(demo) as server, place.connect(server.uri, handler=Demo()) as peer:
        assert await peer.request(b"ping") == Payload(b"ping")
        assert (await peer.request(Payload(LARGE, b"m"))) == Payload(LARGE, b"m")
        await peer.fire(b"line")
        assert (await demo.fired.get()).data == b"line"
        await peer.push(b"about")
        assert await demo.pushed.get() == b"about"
        assert [item.data async for item in peer.stream(b"500", credit=16)] == [b"%d" % i for i in range(500)]
        async with peer.channel([LARGE, b"", b"x"]) as items:
            assert [item.data async for item in items] == [LARGE, b"", b"x"]
        back = await server.connections[0].request(b"other way")
        assert back.data == b"other way"


@blocking
async def test_the_five_verbs_blocking(place: Place) -> None:
    demo = Demo()

    def client(uri: str) -> None:
        with place.dial(uri) as peer:
            assert peer.request(b"ping") == Payload(b"ping")
            assert peer.request(Payload(LARGE, b"m")) == Payload(LARGE, b"m")
            peer.fire(b"line")
            peer.push(b"about")
            assert [item.data for item in peer.stream(b"500", credit=16)] == [b"%d" % i for i in range(500)]
            assert [item.data for item in peer.channel([LARGE, b"", b"x"])] == [LARGE, b"", b"x"]

    async with place.serve(demo) as server:
        await asyncio.to_thread(client, server.uri)
        assert (await demo.fired.get()).data == b"line"
        assert await demo.pushed.get() == b"about"


@every
async def test_much_both_ways_at_once(place: Place) -> None:
    async with place.serve(Demo()) as server, place.connect(server.uri) as peer:
        async with peer.channel(bytes([i]) * 50_000 for i in range(200)) as items:
            got = [item.data async for item in items]
        assert got == [bytes([i]) * 50_000 for i in range(200)]


@blocking
async def test_much_both_ways_at_once_blocking(place: Place) -> None:
    def client(uri: str) -> None:
        with place.dial(uri) as peer:
            got = [item.data for item in peer.channel(bytes([i]) * 50_000 for i in range(200))]
            assert got == [bytes([i]) * 50_000 for i in range(200)]

    async with place.serve(Demo()) as server:
        await asyncio.to_thread(client, server.uri)


# -- refusals and ends --------------------------------------------------------------------------------------------


@every
async def test_a_refusal_reaches_a_client_that_never_stops_talking(place: Place) -> None:
    async def refuse(setup: object, peer: afflux.Peer) -> None:
        raise afflux.Error("not you")

    async with place.serve(Demo(), on_setup=refuse) as server, place.connect(server.uri) as peer:
        calls = [asyncio.ensure_future(peer.request(LARGE)) for _ in range(20)]
        for call in calls:
            with pytest.raises(afflux.SetupRefused, match="not you"):
                await call


@blocking
async def test_a_refusal_reaches_a_blocking_client(place: Place) -> None:
    async def refuse(setup: object, peer: afflux.Peer) -> None:
        raise afflux.Error("not you")

    def client(uri: str) -> None:
        with place.dial(uri) as peer, pytest.raises(afflux.SetupRefused, match="not you"):
            for _ in peer.channel(LARGE for _ in range(20)):
                pass

    async with place.serve(Demo(), on_setup=refuse) as server:
        await asyncio.to_thread(client, server.uri)


@every
async def test_a_server_closes_with_its_reason(place: Place) -> None:
    async with place.serve(Demo()) as server, place.connect(server.uri) as peer:
        await peer.request(b"")
        (guest,) = server.connections
        await guest.close(reason="for the night")
        await peer.wait_closed()
        with pytest.raises(afflux.ConnectionClosed, match="for the night"):
            await peer.request(b"")


@blocking
async def test_a_blocking_client_that_closes_is_gone_at_once(place: Place) -> None:
    async with place.serve(Demo()) as server:
        peer = await asyncio.to_thread(place.dial, server.uri)
        await asyncio.to_thread(peer.request, b"")
        (guest,) = server.connections
        await asyncio.to_thread(peer.close)
        await guest.wait_closed()
        assert guest.error is None or isinstance(guest.error, afflux.ConnectionClosed)


# -- addresses ----------------------------------------------------------------------------------------------------


@every
async def test_an_address_without_a_server(place: Place) -> None:
    async with place.serve(Demo()) as server:
        uri = server.uri
    with pytest.raises(afflux.ConnectFailed, match=f"cannot connect to {place.kind.name}://"):
        await place.connect(uri)
    if place.kind.blocking:
        with pytest.raises(afflux.ConnectFailed, match=f"cannot connect to {place.kind.name}://"):
            place.dial(uri)


@every
async def test_an_address_in_use(place: Place) -> None:
    async with place.serve(Demo()) as server:
        with pytest.raises(afflux.BindFailed, match=r"in use|already"):
            await afflux.serve(server.uri, Demo(), tls=place.to_serve)
        async with place.connect(server.uri) as peer:
            assert (await peer.request(b"x")).data == b"x"


@every
async def test_options_of_an_address(place: Place) -> None:
    unknown = f"{place.uri}?colour=red"
    for make in (afflux.connect, afflux.sync.connect, lambda uri: afflux.serve(uri, Demo())):
        with pytest.raises(afflux.AddressError, match=r'unknown option "colour"; known: keepalive, lifetime, mtu'):
            make(unknown)  # type: ignore[operator]
    if not parse(place.uri).carrier.secure:
        with pytest.raises(afflux.AddressError, match=f"{place.kind.name} has no TLS"):
            afflux.connect(place.uri, tls=afflux.Tls())
        with pytest.raises(afflux.AddressError, match="did you mean tls://"):
            afflux.serve(place.uri, Demo(), tls=afflux.Tls())


# -- strangers ----------------------------------------------------------------------------------------------------


def stranger(uri: str) -> socket.socket:
    """A bare socket that is connected to a server."""
    address = parse(uri)
    if address.transport == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.path)
        return sock
    return socket.create_connection((address.host, address.port))


def ends(sock: socket.socket) -> None:
    """Read until the other side ends."""
    try:
        while sock.recv(1000):
            pass
    except ConnectionResetError:
        pass


@sockets
@pytest.mark.parametrize("words", [b"", b"\x00", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_a_stranger_who_falls_silent_is_closed(place: Place, words: bytes) -> None:
    limits = Limits.server(handshake_s=0.3)
    async with place.serve(Demo(), limits=limits) as server:
        bystander = await place.connect(server.uri)
        await bystander.request(b"")
        with stranger(server.uri) as sock:
            sock.sendall(words)
            await asyncio.to_thread(ends, sock)
        await turns_until(lambda: len(server.connections) == 1)
        assert (await bystander.request(b"x")).data == b"x"
        await bystander.close()


@sockets
async def test_the_oldest_half_handshake_makes_room(place: Place) -> None:
    limits = Limits.server(half_handshakes=2, handshake_s=2)
    async with place.serve(Demo(), limits=limits) as server:
        strangers = [stranger(server.uri)]
        await turns_until(lambda: len(server.connections) == 1)
        (oldest,) = server.connections
        strangers.append(stranger(server.uri))
        await turns_until(lambda: len(server.connections) == 2)
        (newer,) = set(server.connections) - {oldest}
        strangers.append(stranger(server.uri))
        await asyncio.to_thread(ends, strangers[0])
        assert newer in server.connections
        async with place.connect(server.uri) as peer:
            assert (await peer.request(b"x")).data == b"x"
        for sock in strangers:
            sock.close()


@sockets
async def test_no_more_connections_than_allowed(place: Place) -> None:
    limits = Limits.server(connections=2)
    async with place.serve(Demo(), limits=limits) as server:
        first = await place.connect(server.uri)
        await first.request(b"")
        second = stranger(server.uri)
        await turns_until(lambda: len(server.connections) == 2)
        with stranger(server.uri) as third:
            await asyncio.to_thread(ends, third)
        second.close()
        await turns_until(lambda: len(server.connections) == 1)
        async with place.connect(server.uri) as peer:
            assert (await peer.request(b"x")).data == b"x"
        await first.close()


# -- faults -------------------------------------------------------------------------------------------------------


async def use(place: Place, uri: str) -> None:
    async with place.connect(uri) as peer:
        assert (await peer.request(b"ping" * 100)).data == b"ping" * 100
        assert [item.data async for item in peer.stream(b"50", credit=8)] == [b"%d" % i for i in range(50)]


def use_blocking(place: Place, uri: str) -> None:
    with place.dial(uri) as peer:
        assert peer.request(b"ping" * 100).data == b"ping" * 100
        assert [item.data for item in peer.stream(b"50", credit=8)] == [b"%d" % i for i in range(50)]


@sockets
@pytest.mark.parametrize("slices", [1, 9])
async def test_slices(place: Place, slices: int) -> None:
    faults = Faults(slices=slices)
    async with place.serve(Demo()) as server, Proxy(server.uri, to_server=faults, to_client=faults) as proxy:
        await use(place, proxy.uri)
        if place.kind.blocking:
            await asyncio.to_thread(use_blocking, place, proxy.uri)


@sockets
async def test_a_reader_that_stops_and_goes_on(place: Place) -> None:
    large = Large()
    async with place.serve(large) as server, Proxy(server.uri) as proxy:
        async with place.connect(proxy.uri) as peer:
            items = peer.stream(b"3000", credit=3000)
            await anext(items)
            (guest,) = server.connections
            proxy.hold()
            await turns_until(lambda: guest._driver.output.blocked)
            assert large.made < 3000
            proxy.release()
            assert len([item async for item in items]) == 2999


@blocking
async def test_a_blocking_reader_that_stops_and_goes_on(place: Place) -> None:
    large = Large()
    stopped = asyncio.Event()
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def client(uri: str) -> None:
        with place.dial(uri) as peer:
            items = peer.stream(b"3000", credit=3000)
            next(items)
            loop.call_soon_threadsafe(stopped.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            assert sum(1 for _ in items) == 2999

    async with place.serve(large) as server:
        running = asyncio.create_task(asyncio.to_thread(client, server.uri))
        await stopped.wait()
        (guest,) = server.connections
        await turns_until(lambda: guest._driver.output.blocked)
        assert large.made < 3000
        go_on.set()
        await running


async def items_until_the_end(stream: Any, got: list[bytes]) -> None:
    async for item in stream:
        got.append(item.data)


@sockets
@pytest.mark.parametrize("after", [0, 1, 100, 1500, 3000, 10_000])
async def test_a_cut_is_an_error_and_never_an_end(place: Place, after: int) -> None:
    got: list[bytes] = []
    async with place.serve(Demo()) as server, Proxy(server.uri, to_client=Faults(cut_after=after)) as proxy:
        with pytest.raises(afflux.ConnectionClosed):
            async with place.connect(proxy.uri) as peer:
                await items_until_the_end(peer.stream(b"5000", credit=100), got)
        assert got == [b"%d" % i for i in range(len(got))]
        await turns_until(lambda: not server.connections)
        await use(place, server.uri)


@blocking
@pytest.mark.parametrize("after", [0, 1, 100, 1500, 3000, 10_000])
async def test_a_cut_is_an_error_for_a_blocking_client(place: Place, after: int) -> None:
    got: list[bytes] = []

    def client(uri: str) -> None:
        with pytest.raises(afflux.ConnectionClosed):
            with place.dial(uri) as peer:
                for item in peer.stream(b"5000", credit=100):
                    got.append(item.data)

    async with place.serve(Demo()) as server, Proxy(server.uri, to_client=Faults(cut_after=after)) as proxy:
        await asyncio.to_thread(client, proxy.uri)
        assert got == [b"%d" % i for i in range(len(got))]
        await turns_until(lambda: not server.connections)


@sockets
async def test_a_cut_from_the_client_ends_its_handlers(place: Place) -> None:
    demo = Demo()
    async with place.serve(demo) as server, Proxy(server.uri) as proxy:
        async with place.connect(proxy.uri) as peer:
            items = peer.stream(b"1000000", credit=10)
            await anext(items)
            proxy.cut()
            await turns_until(lambda: not server.connections)
            assert demo.closed == 1
            with pytest.raises(afflux.ConnectionClosed):
                while True:
                    await anext(items)
