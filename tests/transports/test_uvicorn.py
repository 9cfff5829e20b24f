"""Messages of an ASGI application under Uvicorn: written together, or one by one where something is in between."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Payload
from afflux.protocols.rsocket import frames
from afflux.transports.ws_uvicorn import writer_for
from tests.transports.test_asgi import running
from tests.transports.test_websocket import MIXED, SETUP, raw

STILL = 1_000
"Turns of the loop, which runs both ends, without an item: the producer stands still."
EXPECTED = [bytes((number % 251,)) * size for number, size in enumerate(MIXED)]


class Items:
    produced = 0

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for _ in range(int(payload.data)):
            for item in EXPECTED:
                self.produced += len(item)
                yield item


class Counted:
    """A middleware that sees each message. ``together`` says what the application could have done without it."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent = 0
        self.together: list[bool] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            self.sent += message["type"] == "websocket.send"
            await send(message)

        if scope["type"] == "websocket":
            self.together += [writer_for(send, None) is not None, writer_for(counted, None) is not None]
        await self.app(scope, receive, counted)


class CountedSocket(socket.socket):
    """Counts the calls of ``send`` on the connections that it accepts."""

    sends = 0

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        return CountedSocket(fileno=connection.detach()), address

    def send(self, *data: Any) -> int:
        CountedSocket.sends += 1
        return super().send(*data)


@pytest.mark.parametrize("between", [False, True])
async def test_the_messages_of_a_turn_leave_by_one_system_call(between: bool) -> None:
    """Behind a middleware each message needs one of its own."""
    application: Any = afflux.asgi.app(Items())
    application = Counted(application) if between else application
    async with running(application, CountedSocket) as uri, afflux.connect(uri) as peer:
        await anext(aiter(peer.stream(b"1", credit=1)))
        CountedSocket.sends = 0
        count = len([item async for item in peer.stream(b"20", credit=100_000)])
        sends = CountedSocket.sends
    assert count == 20 * len(EXPECTED) > 1000
    if between:
        assert sends >= count
    else:
        assert 0 < sends < count / 10


async def test_every_item_arrives_when_they_are_written_together() -> None:
    async with running(afflux.asgi.app(Items())) as uri, afflux.connect(uri) as peer:
        for credit in (7, 10_000):
            assert [item.data async for item in peer.stream(b"3", credit=credit)] == 3 * EXPECTED


async def test_each_frame_is_a_message_of_its_own() -> None:
    async with running(afflux.asgi.app(Items())) as uri, raw(uri) as client:
        await client.send(SETUP)
        await client.send(frames.RequestStream(stream=1, initial_n=1000, data=b"1").encode())
        items = [frames.decode(await client.recv()) for _ in EXPECTED]
        assert [item.data for item in items if isinstance(item, frames.PayloadFrame)] == EXPECTED


async def test_a_middleware_sees_every_message() -> None:
    counted = Counted(afflux.asgi.app(Items()))
    async with running(counted) as uri, afflux.connect(uri) as peer:
        assert [item.data async for item in peer.stream(b"1", credit=1000)] == EXPECTED
    assert counted.sent >= len(EXPECTED)
    assert counted.together == [True, False]


async def test_a_compressed_connection_is_left_to_uvicorn() -> None:
    counted = Counted(afflux.asgi.app(Items()))
    async with running(counted) as uri, raw(uri, compression="deflate") as client:
        await client.send(SETUP)
        await client.send(frames.RequestStream(stream=1, initial_n=1000, data=b"1").encode())
        items = [frames.decode(await client.recv()) for _ in EXPECTED]
        assert [item.data for item in items if isinstance(item, frames.PayloadFrame)] == EXPECTED
    assert counted.together == [False, False]


async def test_other_implementations_and_servers_get_every_message_by_send() -> None:
    async def send(message: Any) -> None: ...

    assert writer_for(send, None) is None
    counted = Counted(afflux.asgi.app(Items()))
    async with running(counted, ws="wsproto") as uri, afflux.connect(uri) as peer:
        assert [item.data async for item in peer.stream(b"1", credit=1000)] == EXPECTED
    assert counted.together == [False, False]


@pytest.mark.parametrize("leave", ["close", "abort"])
async def test_a_client_that_does_not_read_stops_the_producer(leave: str) -> None:
    items = Items()
    application = afflux.asgi.app(items)
    async with running(application) as uri, raw(uri, max_queue=1) as client:
        await client.send(SETUP)
        await client.send(frames.RequestStream(stream=1, initial_n=0x7FFFFFFF, data=b"1000000").encode())
        seen = turns = 0
        while turns < STILL:
            await asyncio.sleep(0)
            turns = turns + 1 if seen == items.produced > 0 else 0
            seen = items.produced
        assert 0 < seen < 64 << 20
        if leave == "abort":
            client.transport.abort()
        else:
            received = 0
            async for message in client:
                received += len(message)
                if received > seen:  # it goes on when the client reads
                    break
    while application.server.connections:
        await asyncio.sleep(0)
