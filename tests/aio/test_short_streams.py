"""Handlers of streams that end in their first step share a task; those that suspend behave as in one of their own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from tests.aio.handlers import turns

Stream = Callable[[Payload], Any]

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Serves:
    """Has one handler, for streams."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream


async def items_of(peer: afflux.Peer, data: bytes, credit: int = 256) -> list[bytes]:
    """The items of one stream."""
    return [item.data async for item in peer.stream(data, credit=credit)]


async def together(peer: afflux.Peer, *requests: bytes) -> list[list[bytes] | BaseException]:
    """The items, or the error, of each of several streams that are opened in one turn."""
    return await asyncio.gather(*(items_of(peer, data) for data in requests), return_exceptions=True)


def current() -> asyncio.Task[Any]:
    """The current task."""
    task = asyncio.current_task()
    assert task is not None
    return task


# -- tasks and contexts -----------------------------------------------------------------------------------------


async def test_streams_that_never_suspend_share_one_task() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        tasks.append(current())
        for i in range(20):
            yield b"%d" % i

    async with afflux.serve("mem://one", Serves(stream)) as server, afflux.connect(server.uri) as peer:
        found = await together(peer, *(b"",) * 32)
    assert found == [[b"%d" % i for i in range(20)]] * 32
    assert len(tasks) == 32 and len(set(tasks)) == 1


async def test_streams_that_suspend_have_a_task_each() -> None:
    """And it is the same from the first step to the last, whichever of them began it."""
    tasks: dict[bytes, set[asyncio.Task[Any]]] = {}

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        seen = tasks.setdefault(payload.data, set())
        for i in range(4):
            seen.add(current())
            if i == 2 and payload.data not in (b"0", b"1"):
                await asyncio.sleep(0)
            yield b"%d" % i

    async with afflux.serve("mem://each", Serves(stream)) as server, afflux.connect(server.uri) as peer:
        found = await together(peer, *(b"%d" % i for i in range(12)))
    assert found == [[b"0", b"1", b"2", b"3"]] * 12
    assert {len(seen) for seen in tasks.values()} == {1}
    assert tasks[b"0"] == tasks[b"1"] == tasks[b"2"], "the first that suspends retains the task"
    assert len(set.union(*tasks.values())) == 10


async def test_each_stream_has_a_context_of_its_own(uri: str) -> None:
    """From its beginning to the end of its generator, and of what it opened."""
    left: list[tuple[bytes, str]] = []

    @asynccontextmanager
    async def opened(name: str) -> AsyncIterator[None]:
        token = variable.set(name)
        try:
            yield
        finally:
            assert variable.get() == name
            variable.reset(token)  # raises in another context

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        name = payload.data.decode()
        try:
            async with opened(name):
                for i in range(3):
                    if i == 1 and int(name) % 4 >= 2:
                        await asyncio.sleep(0)
                    yield variable.get().encode()
        finally:
            left.append((payload.data, variable.get()))

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        found = await together(peer, *(b"%d" % i for i in range(16)))
    assert found == [[b"%d" % i] * 3 for i in range(16)]
    assert sorted(left) == sorted((b"%d" % i, "unset") for i in range(16))


async def test_timeouts_and_task_groups_work_in_every_stream(uri: str) -> None:
    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        async with asyncio.timeout(10):
            yield b"in time"
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            yield b"late"
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        yield b"%d" % current().cancelling()

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        assert await together(peer, *(b"",) * 9) == [[b"in time", b"late", b"0"]] * 9


# -- generators that suspend ------------------------------------------------------------------------------------


async def test_a_handler_may_return_a_generator_that_suspends_at_its_third_item(uri: str) -> None:
    async def items(name: bytes) -> AsyncIterator[bytes]:
        for i in range(5):
            if i == 2:
                await asyncio.sleep(0)
            yield b"%s/%d" % (name, i)

    async def awaited(payload: Payload) -> AsyncIterator[bytes]:
        return items(payload.data)

    def plain(payload: Payload) -> AsyncIterator[bytes]:
        return items(payload.data)

    async def later(payload: Payload) -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        return items(payload.data)

    for handler in (awaited, plain, later):
        async with afflux.serve(uri, Serves(handler)) as server, afflux.connect(server.uri) as peer:
            expected = [[b"%d/%d" % (name, i) for i in range(5)] for name in range(7)]
            assert await together(peer, *(b"%d" % name for name in range(7))) == expected


async def test_a_stream_beyond_its_credit_waits_and_the_others_do_not(uri: str) -> None:
    made: dict[bytes, int] = {}

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        for i in range(40):
            made[payload.data] = i + 1
            yield b"%d" % i

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        slow = peer.stream(b"slow", credit=0)
        slow.request(4)
        rest = asyncio.ensure_future(together(peer, b"a", b"b", b"c"))
        assert [(await anext(slow)).data for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        assert await rest == [[b"%d" % i for i in range(40)]] * 3
        await turns()
        assert made == {b"slow": 5, b"a": 40, b"b": 40, b"c": 40}, "one item beyond the credit"
        slow.request(100)
        assert len([item async for item in slow]) == 36


# -- cancellation ----------------------------------------------------------------------------------------------


class Steps:
    """A stream with an await between any two items, which notes where it was when it was canceled."""

    awaits = 5

    def __init__(self) -> None:
        self.waits: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()
        self.go: dict[tuple[bytes, int], asyncio.Event] = {}
        self.canceled: asyncio.Queue[tuple[bytes, int, str, bool]] = asyncio.Queue()

    def proceed(self, at: tuple[bytes, int]) -> asyncio.Event:
        """The event that an await waits for."""
        return self.go.setdefault(at, asyncio.Event())

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """Wait before each item."""
        variable.set(payload.data.decode())
        task, at = current(), 0
        try:
            for at in range(self.awaits):
                if payload.data != b"ends" and (payload.data, at) not in self.go:
                    await self.waits.put((payload.data, at))
                    await self.proceed((payload.data, at)).wait()
                yield b"%d" % at
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # an orderly end may take time, and is not interrupted
            await self.canceled.put((payload.data, at, variable.get(), current() is task))
            raise


@pytest.mark.parametrize("at", range(Steps.awaits))
@pytest.mark.parametrize("before", [(), (b"ends",), (b"other",)], ids=["first", "after one that ended", "in its own"])
async def test_a_stream_can_be_canceled_at_every_await(uri: str, before: tuple[bytes, ...], at: int) -> None:
    """The first of a pass, one after others that have ended in their first step, and one that got its own task."""
    steps = Steps()
    async with afflux.serve(uri, steps) as server, afflux.connect(server.uri) as peer:
        streams = [peer.stream(data) for data in (*before, b"mine", b"last")]
        readers = [asyncio.ensure_future(anext(stream)) for stream in streams]
        waiting = {await steps.waits.get() for data in (*before, b"mine", b"last") if data != b"ends"}
        assert waiting == {(data, 0) for data in (*before, b"mine", b"last") if data != b"ends"}
        for place in range(at):
            steps.proceed((b"mine", place)).set()
            assert await steps.waits.get() == (b"mine", place + 1)
        mine = streams[len(before)]
        if at:
            await readers[len(before)]
        else:
            readers[len(before)].cancel()
        await mine.aclose()
        assert await steps.canceled.get() == (b"mine", at, "mine", True)
        for place in range(steps.awaits):
            for data in (b"last", b"other"):
                steps.proceed((data, place)).set()
        for stream, reader in zip(streams, readers, strict=True):
            if stream is not mine:
                assert (await reader).data == b"0"
                assert len([item async for item in stream]) == steps.awaits - 1
        assert steps.canceled.empty()
        assert server.connections[0].streams() == []


async def test_streams_that_are_canceled_at_once_do_not_run() -> None:
    ran: list[bytes] = []

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        ran.append(payload.data)
        yield payload.data

    async with afflux.serve("mem://unborn", Serves(stream)) as server, afflux.connect(server.uri) as peer:
        opened = [peer.stream(b"%d" % i) for i in range(5)]
        readers = [asyncio.ensure_future(anext(stream)) for stream in opened]
        await asyncio.sleep(0)
        readers[2].cancel()
        await opened[2].aclose()
        found = await asyncio.gather(*readers, return_exceptions=True)
        assert isinstance(found[2], asyncio.CancelledError)
        assert ran == [b"0", b"1", b"3", b"4"]
        assert await items_of(peer, b"x") == [b"x"]
        assert server.connections[0].streams() == []


async def test_a_stream_that_cancels_its_task_harms_no_other(uri: str) -> None:
    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        yield payload.data
        if payload.data == b"1":
            current().cancel()
        elif payload.data == b"2":
            raise asyncio.CancelledError
        elif payload.data == b"3":
            current().cancel()
            await asyncio.sleep(0)
        elif payload.data == b"4":
            await asyncio.sleep(0)

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        found = await together(peer, *(b"%d" % i for i in range(7)))
        assert [i for i, items in enumerate(found) if items == [b"%d" % i]] == [0, 1, 4, 5, 6]
        assert {type(found[i]) for i in (2, 3)} == {afflux.Canceled}
        assert await items_of(peer, b"x") == [b"x"]


async def test_a_handler_that_ends_its_connection_is_canceled(uri: str) -> None:
    ended: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        yield b"first"
        if payload.data == b"ends it":
            afflux.current_peer()._driver.abort()
            try:
                await asyncio.Event().wait()
            finally:
                await ended.put(payload.data)

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        found = await together(peer, b"", b"ends it", b"", b"")
        assert any(isinstance(items, afflux.ConnectionClosed) for items in found)
        assert await ended.get() == b"ends it"
        async with afflux.connect(server.uri) as other:
            assert await items_of(other, b"") == [b"first"]


async def test_a_server_that_closes_ends_streams_of_every_kind(uri: str) -> None:
    steps = Steps()
    async with afflux.serve(uri, steps) as server:
        peer = await afflux.connect(server.uri)
        opened = [asyncio.ensure_future(items_of(peer, data)) for data in (b"a", b"ends", b"b", b"c")]
        for _ in range(3):
            await steps.waits.get()
        assert await opened[1] == [b"%d" % i for i in range(5)]
    assert {(await steps.canceled.get())[0] for _ in range(3)} == {b"a", b"b", b"c"}
    found = await asyncio.gather(*opened, return_exceptions=True)
    assert {type(items) for items in found} == {list, afflux.ConnectionClosed}
    await peer.close()


# -- errors ------------------------------------------------------------------------------------------------------


class Raises:
    """Raises at once, as a generator, a coroutine or a function."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def stream(self, payload: Payload) -> Any:
        """Of the kind."""
        return {"generator": self._generator, "coroutine": self._coroutine, "function": self._function}[self.kind](
            payload
        )

    async def _generator(self, payload: Payload) -> AsyncIterator[bytes]:
        self._raise(payload)
        yield payload.data

    async def _coroutine(self, payload: Payload) -> Iterator[bytes]:
        self._raise(payload)
        return iter([payload.data])

    def _function(self, payload: Payload) -> list[bytes]:
        self._raise(payload)
        return [payload.data]

    @staticmethod
    def _raise(payload: Payload) -> None:
        if payload.data == b"own":
            raise afflux.ApplicationError(0x301, "mine")
        if payload.data == b"other":
            raise ValueError("a secret")
        if payload.data == b"stop":
            raise StopIteration


@pytest.mark.parametrize("kind", ["generator", "coroutine", "function"])
async def test_a_handler_that_raises_at_once_fails_its_stream_only(
    uri: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with afflux.serve(uri, Raises(kind)) as server, afflux.connect(server.uri) as peer:
        found = await together(peer, b"1", b"own", b"2", b"other", b"3", b"stop", b"4")
        assert [items for items in found if isinstance(items, list)] == [[b"1"], [b"2"], [b"3"], [b"4"]]
        own, other, stop = (items for items in found if isinstance(items, afflux.ApplicationError))
        assert (own.code, str(own)) == (0x301, "mine")
        assert other.code == stop.code == 0x201 and "secret" not in str(other)
        assert server.connections[0].streams() == []
    assert "a handler raised: stream" in caplog.text and "a secret" in caplog.text


async def test_what_a_handler_may_not_return_is_named_in_the_log(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async def stream(payload: Payload) -> Any:
        return {b"number": 7, b"text": "text", b"nothing": None}[payload.data]

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        number, text, nothing = await together(peer, b"number", b"text", b"nothing")
        assert isinstance(number, afflux.ApplicationError) and isinstance(text, afflux.ApplicationError)
        assert nothing == []
    assert "items come from a generator or a list, not from int" in caplog.text


async def test_a_generator_that_fails_as_it_is_closed_is_logged(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    class Source:
        def __init__(self, late: bool) -> None:
            self.late = late

        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> bytes:
            raise StopAsyncIteration

        async def aclose(self) -> None:
            if self.late:
                await asyncio.sleep(0)
            raise OSError("cannot be closed")

    def stream(payload: Payload) -> Any:
        return Source(payload.data == b"late") if payload.data else [b"fine"]

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        assert await together(peer, b"", b"now", b"", b"late", b"") == [[b"fine"], [], [b"fine"], [], [b"fine"]]
        await turns()
        assert server.connections[0].streams() == []
    assert "a handler's task failed" in caplog.text and "cannot be closed" in caplog.text


# -- limits and memory ----------------------------------------------------------------------------------------


async def test_no_more_handlers_are_at_work_than_the_limit_allows(uri: str) -> None:
    """Those that have ended in their first step have released their slot."""
    at_work, most = 0, 0

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        try:
            yield b"1"
            if payload.data == b"suspends":
                await turns(3)
            yield b"2"
        finally:
            at_work -= 1

    limits = Limits.tiny(streams=4, pending_streams=64)
    async with (
        afflux.serve(uri, Serves(stream), limits=limits) as server,
        afflux.connect(server.uri) as peer,
    ):
        found = await together(peer, *(b"suspends" if i % 3 else b"" for i in range(32)))
        assert found == [[b"1", b"2"]] * 32
        assert most == 4
        assert await together(peer, *(b"",) * 32) == [[b"1", b"2"]] * 32
        assert (at_work, server.connections[0].streams()) == (0, [])


async def test_many_streams_with_more_than_the_room_hold_no_more_than_the_room(uri: str) -> None:
    """Short streams that never suspend wait for room before they begin; their client reads nothing meanwhile."""
    begun = 0

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        nonlocal begun
        begun += 1
        for _ in range(4):
            yield bytes(1000)

    limits = Limits.tiny(outbound_high_bytes=32 << 10, outbound_low_bytes=8 << 10, streams=256, pending_streams=512)
    async with (
        afflux.serve(uri, Serves(stream), limits=limits) as server,
        afflux.connect(server.uri) as peer,
    ):
        found = asyncio.ensure_future(together(peer, *(b"",) * 256))
        held = 0
        while not found.done():
            await asyncio.sleep(0)
            for connection in server.connections:
                held = max(held, limits.outbound_high_bytes - connection._driver.output.room_beside())
        assert await found == [[bytes(1000)] * 4] * 256
        assert begun == 256
        assert held <= limits.outbound_high_bytes


async def test_a_handler_of_a_slow_reader_does_not_run_ahead(uri: str) -> None:
    made = 0

    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(1000):
            made += 1
            yield bytes(100)

    async with afflux.serve(uri, Serves(stream)) as server, afflux.connect(server.uri) as peer:
        opened = [peer.stream(b"", credit=8) for _ in range(20)]
        for stream_ in opened:
            await anext(stream_)
        await turns(50)
        assert made == 20 * 9
        for stream_ in opened:
            await stream_.aclose()
        await turns(20)
        assert server.connections[0].streams() == []


def _kinds() -> list[Callable[[Payload], Awaitable[Any] | Any]]:
    async def generator(payload: Payload) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async def coroutine(payload: Payload) -> list[bytes]:
        return [b"1", b"2"]

    def iterator(payload: Payload) -> Iterator[bytes]:
        yield b"1"
        yield b"2"

    return [generator, coroutine, iterator]


@pytest.mark.parametrize("stream", _kinds(), ids=["generator", "coroutine", "iterator"])
async def test_streams_of_every_kind_end_in_their_first_step(stream: Stream) -> None:
    """No task is created for them, apart from the one that begins them."""
    created = 0

    def count(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        nonlocal created
        created += 1
        return asyncio.Task(work, loop=loop, **more)

    async with afflux.serve("mem://kinds", Serves(stream)) as server, afflux.connect(server.uri) as peer:
        asyncio.get_running_loop().set_task_factory(count)
        try:
            assert await together(peer, *(b"",) * 50) == [[b"1", b"2"]] * 50
        finally:
            asyncio.get_running_loop().set_task_factory(None)
    assert created == 51, "50 clients, and one task of the server"
