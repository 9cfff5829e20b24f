"""Requests that wait for a handler, what their answers may weigh, and what a cancel of each costs.

The requester here is mostly a raw peer: a client of another make, which asks as much as it likes at the same time.
"""

# ruff: noqa: SIM117 -- a server, then who talks to it: the nesting is the story

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.protocols.rsocket import frames as f
from tests.aio.handlers import Demo, Waits
from tests.peers.raw import reaching

TCP = "tcp://127.0.0.1:0"
MiB = 1 << 20


def asked(count: int, first: int = 1, data: bytes = b"") -> list[f.RequestResponse]:
    return [f.RequestResponse(stream=first + 2 * n, data=data) for n in range(count)]


class Three(Waits):
    """A channel as well."""

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Wait."""
        await self._wait("channel")
        async for item in items:
            yield item.data


class Gate:
    """Handlers that wait for a gate; it counts those at work."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running = self.most = self.begun = 0

    async def request(self, payload: Payload) -> Payload:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return payload


# -- slots ----------------------------------------------------------------------------------------------------


async def test_a_cancel_of_a_handler_that_has_not_begun_frees_its_slot() -> None:
    """Two requests in one write and a cancel of the second: 180 times that took 180 slots for ever."""
    limits = Limits.server(streams=8, pending_streams=0)
    gate = Gate()
    async with afflux.serve(TCP, gate, limits=limits) as server, reaching(server.uri) as raw:
        for n in range(180):
            first = 1 + 4 * n
            raw.say(*asked(2, first), f.Cancel(stream=first + 2))
            gate.go.set()
            assert (await raw.hear(f.PayloadFrame)).stream == first
            gate.go.clear()
        gate.go.set()
        raw.say(*asked(8, 1001))
        for _ in range(8):
            await raw.hear(f.PayloadFrame)


@pytest.mark.parametrize("verb", ["request", "stream", "channel"])
async def test_a_cancel_at_any_moment_frees_the_slot(verb: str) -> None:
    """The cancel comes with the request, in the next read, or when the handler has begun."""
    limits = Limits.server(streams=4, pending_streams=0)
    waits = Three()
    makes: dict[str, Any] = {
        "request": lambda id: f.RequestResponse(stream=id),
        "stream": lambda id: f.RequestStream(stream=id, initial_n=1),
        "channel": lambda id: f.RequestChannel(stream=id, initial_n=1),
    }
    async with afflux.serve(TCP, waits, limits=limits) as server, reaching(server.uri) as raw:
        for n in range(20):
            id = 1 + 2 * n
            raw.say(makes[verb](id), *([f.Cancel(stream=id)] if n % 2 else []))
            if not n % 2:
                assert await waits.entered.get() == verb
                raw.say(f.Cancel(stream=id))
                assert await waits.left.get() == f"{verb} canceled"
        waits.go.set()
        raw.say(f.Keepalive(respond=True, data=b"all of that was read"))
        while type(await raw._next()) is not f.Keepalive:
            pass
        raw.say(*asked(4, 101))
        for _ in range(4):
            await raw.hear(f.PayloadFrame)


# -- waiting --------------------------------------------------------------------------------------------------


async def test_requests_wait_in_order_for_a_handler() -> None:
    limits = Limits.server(streams=16)
    gate = Gate()
    async with afflux.serve(TCP, gate, limits=limits) as server, reaching(server.uri) as raw:
        raw.say(*asked(1000))
        gate.go.set()
        answers = [(await raw.hear(f.PayloadFrame)).stream for _ in range(1000)]
    assert sorted(answers) == [1 + 2 * n for n in range(1000)]
    assert gate.most <= 16


async def test_twenty_thousand_requests_that_take_a_while_are_all_answered() -> None:
    """More than may wait: what is beyond that is not read before there is room."""
    gate = Gate()
    count = 20_000
    async with afflux.serve(TCP, gate) as server, reaching(server.uri) as raw:
        raw.say(*asked(count))
        gate.go.set()
        answers = {(await raw.hear(f.PayloadFrame)).stream for _ in range(count)}
    assert len(answers) == count
    assert gate.most <= Limits.server().streams


async def test_streams_wait_behind_streams_that_stay_and_are_refused_in_the_end() -> None:
    """Requests do not wait for them; and a refusal of one kind is none of the other's."""
    limits = Limits.server(streams=2, pending_s=0.2)
    waits = Three()
    async with afflux.serve(TCP, waits, limits=limits) as server, reaching(server.uri) as raw:
        raw.say(*(f.RequestStream(stream=id, initial_n=1) for id in (1, 3)))
        for _ in range(2):
            assert (await raw.hear(f.PayloadFrame)).data == b"first"
            assert await waits.entered.get() == "stream"
        raw.say(f.RequestStream(stream=5, initial_n=1), f.RequestChannel(stream=7, initial_n=1))
        raw.say(f.RequestResponse(stream=9), f.RequestFnf(stream=11))
        assert {await waits.entered.get() for _ in range(2)} == {"request", "fire"}
        refused = [await raw.hear(f.ErrorFrame) for _ in range(2)]
        assert [(error.stream, error.code) for error in refused] == [(5, 0x202), (7, 0x202)]
        assert {error.data for error in refused} == {
            b"too-many-streams: no handler became free within 0.2 s (streams=2)"
        }
        raw.say(f.Cancel(stream=1))
        raw.say(f.RequestStream(stream=13, initial_n=1))
        assert (await raw.hear(f.PayloadFrame)).stream == 13
        waits.go.set()
        assert (await raw.hear(f.PayloadFrame)).stream == 9


async def test_requests_wait_behind_requests_that_stay_and_are_refused_in_the_end() -> None:
    limits = Limits.server(streams=2, pending_s=0.2)
    gate = Gate()
    async with afflux.serve(TCP, gate, limits=limits) as server, reaching(server.uri) as raw:
        raw.say(*asked(3))
        assert ((error := await raw.hear(f.ErrorFrame)).stream, error.code) == (5, 0x202)
        gate.go.set()
        assert {(await raw.hear(f.PayloadFrame)).stream for _ in range(2)} == {1, 3}


async def test_what_waits_is_in_the_budget_of_its_connection() -> None:
    """Reading stops when what waits is all that a connection may hold."""
    limits = Limits.tiny(streams=2, pending_streams=10_000, pending_s=60)
    gate = Gate()
    async with afflux.serve(TCP, gate, limits=limits) as server, reaching(server.uri) as raw:
        size = 4096
        count = 4 * limits.connection_bytes // size
        raw.say(*asked(count, data=bytes(size)))
        (guest,) = server.connections
        while guest._driver.state.transport is None or guest._driver.state.transport.is_reading():
            await asyncio.sleep(0)
        gate.go.set()
        answers = [len((await raw.hear(f.PayloadFrame)).data) for _ in range(count)]
        assert answers == [size] * count


async def test_a_request_that_waits_and_is_canceled_costs_nothing() -> None:
    """``cancel_bucket`` is for work that has begun: 10,000 that wait may be given up in one write."""
    gate = Gate()
    async with afflux.serve(TCP, gate) as server, reaching(server.uri) as raw:
        count = 10_000
        raw.say(*asked(count))
        raw.say(*(f.Cancel(stream=1 + 2 * n) for n in range(count)))
        await raw.beat()
        assert gate.begun <= 256
        gate.go.set()
        raw.say(f.RequestResponse(stream=30_001, data=b"after"))
        while (answer := await raw.hear(f.PayloadFrame)).stream != 30_001:
            pass
        assert answer.data == b"after"
    assert gate.begun <= 257


async def test_a_channel_that_waits_keeps_what_its_requester_sends() -> None:
    """The end of the requester's half comes before the handler begins."""
    limits = Limits.server(streams=1)
    waits = Waits()

    class Mixed(Waits):
        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            async for item in items:
                yield item.data
            yield b"end"

        async def request(self, payload: Payload) -> Payload:
            return await waits.request(payload)

    async with afflux.serve(TCP, Mixed(), limits=limits) as server, reaching(server.uri) as raw:
        raw.say(f.RequestResponse(stream=1))
        await waits.entered.get()
        raw.say(
            f.RequestChannel(stream=3, initial_n=10, data=b"first"),
            f.PayloadFrame(stream=3, complete=True),
        )
        waits.go.set()
        heard = [(await raw.hear(f.PayloadFrame)) for _ in range(3)]
        assert [(frame.stream, frame.data) for frame in heard] == [(1, b""), (3, b"first"), (3, b"end")]


# -- answers --------------------------------------------------------------------------------------------------


class Large:
    """Answers of so many bytes, made at once or after a while."""

    def __init__(self, size: int, *, waits: bool) -> None:
        self.size = size
        self.waits = waits
        self.made = 0

    async def request(self, payload: Payload) -> Payload:
        if self.waits:
            await asyncio.sleep(0)
        self.made += 1
        return Payload(bytes(self.size))


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "suspended"])
@pytest.mark.parametrize(
    ("scheme", "size", "most"), [("", 4 * MiB, 256), ("jmux+", 16 * MiB, 64)], ids=["rsocket", "jmux"]
)
async def test_large_answers_fit_the_budget_of_a_connection(scheme: str, size: int, most: int, waits: bool) -> None:
    """256 requests whose answers are 4 MiB each took a gigabyte, while nothing of it was read."""
    handler = Large(size, waits=waits)
    limits = Limits.server()
    async with afflux.serve(f"{scheme}tcp://127.0.0.1:0", handler) as server:
        async with afflux.connect(server.uri, limits=Limits.trusted()) as peer:
            gc.collect()
            (guest,) = server.connections
            assert guest._driver.state.transport is not None
            tracemalloc.start()
            try:
                requests = [asyncio.ensure_future(peer.request(b"")) for _ in range(most)]
                assert peer._driver.state.transport is not None
                await asyncio.sleep(0)
                peer._driver.state.transport.pause_reading()  # a client that reads nothing for now
                made, still = -1, 0
                while still < 500:  # turns of the loop in which nothing more was made
                    still = still + 1 if handler.made == made else 0
                    made = handler.made
                    await asyncio.sleep(0)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < limits.connection_bytes + 4 * size + 4 * MiB, (peak / MiB, handler.made)
            for request in requests:
                request.cancel()
            peer.cut()
            await asyncio.gather(*requests, return_exceptions=True)


class Sized:
    """Answers at once, with so many bytes."""

    def __init__(self, size: int) -> None:
        self.answer = Payload(bytes(size))

    async def request(self, payload: Payload) -> Payload:
        return self.answer


@pytest.mark.parametrize(("count", "size"), [(3, 4_000_000), (6, 1_500_000), (40, 200_000)])
async def test_large_answers_that_are_made_at_once_all_go_out(count: int, size: int) -> None:
    """What waits goes on when an answer has filled the room, though no handler runs that could return."""
    async with afflux.serve(TCP, Sized(size)) as server, afflux.connect(server.uri) as peer, asyncio.timeout(20):
        answers = await asyncio.gather(*(peer.request(b"") for _ in range(count)))
        assert [len(answer.data) for answer in answers] == [size] * count


async def test_many_small_answers_run_side_by_side() -> None:
    """The bound is for large answers: once they are known to be small, as many handlers run as may."""
    gate = Gate()
    gate.go.set()
    async with afflux.serve(TCP, gate) as server, reaching(server.uri) as raw:
        raw.say(*asked(10))
        for _ in range(10):
            await raw.hear(f.PayloadFrame)
        gate.go.clear()
        raw.say(*asked(256, 1001))
        while gate.running < 256:
            await asyncio.sleep(0)
        gate.go.set()
        for _ in range(256):
            await raw.hear(f.PayloadFrame)


async def test_handlers_that_answer_late_are_let_run_before_any_has_answered() -> None:
    """A long poll: nothing is known of the answers, and 256 wait for them."""
    gate = Gate()
    async with afflux.serve(TCP, gate) as server, reaching(server.uri) as raw:
        raw.say(*asked(256))
        while gate.running < 256:
            await asyncio.sleep(0)
        gate.go.set()
        for _ in range(256):
            await raw.hear(f.PayloadFrame)


# -- a client of ours -----------------------------------------------------------------------------------------


async def test_a_client_paces_what_it_would_be_cut_off_for() -> None:
    """Streams that are left early, again and again: beyond the burst a client opens as fast as the bucket fills."""
    limits = Limits.server(cancel_bucket=(300, 1_000), streams=16)
    handler = Demo()
    async with afflux.serve(TCP, handler, limits=limits) as server:
        async with afflux.connect(server.uri, limits=limits) as peer:
            for _ in range(400):
                async with peer.stream(b"1000000", credit=8) as items:
                    async for item in items:
                        if item.data == b"4":
                            break
            assert (await peer.request(b"alive")).data == b"alive"


async def test_a_peer_that_cancels_too_much_is_read_more_slowly() -> None:
    """A foreign client that takes a few items of each stream, in a row, is never cut off for it."""
    limits = Limits.server(cancel_bucket=(100, 1_000), streams=16)
    async with afflux.serve(TCP, Demo(), limits=limits) as server, reaching(server.uri) as raw:
        begun = asyncio.get_running_loop().time()
        for id in range(1, 1001, 2):
            raw.say(f.RequestStream(stream=id, initial_n=3, data=b"1000000"))
            for _ in range(3):
                await raw.hear(f.PayloadFrame)
            raw.say(f.Cancel(stream=id))
        raw.say(f.RequestStream(stream=1001, initial_n=3, data=b"1"))
        assert (await raw.hear(f.PayloadFrame)).data == b"0"
        assert asyncio.get_running_loop().time() - begun > 0.2, "500 cancels are 400 too many: that takes time"


async def test_small_answers_do_not_make_room_for_large_ones() -> None:
    """A peer that was given small answers asks for large ones: what waits is bounded all the same."""
    limits, size = Limits.server(payload_bytes=2 * MiB, connection_bytes=4 * MiB), MiB
    slow, made = asyncio.Event(), [0]

    class Grows:
        async def request(self, payload: Payload) -> Payload:
            if payload.data:
                await slow.wait()
            made[0] += 1
            return Payload(bytes(size if payload.data else 8))

    async with afflux.serve(TCP, Grows(), limits=limits) as server:
        async with reaching(server.uri) as raw:
            raw.say(*asked(300))
            for _ in range(300):
                await raw.hear(f.PayloadFrame)
            raw.say(*asked(256, 1001, b"large"))
            await raw.beat()
            gc.collect()
            tracemalloc.start()
            try:
                slow.set()
                while made[0] < 300 + 256:  # nothing is read meanwhile
                    await asyncio.sleep(0)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 33 * limits.connection_bytes + 3 * size, peak / MiB
            heard = []
            while len(heard) < 256:
                frame = await raw.frame()
                if isinstance(frame, f.ErrorFrame):
                    assert (frame.data[:11], frame.code) == (b"buffer-full", 0x203), "it may have been processed"
                if not (isinstance(frame, f.PayloadFrame) and frame.follows):
                    heard.append(type(frame))
            assert 120 <= heard.count(f.PayloadFrame) < 256


async def test_a_long_poll_beside_a_large_answer_delays_no_other() -> None:
    """What is expected of answers slows requests down; it never stops them."""
    gate = Gate()

    class Mixed:
        async def request(self, payload: Payload) -> Payload:
            if payload.data == b"poll":
                return await gate.request(payload)
            await asyncio.sleep(0)
            return Payload(bytes(4 * MiB) if payload.data == b"large" else payload.data)

    async with afflux.serve(TCP, Mixed()) as server, afflux.connect(server.uri) as peer:
        assert len(await peer.request(b"large")) == 4 * MiB
        polls = [asyncio.ensure_future(peer.request(b"poll")) for _ in range(8)]
        async with asyncio.timeout(10):
            assert (await peer.request(b"small")).data == b"small"
        gate.go.set()
        await asyncio.gather(*polls)


async def test_requests_of_jmux_wait_as_well() -> None:
    class Slow:
        async def request(self, payload: Payload) -> Payload:
            await asyncio.sleep(0)
            return payload

    async with (
        afflux.serve("jmux+tcp://127.0.0.1:0", Slow(), limits=Limits.server(streams=20)) as server,
        afflux.connect(server.uri) as peer,
    ):
        answers = await asyncio.gather(*(peer.request(b"%d" % n) for n in range(80)))
        assert [answer.data for answer in answers] == [b"%d" % n for n in range(80)]


async def test_a_request_waits_as_long_as_its_argument_states() -> None:
    """It counts from the last handler that began, and those that came later have their own time."""
    loop = asyncio.get_running_loop()
    limits, gate = Limits.server(streams=2, pending_s=0.3), Gate()
    async with afflux.serve(TCP, gate, limits=limits) as server, reaching(server.uri) as raw:
        raw.say(*asked(3))
        begun = loop.time()
        assert (await raw.hear(f.ErrorFrame)).stream == 5
        assert loop.time() - begun + 0.01 >= 0.3
        gate.go.set()
        for _ in range(2):
            await raw.hear(f.PayloadFrame)
