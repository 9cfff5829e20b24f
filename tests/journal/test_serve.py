"""Journalled: what a client with a cursor sees. No sockets: the handler's generators are called as a driver does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from afflux.core.errors import ApplicationError, Invalid, Rejected, Unsupported
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.journal.database import SqliteBackend
from afflux.journal.errors import ItemTooLarge
from afflux.journal.retention import Retention
from afflux.journal.serve import Journalled
from afflux.journal.store import BLOCK_BYTES, Journal
from afflux.journal.wire import unpack
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    JOURNAL_FAILED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    READER_CONFLICT,
    UNKNOWN_SHARD,
    Acknowledge,
    Head,
    Read,
    Request,
    State,
    encode_entry,
    split_position,
    state_of,
    with_position,
)
from afflux.protocols.rsocket.metadata import compose, route_of
from afflux.router import Router

MI = 1 << 20


class Feeder:
    """An inner handler whose stream yields what the test puts into it."""

    def __init__(self) -> None:
        self.queues: list[asyncio.Queue[Any]] = []
        self.requests: list[Payload] = []
        self.pulled = 0
        self.ended = 0
        self._begun = asyncio.Event()

    async def stream(self, payload: Payload) -> AsyncIterator[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.queues.append(queue)
        self.requests.append(payload)
        self._begun.set()
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                self.pulled += 1
                yield item
        finally:
            self.ended += 1

    async def begun(self, times: int) -> None:
        """Wait until the stream was started so often."""
        while len(self.queues) < times:
            self._begun.clear()
            await self._begun.wait()

    def put(self, *items: Any) -> None:
        for item in items:
            self.queues[-1].put_nowait(item)


def request(cursor: Request, route: str = "ticks", data: bytes = b"") -> Payload:
    return Payload(data, compose(route=route) + encode_entry(cursor))


def served(
    handler: Any, directory: Path, *, limits: Limits | None = None, **options: Any
) -> Journalled:  # the clock stands still at 7 unless a test has one
    options.setdefault("clock", lambda: 7)
    return Journalled(handler, directory, limits=limits or Limits.server(), linger_s=0, **options)


class Reading:
    """The answer to a READ, item by item, with offsets, times and the items' own metadata."""

    def __init__(self, handler: Journalled, cursor: Read, **more: Any) -> None:
        self.lists = aiter(handler.stream(request(cursor, **more)))
        self.epoch = 0
        self.waiting: list[tuple[int, int, Payload]] = []
        self.offset = self.time_us = -1
        self.blocks: list[int] = []
        "The items of each block that was sent whole."

    async def take(self, count: int) -> list[tuple[int, int, Payload]]:
        while len(self.waiting) < count:
            items = await anext(self.lists)
            assert isinstance(items, list)
            assert isinstance(items[0], Payload)
            assert split_position(items[0].metadata)[0] is not None
            for item in items:
                payload = item if isinstance(item, Payload) else Payload(item)
                position, own = split_position(payload.metadata)
                self.offset += 1
                if position is not None:
                    self.epoch, self.offset, self.time_us = position.epoch, position.offset, position.time_us
                if position is not None and position.block:
                    block = unpack(payload.data, position.offset, position.time_us)
                    self.blocks.append(len(block))
                    self.waiting += [(block.first + at, block.time_us, one) for at, one in enumerate(block.payloads())]
                    self.offset = block.end - 1
                    continue
                self.waiting.append((self.offset, self.time_us, Payload(payload.data, own)))
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    async def data(self, count: int) -> list[bytes]:
        return [payload.data for _, _, payload in await self.take(count)]

    async def ends(self) -> bool:
        assert self.waiting == []
        return await anext(self.lists, None) is None

    async def fails(self) -> Exception:
        with pytest.raises(Exception) as caught:
            await self.take(1)
        return caught.value

    async def close(self) -> None:
        await self.lists.aclose()  # type: ignore[attr-defined] # they are generators


async def head(handler: Journalled, **more: Any) -> State:
    return await ask(handler, Head(**more))


async def ask(handler: Journalled, cursor: Head | Acknowledge) -> State:
    [answer] = [item async for item in handler.stream(request(cursor))]
    assert isinstance(answer, Payload)
    assert answer.data == b""
    return state_of(answer.metadata)


async def acknowledge(handler: Journalled, offset: int, *, name: str = "reader", owner: int = 1) -> State:
    epoch = (await head(handler)).epoch
    return await ask(handler, Acknowledge(epoch=epoch, offset=offset, owner=owner, name=name))


async def refused(handler: Journalled, offset: int, **more: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await acknowledge(handler, offset, **more)
    return caught.value


async def test_items_are_numbered_and_kept(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        reading = Reading(handler, Read())
        waiting = asyncio.create_task(reading.take(3))
        await feeder.begun(1)
        feeder.put(b"one", Payload(b"two", b"meta"), Payload(b"three", b""))
        items = [Payload(b"one"), Payload(b"two", b"meta"), Payload(b"three", b"")]
        assert await waiting == [(0, 7, items[0]), (1, 7, items[1]), (2, 7, items[2])]
        feeder.put([b"four", b"five"])
        assert await reading.take(2) == [(3, 7, Payload(b"four")), (4, 7, Payload(b"five"))]
        await reading.close()

        again = Reading(handler, Read(first=1, limit=3, epoch=reading.epoch))
        assert [offset for offset, _, _ in await again.take(3)] == [1, 2, 3]
        assert await again.ends()
    assert feeder.ended == len(feeder.requests) == 1
    assert route_of(feeder.requests[0].metadata) == "ticks"
    assert feeder.requests[0].metadata == compose(route="ticks")
    [path] = tmp_path.glob("*.journal")
    assert path.name.startswith("ticks-")


@pytest.mark.parametrize("span", [(0, 0), (0, 1), (1, 3), (2, 5), (5, 0)])
async def test_blocks_have_the_same_items(tmp_path: Path, span: tuple[int, int]) -> None:
    first, limit = span
    feeder = Feeder()
    async with served(feeder, tmp_path, limits=Limits.server()) as handler:
        waiting = asyncio.create_task(Reading(handler, Read()).take(7))
        await feeder.begun(1)
        large = b"x" * (3 * MI // 2)
        feeder.put([b"one", Payload(b"two", b"meta"), Payload(b"three", b"")], [b"four", b"five"], large, b"six", None)
        await waiting
        count = (limit or 7) if limit else 7 - first
        items = await Reading(handler, Read(first=first, limit=limit)).take(count)
        reading = Reading(handler, Read(first=first, limit=limit, blocks=True))
        assert await reading.take(count) == items
        assert await reading.ends()
        assert sum(reading.blocks) == count - any(own.data == large for _, _, own in items)


async def test_each_list_starts_with_a_position_and_so_does_each_new_time(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    async with served(Feeder(), tmp_path) as handler:
        await head(handler)
    [path] = tmp_path.glob("*.journal")
    with sqlite3.connect(path) as database:
        key = database.execute("SELECT key FROM state").fetchone()[0]
    database.close()
    foreign = with_position(_position(9), b"theirs")
    with Journal(path, key=key) as journal:
        for time_us, items in ((1, [b"a", b"b"]), (1, [b"c"]), (2, [Payload(b"d"), Payload(b"e", foreign)])):
            journal.append(items, time_us)
            journal.commit()
    async with served(Feeder(), tmp_path) as handler:
        lists: Any = aiter(handler.stream(request(Read(limit=5))))
        items = await anext(lists)
        assert isinstance(items, list)
        found = [split_position(item.metadata) if isinstance(item, Payload) else (None, None) for item in items]
        positions = [None if position is None else (position.offset, position.time_us) for position, _ in found]
        assert positions == [(0, 1), None, None, (3, 2), (4, 2)]
        assert found[4][1] == foreign  # an item that brought a cursor of its own keeps it
        await lists.aclose()


def _position(offset: int) -> Any:
    from afflux.protocols.rsocket.cursor import Position

    return Position(epoch=1, offset=offset, time_us=0)


async def test_head_answers_at_once_or_when_something_is_new(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        state = await head(handler)
        assert (state.first, state.head, state.time_us, state.sealed) == (0, 0, 0, False)
        polling = asyncio.create_task(head(handler, epoch=state.epoch, wait_ms=60_000))
        feeder.put(b"one")
        state = await polling
        assert (state.first, state.head, state.time_us) == (0, 1, 7)
        assert (await head(handler, after=1, wait_ms=1)).head == 1
        assert (await head(handler, after=0, wait_ms=60_000)).head == 1
        polling = asyncio.create_task(head(handler, after=1, wait_ms=60_000))
        feeder.put(None)
        state = await polling
        assert (state.head, state.sealed) == (1, True)


async def test_a_stream_that_ended_is_sealed_for_good(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        await head(handler)
        feeder.put(b"a", b"b", None)
        for cursor in (Read(), Read(limit=9), Read(first=0)):
            reading = Reading(handler, cursor)
            assert await reading.data(2) == [b"a", b"b"]
            assert await reading.ends()
        assert await Reading(handler, Read(first=2)).ends()
    async with served(feeder, tmp_path) as handler:
        reading = Reading(handler, Read(first=1))
        assert await reading.data(1) == [b"b"]
        assert await reading.ends()
        error = await Reading(handler, Read(first=3)).fails()
        assert isinstance(error, ApplicationError)
        assert error.code == OFFSET_AHEAD
    assert len(feeder.requests) == 1


@pytest.mark.parametrize("replays", [False, True])
async def test_after_a_restart_the_stream_goes_on(tmp_path: Path, replays: bool) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path, replays=replays) as handler:
        before = await head(handler)
        feeder.put(b"a", [b"b", b"c"])
        assert await Reading(handler, Read(limit=3)).data(3) == [b"a", b"b", b"c"]
    async with served(feeder, tmp_path, replays=replays) as handler:
        assert (await head(handler)).epoch == before.epoch
        await feeder.begun(2)
        feeder.put(b"a", [b"b", b"c", b"d"], b"e")
        expected = [b"c", b"d", b"e"] if replays else [b"c", b"a", b"b"]
        reading = Reading(handler, Read(first=2, epoch=before.epoch))
        assert await reading.data(3) == expected
        await reading.close()


@pytest.mark.parametrize("where", ["handler", "stream", "router", "router-asked"])
async def test_a_handler_declares_that_it_replays(tmp_path: Path, where: str) -> None:
    async def numbers(payload: Payload) -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number
        await asyncio.get_running_loop().create_future()

    handler: Any
    options: dict[str, Any] = {}
    if where.startswith("router"):
        handler = Router()
        handler.stream("ticks")(numbers)
        options = {"replays": lambda payload: route_of(payload.metadata) == "ticks"} if "asked" in where else {}
    else:
        handler = type("Handler", (), {})()
        handler.stream = numbers
    if where in ("stream", "router"):
        numbers.replays = True  # type: ignore[attr-defined]
    elif where == "handler":
        handler.replays = True
    for _ in range(2):
        async with served(handler, tmp_path, **options) as journalled:
            assert await Reading(journalled, Read(limit=3)).data(3) == [b"0", b"1", b"2"]
            assert (await head(journalled)).head == 3


async def test_what_is_acknowledged_is_dropped(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        await head(handler)
        for number in range(4):
            feeder.put(b"%d" % number)
            state = await head(handler, after=number, wait_ms=60_000)
        assert state.head == 4
        assert (await acknowledge(handler, 2)).first == 2
        assert (await acknowledge(handler, 3)).first == 3
        reading = Reading(handler, Read(first=3))
        assert await reading.data(1) == [b"3"]
        await reading.close()
        error = await Reading(handler, Read(first=1)).fails()
        assert isinstance(error, ApplicationError)
        assert error.code == OFFSET_GONE
        assert "offset 1" in error.message
        assert "3" in error.message
        error = await refused(handler, 9)
        assert error.code == OFFSET_AHEAD
        assert "offset 9 is above the head 4" in error.message
        assert (await head(handler)).first == 3


async def test_reading_drops_nothing(tmp_path: Path) -> None:
    """The unused bytes of READ and HEAD once acknowledged: whatever they are, nothing is dropped."""
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        epoch = (await head(handler)).epoch
        for number in range(4):
            feeder.put(b"%d" % number)
            await head(handler, after=number, wait_ms=60_000)
        for cursor in (Read(epoch=epoch, first=3, limit=1), Head(epoch=epoch, after=3)):
            entry = encode_entry(cursor)[:-8] + (3).to_bytes(8, "big")
            assert [item async for item in handler.stream(Payload(b"", compose(route="ticks") + entry))]
        for _ in range(2):
            assert await Reading(handler, Read(limit=4)).data(4) == [b"0", b"1", b"2", b"3"]
        assert (await head(handler)).first == 0


async def test_one_reader_acknowledges_and_the_journal_remembers_it(tmp_path: Path) -> None:
    feeder = Feeder()
    for restart in (False, True):
        async with served(feeder, tmp_path) as handler:
            if not restart:
                await head(handler)
                for number in range(3):
                    feeder.put(b"%d" % number)
                    await head(handler, after=number, wait_ms=60_000)
                assert (await acknowledge(handler, 0, name="billing", owner=7)).first == 0
            error = await refused(handler, 3, name="audit", owner=7)
            assert error.code == READER_CONFLICT
            assert error.rule == "reader-conflict"
            assert "'audit' cannot acknowledge this stream, because its reader is 'billing'" in error.message
            error = await refused(handler, 3, name="billing", owner=8)
            assert error.code == READER_CONFLICT
            assert "because another reader 'billing' does, with a position (checkpoint) of its own" in error.message
            assert (await head(handler)).first == 0
    async with served(feeder, tmp_path) as handler:
        assert (await acknowledge(handler, 2, name="billing", owner=7)).first == 2


async def test_a_reader_waits_for_an_offset_that_is_not_there_yet(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        state = await head(handler)
        reading = Reading(handler, Read(first=2, limit=1))
        waiting = asyncio.create_task(reading.data(1))
        feeder.put(b"0")
        await head(handler, wait_ms=60_000)
        assert not waiting.done()
        feeder.put(b"1", b"2")
        assert await waiting == [b"2"]
        error = await Reading(handler, Read(first=5, epoch=state.epoch)).fails()
        assert isinstance(error, ApplicationError)
        assert error.code == OFFSET_AHEAD


async def test_an_epoch_or_shard_that_is_not_there(tmp_path: Path) -> None:
    async with served(Feeder(), tmp_path) as handler:
        state = await head(handler)
        for cursor in (Read(epoch=state.epoch ^ 1, first=5), Head(epoch=state.epoch ^ 1, after=5)):
            with pytest.raises(ApplicationError, match=rf"at offset 5; the epoch is {state.epoch}, with") as caught:
                await anext(aiter(handler.stream(request(cursor))))
            assert caught.value.code == EPOCH_CHANGED
        with pytest.raises(ApplicationError) as caught:
            await anext(aiter(handler.stream(request(Read(shard=1)))))
        assert caught.value.code == UNKNOWN_SHARD


async def test_a_malformed_cursor_is_invalid(tmp_path: Path) -> None:
    async with served(Feeder(), tmp_path) as handler:
        with pytest.raises(Invalid) as caught:
            handler.stream(Payload(b"", encode_entry(Read()) * 2))
        assert (caught.value.code, caught.value.rule) == (0x204, "C-8")


async def test_the_journal_bounds_what_is_pulled(tmp_path: Path) -> None:
    """SP-13: no room, no pull; acknowledging makes room, and every item is there once."""
    feeder = Feeder()
    size = 100_000
    async with served(feeder, tmp_path, limits=Limits.server(journal_bytes=MI)) as handler:
        epoch = (await head(handler)).epoch
        feeder.put(*(b"%d" % number + b"." * size for number in range(40)))
        state = await head(handler, epoch=epoch)
        while state.head < 10:
            state = await head(handler, epoch=epoch, after=state.head, wait_ms=60_000)
        assert feeder.pulled <= 11
        seen: list[bytes] = []
        while len(seen) < 40:
            await acknowledge(handler, len(seen))
            reading = Reading(handler, Read(epoch=epoch, first=len(seen)))
            seen += [data.split(b".")[0] for data in await reading.data(1)]
            assert feeder.pulled <= len(seen) + 11
            await reading.close()
        assert seen == [b"%d" % number for number in range(40)]


async def test_a_list_larger_than_the_room_goes_in_parts(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path, limits=Limits.server(journal_bytes=MI)) as handler:
        await head(handler)
        feeder.put([b"%d" % number + b"." * 100_000 for number in range(25)])
        for number in range(25):
            await acknowledge(handler, number)
            reading = Reading(handler, Read(first=number))
            assert (await reading.data(1))[0].startswith(b"%d." % number)
            await reading.close()


async def test_an_item_that_can_never_fit_ends_the_stream(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path, limits=Limits.server(journal_bytes=MI)) as handler:
        await head(handler)
        feeder.put(b"small", bytes(2 * MI))
        reading = Reading(handler, Read())
        assert await reading.data(1) == [b"small"]
        await acknowledge(handler, 1)
        error = await reading.fails()
        assert isinstance(error, Rejected)
        assert error.rule == "journal-full"


async def test_a_failed_stream_gives_its_items_first_and_is_started_again(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        await head(handler)
        feeder.put(b"a", ApplicationError(0x301, "boom"))
        reading = Reading(handler, Read())
        assert await reading.data(1) == [b"a"]
        error = await reading.fails()
        assert isinstance(error, ApplicationError)
        assert (error.code, error.message) == (0x301, "boom")
        assert (await head(handler)).head == 1
        await feeder.begun(2)
        feeder.put(b"b", ValueError("a bug"))
        reading = Reading(handler, Read())
        assert await reading.data(2) == [b"a", b"b"]
        assert isinstance(await reading.fails(), ValueError)
        with pytest.raises(ValueError, match="again"):
            polling = asyncio.create_task(head(handler, after=2, wait_ms=60_000))
            await feeder.begun(3)
            feeder.put(ValueError("again"))
            await polling


async def test_a_stream_that_refuses_at_once_leaves_no_file(tmp_path: Path) -> None:
    async with served(Router(), tmp_path / "journals") as handler:
        for cursor in (Read(), Head()):
            with pytest.raises(Unsupported):
                await anext(aiter(handler.stream(request(cursor))))
    router = Router()
    router.stream("other")(Feeder().stream)
    async with served(router, tmp_path / "journals") as handler:
        for cursor in (Read(), Head()):
            with pytest.raises(Rejected, match='no route "ticks"'):
                await anext(aiter(handler.stream(request(cursor))))
    assert not (tmp_path / "journals").exists()


async def test_a_stream_that_fails_before_its_first_item_leaves_no_file(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        for attempt in (1, 2):
            failing = asyncio.create_task(Reading(handler, Read()).fails())
            await feeder.begun(attempt)
            feeder.put(Rejected("no"))
            assert isinstance(await failing, Rejected)
            assert list(tmp_path.iterdir()) == []


async def test_streams_have_journals_of_their_own(tmp_path: Path) -> None:
    async def echo(payload: Payload) -> AsyncIterator[Any]:
        yield payload.data

    handler = type("Handler", (), {"stream": staticmethod(echo)})()
    async with served(handler, tmp_path, journals=2) as journalled:
        for data in (b"x", b"y", b"x"):
            reading = Reading(journalled, Read(limit=1), data=data)
            assert await reading.data(1) == [data]
        with pytest.raises(Rejected) as caught:
            await Reading(journalled, Read(), route="more").take(1)
        assert caught.value.rule == "too-many-journals"
        traced = compose([("message/x.rsocket.tracing-zipkin.v0", b"\x20")], route="ticks")
        lists = journalled.stream(Payload(b"x", traced + encode_entry(Read(limit=1))))
        assert len([items async for items in lists]) == 1
    assert len(list(tmp_path.glob("*.journal"))) == 2


async def test_two_requests_share_one_stream(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        readings = [Reading(handler, Read()) for _ in range(5)]
        waiting = [asyncio.create_task(reading.data(2)) for reading in readings]
        await feeder.begun(1)
        feeder.put(b"a", b"b")
        assert await asyncio.gather(*waiting) == [[b"a", b"b"]] * 5
        assert len(feeder.requests) == 1
        for reading in readings:
            await reading.close()


async def test_a_canceled_request_harms_no_other(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        given_up = asyncio.create_task(Reading(handler, Read()).data(1))
        await asyncio.sleep(0)
        other = asyncio.create_task(Reading(handler, Read(limit=1)).data(1))
        await asyncio.sleep(0)
        given_up.cancel()
        await feeder.begun(1)
        feeder.put(b"a")
        assert await other == [b"a"]


async def test_other_verbs_and_streams_without_a_cursor_pass(tmp_path: Path) -> None:
    class Inner(Feeder):
        async def request(self, payload: Payload) -> Payload:
            return payload

    inner = Inner()
    handler = served(inner, tmp_path / "journals")
    assert await handler.request(Payload(b"x")) == Payload(b"x")
    assert hasattr(handler, "request")
    assert not hasattr(handler, "fire")
    assert not hasattr(handler, "anything")
    for metadata in (None, b"raw", compose(route="ticks")):
        stream = aiter(handler.stream(Payload(b"", metadata)))
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        inner.put(b"a", None)
        assert await first == b"a"
        assert await anext(stream, None) is None
        assert inner.requests[-1].metadata == metadata
    await handler.close()
    assert not (tmp_path / "journals").exists()


async def test_a_handler_without_streams(tmp_path: Path) -> None:
    async with served(object(), tmp_path) as handler:
        with pytest.raises(Unsupported):
            handler.stream(Payload(b""))


async def test_a_journal_that_somebody_else_holds(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        await head(handler)
        async with served(feeder, tmp_path) as second:
            error = await Reading(second, Read()).fails()
            assert isinstance(error, Rejected)
            assert (error.code, error.rule) == (0x202, "journal-locked")
            assert "ticks-" in error.message
            assert str(tmp_path) not in error.message
        feeder.queues[0].put_nowait(b"a")
        assert (await head(handler, wait_ms=60_000)).head == 1
    assert feeder.ended == len(feeder.requests)


async def test_a_damaged_journal(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        before = await head(handler)
        feeder.put(b"a")
        await head(handler, wait_ms=60_000)
    [path] = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes()[:-1])
    async with served(feeder, tmp_path) as handler:
        for _ in range(2):
            error = await Reading(handler, Read()).fails()
            assert isinstance(error, ApplicationError)
            assert (error.code, error.rule) == (JOURNAL_FAILED, "journal-damaged")
            assert "restore a copy" in error.message
            assert str(tmp_path) not in error.message
    async with served(feeder, tmp_path, on_damage="new-epoch") as handler:
        error = await Reading(handler, Read(epoch=before.epoch, first=1)).fails()
        assert isinstance(error, ApplicationError)
        assert error.code == EPOCH_CHANGED
    assert feeder.ended == len(feeder.requests)


async def journal_of(handler: Journalled) -> Journal:
    [task] = handler._feeds.values()
    feed = await task
    if feed is None:
        raise RuntimeError("it is being dropped")
    return feed.journal


async def limit_pages(handler: Journalled, change: Callable[[int], int]) -> None:
    """Let the database have so many pages: stands for the end of the disk. test_full_disk.py has a real one."""
    backend = (await journal_of(handler))._backend
    assert isinstance(backend, SqliteBackend)
    writer = backend._writer
    pages = change(writer.execute("PRAGMA page_count").fetchone()[0])
    writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()


async def full(handler: Journalled) -> State:
    """The state, once it says that the producer waits."""
    while not (state := await head(handler)).full:
        await asyncio.sleep(0)
    return state


async def test_on_a_full_disk_the_producer_waits_and_readers_read(tmp_path: Path, caplog: Any) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        assert not (await head(handler)).full
        feeder.put(b"a")
        await head(handler, wait_ms=60_000)
        await limit_pages(handler, lambda pages: pages)
        reading = Reading(handler, Read())
        assert await reading.data(1) == [b"a"]
        with caplog.at_level("INFO", "afflux.journal"):
            feeder.put(*(b"%d" % number + b"." * 100_000 for number in range(40)))
            assert (await full(handler)).head == 1
            assert feeder.pulled < 30, "it waits"
            assert await Reading(handler, Read(limit=1)).data(1) == [b"a"]
            waiting = asyncio.create_task(reading.data(40))
            await limit_pages(handler, lambda pages: pages + 10_000)
            await acknowledge(handler, 1)  # makes room, and lets the commit be tried at once
            assert [data.split(b".")[0] for data in await waiting] == [b"%d" % number for number in range(40)]
        assert not (await head(handler)).full
        assert len(feeder.requests) == 1
    [stalled, continued] = [record.getMessage() for record in caplog.records]
    assert "ticks-" in stalled and "the disk is full; make room and try again; its stream waits" in stalled
    assert continued.endswith("its stream continues")


async def test_a_full_journal_says_so(tmp_path: Path, caplog: Any) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path, limits=Limits.server(journal_bytes=MI)) as handler:
        await head(handler)
        feeder.put(*(bytes(100_000) for _ in range(20)))
        state = await full(handler)
        assert 0 < state.head <= 10
        assert f"journal_bytes={MI} is reached; trim items to make room, or raise it; its stream waits" in caplog.text
        await acknowledge(handler, state.head)
        assert not (await head(handler, after=state.head, wait_ms=60_000)).full
    assert caplog.text.count("its stream waits") == 1


async def test_a_retention_by_size_keeps_the_producer_going(tmp_path: Path) -> None:
    feeder = Feeder()
    keep = Retention(size=MI // 2)
    async with served(feeder, tmp_path, limits=Limits.server(journal_bytes=MI), keep=keep) as handler:
        await head(handler)
        feeder.put(*(b"%d" % number + b"." * 100_000 for number in range(100)), None)
        state = await head(handler)
        while not state.sealed:
            state = await head(handler, after=state.head, wait_ms=60_000)
        assert state.head == 100
        assert 85 < state.first < 100
        left = await Reading(handler, Read(first=state.first)).data(100 - state.first)
        assert [data.split(b".")[0] for data in left] == [b"%d" % number for number in range(state.first, 100)]


async def test_a_retention_by_time_trims_a_stream_that_is_idle(tmp_path: Path) -> None:
    """The wall clock stands still at first, and then steps by a year: neither hinders, neither trims too early."""
    feeder = Feeder()
    now = [7]
    keep = Retention(seconds=0.2)
    async with served(feeder, tmp_path, keep=keep, clock=lambda: now[0]) as handler:
        await head(handler)
        for number in range(3):
            feeder.put(b"%d" % number)
            state = await head(handler, after=number, wait_ms=60_000)
        now[0] += 365 * 86_400 * 1_000_000
        feeder.put(b"3")
        while state.first < 4:
            state = await head(handler)
            await asyncio.sleep(0)
        assert state.head == 4


class Stubborn:
    """A stream that handles the refusal of an item."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.refusals: list[Exception] = []

    async def stream(self, payload: Payload) -> AsyncIterator[Any]:
        for number in range(6):
            try:
                yield [b"%d" % number, bytes(self.size), b"lost"] if number == 2 else b"%d" % number
            except ItemTooLarge as error:
                self.refusals.append(error)


@pytest.mark.parametrize("more", [0, 1])
async def test_an_item_that_no_reader_can_receive_is_refused(tmp_path: Path, more: int, caplog: Any) -> None:
    limits = Limits.server()
    stubborn = Stubborn(limits.payload_bytes - 64 + more)
    async with served(stubborn, tmp_path, limits=limits) as handler:
        reading = Reading(handler, Read())
        if not more:
            assert [len(data) for data in await reading.data(8)] == [1, 1, 1, stubborn.size, 4, 1, 1, 1]
            return
        assert await reading.data(6) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert await reading.ends()
        assert (await journal_of(handler)).refused == 1
    [error] = stubborn.refusals
    text = f"an item of {stubborn.size} bytes was refused at offset 3: with payload_bytes={4 * MI}, an item has"
    assert text in str(error) and text in caplog.text


@pytest.mark.parametrize("replays", [False, True])
async def test_a_refusal_that_is_not_handled_ends_the_stream_after_its_items(tmp_path: Path, replays: bool) -> None:
    feeder = Feeder()
    stubborn = Stubborn(5 * MI)
    handler: Any = stubborn if replays else feeder
    async with served(handler, tmp_path, replays=replays) as journalled:
        if not replays:
            await head(journalled)
            feeder.put(b"0", b"1", b"2", bytes(5 * MI))
        for _ in range(2):
            reading = Reading(journalled, Read())
            assert await reading.data(3) == [b"0", b"1", b"2"]
            if not replays and len(feeder.queues) == 2:
                feeder.put(b"3")
                assert await reading.data(1) == [b"3"]
                return
            error = await reading.fails()
            assert isinstance(error, Rejected)
            assert error.rule == "item-too-large"
            assert "send it in parts, or raise payload_bytes" in error.message
            if not replays:
                await head(journalled)
                await feeder.begun(2)


async def test_a_failed_disk_is_tried_again_with_a_journal_opened_anew(tmp_path: Path) -> None:
    feeder = Feeder()
    async with served(feeder, tmp_path) as handler:
        epoch = (await head(handler)).epoch
        feeder.put(b"a")
        await head(handler, wait_ms=60_000)
        journal = await journal_of(handler)
        journal._failure = "its disk failed (for the test); open it again"
        reading = Reading(handler, Read(first=1))
        feeder.put(b"b")
        error = await reading.fails()
        assert isinstance(error, ApplicationError)
        assert error.code == JOURNAL_FAILED
        assert (await head(handler)).epoch == epoch
        assert await journal_of(handler) is not journal
        await feeder.begun(2)
        feeder.put(b"b")
        assert await Reading(handler, Read(first=1, limit=1)).data(1) == [b"b"]


async def test_closing_wakes_waiting_readers(tmp_path: Path) -> None:
    feeder = Feeder()
    handler = served(feeder, tmp_path)
    await head(handler)
    feeder.put(b"a")
    reading = Reading(handler, Read())
    assert await reading.data(1) == [b"a"]
    waiting = [asyncio.create_task(reading.fails()), asyncio.create_task(_polls(handler))]
    feeder.put(b"b", b"c")
    await handler.close()
    await handler.close()
    errors = await asyncio.gather(*waiting)
    assert all(isinstance(error, Rejected) and "closed" in error.message for error in errors)
    assert feeder.ended == 1
    with pytest.raises(Rejected, match="closed"):
        await head(handler)


async def _polls(handler: Journalled) -> Exception:
    with pytest.raises(Rejected) as caught:
        await head(handler, after=100, wait_ms=60_000)
    return caught.value


async def test_the_inner_stream_may_be_a_coroutine_that_gives_the_stream(tmp_path: Path) -> None:
    async def numbers() -> AsyncIterator[bytes]:
        yield b"1"

    class Inner:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            return numbers()

    async with served(Inner(), tmp_path) as handler:
        reading = Reading(handler, Read())
        assert await reading.data(1) == [b"1"]
        assert await reading.ends()


async def test_lone_items_wait_for_others(tmp_path: Path) -> None:
    """With a long linger only a full block is committed at once."""
    feeder = Feeder()
    handler = Journalled(feeder, tmp_path, linger_s=3600, clock=lambda: 1)
    async with handler:
        await head(handler)
        feeder.put(b"small", bytes(BLOCK_BYTES))
        assert (await head(handler, wait_ms=60_000)).head == 2
        feeder.put(b"small")
    [path] = tmp_path.glob("*.journal")
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT head FROM state").fetchone()[0] >= 2
    database.close()
