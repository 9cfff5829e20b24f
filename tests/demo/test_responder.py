"""The demo responder, over the memory of one process: what each verb and route answers."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import pytest

import afflux
from afflux.demo import flights
from afflux.demo.responder import Responder


@pytest.fixture
async def peer() -> AsyncIterator[afflux.Peer]:
    async with afflux.serve("tcp://127.0.0.1:0", Responder()) as server, afflux.connect(server.uri) as peer:
        yield peer


async def data_of(items: AsyncIterator[afflux.Payload]) -> list[bytes]:
    return [item.data async for item in items]


async def test_request_echoes_data_and_metadata(peer: afflux.Peer) -> None:
    assert await peer.request(afflux.Payload(b"data", b"beside")) == afflux.Payload(b"data", b"beside")
    assert (await peer.request(b"", route="echo")).data == b""


async def test_route_fail_answers_the_data_as_an_error(peer: afflux.Peer) -> None:
    with pytest.raises(afflux.ApplicationError, match="it broke") as failed:
        await peer.request(b"it broke", route="fail")
    assert failed.value.code == 0x201
    with pytest.raises(afflux.ApplicationError, match="it broke"):
        await data_of(peer.stream(b"it broke", route="fail"))


async def test_route_slow_answers_after_a_while(peer: afflux.Peer) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    await peer.request(b'{"ms": 50}', route="slow")
    assert loop.time() - start >= 0.049


async def test_stream_numbers_its_items(peer: afflux.Peer) -> None:
    assert await data_of(peer.stream(b'{"count": 3, "size": 4}')) == [b"0...", b"1...", b"2..."]
    assert await data_of(peer.stream(b'{"count": 12, "size": 1}')) == [b"%d" % (n % 10) for n in range(10)] + [b"1"] * 2
    assert await data_of(peer.stream(b'{"count": 11}')) == [b"%d" % n for n in range(11)]
    assert await data_of(peer.stream(b'{"count": 0}')) == []
    assert await data_of(peer.stream(b'{"count": 2, "size": 0}')) == [b"", b""]
    assert len(await data_of(peer.stream(b'{"count": 1000, "size": 100}'))) == 1000


async def test_stream_waits_between_items(peer: afflux.Peer) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await data_of(peer.stream(b'{"count": 3, "delay_ms": 20}')) == [b"0", b"1", b"2"]
    assert loop.time() - start >= 0.039


async def test_route_flights_replays_flights(peer: afflux.Peer) -> None:
    expected = list(itertools.chain.from_iterable(flights.batches(1000)))
    assert await data_of(peer.stream(b'{"count": 1000}', route="flights")) == expected
    assert await data_of(peer.stream(b'{"count": 20, "rate": 1000}', route="flights")) == expected[:20]


async def test_flights_of_a_server_without_the_extra(peer: afflux.Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    flights.ordered.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        afflux.ApplicationError, match=r'^at the server, flight data .* needs the extra "demo": pip install'
    ):
        await data_of(peer.stream(route="flights"))


async def test_flights_keep_the_rate_that_was_asked_for(peer: afflux.Peer) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    await data_of(peer.stream(b'{"count": 30, "rate": 200}', route="flights"))
    assert loop.time() - start >= 0.09


async def test_flights_that_were_due_before_the_request_come_immediately(peer: afflux.Peer) -> None:
    expected = list(itertools.chain.from_iterable(flights.batches(500)))
    assert await data_of(peer.stream(b'{"count": 500, "rate": 1, "since": 0}', route="flights")) == expected


async def test_channel_echoes(peer: afflux.Peer) -> None:
    async with peer.channel([b"a", b"b", b"c"]) as items:
        assert await data_of(items) == [b"a", b"b", b"c"]


async def test_fire_and_push_are_counted(peer: afflux.Peer) -> None:
    await peer.fire(b"x")
    await peer.push(b"y")
    await peer.push(b"z")
    counts = json.loads((await peer.request(b"", route="stats")).data)
    assert (counts["fire"], counts["push"], counts["request"]) == (1, 2, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"count": -1}',
        b'{"count": "3"}',
        b'{"count": true}',
        b'{"count": 1e3}',
        b"\xff",
    ],
)
async def test_a_request_that_makes_no_sense_is_invalid(peer: afflux.Peer, data: bytes) -> None:
    with pytest.raises(afflux.Invalid):
        await data_of(peer.stream(data))


async def test_items_have_a_largest_size(peer: afflux.Peer) -> None:
    with pytest.raises(afflux.Invalid, match="size"):
        await data_of(peer.stream(b'{"count": 1, "size": 999999999}'))


def test_its_streams_replay() -> None:
    assert getattr(Responder().stream, "replays", False) is True


async def test_a_key_that_is_unknown_is_named(peer: afflux.Peer) -> None:
    with pytest.raises(afflux.Invalid, match="no key 'sise' here; the keys are count, size, delay_ms"):
        await data_of(peer.stream(b'{"count": 1, "sise": 4}'))
    with pytest.raises(afflux.Invalid, match="no key 'size' here; the keys are count, rate, since"):
        await data_of(peer.stream(b'{"count": 1, "size": 4}', route="flights"))
    with pytest.raises(afflux.Invalid, match="no key '' here; the keys are ms"):
        await peer.request(b'{"ms": 1, "": 2}', route="slow")
