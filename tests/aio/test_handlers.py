"""Handlers: what they may be, how they are canceled, what becomes of what they raise, when their slot is free."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.testing import run
from tests.aio.handlers import Demo, Fails, Waits, turns


async def test_a_missing_verb_is_rejected_with_what_there_is(uri: str) -> None:
    class Some:
        async def request(self, payload: Payload) -> Payload:
            return payload

        async def fire(self, payload: Payload) -> None: ...

    async with afflux.serve(uri, Some()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Rejected, match='no handler for "stream"; handled here: request, fire') as caught:
            await anext(peer.stream(b"1"))
        assert (caught.value.code, caught.value.stream) == (0x202, 1)
        with pytest.raises(afflux.Rejected, match='no handler for "channel"'):
            async with peer.channel([b"1"]) as items:
                await anext(items)
        await peer.push(b"nobody takes it")
        assert await peer.request(b"x") == Payload(b"x")


async def test_a_client_without_handler_serves_nothing(uri: str) -> None:
    class Calls:
        async def request(self, payload: Payload) -> Payload:
            return await afflux.current_peer().request(b"")

    async with afflux.serve(uri, Calls()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Rejected, match="handled here: nothing"):
            await peer.request(b"")


async def test_a_handler_has_a_verb(uri: str) -> None:
    for handler in (object(), "text", 7):
        with pytest.raises(TypeError, match="at least one of the methods request, fire"):
            afflux.serve(uri, handler)
        with pytest.raises(TypeError, match="at least one of the methods"):
            afflux.connect(uri, handler=handler)


async def test_an_answer_may_be_nothing_or_plain(uri: str) -> None:
    class Plain:
        def request(self, payload: Payload) -> str | None:
            return None if payload.data == b"nothing" else "plain"

    async with afflux.serve(uri, Plain()) as server, afflux.connect(server.uri) as peer:
        assert await peer.request(b"nothing") == Payload()
        assert await peer.request(b"") == Payload(b"plain")


async def test_errors_reach_the_peer_with_code_and_text(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async with afflux.serve(uri, Fails()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.ApplicationError, match="mine") as caught:
            await peer.request(b"0")
        assert caught.value.code == 0x301
        stream = peer.stream(b"0")
        assert (await anext(stream)).data == b"first"
        with pytest.raises(afflux.ApplicationError, match="mine"):
            await anext(stream)
        assert caplog.records == []


async def test_other_exceptions_are_logged_and_sent_in_general_terms(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with afflux.serve(uri, Fails()) as server, afflux.connect(server.uri) as peer:
        for _ in range(3):
            with pytest.raises(afflux.ApplicationError) as caught:
                await peer.request(b"1")
            assert caught.value.code == 0x201
            assert "secret" not in str(caught.value)
    first, rest = caplog.records
    assert {(record.name, record.levelno) for record in (first, rest)} == {("afflux.handlers", logging.ERROR)}
    assert first.exc_info is not None and "a secret" in str(first.exc_info[1])
    assert rest.getMessage().startswith("afflux: 2 more failures since the last line: peer ")


def test_failures_without_a_line_are_counted_by_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    """At most one line a second; virtual time passes between the bursts."""

    async def bursts() -> None:
        async with afflux.serve("mem://bursts", Fails()) as server, afflux.connect(server.uri) as peer:
            for failures in (4, 1, 2):
                for _ in range(failures):
                    with pytest.raises(afflux.ApplicationError):
                        await peer.request(b"1")
                await asyncio.sleep(2)

    run(bursts())
    texts = [record.getMessage() for record in caplog.records]
    assert ["more since" in text for text in texts] == [False, True, False, False]
    assert texts[1].endswith(" (3 more since the last line)")
    assert texts[3].startswith("afflux: 1 more failure since the last line: peer ")


async def test_an_answer_of_the_wrong_type_fails_the_request(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        async def request(self, payload: Payload) -> Any:
            return 7

        async def stream(self, payload: Payload) -> AsyncIterator[Any]:
            yield b"right"
            yield {"a": 1}
            await asyncio.Event().wait()

    async with afflux.serve(uri, Wrong()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.ApplicationError):
            await peer.request(b"")
        with pytest.raises(afflux.ApplicationError):
            [item async for item in peer.stream(credit=1)]
    assert "not int" in caplog.text


async def test_a_sleeping_handler_blocks_no_other(uri: str) -> None:
    waits = Waits()

    class Both(Waits):
        async def request(self, payload: Payload) -> Payload:
            if payload.data == b"wait":
                return await waits.request(payload)
            return payload

    async with afflux.serve(uri, Both()) as server, afflux.connect(server.uri) as peer:
        slow = [asyncio.ensure_future(peer.request(b"wait")) for _ in range(3)]
        for _ in range(3):
            await waits.entered.get()
        assert (await peer.request(b"quick")).data == b"quick"
        mixed = [b"wait", b"quick", b"wait", b"quick"]
        tasks = [asyncio.ensure_future(peer.request(data)) for data in mixed]
        assert [(await tasks[i]).data for i in (1, 3)] == [b"quick", b"quick"]
        waits.go.set()
        answers = await asyncio.gather(*slow, *tasks)
        assert len(answers) == 7


async def test_canceling_a_request_cancels_its_handler(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        for _ in range(2):
            request = asyncio.ensure_future(peer.request(b""))
            assert await waits.entered.get() == "request"
            request.cancel()
            assert await waits.left.get() == "request canceled"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await peer.request(b"")
        waits.go.set()
        assert await peer.request(b"") == Payload()


async def test_canceling_one_of_many_that_came_together(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        requests = [asyncio.ensure_future(peer.request(b"%d" % i)) for i in range(5)]
        for _ in range(5):
            await waits.entered.get()
        requests[3].cancel()
        assert await waits.left.get() == "request canceled"
        waits.go.set()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Payload] * 3 + [asyncio.CancelledError, Payload]


async def test_a_request_that_is_canceled_at_once_does_not_run(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        requests = [asyncio.ensure_future(peer.request(b"%d" % i)) for i in range(5)]
        await asyncio.sleep(0)
        requests[2].cancel()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(answers[2], asyncio.CancelledError)
        assert await peer.request(b"x") == Payload(b"x")
        assert server.connections[0]._driver.engine.stream_table.handlers == set()  # type: ignore[attr-defined] # inside


async def test_a_stream_that_is_canceled_closes_its_generator(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        async with peer.stream() as stream:
            await anext(stream)
            assert await waits.entered.get() == "stream"
        assert await waits.left.get() == "stream canceled"


async def test_a_slot_is_free_when_the_handler_has_really_ended() -> None:
    """FL-01: a handler that ignores that it was canceled keeps its slot."""
    entered, go = asyncio.Queue[None](), asyncio.Event()

    class Stubborn:
        async def request(self, payload: Payload) -> Payload:
            await entered.put(None)
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    pass
            return payload

    limits = Limits.tiny(streams=2, pending_s=0.1)
    async with (
        afflux.serve("mem://slots", Stubborn(), limits=limits) as server,
        afflux.connect(server.uri) as peer,
    ):
        for _ in range(2):
            request = asyncio.ensure_future(peer.request(b""))
            await entered.get()
            request.cancel()
        with pytest.raises(afflux.Rejected, match="too-many-streams"):
            await peer.request(b"")
        go.set()
        await turns()
        assert await peer.request(b"x") == Payload(b"x")


async def test_tasks_timeouts_and_contexts_are_as_expected(uri: str) -> None:
    """The fast path runs many handlers in one task: nobody may notice."""
    variable: contextvars.ContextVar[bytes] = contextvars.ContextVar("variable", default=b"unset")

    class Curious:
        async def request(self, payload: Payload) -> Payload:
            before = asyncio.current_task()
            assert before is not None
            found = variable.get()
            variable.set(payload.data)
            async with asyncio.timeout(10):
                if payload.data.startswith(b"wait"):
                    await asyncio.sleep(0)
                    async with asyncio.TaskGroup() as group:
                        group.create_task(asyncio.sleep(0))
            assert asyncio.current_task() is before
            assert variable.get() == payload.data
            return Payload(found)

    async with afflux.serve(uri, Curious()) as server, afflux.connect(server.uri) as peer:
        data = [b"wait" if i % 5 == 3 else b"%d" % i for i in range(50)]
        answers = await asyncio.gather(*(peer.request(item) for item in data))
        assert {answer.data for answer in answers} == {b"unset"}


async def test_a_handler_may_time_out(uri: str) -> None:
    class Late:
        async def request(self, payload: Payload) -> Payload:
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                return Payload(b"late")
            return payload

    async with afflux.serve(uri, Late()) as server, afflux.connect(server.uri) as peer:
        answers = await asyncio.gather(*(peer.request(b"") for _ in range(10)))
        assert {answer.data for answer in answers} == {b"late"}


async def test_a_handler_that_cancels_itself_harms_no_other(uri: str) -> None:
    class Cancels:
        async def request(self, payload: Payload) -> Payload:
            if payload.data == b"1":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            elif payload.data == b"2":
                raise asyncio.CancelledError
            elif payload.data == b"3":
                await asyncio.sleep(0)
            return payload

    async with afflux.serve(uri, Cancels()) as server, afflux.connect(server.uri) as peer:
        answers = await asyncio.gather(*(peer.request(b"%d" % i) for i in range(6)), return_exceptions=True)
        assert [i for i, answer in enumerate(answers) if isinstance(answer, Payload)] == [0, 1, 3, 4, 5]
        assert isinstance(answers[2], afflux.Canceled)


async def test_strange_exceptions_fail_one_stream_only(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    """SL-07."""

    class Strange(BaseException): ...

    class Raises:
        async def request(self, payload: Payload) -> Payload:
            if payload.data == b"late":
                await asyncio.sleep(0)
            if payload.data:
                raise Strange
            return payload

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            yield b""
            raise Strange

    async with afflux.serve(uri, Raises()) as server, afflux.connect(server.uri) as peer:
        for data in (b"now", b"late"):
            with pytest.raises(afflux.ApplicationError):
                await peer.request(data)
            assert await peer.request(b"") == Payload()
        with pytest.raises(afflux.ApplicationError):
            [item async for item in peer.stream()]
        assert await peer.request(b"") == Payload()
    assert "Strange" in caplog.text


async def test_a_handler_that_blocks_the_loop_is_named(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    """SL-07: a line above 100 ms."""

    class Blocks:
        async def request(self, payload: Payload) -> Payload:
            until = time.monotonic() + 0.11
            while time.monotonic() < until:
                pass
            return payload

    async with afflux.serve(uri, Blocks()) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"")
    assert "blocked the event loop for 0." in caplog.text


async def test_fire_goes_on_when_the_client_has_left(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server:
        async with afflux.connect(server.uri) as peer:
            await peer.fire(b"")
        assert await waits.entered.get() == "fire"
        waits.go.set()
        assert await waits.left.get() == "fire done"


async def test_a_server_that_closes_ends_its_handlers(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server:
        peer = await afflux.connect(server.uri)
        await peer.fire(b"")
        request = asyncio.ensure_future(peer.request(b""))
        stream = peer.stream()
        await anext(stream)
        for _ in range(3):
            await waits.entered.get()
    assert {await waits.left.get() for _ in range(3)} == {"fire canceled", "request canceled", "stream canceled"}
    with pytest.raises(afflux.ConnectionClosed):
        await request
    with pytest.raises(afflux.ConnectionClosed):
        await anext(stream)
    await peer.wait_closed()
    await peer.close()


async def test_pushes_wait_in_line(uri: str) -> None:
    """FL-04: at most metadata_push_queue of them; then reading stops."""
    go = asyncio.Event()
    taken: list[bytes] = []

    class Slow:
        async def push(self, metadata: bytes) -> None:
            await go.wait()
            taken.append(metadata)

    async with afflux.serve(uri, Slow()) as server, afflux.connect(server.uri) as peer:
        for i in range(200):
            await peer.push(b"%d" % i * 1000)
        await turns(200)
        serving = server.connections[0]._serving
        assert not taken
        assert serving.driver.input.on_hold
        go.set()
        while len(taken) < 200:
            await turns(10)
        assert taken == [b"%d" % i * 1000 for i in range(200)]


async def test_a_source_that_fails_fails_the_channel(uri: str) -> None:
    heard: asyncio.Queue[BaseException] = asyncio.Queue()

    class Hears:
        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            try:
                async for item in items:
                    yield item.data
            except afflux.Error as error:
                await heard.put(error)
                raise

    async def source() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"
        raise KeyError("mine")

    async with afflux.serve(uri, Hears()) as server, afflux.connect(server.uri) as peer:
        async with peer.channel(source()) as items:
            with pytest.raises(KeyError, match="mine"):
                async for _ in items:
                    pass
        assert isinstance(await heard.get(), afflux.ApplicationError)


async def test_leaving_a_channel_closes_its_source(uri: str) -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        try:
            yield b"1"
            await asyncio.Event().wait()
        finally:
            closed.set()

    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        async with peer.channel(source()) as items:
            assert (await anext(items)).data == b"1"
        assert closed.is_set()
        await peer.request(b"")
        assert demo.closed == 1


async def test_a_handler_may_leave_its_items(uri: str) -> None:
    """The inbound half of a channel is canceled when its handler returns."""

    class First:
        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            async for item in items:
                yield item.data
                return

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0)

    async with afflux.serve(uri, First()) as server, afflux.connect(server.uri) as peer:
        async with peer.channel(endless()) as items:
            assert [item.data async for item in items] == [b"x"]
