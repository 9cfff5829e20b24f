"""Limit-Stream over sockets: sessions with and without types, what is refused, credit, both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.core.payload import Payload
from afflux.demo.responder import Responder
from afflux.protocols.limit import Choice, Opening, Unchecked, Value
from afflux.protocols.limit.integers import packed

from .playbook import DONE, Sum

URI = "limit+tcp://127.0.0.1:0"
ASKED = [Opening("sum", steps=Unchecked()), packed(1), packed(2), Choice(1), DONE]


class Adder:
    """Serves the channel ``sum``, and no other."""

    def session_steps(self, channel: str) -> Any:
        return Sum(False) if channel == "sum" else None

    async def channel(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        total = 0
        async for item in items:
            if isinstance(item, Value):
                if item.value is None:
                    yield Value(total)
                    return
                total += item.value


class Upper:
    """Answers each payload, when it is its turn."""

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data.upper()


class Endless:
    """Answers without end."""

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[bytes]:
        while True:
            yield b"a"


@pytest.mark.parametrize("uri", [URI, "limit+ws://127.0.0.1:0", "limit+mem://limit", "limit+unix://{}/limit"])
async def test_the_example(uri: str, tmp_path: Any) -> None:
    async with afflux.serve(uri.format(tmp_path), Responder()) as server, afflux.connect(server.uri) as peer:
        for _ in range(3):
            async with peer.channel(ASKED) as items:
                assert [item.data async for item in items] == [packed(3)]


def test_the_example_with_the_blocking_client() -> None:
    def blocking(uri: str) -> list[bytes]:
        with afflux.sync.connect(uri) as peer:
            return [item.data for _ in range(3) for item in peer.channel(ASKED)]

    async def main() -> list[bytes]:
        async with afflux.serve(URI, Responder()) as server:
            return await asyncio.to_thread(blocking, server.uri)

    assert asyncio.run(main()) == [packed(3)] * 3


async def test_both_sides_follow_the_type() -> None:
    async with afflux.serve(URI, Adder()) as server, afflux.connect(server.uri) as peer:
        asked = [Opening("sum", steps=Sum(True)), Value(1), Choice(0), Value(300), Choice(1), Value(None)]
        async with peer.channel(asked) as items:
            (answer,) = [item async for item in items]
        assert (answer.value, answer.data) == (301, packed(301))
        async with peer.channel([Opening("sum", steps=Sum(True)), Value(1), Value(2)]) as items:
            with pytest.raises(afflux.LocalProtocolError, match="expected choice"):
                await anext(items)


async def test_a_step_of_the_client_that_is_not_legal() -> None:
    """Its own side does not check it; the server ends the connection."""
    async with afflux.serve(URI, Adder()) as server, afflux.connect(server.uri) as peer:
        async with peer.channel([Opening("sum", steps=Unchecked()), packed(1), DONE]) as items:
            with pytest.raises(afflux.ConnectionClosed, match="expected number") as caught:
                await anext(items)
        assert caught.value.code == 0x101


async def test_an_unknown_channel() -> None:
    async with afflux.serve(URI, Adder()) as server, afflux.connect(server.uri) as peer:
        items = peer.channel([b"x"])
        with pytest.raises(afflux.SetupRefused, match="unknown channel"):
            await anext(items)


async def test_plain_channels_take_turns() -> None:
    async with afflux.serve(URI, Upper()) as server, afflux.connect(server.uri) as peer:
        for credit in (1, 8, 256):
            async with peer.channel([b"a", b"b"] * 500, credit=credit) as items:
                assert [item.data async for item in items] == [b"A", b"B"] * 500


async def test_one_session_at_a_time() -> None:
    async with afflux.serve(URI, Upper()) as server, afflux.connect(server.uri) as peer:
        waiting = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"a"
            await waiting.wait()

        async with peer.channel(slow()) as first:
            taking = asyncio.ensure_future(anext(first))
            while not peer.streams():
                await asyncio.sleep(0)
            async with peer.channel([b"x"]) as second:
                with pytest.raises(afflux.LimitExceeded, match="one session at a time"):
                    await anext(second)
            waiting.set()
            assert (await taking).data == b"A"


async def test_D_14_a_client_that_leaves_early() -> None:
    async with afflux.serve(URI, Endless()) as server, afflux.connect(server.uri) as peer:
        async with peer.channel([b"a"]) as items:
            assert (await anext(items)).data == b"a"
        async with peer.channel([b"x"]) as items:
            with pytest.raises(afflux.LimitExceeded, match="open another connection"):
                await anext(items)


async def test_a_setup_may_be_refused() -> None:
    def refuse(peer: afflux.Peer) -> None:
        raise afflux.Rejected("not you")

    async with afflux.serve(URI, Upper(), on_setup=refuse) as server, afflux.connect(server.uri) as peer:
        items = peer.channel([b"x"])
        with pytest.raises(afflux.SetupRefused, match="refused"):
            await anext(items)
