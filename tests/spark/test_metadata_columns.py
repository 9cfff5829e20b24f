"""Columns that describe the item, beside those of its data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afflux.core.errors import Invalid
from afflux.core.payload import Payload
from afflux.spark.arrow import Batches
from afflux.spark.chunks import Chunk
from afflux.spark.declaring import OptionError
from afflux.spark.decoding import decoder_of
from afflux.spark.options import Options
from tests.spark.conftest import asked

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

ALL = "stream, partition AS p,offset as _offset , timestamp AS at, metadata"
SCHEMA = pa.schema(
    [
        ("_offset", pa.int64()),
        ("id", pa.int32()),
        ("stream", pa.string()),
        ("p", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("metadata", pa.binary()),
    ]
)


def options(columns: str = ALL, **more: str) -> Options:
    given = {"uri": "tcp://127.0.0.1:7000", "format": "json", "metadataColumns": columns}
    return Options.parse(given | more)


def rows(items: list[Payload], **more: str) -> list[dict[str, Any]]:
    """The rows of items at offset 40 of shard 3, stored 7 and 8 microseconds after 1970."""
    given = options(**more)
    chunks = [Chunk(first=40, time_us=7, payloads=items[:2]), Chunk(first=50, time_us=8, payloads=items[2:])]
    batches = Batches(SCHEMA, 3, stream="eu", rows=decoder_of(given, SCHEMA))
    found = [row for batch in batches.of(chunks) for row in batch.to_pylist()]
    assert {(row["stream"], row["p"]) for row in found} == {("eu", 3)}
    return [
        {"id": row["id"], "offset": row["_offset"], "us": row["at"].microsecond, "own": row["metadata"]}
        for row in found
    ]


def test_json_and_malformed_items() -> None:
    items = [Payload(b'{"id": 1}', b"m"), Payload(b"bad", b""), Payload(b'{"id": 3, "_offset": 7}')]
    first, bad, last = (
        {"id": 1, "offset": 40, "us": 7, "own": b"m"},
        {"id": None, "offset": 41, "us": 7, "own": b""},
        {"id": 3, "offset": 50, "us": 8, "own": None},
    )
    assert rows(items) == [first, bad, last]
    assert rows(items, mode="dropmalformed") == [first, last]


def test_the_rows_of_an_arrow_item_have_its_offset() -> None:
    def item(*ids: int) -> Payload:
        table = pa.table({"id": pa.array(ids, pa.int32())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write(table)
        return Payload(bytes(sink.getvalue()), b"%d" % len(ids))

    found = rows([item(1, 2), item(), item(*range(60_000))], format="arrow")
    assert [(row["id"], row["offset"], row["own"]) for row in found[:3]] == [
        (1, 40, b"2"),
        (2, 40, b"2"),
        (0, 50, b"60000"),
    ]
    assert len(found) == 60_002 and {row["offset"] for row in found[2:]} == {50}


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("", "'' is not one of stream, partition"),
        ("offsets", "'offsets' is not one of stream, partition, offset, .* held_us; write offset AS _offset"),
        ("offset, offset", "the column 'offset' is named twice"),
        ("offset AS o, partition AS o", "the column 'o' is named twice"),
    ],
)
def test_what_is_refused_as_an_option(columns: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"option metadataColumns: {why}"):
        options(columns)


def test_what_is_refused_with_the_schema() -> None:
    with pytest.raises(OptionError, match="metadataColumns requires another format"):
        options(format="raw")
    with pytest.raises(OptionError, match="receive_us and held_us are not possible with format=arrow"):
        options("held_us", format="arrow")
    with pytest.raises(Invalid, match="but the schema has no column stored_at: add stored_at TIMESTAMP"):
        decoder_of(options("timestamp AS stored_at"), SCHEMA)
    with pytest.raises(Invalid, match="column id gets the item's offset and must be BIGINT"):
        decoder_of(options("offset AS id"), SCHEMA)
    with pytest.raises(Invalid, match="format=arrow needs a column of the data"):
        decoder_of(options("offset AS _offset", format="arrow"), pa.schema([("_offset", pa.int64())]))


@pytest.mark.spark
def test_in_spark(spark: Any, uri: str) -> None:
    streams = {"good": {"requestData": asked(count=5)}, "bad": {"requestData": asked(count=9)}}
    given = {"uri": uri, "route": "json", "streams": json.dumps(streams), "pollTimeoutMs": 30_000, "format": "json"}
    reader = spark.read.format("afflux").options(**given, metadataColumns="stream, offset AS at, timestamp AS t")
    frame = reader.schema("id INT, name STRING, stream STRING, at BIGINT, t TIMESTAMP").load()
    found = sorted((row.stream, row.at, row.id) for row in frame.where("t > '2020-01-01'").collect())
    assert found == [("bad", n, None if n == 7 else n) for n in range(9)] + [("good", n, n) for n in range(5)]
