"""The in-process transport keeps asyncio's rules for transports. The verbs over it are tested with the driver."""

from __future__ import annotations

import asyncio

import pytest

import afflux
from afflux import Limits
from afflux.transports.mem import MemTransport, pair
from tests.aio.handlers import Demo


class Notes(asyncio.Protocol):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.data = b""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.told[-1] != "data":
            self.told.append("data")

    def eof_received(self) -> bool:
        self.told.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")
        self.lost.set_result(None)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


@pytest.fixture
async def ends() -> tuple[Notes, MemTransport, Notes, MemTransport]:
    one, other = Notes(), Notes()
    left, right = pair(one, other)
    return one, left, other, right


Ends = tuple[Notes, MemTransport, Notes, MemTransport]


async def test_bytes_arrive_in_a_later_turn(ends: Ends) -> None:
    one, left, other, _ = ends
    left.write(b"a")
    left.writelines([b"b", bytearray(b"c"), memoryview(b"d")])
    assert (other.data, left.get_write_buffer_size()) == (b"", 4)
    await asyncio.sleep(0)
    assert (other.data, left.get_write_buffer_size()) == (b"abcd", 0)
    assert one.told == ["made"]


async def test_close_delivers_what_was_written(ends: Ends) -> None:
    one, left, other, right = ends
    left.write(bytes(1_000_000))
    left.close()
    left.write(b"not any more")
    await one.lost
    await other.lost
    assert len(other.data) == 1_000_000
    assert other.told == ["made", "data", "eof", "lost"]
    assert one.told == ["made", "pause", "resume", "lost"]
    assert left.is_closing() and right.is_closing()


async def test_abort_does_not(ends: Ends) -> None:
    one, left, other, _ = ends
    left.write(bytes(1_000_000))
    left.abort()
    await one.lost
    await other.lost
    assert other.data == b""
    assert other.told == ["made", "lost"]


async def test_a_reader_that_pauses_stops_the_writer(ends: Ends) -> None:
    one, left, other, right = ends
    left.set_write_buffer_limits(high=100, low=10)
    right.pause_reading()
    assert not right.is_reading()
    left.write(bytes(100))
    assert one.told == ["made"]
    left.write(b"x")
    assert one.told == ["made", "pause"]
    await asyncio.sleep(0)
    assert left.get_write_buffer_size() == 101
    right.resume_reading()
    await asyncio.sleep(0)
    assert one.told == ["made", "pause", "resume"]
    assert len(other.data) == 101


async def test_a_half_close(ends: Ends) -> None:
    one, left, other, _ = ends
    assert left.can_write_eof()
    left.write(b"last")
    left.write_eof()
    left.write(b"not any more")
    await one.lost
    assert other.data == b"last"
    assert other.told == ["made", "data", "eof", "lost"]
    assert one.told == ["made", "eof", "lost"]


async def test_names_belong_to_one_listener() -> None:
    class Echo:
        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            return payload

    async with afflux.serve("mem://name", Echo()) as server:
        assert server.uri == "mem://name"
        with pytest.raises(afflux.BindFailed, match="the name is in use"):
            await afflux.serve("mem://name", Echo())
    with pytest.raises(afflux.ConnectFailed):
        await afflux.connect("mem://name")


async def test_a_full_server_takes_no_more() -> None:
    class Echo:
        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            return payload

    limits = afflux.Limits.tiny(connections=1)
    async with afflux.serve("mem://full", Echo(), limits=limits) as server, afflux.connect(server.uri):
        with pytest.raises(afflux.ConnectFailed, match=r"too-many-connections: connections=1$"):
            await afflux.connect(server.uri)


@pytest.mark.parametrize("half", [True, False], ids=["half", "whole"])
async def test_whoever_does_not_read_does_not_see_the_end(half: bool) -> None:
    """Reading is paused by the last bytes: the end comes when it goes on, as with a socket."""
    one, other = Notes(), Notes()
    left, right = pair(one, other)

    class Full(Notes):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            right.pause_reading()

    full = Full()
    right.set_protocol(full)
    full.told.append("made")
    left.write(b"last")
    (left.write_eof if half else left.close)()
    for _ in range(10):
        await asyncio.sleep(0)
    assert full.told == ["made", "data"]
    right.resume_reading()
    await full.lost
    assert full.told == ["made", "data", "eof", "lost"]


async def test_pieces_are_delivered_before_the_end_is_reported() -> None:
    """A read that is large for the receiver waits there, and reading is paused: the end comes behind it."""
    demo = Demo()
    async with afflux.serve("mem://pieces", demo, limits=Limits.server(loop_bytes=4096)) as server:
        async with afflux.connect(server.uri) as peer:
            for _ in range(50):
                await peer.fire(bytes(1000))
        async with asyncio.timeout(5):
            for _ in range(50):
                await demo.fired.get()
