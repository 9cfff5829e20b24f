"""The log of connections and of frames, and of handlers that fail."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.core.errors import ApplicationError
from afflux.core.payload import Payload
from afflux.protocols.registry import PROTOCOLS
from afflux.watching import end_of, frame_line, quoted, watch_of

ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


class Echo:
    """Answers with the request; fails where the data asks for it."""

    def __init__(self) -> None:
        self.peers: list[afflux.Peer] = []

    async def request(self, payload: Payload) -> Any:
        self.peers.append(afflux.current_peer())
        if payload.data == b"late":
            await asyncio.sleep(0)
        if payload.data in (b"early", b"late"):
            raise KeyError("a bug")
        return {"not": "bytes"} if payload.data == b"wrong" else payload.data

    async def fire(self, payload: Payload) -> None:
        raise KeyError("a bug")

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        yield b"one"
        raise KeyError("a bug")

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        async for item in items:
            raise KeyError(item.data)
        yield b""


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The messages of a logger. Ports are replaced by N, the names of connections by C (client) and S (server)."""
    found = [record.getMessage() for record in caplog.records if record.name == f"afflux.{logger}"]
    if not found:
        return []
    client = next(line.split()[0] for line in found if "accepted" not in line)
    server = next((line.split()[0] for line in found if line.split()[0] != client), "-")
    found = [re.sub(rf"^{client}\b", "C", re.sub(rf"^{server}\b", "S", line)) for line in found]
    return [ADDRESS.sub("127.0.0.1:N", re.sub(r"after [\d.]+ s", "after T", line)) for line in found]


async def test_the_life_of_a_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "afflux"):
        async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server, afflux.connect(server.uri) as peer:
            await peer.request(b"x")
    found = lines(caplog, "connection")
    assert [line for line in found if line[0] == "C"] == [
        "C connecting to tcp://127.0.0.1:N",
        "C connected from 127.0.0.1:N to 127.0.0.1:N, rsocket",
        "C set up",
        "C closed after T; 115 B sent, 10 B received: this side closed the connection",
    ]
    assert [line for line in found if line[0] == "S"] == [
        "S accepted 127.0.0.1:N on tcp://127.0.0.1:N, rsocket",
        "S set up: metadata message/x.rsocket.composite-metadata.v0, data application/octet-stream, keepalive 20 s, "
        "lifetime 90 s",
        "S closed after T; 10 B sent, 115 B received: closed",
    ]
    assert lines(caplog, "frames") == []


async def test_frames_are_logged_as_decode_prints_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "afflux.frames"):
        async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server, afflux.connect(server.uri) as peer:
            await peer.request(b"long " * 30, route="prices.x", metadata=[("text/plain", b"hello")])
            await peer.request(b"\0\1")
    found = [record.getMessage() for record in caplog.records if record.name == "afflux.frames"]
    name = found[0].split()[0]
    assert [line.removeprefix(f"{name} ") for line in found if line.startswith(f"{name} ")] == [
        "> rsocket stream=0 SETUP data_len=0 major=1 minor=0 keepalive_ms=20000 lifetime_ms=90000 "
        "metadata_mime=message/x.rsocket.composite-metadata.v0 data_mime=application/octet-stream",
        "> rsocket stream=1 REQUEST_RESPONSE [M] metadata_len=22 data_len=150 "
        f'metadata="route prices.x, text/plain (5 bytes)" data="{("long " * 30)[:64]}…"',
        f'< rsocket stream=1 PAYLOAD [CN] data_len=150 data="{("long " * 30)[:64]}…"',
        "> rsocket stream=3 REQUEST_RESPONSE data_len=2 data=0001",
        "< rsocket stream=3 PAYLOAD [CN] data_len=2 data=0001",
        "> rsocket stream=0 ERROR code=0x101 CONNECTION_ERROR data_len=6 data=closed",
    ]


@pytest.mark.parametrize("protocol", ["rsocket", "rsocket-draft", "reactivesocket"])
async def test_secrets_are_masked(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    secret, password = "bearer-of-news", "open-sesame"
    resume = "resume" in PROTOCOLS[protocol].features
    echo = Echo()
    with caplog.at_level(logging.DEBUG, "afflux"):
        async with afflux.serve(f"{protocol}+tcp://127.0.0.1:0", echo, resume=resume) as server:
            setup = [afflux.Bearer(secret)]
            async with afflux.connect(server.uri, setup=setup, resume=resume) as peer:
                await peer.request(b"x", metadata=[afflux.Simple("ann", password)], route="r")
                token = getattr(echo.peers[0].setup, "token", None)
                if protocol == "rsocket":
                    peer.cut()
                    await peer.request(b"again")
    assert resume == (token is not None)
    hidden = [secret.encode(), password.encode(), *([] if token is None else [token])]
    for value in hidden:
        assert value.decode("latin-1") not in caplog.text
        assert value.hex() not in caplog.text
        assert repr(value)[2:-1] not in caplog.text
    assert "message/x.rsocket.authentication.v0 (" in caplog.text
    assert ("RESUME" in caplog.text) == (protocol == "rsocket")


async def test_a_session_that_is_resumed_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "afflux"):
        async with (
            afflux.serve("tcp://127.0.0.1:0", Echo(), resume=True) as server,
            afflux.connect(server.uri, resume=True) as peer,
        ):
            await peer.request(b"x")
            peer.cut()
            await peer.request(b"y")
    found = lines(caplog, "connection")
    assert [re.sub(r"in [\d.e-]+ s", "in T", line).split(",")[0] for line in found if line[0] == "C"] == [
        "C connecting to tcp://127.0.0.1:N",
        "C connected from 127.0.0.1:N to 127.0.0.1:N",
        "C set up",
        "C suspended: the session waits for another transport",
        "C resuming in T",
        "C connecting to tcp://127.0.0.1:N",
        "C connected from 127.0.0.1:N to 127.0.0.1:N again",
        "C resumed",
        "C closed after T; 232 B sent",
    ]
    assert "S resumed" in found and "S accepted 127.0.0.1:N on tcp://127.0.0.1:N again" in found


async def test_a_client_that_reconnects_says_when_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "afflux"):
        async with (
            afflux.serve("mem://there", Echo()) as server,
            afflux.connect(server.uri, reconnect=afflux.Backoff(first=0.001)) as peer,
        ):
            peer.cut()
            await peer.wait_closed()
            await peer.request(b"x")
    found = [record.getMessage() for record in caplog.records]
    assert any(re.fullmatch(r"connecting again in [\d.e-]+ s: .+", line) for line in found)


async def test_a_server_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "afflux"), pytest.raises(afflux.ConnectFailed):
        await afflux.connect("mem://nobody")
    assert lines(caplog, "connection") == ["C connecting to mem://nobody", "C not connected"]


def test_nothing_is_watched_while_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert watch_of(PROTOCOLS["rsocket"], "tcp://h:1", client=True) is None
    with caplog.at_level(logging.INFO, "afflux.connection"):
        assert watch_of(PROTOCOLS["rsocket"], "tcp://h:1", client=True) is not None
    with caplog.at_level(logging.DEBUG, "afflux.frames"):
        assert watch_of(PROTOCOLS["rsocket"], "tcp://h:1", client=True) is not None


@pytest.mark.parametrize("protocol", ["rsocket", "jmux", "rsio", "limit", "reactivesocket", "rsocket-draft"])
async def test_every_protocol_is_logged(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    from afflux.demo.responder import Responder

    with caplog.at_level(logging.DEBUG, "afflux"):
        async with (
            afflux.serve(f"{protocol}+tcp://127.0.0.1:0", Responder()) as server,
            afflux.connect(server.uri) as peer,
        ):
            if "request" in PROTOCOLS[protocol].verbs:
                await peer.request(b"x")
            elif protocol == "rsio":
                async with peer.subscribe("count:2:8") as items:
                    assert len([item async for item in items]) == 2
    found = lines(caplog, "connection")
    assert any(line.startswith(f"S accepted 127.0.0.1:N on {protocol}+tcp") or protocol == "rsocket" for line in found)
    assert all(f" {protocol} stream=" in record.getMessage() for record in caplog.records if record.levelno == 10)
    assert protocol == "limit" or any(record.name == "afflux.frames" for record in caplog.records)


def test_a_blocking_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ready, stop = threading.Event(), threading.Event()
    uris: list[str] = []

    async def serve() -> None:
        async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
            uris.append(server.uri)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    ready.wait()
    try:
        with caplog.at_level(logging.DEBUG, "afflux"), afflux.sync.connect(uris[0]) as peer:
            peer.request(b"x")
    finally:
        stop.set()
        thread.join()
    name = next(record.getMessage() for record in caplog.records).split()[0]
    texts = [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"{name} ")]
    port = uris[0].rpartition(":")[2]
    assert re.fullmatch(rf"{name} connected from 127\.0\.0\.1:\d+ to 127\.0\.0\.1:{port}, rsocket", texts[1])
    assert [re.sub(r"[\d.]+ s;.*", "T", text).removeprefix(f"{name} ")[:40] for text in texts if text != texts[1]] == [
        f"connecting to {uris[0]}",
        "> rsocket stream=0 SETUP data_len=0 majo",
        "> rsocket stream=1 REQUEST_RESPONSE data",
        "< rsocket stream=1 PAYLOAD [CN] data_len",
        "set up",
        "> rsocket stream=0 ERROR code=0x101 CONN",
        "closed after T",
    ]


# One line.


def test_a_line_has_no_control_characters_and_a_bounded_length() -> None:
    assert quoted("a\nb\x1b[31m") == r"a\nb\x1b[31m"
    assert quoted("x" * 1000) == "x" * 64 + "…"
    record = (
        PROTOCOLS["rsocket"]
        .dissector(True, "bytes")
        .bare(  # type: ignore[misc]
            bytes.fromhex("00000000 2c00 00000201") + b"\n" * 1000
        )
    )
    assert len(frame_line(record)) < 300 and frame_line(record).isprintable()


def test_metadata_that_cannot_be_read_shows_its_length() -> None:
    record = {"ts": None, "conn": None, "dir": ">", "protocol": "rsocket", "stream": 1, "type": "REQUEST_FNF"}
    record |= {"flags": [], "fields": {}, "error": None, "metadata": b"secret", "data": "é".encode() * 40}
    assert frame_line(record) == f'> rsocket stream=1 REQUEST_FNF metadata="(6 bytes)" data={"é" * 32}…'
    assert "metadata=name" in frame_line(record | {"metadata": b"name"}, "application/x.afflux.channel-name")
    many = afflux.compose([("text/plain", b"x")] * 40)
    assert frame_line(record | {"metadata": many}).count("text/plain (1 bytes)") == 16
    odd = afflux.compose([("no mime\n", b"x")])
    assert 'metadata="entry (1 bytes)"' in frame_line(record | {"metadata": odd})


def test_the_ends_of_connections_have_names() -> None:
    assert end_of(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert end_of(("::1", 80, 0, 0)) == "[::1]:80"
    assert end_of(["10.0.0.1", 80]) == "10.0.0.1:80"  # of an ASGI server
    assert end_of("/run/x.sock") == "/run/x.sock"
    assert end_of("") == end_of(None) == "a local socket"


# Handlers that fail.


async def ended(answer: Any) -> None:
    with pytest.raises(ApplicationError):
        async for _ in answer:
            pass


@pytest.mark.parametrize(
    ("verb", "data", "text"),
    [
        ("request", b"early", r'request of route "prices\.x\\nforged", stream 1'),
        ("request", b"late", r'request of route "prices\.x\\nforged", stream 1'),
        ("request", b"wrong", r'request of route "prices\.x\\nforged", stream 1'),
        ("stream", b"", r'stream of route "prices\.x\\nforged", stream 1'),
        ("channel", b"", r'channel of route "prices\.x\\nforged", stream 1'),
    ],
)
async def test_a_handlers_error_names_the_request(
    verb: str, data: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server, afflux.connect(server.uri) as peer:
        match verb:
            case "request":
                with pytest.raises(ApplicationError):
                    await peer.request(data, route="prices.x\nforged")
            case "stream":
                await ended(peer.stream(data, route="prices.x\nforged"))
            case _:
                async with peer.channel([data], route="prices.x\nforged") as items:
                    await ended(items)
    (record,) = [record for record in caplog.records if record.name == "afflux.handlers"]
    assert re.fullmatch(rf"afflux: a handler raised: {text}, peer 127\.0\.0\.1:\d+", record.getMessage())
    assert record.exc_info is not None and record.levelno == logging.ERROR


async def test_what_a_handler_lacks_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Lacking:
        async def request(self, payload: afflux.Payload) -> None:
            raise afflux.MissingExtra("flight data", "demo")

    async with afflux.serve("tcp://127.0.0.1:0", Lacking()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(ApplicationError) as found:
            await peer.request(b"")
    assert "demo" not in str(found.value)
    (record,) = [record for record in caplog.records if record.name == "afflux.handlers"]
    assert record.exc_info is not None and "afflux[demo]" in str(record.exc_info[1])


async def test_a_failed_fire_without_route_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server, afflux.connect(server.uri) as peer:
        await peer.fire(b"x")
        await peer.request(b"x")
    (record,) = [record for record in caplog.records if record.name == "afflux.handlers"]
    assert re.fullmatch(r"afflux: a handler raised: fire, stream 1, peer 127\.0\.0\.1:\d+", record.getMessage())


async def test_a_failed_push_and_setup_are_named(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    class Pushed:
        async def push(self, metadata: bytes) -> None:
            done.set()
            raise KeyError("a bug")

    async def deny(setup: object, peer: afflux.Peer) -> None:
        raise KeyError("a bug")

    async with afflux.serve("tcp://127.0.0.1:0", Pushed()) as server, afflux.connect(server.uri) as peer:
        await peer.push(b"x")
        await done.wait()
    async with (
        afflux.serve("tcp://127.0.0.1:0", Pushed(), on_setup=deny) as server,
        afflux.connect(server.uri) as peer,
    ):
        await peer.wait_closed()
    texts = [record.getMessage() for record in caplog.records if record.name == "afflux.handlers"]
    assert [ADDRESS.sub("N", text) for text in texts] == [
        "afflux: a handler raised: push, peer N",
        "afflux: on_setup raised: peer N",
    ]
