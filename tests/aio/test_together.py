"""Requests of one turn go together, and so do their answers. Nobody may notice, but for the speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Payload
from afflux.core.ids import StreamIds


class Recorder:
    """Answers, and remembers in which order it was asked what."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.fired = asyncio.Event()
        self.held = asyncio.Event()

    async def request(self, payload: Payload) -> Any:
        """``wait`` waits, ``fail`` fails, ``none`` and ``text`` are what they say; all else comes back."""
        self.asked.append(payload.data)
        if payload.data == b"wait":
            await self.held.wait()
        if payload.data == b"fail":
            raise afflux.Rejected("no")
        return {b"none": None, b"text": "text", b"odd": 3, b"str": Payload("s")}.get(payload.data, payload)  # type: ignore[arg-type]  # a mistake that is made

    async def fire(self, payload: Payload) -> None:
        """Remember it."""
        self.asked.append(payload.data)
        self.fired.set()


@pytest.fixture
def handler() -> Recorder:
    return Recorder()


@pytest.fixture
async def peer(uri: str, handler: Recorder) -> AsyncIterator[afflux.Peer]:
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"first")
        handler.asked.clear()
        yield peer


async def test_every_kind_of_answer_among_others(peer: afflux.Peer) -> None:
    words = [b"a", b"none", b"b", b"text", b"fail", b"c", b"odd", b"d"]
    answers = await asyncio.gather(*map(peer.request, words), return_exceptions=True)
    assert answers[:4] == [Payload(b"a"), Payload(), Payload(b"b"), Payload(b"text")]
    assert isinstance(answers[4], afflux.Rejected)
    assert answers[5] == Payload(b"c")
    assert isinstance(answers[6], afflux.ApplicationError)
    assert answers[7] == Payload(b"d")


async def test_a_mistake_in_one_answer_or_request_is_its_own(peer: afflux.Peer) -> None:
    asked = [peer.request(b"a"), peer.request(b"str"), peer.request(Payload("s")), peer.request(b"b")]  # type: ignore[arg-type]  # the mistake
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [answers[0], answers[3]] == [Payload(b"a"), Payload(b"b")]
    assert [type(answer) for answer in answers[1:3]] == [afflux.ApplicationError, TypeError]


async def test_one_that_waits_does_not_hold_up_the_others(peer: afflux.Peer, handler: Recorder) -> None:
    waiting = asyncio.ensure_future(peer.request(b"wait"))
    assert await asyncio.gather(*(peer.request(b"%d" % i) for i in range(20))) == [
        Payload(b"%d" % i) for i in range(20)
    ]
    handler.held.set()
    assert await waiting == Payload(b"wait")


async def test_what_is_canceled_in_its_own_turn_is_never_sent(peer: afflux.Peer, handler: Recorder) -> None:
    asked = [asyncio.ensure_future(peer.request(b"%d" % i)) for i in range(10)]
    await asyncio.sleep(0)  # all have asked, nothing is written
    asked[3].cancel()
    asked[9].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [i for i, answer in enumerate(answers) if isinstance(answer, asyncio.CancelledError)] == [3, 9]
    assert handler.asked == [b"%d" % i for i in range(10) if i not in (3, 9)]


async def test_what_is_canceled_later_is_canceled_at_the_peer(peer: afflux.Peer, handler: Recorder) -> None:
    for _ in range(peer.limits.streams + 1):  # each leaves its slot to others
        waiting = asyncio.ensure_future(peer.request(b"wait"))
        await peer.request(b"behind it")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await peer.request(b"after") == Payload(b"after")
    assert peer.streams() == []


async def test_first_come_first_on_the_wire(peer: afflux.Peer, handler: Recorder) -> None:
    async def fire() -> None:
        await peer.fire(b"fire")

    await asyncio.gather(peer.request(b"1"), peer.request(b"2"), fire(), peer.request(b"3"))
    await handler.fired.wait()
    assert handler.asked == [b"1", b"2", b"fire", b"3"]


async def test_large_requests_are_looked_at_sooner(peer: afflux.Peer) -> None:
    sizes = [100_000, 10, 300_000, 5000, 0]
    answers = await asyncio.gather(*(peer.request(bytes(size), metadata=bytes(size % 999)) for size in sizes))
    assert [len(answer.data) for answer in answers] == sizes


async def test_requests_of_the_last_turn_get_the_end(peer: afflux.Peer) -> None:
    asked = [asyncio.ensure_future(peer.request(b"wait")) for _ in range(10)]
    await asyncio.sleep(0)
    peer.cut()
    await peer.wait_closed()
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(error) for error in errors} == {afflux.ConnectionClosed}


async def test_requests_of_a_turn_in_which_the_connection_ends(peer: afflux.Peer) -> None:
    """They wait to be sent when the end comes."""
    driver = peer._driver
    asked = [asyncio.ensure_future(peer.request(b"wait")) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(driver.calls.queued) == 3
    asked[0].cancel()
    driver.abort()
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in errors] == [
        asyncio.CancelledError,
        afflux.ConnectionClosed,
        afflux.ConnectionClosed,
    ]
    assert not driver.calls.queued


async def test_when_the_ids_run_out_the_first_ones_go(peer: afflux.Peer) -> None:
    peer._driver.engine.stream_table.ids = StreamIds(1, 5)  # type: ignore[attr-defined]  # 2^30 requests are many
    asked = [asyncio.ensure_future(peer.request(b"wait")) for _ in range(3)]
    await asyncio.sleep(0)
    more = await asyncio.gather(*(peer.request(b"more") for _ in range(2)), return_exceptions=True)
    assert {type(error) for error in more} == {afflux.LimitExceeded}
    for waiting in asked:
        waiting.cancel()
    await asyncio.wait(asked)


async def test_a_server_without_requests_refuses_each_of_them(uri: str) -> None:
    class Other:
        async def fire(self, payload: Payload) -> None:
            """Nothing."""

    async with afflux.serve(uri, Other()) as server, afflux.connect(server.uri) as peer:
        errors = await asyncio.gather(*(peer.request(b"") for _ in range(5)), return_exceptions=True)
    assert {type(error) for error in errors} == {afflux.Rejected}
