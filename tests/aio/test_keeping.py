"""What keeps a client connected, at the edges: first words that fail, cuts in the wrong moment, closing meanwhile."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from hashlib import sha1

import pytest

import afflux
from afflux import Backoff, FixedLease, Limits, Payload
from afflux.testing import Faults, Proxy
from tests.aio.handlers import Demo, Waits

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.001, most=0.001, jitter=0.0)
LATE = Backoff(first=1000, most=1000, jitter=0.0)


class Mute:
    """A listener that takes what comes and says nothing."""

    async def __aenter__(self) -> Mute:
        self.ended = asyncio.Event()
        self.began = asyncio.Event()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.uri = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                self.began.set()
        except OSError:
            pass
        self.ended.set()
        writer.close()


async def test_who_gives_up_waiting_for_the_first_lease_leaves_no_connection_behind() -> None:
    async with Mute() as mute:
        connecting = asyncio.ensure_future(afflux.connect(mute.uri, lease=True)._open())
        await mute.began.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await mute.ended.wait()


@pytest.mark.parametrize("resume", [False, SOON], ids=["plain", "resume"])
async def test_a_first_lease_that_does_not_come_in_time(resume: Backoff | bool) -> None:
    async with Mute() as mute:
        with pytest.raises(afflux.ConnectFailed, match="did not answer"):
            await afflux.connect(mute.uri, lease=True, timeout=0.5, resume=resume, reconnect=LATE)
        await mute.ended.wait()


async def test_a_first_connection_that_is_refused_is_not_tried_again() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server:
        with pytest.raises(afflux.SetupRefused, match="leases are not supported"):
            await afflux.connect(server.uri, lease=True, reconnect=LATE)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nobody who would try again


async def test_a_next_connection_that_is_over_at_once_is_not_the_last() -> None:
    """A server that closes in the same breath in which it says that the WebSocket is open."""
    connections = 0
    async with afflux.serve("ws://127.0.0.1:0", Demo()) as server:
        port = int(server.uri.removesuffix("/").rsplit(":", 1)[1])

        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(0x10000):
                writer.write(data)
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            if connections != 2:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer), return_exceptions=True)
                return
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            key = next(line[19:] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key: "))
            accepted = b64encode(sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
            writer.write(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {accepted}\r\n\r\n".encode()
                + b"\x88\x02\x03\xe8"
            )
            await reader.read()
            writer.close()

        front = await asyncio.start_server(accept, "127.0.0.1", 0)
        uri = f"ws://127.0.0.1:{front.sockets[0].getsockname()[1]}"
        patient = Backoff(first=0.001, most=0.001, patience=5)
        async with afflux.connect(uri, reconnect=patient) as peer:
            assert (await peer.request(b"1")).data == b"1"
            peer.cut()
            await peer.wait_closed()
            assert (await peer.request(b"2")).data == b"2"
            assert connections == 3
        front.close()
        await front.wait_closed()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)


async def test_a_next_connection_that_is_cut_before_its_first_lease_goes_on() -> None:
    """Its session is resumed: the keeper, which makes the connection, brings it back as well."""
    policy = FixedLease(1000, 600.0)
    cut_next: list[int] = []

    def plan(number: int) -> tuple[Faults, Faults]:
        return Faults(), Faults(cut_after=cut_next.pop() if cut_next else None)

    server = await afflux.serve("tcp://127.0.0.1:0", Demo(), lease=policy, resume=True)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), lease=policy, resume=True, limits=LIMITS) as again:
        async with Proxy(server.uri, plan=plan) as proxy:
            async with afflux.connect(proxy.uri, lease=True, resume=SOON, reconnect=SOON, limits=LIMITS) as peer:
                await peer.request(b"1")
                older = peer._driver
                cut_next.append(3)
                proxy.server = again.uri
                await server.close()
                await older.closed
                assert (await peer.request(b"2")).data == b"2"
                assert not cut_next
                assert len(again.connections) == 1


async def test_a_session_that_is_over_ends_the_wait_for_its_return() -> None:
    limits = Limits.server(resume_s=0.02)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        async with afflux.connect(server.uri, resume=LATE, reconnect=SOON, limits=limits) as peer:
            await peer.request(b"1")
            older = peer._driver
            peer.cut()
            await older.finished
            assert (await peer.request(b"2")).data == b"2"


async def test_a_client_drains_while_it_is_away() -> None:
    """It comes back, and what was under way ends in order."""
    waits = Waits()
    async with afflux.serve("tcp://127.0.0.1:0", waits, resume=True, limits=LIMITS) as server:
        peer = await afflux.connect(server.uri, resume=SOON, reconnect=SOON, limits=LIMITS)
        asked = asyncio.ensure_future(peer.request(b"x"))
        await waits.entered.get()
        peer.cut()
        while not peer.suspended:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(peer.close(drain=True))
        while peer.suspended:
            await asyncio.sleep(0)
        peer.cut()  # and once more, while it drains
        waits.go.set()
        async with asyncio.timeout(10):
            await closing
        assert (await asked).data == b"x"
        while server.connections:
            await asyncio.sleep(0)


async def test_a_server_that_drains_does_not_wait_for_who_leaves_meanwhile() -> None:
    waits = Waits()
    server = await afflux.serve("tcp://127.0.0.1:0", waits, resume=True)
    peer = await afflux.connect(server.uri, resume=LATE)
    asked = asyncio.ensure_future(peer.request(b"x"))
    await waits.entered.get()
    closing = asyncio.ensure_future(server.close(drain=True))
    while not server._clients.closing:
        await asyncio.sleep(0)
    peer.cut()
    async with asyncio.timeout(10):
        await closing
    assert await waits.left.get() == "request canceled"
    await peer.close()
    with pytest.raises(afflux.ConnectionClosed):
        await asked


async def test_a_server_that_closes_admits_no_client() -> None:
    class Slow:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            yield b"1"
            await asyncio.Event().wait()

    async with afflux.serve("tcp://127.0.0.1:0", Slow()) as server:
        peer = await afflux.connect(server.uri)
        async for _ in peer.stream(b""):
            break
        await server.close()
        with pytest.raises(afflux.LimitExceeded, match="the server is closing"):
            server.attach("", "mem://late")  # as an ASGI server might
        receiver = server._welcome("")  # accepted in the turn before
        assert receiver.state.over  # type: ignore[attr-defined]  # of the connection
        await peer.close()
    assert not server.connections
