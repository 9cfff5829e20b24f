"""What ends with a stream or a connection, whatever it waits for; and what a connection that is over still counts."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from tests.aio.handlers import turns

PATIENCE_S = 5


class Idle:
    """A source that has nothing more to say, after its first items; it notes how it ends."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.waits = asyncio.Event()
        self.closed = asyncio.Event()

    async def source(self) -> AsyncIterator[Any]:
        """The items, and then nothing."""
        try:
            for item in self.items:
                yield item
            self.waits.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()


class Calls:
    """A server whose handler opens a channel to its own client, with a source that stands idle."""

    def __init__(self, idle: Idle) -> None:
        self.idle = idle
        self.heard: list[object] = []

    async def fire(self, payload: Payload) -> None:
        """Take the answers of the channel."""
        try:
            async for item in afflux.current_peer().channel(self.idle.source()):
                self.heard.append(item)
        except afflux.Error as error:
            self.heard.append(type(error))


class Echo:
    """Answers a channel."""

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo each."""
        async for item in items:
            yield item.data


class Short:
    """Takes one item of a channel, and then no more."""

    def __init__(self, enough: asyncio.Event) -> None:
        self.enough = enough

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """One."""
        yield (await anext(items)).data
        await self.enough.wait()
        items.cancel()
        await asyncio.Event().wait()


class Fails:
    """Takes one item of a channel, and fails."""

    def __init__(self, enough: asyncio.Event) -> None:
        self.enough = enough

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """One."""
        yield (await anext(items)).data
        await self.enough.wait()
        raise afflux.ApplicationError(0x301, "no")


async def until(happened: Callable[[], object]) -> None:
    """Wait for something."""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0)


@pytest.mark.parametrize("items", [(), (b"one", b"two")], ids=["not open", "open"])
async def test_a_channel_whose_source_stands_idle_ends_with_its_connection(uri: str, items: tuple[bytes, ...]) -> None:
    """100 of them shut out an address: the server counted the connections of idle sources for ever."""
    idle = Idle(*items)
    calls = Calls(idle)
    async with afflux.serve(uri, calls) as server:
        peer = await afflux.connect(server.uri, handler=Echo())
        await peer.fire(b"call me")
        await until(lambda: idle.waits.is_set() and len(calls.heard) == len(items))
        peer.cut()
        await until(lambda: not server.connections)
        assert idle.closed.is_set()
        assert calls.heard[len(items) :] == [afflux.ConnectionClosed]
        await peer.close()


@pytest.mark.parametrize("items", [(), (b"one", b"two")], ids=["not open", "open"])
async def test_a_wait_for_a_channel_ends_with_the_connection(uri: str, items: tuple[bytes, ...]) -> None:
    idle = Idle(*items)
    async with afflux.serve(uri, Echo()) as server, afflux.connect(server.uri) as peer:
        channel = peer.channel(idle.source())
        for item in items:
            assert (await anext(channel)).data == item
        waiting = asyncio.ensure_future(anext(channel))
        await until(idle.waits.is_set)
        peer.cut()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(afflux.ConnectionClosed) as caught:
                await waiting
            assert caught.value.may_have_been_processed is bool(items)
            with pytest.raises(afflux.ConnectionClosed):
                await anext(channel)
            await idle.closed.wait()
            await peer.wait_closed()


async def test_an_idle_source_ends_when_the_peer_wants_no_more(uri: str) -> None:
    idle = Idle(b"one")
    async with afflux.serve(uri, Short(idle.waits)) as server, afflux.connect(server.uri) as peer:
        async with peer.channel(idle.source()) as channel:
            assert (await anext(channel)).data == b"one"
            async with asyncio.timeout(PATIENCE_S):
                await idle.closed.wait()


async def test_an_idle_source_ends_when_the_peer_fails_the_channel(uri: str) -> None:
    idle = Idle(b"one")
    async with afflux.serve(uri, Fails(idle.waits)) as server, afflux.connect(server.uri) as peer:
        channel = peer.channel(idle.source())
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(afflux.ApplicationError):
                [item async for item in channel]
            await idle.closed.wait()


async def test_an_item_that_can_not_be_sent_ends_a_channel_though_its_source_stands_idle(uri: str) -> None:
    idle = Idle(b"one", ("no", "payload", "at all"))
    async with afflux.serve(uri, Echo()) as server, afflux.connect(server.uri) as peer:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises((TypeError, ValueError)):
                [item async for item in peer.channel(idle.source())]
            await idle.closed.wait()


async def test_a_wait_for_a_stream_that_is_not_open_ends_with_the_connection(uri: str) -> None:
    async with afflux.serve(uri, Echo()) as server, afflux.connect(server.uri) as peer:
        stream = peer.stream(b"", credit=0)  # opened by the first request for items
        waiting = asyncio.ensure_future(anext(stream))
        await turns()
        peer.cut()
        with pytest.raises(afflux.ConnectionClosed):
            async with asyncio.timeout(PATIENCE_S):
                await waiting


class Hangs:
    """Handlers that do not end with their connection."""

    def __init__(self) -> None:
        self.entered = 0
        self.go = asyncio.Event()

    async def fire(self, payload: Payload) -> None:
        """Nobody can take it back."""
        self.entered += 1
        await self.go.wait()

    async def request(self, payload: Payload) -> bytes:
        """Answer."""
        return b""


@pytest.mark.parametrize("wire", ["rsocket", "reactivesocket"])
async def test_an_address_is_not_shut_out_by_handlers_of_connections_that_are_gone(wire: str) -> None:
    hangs, limits = Hangs(), Limits.server(connections_per_address=4)
    async with afflux.serve(f"{wire}+tcp://127.0.0.1:0", hangs, limits=limits) as server:
        for count in range(1, 13):
            async with afflux.connect(server.uri) as peer:
                await peer.fire(b"")
                await until(lambda count=count: hangs.entered == count)  # type: ignore[misc] # of this turn
                assert (await peer.request(b"")).data == b""
        hangs.go.set()
        await until(lambda: not server.connections)


async def test_handlers_of_connections_that_are_gone_are_bounded() -> None:
    hangs, limits = Hangs(), Limits.server(connections=4, connections_per_address=None)
    async with afflux.serve("tcp://127.0.0.1:0", hangs, limits=limits) as server:
        for count in range(1, 13):
            async with afflux.connect(server.uri) as peer:
                await peer.fire(b"")
                await until(lambda count=count: hangs.entered == count)  # type: ignore[misc] # of this turn
        await until(lambda: len(server.connections) <= 4)
        hangs.go.set()


async def test_fires_that_wait_do_not_begin_when_a_server_is_closed() -> None:
    hangs, limits = Hangs(), Limits.server(streams=1)
    async with afflux.serve("tcp://127.0.0.1:0", hangs, limits=limits) as server:
        async with afflux.connect(server.uri) as peer:
            for _ in range(5):
                await peer.fire(b"")
            await until(lambda: hangs.entered == 1)
            async with asyncio.timeout(PATIENCE_S):
                await server.close()
    assert hangs.entered == 1


async def test_a_handler_that_ends_in_order_is_not_broken_off_by_the_end_of_its_connection(uri: str) -> None:
    """CANCEL, then the end of the connection, then that of the server: one cancellation is enough."""
    entered, ending, ended, go = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Careful:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            try:
                entered.set()
                yield b"first"
                await asyncio.Event().wait()
            finally:
                ending.set()
                await go.wait()
                ended.set()

    async with afflux.serve(uri, Careful()) as server:
        peer = await afflux.connect(server.uri)
        stream = peer.stream(b"")
        await anext(stream)
        await entered.wait()
        stream.cancel()
        await ending.wait()
        peer.cut()
        await peer.close()
        closing = asyncio.ensure_future(server.close())
        await turns(20)
        go.set()
        await closing
    assert ended.is_set()
