"""Jmux over sockets, with both drivers: what its engine's tests say, as applications meet it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Payload

TCP = "jmux+tcp://127.0.0.1:0"


@pytest.fixture(autouse=True)
async def no_orphans() -> AsyncIterator[None]:
    """Everything that was started has ended."""
    before = asyncio.all_tasks()
    yield
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


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
