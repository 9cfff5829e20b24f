"""TLS: who is let in, what a refusal says to both sides, and that nobody else is harmed by it."""

# ruff: noqa: SIM117 -- a server, a client, then what happens: the nesting is the story

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import afflux
import afflux.sync
from afflux import ConnectFailed, Limits, Tls
from afflux.testing import Proxy
from afflux.transports.address import parse
from afflux.transports.reading import Receiver
from afflux.transports.security import client_context, server_context
from afflux.transports.tls_aio import SecureLink
from afflux.transports.tls_session import Session
from tests.aio.handlers import Demo
from tests.transports.certificates import Certificates
from tests.transports.check import End, Everyone, turns_until

HERE = "tls://127.0.0.1:0"
Client = Callable[[str, Tls], Awaitable[bytes]]


async def ask(uri: str, tls: Tls) -> bytes:
    """A client under asyncio that wants one answer."""
    async with afflux.connect(uri, tls=tls) as peer:
        return (await peer.request(b"x")).data


async def ask_blocking(uri: str, tls: Tls) -> bytes:
    """A blocking one."""

    def work() -> bytes:
        with afflux.sync.connect(uri, tls=tls) as peer:
            return peer.request(b"x").data

    return await asyncio.to_thread(work)


both = pytest.mark.parametrize("client", [ask, ask_blocking])


@asynccontextmanager
async def serving(tls: Tls, bystander: Tls) -> AsyncIterator[afflux.Server]:
    """A server with room for two, and one who is connected all the time and must not notice anything."""
    async with afflux.serve(HERE, Demo(), tls=tls, limits=Limits.server(connections=2)) as server:
        async with afflux.connect(server.uri, tls=bystander) as peer:
            assert (await peer.request(b"before")).data == b"before"
            yield server
            await turns_until(lambda: len(server.connections) == 1)
            assert (await peer.request(b"after")).data == b"after"


def connected(uri: str) -> socket.socket:
    address = parse(uri)
    return socket.create_connection((address.host, address.port))


# -- whom a client trusts -----------------------------------------------------------------------------------------


@both
async def test_a_certificate_that_is_refused(
    certificates: Certificates, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    issue = certificates.issue
    cases = (
        (issue("127.0.0.1", trusted=False), "the certificate is not signed by a trusted authority"),
        (issue("127.0.0.1", days=(-9, -3)), r"the certificate has expired, on [A-Z][a-z]{2} "),
        (issue("127.0.0.1", days=(3, 9)), r"the certificate is not valid yet, only from [A-Z][a-z]{2} "),
        (issue("other.example"), r"the certificate is for other\.example, not for 127\.0\.0\.1"),
        (
            issue("127.0.0.2", "a.example", "b.example", "c.example"),
            r"the certificate is for 127\.0\.0\.2 and .* and others, not for",
        ),
    )
    for cert, words in cases:
        async with afflux.serve(HERE, Demo(), tls=Tls(cert=cert), limits=Limits.server(connections=1)) as server:
            for _ in range(3):  # there is room for one: each failure makes room for the next
                with pytest.raises(ConnectFailed, match=f"no TLS with {server.uri}: {words}") as caught:
                    await client(server.uri, certificates.to_connect)
                assert isinstance(caught.value.__cause__, ssl.SSLError)
                await turns_until(lambda: not server.connections)
    assert caplog.records == []


@both
async def test_a_certificate_without_names(certificates: Certificates, client: Client, tmp_path: Path) -> None:
    """Many guides make one with a common name only."""
    cert = tmp_path / "common.pem"
    cert.write_bytes(certificates.nameless("127.0.0.1"))
    async with afflux.serve(HERE, Demo(), tls=Tls(cert=cert)) as server:
        with pytest.raises(
            ConnectFailed, match=r"the certificate has no subjectAltName, which must contain 127\.0\.0\.1"
        ):
            await client(server.uri, Tls(ca=cert))


async def test_a_renewed_certificate(certificates: Certificates, tmp_path: Path) -> None:
    """A server reads its files when it begins to listen; a context of its own can be renewed meanwhile."""
    live = tmp_path / "live.pem"
    live.write_bytes(certificates.server.read_bytes())
    expired = certificates.issue("127.0.0.1", days=(-9, -3))
    async with afflux.serve(HERE, Demo(), tls=Tls(cert=live)) as server:
        live.write_bytes(expired.read_bytes())
        assert await ask(server.uri, certificates.to_connect) == b"x"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    async with afflux.serve(HERE, Demo(), tls=Tls(context=context)) as server:
        assert await ask(server.uri, certificates.to_connect) == b"x"
        context.load_cert_chain(expired)
        with pytest.raises(ConnectFailed, match="the certificate has expired"):
            await ask(server.uri, certificates.to_connect)


@both
async def test_the_system_does_not_trust_our_authority(certificates: Certificates, client: Client) -> None:
    async with serving(certificates.to_serve, certificates.to_connect) as server:
        for tls in (Tls(), Tls(ca=certificates.other_ca)):
            with pytest.raises(ConnectFailed, match="not signed by a trusted authority"):
                await client(server.uri, tls)
            await turns_until(lambda: len(server.connections) == 1)


@both
async def test_another_name_may_be_asked_for(certificates: Certificates, client: Client) -> None:
    cert = certificates.issue("other.example")
    tls = Tls(ca=certificates.ca, server_name="other.example")
    async with serving(Tls(cert=cert), tls) as server:
        assert await client(server.uri, tls) == b"x"
        assert await client(f"{server.uri}?name=other.example&ca={certificates.ca}", Tls()) == b"x"
        with pytest.raises(ConnectFailed, match=r"is for other\.example, not for third\.example"):
            await client(f"{server.uri}?name=third.example", tls)


@both
async def test_the_address_states_it_all(certificates: Certificates, client: Client) -> None:
    path = certificates.server
    cert, key = certificates.part(path, "CERTIFICATE"), certificates.part(path, "PRIVATE KEY")
    uri = f"{HERE}?cert={cert}&key={key}&client_ca={certificates.ca}"
    async with afflux.serve(uri, Demo()) as server:
        assert server.uri == f"tls://127.0.0.1:{parse(server.uri).port}"
        assert await client(f"{server.uri}?ca={certificates.ca}&cert={certificates.client}", Tls()) == b"x"


# -- whom a server trusts -----------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_that_is_refused(
    certificates: Certificates, client: Client, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    def tls(cert: Path | None) -> Tls:
        context = ssl.create_default_context(cafile=certificates.ca)
        context.maximum_version = version
        if cert is not None:
            context.load_cert_chain(cert)
        return Tls(context=context)

    new = version is ssl.TLSVersion.TLSv1_3
    cases = (
        (None, "the peer requires a certificate from this side" if new else "it may require a certificate"),
        (
            certificates.issue("c", trusted=False),
            "the peer does not trust the authority that signed this side's certificate",
        ),
        (certificates.issue("c", days=(-9, -3)), "the peer reports that this side's certificate has expired"),
    )
    mutual = Tls(cert=certificates.server, client_ca=certificates.ca)
    async with serving(mutual, tls(certificates.client)) as server:
        for cert, words in cases:
            for _ in range(2):
                with pytest.raises(ConnectFailed, match=words) as caught:
                    await client(server.uri, tls(cert))
                assert isinstance(caught.value.__cause__, ssl.SSLError)
                await turns_until(lambda: len(server.connections) == 1)
        assert await client(server.uri, tls(certificates.client)) == b"x"
    assert caplog.records == []


async def test_both_sides_see_certificates(certificates: Certificates) -> None:
    mutual = Tls(cert=certificates.server, client_ca=certificates.ca)
    tls = Tls(ca=certificates.ca, cert=certificates.client)
    seen: list[object] = []

    async def look(setup: object, peer: afflux.Peer) -> None:
        assert peer.certificate is not None
        seen.append(peer.certificate["subjectAltName"])

    async with afflux.serve(HERE, Demo(), tls=mutual, on_setup=look) as server:
        async with afflux.connect(server.uri, tls=tls) as peer:
            await peer.request(b"")
            assert peer.certificate is not None
            assert ("IP Address", "127.0.0.1") in peer.certificate["subjectAltName"]
        names = await asyncio.to_thread(lambda: _names_seen(server.uri, tls))
        assert ("IP Address", "127.0.0.1") in names
    assert seen == [(("DNS", "client.example"),)] * 2


@pytest.mark.parametrize("side", ["server", "client"])
async def test_secrets_are_logged_for_captures(
    side: str, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "keys.log"
    tls = Tls(ca=certificates.ca, cert=certificates.client)  # a context of its own
    monkeypatch.setenv("SSLKEYLOGFILE", str(log)) if side == "server" else None
    async with afflux.serve(HERE, Demo(), tls=certificates.to_serve) as server:
        monkeypatch.delenv("SSLKEYLOGFILE") if side == "server" else monkeypatch.setenv("SSLKEYLOGFILE", str(log))
        assert await ask(server.uri, tls) == b"x"
    assert "CLIENT_TRAFFIC_SECRET_0 " in log.read_text()
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path))
    with pytest.raises(afflux.AddressError, match=f"SSLKEYLOGFILE: {tmp_path} cannot be written: Is a directory"):
        await ask(server.uri, tls)


def _names_seen(uri: str, tls: Tls) -> tuple[tuple[str, str], ...]:
    with afflux.sync.connect(uri, tls=tls) as peer:
        peer.request(b"")
        assert peer.certificate is not None
        names: tuple[tuple[str, str], ...] = peer.certificate["subjectAltName"]
        return names


async def test_who_shows_no_certificate_has_none(certificates: Certificates) -> None:
    async with serving(certificates.to_serve, certificates.to_connect) as server:
        (guest,) = server.connections
        assert guest.certificate is None
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as plain, afflux.connect(plain.uri) as peer:
        assert peer.certificate is None
        blocking = await asyncio.to_thread(afflux.sync.connect, plain.uri)
        assert blocking.certificate is None
        await asyncio.to_thread(blocking.close)


# -- what is no TLS, or half of it --------------------------------------------------------------------------------


async def test_plaintext_to_a_tls_port(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(certificates.to_serve, certificates.to_connect) as server:
        plain = server.uri.replace("tls:", "tcp:")
        meant = rf"the peer speaks TLS, not rsocket; did you mean {server.uri}\?"
        async with afflux.connect(plain) as peer:
            with pytest.raises(afflux.RemoteProtocolError, match=meant):
                await peer.request(b"x")
        await turns_until(lambda: len(server.connections) == 1)
        with await asyncio.to_thread(afflux.sync.connect, plain) as blocking:
            with pytest.raises(afflux.RemoteProtocolError, match=meant):
                await asyncio.to_thread(blocking.request, b"x")
        await turns_until(lambda: len(server.connections) == 1)
        (bystander,) = server.connections
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, bytes(range(256))):
            with connected(server.uri) as sock:
                await turns_until(lambda: len(server.connections) == 2)
                (guest,) = set(server.connections) - {bystander}
                sock.sendall(words)
                assert await asyncio.to_thread(sock.recv, 100) == b"\x15\x03\x01\x00\x02\x02\x0a"
            await guest.wait_closed()
            assert isinstance(guest.error, ConnectFailed)
            assert str(guest.error) == f"no TLS with {server.uri}: the peer does not speak TLS"
    assert caplog.records == []


@both
async def test_tls_to_a_plaintext_port(certificates: Certificates, client: Client) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as bystander:
        await bystander.request(b"")
        with pytest.raises(ConnectFailed, match=rf"the peer does not speak TLS; did you mean {server.uri}\?"):
            await client(server.uri.replace("tcp:", "tls:"), certificates.to_connect)
        assert (await bystander.request(b"x")).data == b"x"


async def test_a_plaintext_server_knows_what_came(certificates: Certificates) -> None:
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="h").do_handshake()
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server:
        for words, name in ((hello.read(), "TLS"), (b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"\x16\x03", "TLS")):
            with connected(server.uri) as sock:
                await turns_until(lambda: len(server.connections) == 1)
                (guest,) = server.connections
                sock.sendall(words)
                if len(words) > 5:  # HS-12: it is answered as any first frame that cannot be
                    assert b"first-frame-too-large" in await asyncio.to_thread(sock.recv, 1000)
            await guest.wait_closed()
            assert isinstance(guest.error, afflux.RemoteProtocolError)
            assert str(guest.error) == f"the peer speaks {name}, not rsocket"


@both
async def test_a_server_that_hangs_up(certificates: Certificates, client: Client) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        uri = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectFailed, match="the peer closed the connection during the handshake"):
            await client(uri, certificates.to_connect)


async def test_a_silent_server(certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=r"did not answer within 0.05 s"):
            await afflux.connect(uri, tls=certificates.to_connect, timeout=0.05)
        with pytest.raises(ConnectFailed, match=r"did not end the TLS handshake within 0.05 s"):
            afflux.sync.connect(uri, tls=certificates.to_connect, timeout=0.05)


async def test_a_client_that_gives_up_in_the_middle(certificates: Certificates) -> None:
    async with serving(certificates.to_serve, certificates.to_connect) as server:
        (bystander,) = server.connections
        with connected(server.uri) as sock:
            await turns_until(lambda: len(server.connections) == 2)
            (guest,) = set(server.connections) - {bystander}
            sock.sendall(b"\x16\x03\x01")
        await guest.wait_closed()
        assert isinstance(guest.error, ConnectFailed)
        assert "the peer closed the connection during the handshake" in str(guest.error)


async def test_no_version_in_common(certificates: Certificates) -> None:
    new, old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=certificates.ca)
    new.load_cert_chain(certificates.server)
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(Tls(context=new), certificates.to_connect) as server:
        for client in (ask, ask_blocking):
            with pytest.raises(ConnectFailed, match="share no version of TLS"):
                await client(server.uri, Tls(context=old))
            await turns_until(lambda: len(server.connections) == 1)


async def test_a_cut_differs_from_an_end(certificates: Certificates) -> None:
    async with serving(certificates.to_serve, certificates.to_connect) as server:
        async with Proxy(server.uri) as proxy, afflux.connect(proxy.uri, tls=certificates.to_connect) as peer:
            await peer.request(b"")
            proxy.cut()
            await peer.wait_closed()
            assert str(peer.error) == "the peer cut the connection without ending TLS first"


async def test_garbage_after_the_handshake(certificates: Certificates) -> None:
    async with serving(certificates.to_serve, certificates.to_connect) as server:
        (bystander,) = server.connections
        context = ssl.create_default_context(cafile=certificates.ca)
        bare = connected(server.uri)
        tls = await asyncio.to_thread(context.wrap_socket, bare, server_hostname="127.0.0.1")
        raw = socket.socket(fileno=tls.detach())
        (guest,) = set(server.connections) - {bystander}
        with raw:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            await guest.wait_closed()
        assert isinstance(guest.error, ConnectFailed)


# -- the transport itself -----------------------------------------------------------------------------------------


async def test_what_is_written_before_the_handshake_waits_for_it(certificates: Certificates) -> None:
    """Nobody here does so; the contract of transports says that it can be done."""
    address = parse(HERE)
    transport = address.carrier.load()
    server = End()
    listener = await transport.listen(address, Everyone(), lambda host: server, certificates.to_serve)
    context = ssl.create_default_context(cafile=certificates.ca)
    with connected(str(listener.address)) as bare:
        await server.until(lambda: "made" in server.told)
        server.transport.set_write_buffer_limits(high=10)
        server.transport.pause_reading()
        server.send(b"first words")
        assert server.paused and server.transport.get_write_buffer_size() == 14

        def shake() -> bytes:
            with context.wrap_socket(bare, server_hostname="127.0.0.1") as sock:
                return sock.recv(100)

        assert await asyncio.to_thread(shake) == b"\x00\x00\x0bfirst words"
        await server.until(lambda: not server.paused)
        server.transport.resume_reading()
        await server.until(lambda: "lost" in server.told)
    listener.close()


class Received(Receiver):
    """A driver that keeps what it is given."""

    def __init__(self) -> None:
        self.made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parts: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.parts.append(data)


async def test_a_read_is_delivered_together(certificates: Certificates) -> None:
    """Performance: its records are one pass of the engine."""
    loop, address = asyncio.get_running_loop(), parse(HERE)
    server = Session(server_context(certificates.to_serve), address, server=True)
    client = Session(client_context(certificates.to_connect, address), address, server=False, name="127.0.0.1")
    driver, words = Received(), bytes(range(250)) * 500
    near, far = socket.socketpair()
    near.setblocking(False)
    ready: asyncio.Future[None] = loop.create_future()
    transport, _ = await loop.connect_accepted_socket(lambda: SecureLink(client, driver, flush=1, ready=ready), far)
    while not (driver.made.done() and server.ready):
        server.feed(await loop.sock_recv(near, 0x10000))
        server.handshake()
        await loop.sock_sendall(near, server.outgoing())
        await asyncio.sleep(0)
    server.write(words)
    encrypted = server.outgoing()
    transport.pause_reading()
    sent = near.send(encrypted)  # as much as the socket takes: it is read at once
    transport.resume_reading()
    while sum(map(len, driver.parts)) < sent - 0x5000:
        await asyncio.sleep(0)
    assert sent > 0x18000 and len(driver.parts) == 1
    assert words.startswith(driver.parts[0])
    transport.abort()
    near.close()


@pytest.mark.parametrize("ending", ["close", "write_eof", "abort"])
async def test_ending_before_the_handshake_is_aborting(certificates: Certificates, ending: str) -> None:
    address = parse(HERE)
    server = End()
    listener = await address.carrier.load().listen(address, Everyone(), lambda host: server, certificates.to_serve)
    with connected(str(listener.address)):
        await server.until(lambda: "made" in server.told)
        assert server.transport.get_extra_info("peercert") is None
        assert server.transport.get_extra_info("peername")[0] == "127.0.0.1"
        assert server.transport.get_extra_info("no such thing", 7) == 7
        server.send(b"lost")
        getattr(server.transport, ending)()
        await server.until(lambda: "lost" in server.told)
    listener.close()
    assert (server.told, server.error) == (["made", "lost"], None)


async def test_a_socket_that_breaks_before_it_is_taken_over(certificates: Certificates) -> None:
    """The listener tells the protocol object, which has to tell the driver: it holds the place of a connection."""
    end = End()
    session = Session(server_context(certificates.to_serve), parse(HERE), server=True)
    SecureLink(session, end, flush=1.0).connection_lost(OSError("bad descriptor"))
    assert end.told == ["lost"]


async def test_much_that_was_written_before_the_end_of_a_close_arrives(certificates: Certificates) -> None:
    """asyncio's own TLS lets it get lost: see tls_session.py."""
    async with afflux.serve(HERE, Large(), tls=certificates.to_serve) as server:
        async with afflux.connect(server.uri, tls=certificates.to_connect) as peer:
            answer = asyncio.ensure_future(peer.request(b"x"))
            assert (await answer).data == bytes(3_000_000)


class Large:
    """Answers with much, and says good-bye at once."""

    async def request(self, payload: afflux.Payload) -> bytes:
        """Three megabytes."""
        afflux.current_peer()._driver.state.loop.call_soon(_say_goodbye, afflux.current_peer())
        return bytes(3_000_000)


def _say_goodbye(peer: afflux.Peer) -> None:
    peer._driver.close(drain=True)


async def test_a_crowd_of_strangers_causes_no_warning(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    limits = Limits.server(accepts_per_s=1000)
    async with afflux.serve(HERE, Demo(), tls=certificates.to_serve, limits=limits) as server:
        for words in (b"", b"\0", b"\x16\x03\x01\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n") * 5:
            with connected(server.uri) as sock:
                sock.sendall(words)
        async with afflux.connect(server.uri, tls=certificates.to_connect) as peer:
            assert (await peer.request(b"x")).data == b"x"
            await turns_until(lambda: len(server.connections) == 1)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
