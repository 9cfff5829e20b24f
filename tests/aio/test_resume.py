"""Sessions that outlive their transport, over real sockets: nothing is lost, nothing comes twice."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest

import afflux
from afflux import Backoff, Limits, Payload
from afflux.testing import Faults, Plan, Proxy
from tests.aio.handlers import Demo, Waits

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.001, most=0.001, jitter=0.0)


def port_of(uri: str) -> int:
    """The port of a tcp address."""
    return int(uri.rsplit(":", 1)[1])


def cut(*after: tuple[int | None, int | None]) -> Plan:
    """Cut each of the first connections after some bytes, to the server or to the client."""
    ends = (*after, *[(None, None)] * 1000)
    return lambda number: (Faults(cut_after=ends[number][0]), Faults(cut_after=ends[number][1]))


async def everything(peer: afflux.Peer, demo: Demo) -> None:
    """One of each interaction, with payloads of several frames."""
    large = bytes(range(256)) * 20
    assert (await peer.request(Payload(large, b"meta"))).data == large
    assert [int(item.data) async for item in peer.stream(b"50", credit=4)] == list(range(50))
    await peer.fire(b"fired")
    assert (await demo.fired.get()).data == b"fired"
    async with peer.channel([b"%d" % i for i in range(30)], credit=3) as items:
        assert [item.data async for item in items] == [b"%d" % i for i in range(30)]


async def test_every_interaction_survives_cuts() -> None:
    demo = Demo()
    async with afflux.serve("tcp://127.0.0.1:0", demo, resume=True, limits=LIMITS) as server:
        cuts = [(size, None) for size in range(150, 2000, 97)] + [(None, size) for size in range(20, 1500, 61)]
        async with Proxy(server.uri, plan=cut(*cuts)) as proxy:
            async with afflux.connect(proxy.uri, resume=SOON, limits=LIMITS, mtu=128) as peer:
                await everything(peer, demo)
                assert proxy.connections > 10
                assert len(server.connections) == 1
    assert demo.fired.empty()


async def test_the_server_asks_as_well() -> None:
    """Requests of the server survive too, and fragments of both."""
    told = asyncio.Queue[bytes]()

    class Asks:
        async def request(self, payload: Payload) -> bytes:
            answer = await afflux.current_peer().request(payload.data * 2)
            await told.put(answer.data)
            return answer.data

    class Answers:
        async def request(self, payload: Payload) -> bytes:
            return payload.data.upper()

    async with afflux.serve("tcp://127.0.0.1:0", Asks(), resume=True, limits=LIMITS) as server:
        cuts = [(200 + 37 * i, None) if i % 2 else (None, 80 + 41 * i) for i in range(20)]
        async with Proxy(server.uri, plan=cut(*cuts)) as proxy:
            async with afflux.connect(proxy.uri, handler=Answers(), resume=SOON, limits=LIMITS, mtu=64) as peer:
                for i in range(10):
                    data = b"x%d" % i * 50
                    assert (await peer.request(data)).data == data.upper() * 2
    assert told.qsize() == 10


async def test_what_is_asked_while_away_goes_later() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=LIMITS) as server:
        async with Proxy(server.uri) as proxy:
            slow = Backoff(first=0.2, jitter=0.0)
            async with afflux.connect(proxy.uri, resume=slow, limits=LIMITS) as peer:
                await peer.request(b"first")
                proxy.cut()
                while not peer.suspended:
                    await asyncio.sleep(0)
                answers = await asyncio.gather(*(peer.request(b"%d" % i) for i in range(10)))
                assert [answer.data for answer in answers] == [b"%d" % i for i in range(10)]
                assert not peer.suspended


async def test_a_handler_goes_on_while_its_client_is_away() -> None:
    waits = Waits()
    async with afflux.serve("tcp://127.0.0.1:0", waits, resume=True, limits=LIMITS) as server:
        async with Proxy(server.uri) as proxy:
            async with afflux.connect(proxy.uri, resume=SOON, limits=LIMITS) as peer:
                asked = asyncio.ensure_future(peer.request(b"x"))
                await waits.entered.get()
                proxy.cut()
                waits.go.set()
                assert (await asked).data == b"x"
                assert await waits.left.get() == "request done"


async def test_a_canceled_request_is_canceled_later() -> None:
    waits = Waits()
    async with afflux.serve("tcp://127.0.0.1:0", waits, resume=True, limits=LIMITS) as server:
        async with Proxy(server.uri) as proxy:
            async with afflux.connect(proxy.uri, resume=SOON, limits=LIMITS) as peer:
                asked = asyncio.ensure_future(peer.request(b"x"))
                await waits.entered.get()
                proxy.cut()
                while not peer.suspended:
                    await asyncio.sleep(0)
                asked.cancel()
                assert await waits.left.get() == "request canceled"


async def test_a_server_that_does_not_resume_refuses() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server:
        async with afflux.connect(server.uri, resume=True) as peer:
            with pytest.raises(afflux.SetupRefused, match="resumption is not supported") as caught:
                await peer.request(b"")
            assert caught.value.code == 0x003


async def test_a_server_that_has_forgotten_ends_it_once() -> None:
    """RE-25: the server starts anew; the client, which has heard from it, hears REJECTED_RESUME and does not try
    again."""
    heard = asyncio.Event()

    class Hears:
        async def push(self, metadata: bytes) -> None:
            heard.set()

    async with afflux.serve("tcp://127.0.0.1:0", Waits(), resume=True) as server:
        uri = server.uri
        peer = await afflux.connect(uri, resume=SOON, limits=LIMITS, handler=Hears())
        asked = asyncio.ensure_future(peer.request(b"x"))
        for guest in server.connections:
            while guest.setup is None:
                await asyncio.sleep(0)
            await guest.push(b"hello")
            await heard.wait()
        for guest in server.connections:
            guest._driver.state.transport.abort()  # no last words: a crash
            guest._driver.state.transport = None
        for guest in server.connections:
            guest._driver.abort()
        with pytest.raises(afflux.SetupRefused, match="no such session") as caught:
            await asked
        assert caught.value.code == 0x004
        assert peer.closed
        await peer.close()


async def test_tries_run_out() -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True)
    async with Proxy(server.uri) as proxy:
        few = Backoff(first=0.001, most=0.001, tries=3)
        peer = await afflux.connect(proxy.uri, resume=few, limits=LIMITS)
        await peer.request(b"")
    await peer.wait_closed()
    assert isinstance(peer.error, afflux.ConnectFailed)
    with pytest.raises(afflux.ConnectFailed, match="refused"):
        await peer.request(b"")
    await peer.close()
    await server.close()


async def test_a_session_ends_when_its_client_stays_away() -> None:
    waits = Waits()
    limits = Limits.server(resume_s=0.05)
    async with afflux.serve("tcp://127.0.0.1:0", waits, resume=True, limits=limits) as server:
        peer = await afflux.connect(server.uri, resume=Backoff(first=5, most=5), limits=limits)
        asked = asyncio.ensure_future(peer.request(b"x"))
        await waits.entered.get()
        peer.cut()
        with pytest.raises(afflux.ConnectionClosed, match=r"not resumed within 0\.05 s"):
            await asked
        assert await waits.left.get() == "request canceled"
        while server.connections:
            await asyncio.sleep(0)
        await peer.close()


async def test_closing_while_away() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True) as server:
        peer = await afflux.connect(server.uri, resume=Backoff(first=5, most=5))
        await peer.request(b"")
        peer.cut()
        while not peer.suspended:
            await asyncio.sleep(0)
        await peer.close()
        assert peer.closed
        while not all(guest.suspended for guest in server.connections):
            await asyncio.sleep(0)
        assert len(server.connections) == 1


@pytest.mark.parametrize("drain", [False, True])
async def test_a_server_closes_while_a_client_is_away(drain: bool) -> None:
    waits = Waits()
    server = await afflux.serve("tcp://127.0.0.1:0", waits, resume=True)
    peer = await afflux.connect(server.uri, resume=Backoff(first=5, most=5))
    asked = asyncio.ensure_future(peer.request(b"x"))
    await waits.entered.get()
    peer.cut()
    while not all(guest.suspended for guest in server.connections):
        await asyncio.sleep(0)
    await server.close(drain=drain)
    assert await waits.left.get() == "request canceled"
    await peer.close()
    with pytest.raises(afflux.ConnectionClosed):
        await asked


async def test_sessions_are_crowded_out_the_longest_away_first() -> None:
    """RE-18."""
    limits = Limits.server(resume_sessions=2)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        peers = []
        for _ in range(3):
            peer = await afflux.connect(server.uri, resume=Backoff(first=5, most=5))
            await peer.request(b"")
            peers.append(peer)
            (guest,) = (guest for guest in server.connections if not guest.suspended)
            peer.cut()
            while not guest.suspended:
                await asyncio.sleep(0)
        while len(server.connections) > 2:
            await asyncio.sleep(0)
        for peer in peers:
            await peer.close()


async def test_a_session_away_leaves_its_place_to_others() -> None:
    limits = Limits.server(connections_per_address=1)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        peer = await afflux.connect(server.uri, resume=Backoff(first=5, most=5))
        await peer.request(b"")
        peer.cut()
        while not all(guest.suspended for guest in server.connections):
            await asyncio.sleep(0)
        async with afflux.connect(server.uri) as other:
            assert (await other.request(b"y")).data == b"y"
        await peer.close()


async def test_the_newer_transport_wins() -> None:
    """RE-14: the server still thinks that the old transport is there."""
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=LIMITS) as server:
        async with Proxy(server.uri) as proxy:
            async with afflux.connect(proxy.uri, resume=SOON, limits=LIMITS) as peer:
                await peer.request(b"1")
                driver = peer._driver
                driver.dispatch(
                    driver.engine.receive_eof(monotonic())
                )  # only the client knows that it has lost its transport
                assert (await peer.request(b"2")).data == b"2"
                assert len(server.connections) == 1


async def test_unknown_positions_are_refused_and_harm_no_session() -> None:
    """RE-05: a stranger who knows the token, but not the rest."""
    from afflux.protocols.rsocket.frames import Resume, decode

    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=LIMITS) as server:
        async with afflux.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            await peer.request(b"1")
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server.uri))
            frame = Resume(
                token=peer._driver.engine.setup.token,
                last_received_server_position=10**9,
                first_available_client_position=0,
            )
            writer.write(frame.encode(prefixed=True))
            answer = await reader.read()
            error: Any = decode(answer, 3)
            assert error.code == 0x004 and b"not retained" in error.data
            writer.close()
            assert (await peer.request(b"2")).data == b"2"
            assert not peer.suspended


async def test_streams_of_a_suspended_session_wait_for_the_transport() -> None:
    waits, never = Waits(), Backoff(first=60.0, most=60.0, jitter=0.0)
    async with afflux.serve("tcp://127.0.0.1:0", waits, resume=True, limits=LIMITS) as server:
        async with afflux.connect(server.uri, resume=never, limits=LIMITS) as peer:
            request = asyncio.ensure_future(peer.request(b""))
            await waits.entered.get()
            (guest,) = server.connections
            assert [one.reason for side in (peer, guest) for one in side.streams()] == ["producer"] * 2
            peer.cut()
            while not (peer.suspended and guest.suspended):
                await asyncio.sleep(0)
            assert [one.reason for side in (peer, guest) for one in side.streams()] == ["transport"] * 2
            request.cancel()


async def test_wrong_tokens_are_all_the_same() -> None:
    """RE-02."""
    from afflux.protocols.rsocket.frames import Resume

    answers = set()
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True) as server:
        for token in (b"x" * 16, b"y", b"z" * 60_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server.uri))
            frame = Resume(token=token, last_received_server_position=0, first_available_client_position=0)
            writer.write(frame.encode(prefixed=True))
            answers.add(await reader.read())
            writer.close()
    assert len(answers) == 1 and b"no such session" in answers.pop()


async def test_a_busy_stream_loses_nothing_however_often_it_is_cut() -> None:
    class Numbers:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            for i in range(30_000):
                yield b"%d" % i

    async with afflux.serve("tcp://127.0.0.1:0", Numbers(), resume=True, limits=LIMITS) as server:
        async with Proxy(server.uri, to_client=Faults(cut_after=40_000)) as proxy:
            async with afflux.connect(proxy.uri, resume=SOON, limits=LIMITS) as peer:
                expected = 0
                async for item in peer.stream(b""):
                    assert int(item.data) == expected
                    expected += 1
                assert expected == 30_000
            assert proxy.connections >= 8


async def test_giving_up_a_session_leaves_nothing_behind() -> None:
    """What is aborted does not wait for another transport."""
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True) as server:
        peer = await afflux.connect(server.uri, resume=SOON)
        await peer.request(b"")
        peer._driver.abort()
        await peer.wait_closed()
        assert peer.closed and not peer.suspended
        await peer.close()
