"""The known defects of rsocket 0.4.20 (PyPI), one by one, as tests. interop/known.py shows them at work. Rule
numbers are RSocket's."""

# ruff: noqa: SIM117 -- a server, then who talks to it: the nesting is the story

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from interop.audit import audit
from interop.program import fill
from interop.proxy import Proxy
from websockets.asyncio.client import connect as ws_connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as ws_serve

import afflux
from afflux import Limits, Payload
from afflux.protocols.rsocket import frames as f
from afflux.protocols.rsocket.lease import FixedLease
from afflux.protocols.rsocket.metadata import OCTET_STREAM, compose, entries
from tests.aio.handlers import Demo, Waits
from tests.peers.raw import Raw, listening, reaching

TCP = "tcp://127.0.0.1:0"


@pytest.fixture(autouse=True)
async def no_orphans() -> AsyncIterator[None]:
    """Everything that was started has ended."""
    before = asyncio.all_tasks()
    yield
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


async def refuse(setup: object, peer: afflux.Peer) -> None:
    raise afflux.SetupRefused("no entry", code=3)


# -- a rejected SETUP closes the connection and serves nothing ----------------------------------------------


async def test_a_rejected_setup_closes_the_connection_and_serves_nothing() -> None:
    demo = Demo()
    async with afflux.serve(TCP, demo, on_setup=refuse) as server:
        async with reaching(server.uri) as raw:
            raw.say(
                f.RequestFnf(stream=1, data=b"knock"),
                f.RequestResponse(stream=3),
                f.RequestStream(stream=5, initial_n=9),
            )
            (error,) = await raw.rest()
        assert isinstance(error, f.ErrorFrame)
        assert (error.stream, error.code, error.data) == (0, 3, b"no entry")
        assert (demo.fired.empty(), demo.made) == (True, 0)


async def test_nothing_is_served_before_setup() -> None:
    demo = Demo()
    async with afflux.serve(TCP, demo) as server:
        async with reaching(server.uri, setup=f.RequestFnf(stream=1, data=b"knock")) as raw:
            (error,) = await raw.rest()
    assert isinstance(error, f.ErrorFrame)
    assert (error.stream, error.code) == (0, 1)
    assert demo.fired.empty()


async def test_resumption_that_is_not_offered_is_rejected_and_not_called_unsupported() -> None:
    async with afflux.serve(TCP, Demo()) as server:
        async with reaching(server.uri, setup=f.Setup(token=b"token")) as raw:
            (error,) = await raw.rest()
    assert isinstance(error, f.ErrorFrame)
    assert error.code == 3


# -- error codes from 0x301 up reach the caller -------------------------------------------------------------


@pytest.mark.parametrize("code", [0x301, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE])
async def test_codes_of_applications_reach_the_caller(code: int) -> None:
    class Fails:
        async def request(self, payload: Payload) -> Payload:
            raise afflux.ApplicationError(code, "out of stock")

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            yield b"one"
            raise afflux.ApplicationError(code, "out of stock")

    async with afflux.serve(TCP, Fails()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.ApplicationError) as caught:
            await peer.request(b"")
        assert (caught.value.code, caught.value.message) == (code, "out of stock")
        with pytest.raises(afflux.ApplicationError) as caught:
            async for item in peer.stream(b""):
                assert item == Payload(b"one")
        assert caught.value.code == code


# -- a handler that sleeps blocks no other --------------------------------------------------------------------


async def test_a_handler_that_sleeps_blocks_no_other() -> None:
    waits = Waits()

    class Mixed(Demo):
        async def request(self, payload: Payload) -> Payload:
            return await waits.request(payload) if payload.data == b"sleep" else payload

    async with afflux.serve(TCP, Mixed()) as server, afflux.connect(server.uri) as peer:
        sleeping = [asyncio.ensure_future(peer.request(b"sleep")) for _ in range(3)]
        for _ in sleeping:
            await waits.entered.get()
        assert await peer.request(b"quick") == Payload(b"quick")
        assert [item.data async for item in peer.stream(b"3")] == [b"0", b"1", b"2"]
        async with reaching(server.uri) as raw:
            await raw.beat()
            await raw.echo(1)
        waits.go.set()
        assert await asyncio.gather(*sleeping) == [Payload(b"sleep")] * 3


# -- two fragmented payloads of one stream never mix --------------------------------------------------------


async def test_fragmented_items_of_one_channel_never_mix_in_either_direction() -> None:
    items = [fill(150_000 + i, i) for i in range(12)]
    limits = replace(Limits.server(), accepts_per_s=1000)
    async with afflux.serve(TCP, Demo(), limits=limits) as server:
        async with Proxy(server.uri) as proxy:
            async with afflux.connect(proxy.uri + "?mtu=4096") as peer:
                async with peer.channel(items) as answers:
                    assert [answer.data async for answer in answers] == items
        record = proxy.links[0].seen
        for way in "><":
            payloads = [s for s in record if s.direction == way and s.stream and s.type in (0x07, 0x0A)]
            assert sum(s.flags & f.FLAG_FOLLOWS != 0 for s in payloads) >= 12
        assert audit(record) == []


async def test_fragments_of_two_streams_may_come_in_turns() -> None:
    async with afflux.serve(TCP, Demo()) as server, reaching(server.uri) as raw:
        raw.say(
            f.RequestResponse(stream=1, follows=True, data=b"a" * 64),
            f.RequestResponse(stream=3, follows=True, data=b"b" * 64),
            f.PayloadFrame(stream=1, next=True, data=b"A"),
            f.PayloadFrame(stream=3, next=True, data=b"B"),
        )
        answers = {(await raw.hear(f.PayloadFrame)).data for _ in range(2)}
    assert answers == {b"a" * 64 + b"A", b"b" * 64 + b"B"}


# -- cancelling a fire-and-forget harms nobody --------------------------------------------------------------


async def test_cancelling_a_fire_and_forget_harms_no_other() -> None:
    waits = Waits()

    class Handler(Demo):
        async def fire(self, payload: Payload) -> None:
            await waits.fire(payload)
            await super().fire(payload)

    handler = Handler()
    async with afflux.serve(TCP, handler) as server, reaching(server.uri) as raw:
        raw.say(f.RequestFnf(stream=1, data=b"note"))
        await waits.entered.get()
        raw.say(f.Cancel(stream=1))
        await raw.echo(3)
        waits.go.set()
        assert await handler.fired.get() == Payload(b"note")
        raw.say(f.RequestFnf(stream=5, data=b"second"), f.Cancel(stream=5))
        assert await handler.fired.get() == Payload(b"second")
        await raw.echo(7)


async def test_canceling_the_wait_for_a_fire_harms_no_other() -> None:
    demo = Demo()
    async with afflux.serve(TCP, demo) as server, afflux.connect(server.uri) as peer:
        task = asyncio.ensure_future(peer.fire(b"note"))
        task.cancel()
        await asyncio.wait((task,))
        assert await peer.request(b"x") == Payload(b"x")


# -- leases are enforced ------------------------------------------------------------------------------------


async def test_leases_are_enforced_by_the_responder() -> None:
    demo = Demo()
    async with afflux.serve(TCP, demo, lease=FixedLease(2, 60)) as server:
        async with reaching(server.uri, setup=f.Setup(lease=True)) as raw:
            lease = await raw.hear(f.Lease)
            assert (lease.requests, lease.ttl_ms) == (2, 60_000)
            await raw.echo(1)
            raw.say(f.RequestFnf(stream=3, data=b"within"))
            assert await demo.fired.get() == Payload(b"within")
            raw.say(
                f.RequestFnf(stream=5, data=b"beyond"),
                f.RequestResponse(stream=7),
                f.RequestStream(stream=9, initial_n=1),
            )
            for stream in (7, 9):
                error = await raw.hear(f.ErrorFrame)
                assert (error.stream, error.code) == (stream, 0x202)
        assert (demo.fired.empty(), demo.made) == (True, 0)


async def test_leases_do_not_look_at_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    async with afflux.serve(TCP, Demo(), lease=FixedLease(9, 60)) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=5) as peer:
            assert await peer.request(b"x") == Payload(b"x")
            monkeypatch.setattr(time, "time", lambda: 4e9)
            assert await peer.request(b"y") == Payload(b"y")


# -- a WebSocket that closes fails what was in flight -------------------------------------------------------


async def test_a_websocket_that_closes_fails_what_was_asked() -> None:
    async def leave(connection: ServerConnection) -> None:
        async for message in connection:
            if isinstance(message, bytes) and message[4] >> 2 == f.RequestStream.TYPE:
                await connection.close()

    wanted: Any = ["rsocket"]
    async with ws_serve(leave, "127.0.0.1", 0, subprotocols=wanted) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with afflux.connect(f"ws://127.0.0.1:{port}") as peer:
            request = asyncio.ensure_future(peer.request(b"x"))
            await asyncio.sleep(0)
            with pytest.raises(afflux.ConnectionClosed):
                async for _ in peer.stream(b"x"):
                    raise AssertionError("an item out of nowhere")
            with pytest.raises(afflux.ConnectionClosed):
                await request


async def test_a_websocket_that_closes_ends_the_handlers() -> None:
    waits = Waits()
    wanted: Any = ["rsocket"]
    async with afflux.serve("ws://127.0.0.1:0", waits) as server:
        async with ws_connect(server.uri, subprotocols=wanted, compression=None, proxy=None) as client:
            await client.send(f.Setup().encode())
            await client.send(f.RequestResponse(stream=1).encode())
            assert await waits.entered.get() == "request"
        assert await waits.left.get() == "request canceled"


# -- the dead are noticed -----------------------------------------------------------------------------------


async def test_a_dead_client_is_noticed() -> None:
    waits = Waits()
    async with afflux.serve(TCP, waits) as server:
        async with reaching(server.uri, setup=f.Setup(keepalive_ms=100, lifetime_ms=300)) as raw:
            raw.say(f.RequestResponse(stream=1))
            assert await waits.entered.get() == "request"
            assert await waits.left.get() == "request canceled"  # and not a word from the client
            (error,) = await raw.rest()
    assert isinstance(error, f.ErrorFrame)
    assert (error.stream, error.code) == (0, 0x101)


async def test_a_dead_server_fails_what_was_asked() -> None:
    async def silent(raw: Raw) -> None:
        await raw.hear(f.Setup)

    async with listening(silent) as uri:
        async with afflux.connect(uri, keepalive=0.1, lifetime=0.3) as peer:
            with pytest.raises(afflux.ConnectionClosed) as caught:
                await peer.request(b"x")
    assert caught.value.rule == "R-22"


async def test_times_below_a_second_are_announced_as_they_are() -> None:
    heard: asyncio.Queue[f.Setup] = asyncio.Queue()

    async def listen(raw: Raw) -> None:
        heard.put_nowait(await raw.hear(f.Setup))

    async with listening(listen) as uri, afflux.connect(uri, keepalive=1.5, lifetime=4.25):
        setup = await heard.get()
    assert (setup.keepalive_ms, setup.lifetime_ms) == (1500, 4250)


# -- every queue has a bound --------------------------------------------------------------------------------


async def test_what_waits_for_a_slow_reader_is_bounded() -> None:
    size, count = 16_384, 4_000
    made = 0

    class Firehose(Demo):
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            nonlocal made
            for i in range(count):
                made += 1
                yield fill(size, i)

    async with afflux.serve(TCP, Firehose()) as server:
        async with reaching(server.uri) as slow, reaching(server.uri) as quick:
            slow.say(f.RequestStream(stream=1, initial_n=0x7FFFFFFF))
            before, stream = -1, 1
            while made != before:  # until ten round trips of someone else bring nothing new
                before = made
                for _ in range(10):
                    await quick.echo(stream)
                    stream += 2
            assert 0 < made * size < 16 << 20  # our own queue, and what the system's buffers hold
            for i in range(count):
                item = await slow.hear(f.PayloadFrame)
                assert item.data == fill(size, i)
            assert item.complete or (await slow.hear(f.PayloadFrame)).complete
    assert made == count


async def test_handlers_under_way_are_bounded() -> None:
    waits = Waits()
    limits = Limits.tiny(pending_streams=0)
    async with afflux.serve(TCP, waits, limits=limits) as server, reaching(server.uri) as raw:
        streams = range(1, 2 * limits.streams + 1, 2)
        raw.say(*(f.RequestResponse(stream=stream) for stream in streams))
        for _ in streams:
            await waits.entered.get()
        raw.say(f.RequestResponse(stream=99))
        error = await raw.hear(f.ErrorFrame)
        assert (error.stream, error.code, error.data) == (99, 0x202, b"too-many-streams: pending_streams=0")
        waits.go.set()
        for _ in streams:
            await raw.hear(f.PayloadFrame)


async def test_what_is_put_together_is_bounded() -> None:
    limits = Limits.tiny()
    async with afflux.serve(TCP, Demo(), limits=limits) as server, reaching(server.uri) as raw:
        piece = bytes(8192)
        raw.say(f.RequestResponse(stream=1, follows=True, data=piece))
        raw.say(
            *(
                f.PayloadFrame(stream=1, next=True, follows=True, data=piece)
                for _ in range(limits.payload_bytes // 8192)
            )
        )
        error = await raw.hear(f.ErrorFrame)
        words = b"payload-too-large: 139264 bytes or more exceed payload_bytes=131072"
        assert (error.stream, error.code, error.data) == (1, 0x202, words)
        await raw.echo(3)


async def test_requests_that_wait_for_a_lease_are_bounded() -> None:
    async def mean(raw: Raw) -> None:
        await raw.hear(f.Setup)
        raw.say(f.Lease(ttl_ms=0, requests=0))

    limits = replace(Limits.server(), lease_queue=2)
    async with listening(mean) as uri, afflux.connect(uri, lease=True, lease_wait=60, limits=limits) as peer:
        waiting = [asyncio.ensure_future(peer.request(b"x")) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        assert isinstance(done.pop().exception(), afflux.LeaseExpired | afflux.LimitExceeded)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


# -- an early cancel of a stream is safe --------------------------------------------------------------------


async def test_an_early_cancel_of_a_stream_is_safe() -> None:
    demo = Demo()
    async with afflux.serve(TCP, demo) as server, reaching(server.uri) as raw:
        for stream in range(1, 200, 2):
            raw.say(f.RequestStream(stream=stream, initial_n=1, data=b"1000"), f.Cancel(stream=stream))
        raw.say(f.RequestResponse(stream=201, data=b"still here"))
        while not isinstance(frame := await raw.frame(), f.PayloadFrame) or frame.stream != 201:
            assert isinstance(frame, f.PayloadFrame), frame
    assert demo.made <= 100


async def test_a_requester_may_give_up_before_anything_is_sent() -> None:
    async with afflux.serve(TCP, Demo()) as server, afflux.connect(server.uri) as peer:
        for _ in range(10):
            stream = peer.stream(b"1000", credit=1)
            stream.cancel()
            stream = peer.stream(b"1000", credit=0)
            stream.request(1)
            stream.cancel()
        assert await peer.request(b"x") == Payload(b"x")


# -- empty metadata differs from none -----------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [None, b"", b"some"])
async def test_empty_metadata_differs_from_none(metadata: bytes | None) -> None:
    async with afflux.serve(TCP, Demo()) as server:
        async with afflux.connect(server.uri) as peer:
            assert await peer.request(Payload(b"x", metadata)) == Payload(b"x", metadata)
        async with reaching(server.uri) as raw:
            raw.say(f.RequestResponse(stream=1, metadata=metadata, data=b"x"))
            answer = (await raw.hear(f.PayloadFrame)).encode()
    assert (answer[4] & 1, answer[6:]) == {
        None: (0, b"x"),
        b"": (1, b"\0\0\0x"),
        b"some": (1, b"\0\0\4somex"),
    }[metadata]


# -- MIME names of 128 characters ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 127, 128, 255])
async def test_mime_names_of_a_setup_may_be_long(length: int) -> None:
    data, metadata = "d" * length, "m" * length
    seen: list[Any] = []

    async def look(setup: Any, peer: afflux.Peer) -> None:
        seen.append((setup.data_mime, setup.metadata_mime))

    async with afflux.serve(TCP, Demo(), on_setup=look) as server:
        async with afflux.connect(server.uri, data_mime=data, metadata_mime=metadata) as peer:
            assert await peer.request(b"x") == Payload(b"x")
    assert seen == [(data, metadata)]


async def test_mime_names_of_entries_have_128_characters_at_most() -> None:
    longest = "x/" + 126 * "y"
    metadata = compose([(longest, b"value"), (OCTET_STREAM, b"")])
    async with afflux.serve(TCP, Demo()) as server, afflux.connect(server.uri) as peer:
        answer = await peer.request(b"", metadata=metadata)
    assert answer.metadata is not None
    assert list(entries(answer.metadata)) == [(longest, b"value"), (OCTET_STREAM, b"")]


# -- EXT is 0x3F --------------------------------------------------------------------------------------------


async def test_ext_is_0x3f() -> None:
    heard: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    frame = f.Ext(stream=1, extended_type=7, body=b"news")
    assert frame.encode() == bytes.fromhex("00000001 FC00 00000007") + b"news"

    def extension(stream: int, body: bytes) -> None:
        heard.put_nowait((stream, body))

    async with afflux.serve(TCP, Demo(), extensions={7: extension}) as server, reaching(server.uri) as raw:
        raw.say(frame)
        assert await heard.get() == (1, b"news")
        raw.say(f.Ext(stream=1, extended_type=8, ignore=True))
        await raw.echo(3)
        raw.say(f.Ext(stream=1, extended_type=8))
        (error,) = await raw.rest()
    assert isinstance(error, f.ErrorFrame)
    assert (error.stream, error.code) == (0, 0x101)


# -- metadata length is checked -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    ["000000011100000005 6d657461", "0000000111000000", "00000001 1500 ffffff 00", "00000001 1900 00000001 000002 6d"],
    ids=["one-short", "cut-length", "fire", "stream"],
)
async def test_metadata_length_is_checked(frame: str) -> None:
    demo = Demo()
    async with afflux.serve(TCP, demo) as server, reaching(server.uri) as raw:
        raw.say(bytes.fromhex(frame))
        (error,) = await raw.rest()
    assert isinstance(error, f.ErrorFrame)
    assert (error.stream, error.code) == (0, 0x101)
    assert (demo.fired.empty(), demo.made) == (True, 0)


async def test_a_lying_metadata_length_fails_the_client_s_request() -> None:
    async def lie(raw: Raw) -> None:
        await raw.hear(f.Setup)
        await raw.hear(f.RequestResponse)
        raw.say(bytes.fromhex("00000001 2960 000009 6d657461"))

    async with listening(lie) as uri, afflux.connect(uri) as peer:
        with pytest.raises(afflux.Error) as caught:
            await peer.request(b"x")
    assert caught.value.rule == "R-7"


# -- ids keep parity and order ------------------------------------------------------------------------------


async def test_ids_of_a_client_are_odd_and_in_order() -> None:
    heard: list[int] = []

    async def listen(raw: Raw) -> None:
        await raw.hear(f.Setup)
        for _ in range(8):
            heard.append((await raw.frame()).stream)  # type: ignore[attr-defined]
        raw.say(*(f.PayloadFrame(stream=stream, next=True, complete=True) for stream in heard))

    async with listening(listen) as uri, afflux.connect(uri) as peer:
        requests = [asyncio.ensure_future(peer.request(b"x")) for _ in range(6)]
        await asyncio.sleep(0)
        await peer.fire(b"x")
        stream = peer.stream(b"x", credit=1)
        assert [item.data async for item in stream] == [b""]
        await asyncio.gather(*requests)
    assert heard == [1, 3, 5, 7, 9, 11, 13, 15]


async def test_ids_of_a_server_are_even_and_in_order() -> None:
    guests: asyncio.Queue[afflux.Peer] = asyncio.Queue()

    async def look(setup: Any, peer: afflux.Peer) -> None:
        guests.put_nowait(peer)

    async with afflux.serve(TCP, Demo(), on_setup=look) as server, reaching(server.uri) as raw:
        peer = await guests.get()
        requests = [asyncio.ensure_future(peer.request(b"x")) for _ in range(4)]
        heard = [(await raw.hear(f.RequestResponse)).stream for _ in requests]
        raw.say(*(f.PayloadFrame(stream=stream, next=True, complete=True) for stream in heard))
        await asyncio.gather(*requests)
    assert heard == [2, 4, 6, 8]


async def test_a_request_on_a_busy_id_is_ignored_and_not_answered() -> None:
    waits = Waits()
    async with afflux.serve(TCP, waits) as server, reaching(server.uri) as raw:
        raw.say(f.RequestResponse(stream=1, data=b"first"))
        await waits.entered.get()
        raw.say(f.RequestResponse(stream=1, data=b"second"), f.RequestStream(stream=1, initial_n=1))
        await raw.beat()
        waits.go.set()
        answer = await raw.hear(f.PayloadFrame)
        assert (answer.stream, answer.data) == (1, b"first")
        raw.say(f.RequestResponse(stream=3, data=b"third"))
        assert (await raw.hear(f.PayloadFrame)).stream == 3
    assert waits.entered.qsize() == 1
