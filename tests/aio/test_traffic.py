"""Totals of a server: what its connections have sent and received, after they have ended too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux.aio.traffic import Traffic


class Handler:
    """Lists, single items and large ones; an echo; a failure."""

    async def request(self, payload: afflux.Payload) -> bytes:
        if payload.data == b"fail":
            raise KeyError("a bug")
        return b"x" * 100

    async def fire(self, payload: afflux.Payload) -> None:
        pass

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[Any]:
        yield [b"1", b"2"]
        yield b"3"
        yield b"4" * 100_000

    async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data


async def test_totals_stay_when_connections_end(uri: str) -> None:
    async with afflux.serve(uri, Handler()) as server:
        assert server.traffic() == Traffic()
        async with afflux.connect(server.uri) as peer:
            for _ in range(3):
                await peer.request(b"x" * 50)
            await peer.fire(b"x")
            with pytest.raises(afflux.ApplicationError):
                await peer.request(b"fail")
            assert len([item async for item in peer.stream()]) == 4
            async with peer.channel([b"a", b"b", b"c"]) as items:
                assert len([item async for item in items]) == 3
            live = server.traffic()
        async with afflux.connect(server.uri) as peer:
            await peer.request(b"x")
    total = server.traffic()
    assert (live.connections, live.requests, live.streams, live.items_sent, live.items_received) == (1, 5, 2, 7, 2)
    assert (live.failed, live.rejected) == (1, 0)
    assert live.bytes_sent > 100_000 and 150 < live.bytes_received < 1000
    assert (total.connections, total.requests, total.streams, total.items_sent) == (2, 6, 2, 7)
    assert total.bytes_sent >= live.bytes_sent + 100 and total.bytes_received > live.bytes_received


async def test_a_request_without_handler_is_rejected(uri: str) -> None:
    class Silent:
        async def fire(self, payload: afflux.Payload) -> None:
            pass

    async with afflux.serve(uri, Silent()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Rejected):
            await peer.request(b"x")
        assert (server.traffic().requests, server.traffic().rejected) == (0, 1)


async def test_requests_that_a_router_refuses_are_rejected(uri: str) -> None:
    router, fired = afflux.Router(), asyncio.Event()

    @router.request("known")
    async def known(payload: afflux.Payload) -> bytes:
        return payload.data

    @router.fire("known")
    async def refused(payload: afflux.Payload) -> None:
        fired.set()
        raise afflux.Rejected("closed today")

    async with afflux.serve(uri, router) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"x", route="known")
        for route in ("unknown", None):
            with pytest.raises(afflux.Rejected):
                await peer.request(b"x", route=route)
        with pytest.raises(afflux.Rejected):
            [item async for item in peer.stream(b"x", route="known")]
        await peer.fire(b"x", route="known")
        await fired.wait()
        await peer.request(b"x", route="known")
    assert (server.traffic().failed, server.traffic().rejected) == (0, 4)


async def test_sessions_count_as_streams() -> None:
    class Sessions:
        async def session(self, session: Any) -> None:
            await session.write(await session.read())

    async with afflux.serve("jmux+tcp://127.0.0.1:0", Sessions()) as server, afflux.connect(server.uri) as peer:
        async with await peer.session(b"x", finish=True) as session:
            assert await session.read() == b"x"
        assert server.traffic().streams == 1


async def test_the_bytes_of_both_transports_of_a_resumed_session_count() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Handler(), resume=True) as server,
        afflux.connect(server.uri, resume=True) as peer,
    ):
        await peer.request(b"x" * 500)
        before = server.traffic()
        peer.cut()
        await peer.request(b"y" * 500)
        after = server.traffic()
    assert before.bytes_received > 500 and after.bytes_received > before.bytes_received + 500
    assert after.bytes_sent > before.bytes_sent + 100
    assert (server.traffic().connections, server.traffic().requests) == (2, 2)
