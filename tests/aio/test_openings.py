"""Streams, subscriptions and channels that could not be opened: the next use tries again, or raises; it never hangs."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import afflux
from afflux import FixedLease, Payload
from tests.aio.handlers import Demo

NONE = FixedLease(0, 600.0)
"No lease but those that a test grants by hand."
PATIENCE_S = 5
WIRES = pytest.mark.parametrize("wire", ["rsocket", "reactivesocket"])


class Lessor:
    """A server and a client with leases, and the server's side of the connection."""

    def __init__(self, wire: str, **more: Any) -> None:
        self._server = afflux.serve(f"{wire}+mem://lessor", Demo(), lease=NONE)
        self._more = more
        self.peer: afflux.Peer
        self.guest: afflux.Peer

    async def __aenter__(self) -> Lessor:
        await self._server.start()
        self.peer = await afflux.connect(self._server.uri, lease=True, **self._more)
        (self.guest,) = self._server.connections
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.peer.close()
        await self._server.close()

    async def grant(self) -> None:
        """A lease for one request, and its way to the client."""
        self.guest.grant(1, 600.0)
        while not (lease := self.peer.lease) or not lease.requests:
            await asyncio.sleep(0)


async def taken(items: afflux.ItemStream) -> list[bytes]:
    """All items, soon."""
    async with asyncio.timeout(PATIENCE_S):
        return [item.data async for item in items]


async def expired(items: afflux.ItemStream) -> None:
    """There is no lease, and that is heard soon."""
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(afflux.LeaseExpired):
            await anext(items)


@WIRES
@pytest.mark.parametrize("credit", [1, 8, 256, "auto"])
async def test_a_stream_is_opened_by_the_first_use_under_a_lease(wire: str, credit: Any) -> None:
    async with Lessor(wire) as lessor:
        items = lessor.peer.stream(b"100", credit=credit)
        await expired(items)
        await expired(items)
        await lessor.grant()
        assert await taken(items) == [b"%d" % number for number in range(100)]


@WIRES
async def test_a_stream_is_granted_no_more_than_its_window_though_it_was_tried_before(wire: str) -> None:
    demo = Demo()
    async with afflux.serve(f"{wire}+mem://window", demo, lease=NONE) as server:
        async with afflux.connect(server.uri, lease=True) as peer:
            items = peer.stream(b"1000", credit=8)
            for _ in range(3):
                await expired(items)
            server.connections[0].grant(1, 600.0)
            while peer.lease is None or not peer.lease.requests:
                await asyncio.sleep(0)
            await anext(items)
            for _ in range(100):
                await asyncio.sleep(0)
            assert demo.made <= 8 + 1


@WIRES
async def test_a_stream_that_is_granted_by_hand_is_opened_under_a_lease(wire: str) -> None:
    async with Lessor(wire) as lessor:
        items = lessor.peer.stream(b"100", credit=0)
        with pytest.raises(afflux.LeaseExpired):
            items.request(50)
        await lessor.grant()
        items.request(3)
        async with asyncio.timeout(PATIENCE_S):
            assert [(await anext(items)).data for _ in range(3)] == [b"0", b"1", b"2"]
        assert items.limited_by() == "credit"
        items.cancel()


@WIRES
async def test_a_stream_may_be_entered_again(wire: str) -> None:
    async with Lessor(wire) as lessor:
        items = lessor.peer.stream(b"3")
        with pytest.raises(afflux.LeaseExpired):
            async with items:
                pass
        await lessor.grant()
        async with items:
            assert await taken(items) == [b"0", b"1", b"2"]


async def test_a_subscription_is_opened_by_the_first_use_under_a_lease() -> None:
    async with Lessor("reactivesocket") as lessor:
        items = lessor.peer.subscribe(b"3")
        await expired(items)
        await lessor.grant()
        async with asyncio.timeout(PATIENCE_S):
            assert [(await anext(items)).data for _ in range(3)] == [b"0", b"1", b"2"]
        items.cancel()


@WIRES
@pytest.mark.parametrize("credit", [0, 2, 256])
@pytest.mark.parametrize("lists", [False, True], ids=["items", "lists"])
async def test_a_channel_is_opened_by_the_first_use_under_a_lease(wire: str, credit: int, lists: bool) -> None:
    """Its source is asked for each item once."""
    numbers = [b"%d" % number for number in range(20)]
    source: Any = [numbers[:7], numbers[7:]] if lists else numbers
    async with Lessor(wire) as lessor:
        items = lessor.peer.channel(iter(source), credit=credit)
        if not credit:
            items.request(len(numbers) + 1)
        await expired(items)
        await expired(items)
        await lessor.grant()
        assert await taken(items) == numbers


async def test_a_channel_that_is_given_up_without_a_lease_closes_its_source() -> None:
    closed = []

    async def source() -> AsyncIterator[bytes]:
        try:
            yield b"first"
        finally:
            closed.append(1)

    async with Lessor("rsocket") as lessor:
        async with lessor.peer.channel(source()) as items:
            await expired(items)
            assert not closed
        assert closed == [1]
        await expired(items := lessor.peer.channel(source()))
        del items
        async with asyncio.timeout(PATIENCE_S):
            while len(closed) < 2:
                await asyncio.sleep(0)


async def test_waiting_for_a_lease_again(uri: str) -> None:
    async with Lessor("rsocket", lease_wait=0.01) as lessor:
        items = lessor.peer.channel([b"a", b"b"])
        await expired(items)
        await lessor.grant()
        assert await taken(items) == [b"a", b"b"]


@pytest.mark.parametrize("wire", ["rsocket", "reactivesocket", "rsio"])
@pytest.mark.parametrize("kind", ["stream", "channel", "subscription"])
async def test_after_the_end_of_the_connection_each_use_raises(wire: str, kind: str) -> None:
    async with afflux.serve(f"{wire}+mem://closed", Demo()) as server:
        peer = await afflux.connect(server.uri)
        try:
            if kind == "channel":
                items: afflux.ItemStream = peer.channel([b"a"])
            else:
                items = peer.stream(b"3") if kind == "stream" else peer.subscribe(b"3")
        except afflux.Unsupported:
            items = None  # type: ignore[assignment] # nothing to try
        await peer.close()
        for _ in range(3 if items else 0):
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(afflux.ConnectionClosed) as caught:
                    await anext(items)
            assert not caught.value.may_have_been_processed


async def test_what_can_never_be_opened_raises_at_each_use() -> None:
    async with afflux.serve("rsio+mem://named", Demo()) as server, afflux.connect(server.uri) as peer:
        items = peer.subscribe(bytes(peer.limits.publisher_bytes + 1))
        for _ in range(3):
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(afflux.LimitExceeded):
                    await anext(items)


async def test_a_stream_that_was_tried_too_early_is_opened_on_the_next_connection() -> None:
    async with afflux.serve("mem://again", Demo()) as server:
        async with afflux.connect(server.uri, reconnect=afflux.Backoff(first=0.001, jitter=0.0)) as peer:
            items = peer.stream(b"3", credit=8)
            by_hand = peer.stream(b"3", credit=0)
            peer.cut()
            while not peer.closed:
                await asyncio.sleep(0)
            with pytest.raises(afflux.ConnectionClosed):
                by_hand.request(1)
            assert await taken(items) == [b"0", b"1", b"2"]


async def test_a_publisher_of_a_stream_reports_that_there_is_no_lease_and_the_next_one_begins() -> None:
    from afflux.reactive import from_publisher, stream

    async with Lessor("rsocket") as lessor:
        publisher: Any = stream(lessor.peer, b"3")
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(afflux.LeaseExpired):
                [item async for item in from_publisher(publisher)]
            await lessor.grant()
            assert [item.data async for item in from_publisher(publisher)] == [b"0", b"1", b"2"]


async def test_a_handler_that_takes_a_channel_late_gets_its_end() -> None:
    """The window of a handler's items opens at the first use, too."""
    heard: list[object] = []
    begun, go = asyncio.Event(), asyncio.Event()

    class Late:
        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            begun.set()
            with suppress(asyncio.CancelledError):
                await go.wait()
            for _ in range(3):
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        heard.append(await anext(items))
                except (afflux.Error, StopAsyncIteration) as error:
                    heard.append(type(error))
            yield b""

    async with afflux.serve("mem://late", Late()) as server:
        async with afflux.connect(server.uri) as peer:

            async def source() -> AsyncIterator[bytes]:
                yield b"first"
                await asyncio.Event().wait()

            waiting = asyncio.ensure_future(anext(peer.channel(source())))
            await begun.wait()
            peer.cut()
            await asyncio.wait((waiting,))
            while len(heard) < 3:
                await asyncio.sleep(0)
    assert heard == [Payload(b"first"), afflux.ConnectionClosed, afflux.ConnectionClosed]
