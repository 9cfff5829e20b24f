"""Arguments of a wrong type: an error at the call that names the argument and what would be right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.testing import run

URI = "mem://arguments"


class Echo:
    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"


SECONDS = "is a number of seconds, not '5'"
BACKOFF = "is True, False or an afflux.Backoff, not"
LIMITS = "limits= is an afflux.Limits, such as afflux.Limits.server(payload_bytes=16 << 20), not 5"
POLICY = "lease= is a policy such as afflux.FixedLease(100, ttl=1)"

SHARED = {
    "limits": (5, LIMITS),
    "timeout": ("5", f"timeout= {SECONDS}"),
    "keepalive": ("5", f"keepalive= {SECONDS}"),
    "lifetime": ("5", f"lifetime= {SECONDS}"),
    "lease_wait": ("5", f"lease_wait= {SECONDS}"),
    "reconnect": ("x", f"reconnect= {BACKOFF} 'x'"),
    "resume": (5, f"resume= {BACKOFF} 5"),
    "metadata_mime": (5, "metadata_mime= is text, such as 'application/json', not 5"),
    "data_mime": (b"x", "data_mime= is text, such as 'application/json', not b'x'"),
    "mtu": (True, "mtu= is a whole number of bytes, not True"),
}
CONNECT = SHARED | {
    "lease": (5, f"{POLICY}, or at a client True, not 5"),
    "extensions": (5, "extensions= is a mapping of extended types or names to functions, not 5"),
    "store": (5, "store= is the path of a file, not 5"),
}
SERVE = {
    "limits": (5, LIMITS),
    "on_setup": (5, "on_setup= is a function of the setup and the peer, not 5"),
    "credit": ("5", "credit= is a whole number of items, or \"auto\", not '5'"),
    "lease": (True, f"{POLICY}, not True"),
    "resume": ("x", "resume= is True or False at a server, not 'x'"),
    "reuse_port": ("x", "reuse_port= is True or False, not 'x'"),
    "list_routes": ("x", "list_routes= is True or False, not 'x'"),
}


@pytest.mark.parametrize("name", CONNECT)
def test_connect(name: str) -> None:
    value, told = CONNECT[name]
    with pytest.raises(TypeError) as caught:
        afflux.connect("tcp://h:1", **{name: value})
    assert str(caught.value) == told


@pytest.mark.parametrize("name", SHARED)
def test_connect_blocking(name: str) -> None:
    value, told = SHARED[name]
    with pytest.raises(TypeError) as caught:
        afflux.sync.connect("tcp://127.0.0.1:1", **{name: value})
    assert str(caught.value) == told


@pytest.mark.parametrize("name", SERVE)
def test_serve(name: str) -> None:
    value, told = SERVE[name]
    with pytest.raises(TypeError) as caught:
        afflux.serve("tcp://127.0.0.1:0", Echo(), **{name: value})
    assert str(caught.value) == told


def test_a_long_value_is_named_by_its_type() -> None:
    with pytest.raises(TypeError, match=r", not bytes$"):
        afflux.connect("tcp://h:1", data_mime=b"x" * 1000)  # type: ignore[arg-type]


def test_a_time_below_0() -> None:
    with pytest.raises(ValueError, match=r"^timeout= is a number of seconds, 0 or more, not -1$"):
        afflux.connect("tcp://h:1", timeout=-1)


def test_tls_settings() -> None:
    with pytest.raises(
        TypeError, match=r"^tls= is an afflux\.Tls, such as afflux\.Tls\(ca='ca\.pem'\), not 'ca\.pem'$"
    ):
        afflux.connect("tls://h:1", tls="ca.pem")  # type: ignore[arg-type]


async def plain(payload: afflux.Payload) -> bytes:
    return b""


class Yields:
    async def request(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b""


class YieldsOnFire:
    async def fire(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b""


VERBS = "a handler has at least one of the methods request, fire, stream, channel, push, session; "
SEVERAL = "; several items are a stream or a channel"


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (None, "a server needs a handler: an object with methods such as request or stream, or an afflux.Router"),
        (plain, f"{VERBS}plain is a function: add it to an afflux.Router"),
        (5, f"{VERBS}5 has none"),
        (afflux.Router(), f"{VERBS}<Router: no routes> has no functions yet: add them before it is served"),
        (afflux.Router, "a handler is an object, not its class: pass Router(), not Router"),
        (Yields(), f"Yields.request yields, but request has one answer, so return it{SEVERAL}"),
        (YieldsOnFire(), f"YieldsOnFire.fire yields, but fire has no answer, so yield nothing{SEVERAL}"),
    ],
)
def test_a_handler(handler: object, told: str) -> None:
    with pytest.raises(TypeError) as caught:
        afflux.serve("tcp://127.0.0.1:0", handler)
    assert str(caught.value) == told


async def items(payload: afflux.Payload) -> AsyncIterator[bytes]:
    yield b""


MIDDLEWARE = "middleware= is a list of instances of subclasses of afflux.Middleware, not 5"
PUSH = "the argument of push is a function (push has no routes: write @router.push), not 'x'"


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda: afflux.Router(middleware=5), MIDDLEWARE),  # type: ignore[arg-type]
        (lambda: afflux.Router().request("a", middleware=5)(plain), MIDDLEWARE),  # type: ignore[typeddict-item]
        (lambda: afflux.Router().push("x"), PUSH),  # type: ignore[type-var]
        (lambda: afflux.Router().push(items), f"items yields, but push has no answer, so yield nothing{SEVERAL}"),
        (
            lambda: afflux.Router().request("a")(items),
            f'request "a", items: items yields, but request has one answer, so return it{SEVERAL}',
        ),
    ],
)
def test_a_router(mistake: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        mistake()
    assert str(caught.value) == told


GRANT = "the grant of request() is a whole number of items, not"
CREDIT = 'credit= is a whole number of items, or "auto", not'
MAPPING = "metadata must be bytes, an entry or several entries, not dict"
CURSOR = "cursor= is an entry of afflux.journal, such as Read(first=500), not 5"

PAYLOAD = "a payload is bytes, text or afflux.Payload, not"

CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda peer: peer.request(b"", route=5), "route= is text, such as 'prices.eu', not 5"),
    (lambda peer: peer.request(b"", route=b"x"), "route= is text, such as 'prices.eu', not b'x'"),
    (lambda peer: peer.request(bytearray(), route=b"x"), "route= is text, such as 'prices.eu', not b'x'"),
    (lambda peer: peer.request(b"", metadata={"a": 1}), MAPPING),
    (lambda peer: peer.request(b"", cursor=5), CURSOR),
    (lambda peer: peer.stream(credit="5"), f"{CREDIT} '5'"),
    (lambda peer: peer.stream(credit=True), f"{CREDIT} True"),
    (lambda peer: peer.stream(credit=None), f"{CREDIT} None"),
    (lambda peer: peer.stream(credit=0).request("1"), f"{GRANT} '1'"),
    (lambda peer: peer.stream(credit=0).request(1.5), f"{GRANT} 1.5"),
    (lambda peer: peer.stream(credit=0).request(True), f"{GRANT} True"),
]
ASYNC = [
    (lambda peer: list(peer.stream()), 'ItemStream is asynchronous: write "async for", in an async function'),
    (lambda peer: list(peer.channel([])), 'Channel is asynchronous: write "async for", in an async function'),
    (lambda peer: peer.stream(), 'ItemStream is not one answer, which can be awaited, but items: write "async for"'),
    (lambda peer: peer.channel([]), 'Channel is not one answer, which can be awaited, but items: write "async for"'),
    (
        lambda peer: peer.request(peer.stream()),
        f"{PAYLOAD} ItemStream: a method that yields several items is a stream or a channel",
    ),
    (lambda peer: peer.close(drain="5"), "drain= is True, False or a number of seconds, not '5'"),
]


@pytest.mark.parametrize(("mistake", "told"), [*CALLS, *ASYNC])
def test_a_call(mistake: Callable[[Any], Any], told: str) -> None:
    async def main() -> str:
        async with afflux.serve(URI, Echo()) as server, afflux.connect(server.uri) as peer:
            with pytest.raises(TypeError) as caught:
                made = mistake(peer)
                if hasattr(made, "__await__"):
                    await made
            assert (await peer.request(b"still")).data == b"still"
        return str(caught.value)

    assert run(main()) == told


@pytest.mark.parametrize(("mistake", "told"), CALLS)
async def test_a_blocking_call(mistake: Callable[[Any], Any], told: str) -> None:
    def ask(uri: str) -> str:
        with afflux.sync.connect(uri) as peer:
            with pytest.raises(TypeError) as caught:
                mistake(peer)
            assert peer.request(b"still").data == b"still"
        return str(caught.value)

    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        assert await asyncio.to_thread(ask, server.uri) == told


async def test_with_where_async_with_is_right() -> None:
    async with afflux.serve(URI, Echo()) as server, afflux.connect(server.uri) as peer:
        for one in (afflux.serve(URI, Echo()), afflux.connect(URI), peer, peer.stream()):
            name = type(one).__name__
            told = f'^{name} is asynchronous: write "async with", in an async function$'
            with pytest.raises(TypeError, match=told), one:
                pytest.fail(f"{name} was entered")


async def test_mistakes_before_the_import_of_the_rest() -> None:
    from afflux.aio.starting import Starting

    starting = Starting("connect", lambda name: getattr(afflux, name), "tcp://h:1")
    with pytest.raises(TypeError, match=r'^Connecting is asynchronous: write "async with"'), starting:
        pytest.fail("it was entered")
    for connecting in (starting, afflux.connect("tcp://h:1")):
        with pytest.raises(TypeError, match=NO_ITEMS):
            list(connecting)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=NO_ITEMS):
            [_ async for _ in connecting]


NO_ITEMS = r'^a connection has no items: write "async with afflux\.connect\(…\) as peer", then "peer\.stream\(…\)"$'


async def test_other_objects_that_need_async_with(tmp_path: Path) -> None:
    from afflux.testing import Proxy

    class Passing(afflux.Middleware):
        async def request(self, call: Any, next: Any) -> Any:
            return await next(call)

    relaying = afflux.relay("tcp://h:1", journal=tmp_path / "j", listen="tcp://127.0.0.1:0")
    async with afflux.serve(URI, Echo()) as server, afflux.connect(server.uri) as peer:
        wrapped = afflux.wrap(peer, Passing())
        for one in (Proxy("tcp://h:1"), relaying, wrapped):
            told = f'^{type(one).__name__} is asynchronous: write "async with", in an async function$'
            with pytest.raises(TypeError, match=told), one:
                pytest.fail("it was entered")


async def test_a_blocking_client_is_not_awaited() -> None:
    blocks = r"of afflux\.sync blocks: {}, or connect with afflux\.connect in an async function$"

    async def mistakes(uri: str) -> None:
        with afflux.sync.connect(uri) as peer:
            with pytest.raises(TypeError, match="^Peer " + blocks.format('omit "await"')):
                await peer  # type: ignore[misc]
            with pytest.raises(TypeError, match="^Peer " + blocks.format('write "with"')):
                async with peer:  # type: ignore[attr-defined]
                    pytest.fail("it was entered")
            with pytest.raises(TypeError, match="^ItemStream " + blocks.format('write "for"')):
                [_ async for _ in peer.stream()]  # type: ignore[attr-defined]
            with pytest.raises(TypeError, match="^ItemStream " + blocks.format('write "with"')):
                async with peer.stream():  # type: ignore[attr-defined]
                    pytest.fail("it was entered")

    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        await asyncio.to_thread(asyncio.run, mistakes(server.uri))


async def test_a_handler_may_return_the_items_of_another_stream() -> None:
    """They cannot be awaited, and are not."""

    class Passing:
        async def stream(self, payload: afflux.Payload) -> Any:
            return peer.stream(payload)

        def channel(self, items: Any) -> Any:
            return peer.stream(b"3")

    class Three:
        async def stream(self, payload: afflux.Payload) -> Any:
            return [b"0", b"1", b"2"]

    server, other = afflux.serve(URI, Three()), afflux.serve("mem://passing", Passing())
    async with server, other, afflux.connect(URI) as peer, afflux.connect("mem://passing") as client:
        assert [item.data async for item in client.stream()] == [b"0", b"1", b"2"]
        assert [item.data async for item in client.channel([b"x"])] == [b"0", b"1", b"2"]
