"""A channel's handler completes its answers and goes on reading."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux

COUNT = 1000


class Uploads:
    """Reads ``COUNT`` items, and answers before it has them."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.done = asyncio.Event()

    async def rest(self, items: Any) -> None:
        """Complete, and read the rest."""
        items.complete()
        items.complete()
        async for item in items:
            self.read.append(item.text)
        self.done.set()


class Answers(Uploads):
    """Accepts with an item."""

    async def channel(self, items: Any) -> AsyncIterator[str]:
        self.read.append((await anext(items)).text)
        yield "accepted"
        await self.rest(items)


class Silent(Uploads):
    """Has no answer, and is no generator."""

    async def channel(self, items: Any) -> None:
        await self.rest(items)


async def upload(peer: afflux.Peer, uploads: Uploads, gate: asyncio.Event | None = None) -> list[str]:
    """Send all items, most of them after the answers have ended; return the answers."""
    ended = asyncio.Event()

    async def source() -> AsyncIterator[str]:
        yield "0"
        await ended.wait()
        for number in range(1, COUNT):
            yield str(number)

    async with peer.channel(source(), credit=1) as answers:
        found = [item.text async for item in answers]
        ended.set()
        await uploads.done.wait()
    return found


@pytest.mark.parametrize(("uploads", "answers"), [(Answers, ["accepted"]), (Silent, [])])
@pytest.mark.parametrize("credit", [3, 256])
async def test_it_reads_all_after_the_requester_has_its_answers(
    uri: str, uploads: type[Uploads], answers: list[str], credit: int
) -> None:
    handler = uploads()
    async with afflux.serve(uri, handler, credit=credit) as server, afflux.connect(server.uri) as peer:
        assert await upload(peer, handler) == answers
        assert handler.read == [str(number) for number in range(COUNT)]
        await peer.close(drain=True)


@pytest.mark.parametrize("wire", ["rsocket-draft+", "reactivesocket+"])
async def test_other_wires(wire: str) -> None:
    handler = Answers()
    options = "?dialect=half-close" if wire.startswith("reactive") else ""
    async with afflux.serve(f"{wire}tcp://127.0.0.1:0{options}", handler) as server:
        async with afflux.connect(server.uri) as peer:
            assert await upload(peer, handler) == ["accepted"]
            assert len(handler.read) == COUNT


async def test_where_the_answers_end_both_directions_reading_ends_with_them() -> None:
    """ReactiveSocket of 2015 without a dialect."""
    handler = Answers()
    async with afflux.serve("reactivesocket+tcp://127.0.0.1:0", handler) as server:
        async with afflux.connect(server.uri) as peer:
            assert await upload(peer, handler) == ["accepted"]
            assert handler.read == ["0"]


async def test_a_routed_function_with_types_completes(uri: str) -> None:
    pytest.importorskip("msgspec", reason="JSON needs the extra codecs")
    router, handler = afflux.Router(), Uploads()

    @router.channel("sum", codec="application/json")
    async def add(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        yield await anext(numbers)
        numbers.complete()  # type: ignore[attr-defined]
        handler.read = [str(number) async for number in numbers]
        handler.done.set()

    async with afflux.serve(uri, router) as server, afflux.connect(server.uri) as peer:
        async with peer.channel((b"%d" % number for number in range(5)), route="sum") as answers:
            assert [item.text async for item in answers] == ["0"]
            await handler.done.wait()
    assert handler.read == ["1", "2", "3", "4"]


@pytest.mark.parametrize("late", ["late", ["late", "later"], "l" * 100_000])
async def test_items_after_the_end_are_a_mistake_of_the_handler(
    uri: str, late: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(Uploads):
        async def channel(self, items: Any) -> AsyncIterator[Any]:
            try:
                yield "accepted"
                items.complete()
                yield late
                await asyncio.Event().wait()
            finally:
                self.done.set()

    handler = Late()
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        assert await upload(peer, handler) == ["accepted"]
    assert "it may read on, and yields no more" in caplog.text


async def test_only_a_handler_completes(uri: str) -> None:
    async with afflux.serve(uri, Answers()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.LocalProtocolError, match="only a channel's handler can complete its answers"):
            peer.channel(["1"]).complete()
