"""A connection that is used in another event loop than its own: afflux says so, instead of asyncio."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import afflux
from tests.aio.handlers import Demo
from tests.cli.running import Server

TOLD = r"^this connection belongs to another event loop: use it in the loop that made it"
TOLD_STREAM = r"^this stream belongs to another event loop: use it in the loop that made its connection"


class Waiting:
    """Sends one item, and then nothing."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.Event().wait()

    async def channel(self, items: afflux.ItemStream) -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.Event().wait()


async def endless() -> AsyncIterator[bytes]:
    yield b"1"
    await asyncio.Event().wait()


async def test_a_request_in_the_loop_of_another_thread() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            await asyncio.to_thread(asyncio.run, peer.request(b"elsewhere"))
        assert await peer.request(b"here")  # the connection is still of use


async def test_closing_in_the_loop_of_another_thread() -> None:
    """Nothing is closed in part: server and client go on, and are closed in their own loop."""
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
        assert await peer.request(b"before")
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            await asyncio.to_thread(asyncio.run, peer.close())
        for work in (server.close(), server.wait_closed()):
            with pytest.raises(afflux.LocalProtocolError, match=r"^this server belongs to another event loop: use it"):
                await asyncio.to_thread(asyncio.run, work)
        assert await peer.request(b"after")
    await asyncio.to_thread(asyncio.run, peer.close())  # closed already: no-ops
    await asyncio.to_thread(asyncio.run, server.close())


async def source() -> AsyncIterator[bytes]:
    yield b"1"
    yield b"2"


async def iterated(items: afflux.ItemStream) -> None:
    raise AssertionError([item async for item in items])


async def entered(items: afflux.ItemStream) -> None:
    async with items:
        raise AssertionError("it was opened")


async def asked(items: afflux.ItemStream) -> None:
    items.request(1)
    await anext(items)


@pytest.mark.parametrize("use", [iterated, entered])
@pytest.mark.parametrize("verb", ["stream", "channel"])
async def test_items_in_the_loop_of_another_thread(
    use: Callable[[afflux.ItemStream], Coroutine[Any, Any, None]], verb: str
) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
        items = peer.stream(b"3") if verb == "stream" else peer.channel(source())
        with pytest.raises(afflux.LocalProtocolError, match=TOLD_STREAM):
            await asyncio.to_thread(asyncio.run, use(items))
        assert peer.streams() == []  # nothing was opened
        assert await anext(items)  # it is still of use where it belongs
        await items.aclose()


@pytest.mark.parametrize("use", [asked, iterated])
async def test_items_that_are_open_in_the_loop_of_another_thread(
    use: Callable[[afflux.ItemStream], Coroutine[Any, Any, None]],
) -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Waiting()) as server,
        afflux.connect(server.uri) as peer,
        peer.stream() as items,
    ):
        await anext(items)
        with pytest.raises(afflux.LocalProtocolError, match=TOLD_STREAM):
            await asyncio.wait_for(asyncio.to_thread(asyncio.run, use(items)), 5)


async def test_a_channel_that_is_closed_in_the_loop_of_another_thread() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Waiting()) as server,
        afflux.connect(server.uri) as peer,
        peer.channel(endless()) as items,
    ):
        await anext(items)
        with pytest.raises(afflux.LocalProtocolError, match=TOLD_STREAM):
            await asyncio.wait_for(asyncio.to_thread(asyncio.run, items.aclose()), 5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the socket that its loop has left
def test_a_request_after_the_loop_has_closed() -> None:
    async def opened(uri: str) -> afflux.Peer:
        peer = await afflux.connect(uri)
        await peer.request(b"1")
        return peer

    with Server("--demo") as server:
        peer = asyncio.run(opened(server.uri))
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            asyncio.run(peer.request(b"2"))
        del peer
        gc.collect()


USES: dict[str, Callable[[afflux.Peer], Coroutine[Any, Any, object]]] = {
    "fire": lambda peer: peer.fire(b"x"),
    "push": lambda peer: peer.push(b"x"),
    "wait_closed": lambda peer: peer.wait_closed(),
}


@pytest.mark.parametrize("verb", USES)
async def test_other_verbs_in_the_loop_of_another_thread(verb: str) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            await asyncio.to_thread(asyncio.run, USES[verb](peer))
        assert await peer.request(b"here")


@pytest.mark.parametrize("use", [lambda items: items.request(3), lambda items: items.cancel()])
async def test_grants_and_cancels_of_another_thread(use: Callable[[afflux.ItemStream], None]) -> None:
    """The loop would not notice them, and the engine is for one thread."""
    async with afflux.serve("tcp://127.0.0.1:0", Waiting()) as server, afflux.connect(server.uri) as peer:
        items = peer.stream(b"", credit=0)
        items.request(1)
        assert (await anext(items)).data == b"1"
        with pytest.raises(afflux.LocalProtocolError, match=TOLD_STREAM):
            await asyncio.to_thread(use, items)
        items.request(1)  # it is still of use where it belongs
        items.cancel()


async def abort(session: Any) -> None:
    session.abort()


async def finish(session: Any) -> None:
    session.finish()


@pytest.mark.parametrize("use", [lambda one: one.write(b"x"), lambda one: one.read(), abort, finish])
async def test_byte_sessions_in_the_loop_of_another_thread(use: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
    told = "^this session belongs to another event loop: use it in the loop that made its connection"
    async with afflux.serve("jmux+tcp://127.0.0.1:0", Demo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.LocalProtocolError, match=TOLD):
            await asyncio.to_thread(asyncio.run, peer.session())
        async with await peer.session() as session:
            with pytest.raises(afflux.LocalProtocolError, match=told):
                await asyncio.to_thread(asyncio.run, use(session))
            await session.write(b"here")
            session.finish()
            assert await session.read_all()
    session.abort()  # the connection is over: no-op
