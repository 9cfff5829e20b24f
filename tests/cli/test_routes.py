"""A server lists its routes if it was told to, and ``request --routes`` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import afflux
from afflux.aio.listing import listed
from afflux.calls.listing import LIST_ROUTES, ListedRoute, listing, routes_in
from tests.cli.running import Server, here, on_a_terminal

PROGRAM = """
import afflux

router = afflux.Router()

@router.request("orders.{id:int}")
async def order(payload, id: int): return b"order"

@router.stream("prices")
async def prices(payload): yield b"1"

class Plain:
    async def request(self, payload): return payload

class Named(Plain):
    routes = [("request", "any")]
"""

ORDERS = [{"verb": "request", "route": "orders.{id:int}"}, {"verb": "stream", "route": "prices"}]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)


def test_the_demo_lists_its_routes() -> None:
    with Server("--demo") as server:
        found = json.loads(here("request", server.uri, "--routes").out)
        assert {"verb": "stream", "route": "flights"} in found
        for each in found:
            if each["verb"] == "stream" and each["route"] == "flights":
                assert here("request", server.uri, "--stream", "-r", each["route"], "--take", "1").code == 0
        lines = here("request", server.uri, "--routes", "-o", "ndjson").out.splitlines()
        assert [json.loads(line) for line in lines] == found
        assert "│ stream  │ flights │" in on_a_terminal(f"request {server.uri} --routes")
        assert "│ flights │" in on_a_terminal(f"request {server.uri} --routes --columns route")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("more", [(), ("--workers", "2"), ("--journal", "journals")])
def test_a_server_lists_them_with_the_option(more: tuple[str, ...]) -> None:
    with Server("--handler", "shop:router", "--list-routes", *more) as server:
        assert json.loads(here("request", server.uri, "--routes").out) == ORDERS
        assert here("request", server.uri, "-r", "orders.3", "-o", "raw").out == "order"


@pytest.mark.usefixtures("program")
def test_a_handler_without_a_router_names_its_routes() -> None:
    with Server("--handler", "shop:Named", "--list-routes") as server:
        assert json.loads(here("request", server.uri, "--routes").out) == [{"verb": "request", "route": "any"}]
        assert here("request", server.uri, "-d", "x", "-o", "raw").out == "x"
    ran = here("serve", "tcp://127.0.0.1:0", "--handler", "shop:Plain", "--list-routes")
    assert ran.code == 2
    assert ran.errors.startswith("afflux: --list-routes: list_routes needs a handler with routes: a Router")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(("handler", "code"), [("router", 65), ("Plain", 1), ("Named", 1)])
def test_a_server_without_the_option_does_not(handler: str, code: int) -> None:
    with Server("--handler", f"shop:{handler}") as server:
        ran = here("request", server.uri, "--routes")
        assert (ran.code, ran.out) == (code, "")
        assert f"{server.uri} does not list its routes: it lists them with afflux serve --list-routes" in ran.errors


@pytest.mark.parametrize("protocol", ["jmux", "rsio", "limit"])
def test_a_protocol_without_routes(protocol: str) -> None:
    with Server("--demo", uri=f"{protocol}+tcp://127.0.0.1:0") as server:
        ran = here("request", server.uri, "--routes")
    assert (ran.code, ran.out) == (2, "")
    assert ran.errors.endswith("; so it has no routes to list\n")


@pytest.mark.parametrize("protocol", ["rsocket-draft", "reactivesocket"])
def test_other_protocols_with_routes_list_them(protocol: str) -> None:
    with Server("--demo", uri=f"{protocol}+tcp://127.0.0.1:0") as server:
        assert "stream,flights\n" in here("request", server.uri, "--routes", "-o", "csv").out


async def test_a_router_lists_its_routes_within_its_middleware() -> None:
    seen = []

    class Log(afflux.Middleware):
        async def request(self, call: afflux.Call, next: afflux.Next) -> afflux.Payload | None:
            seen.append(call.route)
            return await next(call)

    router = afflux.Router(list_routes=True, middleware=[Log()])
    router.list_routes()  # a second time changes nothing

    @router.fire("log")
    async def log(payload: afflux.Payload) -> None: ...

    async with afflux.serve("mem://listing", router) as server, afflux.connect(server.uri) as peer:
        assert routes_in(await peer.request(route=LIST_ROUTES)) == [ListedRoute("fire", "log")]
    assert seen == [LIST_ROUTES]


async def test_serve_lists_routes_added_later() -> None:
    router = afflux.Router()
    async with (
        afflux.serve("mem://later", router, list_routes=True) as server,
        afflux.connect(server.uri) as peer,
    ):
        assert routes_in(await peer.request(route=LIST_ROUTES)) == []

        @router.request("new")
        async def new(payload: afflux.Payload) -> afflux.Payload:
            return payload

        assert routes_in(await peer.request(route=LIST_ROUTES)) == [ListedRoute("request", "new")]


async def test_a_handler_whose_request_is_missing_refuses_other_routes() -> None:
    class Streams:
        routes = (("stream", "a"),)

        async def stream(self, payload: afflux.Payload) -> object:
            yield b"1"

    async with afflux.serve("mem://streams", Streams(), list_routes=True) as server, afflux.connect(server.uri) as peer:
        assert routes_in(await peer.request(route=LIST_ROUTES)) == [ListedRoute("stream", "a")]
        assert [item.data async for item in peer.stream(route="a")] == [b"1"]
        with pytest.raises(afflux.Rejected, match="has no request"):
            await peer.request(b"x")
        with pytest.raises(afflux.Rejected, match="has no request"):
            await peer.request(afflux.Payload(b"x", b"metadata without a route"))


def test_what_has_no_routes_cannot_list_them() -> None:
    with pytest.raises(TypeError, match="a Router, or an object with an attribute routes"):
        listed(object())


@pytest.mark.parametrize(
    "data", [b"", b"x", b"[]", b'{"routes":1}', b'{"routes":[1]}', b'{"routes":[{"verb":"a"}]}', b'{"routes":[],"a":1}']
)
def test_an_answer_that_is_not_a_list_of_routes(data: bytes) -> None:
    with pytest.raises(ValueError):
        routes_in(afflux.Payload(data))


def test_the_reserved_route_is_not_listed() -> None:
    found = [("request", "a"), ("request", LIST_ROUTES), ("stream", "")]
    assert routes_in(listing(found)) == [ListedRoute("request", "a"), ListedRoute("stream", "")]
