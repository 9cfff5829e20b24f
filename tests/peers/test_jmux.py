"""Jmux over sockets, with both drivers: what its engine's tests say, as applications meet it."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Limits, Payload
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


async def test_unread_answers_stop_no_others() -> None:
    """127 of them fill more than ``connection_bytes``, each no more than its share: the 128th is served (R-40)."""
    async with afflux.serve(TCP, Sizes()) as server, afflux.connect(server.uri) as peer:
        sessions = [await peer.session(b"00100000", finish=True) for _ in range(127)]
        for _ in range(20):
            assert len(await asyncio.wait_for(peer.request(b"00001000"), 10)) == 1000
        for session in reversed(sessions):
            assert len(await session.read_all()) == 100_000


async def test_large_unread_answers_are_bounded() -> None:
    """128 small requests for 16 MiB each: one is made, and the others wait."""
    async with afflux.serve(TCP, Sizes()) as server:
        with counted() as held:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.uri.rsplit(":", 1)[1]))
            writer.write(
                HELLO + b"".join(opening(id, b"16777216") for id in range(128)) + frames.Ping(cookie=7).encode()
            )
            await reader.readexactly(12 + 32 * 1028)  # all was read, and the ration of an answer is used up
            assert held() < 24 << 20
            reset(writer)


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


def pings(count: int) -> bytes:
    return b"".join(frames.Ping(cookie=cookie & 0xFFFF).encode() for cookie in range(count))


def aborts(count: int) -> bytes:
    return b"".join(opening(n % 128, b"q") + frames.Abort(session=n % 128).encode() for n in range(count))


@pytest.mark.parametrize("flood", [pings(65_536), aborts(16_384)])
async def test_a_flood_with_unread_answers_takes_no_memory(flood: bytes) -> None:
    """It is over soon, or is read as slowly as it is answered; nothing of it is kept."""
    limits = Limits.server(flush_s=0.5)
    async with afflux.serve(TCP, Sizes(), limits=limits) as server:
        address = "127.0.0.1", int(server.uri.rsplit(":", 1)[1])

        def say() -> int:
            said = 0
            with socket.create_connection(address) as sock:
                sock.settimeout(10)
                sock.sendall(HELLO)
                try:
                    while said < 2 << 20:
                        said += sock.send(flood)
                except OSError:
                    pass
                return said

        tracemalloc.start()
        try:
            assert await asyncio.to_thread(say)
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()


# -- acknowledgements -------------------------------------------------------------------------------------------


class Acknowledged:
    """A handler of sessions that wants to know whether its response was processed."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[bool] = asyncio.Queue()

    async def session(self, session: Any) -> None:
        await session.read_all()
        await session.write(b"response")
        session.finish(acknowledge=True)
        self.told.put_nowait(await session.acknowledged())


@pytest.mark.parametrize("acknowledges", [False, True])
async def test_a_reader_that_leaves_without_acknowledging_is_reported_at_once(acknowledges: bool) -> None:
    """Not after ``ack_s``; so 300 sessions in a row need no more than one id."""
    handler = Acknowledged()
    async with afflux.serve(TCP, handler) as server, afflux.connect(server.uri) as peer:
        for _ in range(300):
            async with await peer.session(b"q", finish=True, acknowledge=False) as session:
                assert await session.read_all() == b"response"
                if acknowledges:
                    session.acknowledge()
            assert await asyncio.wait_for(handler.told.get(), 10) is acknowledges


def test_a_reader_that_leaves_without_acknowledging_is_reported_at_once_from_a_blocking_program() -> None:
    with served(TCP, Acknowledged()) as uri, afflux.sync.connect(uri) as peer:
        for _ in range(300):
            with peer.session(b"q", finish=True, acknowledge=False, timeout=10) as session:
                assert session.read_all() == b"response"


# -- may it have been processed? --------------------------------------------------------------------------------

STRANGERS = [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
    (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
]


@asynccontextmanager
async def stub(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that is no peer of ours, for one connection."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(once, "127.0.0.1", 0, limit=1 << 25)
    try:
        yield f"jmux+tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


@pytest.mark.parametrize(("words", "name"), STRANGERS)
async def test_calls_to_a_stranger_are_safe_to_repeat(words: bytes, name: str) -> None:
    """Nothing of them was written (3.5); and the stranger hears why we leave (D-1)."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.readexactly(8)
        writer.write(words)
        heard.set_result(said + await reader.read())

    async with stub(talk) as uri:
        transport = {"HTTP": "ws", "TLS": "tls"}.get(name)
        meant = f"; did you mean {uri.replace('tcp', transport)}?" if transport else ""
        async with afflux.connect(uri) as peer:
            calls = [peer.request(b"q") for _ in range(100)]
            ends = await asyncio.gather(*calls, peer.session(b"q"), peer.session(), return_exceptions=True)
            for end in ends[:-1]:
                assert isinstance(end, afflux.Error)
                assert not end.may_have_been_processed
                assert str(end) == f"the peer speaks {name}, not jmux{meant}"
            with pytest.raises(afflux.Error) as late:
                await peer.request(b"q")
            assert not late.value.may_have_been_processed
        said = await heard
    assert said[:8] == HELLO
    assert isinstance(frames.decode(said[8:]), frames.ErrorMessage)


@pytest.mark.parametrize(("words", "name"), STRANGERS)
def test_a_blocking_call_to_a_stranger_is_safe_to_repeat(words: bytes, name: str) -> None:
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            nonlocal said
            with listening.accept()[0] as sock:
                said = sock.recv(8)
                sock.sendall(words)
                while more := sock.recv(1000):
                    said += more

        thread = threading.Thread(target=talk)
        thread.start()
        with afflux.sync.connect(f"jmux+tcp://127.0.0.1:{listening.getsockname()[1]}") as peer:
            with pytest.raises(afflux.RemoteProtocolError, match=f"the peer speaks {name}, not jmux") as met:
                peer.request(b"q")
            assert not met.value.may_have_been_processed
        thread.join(10)
    assert said[:8] == HELLO
    assert isinstance(frames.decode(said[8:]), frames.ErrorMessage)


@pytest.mark.parametrize(("words", "name"), STRANGERS)
async def test_a_server_sends_an_unknown_client_the_reason(words: bytes, name: str) -> None:
    async with afflux.serve(TCP, Sizes()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.uri.rsplit(":", 1)[1]))
        writer.write(words)
        said = await reader.read()
        writer.close()
    assert said[:8] == WELCOME
    assert isinstance(frames.decode(said[8:]), frames.ErrorMessage)


def calls_in(said: bytes) -> set[int]:
    """The calls that were begun: each begins with its number."""
    found = set()
    while (size := frames.size_at(said)) is not None and size <= len(said):
        one = frames.decode(said[:size])
        if isinstance(one, frames.Data) and one.open:
            found.add(int(one.data[:8]))
        said = said[size:]
    return found


async def test_calls_that_a_stalled_peer_never_saw_are_safe_to_repeat() -> None:
    """write-stall: what was not handed over was not processed, and only of that it is said (3.5)."""
    given_up = asyncio.Event()
    rest: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads
        writer.write(frames.ServerConnectionHeader(initial_ration=0).encode())
        await given_up.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        try:
            rest.set_result(await reader.read())
        except OSError:
            rest.set_result(bytes(reader._buffer))  # type: ignore[attr-defined]  # what came before the reset

    limits = Limits.server(write_stall_s=0.3)
    async with stub(talk) as uri, afflux.connect(uri, limits=limits) as peer:
        calls = [asyncio.ensure_future(peer.request(b"%08d" % call + bytes(200_000))) for call in range(200)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        given_up.set()
        seen = calls_in(await rest)
    errors = [end for end in ends if isinstance(end, afflux.Error)]
    assert len(errors) == 200
    assert {error.rule for error in errors} == {"write_stall_s"}
    unsafe = {number for number, error in enumerate(errors) if error.may_have_been_processed}
    assert seen <= unsafe
    assert len(unsafe) <= 128
