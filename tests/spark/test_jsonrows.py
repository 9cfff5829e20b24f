"""``format=json``: good rows, bad rows, and that the good ones don't care about the bad ones beside them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core.errors import Invalid
from afflux.spark.jsonrows import BadRow, JsonRows

pa = pytest.importorskip("pyarrow")

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("_corrupt_record", pa.string())])


def rows_of(schema: Any, failfast: bool = False) -> JsonRows:
    return JsonRows(schema, "tcp://h:1 route 'r'", failfast=failfast, corrupt_record="_corrupt_record")


def decoded(items: list[bytes], schema: Any = SCHEMA) -> list[dict[str, Any]]:
    batch = rows_of(schema).decode(pa.array(items, pa.binary()), range(len(items)))
    batch.validate(full=True)
    assert batch.schema == schema
    return list(batch.to_pylist())


def test_objects_become_rows() -> None:
    items = [b'{"id": 1, "name": "a"}', b'{"name": null, "else": [1, {"x": 2}]}', b"{}"]
    assert decoded(items) == [
        {"id": 1, "name": "a", "_corrupt_record": None},
        {"id": None, "name": None, "_corrupt_record": None},
        {"id": None, "name": None, "_corrupt_record": None},
    ]


GOOD = [
    (b' {"id": 3}', 3),
    (b'{"id":\n4}', 4),
    (b'{\r\n\t"id": 5\r\n}\n', 5),
    (b"\n\n" + b'{"id": 6}', 6),
]
BAD = [
    b"",
    b"  ",
    b"[1]",
    b"7",
    b'"x"',
    b"null",
    b'{"id": 1',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}\n{"id": 2}',
    b'{"id": 1} x',
    b'{"id": "1"}',
    b'{"id": 1.5}',
    b'{"id": 2147483648}',
    b'{"id": NaN}',
    b'{"name": 5}',
    b'{"name": "\\ud800"}',
    b'{"name": "\xff"}',
    b'{"name": "\xed\xa0\x80"}',
    b'{"id": "' + b"x" * 3_000_000 + b'"}',
]


@pytest.mark.parametrize(("item", "number"), GOOD)
def test_space_does_not_matter(item: bytes, number: int) -> None:
    assert decoded([item])[0]["id"] == number
    assert [row["id"] for row in decoded([b'{"id": 1}', item, b'{"id": 2}'])] == [1, number, 2]


@pytest.mark.parametrize("item", BAD, ids=range(len(BAD)))
def test_a_bad_row_is_put_aside_alone(item: bytes) -> None:
    rows = decoded([b'{"id": 1, "name": "a"}', item, b'{"id": 2, "name": "b"}'])
    assert [row["id"] for row in rows] == [1, None, 2]
    assert [row["name"] for row in rows] == ["a", None, "b"]
    assert rows[1]["_corrupt_record"] == str(item, "utf-8", "replace")
    assert rows[0]["_corrupt_record"] is None


@pytest.mark.parametrize("item", BAD, ids=range(len(BAD)))
def test_a_bad_row_alone_in_its_batch(item: bytes) -> None:
    (row,) = decoded([item])
    assert row["id"] is None and row["_corrupt_record"] == str(item, "utf-8", "replace")


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(BAD[:-1]), st.integers(0, 99)), max_size=30))
def test_any_mixture(items: list[Any]) -> None:
    data = [item if isinstance(item, bytes) else json.dumps({"id": item}).encode() for item in items]
    wanted = [None if isinstance(item, bytes) else item for item in items]
    if data:
        assert [row["id"] for row in decoded(data)] == wanted


def test_failfast_names_stream_and_offset_of_the_first_bad_row() -> None:
    items = pa.array([b'{"id": 1}', b'{"id": "x"}', b"?"], pa.binary())
    with pytest.raises(BadRow, match=r"tcp://h:1 route 'r', offset 501: .*b'{\"id\": \"x\"}'"):
        rows_of(SCHEMA, failfast=True).decode(items, [500, 501, 502])


def test_failfast_takes_good_rows_with_space_before_them() -> None:
    batch = rows_of(SCHEMA, failfast=True).decode(pa.array([b' {"id": 1}', b'{"id": 2}'], pa.binary()), range(2))
    assert batch.column("id").to_pylist() == [1, 2]


def test_no_column_for_corrupt_records() -> None:
    assert decoded([b"?", b'{"id": 1}'], pa.schema([("id", pa.int64())])) == [{"id": None}, {"id": 1}]


def test_types() -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(6, 2)),
            ("ratio", pa.float64()),
            ("ok", pa.bool_()),
            ("tags", pa.list_(pa.string())),
            ("deep", pa.struct([("x", pa.int64())])),
        ]
    )
    item = (
        b'{"day": "2013-01-01", "at": "2013-01-01T05:15:00Z", "price": 1.25, "ratio": 2, "ok": true,'
        b' "tags": ["a", null], "deep": {"x": 4, "y": 5}}'
    )
    (row,) = decoded([item], schema)
    assert row["day"] == date(2013, 1, 1) and row["at"] == datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    assert str(row["price"]) == "1.25" and row["ratio"] == 2.0 and row["ok"] is True
    assert row["tags"] == ["a", None] and row["deep"] == {"x": 4}


@pytest.mark.parametrize("item", [b'{"price": 99999.5}', b'{"day": "2013-13-01"}', b'{"at": "yesterday"}'])
def test_a_value_that_does_not_fit_is_a_bad_row(item: bytes) -> None:
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(6, 2))])
    assert decoded([item], schema) == [{"day": None, "at": None, "price": None}]


def test_a_type_that_json_has_no_words_for_is_refused_at_once() -> None:
    with pytest.raises(Invalid, match=r"column m: JSON cannot be converted to map<string, int64>"):
        rows_of(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))


def test_the_column_for_corrupt_records_is_text() -> None:
    with pytest.raises(Invalid, match="column _corrupt_record gets the text of bad rows"):
        rows_of(pa.schema([("_corrupt_record", pa.binary())]))
