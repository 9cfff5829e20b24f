"""Composite metadata, compact MIME types and routing: the vectors both ways, limits and what is malformed.

What other entries hold is tried in the files beside this one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import (
    ACCEPT_MIME,
    AUTHENTICATION_MIME,
    COMPOSITE_MIME,
    MIME_IDS,
    MIME_NAMES,
    MIME_TYPE_MIME,
    OCTET_STREAM,
    ROUTING_MIME,
    TRACING_MIME,
    Accept,
    Address,
    Bearer,
    BrokerFrame,
    CompactLen,
    Credentials,
    MimeType,
    Route,
    RouteSetup,
    Simple,
    compose,
    decode_broker,
    decode_credentials,
    decode_mime,
    encode_mime,
    encode_tags,
    entries,
    mime_name,
    pair_of,
    route_of,
    tags,
)
from afflux.protocols.rsocket.metadata.broker import KEY_NAMES

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "rsocket.json").read_text())

MIMES = st.sampled_from(sorted(MIME_IDS)) | st.text(st.characters(codec="ascii"), min_size=1, max_size=0x80)


def having(key: str) -> list[Any]:
    return [pytest.param(v, id=v["id"]) for v in VECTORS if key in v["decoded"]]


@pytest.mark.parametrize("vector", having("composite"))
def test_a_composite_vector_is_read_and_written_as_published(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    at = 0
    expected = vector["decoded"]["composite"]
    for (mime, value), entry in zip(entries(data), expected, strict=True):
        id, name, end = decode_mime(data, at)
        assert (id, name, mime) == (entry["mime_id"], entry["mime"], entry["mime"])
        assert value.hex() == entry["payload_hex"]
        if "routing_tags" in entry:
            assert list(tags(value)) == entry["routing_tags"]
            assert encode_tags(entry["routing_tags"]) == value
            assert Route(*entry["routing_tags"]) == Route.decode(value)
        if "auth" in entry:
            assert decode_credentials(value) == Simple(entry["auth"]["username"], entry["auth"]["password"])
            assert decode_credentials(value).encode() == value
        at = end + 3 + len(value)
    assert at == len(data)
    again = compose(entries(data))
    # A well-known name that came as text is written as its id; everything else is written as it was.
    text = [entry["mime"] for entry in expected if entry["mime_id"] is None and entry["mime"] in MIME_IDS]
    for name in text:
        data = data.replace(bytes((len(name) - 1,)) + name.encode(), bytes((0x80 | MIME_IDS[name],)))
    assert again == data


@pytest.mark.parametrize("vector", having("routing_tags"))
def test_a_routing_vector_is_read_and_written_as_published(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    assert list(tags(data)) == vector["decoded"]["routing_tags"]
    assert encode_tags(vector["decoded"]["routing_tags"]) == data
    assert Route.decode(data).encode() == data


@pytest.mark.parametrize("vector", having("broker"))
def test_a_broker_vector_is_read_and_written_as_published(vector: dict[str, Any]) -> None:
    data, said = bytes.fromhex(vector["hex"]), vector["decoded"]
    frame = decode_broker(data)
    tags = tuple((KEY_NAMES.get(tag["key_id"], tag["key"]), tag["value"]) for tag in said["tags"])
    expected: BrokerFrame
    if said["broker"] == "ROUTE_SETUP":
        expected = RouteSetup(bytes.fromhex(said["route_id_hex"]), said["service_name"], tags)
    else:
        origin, wrapped = bytes.fromhex(said["origin_route_id_hex"]), bytes.fromhex(said["wrapped_hex"])
        assert (said["broker"], said["flags"]) == ("ADDRESS", 0x080)
        expected = Address(tags, method="unicast", origin=origin, wrapped=wrapped)
    assert frame == expected
    assert frame.encode() == expected.encode() == data


def test_the_table_of_mime_types_is_the_published_one() -> None:
    for id, name in {
        0x00: "application/avro",
        0x05: "application/json",
        0x06: "application/octet-stream",
        0x0B: "application/zip",
        0x0C: "audio/aac",
        0x13: "audio/vorbis",
        0x14: "image/bmp",
        0x1C: "image/tiff",
        0x1D: "multipart/mixed",
        0x1E: "text/css",
        0x21: "text/plain",
        0x22: "text/xml",
        0x23: "video/H264",
        0x25: "video/VP8",
        0x26: "application/x-hessian",
        0x28: "application/cloudevents+json",
        0x2A: "application/x-flatbuffers",
        0x79: "message/x.rsocket.supported-lease-strategies.v0",
        0x7A: MIME_TYPE_MIME,
        0x7B: ACCEPT_MIME,
        0x7C: AUTHENTICATION_MIME,
        0x7D: TRACING_MIME,
        0x7E: ROUTING_MIME,
        0x7F: COMPOSITE_MIME,
    }.items():
        assert mime_name(id) == MIME_NAMES[id] == name
        assert MIME_IDS[name] == id
        assert encode_mime(name) == bytes((0x80 | id,))
    assert len(MIME_NAMES) == 0x2B + 7
    assert OCTET_STREAM == "application/octet-stream"


@pytest.mark.parametrize("id", [0x2B, 0x78])
def test_a_reserved_id_has_a_name_that_leads_back(id: int) -> None:
    data = bytes((0x80 | id,))
    assert decode_mime(data) == (id, f"0x{id:02X}", 1)
    assert encode_mime(mime_name(id)) == data


@given(MIMES)
def test_any_mime_type_survives(mime: str) -> None:
    data = encode_mime(mime)
    assert decode_mime(b"?" + data + b"!", 1)[1:] == (mime, 1 + len(data))


@given(MIMES.filter(lambda mime: len(mime) < 0x80))
def test_any_mime_type_survives_with_a_plain_length(mime: str) -> None:
    """Section 6: rsocket-swift writes plain lengths for compact text."""
    data = encode_mime(mime, "plain")
    assert decode_mime(b"?" + data + b"!", 1, "plain")[1:] == (mime, 1 + len(data))
    if data[0] < 0x80:
        assert data[0] == len(mime)


def test_a_plain_length_is_1_to_127() -> None:
    assert encode_mime("x" * 127, "plain") == b"\x7f" + b"x" * 127
    with pytest.raises(Violation, match="1 to 127 ASCII characters"):
        encode_mime("x" * 128, "plain")
    with pytest.raises(Violation, match="is empty"):
        decode_mime(b"\x00abc", 0, "plain")


@given(st.lists(st.tuples(MIMES, st.binary(max_size=40)), max_size=8))
def test_order_and_duplicates_are_kept(given: list[tuple[str, bytes]]) -> None:
    """R-54: preserve composite entry order and allow duplicates."""
    assert list(entries(compose(given))) == given


@pytest.mark.parametrize("compact_len", ["minus-one", "plain"])
def test_typed_entries_and_pairs_are_written_in_order(compact_len: CompactLen) -> None:
    given = [Bearer("t"), ("a/b", bytearray(b"x")), MimeType("c/d"), Accept(["e/f"]), Credentials("own", b"p")]
    metadata = compose(given, route="r", compact_len=compact_len)
    assert list(entries(metadata, compact_len=compact_len)) == [
        (ROUTING_MIME, b"\x01r"),
        (AUTHENTICATION_MIME, b"\x81t"),
        ("a/b", b"x"),
        (MIME_TYPE_MIME, encode_mime("c/d", compact_len)),
        (ACCEPT_MIME, encode_mime("e/f", compact_len)),
        (AUTHENTICATION_MIME, encode_mime("own", compact_len) + b"p"),
    ]


def test_an_application_may_write_entries_of_its_own() -> None:
    class Tenant:
        MIME = "application/x.tenant"

        def encode(self) -> bytes:
            return b"7"

    assert compose([Tenant()]) == compose([("application/x.tenant", b"7")])


@pytest.mark.parametrize(
    "entry", ["text", b"bytes", 5, ("a/b",), ("a/b", "text"), ("a/b", 5), (b"a/b", b"x"), ("a/b", b"x", b"y"), None]
)
def test_what_is_no_entry_is_refused(entry: Any) -> None:
    with pytest.raises(TypeError, match=r"a metadata entry .*\(MIME type, bytes\)"):
        pair_of(entry)


@given(st.lists(st.tuples(MIMES, st.binary(max_size=10)), min_size=1, max_size=4), st.data())
def test_what_overruns_is_an_error_after_the_entries_before_it(given: list[tuple[str, bytes]], data: Any) -> None:
    """R-55: report an entry that overruns its buffer as an error, keeping the entries before it."""
    whole = compose(given)
    boundaries = [len(compose(given[:n])) for n in range(len(given) + 1)]
    end = data.draw(st.integers(0, len(whole)).filter(lambda end: end not in boundaries))
    got = []
    with pytest.raises(Violation) as caught:
        for entry in entries(whole[:end]):
            got.append(entry)
    assert got == given[: sum(boundary <= end for boundary in boundaries) - 1]
    assert (caught.value.rule, caught.value.code) == ("R-55", Code.INVALID)


@given(st.binary(max_size=60))
def test_garbage_is_read_or_a_violation(data: bytes) -> None:
    for read in (entries, tags, route_of, decode_mime):
        try:
            list(read(data) or ())
        except Violation as violation:
            assert violation.code == Code.INVALID


def test_there_are_only_so_many_entries() -> None:
    metadata = compose([("a/b", b"")] * 4)
    assert len(list(entries(metadata, 4))) == 4
    got = []
    with pytest.raises(Violation, match="too-many-entries") as caught:
        for entry in entries(metadata, 3):
            got.append(entry)
    assert len(got) == 3
    assert caught.value.rule == "composite_entries"


@pytest.mark.parametrize("mime", ["", "x" * 129, "é"])
def test_a_mime_type_that_does_not_fit_is_refused(mime: str) -> None:
    with pytest.raises(Violation, match="1 to 128 ASCII characters"):
        encode_mime(mime)


def test_a_mime_type_that_is_missing_or_not_ascii_is_refused() -> None:
    with pytest.raises(Violation, match="missing"):
        decode_mime(b"")
    with pytest.raises(Violation, match="not ASCII"):
        decode_mime(b"\x00\xff")


def test_a_value_that_does_not_fit_is_refused() -> None:
    assert len(compose([("a/b", bytes(0xFFFFFF))])) == 4 + 3 + 0xFFFFFF
    with pytest.raises(Violation, match="16777216 bytes"):
        compose([("a/b", bytes(0x1000000))])


@pytest.mark.parametrize("tag", ["", "é" * 127, "x" * 255])
def test_tags_have_0_to_255_bytes(tag: str) -> None:
    """R-56: accept routing tags of 0-255 bytes."""
    assert list(tags(encode_tags((tag, "second")))) == [tag, "second"]


@pytest.mark.parametrize(
    ("tag", "why"), [("é" * 128, "256 bytes"), ("x" * 256, "256 bytes"), ("\ud800", "not Unicode")]
)
def test_a_tag_that_does_not_fit_is_refused(tag: str, why: str) -> None:
    with pytest.raises(Violation, match=why) as caught:
        encode_tags((tag,))
    assert caught.value.rule == "R-56"


@pytest.mark.parametrize("tag", ["é" * 128, "\ud800"])
def test_a_route_that_does_not_fit_cannot_be_made(tag: str) -> None:
    with pytest.raises(LocalProtocolError, match="a routing tag") as caught:
        Route("first", tag)
    assert caught.value.rule == "R-56"


@pytest.mark.parametrize("route", [Route(), Route("a"), Route("a", "b")])
def test_a_route_is_shown_as_it_is_made(route: Route) -> None:
    assert eval(repr(route)) == route


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_route_survives(given: list[str]) -> None:
    route = Route(*given)
    assert Route.decode(route.encode()) == route
    assert eval(repr(route)) == route
    assert pair_of(route) == (ROUTING_MIME, encode_tags(given))


@pytest.mark.parametrize(("data", "why"), [(b"\x05abc", "5 bytes where 3 are left"), (b"\x01\xff", "not UTF-8")])
def test_a_malformed_tag_is_refused_after_those_before_it(data: bytes, why: str) -> None:
    got = []
    with pytest.raises(Violation, match=why):
        for tag in tags(b"\x01a" + data):
            got.append(tag)
    assert got == ["a"]


ROUTED = compose([("a/b", b"first"), (ROUTING_MIME, encode_tags(("second", "third")))], route="first")


@pytest.mark.parametrize(
    ("metadata", "mime", "route"),
    [
        (None, COMPOSITE_MIME, None),
        (b"", COMPOSITE_MIME, None),
        (compose(route="flights"), COMPOSITE_MIME, "flights"),
        (compose(route=""), COMPOSITE_MIME, ""),
        (ROUTED, COMPOSITE_MIME, "first"),
        (compose([("a/b", b"x"), (ROUTING_MIME, b"\x01r")]), COMPOSITE_MIME, "r"),
        (compose([("a/b", b"x")]), COMPOSITE_MIME, None),
        (compose([(ROUTING_MIME, b"")]), COMPOSITE_MIME, None),
        (encode_tags(("flights", "more")), ROUTING_MIME, "flights"),
        (b"\x07flights", "application/json", None),
        (compose(route="r") + b"broken", COMPOSITE_MIME, "r"),
    ],
)
def test_the_route_is_the_first_tag(metadata: bytes | None, mime: str, route: str | None) -> None:
    assert route_of(metadata, mime) == route


def test_what_is_malformed_before_the_route_is_refused() -> None:
    with pytest.raises(Violation, match="longer than what is left"):
        route_of(b"\x85\x00\x00\x09x" + compose(route="r"))
    with pytest.raises(Violation, match="too-many-entries"):
        route_of(compose([("a/b", b"")] * 3 + [(ROUTING_MIME, b"\x01r")]), limit=3)
