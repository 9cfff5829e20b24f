"""The routes of frames: of requests, of later frames of their streams, on every protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from afflux.core.dissector import Record
from afflux.filters import Routes
from afflux.filters.routes import MOST_STREAMS
from afflux.protocols.limit import frames as limit
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.registry import named
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as wire
from afflux.protocols.rsocket.metadata import compose
from tests.cli.running import here
from tests.cli.test_decode import prefixed

PRICES, ORDERS = compose(route="prices.eu"), compose(route="orders")
Step = tuple[bool, bytes, str | None]
"Whether the client sends it, the bytes, and the route."

RSOCKET: list[Step] = [
    (True, prefixed(wire.Setup(metadata=PRICES).encode()), None),
    (True, prefixed(wire.RequestStream(stream=1, initial_n=3, metadata=PRICES).encode()), "prices.eu"),
    (True, prefixed(wire.RequestChannel(stream=3, initial_n=3, metadata=ORDERS).encode()), "orders"),
    (False, prefixed(wire.PayloadFrame(stream=1, next=True).encode()), "prices.eu"),
    (False, prefixed(wire.RequestN(stream=3, n=2).encode()), "orders"),
    (True, prefixed(wire.PayloadFrame(stream=3, next=True, metadata=b"x").encode()), "orders"),
    (False, prefixed(wire.PayloadFrame(stream=5, next=True).encode()), None),
    (True, prefixed(wire.RequestResponse(stream=1, data=b"again").encode()), "prices.eu"),
    (False, prefixed(wire.RequestFnf(stream=2, metadata=PRICES).encode()), "prices.eu"),
    (True, prefixed(wire.MetadataPush(metadata=ORDERS).encode()), "orders"),
    (True, prefixed(wire.Keepalive().encode()), None),
    (True, prefixed(wire.RequestFnf(stream=7, metadata=b"\xff").encode()), None),
]
STEPS: dict[str, list[Step]] = {
    "rsocket": RSOCKET,
    "reactivesocket": [
        (True, old.Setup(metadata_mime="message/x.rsocket.routing.v0").encode(prefixed=True), None),
        (True, old.RequestChannel(stream=2, initial_n=3, metadata=b"\x03abc").encode(prefixed=True), "abc"),
        (True, old.RequestChannel(stream=2, data=b"item").encode(prefixed=True), "abc"),
        (False, old.Response(stream=2, data=b"y").encode(prefixed=True), "abc"),
    ],
    "limit": [
        (True, limit.Setup(metadata=b"sum").encode(prefixed=True), "sum"),
        (True, limit.PayloadFrame(stream=1, data=b"x").encode(prefixed=True), "sum"),
        (False, limit.End().encode(prefixed=True), "sum"),
        (True, limit.Setup(metadata=b"\xffnext").encode(prefixed=True), "\ufffdnext"),
        (False, limit.PayloadFrame(stream=4, data=b"x").encode(prefixed=True), "\ufffdnext"),
    ],
    "rsio": [
        (True, rsio.ClientHello().encode(), None),
        (True, rsio.Subscribe(publisher="ours", subscriber=1).encode(), "ours"),
        (False, rsio.Subscribe(publisher="theirs", subscriber=1).encode(), "theirs"),
        (False, rsio.Subscribed(subscriber=1).encode(), "ours"),
        (True, rsio.Subscribed(subscriber=1).encode(), "theirs"),
        (False, rsio.Request(subscriber=1, demand=2).encode(), "theirs"),
        (False, rsio.OnError(subscriber=1, error="failed").encode(), "ours"),
    ],
}


def records(protocol: str) -> list[Record]:
    make = named(protocol).dissector
    assert make is not None
    sides = {client: make(client, "bytes") for client in (True, False)}
    return [made for client, data, _ in STEPS[protocol] for made in sides[client].feed(data)]


@pytest.mark.parametrize("protocol", STEPS)
def test_the_route_of_every_frame(protocol: str) -> None:
    routes = Routes()
    found = records(protocol)
    expected = [route for _, _, route in STEPS[protocol]]
    assert [routes.route(record) for record in found] == expected
    # the same frames of another connection, with metadata in hexadecimal
    again = [record | {"conn": "b", "metadata": (record["metadata"] or b"").hex()} for record in found]
    assert [routes.route(record) for record in again] == expected


def test_jmux_has_no_routes() -> None:
    assert Routes().route({"protocol": "jmux", "type": "Data", "error": None, "flags": ["o"], "metadata": None,
                           "conn": None, "stream": 1, "dir": ">", "fields": {}}) is None  # fmt: skip


def test_the_streams_that_are_remembered_are_bounded() -> None:
    routes = Routes()
    request = records("rsocket")[1]
    for stream in range(MOST_STREAMS + 1):
        routes.route(request | {"stream": stream})
    item = request | {"type": "PAYLOAD", "metadata": None}
    assert [routes.route(item | {"stream": stream}) for stream in (0, 1, MOST_STREAMS)] == [None, *["prices.eu"] * 2]


@pytest.mark.parametrize("shown", ["none", "text", "hex"])
def test_decode_selects_by_route_and_shows_what_it_shows_without(shown: str, tmp_path: Path) -> None:
    words = [("> " if client else "< ") + data.hex() for client, data, _ in RSOCKET]
    options = ("decode", "--protocol", "rsocket", "--payload", shown, "--hex")

    def lines(*more: str) -> list[dict[str, Any]]:
        ran = here(*options, *more, *words)
        assert ran.code == 0, ran.errors
        return [json.loads(line) for line in ran.out.splitlines()]

    everything = lines()
    wanted = [made for made, (_, _, route) in zip(everything, RSOCKET, strict=True) if route == "prices.eu"]
    assert lines("--where", 'route ~ "^prices"') == wanted and len(wanted) == 4
    assert lines("--where", "route is null or route is not null") == everything
    assert lines("--where", "n == 3") == everything[1:3]


def test_a_secret_stays_hidden_if_the_filter_needs_metadata() -> None:
    setup = prefixed(wire.Setup(token=b"secret").encode()).hex()
    ran = here("decode", "--protocol", "rsocket", "--where", "route is null", "--hex", setup)
    assert json.loads(ran.out)["fields"]["token"] == "(6 bytes)" and b"secret".hex() not in ran.out
