"""``request --timeout``: the wait for the first answer, in virtual time and against silent servers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import afflux
from afflux.cli.answering import FirstAnswer
from afflux.testing import run
from tests.cli.running import Server, here


class Slow:
    """The first item comes after ``first`` seconds, the second an hour later."""

    def __init__(self, first: float) -> None:
        self._first = first

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        await asyncio.sleep(self._first)
        yield b"1"
        await asyncio.sleep(3600)
        yield b"2"


async def items(first: float, seconds: float) -> list[bytes]:
    found = []
    async with afflux.serve("mem://slow", Slow(first)) as server:
        limit = FirstAnswer(server.uri, seconds)
        async with limit, afflux.connect(server.uri, timeout=limit.connecting) as peer:
            limit.connected(peer)
            async for item in peer.stream(b""):
                limit.arrived()
                found.append(item.data)
    return found


@pytest.mark.parametrize(("first", "seconds"), [(9, 10), (0, 10), (50, 0)])
def test_only_the_first_item_is_limited(first: float, seconds: float) -> None:
    assert run(items(first, seconds)) == [b"1", b"2"]


def test_a_server_that_answers_too_late() -> None:
    with pytest.raises(TimeoutError, match=r"^no answer from mem://slow within 10 s .*; does it speak rsocket\?$"):
        run(items(11, 10))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of --timeout ends a moment after the connection is made, however long a busy machine needs for that."""
    connected = FirstAnswer.connected

    def ending(limit: FirstAnswer, peer: afflux.Peer) -> None:
        connected(limit, peer)
        asyncio.get_running_loop().call_later(0.01, limit._expire)

    monkeypatch.setattr(FirstAnswer, "connected", ending)


@pytest.mark.usefixtures("at_once")
def test_a_stored_stream_without_items_is_not_called_another_protocol() -> None:
    """Neither an offset that does not exist yet nor servers that are away are a wrong protocol."""
    told = (
        "no items from tcp://127.0.0.1:{} within 60 s (--timeout, 0 for no limit): nothing is stored from there on "
        "yet, or the servers of its journal are away; if neither, does it speak rsocket?"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = here("request", f"tcp://127.0.0.1:{port}", "--cursor", "5", "--timeout", "60s")
    assert ran == (3, "", f"afflux: {told.format(port)}\n")


def test_an_offset_that_is_not_stored_yet(tmp_path: Path) -> None:
    with Server("--demo", "--journal", str(tmp_path / "journal")) as server:
        ran = here("request", server.uri, "-d", '{"count": 3}', "--cursor", "3", "--timeout", "5s")
        assert (ran.code, ran.out) == (0, "")  # the stream is complete
        ran = here(
            "request", server.uri, "-d", '{"count": 9, "delay_ms": 60000}', "--cursor", "1000000", "--timeout", "300ms"
        )
    assert ran.code == 3
    assert "within 0.3 s (--timeout, 0 for no limit): nothing is stored from there on yet, or" in ran.errors


async def waits(gap: float) -> list[bytes]:
    async def source() -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(gap)
            yield b"%d" % number

    async with FirstAnswer("tcp://h:1", 10) as limit:
        return [item async for item in limit.waiting_for(source())]


def test_the_wait_for_input_does_not_count() -> None:
    assert run(waits(3600)) == [b"0", b"1", b"2"]


async def silent_after_input() -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"1"

    async with FirstAnswer("tcp://h:1", 10) as limit:
        async for _ in limit.waiting_for(source()):
            pass
        await asyncio.sleep(11)


def test_the_time_goes_on_after_the_input() -> None:
    with pytest.raises(TimeoutError, match=r"^cannot connect to tcp://h:1 within 10 s \(--timeout, 0 for no limit\)$"):
        run(silent_after_input())


async def canceled() -> str:
    async def wait() -> None:
        async with FirstAnswer("tcp://h:1", 10):
            asyncio.get_running_loop().call_later(10, task.cancel)
            await asyncio.sleep(20)

    task = asyncio.ensure_future(wait())
    try:
        await task
    except asyncio.CancelledError:
        return "canceled"
    return "ended"


def test_a_cancellation_at_the_same_moment_is_kept() -> None:
    assert run(canceled()) == "canceled"


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """The port of a server that accepts, reads nothing and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for one in kept:
            one.close()


CALLS = {
    "rsocket+tcp": "no answer",
    "rsocket-draft+tcp": "no answer",
    "reactivesocket+tcp": "no answer",
    "limit+tcp --channel -r sum": "no answer",
    "jmux+tcp": "no answer",
    "rsio+tcp --stream": "no answer",
    "rsocket+tcp --channel": "no answer",
    "rsocket+tcp --resume": "no answer",
    "tls": "cannot connect",
    "jmux+ws": "cannot connect",
    "wss": "cannot connect",
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("call", CALLS)
def test_a_silent_server(silent: int, call: str) -> None:
    scheme, *words = call.split()
    uri = f"{scheme}://127.0.0.1:{silent}"
    mute = CALLS[call] == "cannot connect"
    ran = here("request", uri, "-d", "1", "--timeout", "100ms" if mute else "60s", *words)
    hint = "" if mute else f"; does it speak {scheme.partition('+')[0]}?"
    told = f"{CALLS[call]} {'to' if mute else 'from'} {uri} within {'0.1' if mute else '60'} s"
    assert ran == (3, "", f"afflux: {told} (--timeout, 0 for no limit){hint}\n")


def test_the_shorter_limit_is_named(silent: int) -> None:
    ran = here("request", f"tcp://127.0.0.1:{silent}", "--max-time", "100ms")
    assert ran == (3, "", "afflux: timed out after 0.1 s (--max-time)\n")


async def again() -> tuple[float, float]:
    limit = FirstAnswer("tcp://h:1", 10)
    async with limit:
        limit.arrived()
    async with limit:  # another attempt, such as that of --cursor with --retry
        await asyncio.sleep(11)
    return limit.connecting, FirstAnswer("tcp://h:1", 0).connecting


def test_a_later_attempt_has_only_a_limit_for_connecting() -> None:
    assert run(again()) == (11, 86_400)
