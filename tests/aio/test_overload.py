"""``process_bytes``: what all connections of a process hold together, on every wire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.protocols.jmux.frames import ClientConnectionHeader
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.rsio.frames import ClientHello
from afflux.protocols.rsocket import frames
from tests.aio.handlers import turns
from tests.protocols.jmux.playbook import opening
from tests.protocols.rsio.playbook import ask
from tests.transports.test_websocket import upgrade

MiB = 1 << 20
LIMITS = Limits.server(connections=50, process_bytes=4 * MiB, flush_s=30)
OVERLOAD = f"overload: process_bytes={4 * MiB}"
SETUP = frames.Setup(keepalive_ms=20_000, lifetime_ms=90_000)
HELLO = {
    "rsocket": SETUP.encode(prefixed=True),
    "reactivesocket": old.Setup(keepalive_ms=20_000, lifetime_ms=90_000).encode(prefixed=True),
    "jmux": ClientConnectionHeader(initial_ration=0).encode(),
    "rsio": ClientHello().encode(),
}
GREEDY = {
    "rsocket": frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"").encode(prefixed=True),
    "reactivesocket": old.RequestStream(stream=2, initial_n=0x7FFFFFFF).encode(prefixed=True),
    "jmux": opening(b"x", eof=True).encode(),
    "rsio": ask(demand=1 << 40).encode(),
}
"A request for much."
every_wire = pytest.mark.parametrize("wire", HELLO)


class Rich:
    """Answers and streams much."""

    async def request(self, payload: Payload) -> bytes:
        return payload.data if payload.data == b"small" else bytes(4_000_000)

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        if payload.data == b"small":
            yield b"small"
            return
        while True:
            yield bytes(0x8000)


async def works(wire: str, peer: Any) -> None:
    if wire == "rsio":
        assert [item.data async for item in peer.subscribe("small")] == [b"small"]
    else:
        assert (await peer.request(b"small")).data == b"small"


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


class Strangers:
    """Clients of bytes that read nothing by themselves."""

    def __init__(self, server: afflux.Server) -> None:
        host, _, port = server.uri.rpartition("/")[2].rpartition(":")
        self.place = host, int(port)
        self.server = server
        self.socks: list[socket.socket] = []

    async def one(self, *words: bytes) -> tuple[socket.socket, afflux.Peer]:
        """Connect and send ``words``."""
        before = set(self.server.connections)
        sock, loop = await self.connected(), asyncio.get_running_loop()
        await until(lambda: set(self.server.connections) - before)
        (peer,) = set(self.server.connections) - before
        for data in words:
            await loop.sock_sendall(sock, data)
        return sock, peer

    async def connected(self) -> socket.socket:
        """Connect. The kernel buffers little, so that the server's bytes stay in its process."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0x1000)
        sock.setblocking(False)
        self.socks.append(sock)
        await asyncio.get_running_loop().sock_connect(sock, self.place)
        return sock

    def __enter__(self) -> Strangers:
        return self

    def __exit__(self, *error: object) -> None:
        for sock in self.socks:
            sock.close()


async def heard(sock: socket.socket) -> bytes:
    """All that comes until the end."""
    parts = []
    while part := await asyncio.get_running_loop().sock_recv(sock, 0x10000):
        parts.append(part)
    return b"".join(parts)


@every_wire
async def test_the_newest_that_do_not_read_are_ended(wire: str) -> None:
    """Each is within its own limits; together they hold too much. The oldest goes on, and so does who holds nothing."""
    async with afflux.serve(f"{wire}+tcp://127.0.0.1:0", Rich(), limits=LIMITS) as server:
        with Strangers(server) as strangers:
            _, oldest = await strangers.one(HELLO[wire], GREEDY[wire])
            async with afflux.connect(server.uri) as honest:
                await works(wire, honest)
                ended: list[afflux.Peer] = []
                while len(ended) < 4:  # each holds more than a mebibyte in the end
                    sock, peer = await strangers.one(HELLO[wire], GREEDY[wire])
                    ended.append(peer)
                    await until(lambda: len(heard_of(sock)) > 0)  # noqa: B023
                    await works(wire, honest)
                await until(lambda: any(peer.closed for peer in ended))
                for peer in ended:
                    if peer.closed:
                        assert str(peer.error) == OVERLOAD
                assert not oldest.closed
                await works(wire, honest)


async def test_the_newest_with_half_a_frame_are_reported() -> None:
    """Nothing is queued for them: they hear ERROR with the name and the value. An older one may end its frame."""
    frame = frames.RequestFnf(stream=1, data=bytes(1_000_000)).encode(prefixed=True)
    async with afflux.serve("tcp://127.0.0.1:0", Rich(), limits=LIMITS) as server:
        with Strangers(server) as strangers:
            socks = [await strangers.one(HELLO["rsocket"], frame[:900_000]) for _ in range(6)]
            await until(lambda: any(peer.closed for _, peer in socks))
            closed = [peer.closed for _, peer in socks]
            assert closed == sorted(closed)
            for sock, peer in socks:
                if peer.closed:
                    assert OVERLOAD.encode() in await heard(sock)


async def test_half_messages_of_websockets_count() -> None:
    """They wait in the transport, and not in an engine."""
    async with afflux.serve("ws://127.0.0.1:0", Rich(), limits=LIMITS) as server:
        with Strangers(server) as strangers:
            setup = SETUP.encode()
            first = b"\x82" + bytes([0x80 | len(setup)]) + bytes(4) + setup
            part = b"\x82\xff" + (1_000_000).to_bytes(8, "big") + bytes(4) + bytes(900_000)
            peers = [(await strangers.one(upgrade(), first, part))[1] for _ in range(6)]
            await until(lambda: peers[-1].closed)
            assert str(peers[-1].error) == OVERLOAD
            assert not peers[0].closed


async def refused(uri: str) -> bool:
    """Return whether the server refuses a new client because of its memory."""
    async with afflux.connect(uri) as peer:
        try:
            await peer.request(b"small")
        except afflux.SetupRefused as error:
            assert str(error).startswith(OVERLOAD)
            return True
        return False


async def test_while_too_much_is_held_new_connections_are_refused() -> None:
    """Who was ended has ``flush_s`` to read; until then its memory is in use."""
    async with afflux.serve("tcp://127.0.0.1:0", Rich(), limits=LIMITS) as server:
        with Strangers(server) as strangers:
            while "process_bytes" not in server.refused or not await refused(server.uri):
                # What is held is near the limit: a transport may have written some of it meanwhile.
                sock = await strangers.connected()
                sock.sendall(HELLO["rsocket"] + GREEDY["rsocket"])
                await until(lambda: len(heard_of(sock)) > 0)  # noqa: B023
            assert server.refused["process_bytes"] >= 2
        await until(lambda: not server.connections)
        async with afflux.connect(server.uri) as peer:
            await works("rsocket", peer)


async def test_what_was_read_meanwhile_does_not_count() -> None:
    """A transport writes without telling anyone: before somebody is ended, all are counted anew."""
    limits = LIMITS.replace(process_bytes=3 * MiB)
    async with afflux.serve("tcp://127.0.0.1:0", Sized(), limits=limits) as server:
        with Strangers(server) as strangers:
            want = frames.RequestResponse(stream=1, data=b"2900000").encode(prefixed=True)
            for _ in range(5):
                sock, peer = await strangers.one(HELLO["rsocket"], want)
                await until(lambda: len(heard_of(sock)) > 0)  # noqa: B023
                got = 0
                loop = asyncio.get_running_loop()
                while got < 2_900_000:
                    got += len(await loop.sock_recv(sock, 0x10000))
                assert not peer.closed
            assert server.refused == {}
            assert len(server.connections) == 5


class Sized:
    """Answers as many bytes as it is asked for."""

    async def request(self, payload: Payload) -> bytes:
        return bytes(int(payload.data))


def heard_of(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


async def test_each_connection_is_judged_by_its_own_limits() -> None:
    """The sum is of the process; who allows it more goes on."""
    frame = frames.RequestFnf(stream=1, data=bytes(1_000_000)).encode(prefixed=True)
    more = LIMITS.replace(process_bytes=64 * MiB)
    async with (
        afflux.serve("tcp://127.0.0.1:0", Rich(), limits=more) as large,
        afflux.serve("tcp://127.0.0.1:0", Rich(), limits=LIMITS) as small,
    ):
        with Strangers(large) as rich, Strangers(small) as poor:
            _, victim = await poor.one(HELLO["rsocket"], frame[:900_000])
            peers = [(await rich.one(HELLO["rsocket"], frame[:900_000]))[1] for _ in range(8)]
            await until(lambda: len(large.connections) == 8)
            assert not victim.closed
            for at in range(900_000, 990_000, 1_000):  # the others are read piece by piece, too
                if victim.closed:
                    break
                await asyncio.get_running_loop().sock_sendall(poor.socks[0], frame[at : at + 1_000])
                await turns(20)
            await until(lambda: victim.closed)
            assert str(victim.error) == OVERLOAD
            assert not any(peer.closed for peer in peers)


async def test_a_client_is_ended_as_well() -> None:
    """What it has received and nobody has taken is held, too: who waits for it hears why."""
    limits = Limits.server(connections=50, process_bytes=4 * MiB, flush_s=0.1)
    async with (
        afflux.serve("tcp://127.0.0.1:0", Rich()) as server,
        afflux.connect(server.uri, limits=limits) as peer,
        peer.stream(b"", credit=1000) as stream,
    ):
        await until(lambda: peer.closed)
        with pytest.raises(afflux.ConnectionClosed, match=OVERLOAD):
            async for _ in stream:
                pass
