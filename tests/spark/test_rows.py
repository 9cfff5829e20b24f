"""Items into columns: what fits, what does not, and that no row depends on another."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
msgspec = pytest.importorskip("msgspec")
cbor2 = pytest.importorskip("cbor2")

from afflux.core.errors import Invalid  # noqa: E402
from afflux.spark.rows import (  # noqa: E402
    CBOR,
    DROPMALFORMED,
    FAILFAST,
    JSON,
    MSGPACK,
    PERMISSIVE,
    BadRow,
    Format,
    Modes,
    Rows,
)
from afflux.spark.times import zone_of  # noqa: E402
from tests.spark import generated  # noqa: E402

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("_corrupt_record", pa.string())])
ZONE = zone_of("America/New_York")
SLOW = replace(JSON, decoder=None)
"JSON by values.py alone."


def rows_of(schema: Any, mode: str = PERMISSIVE, form: Format = JSON) -> Rows:
    assert ZONE is not None
    return Rows(Modes(schema, "tcp://h:1 route 'r'", mode, "_corrupt_record", text=form.text), form, ZONE)


def decoded(items: list[bytes], schema: Any = SCHEMA, mode: str = PERMISSIVE, form: Format = JSON) -> Any:
    (batch,) = rows_of(schema, mode, form).decode(pa.array(items, pa.binary()), range(len(items)))
    batch.validate(full=True)
    assert batch.schema == schema
    return batch


def test_objects_become_rows() -> None:
    items = [b'{"id": 1, "name": "a"}', b'{"name": null, "else": [1, {"x": 2}]}', b"{}"]
    assert decoded(items).to_pylist() == [
        {"id": 1, "name": "a", "_corrupt_record": None},
        {"id": None, "name": None, "_corrupt_record": None},
        {"id": None, "name": None, "_corrupt_record": None},
    ]


GOOD = [
    (b' {"id": 3}', 3),
    (b'{"id":\n4}', 4),
    (b'{\r\n\t"id": 5\r\n}\n', 5),
    (b"\n\n" + b'{"id": 6}', 6),
    (b'{"i\\u0064": 7}', 7),
]
NOT_JSON = [
    b"",
    b"  ",
    b"[1]",
    b'[{"id": 1}]',
    b"7",
    b'"x"',
    b"null",
    b'{"id": 1',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}\n{"id": 2}',
    b'{"id": 1} x',
    b'{"id": 1, "name": tru}',
    b'{"id": 1,}',
    b"{'id': 1}",
    b'{"id": 01}',
    b'{"id": 1, "name": "a\nb"}',
    b'{"id": 1, "name": "\\q"}',
    b'\xef\xbb\xbf{"id": 1}',
    b'{"id": 1, "other": "' + b"x" * 3_000_000,
    b'{"id": 1, "other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]
PARTIAL = [
    (b'{"id": "1", "name": "a"}', "a"),
    (b'{"name": "a", "id": 1.5}', "a"),
    (b'{"id": 2147483648, "name": "a"}', "a"),
    (b'{"id": NaN, "name": "a"}', "a"),
    (b'{"id": [1, {"name": 2}], "name": "a"}', "a"),
    (b'{"id": {}, "name": "a"}', "a"),
    (b'{"id": true, "name": "\\ud800"}', "?"),
    (b'{"id": "", "name": "\xff\xed\xa0\x80"}', "\ufffd\ufffd"),
    (b'{"id": "' + b"x" * 3_000_000 + b'", "name": "a"}', "a"),
    (b'{"id": ' + b"9" * 4000 + b', "name": "a"}', "a"),
]


@pytest.mark.parametrize(("item", "number"), GOOD)
def test_space_and_escapes_do_not_matter(item: bytes, number: int) -> None:
    assert decoded([item]).column("id").to_pylist() == [number]
    assert decoded([b'{"id": 1}', item, b'{"id": 2}']).column("id").to_pylist() == [1, number, 2]


@pytest.mark.parametrize("item", NOT_JSON, ids=range(len(NOT_JSON)))
def test_an_item_that_is_not_an_object_is_a_row_of_nulls(item: bytes) -> None:
    rows = decoded([b'{"id": 1, "name": "a"}', item, b'{"id": 2, "name": "b"}']).to_pylist()
    assert [row["id"] for row in rows] == [1, None, 2]
    assert [row["name"] for row in rows] == ["a", None, "b"]
    assert [row["_corrupt_record"] for row in rows] == [None, str(item, "utf-8", "replace"), None]
    assert decoded([item]).to_pylist() == [rows[1]]


@pytest.mark.parametrize(("item", "name"), PARTIAL, ids=range(len(PARTIAL)))
def test_a_field_that_does_not_fit_is_null(item: bytes, name: str) -> None:
    """SP-14."""
    row = {"id": None, "name": name, "_corrupt_record": str(item, "utf-8", "replace")}
    assert decoded([b'{"id": 1}', item, b'{"id": 2}']).to_pylist()[1] == row
    assert decoded([item]).to_pylist() == [row]


def test_items_are_not_parsed_as_one_text() -> None:
    """Together, both would be two objects."""
    items = [b'{"id": 1, "name": ', b'{"name": "x"}}{"id": 2}']
    assert decoded(items).column("id").to_pylist() == [None, None]
    items = [b'{"id": 1, "else": [{"x": 1}', b'{"x": 2}]},{"id": 3}']
    assert decoded(items).column("id").to_pylist() == [None, None]


MIXED = [*NOT_JSON[:-2], *(item for item, _ in PARTIAL[:-2]), *(b'{"id": %d}' % number for number in range(20))]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(MIXED), min_size=1, max_size=30))
def test_no_row_depends_on_another(items: list[bytes]) -> None:
    alone = [decoded([item]).to_pylist()[0] for item in items]
    assert decoded(items).to_pylist() == alone


@pytest.mark.parametrize("form", [JSON, MSGPACK], ids=lambda form: form.name)
def test_only_rows_that_do_not_fit_are_parsed_twice(form: Format) -> None:
    """Whatever their number and order, so that the time is linear."""
    parsed: list[bytes] = []

    def parse(item: bytes) -> Any:
        parsed.append(item)
        return form.parse(item)

    encode = {JSON: msgspec.json.encode, MSGPACK: msgspec.msgpack.encode}[form]
    good, bad = encode({"id": 1, "name": "a"}), encode({"id": "x", "name": "a"})
    schema = SCHEMA if form.text else SCHEMA.remove(2)
    for items in ([bad] * 50, [good, bad] * 25, [good] * 49 + [bad], [good] * 50, [bad] + [b"\xc1"] * 9 + [good] * 40):
        parsed.clear()
        batch = decoded(items, schema, form=replace(form, parse=parse))
        assert parsed == [item for item in items if item != good]
        assert batch.column("name").to_pylist() == [None if item == b"\xc1" else "a" for item in items]


@pytest.mark.parametrize("seed", range(6))
def test_the_fast_way_is_the_slow_way(seed: int) -> None:
    """msgspec and Arrow against Python's json and the rules of values.py, on generated items."""
    random = Random(seed)
    schema = generated.schema(random, 15)
    fields = list(schema)[:-1]
    items = [generated.an_object(random, fields, random.choice((0.01, 0.03, 0.1))).encode() for _ in range(150)]
    fast, slow = decoded(items, schema), decoded(items, schema, form=SLOW)
    for name in schema.names:
        assert generated.plain(fast.column(name)) == generated.plain(slow.column(name)), name


def test_failfast_names_stream_and_offset_and_reason_of_the_first_bad_row() -> None:
    """SP-14."""
    items = pa.array([b'{"id": 1}', b'{"id": "x"}', b"?"], pa.binary())
    with pytest.raises(
        BadRow, match=r"tcp://h:1 route 'r', offset 501: field id: 'x' is not an INT: b'{\"id\": \"x\"}'"
    ):
        list(rows_of(SCHEMA, FAILFAST).decode(items, [500, 501, 502]))
    with pytest.raises(BadRow, match=r"offset 7: not JSON: Expecting value at character 0: b'\?'"):
        list(rows_of(SCHEMA, FAILFAST).decode(items[2:], [7]))


def test_an_error_quotes_the_beginning_of_a_long_item() -> None:
    with pytest.raises(BadRow) as raised:
        list(rows_of(SCHEMA, FAILFAST).decode(pa.array([b'{"id": "' + b"x" * 10_000 + b'"}'], pa.binary()), [0]))
    assert len(str(raised.value)) < 400


def test_dropmalformed_drops_rows_with_any_misfit() -> None:
    items = [b'{"id": 1}', b'{"id": "x", "name": "a"}', b"?", b'{"id": 2}']
    assert decoded(items, mode=DROPMALFORMED).to_pylist() == [
        {"id": 1, "name": None, "_corrupt_record": None},
        {"id": 2, "name": None, "_corrupt_record": None},
    ]
    assert decoded(items[1:3], mode=DROPMALFORMED).num_rows == 0


def test_malformed_items_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(pa.schema([("id", pa.int64())]))
    for first in (0, 3):
        list(rows.decode(pa.array([b'{"id": 1}', b"?", b'{"id": "x"}'], pa.binary()), [first, first + 1, first + 2]))
    assert (rows.modes.malformed, rows.modes.items) == (4, 6)
    rows.modes.report()
    assert caplog.messages == [
        "tcp://h:1 route 'r': 4 of 6 items were malformed; the first, at offset 1: not JSON: Expecting value at "
        "character 0"
    ]
    caplog.clear()
    rows_of(SCHEMA).modes.report()
    assert not caplog.messages


def test_no_column_for_corrupt_records_and_only_that() -> None:
    assert decoded([b"?", b'{"id": 1}'], pa.schema([("id", pa.int64())])).to_pylist() == [{"id": None}, {"id": 1}]
    assert decoded([b"?", b'{"id": 1}'], pa.schema([("_corrupt_record", pa.string())])).to_pylist() == [
        {"_corrupt_record": "?"},
        {"_corrupt_record": None},
    ]


DEEP = pa.schema(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(6, 2)),
        ("ratio", pa.float64()),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("deep", pa.struct([("x", pa.int64()), ("days", pa.list_(pa.date32()))])),
        ("by", pa.map_(pa.string(), pa.int16())),
    ]
)
EXPECTED = {
    "day": date(2013, 1, 1),
    "at": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
    "local": datetime(2013, 1, 1, 5, 15),
    "price": Decimal("1.26"),
    "ratio": 2.0,
    "ok": True,
    "raw": b"hi",
    "tags": ["a", None],
    "deep": {"x": 4, "days": [date(2013, 1, 2)]},
    "by": [("a", 1), ("b", None)],
}


def test_all_types_of_json() -> None:
    item = {
        "day": "2013-01-01",
        "at": "2013-01-01T00:15:00",
        "local": "2013-01-01 05:15:00",
        "price": 1.255,
        "ratio": 2,
        "ok": True,
        "raw": "aGk=",
        "tags": ["a", None],
        "deep": {"x": 4, "y": 5, "days": ["2013-01-02"]},
        "by": {"a": 1, "b": None},
    }
    assert decoded([json.dumps(item).encode()], DEEP).to_pylist() == [EXPECTED]
    assert decoded([json.dumps(item).encode()], DEEP, form=SLOW).to_pylist() == [EXPECTED]


@pytest.mark.parametrize("form", [MSGPACK, CBOR], ids=lambda form: form.name)
def test_all_types_of_packed_formats(form: Format) -> None:
    item = {
        "day": "2013-01-01",
        "at": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
        "local": "2013-01-01 05:15:00",
        "price": "1.255",
        "ratio": 2.0,
        "ok": True,
        "raw": b"hi",
        "tags": ["a", None],
        "deep": {"x": 4, "y": 5, "days": ["2013-01-02"]},
        "by": {"a": 1, "b": None},
    }
    encode = msgspec.msgpack.encode if form is MSGPACK else cbor2.dumps
    others = item | {"at": 1357017300, "price": Decimal("1.255") if form is CBOR else 1.255, "tags": ("a", None)}
    items = [encode(item), encode(others), encode({}), encode({**item, "ok": 1})]
    first, second, empty, partial = decoded(items, DEEP, form=form).to_pylist()
    assert first == second == EXPECTED and partial == EXPECTED | {"ok": None}
    assert set(empty.values()) == {None}


@pytest.mark.parametrize("form", [MSGPACK, CBOR], ids=lambda form: form.name)
@pytest.mark.parametrize("item", [b"", b"\xc1", b"\x01\x02", b"\x9f", b"\xff", b"[1]", b"\xa1"], ids=bytes.hex)
def test_malformed_items_of_packed_formats(form: Format, item: bytes) -> None:
    schema = pa.schema([("id", pa.int32()), ("_corrupt_record", pa.binary())])
    encode = msgspec.msgpack.encode if form is MSGPACK else cbor2.dumps
    good = encode({"id": 1})
    assert decoded([good, item, good + good, good], schema, form=form).to_pylist() == [
        {"id": 1, "_corrupt_record": None},
        {"id": None, "_corrupt_record": item},
        {"id": None, "_corrupt_record": good + good},
        {"id": 1, "_corrupt_record": None},
    ]


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60))
@pytest.mark.parametrize("form", [JSON, MSGPACK, CBOR], ids=lambda form: form.name)
def test_any_bytes_are_a_row(form: Format, item: bytes) -> None:
    schema = pa.schema([("a", pa.map_(pa.string(), pa.list_(pa.string()))), ("b", pa.timestamp("us", "UTC"))])
    assert decoded([item], schema, form=form).num_rows == 1


def test_maps_with_other_keys_in_packed_formats() -> None:
    schema = pa.schema([("m", pa.map_(pa.int32(), pa.string()))])
    items = [msgspec.msgpack.encode({"m": {1: "a", 2: None}}), msgspec.msgpack.encode({"m": {"x": "a"}})]
    assert decoded(items, schema, form=MSGPACK).to_pylist() == [{"m": [(1, "a"), (2, None)]}, {"m": None}]
    with pytest.raises(Invalid, match="column m: keys of a JSON object are text, so its MAP needs STRING keys"):
        rows_of(schema)


@pytest.mark.parametrize("text", ["AAAA=", "AAAA==", "AAAA====", "AA===", "A===", "AA==AA", "AAAA AAAA="])
def test_base64_has_exactly_its_padding(text: str) -> None:
    schema = pa.schema([("b", pa.binary()), ("l", pa.list_(pa.binary()))])
    items = [json.dumps({"b": text}).encode(), json.dumps({"l": [text]}).encode()]
    assert decoded(items, schema).to_pylist() == [{"b": None, "l": None}] * 2


def test_a_comment_of_a_nested_field_changes_nothing() -> None:
    comment = {b"SPARK::metadata::json": b'{"comment": "an id"}'}
    schema = pa.schema([("s", pa.struct([pa.field("a", pa.int32(), metadata=comment)]))])
    assert decoded([b'{"s":{"a":1}}'], schema).to_pylist() == [{"s": {"a": 1}}]


VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"As Spark represents it."


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([("d", pa.duration("us"))], r"column d: duration\[us\] is unsupported; read a STRING"),
        ([("s", pa.struct([("t", pa.time64("ns"))]))], r"column s\.t: time64\[ns\] is unsupported"),
        ([("v", VARIANT)], "column v: struct<.*> is unsupported"),
        ([("_corrupt_record", pa.binary())], "column _corrupt_record gets malformed items and must be STRING"),
        ([("a", pa.int32()), ("a", pa.int64())], "two columns have the same name"),
        ([pa.field("a", pa.int32(), nullable=False)], "column a is NOT NULL, but an item may lack it"),
        ([("a", pa.list_(pa.field("element", pa.int32(), nullable=False)))], r"column a\.element is NOT NULL"),
        ([("a", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False)))], r"column a\.value is NOT NULL"),
        ([("a", pa.struct([pa.field("b", pa.int32(), nullable=False)]))], r"column a\.b is NOT NULL"),
    ],
    ids=range(9),
)
def test_schemas_that_are_refused(schema: list[Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        rows_of(pa.schema(schema))


def test_the_column_for_corrupt_records_of_packed_formats_is_binary() -> None:
    with pytest.raises(Invalid, match="column _corrupt_record gets malformed items and must be BINARY"):
        rows_of(SCHEMA, form=MSGPACK)
