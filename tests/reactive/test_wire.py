"""What reactive streams look like on the wire: demand is credit, and no more comes than it allows (RSocket R-27)."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

import afflux
from afflux import Limits, Payload, Peer, reactive
from tests.reactive.kits import HUGE, Counts, Serves, ServesPublisher
from tests.reactive.probes import Failure, Probe, turns, until

MOST = 0x7FFFFFFF
REQUEST_STREAM, REQUEST_CHANNEL, REQUEST_N, CANCEL, PAYLOAD = 0x06, 0x07, 0x08, 0x09, 0x0A
NEXT = 0x20


class Frame(NamedTuple):
    """What of a frame is looked at here, read by hand."""

    stream: int
    type: int
    flags: int
    n: int

    @classmethod
    def read(cls, data: bytes) -> Frame:
        word = int.from_bytes(data[4:6], "big")
        return cls(int.from_bytes(data[:4], "big"), word >> 10, word & 0x3FF, int.from_bytes(data[6:10], "big"))


class Recorder:
    """A proxy that writes down the frames of streams which pass."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition("/")[2].rpartition(":")
        self._to = (host, int(port))
        self.asked: list[Frame] = []
        "What the client said."
        self.answered: list[Frame] = []
        "What the server said."

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        tasks: set[asyncio.Task[Any]] = set()
        self._tasks = tasks
        try:
            yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_connection(*self._to)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back, self.asked))
                group.create_task(self._pass(there, writer, self.answered))
        finally:
            for end in (writer, back):
                end.close()
            for end in (writer, back):
                await end.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: list[Frame]) -> None:
        try:
            while True:
                prefix = await reader.readexactly(3)
                data = await reader.readexactly(int.from_bytes(prefix, "big"))
                frames.append(Frame.read(data))
                writer.write(prefix + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            if writer.can_write_eof():
                writer.write_eof()

    @property
    def grants(self) -> list[int]:
        """Credit that the client has given, frame by frame."""
        return [frame.n for frame in self.asked if frame.type in (REQUEST_STREAM, REQUEST_CHANNEL, REQUEST_N)]

    @property
    def items(self) -> int:
        """Items that the server has sent for it."""
        streams = {frame.stream for frame in self.asked if frame.type in (REQUEST_STREAM, REQUEST_CHANNEL)}
        found = [frame for frame in self.answered if frame.stream in streams and frame.type == PAYLOAD]
        return sum(1 for frame in found if frame.flags & NEXT)

    @property
    def cancels(self) -> int:
        """How often the client has cancelled."""
        return sum(1 for frame in self.asked if frame.type == CANCEL)


class Line(NamedTuple):
    """A connection that is recorded."""

    peer: Peer
    recorder: Recorder
    counts: Counts

    async def settle(self) -> None:
        """Everything that was under way has come."""
        for _ in range(3):
            await self.peer.request(b"")
            await turns()


@pytest.fixture(params=[Serves, ServesPublisher], ids=["iterator", "publisher"])
async def line(request: pytest.FixtureRequest, nothing_is_left: None) -> AsyncIterator[Line]:
    """A server behind a recorder, by each kind of handler."""
    counts = Counts()
    async with afflux.serve("tcp://127.0.0.1:0", request.param(counts)) as server:
        recorder = Recorder(server.uri)
        async with recorder.listening() as uri, afflux.connect(uri) as peer:
            yield Line(peer, recorder, counts)


def numbers(peer: Peer, n: int = 1 << 40) -> Any:
    return reactive.stream(peer, json.dumps([n, False]))


async def test_nothing_is_sent_before_a_request(line: Line) -> None:
    probe = Probe()
    numbers(line.peer).subscribe(probe)
    await line.settle()
    assert line.recorder.grants == []
    probe.cancel()
    await line.settle()
    assert (line.recorder.grants, line.recorder.cancels) == ([], 0)


async def test_demand_is_credit_and_bounds_the_items(line: Line) -> None:
    probe = Probe()
    numbers(line.peer).subscribe(probe)
    requested = 0
    for n in (5, 1, 1, 40):
        probe.request(n)
        requested += n
        await probe.have(requested)
        await line.settle()
        assert sum(line.recorder.grants) == line.recorder.items == requested
        assert line.counts.made == requested + 1  # one ahead: completing needs no credit
    assert line.recorder.grants == [5, 1, 1, 40]
    probe.cancel()
    await until(lambda: line.counts.closed)
    assert (line.recorder.items, line.recorder.cancels) == (requested, 1)
    assert probe.faults == []


async def test_requests_of_one_turn_are_one_grant(line: Line) -> None:
    probe = Probe(*[1] * 100)
    numbers(line.peer).subscribe(probe)
    await probe.have(100)
    assert line.recorder.grants == [100]
    probe.cancel()


async def test_small_requests_wait_while_much_is_granted() -> None:
    """So a subscriber that requests without end does not flood a peer that has nothing to send."""
    go = asyncio.Event()

    class Waits:
        async def request(self, payload: Payload) -> Payload:
            return payload

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            await go.wait()
            for i in range(3000):
                yield b"%d" % i

    async with afflux.serve("tcp://127.0.0.1:0", Waits()) as server:
        recorder = Recorder(server.uri)
        async with recorder.listening() as uri, afflux.connect(uri) as peer:
            probe = Probe()
            reactive.stream(peer).subscribe(probe)
            for _ in range(3000):
                probe.request(1)
                await asyncio.sleep(0)
            await peer.request(b"")
            assert len(recorder.grants) < 40
            assert sum(recorder.grants) >= 2000
            go.set()
            await probe.have(3000)
            assert recorder.items == sum(recorder.grants) == 3000
            probe.request(1)
            assert await probe.end() == "on_complete"
            assert probe.faults == []


async def test_demand_beyond_a_frame_is_granted_in_parts(line: Line) -> None:
    """A frame grants at most 2^31-1 (RSocket R-26); the rest would follow after a third of that."""
    probe = Probe(HUGE)
    numbers(line.peer).subscribe(probe)
    await probe.have(2_000)
    probe.cancel()
    await until(lambda: line.counts.closed)
    assert line.recorder.grants == [MOST]


async def test_credit_is_refilled_up_to_the_largest_number_of_a_frame() -> None:
    """The same arithmetic with a stream that only counts."""
    from afflux.reactive.wire import Streamed

    class Counting:
        granted: list[int]
        id = 1

        def __init__(self) -> None:
            self.granted = []

        def limited_by(self) -> str:
            return "credit"

        def request(self, n: int) -> None:
            self.granted.append(n)

        def cancel(self) -> None:
            """Nothing to cancel."""

        async def __anext__(self) -> Payload:
            await asyncio.get_running_loop().create_future()
            raise StopAsyncIteration

    counting: Any = Counting()
    probe = Probe()
    streamed = Streamed(probe, counting)
    streamed.begin()
    probe.request(1 << 40)
    await turns()
    assert counting.granted == [MOST]
    streamed._granted = MOST // 2
    streamed.next(Payload(b"1"))
    await turns()
    assert counting.granted == [MOST, MOST - MOST // 2 + 1]
    probe.cancel()
    await turns()


async def test_cancel_is_sent_at_once(line: Line) -> None:
    stream = line.peer.stream(json.dumps([1 << 40, False]), credit=0)
    probe = Probe(1000)
    reactive.to_publisher(stream).subscribe(probe)
    await probe.have(1)
    probe.cancel()
    assert stream.limited_by() == "ended", "with the next bytes that go out"
    had = len(probe.items)
    await line.settle()
    assert line.counts.closed == 1
    assert (len(probe.items), probe.faults) == (had, [])


async def test_each_subscription_is_a_stream(line: Line) -> None:
    publisher = numbers(line.peer, 5)
    probes = [Probe(10) for _ in range(3)]
    for probe in probes:
        publisher.subscribe(probe)
    for probe in probes:
        assert await probe.end() == "on_complete"
    assert line.counts.opened == 3
    assert line.recorder.grants == [10, 10, 10]


async def test_the_error_of_a_peer_is_passed_on_unchanged() -> None:
    async with afflux.serve("mem://refuses", Doubles()) as server, afflux.connect(server.uri) as peer:
        probe = Probe(2)
        reactive.stream(peer).subscribe(probe)
        assert await probe.end() == "on_error"
        assert isinstance(probe.error, afflux.Rejected)
        assert probe.faults == []


async def test_options_go_to_the_peer() -> None:
    router = afflux.Router()

    @router.stream("echo.{name}")
    async def echo(payload: Payload, name: str) -> AsyncIterator[bytes]:
        yield name.encode() + payload.data

    async with afflux.serve("mem://options", router) as server, afflux.connect(server.uri) as peer:
        publisher = reactive.stream(peer, b"!", route="echo.hi")
        assert [item.data async for item in reactive.from_publisher(publisher)] == [b"hi!"]
        probe = Probe()
        reactive.stream(peer, nonsense=1).subscribe(probe)
        assert isinstance(probe.error, TypeError)


async def test_a_stream_given_by_hand_is_read_once(line: Line) -> None:
    """Its demand is credit, from the first request on."""
    stream = line.peer.stream(json.dumps([100, False]), credit=0)
    publisher = reactive.to_publisher(stream)
    probe, late = Probe(), Probe()
    publisher.subscribe(probe)
    publisher.subscribe(late)
    assert late.signals == ["on_subscribe", "on_error"]
    probe.request(3)
    await probe.have(3)
    await line.settle()
    assert line.recorder.grants == [3]
    probe.request(98)
    assert await probe.end() == "on_complete"
    assert len(probe.items) == 100
    assert probe.faults == []


async def test_a_stream_with_credit_of_its_own_before(line: Line) -> None:
    """What it was granted by hand is used up first; then demand is credit. It is never more than both together."""
    stream = line.peer.stream(json.dumps([100, False]), credit=0)
    stream.request(5)
    probe = Probe(2)
    reactive.to_publisher(stream).subscribe(probe)
    await probe.have(2)
    await line.settle()
    assert (line.recorder.grants, len(probe.items)) == ([5], 2)
    probe.request(10)
    await probe.have(12)
    await line.settle()
    assert len(probe.items) == 12
    assert 12 <= sum(line.recorder.grants) <= 5 + 10
    probe.request(1000)
    assert await probe.end() == "on_complete"
    assert (len(probe.items), probe.faults) == (100, [])


async def test_a_stream_with_a_window_keeps_it(line: Line) -> None:
    stream = line.peer.stream(json.dumps([100, False]), credit=8)
    probe = Probe(1)
    reactive.to_publisher(stream).subscribe(probe)
    await probe.have(1)
    await line.settle()
    assert line.recorder.grants == [8]
    probe.request(200)
    assert await probe.end() == "on_complete"
    assert (len(probe.items), probe.faults) == (100, [])


async def test_a_handler_may_return_from_publisher() -> None:
    """It requests its window ahead of the peer; serve_publisher requests what the peer does."""
    counts = {"ahead": Counts(), "exact": Counts()}
    router = afflux.Router()

    @router.request()
    async def echo(payload: Payload) -> Payload:
        return payload

    @router.stream("ahead")
    async def ahead(payload: Payload) -> Any:
        return reactive.from_publisher(reactive.to_publisher(lambda: counts["ahead"].numbers(100)), credit=16)

    @router.stream("exact")
    async def exact(payload: Payload) -> Any:
        return reactive.serve_publisher(reactive.to_publisher(lambda: counts["exact"].numbers(100)))

    async with afflux.serve("tcp://127.0.0.1:0", router) as server, afflux.connect(server.uri) as peer:
        for route, made in (("ahead", 16), ("exact", 4)):
            probe = Probe(3)
            reactive.stream(peer, route=route).subscribe(probe)
            await probe.have(3)
            await until(lambda route=route, made=made: counts[route].made >= made)  # type: ignore[misc]
            await peer.request(b"")
            assert counts[route].made in (made, made + 2 * (route == "ahead"))
            probe.request(100)
            assert await probe.end() == "on_complete"
            assert (len(probe.items), probe.faults) == (100, [])
            assert counts[route].closed == 1


async def test_a_handler_whose_peer_cancels_cancels_its_publisher() -> None:
    counts = Counts()
    async with (
        afflux.serve("tcp://127.0.0.1:0", ServesPublisher(counts)) as server,
        afflux.connect(server.uri) as peer,
    ):
        async for _ in peer.stream(json.dumps([1 << 40, False]), credit=4):
            break
        await until(lambda: counts.closed)


async def test_a_peer_that_leaves_ends_both_sides() -> None:
    counts = Counts()
    async with afflux.serve("tcp://127.0.0.1:0", ServesPublisher(counts)) as server:
        async with afflux.connect(server.uri) as peer:
            probe = Probe(5)
            numbers(peer).subscribe(probe)
            await probe.have(5)
        assert await probe.end() == "on_error"
        assert isinstance(probe.error, afflux.ConnectionClosed)
        await until(lambda: counts.closed)
        assert probe.faults == []


# -- channels -------------------------------------------------------------------------------------------------


class Doubles:
    """A channel that answers each item twice, and counts what it takes."""

    taken = 0

    async def request(self, payload: Payload) -> Payload:
        return payload

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        async for item in items:
            self.taken += 1
            yield item.data
            yield item.data


async def test_a_channel_takes_from_a_publisher_and_is_one() -> None:
    counts = Counts()
    source = reactive.to_publisher(lambda: counts.numbers(20))
    async with (
        afflux.serve("tcp://127.0.0.1:0", Doubles(), credit=4) as server,
        afflux.connect(server.uri) as peer,
    ):
        probe = Probe(3)
        reactive.channel(peer, source).subscribe(probe)
        await probe.have(3)
        await peer.request(b"")
        assert counts.made <= 3 + 4, "as many as the peer has asked for"
        probe.request(100)
        assert await probe.end() == "on_complete"
        assert probe.data == [b"%d" % (i // 2) for i in range(40)]
        await until(lambda: counts.closed == 1)
        assert probe.faults == []


async def test_requests_before_a_channel_has_opened_are_not_lost() -> None:
    """It opens with the first item of its source."""
    go = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await go.wait()
        for i in range(5):
            yield b"%d" % i

    async with afflux.serve("tcp://127.0.0.1:0", Doubles()) as server, afflux.connect(server.uri) as peer:
        probe = Probe(1)
        reactive.channel(peer, reactive.to_publisher(slow)).subscribe(probe)
        for _ in range(10):
            await turns(2)
            probe.request(1)
        go.set()
        assert await probe.end() == "on_complete"
        assert len(probe.items) == 10
        assert probe.faults == []


async def test_a_channel_that_is_cancelled_cancels_its_source() -> None:
    counts = Counts()
    source = reactive.to_publisher(lambda: counts.numbers(1 << 40))
    async with afflux.serve("tcp://127.0.0.1:0", Doubles()) as server, afflux.connect(server.uri) as peer:
        probe = Probe(5)
        reactive.channel(peer, source).subscribe(probe)
        await probe.have(5)
        probe.cancel()
        await until(lambda: counts.closed)
        assert probe.faults == []


async def test_what_the_source_of_a_channel_raises_is_an_error_here() -> None:
    counts = Counts()
    source = reactive.to_publisher(lambda: counts.numbers(2, Failure("mine")))
    async with afflux.serve("tcp://127.0.0.1:0", Doubles()) as server, afflux.connect(server.uri) as peer:
        probe = Probe(50)
        reactive.channel(peer, source).subscribe(probe)
        assert await probe.end() == "on_error"
        assert (str(probe.error), probe.faults) == ("mine", [])


async def test_the_handler_of_a_channel_may_take_from_a_publisher() -> None:
    """Its items are a stream with a window, which a publisher pulls from."""

    class Maps:
        async def channel(self, items: Any) -> Any:
            stage: reactive.Map[Payload, bytes] = reactive.Map(lambda item: item.data * 2)
            reactive.to_publisher(items).subscribe(stage)
            return reactive.serve_publisher(stage)

    async with afflux.serve("tcp://127.0.0.1:0", Maps()) as server, afflux.connect(server.uri) as peer:
        async with peer.channel([b"a", b"b", b"c"]) as items:
            assert [item.data async for item in items] == [b"aa", b"bb", b"cc"]


async def test_large_items_wait_in_the_budget_of_the_connection() -> None:
    """Nothing is kept beside it: a subscriber that requests everything gets everything."""

    class Large:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            for _ in range(200):
                yield bytes(0x8000)

    limits = Limits.tiny()
    async with (
        afflux.serve("tcp://127.0.0.1:0", Large(), limits=limits) as server,
        afflux.connect(server.uri, limits=limits) as peer,
    ):
        probe = Probe(HUGE)
        reactive.stream(peer).subscribe(probe)
        assert await probe.end() == "on_complete"
        assert sum(len(item.data) for item in probe.items) == 200 * 0x8000
        assert probe.faults == []
