"""Middleware: what it sees, in which order, and that what it does not touch stays as it was. Both sides."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import afflux
from afflux import Backoff, Call, ItemStream, Middleware, Payload, Router
from afflux.middleware import Limit, Metrics, Observation, Retry
from afflux.protocols.rsocket.metadata import compose
from tests.aio.handlers import Demo, Waits, turns


@pytest.fixture(params=["tcp://127.0.0.1:0", "mem://middleware"], ids=["tcp", "mem"])
def uri(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
async def no_orphans() -> AsyncIterator[None]:
    """Everything that was started has ended."""
    before = asyncio.all_tasks()
    yield
    await turns(1)  # the loop closes generators that a test has left alone
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


class Log(Middleware):
    """Writes down every call, going in and coming out."""

    def __init__(self, name: str = "", lines: list[str] | None = None) -> None:
        self.name = name
        self.lines = [] if lines is None else lines
        self.calls: list[Call] = []

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self.calls.append(call)
        self.lines.append(f"{self.name}+{call.verb}")
        try:
            yield
        finally:
            self.lines.append(f"{self.name}-{call.verb}")

    async def request(self, call: Call, next: Any) -> Any:
        with self.around(call):
            return await next(call)

    async def fire(self, call: Call, next: Any) -> None:
        with self.around(call):
            await next(call)

    async def push(self, call: Call, next: Any) -> None:
        with self.around(call):
            await next(call)

    async def stream(self, call: Call, next: Any) -> AsyncIterator[Payload]:
        with self.around(call):
            async for item in next(call):
                yield item

    async def channel(self, call: Call, next: Any) -> AsyncIterator[Payload]:
        with self.around(call):
            async for item in next(call):
                yield item


class Stamp(Middleware):
    """Changes what goes in and what comes out."""

    async def request(self, call: Call, next: Any) -> Any:
        answer = await next(call.replace(payload=b"<" + call.payload.data))
        return answer.data + b">"

    async def fire(self, call: Call, next: Any) -> None:
        await next(call.replace(payload=b"<" + call.payload.data))

    async def push(self, call: Call, next: Any) -> None:
        await next(call.replace(payload=Payload(b"", b"<" + (call.payload.metadata or b""))))

    async def stream(self, call: Call, next: Any) -> AsyncIterator[Any]:
        async for item in next(call.replace(payload=call.payload.data + b"0")):
            yield item.data + b">"

    async def channel(self, call: Call, next: Any) -> AsyncIterator[Any]:
        async def stamped() -> AsyncIterator[bytes]:
            source = call.items
            if hasattr(source, "__aiter__"):
                async for item in source:
                    yield b"<" + item.data
            else:
                for item in source:
                    yield b"<" + item

        async for item in next(call.replace(items=stamped())):
            yield item.data + b">"


async def all_verbs(peer: Any, demo: Demo) -> list[Any]:
    """What comes of one call of each verb."""
    answers = [
        (await peer.request(b"a")).data,
        [item.data async for item in peer.stream(b"1", credit=4)][-1],
    ]
    async with peer.channel([b"a", b"b"]) as items:
        answers.append([item.data async for item in items])
    await peer.fire(b"f")
    answers.append((await demo.fired.get()).data)
    await peer.push(b"p")
    return [*answers, await demo.pushed.get()]


@pytest.mark.parametrize("side", ["peer", "handler"])
async def test_every_verb_on_both_sides(uri: str, side: str) -> None:
    demo, log = Demo(), Log()
    handler = afflux.wrap(demo, log, Stamp()) if side == "handler" else demo
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, log, Stamp()) if side == "peer" else peer
        assert await all_verbs(wrapped, demo) == [b"<a>", b"9>", [b"<a>", b"<b>"], b"<f", b"<p"]
    assert log.lines == [f"{sign}{verb}" for verb in ("request", "stream", "channel", "fire", "push") for sign in "+-"]


@pytest.mark.parametrize("side", ["peer", "handler"])
async def test_a_middleware_without_a_verb_lets_it_through(uri: str, side: str) -> None:
    """As it is: the same objects, so nothing is slower and nothing is lost."""

    class Nothing(Middleware): ...

    demo = Demo()
    handler: Any = afflux.wrap(demo, Nothing()) if side == "handler" else demo
    if side == "handler":
        assert handler.stream == demo.stream
        assert handler.made == 0
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, Nothing()) if side == "peer" else peer
        assert wrapped.stream == peer.stream
        assert type(wrapped.stream(b"1")) is ItemStream
        assert await all_verbs(wrapped, demo) == [b"a", b"0", [b"a", b"b"], b"f", b"p"]


async def test_the_verbs_of_the_base_go_on() -> None:
    """Whoever calls super() gets the rest."""

    class Super(Middleware):
        async def request(self, call: Call, next: Any) -> Any:
            return await super().request(call, next)

        async def fire(self, call: Call, next: Any) -> None:
            await super().fire(call, next)

        async def push(self, call: Call, next: Any) -> None:
            await super().push(call, next)

        def stream(self, call: Call, next: Any) -> Any:
            return super().stream(call, next)

        def channel(self, call: Call, next: Any) -> Any:
            return super().channel(call, next)

    demo = Demo()
    handler = afflux.wrap(demo, Super())
    async with afflux.serve("mem://super", handler) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, Super())
        assert type(wrapped.stream(b"1")) is ItemStream  # it came back as it was
        assert await all_verbs(wrapped, demo) == [b"a", b"0", [b"a", b"b"], b"f", b"p"]


async def test_the_first_middleware_is_the_outermost(uri: str) -> None:
    lines: list[str] = []
    handler = afflux.wrap(afflux.wrap(Demo(), Log("d", lines)), Log("c", lines))
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(afflux.wrap(peer, Log("b", lines)), Log("a", lines))
        await wrapped.request(b"")
        assert " ".join(lines) == "a+request b+request c+request d+request d-request c-request b-request a-request"
        lines.clear()
        assert [item.data async for item in wrapped.stream(b"1")] == [b"0"]
        assert [line for line in lines if line[0] in "ab"] == ["a+stream", "b+stream", "b-stream", "a-stream"]
        assert [line for line in lines if line[0] in "cd"] == ["c+stream", "d+stream", "d-stream", "c-stream"]


async def test_what_a_middleware_sees_at_a_peer() -> None:
    log = Log()
    async with afflux.serve("mem://sees", Demo()) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, log)
        await wrapped.request(Payload(b"a"), route="r", metadata=b"m")
        [_ async for _ in wrapped.stream(b"1", route="s", credit=3)]
        async with wrapped.channel([b"x"], route="c"):
            pass
        await wrapped.push(b"p")
        seen = [(call.verb, call.payload, call.route, call.pattern, dict(call.options)) for call in log.calls]
        assert seen == [
            ("request", Payload(b"a"), "r", None, {"metadata": b"m"}),
            ("stream", Payload(b"1"), "s", None, {"credit": 3}),
            ("push", Payload(b"", b"p"), None, None, {}),
        ]
        assert all(call.peer is peer for call in log.calls)


async def test_a_peer_is_wrapped_with_all_that_it_has(uri: str) -> None:
    async with afflux.serve(uri, Demo()) as server:
        async with afflux.wrap(await afflux.connect(server.uri), Log()) as peer:
            assert (peer.uri, peer.closed, peer.limits.streams) == (server.uri, False, 256)
            assert repr(peer).startswith("<wrapped <Peer ")
        assert peer.closed
        with pytest.raises(afflux.ConnectionClosed):
            await peer.request(b"")


async def test_a_middleware_may_answer_refuse_and_ask_twice(uri: str) -> None:
    class Cache(Middleware):
        async def request(self, call: Call, next: Any) -> Any:
            match call.payload.data:
                case b"known":
                    return "at hand"
                case b"nothing":
                    return None
                case b"refuse":
                    raise afflux.Rejected("not today")
                case _:
                    return (await next(call)).data + (await next(call.replace(payload="again"))).data

    class Twice(Middleware):
        async def stream(self, call: Call, next: Any) -> AsyncIterator[Payload]:
            for _ in range(2):
                async for item in next(call):
                    yield item

    for side in ("peer", "handler"):
        handler = afflux.wrap(Demo(), Cache(), Twice()) if side == "handler" else Demo()
        async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
            wrapped = afflux.wrap(peer, Cache(), Twice()) if side == "peer" else peer
            assert (await wrapped.request(b"known")).text == "at hand"
            assert await wrapped.request(b"nothing") == Payload()
            with pytest.raises(afflux.Rejected, match="not today"):
                await wrapped.request(b"refuse")
            assert (await wrapped.request(b"x")).data == b"xagain"
            assert [item.data async for item in wrapped.stream(b"2")] == [b"0", b"1", b"0", b"1"]


async def test_notes_are_left_for_those_further_inside() -> None:
    class Leaves(Middleware):
        async def request(self, call: Call, next: Any) -> Any:
            call.notes["who"] = b"me"
            return await next(call.replace(payload=b""))

    class Finds(Middleware):
        async def request(self, call: Call, next: Any) -> Any:
            return call.notes["who"]

    async with afflux.serve("mem://notes", afflux.wrap(Demo(), Leaves(), Finds())) as server:
        async with afflux.connect(server.uri) as peer:
            assert (await peer.request(b"")).data == b"me"


# Streams keep what makes them streams.


async def test_items_are_made_when_they_are_asked_for(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, afflux.wrap(demo, Log(), Log())) as server, afflux.connect(server.uri) as peer:
        stream = afflux.wrap(peer, Log(), Log()).stream(b"100000", credit=10)
        assert (await anext(stream)).data == b"0"
        await peer.request(b"")
        await peer.request(b"")
        assert demo.made <= 10 + 1  # one ahead
        await stream.aclose()
        await peer.request(b"")
        assert demo.closed == 1


async def test_credit_by_hand_goes_through(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        stream = afflux.wrap(peer, Log()).stream(b"100", credit=0)
        assert stream.id is None
        for n in (0, 1 << 31):
            with pytest.raises(afflux.LocalProtocolError, match="a grant is 1 to"):
                stream.request(n)
        stream.request(2)
        assert [(await anext(stream)).data for _ in range(2)] == [b"0", b"1"]
        await peer.request(b"")
        assert demo.made == 2 + 1
        assert stream.id is not None
        stream.request(1)
        assert (await anext(stream)).data == b"2"
        await stream.aclose()
        assert [item async for item in stream] == []


async def test_leaving_the_loop_cancels_the_stream(uri: str) -> None:
    demo, log = Demo(), Log()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        async for item in afflux.wrap(peer, log, Log()).stream(b"1000000000"):
            if item.data == b"700":
                break
        await turns()
        assert log.lines == ["+stream", "-stream"]
        await peer.request(b"")
        await peer.request(b"")
        assert demo.closed == 1


async def test_closing_closes_everything_at_once_and_in_order(uri: str) -> None:
    demo, lines = Demo(), list[str]()
    async with afflux.serve(uri, demo) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, Log("a", lines), Log("b", lines))
        async with wrapped.stream(b"1000000000") as items:
            await anext(items)
        assert lines == ["a+stream", "b+stream", "a-stream", "b-stream"]
        items.cancel()
        await items.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(items)
        async with wrapped.channel([b"a", b"b"]) as channel:
            assert [[item.data for item in batch] async for batch in channel.batches()] == [[b"a"], [b"b"]]
        never = wrapped.stream(b"5")
        await never.aclose()
        assert lines[4:] == ["a+channel", "b+channel", "b-channel", "a-channel"]


async def test_the_layers_of_a_handler_are_closed_with_its_stream(uri: str) -> None:
    demo, lines = Demo(), list[str]()
    done = asyncio.Event()

    class Last(Middleware):
        async def stream(self, call: Call, next: Any) -> AsyncIterator[Payload]:
            try:
                async for item in next(call):
                    yield item
            finally:
                assert demo.closed == 0  # what is inside ends after this
                done.set()

    handler = afflux.wrap(demo, Log("a", lines), Last())
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        async with peer.stream(b"1000000000", credit=2) as items:
            await anext(items)
        await done.wait()
        await peer.request(b"")
        assert demo.closed == 1
        assert lines[:2] == ["a+stream", "a-stream"]


async def test_canceling_from_another_task_ends_who_waits(uri: str) -> None:
    waits = Waits()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        for end in ("cancel", "aclose"):
            log = Log()
            stream = afflux.wrap(peer, log).stream(b"")
            assert (await anext(stream)).data == b"first"
            waiting = asyncio.create_task(anext(stream))
            await waits.entered.get()
            await turns()
            with pytest.raises(RuntimeError, match="another task waits"):
                await anext(stream)
            result = getattr(stream, end)()
            if result is not None:
                await result
            with pytest.raises(StopAsyncIteration):
                await waiting
            assert await waits.left.get() == "stream canceled"
            assert log.lines == ["+stream", "-stream"]


async def test_a_waiting_task_that_is_canceled_ends_the_stream(uri: str) -> None:
    waits, log = Waits(), Log()
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri) as peer:
        stream = afflux.wrap(peer, log).stream(b"")
        await anext(stream)
        waiting = asyncio.create_task(anext(stream))
        await waits.entered.get()
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert log.lines == ["+stream", "-stream"]
        assert await waits.left.get() == "stream canceled"


async def test_errors_come_through_and_close_the_layers(uri: str) -> None:
    class Fails:
        async def request(self, payload: Payload) -> bytes:
            raise afflux.ApplicationError(0x301, "mine")

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            yield b"first"
            raise afflux.ApplicationError(0x302, "mine")

    lines: list[str] = []
    async with afflux.serve(uri, afflux.wrap(Fails(), Log("s", lines))) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, Log("c", lines))
        with pytest.raises(afflux.ApplicationError) as caught:
            await wrapped.request(b"")
        assert caught.value.code == 0x301
        stream = wrapped.stream(b"")
        await anext(stream)
        with pytest.raises(afflux.ApplicationError) as caught:
            await anext(stream)
        assert caught.value.code == 0x302
        assert [item async for item in stream] == []
        assert sorted(lines) == sorted(
            f"{side}{sign}{verb}" for side in "sc" for sign in "+-" for verb in ("request", "stream")
        )


async def test_a_failing_end_is_reported() -> None:
    class Careless(Middleware):
        def __init__(self, *, late: bool) -> None:
            self.late = late

        async def stream(self, call: Call, next: Any) -> AsyncIterator[Payload]:
            try:
                async for item in next(call):
                    yield item
                    if self.late:
                        raise ValueError("first")
            finally:
                raise KeyError("last")

    async with afflux.serve("mem://careless", Demo()) as server, afflux.connect(server.uri) as peer:
        stream = afflux.wrap(peer, Log(), Careless(late=False)).stream(b"5")
        await anext(stream)
        with pytest.raises(KeyError):
            await stream.aclose()
        stream = afflux.wrap(peer, Careless(late=True)).stream(b"5")
        await anext(stream)
        with pytest.raises(KeyError) as caught:
            await anext(stream)
        assert isinstance(caught.value.__context__, ValueError)


async def test_other_ways_to_write_a_stream(uri: str) -> None:
    """As a coroutine, and as a function that raises or returns something of its own."""

    class Coroutine(Middleware):
        async def stream(self, call: Call, next: Any) -> Any:  # type: ignore[override] # it may be written so
            return next(call)

    class Refuses(Middleware):
        def stream(self, call: Call, next: Any) -> Any:
            raise afflux.Rejected("not today")

    class Wrong(Middleware):
        def stream(self, call: Call, next: Any) -> Any:
            return [b"a"]

    class Counts:
        def __init__(self) -> None:
            self.n = 0

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> str:
            self.n += 1
            if self.n > 2:
                raise StopAsyncIteration
            return str(self.n)

    class Own(Middleware):
        def stream(self, call: Call, next: Any) -> Any:
            return Counts()

    async with afflux.serve(uri, Demo()) as server, afflux.connect(server.uri) as peer:
        assert [item.data async for item in afflux.wrap(peer, Coroutine()).stream(b"2")] == [b"0", b"1"]
        await afflux.wrap(peer, Coroutine()).stream(b"2").aclose()  # the coroutine was never begun
        with pytest.raises(afflux.Rejected):
            afflux.wrap(peer, Refuses()).stream(b"2")
        with pytest.raises(TypeError, match="stream and channel of a middleware return an async iterator, not list"):
            await anext(afflux.wrap(peer, Wrong()).stream(b"2"))
        assert [item.text async for item in afflux.wrap(peer, Own()).stream(b"2")] == ["1", "2"]


async def test_a_stream_that_is_gone_opens_nothing_more() -> None:
    kept: list[Any] = []

    class Keeps(Middleware):
        async def stream(self, call: Call, next: Any) -> AsyncIterator[Payload]:
            kept.append(lambda: next(call))
            yield Payload(b"mine")

    async with afflux.serve("mem://gone", Demo()) as server, afflux.connect(server.uri) as peer:
        stream = afflux.wrap(peer, Keeps()).stream(b"2")
        assert [item.data async for item in stream] == [b"mine"]
        with pytest.raises(RuntimeError, match="the stream is closed"):
            kept[0]()


async def test_what_a_handler_may_return_for_a_stream(uri: str) -> None:
    class Handler:
        async def stream(self, payload: Payload) -> Any:
            match payload.data:
                case b"none":
                    return None
                case b"list":
                    return [b"a", [b"b", "c"], Payload(b"d")]
                case b"lists":
                    return self.lists()
                case b"generator":
                    return (item for item in (b"a", b"b"))

        async def lists(self) -> AsyncIterator[Any]:
            yield [b"a", b"b"]
            yield b"c"

        def request(self, payload: Payload) -> str:
            return "not async"

    async with afflux.serve(uri, afflux.wrap(Handler(), Log())) as server, afflux.connect(server.uri) as peer:
        for asked, items in (("none", ""), ("list", "abcd"), ("lists", "abc"), ("generator", "ab")):
            assert "".join([item.text async for item in peer.stream(asked)]) == items
        assert (await peer.request(b"")).text == "not async"


async def test_items_that_were_replaced_also_come_in_batches(uri: str) -> None:
    class Handler:
        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            async for batch in items.batches():
                yield b"%d" % len(batch) + batch[0].data

    class Iterates(Middleware):
        def channel(self, call: Call, next: Any) -> Any:
            class Items:
                def __aiter__(self) -> Any:
                    return self

                async def __anext__(self) -> Any:
                    return await anext(call.items)

            return next(call.replace(items=Items()))

    for part in (Stamp(), Iterates()):
        async with afflux.serve(uri, afflux.wrap(Handler(), part)) as server, afflux.connect(server.uri) as peer:
            async with peer.channel([b"a", b"b"]) as items:
                found = [item.data for item in [item async for item in items]]
            assert found in ([b"1<a>", b"1<b>"], [b"1a", b"1b"])


def test_attributes_of_a_method_are_preserved() -> None:
    async def stream(payload: Payload) -> AsyncIterator[bytes]:
        yield b""

    stream.replays = True  # type: ignore[attr-defined] # what a journal asks for
    handler = type("Handler", (), {"other": 5})()
    handler.stream = stream
    wrapped: Any = afflux.wrap(handler, Log())
    assert (wrapped.stream.replays, wrapped.other) == (True, 5)
    assert wrapped.stream is not stream


async def test_the_items_of_a_channel_can_be_replaced_and_still_have_a_route(uri: str) -> None:
    router = Router()

    @router.channel("twice.{tag}")
    async def twice(items: AsyncIterator[Payload], tag: str) -> AsyncIterator[bytes]:
        async for item in items:
            yield tag.encode() + item.data * 2
            if item.data == b"<stop":
                await items.aclose()  # type: ignore[attr-defined] # a generator has it
                return

    for wrapped in (afflux.wrap(router, Stamp()), afflux.wrap(router, Log(), Stamp(), Log())):
        async with afflux.serve(uri, wrapped) as server, afflux.connect(server.uri) as peer:
            async with peer.channel([b"a", b"b"], route="twice.t") as items:
                assert [item.data async for item in items] == [b"t<a<a>", b"t<b<b>"]
            async with peer.channel([b"stop", b"b"], route="twice.t") as items:
                assert [item.data async for item in items] == [b"t<stop<stop>"]


async def test_a_handler_without_a_connection_has_no_peer() -> None:
    log = Log()
    handler: Any = afflux.wrap(Demo(), log)
    assert await handler.request(Payload(b"a")) == Payload(b"a")
    assert log.calls[0].peer is None


# At a router.


def echo_router(*middleware: Middleware, **options: Any) -> Router:
    router = Router(middleware=middleware)

    @router.request("echo.{x}", **options)
    async def echo(payload: Payload, x: str) -> bytes:
        return payload.data + x.encode()

    @router.stream("count", **options)
    async def count(payload: Payload) -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number

    @router.channel("back", **options)
    async def back(items: AsyncIterator[Payload]) -> AsyncIterator[Payload]:
        async for item in items:
            yield item

    @router.fire("log", **options)
    async def log(payload: Payload) -> None: ...

    @router.request("free")
    async def free(payload: Payload) -> bytes:
        return b"free"

    @router.push
    async def push(metadata: bytes) -> None: ...

    return router


async def test_what_a_middleware_sees_at_a_router(uri: str) -> None:
    inner = Log()
    log = Log()
    router = echo_router(log, middleware=[inner])
    async with afflux.serve(uri, router) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"a", route="echo.b")).data == b"ab"
        assert [item.data async for item in peer.stream(route="count")] == [b"0", b"1", b"2"]
        async with peer.channel([b"a"], route="back") as items:
            assert [item.data async for item in items] == [b"a"]
        await peer.fire(route="log")
        await peer.request(route="free")
        await peer.push(b"pushed")
        with pytest.raises(afflux.Rejected, match='no route "nope" for request'):
            await peer.request(route="nope")
        with pytest.raises(afflux.Rejected, match='no route "nope" for stream'):
            await anext(peer.stream(route="nope"))
        async with peer.channel([b"a"], route="nope") as items:
            with pytest.raises(afflux.Rejected, match='no route "nope" for channel'):
                await anext(items)
        with pytest.raises(afflux.Invalid, match="cannot be read"):
            await peer.request(b"", metadata=b"\xfe\x00\x00\x50x")
        known = [(call.verb, call.route, call.pattern, dict(call.places)) for call in log.calls]
        assert known == [
            ("request", "echo.b", "echo.{x}", {"x": "b"}),
            ("stream", "count", "count", {}),
            ("channel", "back", "back", {}),
            ("fire", "log", "log", {}),
            ("request", "free", "free", {}),
            ("push", None, "", {}),
            ("request", "nope", None, {}),
            ("stream", "nope", None, {}),
            ("channel", "nope", None, {}),
            ("request", None, None, {}),
        ]
        assert [call.verb for call in inner.calls] == ["request", "stream", "channel", "fire"]
        assert log.calls[2].items.first == Payload(b"a", compose(route="back"))
        assert all(call.peer is server.connections[0] for call in log.calls)


async def test_middleware_around_a_router_sees_its_patterns_too() -> None:
    log = Log()
    handler = afflux.wrap(afflux.wrap(echo_router(), Middleware()), log)
    async with afflux.serve("mem://around", handler) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"a", route="echo.b")
        with pytest.raises(afflux.Rejected):
            await peer.request(route="nope")
        with pytest.raises(afflux.Invalid):
            await peer.request(b"", metadata=b"\xfe\x00\x00\x50x")
        await peer.push(b"pushed")
        await peer.request(route="free")
        assert [(call.route, call.pattern) for call in log.calls] == [
            ("echo.b", "echo.{x}"),
            ("nope", None),
            (None, None),
            (None, ""),
            ("free", "free"),
        ]


async def test_middleware_may_choose_a_place() -> None:
    class Other(Middleware):
        async def request(self, call: Call, next: Any) -> Any:
            return await next(call.replace(places={**call.places, "x": "other"}))

    async with afflux.serve("mem://place", echo_router(middleware=[Other()])) as server:
        async with afflux.connect(server.uri) as peer:
            assert (await peer.request(b"a", route="echo.b")).data == b"aother"


# Mistakes.


def test_what_is_no_observer() -> None:
    """Each of these would count nothing, and say so in the log at most."""
    for module in ("afflux.otel", "afflux.prometheus"):
        with pytest.raises(TypeError, match=r"observer\(\) returns the observer, so call it: Metrics\(observer\(\)\)"):
            Metrics(importlib.import_module(module).observer)
    with pytest.raises(TypeError, match=r'routes= is a list of routes, such as \["prices\.\{symbol\}"\], not \'prices'):
        Metrics(print, routes="prices")


def test_what_is_no_middleware() -> None:
    with pytest.raises(TypeError, match=r"a middleware must be an instance: write Log\(…\)"):
        afflux.wrap(Demo(), Log)  # type: ignore[arg-type] # what a user may do
    with pytest.raises(TypeError, match="a middleware must be an instance of a subclass of afflux"):
        afflux.wrap(Demo(), 5)  # type: ignore[arg-type] # what a user may do
    with pytest.raises(TypeError, match="not <class 'int'>"):
        Router(middleware=[int])  # type: ignore[list-item] # what a user may do


def test_what_can_not_be_wrapped() -> None:
    with pytest.raises(TypeError, match="a handler has at least one of the methods"):
        afflux.wrap(object(), Log())
    from afflux.sync.peer import Peer

    with pytest.raises(TypeError, match="middleware requires asyncio"):
        afflux.wrap(Peer.__new__(Peer), Log())


def test_a_wrapped_handler_has_the_verbs_of_the_handler() -> None:
    handler: Any = afflux.wrap(Waits(), Log())
    assert [hasattr(handler, verb) for verb in ("request", "fire", "stream", "channel", "push")] == [True] * 3 + [
        False
    ] * 2
    with pytest.raises(AttributeError, match="has no 'channel'"):
        handler.channel  # noqa: B018 -- on purpose


# Limit.


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("side", ["peer", "handler"])
async def test_at_most_so_many_calls_of_any_verb(uri: str, side: str) -> None:
    waits = Waits()
    limit = Limit(concurrent=2, name="this test")
    handler = afflux.wrap(waits, limit) if side == "handler" else waits
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, limit) if side == "peer" else peer
        first = asyncio.create_task(wrapped.request(b"a"))
        assert await waits.entered.get() == "request"
        stream = wrapped.stream(b"")
        await anext(stream)
        assert await waits.entered.get() == "stream"
        with pytest.raises(afflux.Rejected, match=r'this test: too many concurrent calls \(limit "concurrent"\)'):
            await wrapped.request(b"")
        with pytest.raises(afflux.Rejected, match="too many concurrent calls"):
            await anext(wrapped.stream(b""))
        await stream.aclose()
        assert await waits.left.get() == "stream canceled"
        second = asyncio.create_task(wrapped.request(b"b"))
        assert await waits.entered.get() == "request"
        first.cancel()
        assert await waits.left.get() == "request canceled"
        waits.go.set()
        assert (await second).data == b"b"
        assert (await wrapped.request(b"c")).data == b"c"


async def test_so_many_calls_in_a_time() -> None:
    clock = Clock()
    limit = Limit(rate=(1, 0.25), clock=clock)
    demo = Demo()
    async with afflux.serve("mem://rate", demo) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, limit)
        await wrapped.fire(b"1")
        for call in (wrapped.fire(b"2"), wrapped.request(b""), anext(wrapped.channel([b"a"]))):
            with pytest.raises(afflux.Rejected, match=r'all calls: too many calls per second \(limit "rate"\)'):
                await call
        clock.now += 4
        await wrapped.fire(b"3")
        assert [(await demo.fired.get()).data for _ in range(2)] == [b"1", b"3"]
        clock.now += 4
        async with wrapped.channel([b"a"]) as items:
            assert [item.data async for item in items] == [b"a"]


# Metrics.


class Watch:
    """An observer, and a clock that goes on by one with each look."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[Observation] = asyncio.Queue()
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now

    def metrics(self, **options: Any) -> Metrics:
        return Metrics(self.seen.put_nowait, clock=self, **options)

    async def short(self) -> tuple[Any, ...]:
        seen = await self.seen.get()
        return seen.verb, seen.route, seen.outcome, seen.code, seen.items


@pytest.mark.parametrize("side", ["router", "peer"])
async def test_what_came_of_each_call(uri: str, side: str) -> None:
    watch = Watch()
    metrics = watch.metrics(routes=["echo.{x}", "count", "back", "log"] if side == "peer" else ())
    router = echo_router(*([metrics] if side == "router" else []))
    async with afflux.serve(uri, router) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, metrics) if side == "peer" else plain
        await peer.request(b"a", route="echo.b")
        assert await watch.seen.get() == Observation(
            verb="request",
            route="echo.{x}",
            outcome="ok",
            code=None,
            seconds=1.0,
            items=1,
            protocol="rsocket",
            outbound=side == "peer",
        )
        [_ async for _ in peer.stream(route="count")]
        assert await watch.short() == ("stream", "count", "ok", None, 3)
        async with peer.channel([b"a", b"b"], route="back") as items:
            assert len([item async for item in items]) == 2
        assert await watch.short() == ("channel", "back", "ok", None, 2)
        await peer.fire(route="log")
        assert await watch.short() == ("fire", "log", "ok", None, 0)
        await peer.push(b"p")
        assert await watch.short() == ("push", "", "ok", None, 0)
        for route, label in (("a stranger's text", "other"), (None, "")):
            with pytest.raises(afflux.Rejected):
                await peer.request(route=route)
            code = 0x202 if side == "peer" else None
            assert await watch.short() == ("request", label, "REJECTED", code, 0)


async def test_a_stream_that_is_left_early_is_canceled_and_counted(uri: str) -> None:
    server_watch, client_watch = Watch(), Watch()
    handler = afflux.wrap(Demo(), server_watch.metrics())
    async with afflux.serve(uri, handler) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, client_watch.metrics())
        stream = wrapped.stream(b"1000000000", credit=4)
        for _ in range(3):
            await anext(stream)
        await stream.aclose()
        assert await client_watch.short() == ("stream", "", "canceled", None, 3)
        verb, route, outcome, code, items = await server_watch.short()
        assert (verb, route, outcome, code) == ("stream", "", "canceled", None)
        assert 3 <= items <= 8
        await wrapped.stream(b"5").aclose()  # never begun: never asked
        assert client_watch.seen.empty()


async def test_a_request_that_is_given_up_is_canceled(uri: str) -> None:
    watch, waits = Watch(), Waits()
    async with afflux.serve(uri, afflux.wrap(waits, watch.metrics())) as server, afflux.connect(server.uri) as peer:
        call = asyncio.create_task(peer.request(b""))
        await waits.entered.get()
        call.cancel()
        assert await watch.short() == ("request", "", "canceled", None, 0)
        stream = peer.stream(b"")
        await anext(stream)
        await waits.entered.get()
        stream.cancel()
        assert await watch.short() == ("stream", "", "canceled", None, 1)


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (afflux.Rejected("x"), "REJECTED", None),
        (afflux.Canceled("x"), "CANCELED", None),
        (afflux.Invalid("x"), "INVALID", None),
        (afflux.ApplicationError(0x444, "x"), "APPLICATION_ERROR", 0x444),
        (afflux.ConnectFailed("x"), "CONNECTION_CLOSED", None),
        (afflux.LeaseExpired("x"), "LEASE_EXPIRED", None),
        (afflux.LimitExceeded("x"), "LIMIT_EXCEEDED", None),
        (afflux.LocalProtocolError("x"), "PROTOCOL_ERROR", None),
        (afflux.Unsupported("x"), "UNSUPPORTED", None),
        (ValueError("x"), "APPLICATION_ERROR", None),
    ],
)
async def test_the_names_of_errors(error: Exception, outcome: str, code: int | None) -> None:
    watch = Watch()
    metrics = watch.metrics()

    async def fails(call: Call) -> Payload | None:
        raise error

    async def fails_late(call: Call) -> AsyncIterator[Payload]:
        yield Payload()
        raise error

    with pytest.raises(type(error)):
        await metrics.request(Call(verb="request"), fails)
    assert await watch.short() == ("request", "", outcome, code, 0)
    with pytest.raises(type(error)):
        async for _ in metrics.stream(Call(verb="stream", route="x"), fails_late):
            pass
    assert await watch.short() == ("stream", "other", outcome, code, 1)


async def test_an_observer_that_raises_harms_no_call(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    def observer(seen: Observation) -> None:
        raise ValueError("a bug")

    with caplog.at_level(logging.ERROR, "afflux"):
        async with afflux.serve(uri, afflux.wrap(Demo(), Metrics(observer))) as server:
            async with afflux.connect(server.uri) as peer:
                for _ in range(3):
                    assert (await peer.request(b"a")).data == b"a"
    assert [record.message for record in caplog.records] == ["afflux: an observer of metrics raised; logged once"]


# Retry.


class Busy:
    """Refuses the first requests."""

    def __init__(self, times: int, error: Callable[[], Exception] = lambda: afflux.Rejected("busy")) -> None:
        self.times = times
        self.error = error
        self.asked = 0

    async def request(self, payload: Payload) -> Payload:
        self.asked += 1
        if self.asked <= self.times:
            raise self.error()
        return payload


class Naps:
    """A sleep that takes no time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_a_request_that_was_refused_is_asked_again(uri: str) -> None:
    busy, naps, log = Busy(3), Naps(), Log()
    retry = Retry(3, Backoff(first=0.5, most=1.5, jitter=0), sleep=naps)
    async with afflux.serve(uri, busy) as server, afflux.connect(server.uri) as peer:
        assert (await afflux.wrap(peer, retry, log).request(b"a")).data == b"a"
    assert busy.asked == 4
    assert naps.seconds == [0.5, 1.0, 1.5]
    assert [call.notes["attempt"] for call in log.calls] == [4, 4, 4, 4]  # one note, which goes on


@pytest.mark.parametrize(("times", "tries", "asked"), [(0, None, 1), (2, None, 3), (5, 2, 3)])
async def test_it_is_not_asked_again_for_ever(uri: str, times: int, tries: int | None, asked: int) -> None:
    busy, naps = Busy(1000), Naps()
    retry = Retry(times, Backoff(tries=tries), sleep=naps)
    async with afflux.serve(uri, busy) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Rejected, match="busy") as caught:
            await afflux.wrap(peer, retry).request(b"a")
    assert busy.asked == asked
    assert len(naps.seconds) == asked - 1
    assert getattr(caught.value, "__notes__", []) == ([f"after {asked} attempts"] if asked > 1 else [])


async def test_the_jitter_comes_from_what_is_passed_in() -> None:
    naps: list[list[float]] = []
    for _ in range(2):
        nap = Naps()
        retry = Retry(5, Backoff(first=1, most=8, jitter=0.5), random=Random(7), sleep=nap)

        async def refuse(call: Call) -> Payload | None:
            raise afflux.Rejected("busy")

        with pytest.raises(afflux.Rejected):
            await retry.request(Call(verb="request"), refuse)
        naps.append(nap.seconds)
    assert naps[0] == naps[1]
    assert all(most / 2 <= nap <= most for nap, most in zip(naps[0], (1, 2, 4, 8, 8), strict=True))


MAYBE_PROCESSED = [
    lambda: afflux.Canceled("given up"),
    lambda: afflux.Invalid("what?"),
    lambda: afflux.ApplicationError(0x301, "no"),
    lambda: ValueError("a bug"),
]


@pytest.mark.parametrize("error", MAYBE_PROCESSED)
async def test_what_may_have_been_processed_is_not_asked_again(uri: str, error: Any) -> None:
    busy, naps = Busy(1, error), Naps()
    async with afflux.serve(uri, busy) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Error):
            await afflux.wrap(peer, Retry(sleep=naps)).request(b"a")
    assert busy.asked == 1
    assert naps.seconds == []


async def test_unless_it_may_be_processed_twice(uri: str) -> None:
    busy, naps = Busy(2, MAYBE_PROCESSED[0]), Naps()
    async with afflux.serve(uri, busy) as server, afflux.connect(server.uri) as peer:
        assert (await afflux.wrap(peer, Retry(idempotent=True, sleep=naps)).request(b"a")).data == b"a"
        busy.asked, busy.error = 0, MAYBE_PROCESSED[2]
        with pytest.raises(afflux.ApplicationError):
            await afflux.wrap(peer, Retry(idempotent=True, sleep=naps)).request(b"a")
        on = (afflux.ApplicationError,)
        assert (await afflux.wrap(peer, Retry(idempotent=True, on=on, sleep=naps)).request(b"a")).data == b"a"


async def test_a_connection_that_is_over_is_not_asked_again(uri: str) -> None:
    naps = Naps()
    async with afflux.serve(uri, Waits()) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, Retry(idempotent=True, sleep=naps))
        call = asyncio.create_task(wrapped.request(b""))
        await turns()
        await peer.close()
        with pytest.raises(afflux.ConnectionClosed):
            await call
        with pytest.raises(afflux.ConnectionClosed):
            await wrapped.request(b"")
    assert naps.seconds == []


async def test_a_connection_that_comes_back_is_asked_again(uri: str) -> None:
    waits, naps = Waits(), Naps()
    again = Backoff(first=0, jitter=0)
    async with afflux.serve(uri, waits) as server, afflux.connect(server.uri, reconnect=again) as peer:
        wrapped = afflux.wrap(peer, Retry(1, idempotent=True, sleep=naps))
        call = asyncio.create_task(wrapped.request(b"a"))
        await waits.entered.get()
        await server.connections[0].close()
        assert await waits.left.get() == "request canceled"
        assert await waits.entered.get() == "request"
        waits.go.set()
        assert (await call).data == b"a"
    assert len(naps.seconds) == 1


def test_retries_that_can_not_be() -> None:
    with pytest.raises(ValueError, match="after Canceled the request may have been processed: pass idempotent=True"):
        Retry(on=(afflux.Canceled,))
    with pytest.raises(ValueError, match="always safe: Rejected, LeaseExpired, ConnectFailed"):
        Retry(on=(afflux.Error,))
    with pytest.raises(TypeError, match="on must contain error classes of afflux, not <class 'ValueError'>"):
        Retry(on=(ValueError,))  # type: ignore[arg-type] # what a user may do
    for times in (-1, 101, 1.5):
        with pytest.raises(ValueError, match="times must be 0 to 100 retries"):
            Retry(times)  # type: ignore[arg-type] # what a user may do
