"""Jmux over sockets, with both drivers: what its engine's tests say, as applications meet it."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Payload
from afflux.protocols.jmux import frames

TCP = "jmux+tcp://127.0.0.1:0"


@pytest.fixture(autouse=True)
async def no_orphans() -> AsyncIterator[None]:
    """Everything that was started has ended."""
    before = asyncio.all_tasks()
    yield
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


HELLO = frames.ClientConnectionHeader(initial_ration=128).encode()
WELCOME = frames.ServerConnectionHeader(initial_ration=128).encode()


def opening(id: int, body: bytes = b"", eof: bool = True) -> bytes:
    """The first Data of a session."""
    return frames.Data(session=id, open=True, eof=eof, data=body).encode()


@contextmanager
def counted() -> Iterator[Any]:
    """Call what it gives: bytes that are held and were not held before. Nothing that is garbage is collected."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()


def reset(writer: asyncio.StreamWriter) -> None:
    """Cut a connection with a reset: what the other side has not sent is lost."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Sizes:
    """Answers with as many bytes as the request begins with."""

    async def request(self, payload: Payload) -> bytes:
        return bytes(int(payload.data[:8]))


@contextmanager
def served(uri: str, handler: Any, **terms: Any) -> Iterator[str]:
    """A server on another thread's loop: its address."""
    started, stop = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def main() -> None:
        async with afflux.serve(uri, handler, **terms) as server:
            found.extend((server.uri, asyncio.get_running_loop()))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(30)
    try:
        yield found[0]
    finally:
        found[1].call_soon_threadsafe(stop.set)
        thread.join(30)


# -- memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "?dialect=ids-255"])
@pytest.mark.parametrize(
    ("calls", "sends", "hears"),
    [(40, 0, 100_000), (4, 0, 1_500_000), (128, 0, 200_000), (128, 200_000, 0), (4, 1_500_000, 1_500_000)],
)
async def test_large_calls_at_once(options: str, calls: int, sends: int, hears: int) -> None:
    """None of them is ended for another one's sake (FC-18)."""
    async with afflux.serve(TCP + options, Sizes()) as server, afflux.connect(server.uri) as peer:
        request = b"%08d" % hears + bytes(sends)
        answers = await asyncio.gather(*(peer.request(request) for _ in range(calls)))
    assert [len(answer) for answer in answers] == [hears] * calls


async def test_the_newest_answer_first() -> None:
    """127 answers that nobody reads yet stop neither the newest nor each other."""
    async with afflux.serve(TCP, Sizes()) as server, afflux.connect(server.uri) as peer:
        sessions = []
        for _ in range(128):
            sessions.append(await peer.session(b"00090000", finish=True))
        for session in reversed(sessions):
            assert len(await session.read_all()) == 90_000


def test_the_newest_answer_first_in_a_blocking_program() -> None:
    with served(TCP, Sizes()) as uri, afflux.sync.connect(uri) as peer:
        sessions = [peer.session(b"00090000", finish=True) for _ in range(128)]
        for session in reversed(sessions):
            assert len(session.read_all()) == 90_000


async def test_a_server_keeps_nothing_of_a_reset_connection() -> None:
    """Answers that wait for ration, requests that are not whole: freed at once, not when garbage is collected."""
    async with afflux.serve(TCP, Sizes()) as server:
        port = int(server.uri.rsplit(":", 1)[1])
        with counted() as held:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            asked = b"".join(opening(id, b"01000000") for id in range(8))
            writer.write(HELLO + asked + b"".join(opening(id, bytes(30_000), False) for id in range(8, 60)))
            await reader.readexactly(100_000)
            assert held() > 1_500_000
            reset(writer)
            while server.connections:
                await asyncio.sleep(0.001)
            del reader, writer
            for _ in range(10):
                await asyncio.sleep(0)
            assert held() < 300_000


async def test_a_client_keeps_nothing_of_a_reset_connection() -> None:
    """Requests that wait, answers that are not whole, sessions that nobody has read."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        said = b"".join(frames.Data(session=id, data=bytes(30_000)).encode() for id in range(20))
        writer.write(WELCOME)
        await reader.readexactly(600_000)
        writer.write(said)
        await writer.drain()
        await reader.readexactly(1)
        reset(writer)

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listening:
        uri = f"jmux+tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with counted() as held:
            async with afflux.connect(uri) as peer:
                calls = [asyncio.ensure_future(peer.request(bytes(500_000))) for _ in range(10)]
                sessions = [asyncio.ensure_future(peer.session(bytes(200_000))) for _ in range(10)]
                ends = await asyncio.gather(*calls, *sessions, return_exceptions=True)
                assert all(isinstance(end, afflux.Error) for end in ends)
            del peer, calls, sessions, ends
            for _ in range(10):
                await asyncio.sleep(0)
            assert held() < 1_000_000  # of 7,000,000
