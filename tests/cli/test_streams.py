"""SIGUSR1 to ``afflux serve``: the live streams of every connection, and what each waits for."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import afflux
from afflux import Limits
from afflux.protocols.rsocket import frames
from afflux.transports.address import parse
from tests.cli.running import Server

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")

HANDLER = """
import asyncio

class Stands:
    async def request(self, payload):
        await asyncio.Event().wait()

    async def stream(self, payload):
        yield b"first"
        if payload.data == b"silent":
            await asyncio.Event().wait()
        while True:
            yield bytes(1000)
"""
SLOTS = Limits.server().streams


@pytest.fixture(autouse=True)
def in_a_folder_with_a_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stands.py").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)


@contextmanager
def deaf(uri: str) -> Iterator[None]:
    """A client that requests an endless stream and reads nothing."""
    address = parse(uri)
    with socket.create_connection((address.host, address.port)) as sock:
        request = frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"endless")
        sock.sendall(frames.Setup().encode(prefixed=True) + request.encode(prefixed=True))
        yield


async def line_of(server: Server) -> list[str]:
    """The words of the next line on the server's stderr."""
    errors = server.process.stderr
    assert errors is not None
    return (await asyncio.wait_for(asyncio.to_thread(errors.readline), 30)).split()


async def reported(server: Server) -> tuple[str, list[list[str]]]:
    """The counts of a report at SIGUSR1, and the words of each stream's row."""
    server.process.send_signal(signal.SIGUSR1)
    head = " ".join((await line_of(server))[-5:])
    rows = []
    for _ in range(int(head.split()[0])):
        if count := int((await line_of(server))[1]):
            await line_of(server)  # the names of the columns
            rows += [await line_of(server) for _ in range(count)]
    return head, rows


async def test_what_each_stream_waits_for() -> None:
    reasons = {"local": 1, "credit": 1, "transport": 1, "producer": SLOTS + 1}
    with Server("--handler", "stands:Stands") as server, deaf(server.uri):
        async with afflux.connect(server.uri, limits=Limits.server(streams=SLOTS + 10)) as peer:
            silent, starved = peer.stream(b"silent"), peer.stream(b"endless", credit=0)
            await anext(silent)
            starved.request(5)
            assert len([await anext(starved) for _ in range(5)]) == 5
            requests = [asyncio.ensure_future(peer.request(b"")) for _ in range(SLOTS + 1)]
            async with asyncio.timeout(60):
                head, rows = await reported(server)
                while (
                    Counter(words[-1] for words in rows) != reasons
                ):  # requests are on their way, or the socket has room
                    head, rows = await reported(server)
            assert {one.reason for one in peer.streams()} == {"producer", "application"}
            for request in requests:
                request.cancel()
            starved.cancel()
            silent.cancel()
    assert head == f"2 connections, {SLOTS + 4} live streams"
    assert [words[4] for words in rows if words[-1] == "credit"] == ["5/5"]
    verbs = {reason: {words[1] for words in rows if words[-1] == reason} for reason in reasons}
    assert verbs == {
        "local": {"request"},
        "credit": {"stream"},
        "transport": {"stream"},
        "producer": {"request", "stream"},
    }


async def test_every_worker_reports() -> None:
    with Server("--handler", "stands:Stands", "--workers", "2") as server:
        server.process.send_signal(signal.SIGUSR1)
        report = [await line_of(server), await line_of(server)]
    assert [" ".join(words[-5:]) for words in report] == ["0 connections, 0 live streams"] * 2
    assert len({words[2] for words in report}) == 2
