"""Connections of real peers, captured on the loopback interface: decoded, they are what both ends logged."""

from __future__ import annotations

import asyncio
import http.server
import io
import socket
import struct
import threading
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from interop.control import Facts, started
from interop.peers import PEERS
from interop.responder import Responder
from interop.sides import AffluxAsker, Asker, Failed, ProcessAsker

import afflux
from afflux.capture import Capture, Decoder
from afflux.capture.proxy import RecordingProxy
from afflux.capture.recording import Recording
from afflux.capture.tables import analyze
from afflux.protocols.registry import recognizable
from afflux.protocols.rsocket import frames as wire
from tests.capture.live import needs_dumpcap, sniffing
from tests.capture.reading import followed, rows
from tests.capture.test_decoding import without

pytestmark = [needs_dumpcap, pytest.mark.slow]
OURS = "afflux"


def decoded(file: bytes) -> list[dict[str, Any]]:
    return list(Decoder(Capture(io.BytesIO(file)), recognizable(), payload="text"))


def table(file: bytes, name: str, **options: Any) -> list[dict[str, Any]]:
    batches = analyze(io.BytesIO(file), tables=(name,), **options)
    return [row for _, batch in batches for row in batch.to_pylist()]


async def conversation(asker: Asker, facts: Facts) -> list[tuple[str, int, str]]:
    """Requests of every kind; returns what each was, how many items the requester got, and how it ended."""
    log = []
    answer = await asker.request(b"hello")
    assert answer is not None
    log.append(("request", 1, "complete"))
    with pytest.raises(Failed, match="broken"):
        await asker.request(b"!fail broken")
    log.append(("request", 0, "error"))
    for count, first, more in ((12, 3, 9), (5, 1, 1)):
        flow = await asker.stream(b"!count %d 9" % count, first)
        got = len(await flow.take(first))
        while got < count:  # a slow reader: it asks for more when it has all
            await flow.more(more)
            got += len(await flow.take(more))
        await flow.more(1)
        await flow.end()
        log.append(("stream", got, "complete"))
    flow = await asker.stream(b"!endless tag", 2)
    got = len(await flow.take(2))
    await flow.cancel()
    await facts.wait("canceled", tag="tag")
    log.append(("stream", got, "cancel"))
    flow = await asker.stream(b"!fail 2 broken", 5)
    got = len(await flow.take(2))
    with pytest.raises(Failed, match="broken"):
        await flow.end()
    log.append(("stream", got, "error"))
    return log


async def asker_of(peer: str, uri: str, stack: AsyncExitStack) -> tuple[Asker, Any]:
    """A client of an implementation, and a function that closes it."""
    if peer == OURS:
        client = afflux.connect(uri)
        made = await client.__aenter__()
        return AffluxAsker(made), lambda: client.__aexit__(None, None, None)
    process = await stack.enter_async_context(started(PEERS[peer].command))
    composite = "message/x.rsocket.composite-metadata.v0"
    orders = {"data_mime": "application/octet-stream", "metadata_mime": composite, "bare": False, "lease": None}
    orders |= {"keepalive": 20_000, "lifetime": 90_000, "mtu": None, "resume": None}
    told = await process.ask("connect", uri=uri, setup_data=None, setup_metadata=None, **orders)
    assert "error" not in told, told

    async def close() -> None:
        await process.ask("close")
        await process.stop()  # rsocket-py leaves its WebSocket open until then

    return ProcessAsker(process), close


@pytest.mark.parametrize("transport", ["tcp", "ws"])
@pytest.mark.parametrize("peer", [OURS, "rsocket-py", "rsocket-js-0", "rsocket-js-1"])
async def test_real_peers(peer: str, transport: str) -> None:
    """The bytes of the capture are those that a proxy between the ends relayed, and `afflux capture` recorded; the
    table of streams is what the requester logged."""
    if peer != OURS and (reason := PEERS[peer].why_not()):
        pytest.skip(reason)
    facts, written = Facts(), io.BytesIO()
    path = "/" if transport == "ws" else ""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(afflux.serve(f"{transport}://127.0.0.1:0{path}", Responder(facts)))
        port = int(server.uri.rpartition(":")[2].strip("/"))
        sniffer = await stack.enter_async_context(sniffing(port))
        recording = Recording(written.write, "test")
        proxy = await stack.enter_async_context(
            RecordingProxy("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{port}", recording)
        )
        uri = f"{transport}://{proxy.uri.partition('://')[2]}{path}"
        asker, close = await asker_of(peer, uri, stack)
        log = await conversation(asker, facts)
        await asker.fire(b"bye")
        await facts.wait("fired")
        await close()
        file = await sniffer.closed()
    (captured,), (recorded,) = followed(file).connections, followed(written.getvalue()).connections
    for client in (True, False):
        assert captured.joined(client) == recorded.joined(client)
    found = decoded(file)
    assert without(found, "ts", "conn") == without(decoded(written.getvalue()), "ts", "conn") or sorted(
        map(str, without(found, "ts", "conn"))
    ) == sorted(map(str, without(decoded(written.getvalue()), "ts", "conn")))
    assert not any(made["error"] for made in found)
    streams = sorted(table(file, "streams"), key=lambda row: row["stream"])
    streams = [row for row in streams if row["stream"] > 0]
    assert [(row["kind"], row["items_in"], row["ended"]) for row in streams[:-1]] == log
    assert streams[-1]["kind"] == "fire"
    assert all(row["granted_in"] is None or row["granted_in"] >= row["items_in"] for row in streams)
    assert table(file, "violations") == []


# -- stalls whose cause is known -------------------------------------------------------------------------------------


class Numbers:
    """Streams numbers."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for n in range(int(payload.data)):
            yield b"%d" % n

    async def request(self, payload: afflux.Payload) -> bytes:
        return payload.data


async def test_a_consumer_that_grants_no_credit_is_the_cause_of_its_stall() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Numbers()) as server:
        port = int(server.uri.rpartition(":")[2])
        async with sniffing(port) as sniffer:
            async with afflux.connect(server.uri) as peer, peer.stream(b"12", credit=4) as items:
                for _ in range(2):
                    await anext(items)
                for _ in range(3):  # the consumer does something else, until it has passed through the capture
                    await peer.request(b"busy")
                    await sniffer.now()
                left = [item async for item in items]
            assert len(left) == 10
            file = await sniffer.closed()
    stalls = [row for row in table(file, "stalls", stall_s=0.002) if row["stream"] == 1 and row["dir"] == "<"]
    longest = max(stalls, key=lambda row: row["seconds"])
    assert (longest["cause"], longest["after_type"], longest["resumed_by"]) == ("peer", "PAYLOAD", "REQUEST_N"), stalls
    (stream,) = [row for row in table(file, "streams") if row["stream"] == 1]
    assert (stream["kind"], stream["items_in"], stream["ended"]) == ("stream", 12, "complete")
    assert stream["granted_in"] >= 12


class Large:
    """Streams items of 4 KiB."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for _ in range(int(payload.data)):
            yield bytes(4_096)


def full(file: bytes) -> bool:
    """Whether a side has announced that it has no room."""
    found = False
    for row in rows(file)[0]:
        at = 14 + 20
        if len(row.data) >= at + 20 and row.data[23] == 6 and row.data[at + 13] & 0x06 == 0:
            found |= struct.unpack_from(">H", row.data, at + 14)[0] == 0
    return found


async def test_a_client_that_does_not_read_its_socket_is_a_stall_of_the_transport() -> None:
    """The credit is unlimited, the window is not."""
    frames = [wire.Setup().encode(), wire.RequestStream(stream=1, initial_n=2**31 - 1, data=b"100").encode()]
    loop = asyncio.get_running_loop()
    async with afflux.serve("tcp://127.0.0.1:0", Large()) as server:
        port = int(server.uri.rpartition(":")[2])
        async with sniffing(port) as sniffer:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_400)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, b"".join(len(one).to_bytes(3, "big") + one for one in frames))
                await sniffer.until(full)
                await sniffer.now()
                got = 0
                while got < 100 * 4_096:
                    got += len(await loop.sock_recv(client, 1 << 16))
            file = await sniffer.now()
    stalls = [row for row in table(file, "stalls", stall_s=0.002) if row["dir"] == "<"]
    longest = max(stalls, key=lambda row: row["seconds"])
    assert longest["cause"] == "transport", stalls
    (stream,) = [row for row in table(file, "streams") if row["stream"] == 1]
    assert stream["items_in"] == 100


# -- other traffic ---------------------------------------------------------------------------------------------------


async def test_other_traffic_is_not_ours() -> None:
    """HTTP of the standard library, and datagrams."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]  # quiet
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port = server.server_address[1]
    try:
        async with sniffing(port) as sniffer:

            def fetch() -> bytes:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                    read: bytes = answer.read()
                    return read

            assert await asyncio.to_thread(fetch)
            await sniffer.now()
            file = await sniffer.closed()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    decoder = Decoder(Capture(io.BytesIO(file)), recognizable())
    assert list(decoder) == [] and decoder.tally == {"not ours (HTTP)": 1}
    assert decoder.network.skipped["not TCP"] >= 1
    (row,) = table(file, "connections")
    assert (row["protocol"], row["content"], row["closing"]) == (None, "not ours (HTTP)", "fin")
