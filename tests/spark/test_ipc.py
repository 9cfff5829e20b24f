"""``format=arrow``: items that are Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from afflux.spark.ipc import ROWS, ArrowRows  # noqa: E402
from afflux.spark.rows import DROPMALFORMED, FAILFAST, PERMISSIVE, BadRow, Modes  # noqa: E402
from afflux.spark.times import zone_of  # noqa: E402

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_corrupt_record", pa.binary())])


def item(table: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def rows_of(schema: Any, mode: str = PERMISSIVE) -> ArrowRows:
    zone = zone_of("America/New_York")
    assert zone is not None
    return ArrowRows(Modes(schema, "tcp://h:1", mode, "_corrupt_record", text=False), zone)


def decoded(items: Sequence[bytes], schema: Any = SCHEMA, mode: str = PERMISSIVE) -> list[dict[str, Any]]:
    batches = list(rows_of(schema, mode).decode(pa.array(items, pa.binary()), range(len(items))))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == schema
    return [row for batch in batches for row in batch.to_pylist()]


def test_all_rows_of_all_batches_of_all_items() -> None:
    first = pa.table({"name": ["a", None], "id": [1, 2], "other": [True, False]})
    second = pa.table({"id": pa.array([3], pa.int16())})
    many = pa.Table.from_batches([*pa.table({"id": [4]}).to_batches(), *pa.table({"id": [5, 6]}).to_batches()])
    rows = decoded([item(first), item(second), item(many), item(first.slice(0, 0))])
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, None), *((n, None) for n in (3, 4, 5, 6))]
    assert decoded([]) == [] and decoded([item(first.slice(0, 0))]) == []


def test_nested_types_and_times() -> None:
    deep = pa.struct([("at", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))])
    schema = pa.schema([("deep", deep), ("t", pa.timestamp("us", "UTC")), ("l", pa.timestamp("us"))])
    local = pa.array([1357017300000, None], pa.timestamp("ms"))
    rows = pa.array([{"at": 0, "m": [("k", [1])]}, None], deep)
    ours, nothing = decoded([item(pa.table({"deep": rows, "t": local, "l": local}))], schema)
    assert ours["deep"]["m"] == [("k", [1])] and nothing == {"deep": None, "t": None, "l": None}
    assert (ours["t"].hour, ours["l"].hour) == (10, 5)  # without a zone: New York's


GOOD = item(pa.table({"id": [1], "name": ["a"]}))
WRONG = [
    b"",
    b"x" * 100,
    GOOD[:-30],
    GOOD[: len(GOOD) // 2],
    item(pa.table({"id": ["1"]})),
    item(pa.table({"id": [1.5]})),
    item(pa.table({"id": pa.array([2**64 - 1], pa.uint64())})),
    item(pa.table({"name": pa.array(["a"]).dictionary_encode()})),
    item(pa.table({"other": pa.array(["a"]).dictionary_encode()})),
    item(pa.table({"name": pa.array(["a"]).cast(pa.string_view())})),
    item(pa.table({"name": ["a" * 1000]}), compression="zstd"),
    item(pa.table({"name": pa.array([b"\xff"]).view(pa.binary())})),
    item(pa.table({"id": pa.nulls(ROWS + 1)})),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_a_malformed_item_is_one_row_of_nulls(wrong: bytes) -> None:
    good = {"id": 1, "name": "a", "_corrupt_record": None}
    assert decoded([GOOD, wrong, GOOD]) == [good, {"id": None, "name": None, "_corrupt_record": wrong}, good]
    assert decoded([GOOD, wrong, GOOD], mode=DROPMALFORMED) == [good, good]
    with pytest.raises(BadRow, match="tcp://h:1, offset 1: not Arrow IPC of the schema: "):
        decoded([GOOD, wrong], mode=FAILFAST)


def test_the_reason_is_named() -> None:
    for wrong, why in (
        (WRONG[4], "column id is string, not int64"),
        (WRONG[8], "dictionaries are unsupported"),
        (WRONG[10], "compressed record batches are unsupported"),
        (WRONG[12], f"a batch has {ROWS + 1} rows, more than {ROWS}"),
    ):
        with pytest.raises(BadRow, match=why):
            decoded([wrong], mode=FAILFAST)


def test_as_many_rows_as_permitted() -> None:
    rows = rows_of(SCHEMA).decode(pa.array([item(pa.table({"id": pa.nulls(ROWS)})), GOOD], pa.binary()), [0, 1])
    assert [len(batch) for batch in rows] == [ROWS, 1]


@settings(deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
def test_damaged_items_are_rows_or_nulls(place: int, other: bytes) -> None:
    damaged = GOOD[:place] + other + GOOD[place + len(other) :]
    assert all(set(row) == set(SCHEMA.names) for row in decoded([damaged, GOOD]))
