"""TCP: binding, addresses of several families, accepting when descriptors run out."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Any

import pytest

import afflux
from afflux.transports import tcp
from afflux.transports.address import parse


class Echo:
    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload


async def test_every_address_of_a_host_gets_one_port() -> None:
    async with afflux.serve("tcp://localhost:0", Echo()) as server:
        port = parse(server.uri).port
        assert port
        for host in {str(found[4][0]) for found in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}:
            uri = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
            async with afflux.connect(uri) as peer:
                assert (await peer.request(b"x")).data == b"x"


async def test_the_socket_does_not_wait_to_fill_packets() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"")
        for one in (peer, server.connections[0]):
            transport = one._driver.state.transport
            assert transport is not None
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        port = parse(server.uri).port
        real = socket.getaddrinfo

        def found(host: str, *arguments: Any, **keywords: Any) -> list[Any]:
            if host != "some.host" or keywords["flags"] & socket.AI_NUMERICHOST:
                return real(host, *arguments, **keywords)
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                dead = nobody.getsockname()
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", to) for to in (dead, ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        async with afflux.connect("tcp://some.host:1") as peer:
            assert (await peer.request(b"x")).data == b"x"


async def test_an_address_of_another_machine() -> None:
    with pytest.raises(afflux.BindFailed, match=r"cannot listen on tcp://192.0.2.1:0"):
        await afflux.serve("tcp://192.0.2.1:0", Echo())


async def test_out_of_descriptors_waits_says_so_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """limits.md, accept_backoff_s."""
    tried = 0

    class Poor:
        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock

        def accept(self) -> tuple[socket.socket, object]:
            nonlocal tried
            tried += 1
            if tried <= 2:
                raise OSError(errno.EMFILE, "Too many open files")
            return self._sock.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(self._sock, name)

    bind = tcp._bind
    monkeypatch.setattr(tcp, "_bind", lambda *what, **how: [Poor(sock) for sock in bind(*what, **how)])
    limits = afflux.Limits.server(accept_backoff_s=0.05)
    async with afflux.serve("tcp://127.0.0.1:0", Echo(), limits=limits) as server:
        start = asyncio.get_running_loop().time()
        async with afflux.connect(server.uri) as peer:
            await peer.request(b"x")
        assert asyncio.get_running_loop().time() - start >= 0.1
        assert tried <= 5
    assert [record.getMessage() for record in caplog.records if record.name == "afflux.server"] == [
        f"afflux: {server.uri} cannot accept connections: Too many open files; new clients wait; "
        "raise the limit of open files (ulimit -n)"
    ]


# -- one port, several who listen -------------------------------------------------------------------------------

shares = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this system has no SO_REUSEPORT")


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    async def request(self, payload: afflux.Payload) -> str:
        return self.name


@shares
@pytest.mark.parametrize("transport", ["tcp", "ws"])
async def test_servers_with_reuse_port_share_a_port(transport: str) -> None:
    async with afflux.serve(f"{transport}://127.0.0.1:0", Named("one"), reuse_port=True) as one:
        async with afflux.serve(one.uri, Named("two"), reuse_port=True) as two:
            assert two.uri == one.uri
            told = set()
            for _ in range(32):
                async with afflux.connect(one.uri) as peer:
                    told.add((await peer.request()).text)
            assert told == {"one", "two"}
        async with afflux.connect(one.uri) as peer:
            assert (await peer.request()).text == "one"


@shares
@pytest.mark.parametrize("first", [True, False])
async def test_both_need_reuse_port(first: bool) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Echo(), reuse_port=first) as server:
        with pytest.raises(afflux.BindFailed, match="the port is in use"):
            await afflux.serve(server.uri, Echo(), reuse_port=not first)


@shares
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_port_is_kept_for_those_who_share_it(host: str) -> None:
    address, held = tcp.reserved(parse(f"tcp://{host}:0", serving=True))
    try:
        assert address.port
        with pytest.raises(afflux.ConnectFailed, match="nothing listens"):
            await afflux.connect(address)
        with pytest.raises(afflux.BindFailed, match="in use"), socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            tcp.reserved(parse(f"tcp://127.0.0.1:{other.getsockname()[1]}"))
        async with afflux.serve(address, Echo(), reuse_port=True) as server, afflux.connect(server.uri) as peer:
            assert server.uri == str(address)
            assert (await peer.request(b"x")).data == b"x"
            with pytest.raises(afflux.BindFailed, match="in use"):  # somebody listens there, and would share it
                tcp.reserved(address)
    finally:
        for sock in held:
            sock.close()


@pytest.mark.parametrize("uri", ["unix:///nowhere/never", "mem://never"])
def test_what_has_no_port_can_not_share_one(uri: str) -> None:
    with pytest.raises(ValueError, match=r"reuse_port= is for tcp://, tls://, ws:// and wss://, not for (unix|mem)://"):
        afflux.serve(uri, Echo(), reuse_port=True)


def test_a_system_without_shared_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT", raising=False)
    with pytest.raises(afflux.Unsupported, match="this system has no SO_REUSEPORT"):
        afflux.serve("tcp://127.0.0.1:0", Echo(), reuse_port=True)
    with pytest.raises(afflux.Unsupported, match="this system has no SO_REUSEPORT"):
        tcp.reserved(parse("tcp://127.0.0.1:0", serving=True))


async def test_a_number_is_not_looked_up_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 clients of one process do not wait in the queue of a few threads."""
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", None)
        monkeypatch.setattr(threading, "Thread", None)
        async with afflux.connect(server.uri) as peer:
            assert (await peer.request(b"x")).data == b"x"
