"""Metadata as an argument: what verbs, connect(setup=…) and the helpers make of it, and that it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Accept, Bearer, MimeType, Payload, Route, Simple, TraceContext
from afflux.calls import call_payload, compose, entries, reply, terms_of
from afflux.core.limits import Limits
from afflux.protocols.rsocket import metadata as format
from afflux.protocols.rsocket.cursor import CURSOR_MIME, Read
from afflux.protocols.rsocket.metadata import (
    AUTHENTICATION_MIME,
    COMPOSITE_MIME,
    OCTET_STREAM,
    ROUTING_MIME,
    TRACING_MIME,
)
from afflux.transports.address import parse

TOKEN = (AUTHENTICATION_MIME, b"\x81t")
ROUTE = (ROUTING_MIME, b"\x01r")


def pairs(payload: Payload) -> list[tuple[str, bytes]]:
    return list(format.entries(payload.metadata or b""))


# Verbs.


def test_without_metadata_a_payload_goes_as_it_is() -> None:
    payload = Payload(b"d", b"m")
    assert call_payload(payload) is payload
    assert call_payload("text") == Payload(b"text")


@pytest.mark.parametrize("metadata", [b"m", bytearray(b"m"), memoryview(b"m")])
def test_bytes_alone_go_as_they_are(metadata: Any) -> None:
    assert call_payload(b"d", metadata) == Payload(b"d", b"m")
    assert call_payload(b"d", b"") == Payload(b"d", b"")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (Bearer("t"), [TOKEN]),
        ([Bearer("t")], [TOKEN]),
        ((Bearer("t"), ("a/b", b"x")), [TOKEN, ("a/b", b"x")]),
        ([("a/b", b"x"), ("a/b", b"y")], [("a/b", b"x"), ("a/b", b"y")]),
        (("a/b", b"x"), [("a/b", b"x")]),
        ([Route("own")], [(ROUTING_MIME, b"\x03own")]),
        ([], []),
        ((), []),
    ],
)
def test_entries_are_composed(metadata: Any, expected: list[tuple[str, bytes]]) -> None:
    payload = call_payload(b"d", metadata)
    assert payload.metadata is not None
    assert pairs(payload) == expected
    assert pairs(call_payload(b"d", metadata, "r")) == [ROUTE, *expected]


def test_the_route_comes_first_then_the_cursor_then_the_entries() -> None:
    cursor = Read(first=5)
    mine = (CURSOR_MIME, cursor.encode())
    assert pairs(call_payload(b"", None, "r")) == [ROUTE]
    assert pairs(call_payload(b"", None, "r", cursor)) == [ROUTE, mine]
    assert pairs(call_payload(b"", Bearer("t"), "r", cursor)) == [ROUTE, mine, TOKEN]
    assert pairs(call_payload(b"", [Bearer("t")], None, cursor)) == [mine, TOKEN]
    assert pairs(call_payload(b"", b"m", "r", cursor)) == [ROUTE, mine, (OCTET_STREAM, b"m")]
    assert pairs(call_payload(b"", b"m", None, cursor)) == [mine, (OCTET_STREAM, b"m")]


def test_metadata_is_given_once() -> None:
    for more in ({"metadata": b""}, {"metadata": Bearer("t")}, {"route": "r"}, {"cursor": Read()}):
        with pytest.raises(TypeError, match="already has metadata"):
            call_payload(Payload(b"", b""), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("metadata", ["text", 5, ["text"], [5], [b"bytes"], ("a/b", 5), iter("ab"), {"a/b": b"x"}])
def test_what_is_no_metadata_is_refused(metadata: Any) -> None:
    with pytest.raises(TypeError, match="metadata"):
        call_payload(b"", metadata)


class Broken:
    """An entry that cannot be written. Rule numbers are RSocket's."""

    MIME = "a/b"

    def encode(self) -> bytes:
        raise format.mime.invalid("out of range", "D-7")


@pytest.mark.parametrize(
    ("metadata", "route", "why"),
    [
        ([("x" * 129, b"")], None, "1 to 128 ASCII characters"),
        ([("é", b"")], None, "1 to 128 ASCII characters"),
        ([("a/b", bytes(0x1000000))], None, "16777216 bytes"),
        (Broken(), None, "out of range"),
        (None, "x" * 256, "256 bytes"),
        (Bearer("t"), "\ud800", "not Unicode"),
    ],
)
def test_what_can_not_be_written_is_the_callers_mistake(metadata: Any, route: str | None, why: str) -> None:
    with pytest.raises(afflux.LocalProtocolError, match=why):
        call_payload(b"", metadata, route)


class Mirror:
    """Answers with the metadata that came."""

    def __init__(self) -> None:
        self.fired: list[bytes | None] = []

    async def request(self, payload: Payload) -> bytes:
        return payload.metadata or b""

    async def fire(self, payload: Payload) -> None:
        self.fired.append(payload.metadata)

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        yield payload.metadata or b""

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.metadata or b""


async def test_every_verb_sends_entries() -> None:
    mirror = Mirror()
    metadata = [Bearer("t"), ("a/b", b"x")]
    expected = compose(metadata, "r")
    async with afflux.serve("tcp://127.0.0.1:0", mirror) as server, afflux.connect(server.uri) as peer:
        await peer.fire(b"", metadata=metadata, route="r")
        assert (await peer.request(b"", metadata=metadata, route="r")).data == expected
        assert [item.data async for item in peer.stream(b"", metadata=metadata, route="r")] == [expected]
        async with peer.channel([b"1", b"2"], metadata=metadata, route="r") as items:
            assert [item.data async for item in items] == [expected, b""]
        assert mirror.fired == [expected]
        with pytest.raises(afflux.LocalProtocolError):
            await peer.request(b"", metadata=[("", b"")])
        assert (await peer.request(b"", metadata=Bearer("t"))).data == compose(Bearer("t"))


async def test_the_blocking_side_sends_entries_too() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Mirror()) as server:

        def ask() -> list[bytes]:
            with afflux.sync.connect(server.uri, setup=Bearer("t")) as peer:
                answers = [peer.request(b"", metadata=Bearer("t"), route="r").data]
                answers += [item.data for item in peer.stream(b"", metadata=[("a/b", b"x")])]
                return answers

        assert await asyncio.to_thread(ask) == [compose(Bearer("t"), "r"), compose(("a/b", b"x"))]


# Setup.


def setup_of(setup: Any, metadata_mime: str | None = None) -> Payload | None:
    return terms_of(parse("mem://x"), Limits.server(), setup, metadata_mime, None, None, None, None).payload


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        (None, None),
        (b"d", Payload(b"d")),
        ("d", Payload(b"d")),
        (Payload(b"d", b"m"), Payload(b"d", b"m")),
        (Bearer("t"), Payload(b"", compose(Bearer("t")))),
        ([Bearer("t"), ("a/b", b"")], Payload(b"", compose([Bearer("t"), ("a/b", b"")]))),
    ],
)
def test_a_setup_is_data_or_entries(setup: Any, expected: Payload | None) -> None:
    assert setup_of(setup) == expected
    assert setup_of(setup, COMPOSITE_MIME) == expected


def test_where_all_metadata_has_one_type_a_setup_has_one_entry_of_it() -> None:
    assert setup_of(Bearer("t"), AUTHENTICATION_MIME) == Payload(b"", b"\x81t")
    assert setup_of(("a/b", b"x"), "a/b") == Payload(b"", b"x")
    for setup in (Bearer("t"), [("a/b", b"x"), ("a/b", b"y")], []):
        with pytest.raises(afflux.LocalProtocolError, match="the setup needs one entry of that type"):
            setup_of(setup, "a/b")
    with pytest.raises(afflux.LocalProtocolError, match="out of range"):
        setup_of(Broken(), "a/b")


@pytest.mark.parametrize("setup", [5, ["text"], object()])
def test_what_is_no_setup_is_refused(setup: Any) -> None:
    with pytest.raises(TypeError, match="metadata"):
        setup_of(setup)


async def test_a_setup_of_entries_arrives() -> None:
    seen: list[Any] = []

    async def look(setup: Any, peer: afflux.Peer) -> None:
        seen.append(entries(setup.metadata, setup.metadata_mime).credentials)

    async with afflux.serve("tcp://127.0.0.1:0", Mirror(), on_setup=look) as server:
        async with afflux.connect(server.uri, setup=[Simple("ada", "pw")]) as peer:
            await peer.request()
        async with afflux.connect(server.uri, setup=Payload(b"", afflux.compose([Bearer("t")]))) as peer:
            await peer.request()
        async with afflux.connect(server.uri, setup=Bearer("u"), metadata_mime=AUTHENTICATION_MIME) as peer:
            await peer.request()
    assert seen == [Simple("ada", "pw"), Bearer("t"), Bearer("u")]


# Helpers.


def test_compose_takes_what_verbs_take() -> None:
    assert compose() == b""
    assert compose(route="r") == format.compose(route="r")
    assert compose([Bearer("t")], "r") == compose(Bearer("t"), route="r") == format.compose([TOKEN], route="r")
    assert compose(b"m") == format.compose([(OCTET_STREAM, b"m")])
    assert compose(entry for entry in [TOKEN]) == format.compose([TOKEN])
    assert compose(MimeType("a/b"), compact_len="plain") == b"\xfa\x00\x00\x04\x03a/b"
    with pytest.raises(afflux.LocalProtocolError):
        compose([("", b"")])
    with pytest.raises(TypeError):
        compose("text")  # type: ignore[arg-type]


def test_metadata_can_be_passed_on() -> None:
    payload = call_payload(b"", [Bearer("t"), ("a/b", b"x")], "r")
    assert compose(entries(payload)) == payload.metadata


def test_entries_are_read_of_a_payload_or_of_metadata() -> None:
    payload = call_payload(b"", [Bearer("t")], "r")
    for argument in (payload, payload.metadata):
        view = entries(argument)
        assert isinstance(view, afflux.Entries)
        assert (view.route, view.credentials) == ("r", Bearer("t"))
    assert entries(None).route is None
    assert entries(b"\x01r", ROUTING_MIME).route == "r"
    assert entries(compose([MimeType("a/b")], compact_len="plain"), compact_len="plain").mime_type == "a/b"
    with pytest.raises(afflux.Invalid, match="too-many-entries"):
        entries(payload, limit=1).get("no/such")


def test_a_reply_names_its_type() -> None:
    """RSocket R-57: the responder names its data MIME type when it differs from the requester's accept list."""
    request = call_payload(b"", Accept(["application/cbor", "application/json"]))
    assert not entries(request).accepts("text/plain")
    answer = reply("text", "text/plain")
    assert answer == Payload(b"text", compose(MimeType("text/plain")))
    assert entries(answer).mime_type == "text/plain"
    trace = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert entries(reply(b"", "a/b", metadata=trace)).trace == trace
    assert entries(reply(b"", "a/b", metadata=[(TRACING_MIME, b"\x10")])).mime_type == "a/b"


def test_a_reply_that_can_not_be_is_refused() -> None:
    with pytest.raises(afflux.LocalProtocolError, match="1 to 128 ASCII"):
        reply(b"", "")
    with pytest.raises(TypeError, match="already has metadata"):
        reply(Payload(b"", b""), "a/b")


@pytest.mark.parametrize("accept", [Accept(["a/b"]), ("message/x.rsocket.accept-mime-types.v0", b"\x7fbroken")])
async def test_an_accept_list_in_a_response_is_ignored(accept: Any) -> None:
    """RSocket R-57: the requester ignores an accept list in a response, whatever it says."""

    class Wrong:
        async def request(self, payload: Payload) -> Payload:
            return reply(payload.data, "text/plain", metadata=[accept])

    async with afflux.serve("tcp://127.0.0.1:0", Wrong()) as server, afflux.connect(server.uri) as peer:
        answer = await peer.request(b"ping", metadata=Accept(["application/json"]))
        assert answer.data == b"ping"
        assert entries(answer).mime_type == "text/plain"
        assert (await peer.request(b"again")).data == b"again"


def test_everything_is_public() -> None:
    assert (afflux.compose, afflux.entries, afflux.reply) == (compose, entries, reply)
    for name in ["Accept", "Bearer", "Credentials", "Entries", "MimeType", "Route", "Simple", "TraceContext", "Zipkin"]:
        assert getattr(afflux, name) is getattr(format, name)
