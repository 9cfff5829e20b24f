"""Demand: who may send how much, who waits for whom; nothing is made that nobody asked for, but for one item ahead."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from tests.aio.handlers import Demo, Waits, turns


async def test_a_producer_makes_no_more_than_was_granted(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"100000", credit=10)
        assert (await anext(stream)).data == b"0"
        await peer.request(b"")  # everything that was under way has arrived
        assert demo.made <= 11
        assert stream.limited_by() in ("application", "peer")
        stream.cancel()
        assert [item async for item in stream] == []
        assert stream.limited_by() == "ended"


async def test_grants_by_hand(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"100", credit=0)
        assert (stream.id, stream.limited_by()) == (None, "credit")
        stream.request(2)
        assert stream.id is not None
        assert [(await anext(stream)).data, (await anext(stream)).data] == [b"0", b"1"]
        assert stream.limited_by() == "credit"
        await peer.request(b"")
        assert demo.made == 3  # one ahead: only so its end is known
        stream.request(1)
        stream.request(2)
        assert [(await anext(stream)).data for _ in range(3)] == [b"2", b"3", b"4"]
        stream.request(0x7FFFFFFF)
        assert len([item async for item in stream]) == 95


async def test_a_grant_is_a_positive_number(uri: str) -> None:
    async with afflux.serve(uri, Demo()) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"1", credit=0)
        for n in (0, -1, 1 << 31):
            with pytest.raises(afflux.LocalProtocolError):
                stream.request(n)
        for n in (-1, 1 << 31):
            with pytest.raises(afflux.LocalProtocolError):
                peer.stream(b"1", credit=n)


async def test_a_grant_by_hand_beside_a_window(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"100", credit=4)
        stream.request(6)
        await anext(stream)
        await peer.request(b"")
        assert demo.made == 11
        assert len([item async for item in stream]) == 99


async def test_leaving_the_loop_early_cancels_the_stream(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        async for item in peer.stream(b"1000000000"):
            if item.data == b"700":
                break
        await peer.request(b"")
        await peer.request(b"")
        assert demo.closed == 1


async def test_with_cancels_a_stream(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        async with peer.stream(b"1000000000") as stream:
            await anext(stream)
        await peer.request(b"")
        await peer.request(b"")
        assert demo.closed == 1


async def test_a_stream_that_is_not_used_is_not_opened(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        peer.stream(b"1000")
        await peer.request(b"")
        assert demo.made == 0


async def test_a_wait_for_an_item_that_times_out_loses_nothing(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer, peer.stream() as stream:
        assert (await anext(stream)).data == b"first"
        waiting = asyncio.ensure_future(anext(stream))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        waits.go.set()
        assert (await anext(stream)).data == b"second"


async def test_two_tasks_can_not_wait_for_one_stream(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer, peer.stream() as stream:
        await anext(stream)
        one = asyncio.ensure_future(anext(stream))
        await turns()
        with pytest.raises(RuntimeError, match="another task"):
            await anext(stream)
        waits.go.set()
        assert (await one).data == b"second"


async def test_a_client_that_reads_slowly_delays_no_other(uri: str) -> None:
    """SL-08: one stream is not consumed, the other goes on, and memory is bounded by what was granted."""
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        async with peer.stream(b"1000000", credit=50) as slow:
            await anext(slow)
            assert len([item async for item in peer.stream(b"20000", credit=64)]) == 20000
            assert demo.made <= 20000 + 1 + 50 + 1


async def test_a_producer_waits_for_the_transport(uri: str) -> None:
    """Credit without end does not fill memory: the peer has stopped reading."""
    limits = Limits.server()
    made = 0

    class Floods:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield bytes(0x4000)

    async with afflux.serve(uri, Floods(), limits=limits) as server, afflux.connect(server.uri) as peer:
        async with peer.stream(credit=0x7FFFFFFF) as stream:
            await anext(stream)
            transport = peer._driver.state.transport
            assert transport is not None
            transport.pause_reading()
            peer._driver.input.reading = True  # the driver does not know: a peer that has stopped
            before = -1
            while made != before:
                before = made
                await turns(200)
            driver = server.connections[0]._driver
            assert driver.state.transport is not None
            waiting = driver.engine.queued + driver.state.transport.get_write_buffer_size()
            assert waiting <= limits.outbound_high_bytes + limits.loop_bytes + 0x8000
            transport.resume_reading()
            for _ in range(500):
                await anext(stream)


async def test_a_producer_that_never_waits_lets_others_run(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        async with peer.stream(b"1000000000", credit=0x7FFFFFFF) as busy:
            await anext(busy)

            async def take() -> None:
                async for _ in busy.batches():
                    await asyncio.sleep(0)

            taking = asyncio.create_task(take())
            for i in range(20):
                assert (await peer.request(b"%d" % i)).data == b"%d" % i
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking


async def test_what_a_producer_made_is_sent_though_it_waits(uri: str) -> None:
    """Items are not held back for a batch: the generator sleeps after each."""
    go = asyncio.Event()

    class Sleeps:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            yield b"1"
            yield b"2"
            await go.wait()
            yield b"3"

    async with afflux.serve(uri, Sleeps()) as server, afflux.connect(server.uri) as peer, peer.stream() as stream:
        assert [(await anext(stream)).data for _ in range(2)] == [b"1", b"2"]
        go.set()
        assert (await anext(stream)).data == b"3"


@pytest.mark.parametrize("credit", [1, 3, 100, 100_000])
async def test_lists_are_many_items(uri: str, credit: int) -> None:
    class Lists:
        async def stream(self, payload: Payload) -> AsyncIterator[list[bytes] | bytes]:
            yield b"-1"
            for start in range(0, 5000, 1000):
                yield [b"%d" % i for i in range(start, start + 1000)]
            yield []
            yield b"5000"

    async with afflux.serve(uri, Lists()) as server, afflux.connect(server.uri) as peer:
        items = [int(item.data) async for item in peer.stream(credit=credit)]
        assert items == list(range(-1, 5001))


async def test_plain_generators_and_lists_can_be_handlers(uri: str) -> None:
    class Plain:
        def stream(self, payload: Payload) -> Iterator[bytes]:
            yield from (b"%d" % i for i in range(1000))

        async def channel(self, items: Any) -> list[bytes]:
            return [item.data async for item in items]

    async with afflux.serve(uri, Plain()) as server, afflux.connect(server.uri) as peer:
        assert len([item async for item in peer.stream()]) == 1000
        async with peer.channel([b"a", b"b"]) as items:
            assert [item.data async for item in items] == [b"a", b"b"]


async def test_large_items_get_less_credit(uri: str) -> None:
    """A window of 256 items of 64 KiB would be 16 MiB; it is kept within a quarter of connection_bytes."""
    most = 0

    class Large:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            nonlocal most
            for i in range(600):
                yield bytes(0x10000)
                most = max(most, i - taken)

    taken = 0
    async with afflux.serve(uri, Large()) as server, afflux.connect(server.uri) as peer:
        async for _ in peer.stream():
            taken += 1
            if taken > 300:
                await turns(10)
    assert taken == 600


async def test_the_handler_of_a_channel_grants_as_it_takes(uri: str) -> None:
    gate = asyncio.Event()
    sent = 0

    class Slow:
        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            yield (await anext(items)).data
            await gate.wait()
            async for item in items:
                yield item.data

    async def source() -> AsyncIterator[bytes]:
        nonlocal sent
        for i in range(1000):
            sent += 1
            yield b"%d" % i

    async with afflux.serve(uri, Slow(), credit=8) as server, afflux.connect(server.uri) as peer:
        async with peer.channel(source()) as items:
            assert (await anext(items)).data == b"0"
            await turns(50)
            assert sent <= 9
            gate.set()
            assert len([item async for item in items]) == 999


async def test_completing_needs_no_credit(uri: str) -> None:
    """Who asks for exactly as many items as there are hears that there are no more."""
    async with afflux.serve(uri, Demo()) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"3", credit=0)
        stream.request(3)
        assert [item.data async for item in stream] == [b"0", b"1", b"2"]
        async with peer.channel([b"a", b"b"], credit=0) as items:
            items.request(2)
            assert [item.data async for item in items] == [b"a", b"b"]


async def test_a_grant_before_a_channel_is_open_is_not_lost(uri: str) -> None:
    """A channel is opened by the first item of its source; what is granted before counts."""
    go = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        await go.wait()
        for i in range(5):
            yield b"%d" % i

    async with afflux.serve(uri, Demo()) as server, afflux.connect(server.uri) as peer:
        async with peer.channel(source(), credit=0) as items:
            items.request(1)
            items.request(2)
            go.set()
            assert [(await anext(items)).data for _ in range(3)] == [b"0", b"1", b"2"]
            assert items.limited_by() == "credit"
