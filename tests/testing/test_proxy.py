"""The proxy on real sockets: what it does to bytes, and to connections of afflux."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Backoff, Payload
from afflux.testing import Faults, Proxy


@asynccontextmanager
async def echoing(**faults: Any) -> AsyncIterator[tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection through a proxy to a server that sends everything back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Proxy(f"tcp://127.0.0.1:{port}", **faults) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.uri.rpartition(":")[2]))
            try:
                yield proxy, reader, writer
            finally:
                writer.transport.abort()
        await asyncio.sleep(0)


async def test_what_passes_is_the_same() -> None:
    data = bytes(range(256)) * 100
    async with echoing(to_server=Faults(slices=100), to_client=Faults(slices=7000)) as (_, reader, writer):
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data


async def test_a_delay_and_a_rate() -> None:
    loop = asyncio.get_running_loop()
    async with echoing(to_server=Faults(delay=0.05), to_client=Faults(rate=10_000.0)) as (_, reader, writer):
        began = loop.time()
        writer.write(bytes(1000))
        await reader.readexactly(1000)
        assert loop.time() - began >= 0.15


async def test_a_cut_behind_some_bytes() -> None:
    async with echoing(to_client=Faults(cut_after=10)) as (_, reader, writer):
        writer.write(bytes(100))
        assert await reader.read() == bytes(10)


async def test_a_black_hole() -> None:
    async with echoing(to_client=Faults(lose_after=10)) as (_, reader, writer):
        writer.write(bytes(100))
        assert await reader.readexactly(10) == bytes(10)
        writer.write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.05)


async def test_what_is_held_passes_when_it_is_released() -> None:
    async with echoing() as (proxy, reader, writer):
        proxy.hold()
        writer.write(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(read := asyncio.ensure_future(reader.read(1))), 0.05)
        proxy.release()
        assert await read == b"x"


@pytest.mark.parametrize("by_cut", [True, False])
async def test_the_end_of_a_connection(by_cut: bool) -> None:
    async with echoing() as (proxy, reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
        ended = proxy.relays[0].ended
        assert not ended.is_set()
        proxy.cut() if by_cut else writer.write_eof()
        await asyncio.wait_for(ended.wait(), 30)


async def test_a_reset() -> None:
    async with echoing() as (proxy, reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
        proxy.cut(reset=True)
        with pytest.raises(ConnectionResetError):
            await reader.read()


class Numbers:
    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for number in range(500):
            yield b"%d" % number


@pytest.mark.parametrize("transport", ["tcp", "unix"])
async def test_a_session_is_resumed_on_the_other_side_of_cuts(transport: str, tmp_path: Path) -> None:
    def plan(number: int) -> tuple[Faults, Faults]:
        return Faults(slices=50), Faults(cut_after=700 if number < 5 else None)

    uri = "tcp://127.0.0.1:0" if transport == "tcp" else f"unix://{tmp_path}/server.sock"
    limits = afflux.Limits.server(resume_rate=(1000, 0.0))
    resume = Backoff(first=0.01, most=0.01)
    server = await afflux.serve(uri, Numbers(), resume=True, limits=limits)
    async with server, Proxy(server.uri, plan=plan) as proxy:
        async with afflux.connect(proxy.uri, resume=resume, limits=limits) as peer:
            assert [int(item.data) async for item in peer.stream(credit=16)] == list(range(500))
        assert proxy.connections == 6
        assert proxy.uri.startswith(f"{transport}://")


async def test_a_proxy_that_refuses_and_one_without_a_server() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Numbers()) as server, Proxy(server.uri) as proxy:
        proxy.reachable = False
        with pytest.raises(afflux.ConnectionClosed):
            async with afflux.connect(proxy.uri) as peer:
                await anext(peer.stream())
        proxy.reachable = True
        await server.close()
        with pytest.raises(afflux.ConnectionClosed):
            async with afflux.connect(proxy.uri) as peer:
                await anext(peer.stream())
        async with afflux.serve("tcp://127.0.0.1:0", Numbers()) as other:
            proxy.server = other.uri
            async with afflux.connect(proxy.uri) as peer:
                assert (await anext(peer.stream())).data == b"0"
        assert [relay.number for relay in proxy.relays] == [0, 1, 2]
