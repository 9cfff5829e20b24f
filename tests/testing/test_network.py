"""The network of a virtual loop: what it does to bytes, and that the same seed does the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import afflux
from afflux import Backoff, Payload
from afflux.testing import Faults, Network, run
from afflux.transports import mem


class End(asyncio.Protocol):
    """Writes down what it is notified of, with the time."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, Any]] = []
        self.transport: asyncio.Transport
        self.stays = False

    def note(self, what: Any) -> None:
        self.seen.append((round(asyncio.get_running_loop().time(), 6), what))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.note(bytes(data))

    def eof_received(self) -> bool:
        self.note("eof")
        return self.stays

    def connection_lost(self, exc: Exception | None) -> None:
        self.note("lost" if exc is None else type(exc).__name__)

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")


Script = Callable[[End, End, Network], Awaitable[None]]


def played(script: Script, **network: Any) -> tuple[list[tuple[float, Any]], list[tuple[float, Any]]]:
    """What both ends of a link are notified of."""

    async def main() -> tuple[End, End]:
        client, server = End(), End()
        with Network(**network) as net:
            join = await net.reach(None)  # type: ignore[arg-type]
            join(client, server)  # type: ignore[arg-type]
            await script(client, server, net)
            await asyncio.sleep(100.0)
        return client, server

    client, server = run(main())
    return client.seen, server.seen


def test_delay_rate_and_order() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(b"x" * 100)
        client.transport.write(b"y" * 100)
        server.transport.write(b"z")

    client, server = played(script, to_server=Faults(delay=1.0, rate=100.0), to_client=Faults(delay=0.5))
    handshake = 1.5
    assert server == [(handshake + 2.0, b"x" * 100), (handshake + 3.0, b"y" * 100)]
    assert client == [(handshake + 0.5, b"z")]


def test_slices_and_jitter_keep_the_order_and_follow_the_seed() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(bytes(range(200)))

    faults = Faults(slices=9, jitter=1.0)
    first, again, other = (played(script, to_server=faults, seed=seed)[1] for seed in (1, 1, 2))
    assert b"".join(data for _, data in first) == bytes(range(200))
    assert max(len(data) for _, data in first) <= 9
    assert [when for when, _ in first] == sorted(when for when, _ in first)
    assert first == again != other


def test_an_end_comes_behind_the_bytes() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(b"last words")
        client.transport.close()

    client, server = played(script, to_server=Faults(delay=1.0))
    assert client == [(1.0, "lost")]
    assert server == [(2.0, b"last words"), (2.0, "eof"), (2.0, "lost")]


def test_half_a_link_can_end() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        server.stays = True
        client.transport.write_eof()
        await asyncio.sleep(1.0)
        server.transport.write(b"more")
        server.transport.close()

    client, server = played(script)
    assert client == [(1.0, b"more"), (1.0, "eof"), (1.0, "lost")]
    assert server == [(0.0, "eof"), (1.0, "lost")]


def test_a_reset_overtakes_what_was_written() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(b"lost")
        client.transport.abort()

    assert played(script, to_server=Faults(delay=1.0)) == ([(1.0, "lost")], [(2.0, "ConnectionResetError")])


def test_bytes_for_an_end_that_is_gone_are_answered_by_a_reset() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        server.stays = True
        client.transport.close()
        await asyncio.sleep(1.0)
        server.transport.write(b"too late")

    assert played(script) == ([(0.0, "lost")], [(0.0, "eof"), (1.0, "ConnectionResetError")])


def test_a_cut_behind_some_bytes() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(b"abcdef")

    client, server = played(script, to_server=Faults(cut_after=3))
    assert server == [(0.0, b"abc"), (0.0, "ConnectionResetError")]
    assert client == [(0.0, "ConnectionResetError")]


def test_a_black_hole() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(b"abcdef")
        client.transport.write(b"ghi")
        client.transport.close()
        server.transport.write(b"back")

    client, server = played(script, to_server=Faults(lose_after=3))
    assert server == [(0.0, b"abc")]
    assert client == [(0.0, "lost")]


@pytest.mark.parametrize("end", ["client", "server"])
def test_half_open(end: Any) -> None:
    async def script(client: End, server: End, net: Network) -> None:
        net.links[0].cut(end)
        for one in (client, server):
            one.transport.write(b"into the void")

    seen = dict(zip(("client", "server"), played(script), strict=True))
    assert seen.pop(end) == [(0.0, "ConnectionResetError")]
    assert not any(seen.values())


def test_a_reader_that_stops_holds_back_the_writer() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.set_write_buffer_limits(high=100, low=10)
        server.transport.pause_reading()
        client.transport.write(b"x" * 150)
        client.transport.write(b"x" * 150)
        await asyncio.sleep(1.0)
        assert client.transport.get_write_buffer_size() == 200
        server.transport.resume_reading()

    client, server = played(script, window=100)
    assert client == [(0.0, "pause"), (1.0, "resume")]
    assert b"".join(data for _, data in server) == b"x" * 300
    assert {when for when, _ in server} == {1.0}


def test_what_is_held_arrives_when_it_is_released() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        net.links[0].to_server.hold()
        client.transport.write(b"x")
        await asyncio.sleep(2.0)
        net.links[0].to_server.release()

    assert played(script)[1] == [(2.0, b"x")]


def test_faults_can_change_while_a_link_lives() -> None:
    async def script(client: End, server: End, net: Network) -> None:
        client.transport.write(b"x")
        way = net.links[0].to_server
        way.faults = Faults(delay=5.0)
        client.transport.write(b"y")
        await asyncio.sleep(10.0)
        assert way.passed == 2

    assert played(script)[1] == [(0.0, b"x"), (5.0, b"y")]


class Echo:
    async def request(self, payload: Payload) -> Payload:
        await asyncio.sleep(1.0)
        return payload

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for number in range(100):
            yield b"%d" % number


def test_connect_and_serve_run_on_it_unchanged() -> None:
    def plan(number: int) -> tuple[Faults, Faults]:
        return Faults(delay=0.1, slices=5), Faults(delay=0.1, cut_after=400 if number < 3 else None)

    async def main() -> Network:
        with Network(plan=plan) as network:
            resume = Backoff(first=0.1, jitter=0.0)
            server = afflux.serve("mem://echo", Echo(), resume=True)
            async with server, afflux.connect("mem://echo", resume=resume) as peer:
                assert (await peer.request(b"x" * 500)).data == b"x" * 500
                assert [int(item.data) async for item in peer.stream(credit=8)] == list(range(100))
        return network

    network = run(main())
    assert network.happened["cut"] == 3
    assert len(network.links) == 4


def test_a_network_that_refuses() -> None:
    async def main() -> None:
        with Network() as network:
            network.reachable = False
            async with afflux.serve("mem://echo", Echo()) as server:
                with pytest.raises(afflux.ConnectFailed, match="the network refuses"):
                    await afflux.connect(server.uri)

    run(main())


def test_one_network_at_a_time_and_none_afterwards() -> None:
    async def main() -> None:
        with Network(), pytest.raises(RuntimeError, match="has a network already"), Network():
            pass
        assert asyncio.get_running_loop() not in mem.networks

    run(main())
