"""What nobody takes must not hold up for ever what others wait for, on one connection with bounded memory."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import afflux
from afflux import Limits, Payload
from afflux.aio.flow import ItemStream
from tests.aio.handlers import turns

UNBOUNDED = 0x7FFFFFFF


class Sources:
    """Large items without end, a small one on request, and an echo."""

    async def request(self, payload: Payload) -> Payload:
        return payload

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        while True:
            yield bytes(10_000)

    async def channel(self, items: ItemStream) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data


async def full(peer: afflux.Peer) -> ItemStream:
    """A stream of which one item is taken, until reading has stopped."""
    stream = peer.stream(b"", credit=UNBOUNDED)
    await anext(stream)
    while peer._driver.engine.wants_read:
        await asyncio.sleep(0)
    return stream


@pytest.mark.parametrize("loop_ms", [5.0, 0.001])
async def test_what_is_not_taken_is_given_up_when_others_wait(loop_ms: float) -> None:
    """Also where a read is taken in many pieces, of which one is the last that fits."""
    limits = Limits.server(write_stall_s=0.1, loop_ms=loop_ms)
    async with afflux.serve("tcp://127.0.0.1:0", Sources()) as server:
        async with afflux.connect(server.uri, limits=limits) as peer:
            stream = await full(peer)
            assert (await peer.request(b"waits")).data == b"waits"
            with pytest.raises(afflux.LimitExceeded, match="buffer-full") as failed:
                async for _ in stream:
                    pass
            assert failed.value.rule == "connection_bytes"


async def test_a_slow_reader_that_delays_no_other_may_stay() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Sources()) as server:
        async with afflux.connect(server.uri) as peer:
            stream = await full(peer)
            driver = peer._driver
            assert driver is not None
            driver.on_jam()
            waiting = asyncio.ensure_future(peer.request(b"waits"))
            await turns()
            stream_of_driver = next(iter(driver.streams.inbounds.values()))
            held = stream_of_driver.buffered
            assert held > 0
            assert not stream_of_driver.ended
            driver.on_jam()
            assert stream_of_driver.ended
            assert stream_of_driver.buffered == 0
            await waiting
            driver.on_jam()  # there is nothing to be given up any more
            stream.cancel()


@pytest.mark.parametrize(("size", "items", "credit", "channels"), [(100_000, 60, 1, 1), (4000, 400, 64, 16)])
async def test_two_ends_that_echo_go_on(size: int, items: int, credit: int, channels: int) -> None:
    """With default limits: windows fit the memory of the connection, by the size of what came first."""

    async def one(peer: afflux.Peer) -> int:
        source = (bytes(size) for _ in range(items))
        return sum([len(item.data) async for item in peer.channel(source, credit=credit)])

    async with afflux.serve("tcp://127.0.0.1:0", Sources()) as server, afflux.connect(server.uri) as peer:
        assert await asyncio.gather(*(one(peer) for _ in range(channels))) == [size * items] * channels


async def test_a_grant_by_hand_beside_a_window_is_what_one_frame_carries() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Sources()) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"")
        stream.request(UNBOUNDED)
        assert len((await anext(stream)).data) == 10_000
        window = stream._inbound.window
        assert window is not None
        assert window.outstanding <= UNBOUNDED
        stream.cancel()


async def test_a_plain_function_that_raises_stop_iteration_has_failed() -> None:
    class Plain:
        def request(self, payload: Payload) -> bytes:
            return next(iter([]))

    async with afflux.serve("tcp://127.0.0.1:0", Plain()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.ApplicationError):
            await peer.request(b"")


@pytest.mark.parametrize(
    ("credit", "kind", "told"),
    [
        (-1, afflux.LocalProtocolError, "credit must be 0 to"),
        (1 << 31, afflux.LocalProtocolError, "credit must be 0 to"),
        ("some", TypeError, "credit= is a whole number of items"),
    ],
)
async def test_a_servers_credit_is_checked_at_once(credit: object, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        afflux.serve("tcp://127.0.0.1:0", Sources(), credit=credit)  # type: ignore[arg-type]  # what a user may write
