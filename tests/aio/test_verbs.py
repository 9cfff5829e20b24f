"""The five verbs, both ways, over tcp and mem."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Payload
from afflux.protocols.rsocket.metadata import compose, entries
from tests.aio.handlers import Demo


@pytest.fixture
def demo() -> Demo:
    return Demo()


@pytest.fixture
async def peer(uri: str, demo: Demo) -> AsyncIterator[afflux.Peer]:
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        yield peer


async def test_request(peer: afflux.Peer) -> None:
    assert await peer.request(b"ping") == Payload(b"ping")
    assert await peer.request("text") == Payload(b"text")
    assert await peer.request(Payload(b"d", b"m")) == Payload(b"d", b"m")
    assert await peer.request(b"d", metadata=b"") == Payload(b"d", b"")
    assert await peer.request() == Payload()


async def test_many_requests_at_once(peer: afflux.Peer) -> None:
    answers = await asyncio.gather(*(peer.request(b"%d" % i) for i in range(200)))
    assert [answer.data for answer in answers] == [b"%d" % i for i in range(200)]


async def test_more_requests_than_a_peer_takes_at_once_wait_their_turn(peer: afflux.Peer) -> None:
    order: list[int] = []

    async def ask(i: int) -> bytes:
        answer = await peer.request(b"%d" % i)
        order.append(i)
        return answer.data

    asked = [asyncio.ensure_future(ask(i)) for i in range(3000)]
    await asyncio.sleep(0)
    for i in (300, 500, 2999):
        asked[i].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [i for i, answer in enumerate(answers) if answer != b"%d" % i] == [300, 500, 2999]
    assert order == sorted(order)


async def test_waiting_requests_get_the_end(peer: afflux.Peer) -> None:
    asked = [asyncio.ensure_future(peer.request(b"")) for _ in range(1000)]
    await asyncio.sleep(0)
    peer.cut()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(answer) for answer in answers} == {afflux.ConnectionClosed}


async def test_a_large_request_is_cut_and_put_together(peer: afflux.Peer) -> None:
    data = bytes(range(256)) * 8192
    assert (await peer.request(data, metadata=data[:1000])).data == data


async def test_fire_and_push(peer: afflux.Peer, demo: Demo) -> None:
    await peer.fire(b"line", metadata=b"beside")
    await peer.push(b"about")
    assert await demo.fired.get() == Payload(b"line", b"beside")
    assert await demo.pushed.get() == b"about"


async def test_stream(peer: afflux.Peer) -> None:
    assert [item.data async for item in peer.stream(b"1000")] == [b"%d" % i for i in range(1000)]
    assert [item async for item in peer.stream(b"0")] == []


@pytest.mark.parametrize("credit", [1, 2, 3, 7, 64, 0x7FFFFFFF])
async def test_a_stream_is_the_same_with_any_credit(peer: afflux.Peer, credit: int) -> None:
    assert len([item async for item in peer.stream(b"500", credit=credit)]) == 500


async def test_a_stream_in_batches(peer: afflux.Peer) -> None:
    stream = peer.stream(b"1000")
    assert (await anext(stream)).data == b"0"
    items = [item.data async for batch in stream.batches() for item in batch]
    assert items == [b"%d" % i for i in range(1, 1000)]


async def test_channel(peer: afflux.Peer) -> None:
    async def source() -> AsyncIterator[bytes]:
        for i in range(500):
            yield b"%d" % i

    async with peer.channel(source()) as items:
        assert [item.data async for item in items] == [b"%d" % i for i in range(500)]


@pytest.mark.parametrize("credit", [1, 2, 300])
async def test_a_channel_of_a_plain_iterable_with_any_credit(peer: afflux.Peer, credit: int) -> None:
    async with peer.channel((b"%d" % i for i in range(300)), credit=credit) as items:
        assert len([item async for item in items]) == 300


async def test_a_channel_of_lists(peer: afflux.Peer) -> None:
    async with peer.channel([[], [b"a", b"b", b"c"], [], [b"d"]]) as items:
        assert [item.data async for item in items] == [b"a", b"b", b"c", b"d"]


async def test_a_channel_without_items_sends_nothing(peer: afflux.Peer) -> None:
    async with peer.channel([]) as items:
        assert [item async for item in items] == []
        assert items.id is None


async def test_the_metadata_of_a_route(peer: afflux.Peer) -> None:
    answer = await peer.request(b"x", route="a.b")
    assert afflux.route_of(answer) == "a.b"
    answer = await peer.request(b"x", route="a.b", metadata=b"more")
    assert list(entries(answer.metadata or b"")) == [
        ("message/x.rsocket.routing.v0", b"\x03a.b"),
        ("application/octet-stream", b"more"),
    ]
    assert (await peer.request(Payload(b"x", compose(route="r")))).metadata == compose(route="r")


async def test_metadata_is_given_once(peer: afflux.Peer) -> None:
    with pytest.raises(TypeError, match="already has metadata"):
        await peer.request(Payload(b"x", b"m"), route="r")
    with pytest.raises(afflux.LocalProtocolError):
        await peer.request(b"x", route="r" * 256)


async def test_what_a_payload_can_not_be(peer: afflux.Peer) -> None:
    with pytest.raises(TypeError, match="not int"):
        await peer.request(7)  # type: ignore[arg-type] # what a user may do
    assert await peer.request(b"still") == Payload(b"still")


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"a": 1}, Payload(b"one"), 7, print])
async def test_what_is_no_source_of_items(peer: afflux.Peer, wrong: Any) -> None:
    """Text would be sent letter by letter."""
    with pytest.raises(TypeError, match="items come from a generator or a list, not from"):
        peer.channel(wrong)

    class Returns:
        async def stream(self, payload: Payload) -> Any:
            return wrong

    async with afflux.serve("tcp://127.0.0.1:0", Returns()) as server, afflux.connect(server.uri) as client:
        with pytest.raises(afflux.ApplicationError):
            await anext(client.stream(b""))


async def test_the_server_calls_the_client(uri: str) -> None:
    class Calls:
        async def request(self, payload: Payload) -> Payload:
            peer = afflux.current_peer()
            back = await peer.request(b"back")
            items = [item.data async for item in peer.stream(b"3")]
            return Payload(back.data + b"".join(items))

    async with (
        afflux.serve(uri, Calls()) as server,
        afflux.connect(server.uri, handler=Demo()) as peer,
    ):
        assert (await peer.request(b"")).data == b"back012"


async def test_no_handler_is_current_outside() -> None:
    with pytest.raises(LookupError):
        afflux.current_peer()


async def test_connect_can_be_awaited(uri: str, demo: Demo) -> None:
    server = await afflux.serve(uri, demo)
    peer = await afflux.connect(server.uri)
    assert await peer.request(b"x") == Payload(b"x")
    assert (peer.closed, len(server.connections)) == (False, 1)
    await peer.close()
    assert peer.closed
    await server.close()
    assert server.connections == ()


async def test_setup_reaches_the_server(uri: str, demo: Demo) -> None:
    async with (
        afflux.serve(uri, demo) as server,
        afflux.connect(
            server.uri, setup=Payload(b"data", b"meta"), data_mime="text/plain", keepalive=1, lifetime=3
        ) as peer,
    ):
        await peer.request(b"")
        setup = server.connections[0].setup
        assert (setup.data, setup.metadata, setup.data_mime) == (b"data", b"meta", "text/plain")
        assert (setup.keepalive_ms, setup.lifetime_ms) == (1000, 3000)


async def test_the_address_beats_the_arguments(demo: Demo) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", demo) as server:
        async with afflux.connect(f"{server.uri}?keepalive=5", keepalive=1) as peer:
            await peer.request(b"")
            assert server.connections[0].setup.keepalive_ms == 5000
