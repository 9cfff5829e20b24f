"""Convert Arrow batches of Spark's rows to blocks that are staged, and to payloads for other peers.

The rows of ``raw`` have the columns ``data`` (BINARY or STRING) and optionally ``metadata``, and the column of
``orderBy``. The rows of ``json`` have any columns; nulls are left out, as Spark's ``to_json`` does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Invalid
from afflux.core.payload import Payload
from afflux.protocols.rsocket.metadata import compose
from afflux.protocols.rsocket.staging import Key, encode_staging
from afflux.spark.jsontext import json_rows
from afflux.spark.schemas import plain
from afflux.spark.sending import WriteFailed
from afflux.spark.sinkoptions import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowTooLarge", "blocks", "check_schema", "payloads"]

BLOCK_BYTES = 0x2_0000
"Bytes of rows in a block: 128 KiB."
BESIDE_BYTES = 512
"Bytes of an item that a block leaves for its metadata."
CONVERTED_BYTES = 0x10_0000
"Bytes of rows that are converted at a time: 1 MiB."
LIST_ROWS = 256
"The most rows that are converted to payloads at a time."
_UNSTORED = re.compile(r"(?:^|[<:,])(interval|time|variant|geometry|geography)(?=$|[ (>,])")
"A type that Parquet lacks or that would return as another one. The name of a field is followed by a colon."
_RAW = {"data": ("binary", "string"), "metadata": ("binary",)}


class RowTooLarge(WriteFailed):
    """A row has more bytes than the peer accepts; nothing of it is sent."""

    def __init__(self, options: SinkOptions, size: int) -> None:
        text = (
            f"a row is an item of {size:,} bytes, and {options.target} gets up to {options.max_item_bytes:,} "
            "(maxItemBytes): make the row smaller, or raise payload_bytes of the receiver, then maxItemBytes"
        )
        super().__init__(text, rule="maxItemBytes")


def check_schema(options: SinkOptions, columns: Iterable[tuple[str, str]]) -> None:
    """Check the columns, given as names and Spark types.

    Raises:
        Invalid: a column is missing, or is not one that the format sends.
    """
    types = dict(columns)
    if options.order_by is not None and options.order_by not in types:
        raise Invalid(f"orderBy={options.order_by}: the columns are {', '.join(types)}", rule="orderBy")
    if options.format == "columns":
        _check_columns(types)
    if options.format != "raw":
        return
    hint = "format=json sends all columns as JSON"
    if options.delivery == "exactly-once":
        hint += ", format=columns stores them with their types"
    for name, kinds in _RAW.items():
        if name == "data" and name not in types:
            raise Invalid(
                f"format=raw requires a column data; the columns are {', '.join(types)} ({hint})", rule="schema"
            )
        if name in types and types[name] not in kinds:
            wanted = " or ".join(kind.upper() for kind in kinds)
            raise Invalid(f"column {name} must be {wanted}, not {types[name].upper()} ({hint})", rule="schema")
    for name in types:
        if name not in _RAW and name != options.order_by:
            raise Invalid(f"format=raw sends data and metadata, not column {name}: {hint}", rule="schema")


def _check_columns(types: Mapping[str, str]) -> None:
    for name, kind in types.items():
        if name.lower() in ("query", "batch"):
            raise Invalid(
                f"column {name}: the folders of the table have a column of that name; rename it", rule="schema"
            )
        if found := _UNSTORED.search(kind):
            text = f"column {name}: format=columns cannot store the type {found[1].upper()}; cast it, for example"
            raise Invalid(f"{text} to STRING", rule="schema")


def blocks(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """Yield the number of rows and the block, of about ``BLOCK_BYTES`` or with one row, for all rows.

    Raises:
        RowTooLarge: a row does not fit into an item of ``maxItemBytes``.
    """
    import pyarrow as pa

    def converted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if options.format == "json":
                for piece in _pieces(batch, CONVERTED_BYTES):
                    yield pa.record_batch([pa.array(json_rows(piece), pa.binary())], names=["data"])
            else:
                yield _raw(batch) if options.format == "raw" else batch.cast(plain(batch.schema))

    most = min(BLOCK_BYTES, options.max_item_bytes // 4)
    for whole in converted():
        for piece in _pieces(whole, most):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece.schema) as writer:
                writer.write_batch(piece)
            block = sink.getvalue().to_pybytes()
            if len(block) > options.max_item_bytes - BESIDE_BYTES:  # all pieces but single rows are much smaller
                raise RowTooLarge(options, len(block) + BESIDE_BYTES)
            yield len(piece), block


def _pieces(batch: pa.RecordBatch, most: int, rows: int = sys.maxsize) -> Iterator[pa.RecordBatch]:
    """Yield consecutive parts of a batch, each of up to ``rows`` rows, and of up to ``most`` bytes or of one row."""
    rows = min(rows, max(1, len(batch) * most // max(1, batch.nbytes)))
    for start in range(0, len(batch), rows):
        piece = batch.slice(start, rows)
        if len(piece) > 1 and piece.nbytes > 2 * most:  # rows of different sizes
            half = len(piece) // 2
            yield from _pieces(piece.slice(0, half), most, rows)
            yield from _pieces(piece.slice(half), most, rows)
        else:
            yield piece


def payloads(
    options: SinkOptions, batches: Iterable[pa.RecordBatch], key: tuple[bytes, int, int]
) -> Iterator[list[tuple[Payload, Any]]]:
    """Yield lists of payloads for a peer that does not stage, each with its key of ``orderBy``.

    Args:
        options: the format, the route and the verb.
        batches: the rows of a partition.
        key: query, batch and partition, for the keys of rows.

    Raises:
        RowTooLarge: a row has more bytes than ``maxItemBytes``.
    """
    query, number, partition = key
    sequence = 0
    first = compose(route=options.route) if options.route is not None else b""
    for piece in (piece for batch in batches for piece in _pieces(batch, CONVERTED_BYTES, LIST_ROWS)):
        names = piece.schema.names
        if options.format == "json":
            data, metadata = json_rows(piece), None
        else:
            data = _raw(piece).column("data").to_pylist()
            metadata = piece.column("metadata").to_pylist() if "metadata" in names else None
        keys = piece.column(options.order_by).to_pylist() if options.order_by else [None] * len(piece)
        made = []
        for index, value in enumerate(data):
            own = Key(query=query, batch=number, partition=partition, sequence=sequence)
            routed = first if options.verb == "request" or not sequence else b""
            entries = routed + encode_staging(own) + ((metadata[index] or b"") if metadata else b"")
            if (size := len(value or b"") + len(entries)) > options.max_item_bytes:
                raise RowTooLarge(options, size)
            made.append((Payload(value or b"", entries), keys[index]))
            sequence += 1
        yield made


def _raw(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns data and metadata as BINARY; a null in ``data`` becomes empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name for name in ("data", "metadata") if name in batch.schema.names]
    columns = [batch.column(name).cast(pa.binary()) for name in names]
    columns[0] = pc.fill_null(columns[0], b"")
    return pa.record_batch(columns, names=names)
