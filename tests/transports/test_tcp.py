"""TCP: binding, addresses of several families, accepting when descriptors run out."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

import afflux
from afflux.address import parse
from afflux.transports import tcp


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
            transport = one._driver.transport
            assert transport is not None
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        port = parse(server.uri).port
        loop = asyncio.get_running_loop()

        async def found(*arguments: object, **keywords: object) -> list[object]:
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                dead = nobody.getsockname()
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", to) for to in (dead, ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", found)
        async with afflux.connect("tcp://some.host:1") as peer:
            assert (await peer.request(b"x")).data == b"x"


async def test_an_address_of_another_machine() -> None:
    with pytest.raises(afflux.BindFailed, match=r"can not listen on tcp://192.0.2.1:0"):
        await afflux.serve("tcp://192.0.2.1:0", Echo())


async def test_out_of_descriptors_waits_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """limits.md, accept_backoff_s."""
    tried = 0

    class Poor:
        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock

        def accept(self) -> tuple[socket.socket, object]:
            nonlocal tried
            tried += 1
            if tried == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return self._sock.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(self._sock, name)

    bind = tcp._bind
    monkeypatch.setattr(tcp, "_bind", lambda *arguments: [Poor(sock) for sock in bind(*arguments)])
    limits = afflux.Limits.server(accept_backoff_s=0.05)
    async with afflux.serve("tcp://127.0.0.1:0", Echo(), limits=limits) as server:
        start = asyncio.get_running_loop().time()
        async with afflux.connect(server.uri) as peer:
            await peer.request(b"x")
        assert asyncio.get_running_loop().time() - start >= 0.05
        assert tried <= 4
