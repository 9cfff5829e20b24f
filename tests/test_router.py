"""Routes: which function is found, what it is given, and what is said when there is none."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Any, Literal, TypedDict
from uuid import UUID

import pytest

import afflux
from afflux import Call, Payload, Router, codecs
from afflux.middleware import RouteLimits
from afflux.protocols.rsocket.metadata import Entries, compose


def routed(route: str | None, data: bytes = b"") -> Payload:
    return Payload(data, None if route is None else compose(route=route))


def test_the_route_of_a_payload() -> None:
    assert afflux.route_of(routed("prices.eur")) == "prices.eur"
    assert afflux.route_of(routed("x" * 255)) == "x" * 255
    assert afflux.route_of(Payload(b"")) is None
    assert afflux.route_of(Payload(b"", b"")) is None


def test_metadata_that_is_not_composite_is_invalid() -> None:
    with pytest.raises(afflux.Invalid, match="cannot be read"):
        afflux.route_of(Payload(b"", b"\xfe\x00\x00\x50x"))


@pytest.fixture
def router() -> Router:
    router = Router()

    @router.request("a.{x}")
    def pattern(payload: Payload, x: str) -> str:
        return f"pattern {x}"

    @router.request("a.b")
    def exact(payload: Payload) -> str:
        return "exact"

    @router.request("a.{x}.{y}")
    def two(payload: Payload, x: str, y: str) -> str:
        return f"two {x} {y}"

    @router.request("deep.{rest...}")
    def deep(payload: Payload, rest: str) -> str:
        return f"deep {rest}"

    return router


@pytest.mark.parametrize(
    ("route", "answer"),
    [
        ("a.b", "exact"),
        ("a.c", "pattern c"),
        ("a.c.d", "two c d"),
        ("deep.one.two", "deep one two".replace("one two", "one.two")),
    ],
)
def test_the_function_for_a_route(router: Router, route: str, answer: str) -> None:
    handler: object = router.as_handler()
    assert handler.request(routed(route)) == answer  # type: ignore[attr-defined] # its verbs depend on the router


def test_a_router_has_the_verbs_that_have_functions(router: Router) -> None:
    handler = router.as_handler()
    assert hasattr(handler, "request")
    assert not any(hasattr(handler, verb) for verb in ("fire", "stream", "channel", "push"))


def test_no_route_and_no_function_is_rejected_by_name(router: Router) -> None:
    handler = router.as_handler()
    for route, words in (("nowhere", 'no route "nowhere" for request'), (None, "request needs a route")):
        with pytest.raises(afflux.Rejected, match=words):
            handler.request(routed(route))  # type: ignore[attr-defined] # as above


def test_a_function_without_a_route_takes_the_rest(router: Router) -> None:
    router.request()(lambda payload: "rest")
    handler = router.as_handler()
    assert handler.request(routed("nowhere")) == "rest"  # type: ignore[attr-defined] # as above
    assert handler.request(routed(None)) == "rest"  # type: ignore[attr-defined] # as above


def test_a_route_has_one_function(router: Router) -> None:
    with pytest.raises(ValueError, match=r'request "a\.b" already has a function'):
        router.request("a.b")(lambda payload: None)
    router.push(lambda metadata: None)
    with pytest.raises(ValueError, match="push already has a function"):
        router.push(lambda metadata: None)


def test_a_decorator_needs_its_parentheses() -> None:
    router = Router()
    with pytest.raises(TypeError, match=r"write @router.stream\(\)"):

        @router.stream  # type: ignore[arg-type] # what a user may do
        async def items(payload: Payload) -> AsyncIterator[bytes]:
            yield b""


@pytest.mark.parametrize("route", ["a.{}", "a.{x y}", "a.{x", "{x...}.b"])
def test_braces_hold_a_name(route: str) -> None:
    with pytest.raises(ValueError, match="do not enclose a name"):
        Router().request(route)(lambda payload: None)


def test_a_place_may_stand_once() -> None:
    with pytest.raises(ValueError):
        Router().request("{x}.{x}")(lambda payload: None)


def test_the_routes_can_be_listed(router: Router) -> None:
    assert router.routes == [
        ("request", "a.b"),
        ("request", "a.{x}"),
        ("request", "a.{x}.{y}"),
        ("request", "deep.{rest...}"),
    ]


async def test_the_verbs_over_a_connection() -> None:
    router = Router()
    fired: list[bytes] = []

    @router.request("echo")
    async def echo(payload: Payload) -> bytes:
        return payload.data

    @router.stream("count.{n}")
    async def count(payload: Payload, n: str) -> AsyncIterator[bytes]:
        for i in range(int(n)):
            yield str(i).encode()

    @router.channel("twice.{tag}")
    async def twice(items: AsyncIterator[Payload], tag: str) -> AsyncIterator[bytes]:
        async for item in items:
            yield tag.encode() + item.data * 2

    @router.fire("log")
    async def log(payload: Payload) -> None:
        fired.append(payload.data)

    async with afflux.serve("mem://router", router) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"x", route="echo")).data == b"x"
        assert [item.data async for item in peer.stream(route="count.3")] == [b"0", b"1", b"2"]
        async with peer.channel([b"a", b"b"], route="twice.t") as items:
            assert [item.data async for item in items] == [b"taa", b"tbb"]
        await peer.fire(b"line", route="log")
        with pytest.raises(afflux.Rejected, match='no route "nope" for stream'):
            async for _ in peer.stream(route="nope"):
                pass
        await peer.request(b"", route="echo")
        assert fired == [b"line"]


# Routes with types.


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (
            "a.{id:integer}",
            'the place "id" of "a.{id:integer}" has the unknown type "integer"; known: str, int, float, bool',
        ),
        ("a.{id:}", "do not enclose a name"),
        ("{rest:path...}", 'has the unknown type "path"'),
    ],
)
def test_a_place_has_a_type_that_there_is(route: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Router().request(route)


def test_a_pattern_has_one_function_too() -> None:
    router = Router()
    router.stream("a.{x}")(lambda payload, x: None)
    with pytest.raises(ValueError, match=r'stream "a\.\{x\}" already has a function'):
        router.stream("a.{x}")(lambda payload, x: None)


def test_options_are_known() -> None:
    with pytest.raises(
        TypeError, match='unknown route option "timout"; known: codec, concurrent, rate, payload_bytes, timeout'
    ):
        Router().request("a", timout=1)  # type: ignore[call-arg] # what a user may do


def test_the_pattern_of_a_route() -> None:
    router = Router()
    router.request("a.{x}")(lambda payload, x: None)
    assert router.pattern("request", "a.b") == "a.{x}"
    assert router.pattern("request", "b") is router.pattern("stream", "a.b") is None
    router.request()(lambda payload: None)
    assert router.pattern("request", "b") == router.pattern("request", None) == ""


# Arguments.


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Order:
    symbol: str
    size: int = 1


class Total(TypedDict):
    total: int


def answered(router: Router, payload: Payload, verb: str = "request") -> Any:
    return getattr(router.as_handler(), verb)(payload)


@pytest.mark.parametrize(
    ("route", "asked", "value"),
    [
        ("a.{x:int}", "a.-5", -5),
        ("a.{x:float}", "a.1e3", 1000.0),
        ("a.{x:bool}", "a.true", True),
        ("a.{x:date}", "a.2026-01-02", date(2026, 1, 2)),
        ("a.{x:str}", "a.5", "5"),
        ("a.{x:uuid}", "a.12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        ("a.{x:float...}", "a.1.5", 1.5),
    ],
)
def test_a_place_with_a_type_in_the_route(route: str, asked: str, value: object) -> None:
    router = Router()
    router.request(route)(lambda payload, x: x)
    router.stream(route)(lambda payload, **places: places["x"])
    for verb in ("request", "stream"):
        found = answered(router, routed(asked), verb)
        assert found == value
        assert type(found) is type(value)


def test_a_place_with_a_type_in_the_function() -> None:
    router = Router()

    @router.request("{side}.{n:int}.{at}.{word}.{kind}")
    def function(payload, side: Side, n: int, at: date | None, word: Any, kind: Literal["a", 1], more: str = "more"):  # type: ignore[no-untyped-def] # the payload is not annotated
        return side, n, at, word, kind, more

    assert answered(router, routed("sell.5.2026-01-02.w.1")) == (Side.SELL, 5, date(2026, 1, 2), "w", 1, "more")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("x.1", "route \"{side}.{n}\": place side: expected Side ('buy' or 'sell'), not 'x'"),
        ("buy.1_0", "route \"{side}.{n}\": place n: expected int, not '1_0'"),
        ("buy.", None),
    ],
)
def test_a_place_that_does_not_convert_is_invalid(asked: str, words: str | None) -> None:
    router = Router()

    @router.request("{side}.{n}")
    def function(payload: Payload, side: Side, n: int) -> None: ...

    with pytest.raises(afflux.Invalid if words else afflux.Rejected) as caught:
        answered(router, routed(asked))
    assert words is None or str(caught.value) == words


async def test_metadata_and_the_peer_are_given_by_type() -> None:
    router = Router()

    @router.request("a.{x}")
    def function(payload: Payload, x: str, entries: afflux.Entries, again: Entries | None = None) -> Any:
        return x, entries.route, entries.get("a/b"), again

    payload = Payload(b"", compose([("a/b", b"c")], route="a.1"))
    assert await answered(router, payload) == ("1", "a.1", b"c", None)

    @router.request("peer")
    def other(payload: Payload, peer: afflux.Peer) -> None: ...

    with pytest.raises(LookupError):
        await answered(router, routed("peer"))  # nobody asks


def test_the_first_parameter_as_bytes() -> None:
    router = Router()

    @router.request("a")
    def data(data: bytes) -> bytes:
        return data + b"!"

    assert answered(router, routed("a", b"x")) == b"x!"


def test_a_function_that_asks_for_nothing_is_called_as_it_is() -> None:
    """The way without types costs nothing: what is called is the function itself."""
    router = Router()

    def plain(payload): ...  # type: ignore[no-untyped-def] # on purpose

    async def annotated(payload: Payload, x: str, extra: int = 1) -> bytes | Payload | str | None: ...

    async def several(payload: object, **places: str) -> AsyncIterator[list[Payload]]:
        yield []

    async def items(items: AsyncIterator[Payload]) -> AsyncIterator[bytes]:
        yield b""

    class Callable:
        def method(self, payload: Payload) -> Awaitable[bytes]: ...

        def __call__(self, payload: Payload, x: str) -> str: ...

    for number, (verb, function) in enumerate(
        [
            ("request", plain),
            ("request", annotated),
            ("request", lambda *arguments, **places: None),
            ("request", Callable().method),
            ("request", Callable()),
            ("request", partial(annotated, extra=5)),
            ("request", dict),
            ("stream", several),
            ("channel", items),
            ("fire", plain),
        ]
    ):
        takes_place = function not in (plain, items) and getattr(function, "__name__", "") != "method"
        route = f"r{number}.{{x}}" if takes_place else f"r{number}"
        getattr(router, verb)(route)(function)
        table = router._tables[verb]
        assert (table.places[-1][2] if takes_place else table.exact[route]).run is function


# Mistakes at registration.


def mistakes() -> list[tuple[str, str, Any, str]]:
    def nothing() -> None: ...
    def by_name(*, payload: Payload) -> None: ...
    def no_place(payload: Payload) -> None: ...
    def place_first(x: str) -> None: ...
    def unknown(payload: Payload, x: str, other: int) -> None: ...
    def unknown_untyped(payload, x, other): ...  # type: ignore[no-untyped-def] # on purpose
    def positional(payload: Payload, x: str, /) -> None: ...
    def no_text(payload: Payload, x: list[int]) -> None: ...
    def other_type(payload: Payload, x: float) -> None: ...
    def no_data(data: complex, x: str) -> None: ...
    def no_data_inside(data: list[dict[str, complex]], x: str) -> None: ...
    def no_name(data: Nowhere, x: str) -> None: ...  # type: ignore[name-defined] # noqa: F821 -- on purpose
    def no_items(items: list[int], x: str) -> None: ...
    def no_item(items: AsyncIterator[complex], x: str) -> None: ...

    return [
        ("request", "a", nothing, "it has no parameter; the first parameter is the payload, or the items of a channel"),
        ("request", "a", by_name, "it has no parameter"),
        ("stream", "a.{x}", no_place, 'the route has the place "x", but there is no parameter x'),
        ("request", "a.{x}", place_first, "the first parameter is the payload, but x is a place"),
        (
            "request",
            "a.{x}",
            unknown,
            "the parameter other has no source; places of the route: x; further types",
        ),
        ("fire", "a.{x}", unknown_untyped, "the parameter other has no source"),
        (
            "request",
            "a",
            partial(unknown, x="1"),
            "the parameter other has no source; places of the route: none",
        ),
        ("request", "a.{x}", positional, "x is passed by name, so it cannot be positional-only"),
        ("request", "a.{x}", no_text, "list[int] has no text form"),
        ("request", "a.{x:int}", other_type, "the place x is int in the route and float in the function"),
        ("request", "a.{x}", no_data, "data cannot be decoded to complex"),
        ("request", "a.{x}", no_data_inside, "data cannot be decoded to complex"),
        ("request", "a.{x}", no_name, "the type of data is unknown when the function is registered: name 'Nowhere'"),
        ("channel", "a.{x}", no_items, "items gets the items of a channel: expected AsyncIterator[…], not list[int]"),
        ("channel", "a.{x}", no_item, "data cannot be decoded to complex"),
    ]


@pytest.mark.parametrize(("verb", "route", "function", "words"), mistakes(), ids=range(15))
def test_a_mistake_is_reported_when_it_is_made(verb: str, route: str, function: Any, words: str) -> None:
    router = Router()
    with pytest.raises(TypeError) as caught:
        getattr(router, verb)(route)(function)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f'{verb} "{route}", ')
    assert router.routes == []


def test_a_codec_that_there_is_not() -> None:
    with pytest.raises(afflux.Unsupported, match="no codec for 'image/png'"):
        Router().request("a", codec="image/png")(lambda payload: None)


def test_types_of_a_function_inside_of_a_function() -> None:
    @dataclass
    class Local:
        n: int

    router = Router()

    @router.request("a", codec="application/json")
    def function(data: Local) -> Local | None: ...

    def later(data: Later) -> None: ...  # type: ignore[name-defined] # noqa: F821 -- on purpose

    with pytest.raises(TypeError, match="name 'Later' is not defined; import it outside of TYPE_CHECKING"):
        router.request("b")(later)


def test_names_that_only_type_checkers_know() -> None:
    """A result of an unknown type is none that is encoded, and a default makes an unknown parameter harmless."""
    router = Router()

    @router.request("a")
    def function(payload: Payload, more: Nowhere = None) -> Nowhere: ...  # type: ignore[name-defined] # noqa: F821

    assert router._tables["request"].exact["a"].run is function


# Over connections.


@pytest.fixture(params=["tcp://127.0.0.1:0", "mem://router-test"], ids=["tcp", "mem"])
def uri(request: pytest.FixtureRequest) -> str:
    return str(request.param)


JSON, CBOR, MSGPACK = "application/json", "application/cbor", "application/msgpack"


def shop() -> Router:
    router = Router()

    @router.request("total")
    async def total(orders: list[Order]) -> Total:
        return {"total": sum(order.size for order in orders)}

    @router.request("first.{n:int}")
    def first(orders: list[Order], n: int, entries: afflux.Entries, peer: afflux.Peer) -> list[Order] | None:
        assert entries.route == f"first.{n}"
        assert peer is afflux.current_peer()
        return orders[:n] or None

    @router.request("shout")
    async def shout(text: str) -> str:
        return text.upper()

    @router.request("raw")
    async def raw(data: dict[str, Any]) -> bytes | Payload:
        return b"raw" if data["bytes"] else Payload(b"raw", b"meta")

    @router.request("maybe")
    async def maybe(order: Order | None) -> str:
        return "nothing" if order is None else order.symbol

    @router.request("fixed", codec=JSON)
    async def fixed(payload: Payload):  # type: ignore[no-untyped-def] # anything
        return {"size": len(payload.data)}

    @router.request("now")
    async def now(payload: Payload) -> dict[str, int]:
        return {"now": 1}

    @router.request("number")
    async def number(payload: Payload) -> int:
        return 5

    @router.request("wrong")
    async def wrong(data: dict[str, Any]) -> dict[str, Any]:
        return {"wrong": object()}

    @router.request("untold")
    async def untold(text: str):  # type: ignore[no-untyped-def] # nobody knows what comes
        return {"text": text}

    @router.stream("sizes")
    async def sizes(orders: list[Order]) -> AsyncIterator[int]:
        for order in orders:
            yield order.size

    @router.stream("list")
    def listed(payload: Payload) -> list[dict[str, int]]:
        return [{"n": n} for n in range(3)]

    @router.stream("later")
    async def later(data: dict[str, Any]) -> Any:
        return [data] if data else None

    @router.channel("running.{start:int}")
    async def running(orders: AsyncIterator[Order], start: int) -> AsyncIterator[Total]:
        async for order in orders:
            start += order.size
            yield {"total": start}

    @router.channel("bytes")
    async def lengths(items: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for item in items:
            yield b"%d" % len(item)

    return router


@pytest.mark.parametrize("mime", [JSON, CBOR, MSGPACK])
async def test_typed_functions_over_a_connection(uri: str, mime: str) -> None:
    orders = [{"symbol": "EUR", "size": 2}, {"symbol": "USD"}]
    data = codecs.encode(orders, mime)
    async with afflux.serve(uri, shop()) as server, afflux.connect(server.uri, data_mime=mime) as peer:

        def value(reply: Payload) -> Any:
            assert reply.metadata is None  # it is what the connection says
            return codecs.decode(reply.data, mime)

        assert value(await peer.request(data, route="total")) == {"total": 3}
        assert value(await peer.request(data, route="first.1")) == [{"symbol": "EUR", "size": 2}]
        assert await peer.request(data, route="first.0") == Payload()
        assert value(await peer.request(codecs.encode("a", mime), route="shout")) == "A"
        assert (await peer.request(codecs.encode({"bytes": True}, mime), route="raw")) == Payload(b"raw")
        assert (await peer.request(codecs.encode({"bytes": False}, mime), route="raw")) == Payload(b"raw", b"meta")
        assert value(await peer.request(codecs.encode(orders[1], mime), route="maybe")) == "USD"
        assert value(await peer.request(b"", route="maybe")) == "nothing"
        assert [value(item) async for item in peer.stream(data, route="sizes")] == [2, 1]
        assert [value(item) async for item in peer.stream(route="list")] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert [value(i) async for i in peer.stream(codecs.encode({"a": 1}, mime), route="later")] == [{"a": 1}]
        assert [value(i) async for i in peer.stream(codecs.encode({}, mime), route="later")] == []
        source = [codecs.encode(order, mime) for order in orders]
        async with peer.channel(source, route="running.10") as items:
            assert [value(item) async for item in items] == [{"total": 12}, {"total": 13}]
        async with peer.channel([b"a", b"bcd"], route="bytes") as items:
            assert [item.data async for item in items] == [b"1", b"3"]


@pytest.mark.parametrize(
    ("sends", "accepts", "answers"),
    [
        (JSON, (), None),
        (CBOR, (), None),
        (JSON, (JSON,), None),
        (JSON, (CBOR, JSON), CBOR),
        (JSON, ("image/png", "application/octet-stream", MSGPACK, CBOR), MSGPACK),
        (CBOR, ("image/png",), CBOR),
        ("application/x-msgpack", ("Application/JSON",), "Application/JSON"),
    ],
)
async def test_a_request_names_the_types_it_sends_and_accepts(
    sends: str, accepts: tuple[str, ...], answers: str | None
) -> None:
    """The answer says what it is, unless it is what the request is, and is accepted (RSocket R-57)."""
    metadata = [afflux.MimeType(sends), *([afflux.Accept(accepts)] if accepts else [])]
    data = codecs.encode([{"symbol": "EUR"}, {"symbol": "USD"}], sends)
    async with afflux.serve("mem://accept", shop()) as server, afflux.connect(server.uri) as peer:
        reply = await peer.request(data, metadata=metadata, route="total")
        assert afflux.entries(reply).mime_type == answers
        assert codecs.decode(reply.data, answers or sends) == {"total": 2}
        items = [item async for item in peer.stream(data, metadata=metadata, route="sizes")]
        assert [afflux.entries(item).mime_type for item in items] == [answers, None]  # the first speaks for all
        assert [codecs.decode(item.data, answers or sends) for item in items] == [1, 1]


async def test_an_answer_is_of_a_type_that_can_hold_it() -> None:
    accepts = [afflux.Accept(["application/octet-stream", "text/plain", JSON])]
    async with afflux.serve("mem://holds", shop()) as server, afflux.connect(server.uri) as peer:
        for route, mime, data in (("number", "text/plain", b"5"), ("now", JSON, b'{"now":1}')):
            reply = await peer.request(b"", metadata=accepts, route=route)
            assert (afflux.entries(reply).mime_type, reply.data) == (mime, data)
        reply = await peer.request(b"a", metadata=accepts, route="shout")
        assert (reply.metadata, reply.data) == (None, b"A")


async def test_a_route_with_one_codec() -> None:
    async with afflux.serve("mem://fixed", shop()) as server, afflux.connect(server.uri) as peer:
        reply = await peer.request(b"1234", route="fixed")
        assert (afflux.entries(reply).mime_type, reply.data) == (JSON, b'{"size":4}')
        accepts = [afflux.MimeType(CBOR), afflux.Accept([CBOR])]
        reply = await peer.request(b"1234", metadata=accepts, route="fixed")
        assert (afflux.entries(reply).mime_type, reply.data) == (JSON, b'{"size":4}')


async def test_a_route_with_one_codec_reads_that_alone() -> None:
    router = Router()

    @router.request("fixed", codec=JSON)
    async def fixed(order: Order) -> int:
        return order.size

    data = b'{"symbol":"EUR"}'
    async with afflux.serve("mem://one", router) as server, afflux.connect(server.uri) as peer:
        for metadata in (None, afflux.MimeType(JSON), afflux.MimeType("text/json")):
            assert (await peer.request(data, metadata=metadata, route="fixed")).data == b"1"
        with pytest.raises(afflux.Invalid, match='the data is application/cbor; route "fixed" reads application/json'):
            await peer.request(data, metadata=afflux.MimeType(CBOR), route="fixed")


async def test_without_a_connection_data_is_octets() -> None:
    assert await answered(shop(), routed("shout", b"a")) == Payload(b"A")


async def test_other_ways_to_write_typed_functions() -> None:
    router = Router()

    @router.stream("plain")
    def plain(payload: Payload) -> Iterator[dict[str, int]]:
        yield {"n": 1}
        yield {"n": 2}

    @router.stream("typed.{n:int}")
    async def typed(data: bytes, n: int, peer: afflux.Peer) -> AsyncIterator[bytes]:
        assert peer is afflux.current_peer()
        yield data * n

    @router.request("awaited")
    def awaited(payload: Payload) -> Awaitable[dict[str, int]]:
        async def later() -> dict[str, int]:
            return {"n": 1}

        return later()

    @router.request("who")
    async def who(payload: Payload, peer: afflux.Peer) -> bytes:
        return peer.uri.encode()

    @router.channel("first.{n:int}")
    async def first(orders: AsyncIterator[Order], n: int) -> AsyncIterator[Order]:
        async for order in orders:
            yield order
            n -= 1
            if not n:
                await orders.aclose()  # type: ignore[attr-defined] # it has it

    async with afflux.serve("mem://other", router) as server, afflux.connect(server.uri, data_mime=JSON) as peer:
        assert [item.data async for item in peer.stream(route="plain", credit=1)] == [b'{"n":1}', b'{"n":2}']
        assert [item.data async for item in peer.stream(b"a", route="typed.3")] == [b"aaa"]
        assert (await peer.request(route="awaited")).data == b'{"n":1}'
        assert (await peer.request(route="who")).text == server.uri
        order = b'{"symbol":"EUR","size":1}'
        async with peer.channel([order] * 5, route="first.2") as items:
            assert [item.data async for item in items] == [order] * 2


async def test_a_request_to_a_client_is_of_the_type_the_client_named() -> None:
    class Asks:
        async def request(self, payload: Payload) -> Payload:
            return await afflux.current_peer().request(b'[{"symbol":"EUR","size":7}]', route="total")

    async with (
        afflux.serve("mem://asks", Asks()) as server,
        afflux.connect(server.uri, handler=shop(), data_mime=JSON) as peer,
    ):
        assert (await peer.request(b"")).data == b'{"total":7}'


@pytest.mark.parametrize(
    ("route", "data", "metadata", "error", "words"),
    [
        ("first.x", b"[]", JSON, afflux.Invalid, "route \"first.{n:int}\": place n: expected int, not 'x'"),
        (
            "total",
            b'[{"size":1}]',
            JSON,
            afflux.Invalid,
            "the data does not fit: Object missing required field `symbol` - at `$[0]`",
        ),
        ("total", b"[{", JSON, afflux.Invalid, "the data is not application/json: "),
        ("total", b"[" * 100_000, JSON, afflux.Invalid, "the data does not fit: "),
        ("total", b"\x81" * 100_000, CBOR, afflux.Invalid, "the data is not application/cbor: "),
        ("total", b"\x91" * 100_000, MSGPACK, afflux.Invalid, "the data does not fit: "),
        (
            "total",
            b"[]",
            None,
            afflux.Invalid,
            "the answer cannot be application/octet-stream; accept one of: ",
        ),
        (
            "total",
            b"x",
            "image/png",
            afflux.Invalid,
            "the data is image/png, for which there is no codec; available: ap",
        ),
        (
            "now",
            b"",
            None,
            afflux.Invalid,
            "the answer cannot be application/octet-stream; accept one of: ",
        ),
        (
            "now",
            b"",
            "text/plain",
            afflux.Invalid,
            "the answer cannot be text/plain; accept one of: application/json, application/cbor, application/msgpack",
        ),
        (
            "number",
            b"",
            None,
            afflux.Invalid,
            "the answer cannot be application/octet-stream; accept one of: ",
        ),
        (
            "untold",
            b"x",
            None,
            afflux.Invalid,
            "the answer cannot be application/octet-stream; accept one of: ",
        ),
        ("wrong", b"{}", JSON, afflux.ApplicationError, "application error"),
        (
            "shout",
            b"\xff",
            None,
            afflux.Invalid,
            "the data is not text (application/octet-stream): byte 0 is not UTF-8",
        ),
    ],
)
async def test_messages_for_a_client(  # a table of what may go wrong
    route: str, data: bytes, metadata: str | None, error: type[afflux.Error], words: str
) -> None:
    entries = [] if metadata is None else [afflux.MimeType(metadata)]
    async with afflux.serve("mem://told", shop()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(error) as caught:
            await peer.request(data, metadata=entries, route=route)
        assert str(caught.value).startswith(words)
        assert (await peer.request(b"still here", route="shout")).data == b"STILL HERE"


async def test_metadata_that_can_not_be_read_over_a_connection() -> None:
    async with afflux.serve("mem://unread", shop()) as server, afflux.connect(server.uri) as peer:
        broken = compose([("a/b", b"")], route="total") + b"\xfa\x00\x00\x50x"
        with pytest.raises(afflux.Invalid, match="the metadata cannot be read"):
            await peer.request(b"[]", metadata=broken)
        with pytest.raises(afflux.Invalid, match="the metadata cannot be read"):
            await peer.request(b"[]", metadata=b"\xfe\x00\x00\x50x")


async def test_an_item_that_does_not_fit_ends_the_channel(uri: str) -> None:
    async with afflux.serve(uri, shop()) as server, afflux.connect(server.uri, data_mime=JSON) as peer:
        source = [b'{"symbol":"EUR"}', b'{"symbol":5}']
        async with peer.channel(source, route="running.0") as items:
            assert (await anext(items)).data == b'{"total":1}'
            with pytest.raises(afflux.Invalid, match=r"Expected `str`, got `int` - at `\$\.symbol`"):
                await anext(items)


async def test_a_typed_stream_is_closed_with_its_function(uri: str) -> None:
    closed = asyncio.Event()
    router = Router()

    @router.stream("n")
    async def numbers(start: int) -> AsyncIterator[int]:
        try:
            while True:
                yield start
                start += 1
        finally:
            closed.set()

    async with afflux.serve(uri, router) as server, afflux.connect(server.uri, data_mime=JSON) as peer:
        async for item in peer.stream(b"5", route="n", credit=2):
            if item.data == b"9":
                break
        await closed.wait()


async def test_items_that_are_not_taken_are_not_made(uri: str) -> None:
    made = 0
    router = Router()

    @router.stream("n")
    async def numbers(payload: Payload) -> AsyncIterator[dict[str, int]]:
        nonlocal made
        for made in range(1, 1000):
            yield {"n": made}

    router.request("sync")(lambda payload: b"")
    async with afflux.serve(uri, router) as server, afflux.connect(server.uri, data_mime=JSON) as peer:
        stream = peer.stream(route="n", credit=10)
        await anext(stream)
        await peer.request(route="sync")
        assert made <= 10 + 1  # one ahead
        stream.cancel()


async def test_fire_gets_its_data_decoded(uri: str) -> None:
    fired: asyncio.Queue[Order] = asyncio.Queue()
    router = Router()

    @router.fire("order.{n:int}")
    async def order(order: Order, n: int) -> dict[str, int]:
        await fired.put(order)
        return {"nobody": n}

    async with afflux.serve(uri, router) as server, afflux.connect(server.uri, data_mime=JSON) as peer:
        await peer.fire(b"{", route="order.1")
        await peer.fire(b'{"symbol":"EUR"}', route="order.x")
        await peer.fire(b'{"symbol":"EUR"}', route="order.1")
        assert await fired.get() == Order("EUR")
        assert fired.empty()


# Limits of a route.


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Held:
    """A router with one route of each verb, which waits until it is told; and what has come in."""

    def __init__(self, **options: Any) -> None:
        self.go = asyncio.Event()
        self.entered: asyncio.Queue[bytes] = asyncio.Queue()
        self.left: asyncio.Queue[bytes] = asyncio.Queue()
        self.clock = Clock()
        self.router = Router(clock=self.clock)
        self.router.request("hold.{x}", **options)(self.request)
        self.router.fire("hold.{x}", **options)(self.request)
        self.router.stream("hold.{x}", **options)(self.stream)
        self.router.channel("hold.{x}", **options)(self.channel)
        self.router.request("free")(lambda payload: b"free")

    async def request(self, payload: Payload, x: str) -> bytes:
        await self.entered.put(payload.data)
        try:
            if x == "fail":
                raise afflux.ApplicationError(0x301, "failed")
            if x == "timeout":
                raise TimeoutError
            if x != "free":
                await self.go.wait()
            return payload.data
        finally:
            await self.left.put(payload.data)

    async def stream(self, payload: Payload, x: str) -> AsyncIterator[bytes]:
        yield b"first"
        yield await self.request(payload, x)

    async def channel(self, items: Any, x: str) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data
        yield await self.request(Payload(b""), x)


async def test_as_many_calls_at_once_as_the_route_allows(uri: str) -> None:
    held = Held(concurrent=2)
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        calls = [asyncio.create_task(peer.request(b"%d" % n, route="hold.x")) for n in range(2)]
        await held.entered.get()
        await held.entered.get()
        with pytest.raises(afflux.Rejected) as caught:
            await peer.request(b"", route="hold.y")
        assert str(caught.value) == 'route "hold.{x}": too many concurrent calls (limit "concurrent")'
        async with peer.stream(route="hold.x") as items:  # another verb, another route
            assert (await anext(items)).data == b"first"
        assert (await peer.request(b"", route="free")).data == b"free"
        held.go.set()
        assert [call.data for call in await asyncio.gather(*calls)] == [b"0", b"1"]
        assert (await peer.request(b"again", route="hold.x")).data == b"again"


@pytest.mark.parametrize("how", ["fail", "timeout", "cancel"])
async def test_a_place_is_free_again_however_a_call_ends(uri: str, how: str) -> None:
    held = Held(concurrent=1)
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        for _ in range(3):
            call = asyncio.create_task(peer.request(b"", route=f"hold.{how}"))
            await held.entered.get()
            if how == "cancel":
                call.cancel()
            with pytest.raises((afflux.ApplicationError, asyncio.CancelledError)):
                await call
            await held.left.get()
            await peer.request(route="free")
        held.go.set()
        assert (await peer.request(b"x", route="hold.x")).data == b"x"


async def test_a_stream_has_its_place_for_as_long_as_it_lasts(uri: str) -> None:
    held = Held(concurrent=1)
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        for _ in range(2):
            first = peer.stream(b"", route="hold.x", credit=1)
            await anext(first)  # its function waits for credit, and is not done
            for verb in (peer.stream(route="hold.x"), peer.stream(route="hold.y")):
                with pytest.raises(afflux.Rejected, match="too many concurrent calls"):
                    await anext(verb)
            first.cancel()
            await peer.request(route="free")
            await peer.request(route="free")
        held.go.set()
        assert [item.data async for item in peer.stream(b"x", route="hold.x")] == [b"first", b"x"]


async def test_a_channel_has_its_place_for_as_long_as_it_lasts(uri: str) -> None:
    held = Held(concurrent=1)
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        async with peer.channel([b"a"], route="hold.x") as items:
            assert (await anext(items)).data == b"a"
            await held.entered.get()
            async with peer.channel([b"b"], route="hold.x") as others:
                with pytest.raises(afflux.Rejected, match="too many concurrent calls"):
                    await anext(others)
        await held.left.get()
        await peer.request(route="free")
        held.go.set()
        async with peer.channel([b"c"], route="hold.x") as items:
            assert [item.data async for item in items] == [b"c", b""]


async def test_as_many_calls_in_a_time_as_the_route_allows(uri: str) -> None:
    held = Held(rate=(2, 0.5))
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        for _ in range(2):
            await peer.request(route="hold.free")
        with pytest.raises(afflux.Rejected, match=r'route "hold.\{x\}": too many calls per second \(limit "rate"\)'):
            await peer.request(route="hold.free")
        held.clock.now += 2
        await peer.request(route="hold.free")
        with pytest.raises(afflux.Rejected, match="too many calls per second"):
            await peer.request(route="hold.free")


async def test_a_payload_as_large_as_the_route_allows(uri: str) -> None:
    held = Held(payload_bytes=64)
    metadata = len(compose(route="hold.free"))
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        exactly = bytes(64 - metadata)
        assert (await peer.request(exactly, route="hold.free")).data == exactly
        for _ in range(2):
            with pytest.raises(afflux.Rejected, match=r'the payload is too large \(limit "payload_bytes"\)'):
                await peer.request(exactly + b"x", route="hold.free")
        with pytest.raises(afflux.Rejected, match="the payload is too large"):
            await anext(peer.stream(exactly + b"x", route="hold.free"))
        async with peer.channel([exactly + b"x"], route="hold.free") as items:
            with pytest.raises(afflux.Rejected, match="the payload is too large"):
                await anext(items)
        async with peer.channel([b"a", bytes(64), bytes(65)], route="hold.free") as items:
            assert [(await anext(items)).data for _ in range(2)] == [b"a", bytes(64)]
            with pytest.raises(afflux.Canceled, match="the item is too large"):  # it may have been processed
                await anext(items)


async def test_items_of_a_channel_with_a_limit_are_those_of_any_channel(uri: str) -> None:
    router = Router()

    @router.channel("c", payload_bytes=64)
    async def batches(items: Any) -> AsyncIterator[bytes]:
        assert items.first.data == b"a"
        async for batch in items.batches():
            for item in batch:
                yield item.data

    async with afflux.serve(uri, router) as server, afflux.connect(server.uri) as peer:
        async with peer.channel([b"a", b"b", bytes(65)], route="c") as items:
            assert [(await anext(items)).data for _ in range(2)] == [b"a", b"b"]
            with pytest.raises(afflux.Canceled, match="the item is too large"):
                await anext(items)


async def test_a_call_that_takes_too_long_is_canceled(uri: str) -> None:
    held = Held(timeout=0.01, concurrent=1)
    async with afflux.serve(uri, held.router) as server, afflux.connect(server.uri) as peer:
        words = r'route "hold.\{x\}": it took too long \(limit "timeout"\)'
        with pytest.raises(afflux.Canceled, match=words):
            await peer.request(route="hold.x")
        await held.left.get()
        await peer.fire(route="hold.x")
        await held.left.get()
        stream = peer.stream(route="hold.x")
        assert (await anext(stream)).data == b"first"
        with pytest.raises(afflux.Canceled, match=words):
            await anext(stream)
        async with peer.channel([b"a"], route="hold.x") as items:
            assert (await anext(items)).data == b"a"
            with pytest.raises(afflux.Canceled, match=words):
                await anext(items)
        with pytest.raises(afflux.ApplicationError):
            await peer.request(route="hold.timeout")  # its own TimeoutError is its own affair


async def test_time_without_credit_is_not_the_functions() -> None:
    """The clock runs while the function makes an item, not while nobody asks for one."""
    limits = RouteLimits("here", timeout=0.01)

    async def items(call: Call) -> AsyncIterator[Payload]:
        yield Payload(b"1")
        yield Payload(b"2")

    stream = limits.stream(Call(verb="stream"), items)
    assert (await anext(stream)).data == b"1"
    await asyncio.sleep(0.03)  # longer than the limit: nothing of it counts
    assert (await anext(stream)).data == b"2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrent": 0}, "concurrent must be at least 1, not 0"),
        ({"concurrent": 1.5}, "concurrent must be a number of calls, not 1.5"),
        ({"concurrent": True}, "concurrent must be a number of calls, not True"),
        ({"rate": 5}, "rate must be"),
        ({"rate": (0, 1)}, "rate must be"),
        ({"rate": (1, -1)}, "rate must be"),
        ({"payload_bytes": -1}, "payload_bytes must be 0 or more, not -1"),
        ({"timeout": 0}, "timeout must be seconds, above 0 and at most a day, not 0"),
        ({"timeout": float("inf")}, "timeout must be seconds"),
        ({"middleware": [RouteLimits]}, "a middleware must be an instance: write RouteLimits"),
    ],
)
def test_limits_that_can_not_be(options: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Router().request("a", **options)(lambda payload: None)
