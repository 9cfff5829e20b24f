"""The scenarios of the published TCK, in our own words, over TCP and WebSocket.

A script of the TCK is a subscriber that asks for so many items at a time, and says what it has got and how it ended;
and a publisher that is a diagram of marbles: each character an item, ``|`` the end, ``#`` an error, and ``-`` nothing
for a while. The client's half and the server's half of each script are here one test. Channels are scripted in both
directions with half close, which the public scripts count on (D-16).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import ApplicationError, Payload

MARBLES = {
    b"letters": "a-b-c-|",
    b"one": "x|",
    b"none": "|",
    b"broken": "a-b-#",
    b"broken at once": "#",
    b"never": "",
    b"long": "abcdefghijklmnopqrstuvwxyz|",
    b"goes on": "abc",
}


async def publisher(marbles: str) -> AsyncIterator[bytes]:
    for marble in marbles:
        if marble == "|":
            return
        if marble == "#":
            raise ApplicationError(0x21, "the marbles say so")
        if marble == "-":
            await asyncio.sleep(0)
        else:
            yield marble.encode()
    await asyncio.Event().wait()


class Scripts:
    """A server by marbles."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[bytes] = asyncio.Queue()

    async def request(self, payload: Payload) -> bytes:
        try:
            async for item in publisher(MARBLES[payload.data]):
                return item
        finally:
            await self.ended.put(payload.data)
        return b""

    async def fire(self, payload: Payload) -> None:
        await self.ended.put(payload.data)

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        try:
            async for item in publisher(MARBLES[payload.data]):
                yield item
        finally:
            await self.ended.put(payload.data)

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        first = await anext(items)
        if first.data == b"echo":
            async for item in items:
                yield item.data
        else:
            async for item in publisher(MARBLES[first.data]):
                yield item


@pytest.fixture(params=["tcp", "ws"])
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[afflux.Peer]:
    words = "?dialect=half-close"
    scripts = Scripts()
    async with afflux.serve(f"reactivesocket+{request.param}://127.0.0.1:0{words}", scripts) as server:
        target = server.uri if "dialect" in server.uri else server.uri + words
        async with afflux.connect(target) as peer:
            peer.scripts = scripts  # type: ignore[attr-defined]
            yield peer


async def test_a_request_gets_its_one_item(peer: afflux.Peer) -> None:
    assert (await peer.request(b"letters")).data == b"a"
    assert (await peer.request(b"one")).data == b"x"
    assert (await peer.request(b"none")).data == b""


async def test_a_request_fails(peer: afflux.Peer) -> None:
    with pytest.raises(ApplicationError, match="marbles"):
        await peer.request(b"broken at once")


async def test_a_request_that_is_never_answered_can_be_canceled(peer: afflux.Peer) -> None:
    asked = asyncio.ensure_future(peer.request(b"never"))
    while not peer.streams():
        await asyncio.sleep(0)
    assert await peer.request(b"one") == Payload(b"x")
    assert await peer.scripts.ended.get() == b"one"  # type: ignore[attr-defined]
    asked.cancel()
    assert await peer.scripts.ended.get() == b"never"  # type: ignore[attr-defined]


async def test_fire_and_forget_arrives(peer: afflux.Peer) -> None:
    await peer.fire(b"letters")
    assert await peer.scripts.ended.get() == b"letters"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [b"letters", b"one", b"none", b"long"])
async def test_all_items_and_the_end(peer: afflux.Peer, name: bytes) -> None:
    expected = [c.encode() for c in MARBLES[name] if c.isalpha()]
    assert [item.data async for item in peer.stream(name)] == expected


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_items_come_as_they_are_asked_for(peer: afflux.Peer, step: int) -> None:
    """Request some, take them, request more: none comes unasked."""
    items = peer.stream(b"long", credit=step)
    assert "".join([item.text async for item in items]) == "abcdefghijklmnopqrstuvwxyz"


async def test_items_and_then_an_error(peer: afflux.Peer) -> None:
    got = []
    with pytest.raises(ApplicationError, match="marbles"):
        async for item in peer.stream(b"broken"):
            got.append(item.data)
    assert got == [b"a", b"b"]


async def test_an_error_at_once(peer: afflux.Peer) -> None:
    with pytest.raises(ApplicationError):
        [item async for item in peer.stream(b"broken at once")]


async def test_take_three_and_cancel(peer: afflux.Peer) -> None:
    """The publisher goes on for ever: the cancel reaches it."""
    got = []
    async for item in peer.stream(b"goes on"):
        got.append(item.data)
        if len(got) == 3:
            break
    assert got == [b"a", b"b", b"c"]
    assert await peer.scripts.ended.get() == b"goes on"  # type: ignore[attr-defined]


async def spoken(*words: bytes) -> AsyncIterator[bytes]:
    for word in words:
        yield word


async def test_an_echo_channel(peer: afflux.Peer) -> None:
    words = [b"%d" % n for n in range(200)]
    assert [item.data async for item in peer.channel(spoken(b"echo", *words))] == words


async def test_a_channel_whose_requester_ends_first(peer: afflux.Peer) -> None:
    """Each direction ends on its own."""
    assert [item.data async for item in peer.channel(spoken(b"long"))] == [c.encode() for c in MARBLES[b"long"][:-1]]


async def test_a_channel_that_fails(peer: afflux.Peer) -> None:
    with pytest.raises(ApplicationError):
        [item async for item in peer.channel(spoken(b"broken"))]


async def test_many_at_once(peer: afflux.Peer) -> None:
    async def all_of(name: bytes) -> str:
        return "".join([item.text async for item in peer.stream(name, credit=2)])

    assert await asyncio.gather(*(all_of(b"long") for _ in range(40))) == ["abcdefghijklmnopqrstuvwxyz"] * 40
