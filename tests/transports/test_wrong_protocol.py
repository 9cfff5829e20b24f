"""A client and a server that speak different protocols: both sides name both, whatever the transport."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any

import pytest

import afflux
from afflux.cli.exits import code_of
from afflux.demo.responder import Responder
from afflux.protocols.registry import PROTOCOLS
from afflux.transports.strangers import stranger

WRONG_PROTOCOL = 69
PAIRS = [(server, client) for server in PROTOCOLS for client in PROTOCOLS if server != client]


def at(protocol: str, uri: str) -> str:
    """The address of the same place for another protocol."""
    return f"{protocol}+{uri.rpartition('+')[2]}"


async def ask(peer: Any, protocol: str) -> None:
    """Make the first call that the protocol has."""
    match protocol:
        case "limit":
            await peer.channel([b"1"], route="sum").__anext__()
        case "rsio":
            await peer.stream(b"count:1:1").__anext__()
        case _:
            await peer.request(b"hi")


def ask_blocking(uri: str, protocol: str) -> None:
    with afflux.sync.connect(uri) as peer:
        match protocol:
            case "limit":
                next(iter(peer.channel([b"1"], route="sum")))
            case "rsio":
                next(iter(peer.stream(b"count:1:1")))
            case _:
                peer.request(b"hi")


@pytest.mark.parametrize("transport", ["tcp", "ws"])
@pytest.mark.parametrize(("server", "client"), PAIRS)
async def test_the_error_names_both_protocols(server: str, client: str, transport: str) -> None:
    async with afflux.serve(f"{server}+{transport}://127.0.0.1:0", Responder()) as running:
        uri = at(client, running.uri)
        with pytest.raises(afflux.Error) as caught:
            async with asyncio.timeout(30), afflux.connect(uri) as peer:
                await ask(peer, client)
        with pytest.raises(afflux.Error) as blocking:
            await asyncio.to_thread(ask_blocking, uri, client)
    for error in (caught.value, blocking.value):
        assert error.message.endswith(f"the peer speaks {server}, not {client}")
        assert code_of(error) == WRONG_PROTOCOL


@pytest.mark.parametrize("server", ["rsocket", "reactivesocket", "jmux", "rsio", "limit"])
async def test_a_websocket_client_at_a_server_without_websocket(server: str) -> None:
    """What answers HTTP with bytes of its own is named; what closes has said nothing."""
    async with afflux.serve(f"{server}+tcp://127.0.0.1:0", Responder()) as running:
        uri = f"{server}+{running.uri.rpartition('+')[2].replace('tcp:', 'ws:')}/here"
        with pytest.raises(afflux.ConnectFailed) as caught:
            await afflux.connect(uri)
        with pytest.raises(afflux.ConnectFailed) as blocking:
            await asyncio.to_thread(afflux.sync.connect, uri)
    for error in (caught.value, blocking.value):
        named = error.message.partition("the peer speaks ")[2].partition(", not WebSocket")[0]
        assert server in re.split(", | or ", named)
        assert error.message.endswith(f"; did you mean {running.uri}?")
        assert code_of(error) == WRONG_PROTOCOL


async def test_a_server_tells_a_client_of_another_protocol_in_its_own() -> None:
    """RSocket's ERROR[REJECTED_SETUP], for a SETUP of RSocket at a server of ReactiveSocket."""
    setup = bytes.fromhex("00002d 00000000 0400 0001 0000 00004e20 00015f90") + b"\x0aa/metadata\x06a/data" + b"hi"
    setup = (len(setup) - 3).to_bytes(3, "big") + setup[3:]
    reason = b"the server speaks reactivesocket, not rsocket"
    async with afflux.serve("reactivesocket+tcp://127.0.0.1:0", Responder()) as server:
        port = int(server.uri.rpartition(":")[2])

        def talk() -> bytes:
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(setup)
                return b"".join(iter(lambda: sock.recv(4096), b""))

        answer = await asyncio.to_thread(talk)
    frame = bytes.fromhex("00000000 2c00 00000003") + reason
    assert answer == len(frame).to_bytes(3, "big") + frame


def test_a_reason_is_believed_only_if_it_names_another_protocol() -> None:
    told = b"\x00\x00\x40\x00\x00\x00\x00\x2c\x00\x00\x00\x00\x03the server speaks %b, not rsocket"
    assert stranger(told % b"limit", "rsocket", client=False) == "the peer speaks limit, not rsocket"
    assert stranger(told % b"rsocket", "rsocket", client=False) is None
    assert stranger(told % b"\x1b[2J", "rsocket", client=False) is None
    assert stranger(told % b"limit", "rsocket", client=True) is None
