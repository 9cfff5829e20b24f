"""The load itself, against real handlers in made-up time: what is measured is known to the microsecond."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Any

import pytest

import afflux
from afflux.bench import UNBOUNDED, Plan, Progress, Result, run
from afflux.core.autocredit import Kept
from tests.bench.virtual import measured, virtually

MS = 1_000_000


def whole(result: Result) -> Result:
    """Every request has an outcome."""
    tally = result.tally
    assert result.requests == tally.succeeded + tally.failed + tally.cut + tally.unfinished
    return result


class Server:
    """Answers after ``ms``; once, from ``stall_at`` on, it stands still for 200 ms, as for a collector of garbage."""

    def __init__(self, ms: float = 1, stall_at: float | None = None) -> None:
        self.seconds = ms / 1000
        self.stall_at = stall_at
        self.begun: float | None = None
        self.most = self.now = 0

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        loop = asyncio.get_running_loop()
        self.begun = loop.time() if self.begun is None else self.begun
        self.now += 1
        self.most = max(self.most, self.now)
        if self.stall_at is not None:
            stall = self.begun + self.stall_at
            if stall <= loop.time() < stall + 0.2:
                await asyncio.sleep(stall + 0.2 - loop.time())
        await asyncio.sleep(self.seconds)
        self.now -= 1
        return payload


# -- coordinated omission -----------------------------------------------------------------------------------


def test_open_load_shows_a_server_that_stood_still() -> None:
    """For 200 ms of 2 s nobody was answered: a tenth of what was asked for had to wait, 100 ms on average."""
    result = whole(measured(Server(stall_at=1.0), rate=1000, duration=2.0))
    assert (result.requests, result.tally.failed, result.late, result.kept_up) == (2000, 0, 0, True)
    latency = result.latency
    assert latency.percentile(89) < 2 * MS
    assert latency.percentile(95) == pytest.approx(101 * MS, rel=0.03)
    assert latency.percentile(99) == pytest.approx(181 * MS, rel=0.03)
    assert latency.max == pytest.approx(201 * MS, rel=0.01)


def test_closed_load_hides_it() -> None:
    """Its one stream waits with the server, and asks nothing: of 1,800 requests one was slow."""
    result = whole(measured(Server(stall_at=1.0), duration=2.0))
    assert result.latency.percentile(99) < 2 * MS
    assert result.latency.percentile(99.9) < 2 * MS
    assert result.latency.max == pytest.approx(201 * MS, rel=0.01)
    assert result.requests == pytest.approx(1800, abs=5)


def test_open_load_hides_nothing_when_its_streams_are_busy() -> None:
    """With one stream the requests wait here and not there. The time from the real start would hide it."""
    result = whole(measured(Server(ms=0.9, stall_at=1.0), rate=1000, duration=2.0, concurrency=1))
    assert result.latency.percentile(99) > 150 * MS
    assert result.tally.service.percentile(99) < 2 * MS
    assert result.tally.delay.percentile(99) > 150 * MS
    assert (result.kept_up, result.late_here, result.slow_here) == (False, 0, False)
    assert result.backlog == pytest.approx(200, abs=5)


# -- open load ----------------------------------------------------------------------------------------------


def test_open_load_begins_so_many_and_begins_them_in_time() -> None:
    result = whole(measured(Server(), rate=250, duration=4.0))
    assert (result.requests, result.late, result.backlog) == (1000, 0, 1)
    assert result.requests_per_s == pytest.approx(250, rel=0.01)
    assert result.tally.delay.max < MS / 100
    assert (result.latency.min, result.latency.max) == pytest.approx((MS, MS), rel=0.01)


def test_a_number_of_requests_takes_its_time() -> None:
    result = whole(measured(Server(), rate=100, requests=50))
    assert (result.requests, result.duration) == (50, pytest.approx(0.5))
    assert result.requests_per_s == pytest.approx(100)


def test_a_server_that_does_not_keep_up_is_reported() -> None:
    """Four streams of 100 ms each are 40 a second, of 200 that are asked for. Each request has an outcome."""
    result = whole(measured(Server(ms=100), rate=200, duration=5.0, concurrency=4, timeout=2.0))
    assert result.requests == 1000
    assert result.requests_per_s == pytest.approx(40, abs=1)
    assert result.kept_up is False
    assert result.not_started == result.tally.failed == pytest.approx(1000 - 40 * 7, abs=8)
    assert [(failure.kind, failure.example) for failure in result.failures] == [
        ("NotStarted", "not started within 2 s of its scheduled start")
    ]
    assert result.backlog <= 2.0 * 200 + 1
    assert result.latency.count == 1000
    assert result.latency.max == pytest.approx(2100 * MS, rel=0.02)


def test_what_waits_at_the_end_of_the_time_is_done_too() -> None:
    result = whole(measured(Server(ms=100), rate=50, duration=1.0, concurrency=1, timeout=60.0))
    assert (result.tally.succeeded, result.duration) == (50, 1.0)
    assert result.tally.in_time == pytest.approx(10, abs=1)
    assert result.latency.max == pytest.approx((5.0 - 0.98) * 1e9, rel=0.01)


# -- closed load --------------------------------------------------------------------------------------------


def test_closed_load_keeps_its_streams_busy() -> None:
    server = Server(ms=10)
    result = whole(measured(server, duration=1.0, connections=2, concurrency=8, data=b"12345"))
    assert server.most == 16
    assert result.requests == pytest.approx(1600, abs=16)
    assert result.requests_per_s == pytest.approx(1600, abs=16)
    assert result.bytes_per_s == pytest.approx(8000, abs=80)
    assert (result.kept_up, result.series("service")) == (None, None)


@pytest.mark.parametrize("verb", ["request", "fire", "channel"])
def test_so_many_requests_and_no_more(verb: str) -> None:
    class Counts:
        count = 0

        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            self.count += 1
            return payload

        async def fire(self, payload: afflux.Payload) -> None:
            self.count += 1

        async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[afflux.Payload]:
            self.count += 1
            async for item in items:
                yield item

    counts = Counts()
    result = whole(measured(counts, verb=verb, requests=97, concurrency=10, items=3, data=b"x"))
    assert (counts.count, result.tally.succeeded) == (97, 97)
    assert result.tally.items == {"request": 97, "fire": 0, "channel": 291}[verb]


def test_warming_up_is_not_counted() -> None:
    server = Server(ms=10)
    told: list[Progress] = []

    async def main() -> Result:
        loop = asyncio.get_running_loop()
        async with afflux.serve("mem://warm", server) as listening:
            plan = Plan(uri=listening.uri, duration=1.0, warmup=2.0)
            return await run(plan, clock=loop.time, tell=told.append)

    result = virtually(main())
    assert result.requests == pytest.approx(100, abs=1)
    phases = [phase for phase, _ in groupby(progress.phase for progress in told)]
    assert [phase for phase in phases if phase != "waiting"] == ["connecting", "warming up", "measuring"]
    assert all(0 <= (progress.share or 0) <= 1 for progress in told)


# -- streams ------------------------------------------------------------------------------------------------


class Streams:
    """As many items as the data says, 10 ms apart."""

    def __init__(self) -> None:
        self.ended = 0

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        try:
            for number in range(int(payload.data)):
                await asyncio.sleep(0.01)
                yield b"%4d" % number
        finally:
            self.ended += 1


def test_a_stream_is_measured_from_its_first_item_to_its_last() -> None:
    result = whole(measured(Streams(), verb="stream", data=b"20", requests=5, credit=4))
    tally = result.tally
    assert (tally.items, tally.bytes, tally.succeeded) == (100, 400, 5)
    assert (tally.first_item.count, tally.gap.count, result.latency.count) == (5, 95, 5)
    assert tally.first_item.max == pytest.approx(10 * MS, rel=0.01)
    assert (tally.gap.min, tally.gap.max) == pytest.approx((10 * MS, 10 * MS), rel=0.01)
    assert result.latency.max == pytest.approx(200 * MS, rel=0.01)


@pytest.mark.parametrize("credit", [1, 4, "auto", UNBOUNDED])
def test_a_slow_server_is_what_its_streams_wait_for(credit: Kept) -> None:
    stall = measured(Streams(), verb="stream", data=b"50", requests=2, credit=credit).stall
    assert stall is not None
    assert stall["peer"] == pytest.approx(1.0, abs=0.001)
    assert sum(stall.values()) == pytest.approx(1.0)


def test_credit_is_honoured() -> None:
    class Ahead:
        """How far it gets before the client has taken anything, which is never further than the credit and one."""

        furthest = 0

        async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
            for number in range(1000):
                self.furthest = number
                yield b"x"

    handler = Ahead()
    result = measured(handler, verb="stream", requests=1, credit=3, take=2)
    assert (result.tally.items, result.tally.succeeded) == (2, 1)
    assert handler.furthest <= 3


def test_a_stream_without_an_end_is_cut_with_the_time() -> None:
    handler = Streams()
    result = whole(measured(handler, verb="stream", data=b"1000000000", duration=1.0, concurrency=3))
    assert (result.tally.cut, result.tally.failed, result.latency.count, handler.ended) == (3, 0, 0, 3)
    assert result.items_per_s == pytest.approx(300, abs=6)
    assert result.successful


def test_a_stream_with_a_known_end_is_waited_for() -> None:
    result = whole(measured(Streams(), verb="stream", data=b"80", duration=1.0, ends=True))
    assert (result.tally.cut, result.tally.succeeded, result.duration) == (0, 2, 1.0)
    assert result.tally.items_in_time < result.tally.items == 160


def test_a_stream_without_items_has_no_first_one() -> None:
    result = whole(measured(Streams(), verb="stream", data=b"0", requests=3))
    assert (result.tally.succeeded, result.tally.items, result.tally.first_item.count) == (3, 0, 0)


def test_a_channel_is_canceled_after_so_many() -> None:
    class Echo:
        async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[afflux.Payload]:
            async for item in items:
                yield item

    result = whole(measured(Echo(), verb="channel", requests=4, items=1000, take=10, credit=2, data=b"y", route="r"))
    assert (result.tally.succeeded, result.tally.items) == (4, 40)


# -- failures -----------------------------------------------------------------------------------------------


class Fails:
    def __init__(self) -> None:
        self.asked = 0

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        self.asked += 1
        match self.asked % 4:
            case 0:
                raise afflux.ApplicationError(0x301, "out of\x1b[31m stock")
            case 1:
                raise afflux.Rejected("not now")
            case 2:
                await asyncio.sleep(3600)
        return payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b"one"
        raise afflux.Invalid("no more")


def test_failures_are_counted_by_kind_and_code() -> None:
    result = whole(measured(Fails(), requests=40, concurrency=4, timeout=1.0))
    assert sorted((failure.kind, failure.code, failure.count, failure.example) for failure in result.failures) == [
        ("ApplicationError", 0x301, 10, "out of [31m stock"),
        ("Rejected", 0x202, 10, "not now"),
        ("Timeout", None, 10, "no answer within 1 s"),
    ]
    assert (result.tally.succeeded, result.error_rate, result.successful) == (10, 0.75, True)


def test_a_request_that_timed_out_counts_as_a_slow_one_and_a_refused_one_as_none() -> None:
    result = measured(Fails(), requests=40, concurrency=4, timeout=1.0)
    assert result.latency.count == 20
    assert result.latency.percentile(51) >= 1000 * MS


def test_a_stream_that_fails_has_given_its_items() -> None:
    result = whole(measured(Fails(), verb="stream", requests=3))
    assert (result.tally.items, result.tally.failed, result.latency.count) == (3, 3, 0)
    assert result.failures[0].code == 0x204


def test_a_stream_that_falls_silent_times_out() -> None:
    class Silent:
        async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
            for _ in range(3):
                await asyncio.sleep(0.9)
                yield b"x"
            await asyncio.sleep(3600)

    result = whole(measured(Silent(), verb="stream", requests=1, timeout=1.0))
    assert (result.tally.items, result.failures[0].kind) == (3, "Timeout")
    assert 3.6e9 <= result.latency.max <= 4.1e9


@pytest.mark.parametrize("choices", [{"verb": "push"}, {"route": "x" * 300}])
def test_what_can_not_be_sent_is_raised(choices: dict[str, Any]) -> None:
    with pytest.raises((ValueError, afflux.LocalProtocolError)):
        measured(Server(), **choices)


def test_a_server_that_does_not_want_this_client() -> None:
    async def refuse(setup: object, peer: afflux.Peer) -> None:
        raise afflux.SetupRefused("no entry", code=3)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with afflux.serve("mem://closed", Server(), on_setup=refuse) as server:
            await run(Plan(uri=server.uri, requests=10, concurrency=4), clock=loop.time)

    with pytest.raises(afflux.SetupRefused, match="no entry"):
        virtually(main())


def test_no_server() -> None:
    async def main() -> None:
        await run(Plan(uri="mem://nobody", connections=3), clock=asyncio.get_running_loop().time)

    with pytest.raises(afflux.ConnectFailed):
        virtually(main())


class Sevens(Server):
    """Answers every verb; an item comes after 10 ms, and seven are a stream or a channel."""

    fired = 0

    def __init__(self) -> None:
        super().__init__(ms=10)

    async def fire(self, payload: afflux.Payload) -> None:
        self.fired += 1

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for _ in range(7):
            await asyncio.sleep(0.01)
            yield b"x"

    async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for _ in items:
            await asyncio.sleep(0.01)
            yield b"x"


def lose_the_server(*, back: bool, **choices: Any) -> Result:
    """Its server goes after 1 s; with ``back`` another comes after 200 ms."""

    async def main() -> Result:
        loop = asyncio.get_running_loop()
        server = await afflux.serve("mem://lost", Sevens())
        limit = {"duration": 3.0 if back else 60.0} if "requests" not in choices else {}
        plan = Plan(uri=server.uri, concurrency=3, timeout=4.0, **limit, **choices)
        running = asyncio.ensure_future(run(plan, clock=loop.time))
        await asyncio.sleep(1.005)  # in the middle of a request
        await server.close()
        if back:
            await asyncio.sleep(0.2)
            server = await afflux.serve("mem://lost", Sevens())
        result = await running
        await server.close()
        return result

    return whole(virtually(main()))


def test_ending_early_while_the_connection_is_away() -> None:
    """The streams have failed and wait a little; there is nothing of theirs to be given up."""

    async def main() -> Result:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        server = await afflux.serve("mem://away", Server(ms=10))
        running = asyncio.ensure_future(run(Plan(uri=server.uri, concurrency=3), clock=loop.time, stop=stop))
        await asyncio.sleep(1.005)  # in the middle of a request
        await server.close()
        loop.call_later(0.05, stop.set)
        return await running

    result = whole(virtually(main()))
    assert (result.interrupted, result.tally.failed, result.tally.unfinished, result.lost) == (True, 3, 0, None)


def test_a_connection_that_is_lost_comes_back() -> None:
    result = lose_the_server(back=True)
    assert result.lost is None
    assert {failure.kind for failure in result.failures} == {"ConnectionClosed"}
    assert result.tally.failed == 3
    assert 700 <= result.tally.succeeded <= 900
    assert result.duration == 3.0


def test_when_it_does_not_the_run_is_over() -> None:
    result = lose_the_server(back=False)
    assert result.lost is not None
    assert "did not come back within 2 s" in result.lost
    assert result.duration < 5
    assert {failure.kind for failure in result.failures} == {"ConnectionClosed", "ConnectFailed"}
    assert result.tally.succeeded == pytest.approx(300, abs=6)


@pytest.mark.parametrize("choices", [{}, {"requests": 100_000}])
@pytest.mark.parametrize("verb", ["stream", "channel"])
def test_streams_see_that_the_server_is_gone(verb: str, choices: dict[str, int]) -> None:
    """A stream whose credit is granted by hand does not wait for the next connection by itself."""
    result = lose_the_server(back=False, verb=verb, items=7, ends=True, **choices)
    assert result.lost is not None
    assert "did not come back within 2 s" in result.lost
    assert result.duration < 5
    assert {failure.kind: failure.count for failure in result.failures} == {"ConnectionClosed": 3, "ConnectFailed": 3}
    assert 30 < result.tally.succeeded < 50


@pytest.mark.parametrize("verb", ["stream", "channel"])
def test_streams_go_on_when_the_connection_is_back(verb: str) -> None:
    result = lose_the_server(back=True, verb=verb, items=7, ends=True)
    assert result.lost is None
    assert {failure.kind: failure.count for failure in result.failures} == {"ConnectionClosed": 3}
    assert result.tally.succeeded > 90


def test_fires_do_not_report_a_lost_connection_so_it_is_counted() -> None:
    result = lose_the_server(back=True, verb="fire", rate=100.0)
    assert (result.tally.failed, result.tally.succeeded, result.tally.connections_lost) == (0, 300, 1)
    assert result.lost is None
    gone = lose_the_server(back=False, verb="fire", rate=100.0)
    assert gone.lost is not None
    assert gone.tally.connections_lost == 1


def test_a_connection_that_lasts_is_not_lost() -> None:
    assert measured(Sevens(), verb="fire", requests=50).tally.connections_lost == 0


# -- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [{"concurrency": 3}, {"rate": 100, "concurrency": 2}, {"verb": "stream"}])
def test_stopping_early_keeps_what_was_measured(choices: dict[str, Any]) -> None:
    class Slow(Server):
        async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.01)
                yield b"x"

    async def main() -> Result:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with afflux.serve("mem://stopped", Slow(ms=300)) as server:
            loop.call_later(1.0, stop.set)
            return await run(Plan(uri=server.uri, duration=60.0, **choices), clock=loop.time, stop=stop)

    result = whole(virtually(main()))
    assert result.interrupted
    assert result.duration == pytest.approx(1.0, abs=0.01)
    assert result.tally.failed == 0
    assert result.tally.unfinished == (1 if choices.get("verb") else 3 if "rate" not in choices else 95)
    assert result.successful


def test_a_run_that_is_canceled_leaves_nothing() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with afflux.serve("mem://canceled", Server(ms=300)) as server:
            task = asyncio.ensure_future(run(Plan(uri=server.uri, concurrency=5), clock=loop.time))
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtually(main())


def test_a_fault_of_ones_own_is_not_swallowed() -> None:
    """What ``tell`` raises is raised, and nothing goes on behind it."""

    def tell(progress: Progress) -> None:
        raise BrokenPipeError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with afflux.serve("mem://fault", Server()) as server:
            with pytest.raises(BrokenPipeError):
                await run(Plan(uri=server.uri), clock=loop.time, tell=tell)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtually(main())


def test_the_gate_is_waited_for_before_anything_is_counted() -> None:
    server = Server()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def gate() -> None:
            assert server.begun is None
            await asyncio.sleep(5)

        async with afflux.serve("mem://gate", server) as listening:
            result = await run(Plan(uri=listening.uri, requests=3), clock=loop.time, gate=gate)
        assert result.duration == pytest.approx(0.003, abs=0.001)

    virtually(main())


def test_memory_does_not_grow_with_the_number_of_requests() -> None:
    class Echo:
        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            return payload

        async def stream(self, payload: afflux.Payload) -> AsyncIterator[list[bytes]]:
            for _ in range(int(payload.data) // 50):
                yield [b"x"] * 50

    def peak(**choices: Any) -> int:
        tracemalloc.start()
        try:
            whole(measured(Echo(), **choices))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(requests=100)
    assert peak(requests=8000, concurrency=8) < peak(requests=1000, concurrency=8) + 100_000
    peak(verb="stream", data=b"1000", requests=1)
    assert peak(verb="stream", data=b"60000", requests=1) < peak(verb="stream", data=b"6000", requests=1) + 100_000
