"""The transport check: every transport carries bytes whole and in order, holds back, ends and breaks as it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path

import pytest

from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, End, Kind, Place, framed, numbered

pytestmark = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

Pair = tuple[End, End]


@pytest.fixture
async def ends(kind: Kind, tmp_path: Path, certificates: Certificates) -> AsyncIterator[Pair]:
    async with Place(kind, tmp_path, certificates).pair() as pair:
        yield pair


async def test_bytes_arrive_whole_and_in_order_both_ways(ends: Pair) -> None:
    for one, other in (ends, ends[::-1]):
        one.transport.write(b"")
        one.send(b"a", b"", b"bc" * 1000)
        one.transport.writelines([framed(b"d"), bytearray(framed(b"e")), memoryview(framed(b"f"))])
        await other.until(lambda: len(other.frames) == 6)  # noqa: B023 -- waited for in this turn
        assert other.frames == [b"a", b"", b"bc" * 1000, b"d", b"e", b"f"]


async def test_pieces_do_not_show(ends: Pair) -> None:
    client, server = ends
    frames = numbered(20, 50)
    data = b"".join(map(framed, frames))
    for size in cycle((1, 2, 3, 50, 7)):
        client.transport.write(data[:size])
        await asyncio.sleep(0)
        data = data[size:]
        if not data:
            break
    await server.until(lambda: len(server.frames) == 20)
    assert server.frames == frames


async def test_no_writer_is_paused_without_need(ends: Pair) -> None:
    client, server = ends
    for i in range(100):
        client.send(b"ping")
        await server.until(lambda: len(server.frames) > i)  # noqa: B023
        server.send(b"pong")
        await client.until(lambda: len(client.frames) > i)  # noqa: B023
        assert not (client.paused or server.paused)
        assert client.transport.get_write_buffer_size() == server.transport.get_write_buffer_size() == 0


async def test_much_goes_both_ways_at_the_same_time(ends: Pair) -> None:
    frames = numbered(100)
    await asyncio.gather(*(end.send_slowly(frames) for end in ends))
    for end in ends:
        await end.until(lambda: len(end.frames) == 100)  # noqa: B023
        assert end.frames == frames


@pytest.mark.parametrize("reader", [0, 1])
async def test_writing_stops_while_the_peer_does_not_read(ends: Pair, reader: int) -> None:
    quiet, writer = ends[reader], ends[1 - reader]
    quiet.transport.pause_reading()
    assert not quiet.transport.is_reading()
    sent = iter(numbered(1000))
    count = 0
    while not writer.paused:
        writer.send(next(sent))  # far less than all of them fit into any buffer
        count += 1
        await asyncio.sleep(0)
    assert writer.transport.get_write_buffer_size() > 0
    assert quiet.frames == []
    quiet.transport.resume_reading()
    assert quiet.transport.is_reading()
    await writer.until(lambda: not writer.paused)
    await quiet.until(lambda: len(quiet.frames) == count)
    assert quiet.frames == numbered(count)


async def test_pausing_and_resuming_loses_nothing(ends: Pair) -> None:
    client, server = ends
    frames = numbered(40)
    sending = asyncio.create_task(client.send_slowly(frames))
    while len(server.frames) < 40:
        server.transport.pause_reading()
        server.transport.pause_reading()
        await asyncio.sleep(0)
        server.transport.resume_reading()
        server.transport.resume_reading()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await sending
    assert server.frames == frames


@pytest.mark.parametrize("closer", [0, 1])
async def test_a_close_is_seen_once_by_each_side_behind_what_was_written(ends: Pair, closer: int) -> None:
    one, other = ends[closer], ends[1 - closer]
    frames = numbered(100)
    one.send(*frames)
    one.transport.close()
    one.transport.close()
    assert one.transport.is_closing()
    for end in ends:
        await end.until(lambda: "lost" in end.told)  # noqa: B023
    assert other.frames == frames
    assert other.told == ["made", "eof", "lost"]
    assert [what for what in one.told if what != "eof"] == ["made", "lost"]
    assert one.error is None and other.error is None


@pytest.mark.parametrize("closer", [0, 1])
async def test_a_reader_that_pauses_receives_all_before_the_end(ends: Pair, closer: int) -> None:
    """Input and the end may be read from the socket before the turn in which the reader continues."""
    one, other = ends[closer], ends[1 - closer]
    other.breathes = True
    frames = numbered(100)
    one.send(*frames)
    one.transport.close()
    await other.until(lambda: "lost" in other.told)
    assert other.frames == frames
    assert other.told == ["made", "eof", "lost"]
    assert other.error is None


@pytest.mark.parametrize("closer", [0, 1])
async def test_last_words_arrive_although_the_other_side_never_stops_talking(ends: Pair, closer: int) -> None:
    one, other = ends[closer], ends[1 - closer]
    talking = asyncio.create_task(other.send_slowly(numbered(500)))
    await one.until(lambda: len(one.frames) > 3)
    one.send(b"last words")
    one.transport.write_eof()
    await other.until(lambda: "eof" in other.told)
    assert other.frames == [b"last words"]
    talking.cancel()
    for end in ends:
        await end.until(lambda: "lost" in end.told)  # noqa: B023
    assert other.told == ["made", "eof", "lost"]


@pytest.mark.parametrize("ender", [0, 1])
async def test_half_a_connection(kind: Kind, ends: Pair, ender: int) -> None:
    if not kind.one_half:
        pytest.skip(f"{kind.name} ends both halves at once")
    one, other = ends[ender], ends[1 - ender]
    other.stays = True
    assert one.transport.can_write_eof()
    one.send(b"question")
    one.transport.write_eof()
    await other.until(lambda: "eof" in other.told)
    assert (other.frames, other.told) == ([b"question"], ["made", "eof"])
    answer = numbered(50)
    await other.send_slowly(answer)
    await one.until(lambda: len(one.frames) == 50)
    assert one.frames == answer
    other.transport.close()
    for end in ends:
        await end.until(lambda: "lost" in end.told)  # noqa: B023
    assert one.told == ["made", "eof", "lost"]
    assert other.told == ["made", "eof", "lost"]


@pytest.mark.parametrize("ender", [0, 1])
async def test_an_end_waits_for_a_reader(ends: Pair, ender: int) -> None:
    one, other = ends[ender], ends[1 - ender]
    other.transport.pause_reading()
    one.send(b"words")
    one.transport.write_eof()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (other.told, other.frames) == (["made"], [])
    other.transport.resume_reading()
    await other.until(lambda: "eof" in other.told)
    assert other.frames == [b"words"]


@pytest.mark.parametrize("breaker", [0, 1])
async def test_an_abort_is_seen_once_by_each_side(kind: Kind, ends: Pair, breaker: int) -> None:
    one, other = ends[breaker], ends[1 - breaker]
    frames = numbered(1000)
    one.send(*frames)
    one.transport.abort()
    assert one.transport.is_closing()
    for end in ends:
        await end.until(lambda: "lost" in end.told)  # noqa: B023
    assert one.told == ["made", "lost"]
    assert [what for what in other.told if what != "eof"] == ["made", "lost"]
    assert len(other.frames) < 1000
    assert other.frames == frames[: len(other.frames)]
    if kind.name == "tls":
        assert "eof" not in other.told  # an end that nobody announced is no end in order
