"""Record batches from chunks: every column, every way that items come in."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core.errors import Invalid
from afflux.core.events import Block
from afflux.core.payload import Payload
from afflux.spark.arrow import BATCH_BYTES, BATCH_ROWS, Batches, check_columns, data_column
from afflux.spark.chunks import Chunk

pa = pytest.importorskip("pyarrow")

SCHEMA = pa.schema(
    [
        ("data", pa.binary()),
        ("metadata", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
HEADER = b"\x00\x00\x00header"
T0 = datetime(2013, 1, 1, 5, tzinfo=UTC)
US = int(T0.timestamp()) * 1_000_000


def block(items: list[bytes]) -> Block:
    """A block as the engine makes it: items with a header before each."""
    buffer, starts, ends = b"", array("q"), array("q")
    for item in items:
        buffer += HEADER
        starts.append(len(buffer))
        buffer += item
        ends.append(len(buffer))
    return Block(1, buffer, starts, ends)


def chunk(first: int, items: list[bytes], time_us: int = US) -> Chunk:
    return Chunk(first=first, time_us=time_us, block=block(items))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50))
def test_the_data_of_a_block(items: list[bytes]) -> None:
    column = data_column(chunk(0, items))
    column.validate(full=True)
    assert column.type == pa.binary()
    assert column.to_pylist() == items


def test_blocks_and_items_become_rows_in_order() -> None:
    tagged = Chunk(first=5, time_us=US + 1, payloads=[Payload(b"c", b"m"), Payload(b"d", b""), Payload(b"e")])
    (batch,) = Batches(SCHEMA, 3, include_metadata=True).of([chunk(2, [b"a", b"b"]), tagged])
    assert batch.schema == SCHEMA
    batch.validate(full=True)
    assert batch.column("data").to_pylist() == [b"a", b"b", b"c", b"d", b"e"]
    assert batch.column("metadata").to_pylist() == [None, None, b"m", b"", None]
    assert batch.column("partition").to_pylist() == [3] * 5
    assert batch.column("offset").to_pylist() == [2, 3, 5, 6, 7]
    assert [int(value.value) for value in batch.column("timestamp")] == [US, US, US + 1, US + 1, US + 1]
    assert batch.column("timestamp").to_pylist()[0] == T0


def test_metadata_stays_out_unless_asked_for() -> None:
    (batch,) = Batches(SCHEMA, 0).of([Chunk(first=0, time_us=US, payloads=[Payload(b"c", b"m")])])
    assert batch.column("metadata").to_pylist() == [None]


def test_only_the_columns_wanted() -> None:
    schema = pa.schema([("offset", pa.int64()), ("data", pa.binary())])
    (batch,) = Batches(schema, 0).of([chunk(9, [b"a"])])
    assert batch.to_pylist() == [{"offset": 9, "data": b"a"}]


def test_the_first_row_of_a_batch_has_the_times_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    def received() -> Iterator[Chunk]:
        for first in range(0, 3 * BATCH_ROWS, BATCH_ROWS):
            passes(0.5)
            yield chunk(first, [b"x"] * BATCH_ROWS)
        passes(2)  # the end of the answer

    monkeypatch.setattr("afflux.spark.arrow.monotonic", lambda: now)
    schema = pa.schema([("receive_us", pa.int64()), ("held_us", pa.int64())])
    rows = []
    for batch in Batches(schema, 0).of(received()):
        rows.append(batch.slice(0, 1).to_pylist()[0])
        assert batch.column("receive_us").null_count == batch.column("held_us").null_count == BATCH_ROWS - 1
        passes(3)
    assert [(row["receive_us"], row["held_us"]) for row in rows] == [(500_000, 0)] + [(500_000, 3_000_000)] * 2


def test_no_chunks_no_batches() -> None:
    assert list(Batches(SCHEMA, 0).of([])) == []


@pytest.mark.parametrize(("size", "rows"), [(1, BATCH_ROWS), (BATCH_BYTES // 100, 100)], ids=["by rows", "by bytes"])
def test_a_batch_goes_out_when_it_is_full(size: int, rows: int) -> None:
    each = rows // 10
    chunks = [chunk(first, [b"x" * size] * each) for first in range(0, 2 * rows, each)]
    sizes = [len(batch) for batch in Batches(SCHEMA, 0).of(chunks)]
    assert sizes in ([rows, rows], [rows - each, rows - each, 2 * each])  # Arrow counts four bytes an offset too
    assert sum(sizes) == 2 * rows


def test_a_schema_that_is_a_selection_of_the_columns() -> None:
    check_columns([("timestamp", "timestamp"), ("data", "binary"), ("held_us", "bigint")])


@pytest.mark.parametrize("column", [("data", "string"), ("Data", "binary"), ("carrier", "string")])
def test_other_columns_are_refused(column: tuple[str, str]) -> None:
    with pytest.raises(Invalid, match=f"column {column[0]} .*format=json"):
        check_columns([column])
