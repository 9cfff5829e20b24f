"""The links of the blocking driver: what base.Link promises, over every transport that has a blocking side."""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.transports.address import parse
from afflux.transports.base import Link
from afflux.transports.security import client_context, server_context
from afflux.transports.tls import SecureLink
from afflux.transports.tls_session import Session
from tests.aio.handlers import Demo
from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, End, Everyone, Kind, Place, framed, numbered

every = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.blocking], ids=lambda kind: kind.name)
Joined = tuple[Link, End]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def joined(kind: Kind, tmp_path: Path, certificates: Certificates) -> AsyncIterator[Joined]:
    """A link, and the end of a server."""
    place = Place(kind, tmp_path, certificates)
    address = parse(place.uri)
    transport, end = address.carrier.load(), End()
    listener = await transport.listen(address, Everyone(), lambda host: end, place.to_serve)
    link = await asyncio.to_thread(transport.dial, listener.address, 10.0, place.to_connect)
    await end.until(lambda: "made" in end.told)
    yield link, end
    link.close()
    await end.until(lambda: "lost" in end.told)
    listener.close()


def waits(link: Link, reading: bool, writing: bool) -> int:
    """Wait until the link can go on, as the driver does."""
    poll = select.poll()
    poll.register(link, link.events(reading, writing))
    ((_, what),) = poll.poll(10_000)
    return what


def send(link: Link, data: bytes) -> None:
    """Send everything."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[link.send(rest) :]
        except BlockingIOError:
            waits(link, False, True)


def receive(link: Link, size: int) -> bytes:
    """Receive so many bytes, or to the end."""
    data = b""
    while len(data) < size:
        try:
            piece = link.recv(0x10000)
        except BlockingIOError:
            waits(link, True, False)
            continue
        if not piece:
            break
        data += piece
    return data


@every
async def test_bytes_go_both_ways(joined: Joined) -> None:
    link, end = joined
    frames = numbered(100)
    await asyncio.to_thread(send, link, b"".join(map(framed, frames)))
    await end.until(lambda: len(end.frames) == 100)
    assert end.frames == frames
    sending = asyncio.create_task(end.send_slowly(frames))
    expected = b"".join(map(framed, frames))
    assert await asyncio.to_thread(receive, link, len(expected)) == expected
    await sending


@every
async def test_nothing_waits(joined: Joined) -> None:
    link, _ = joined
    with pytest.raises(BlockingIOError):
        link.recv(100)
    assert not link.pending()
    assert link.events(True, False) == select.POLLIN
    assert link.events(True, True) == select.POLLIN | select.POLLOUT
    assert link.events(False, False) == 0
    link.flush()
    assert link.fileno() >= 0


@every
async def test_a_full_link_goes_on_where_it_stopped(joined: Joined) -> None:
    link, end = joined
    end.transport.pause_reading()
    frames = numbered(1000, 1000)
    rest = memoryview(b"".join(map(framed, frames)) * 20)
    with suppress(BlockingIOError):
        while rest:
            rest = rest[link.send(rest) :]
    assert rest
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            link.send(rest)
    assert link.events(False, True) & select.POLLOUT
    end.transport.resume_reading()
    await asyncio.to_thread(send, link, bytes(rest))
    await end.until(lambda: len(end.frames) == 20_000)
    assert end.frames == frames * 20


@every
async def test_the_end_of_this_side(joined: Joined) -> None:
    link, end = joined
    await asyncio.to_thread(send, link, framed(b"last words"))
    await asyncio.to_thread(link.end_writing)
    await end.until(lambda: "eof" in end.told)
    assert end.frames == [b"last words"]


@every
async def test_the_end_of_the_other_side(joined: Joined) -> None:
    link, end = joined
    end.send(b"last words")
    end.transport.close()
    assert await asyncio.to_thread(receive, link, 100) == framed(b"last words")
    for _ in range(3):
        assert link.recv(100) == b""


@every
async def test_a_cut(kind: Kind, joined: Joined) -> None:
    link, end = joined
    end.transport.abort()
    await end.until(lambda: "lost" in end.told)
    waits(link, True, False)
    if kind.name == "tls":
        with pytest.raises(afflux.ConnectionClosed, match="cut the connection without ending TLS first"):
            link.recv(100)
    else:
        with suppress(ConnectionResetError, afflux.ConnectionClosed):
            assert link.recv(100) == b""
    link.close()
    link.close()


# -- TLS, byte by byte ---------------------------------------------------------------------------------------------


@pytest.fixture
def both_ends(certificates: Certificates) -> Any:
    """A link, and the session and socket of its server."""
    address = parse("tls://127.0.0.1:1")
    ours, theirs = socket.socketpair()
    client = Session(client_context(certificates.to_connect, address), address, server=False, name="127.0.0.1")
    server = Session(server_context(certificates.to_serve), address, server=True)
    while not (client.handshake() and server.handshake()):
        server.feed(client.outgoing())
        server.handshake()
        client.feed(server.outgoing())
    server.feed(client.outgoing())
    client.feed(server.outgoing())
    with theirs:
        link = SecureLink(client, ours)
        yield link, server, theirs
        link.close()


def test_what_came_before_a_failure_is_given_first(both_ends: tuple[SecureLink, Session, socket.socket]) -> None:
    link, server, theirs = both_ends
    server.write(b"good")
    theirs.sendall(server.outgoing() + b"\x17\x03\x03\x00\x20" + bytes(32))
    assert link.recv(1000) == b"good"
    assert link.pending()
    for _ in range(2):
        with pytest.raises(afflux.ConnectFailed, match=r"no TLS with tls://127.0.0.1:1"):
            link.recv(1000)
    assert theirs.recv(1000)[:3] == b"\x17\x03\x03"  # the alert
    with pytest.raises((OSError, afflux.Error)):
        link.recv(1000)


def test_a_record_in_pieces(both_ends: tuple[SecureLink, Session, socket.socket]) -> None:
    link, server, theirs = both_ends
    server.write(b"whole")
    record = server.outgoing()
    for i in range(len(record) - 1):
        theirs.sendall(record[i : i + 1])
        with pytest.raises(BlockingIOError):
            link.recv(1000)
        assert not link.pending()
    theirs.sendall(record[-1:])
    assert link.recv(1000) == b"whole"


def test_many_records_at_once(both_ends: tuple[SecureLink, Session, socket.socket]) -> None:
    link, server, theirs = both_ends
    for i in range(50):
        server.write(b"%d," % i)
    server.end()
    theirs.sendall(server.outgoing())
    assert link.recv(0x10000) == b"".join(b"%d," % i for i in range(50))
    assert not link.pending()
    assert link.recv(0x10000) == b""


def test_input_that_waits_does_not_spoil_the_end(both_ends: tuple[SecureLink, Session, socket.socket]) -> None:
    link, server, theirs = both_ends
    server.write(b"unread")
    theirs.sendall(server.outgoing())
    assert link.send(memoryview(b"last words")) == 10
    link.end_writing()
    server.feed(theirs.recv(1000))
    assert (server.read(), server.ended) == (b"last words", True)
    assert link.recv(100) == b"unread"


def test_sending_when_the_peer_is_gone(both_ends: tuple[SecureLink, Session, socket.socket]) -> None:
    link, _, theirs = both_ends
    theirs.close()
    with pytest.raises(OSError):
        link.send(memoryview(b"x"))
    with pytest.raises(afflux.ConnectionClosed):
        link.recv(100)


# -- the driver above them -----------------------------------------------------------------------------------------


@every
async def test_a_blocking_peer_gets_the_reason(kind: Kind, tmp_path: Path, certificates: Certificates) -> None:
    place = Place(kind, tmp_path, certificates)

    def client(uri: str) -> None:
        with place.dial(uri) as peer:
            assert peer.request(b"x").data == b"x"
            close()
            with pytest.raises(afflux.ConnectionClosed, match="for the night"):
                while True:
                    peer.request(b"x")

    async with place.serve(Demo()) as server:
        loop = asyncio.get_running_loop()
        close: Callable[[], Any] = lambda: asyncio.run_coroutine_threadsafe(  # noqa: E731
            server.connections[0].close(reason="for the night"), loop
        )
        await asyncio.to_thread(client, server.uri)


def test_a_close_after_the_peer_has_gone_does_not_linger(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        peer = afflux.sync.connect(f"unix://{path}", limits=afflux.Limits.server(flush_s=3600))
        listening.accept()[0].close()
        peer.close()


def test_nothing_is_imported_without_need(certificates: Certificates) -> None:
    code = f"""
import sys
import afflux, afflux.sync
def refused(uri, tls=None):
    try:
        afflux.sync.connect(uri, tls=tls)
    except afflux.ConnectFailed:
        return
    raise AssertionError
refused("tcp://127.0.0.1:1")
assert "ssl" not in sys.modules
refused("tls://127.0.0.1:1", afflux.Tls(ca={str(certificates.ca)!r}))
assert "asyncio" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
