"""Routes: which function is found, what it is given, and what is said when there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import afflux
from afflux import Payload, Router
from afflux.protocols.rsocket.metadata import compose


def routed(route: str | None, data: bytes = b"") -> Payload:
    return Payload(data, None if route is None else compose(route=route))


def test_the_route_of_a_payload() -> None:
    assert afflux.route_of(routed("prices.eur")) == "prices.eur"
    assert afflux.route_of(routed("x" * 255)) == "x" * 255
    assert afflux.route_of(Payload(b"")) is None
    assert afflux.route_of(Payload(b"", b"")) is None


def test_metadata_that_is_not_composite_is_invalid() -> None:
    with pytest.raises(afflux.Invalid, match="can not be read"):
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
    with pytest.raises(ValueError, match=r'request "a\.b" has a function already'):
        router.request("a.b")(lambda payload: None)
    router.push(lambda metadata: None)
    with pytest.raises(ValueError, match="push has a function already"):
        router.push(lambda metadata: None)


def test_a_decorator_needs_its_parentheses() -> None:
    router = Router()
    with pytest.raises(TypeError, match=r"write @router.stream\(\)"):

        @router.stream  # type: ignore[arg-type] # what a user may do
        async def items(payload: Payload) -> AsyncIterator[bytes]:
            yield b""


@pytest.mark.parametrize("route", ["a.{}", "a.{x y}", "a.{x", "{x...}.b"])
def test_braces_hold_a_name(route: str) -> None:
    with pytest.raises(ValueError, match="do not hold a name"):
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
