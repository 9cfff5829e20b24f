"""Codecs: values and their bytes, by MIME type; and bytes that are none, hostile ones among them."""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import afflux
from afflux import codecs

OCTETS, TEXT, JSON = "application/octet-stream", "text/plain", "application/json"
CBOR, MSGPACK = "application/cbor", "application/msgpack"
PLAIN = [JSON, CBOR, MSGPACK]
ID = UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Price:
    symbol: str
    bid: float


# What goes through.

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@pytest.mark.parametrize("mime", PLAIN)
@given(value=values)
def test_plain_values_and_back(mime: str, value: Any) -> None:
    assert codecs.decode(codecs.encode(value, mime), mime) == value


@pytest.mark.parametrize("mime", [CBOR, MSGPACK])
@given(value=st.binary())
def test_bytes_and_back(mime: str, value: bytes) -> None:
    assert codecs.decode(codecs.encode([value], mime), mime, list[bytes]) == [value]


@pytest.mark.parametrize("mime", PLAIN)
def test_typed_values_and_back(mime: str) -> None:
    data = codecs.encode({"best": Price("EUR", 1.25), "id": ID, "all": (Price("USD", 1),)}, mime)
    assert codecs.decode(data, mime) == {
        "best": {"symbol": "EUR", "bid": 1.25},
        "id": str(ID),
        "all": [{"symbol": "USD", "bid": 1}],
    }
    assert codecs.decode(codecs.encode(Price("EUR", 2), mime), mime, Price) == Price("EUR", 2.0)


def test_text() -> None:
    assert codecs.encode("é", TEXT) == "é".encode()
    assert codecs.decode("é".encode(), TEXT) == "é"
    assert codecs.encode(5, TEXT) == b"5"
    assert codecs.decode(b"5", TEXT, int) == 5
    assert codecs.decode(str(ID).encode(), TEXT, UUID) == ID


def test_octets() -> None:
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab"):
        assert codecs.encode(value, OCTETS) == b"ab"
    assert codecs.decode(b"ab", OCTETS) == codecs.decode(b"ab", OCTETS, bytes) == b"ab"
    assert codecs.decode(b"ab", OCTETS, str) == "ab"


def test_json_is_short_and_is_utf_8() -> None:
    assert codecs.encode({"a": ["é", None, True]}, JSON) == '{"a":["é",null,true]}'.encode()


def test_moments_and_large_integers_of_others_are_read() -> None:
    moment = datetime(2026, 2, 28, 12, tzinfo=UTC)
    for data, mime in (
        (cbor2.dumps(moment), CBOR),
        (cbor2.dumps(moment, datetime_as_timestamp=True), CBOR),
        (msgspec.msgpack.encode(moment), MSGPACK),
        (codecs.encode(moment, JSON), JSON),
    ):
        assert codecs.decode(data, mime, datetime) == moment
    assert codecs.decode(codecs.encode(2**70, CBOR), CBOR) == 2**70


def test_numbers_at_the_edge() -> None:
    assert codecs.encode([math.nan, math.inf], JSON) == b"[null,null]"
    for mime in (CBOR, MSGPACK):
        assert math.isnan(codecs.decode(codecs.encode(math.nan, mime), mime))


# What does not.


@pytest.mark.parametrize(
    ("value", "mime", "error", "words"),
    [
        ({"a": 1}, OCTETS, TypeError, "application/octet-stream represents bytes and text, not dict"),
        ([1], TEXT, TypeError, "a list has no text form"),
        (object(), JSON, TypeError, "Encoding objects of type object is unsupported"),
        ({"a": [object()]}, CBOR, TypeError, "Encoding objects of type object is unsupported"),
        ("\ud800", JSON, ValueError, "application/json cannot represent this"),
        ("\ud800", CBOR, ValueError, "application/cbor cannot represent this"),
        ("\ud800", MSGPACK, ValueError, "application/msgpack cannot represent this"),
        (2**64, MSGPACK, ValueError, "application/msgpack cannot represent this"),
    ],
)
def test_values_without_bytes(value: Any, mime: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        codecs.encode(value, mime)


@pytest.mark.parametrize("mime", PLAIN)
def test_an_endless_value_has_no_bytes(mime: str) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="it is nested too deep"):
        codecs.encode(endless, mime)


@pytest.mark.parametrize(
    ("data", "mime", "words"),
    [
        (b"\xff", TEXT, "the data is not text (text/plain): byte 0 is not UTF-8"),
        (b"", JSON, "the data is not application/json: Input data was truncated"),
        (b"{", JSON, "the data is not application/json: Input data was truncated"),
        (b"1 2", JSON, "the data is not application/json: JSON is malformed: "),
        (b"[\xff]", JSON, "the data is not application/json: JSON is malformed: invalid character (byte 1)"),
        (b"[NaN]", JSON, "the data is not application/json: JSON is malformed: invalid character (byte 1)"),
        (b"", CBOR, "the data is not application/cbor: premature end"),
        (b"\x9b\x00\x00\x00\x7f\xff\xff\xff\xff", CBOR, "the data is not application/cbor: premature end"),
        (b"\x00\x00\x00", CBOR, "the data is not application/cbor: 2 bytes follow the value"),
        (cbor2.dumps(ID), CBOR, "the data is not application/cbor: tag 37 is not supported"),
        (cbor2.dumps(cbor2.CBORTag(4711, "x")), CBOR, "the data is not application/cbor: tag 4711 is not supported"),
        (b"\xd8\x1c\x81\xd8\x1d\x00", CBOR, "the data is not application/cbor: tag 28 is not supported"),
        (b"\xa1\x01\x02", CBOR, "the data is not application/cbor: error decoding map: map key must be a text"),
        (b"\xc1\x1b" + b"\xff" * 8, CBOR, "the data is not application/cbor: timestamp out of range"),
        (b"", MSGPACK, "the data is not application/msgpack: Input data was truncated"),
        (b"\xdd\xff\xff\xff\xff", MSGPACK, "the data is not application/msgpack: Input data was truncated"),
        (b"\xc6\x7f\xff\xff\xff", MSGPACK, "the data is not application/msgpack: Input data was truncated"),
        (b"\xc1", MSGPACK, "the data is not application/msgpack: MessagePack data is malformed: invalid opcode"),
        (b"\x00\x00", MSGPACK, "the data is not application/msgpack: MessagePack data is malformed: trailing"),
        (b"\xd4\x05a", MSGPACK, "the data is not application/msgpack: extension type 5 is not supported"),
    ],
)
def test_bytes_that_are_none(data: bytes, mime: str, words: str) -> None:
    with pytest.raises(afflux.Invalid) as caught:
        codecs.decode(data, mime, Any if mime != TEXT else str)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("data", "mime", "kind", "words"),
    [
        (b'{"bid": 1}', JSON, Price, "the data does not fit: Object missing required field `symbol`"),
        (
            b'[{"symbol": "a", "bid": "x"}]',
            JSON,
            list[Price],
            "the data does not fit: Expected `float`, got `str` - at `$[0].bid`",
        ),
        (b"5", JSON, str, "the data does not fit: Expected `str`, got `int`"),
        (b"x", TEXT, int, "data: expected int, not 'x'"),
        (b"\xa0", CBOR, list, "the data does not fit: Expected `array`, got `object`"),
        (b"\xc0", MSGPACK, int, "the data does not fit: Expected `int`, got `None`"),
        (b"{}", TEXT, dict, "the data is text/plain, which cannot represent dict; available: application"),
        (
            b"{}",
            OCTETS,
            dict[str, int],
            "the data is application/octet-stream, which cannot represent dict[str, int]; ",
        ),
        (b"\xff", OCTETS, str, "the data is not text (application/octet-stream): byte 0 is not UTF-8"),
    ],
)
def test_data_of_another_type(data: bytes, mime: str, kind: Any, words: str) -> None:
    with pytest.raises(afflux.Invalid) as caught:
        codecs.decode(data, mime, kind)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("mime", "opens", "inside", "closes"),
    [
        (JSON, b"[", b"1", b"]"),
        (JSON, b'{"a":', b"1", b"}"),
        (CBOR, b"\x81", b"\x01", b""),
        (CBOR, b"\xa1\x61a", b"\x01", b""),
        (MSGPACK, b"\x91", b"\x01", b""),
        (MSGPACK, b"\x81\xa1a", b"\x01", b""),
    ],
)
def test_how_deep_data_may_nest(mime: str, opens: bytes, inside: bytes, closes: bytes) -> None:
    def nested(depth: int) -> bytes:
        return opens * depth + inside + closes * depth

    assert codecs.decode(nested(100), mime)
    for depth in (5_000, 200_000):
        with pytest.raises(afflux.Invalid, match=r"nest|deep"):
            codecs.decode(nested(depth), mime)
    with pytest.raises(afflux.Invalid):
        codecs.decode(opens * 200_000, mime)


def test_brackets_in_text_do_not_nest() -> None:
    assert codecs.decode(b'"' + b"[" * 1000 + b'"', JSON) == "[" * 1000
    assert codecs.decode(b"[" + b"[]," * 1000 + b"[]]", JSON) == [[]] * 1001


@pytest.mark.parametrize(
    ("mime", "lies"), [(CBOR, b"\x9a\x00\x7f\xff\xff"), (MSGPACK, b"\xdd\x00\x7f\xff\xff")], ids=["cbor", "msgpack"]
)
def test_nothing_is_allocated_by_a_length_that_lies(mime: str, lies: bytes) -> None:
    data = lies * 60 + bytes(8 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(afflux.Invalid):
            codecs.decode(data, mime)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(data), "60 lists of 8 Mi places would be 500 times as much"


@pytest.mark.parametrize("mime", PLAIN)
@given(data=st.binary(max_size=64))
def test_garbage_is_invalid_and_nothing_else(mime: str, data: bytes) -> None:
    try:
        codecs.decode(data, mime)
    except afflux.Invalid:
        pass


# The registry.


class Upper(codecs.Codec):
    mime = "text/x-upper"
    aliases = ("text/upper",)

    def encode(self, value: Any) -> bytes:
        return str(value).upper().encode()

    def decode(self, data: bytes, kind: Any = Any) -> Any:
        return data.decode().lower()


@pytest.fixture
def registry() -> Iterator[dict[str, codecs.Codec]]:
    before = dict(codecs._codecs)
    yield codecs._codecs
    codecs._codecs.clear()
    codecs._codecs.update(before)


def test_what_there_is() -> None:
    assert codecs.available() == (OCTETS, TEXT, JSON, CBOR, MSGPACK)
    assert codecs.find("application/x-msgpack") is codecs.find(MSGPACK)
    assert codecs.find("text/json") is codecs.find(JSON)
    assert repr(codecs.find(JSON)) == "<Codec application/json>"


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("Application/JSON", JSON),
        ("application/json; charset=utf-8", JSON),
        ("application/cloudevents+json", JSON),
        ("application/senml+cbor", CBOR),
    ],
)
def test_other_names_of_a_type(name: str, mime: str) -> None:
    assert codecs.find(name).mime == mime
    assert codecs.find(mime).called(name) == ("+" not in name)


def test_a_type_without_a_codec() -> None:
    with pytest.raises(afflux.Unsupported, match="no codec for 'image/png'; available: application/octet-stream, text"):
        codecs.encode(1, "image/png")
    for wrong in ("+", "json", "", "application/"):
        with pytest.raises(afflux.Unsupported, match="no codec for"):
            codecs.decode(b"", wrong)


def test_a_codec_of_ones_own(registry: dict[str, codecs.Codec]) -> None:
    upper = codecs.register(Upper())
    assert codecs.find("text/upper") is upper
    assert codecs.decode(codecs.encode("abc", "text/x-upper"), "text/x-upper") == "abc"
    upper.check(object)  # what it can become is its own business
    with pytest.raises(ValueError, match="text/x-upper already has a codec"):
        codecs.register(Upper())
    assert codecs.register(Upper(), replace=True) is codecs.find("text/upper")


def test_what_is_no_codec() -> None:
    for wrong in (Upper, object(), codecs.Codec()):
        with pytest.raises(TypeError, match="a codec must be an instance of a subclass of Codec with a mime"):
            codecs.register(wrong)  # type: ignore[arg-type] # what a user may do
    for call in (codecs.Codec().encode, codecs.Codec().decode):
        with pytest.raises(NotImplementedError):
            call(b"")


def test_a_type_whose_module_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cbor2", None)
    codecs._installed.cache_clear()
    try:
        assert CBOR not in codecs.available()
        with pytest.raises(afflux.MissingExtra, match=r'application/cbor needs the extra "codecs"'):
            codecs.find(CBOR)
    finally:
        monkeypatch.undo()
        codecs._installed.cache_clear()
    assert CBOR in codecs.available()


@pytest.mark.parametrize("mime", PLAIN)
def test_a_module_that_went_away(mime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = codecs.find(mime)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(afflux.MissingExtra):
        codec.encode(1)
    with pytest.raises(afflux.MissingExtra):
        codec.decode(b"\x01")
