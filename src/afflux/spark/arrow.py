"""Convert chunks to Arrow record batches, without an object for each item.

Arrow copies the data column twice: from the received buffer without the headers, and into the batch. Both copies are
cheap compared with Spark's transport.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature
from time import monotonic
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Invalid
from afflux.core.events import Block
from afflux.journal.blocks import Block as Stored

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from afflux.spark.chunks import Chunk
    from afflux.spark.decoding import Decoder

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "COLUMNS",
    "DEFAULT_SCHEMA",
    "STREAMS_SCHEMA",
    "TIMES",
    "Batches",
    "arrow_schema",
    "check_columns",
    "data_column",
]

BATCH_ROWS = 50_000
"Rows after which a batch is complete; it has at most one chunk more."
BATCH_BYTES = 8 << 20
"Bytes of data after which a batch is complete."

DEFAULT_SCHEMA = "data BINARY, metadata BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP"
"The columns without a schema of the user, in Spark's syntax."

STREAMS_SCHEMA = f"{DEFAULT_SCHEMA}, stream STRING"
"The columns of a query with the option ``streams``."

TIMES = ("receive_us", "held_us")
"Columns with the times of a task, BIGINT. They are not default columns."

_TIMES_SCHEMA = ", ".join(f"{name} BIGINT" for name in TIMES)

COLUMNS = dict(column.split(" ") for column in STREAMS_SCHEMA.lower().split(", ")) | dict.fromkeys(TIMES, "bigint")
"All columns with their Spark types."


def check_columns(columns: Iterable[tuple[str, str]]) -> None:
    """Check that a schema for ``format=raw`` is a selection of the default columns.

    Args:
        columns: names and Spark types ("bigint").

    Raises:
        Invalid: a column is unknown or of another type.
    """
    for name, spark_type in columns:
        if COLUMNS.get(name) != spark_type:
            raise Invalid(
                f"column {name} {spark_type.upper()} is not one of {STREAMS_SCHEMA}, {_TIMES_SCHEMA}; use format=json "
                "for a schema of the data",
                rule="schema",
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for its own."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" not in signature(to_arrow_schema).parameters:  # Spark 4.0 and 4.1: always UTC
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


def data_column(chunk: Chunk) -> pa.Array:
    """Return the data of the items as a BINARY array."""
    import pyarrow as pa

    if chunk.block is None:
        return pa.array([payload.data for payload in chunk.payloads], pa.binary())
    return _stored(chunk.block) if isinstance(chunk.block, Stored) else _spans(chunk.block)


def _stored(block: Stored) -> pa.Array:
    """Return the items of a stored block: an array on its bytes, with offsets from its lengths."""
    import numpy as np
    import pyarrow as pa

    edges = np.zeros(block.stored + 1, np.int32)
    np.cumsum(np.frombuffer(block.body, "<u4", block.stored), out=edges[1:])
    data = pa.py_buffer(block.body).slice(len(block.body) - int(edges[-1]))
    return pa.Array.from_buffers(pa.binary(), block.stored, [None, pa.py_buffer(edges), data])


def _spans(block: Block) -> pa.Array:
    """Return the items of a block: every second element of an array on its buffer with offsets start, end, start, …"""
    import numpy as np
    import pyarrow as pa

    count = len(block.starts)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = np.frombuffer(block.starts, np.int64)
    edges[1::2] = np.frombuffer(block.ends, np.int64)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(block.buffer)]
    with_headers = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return with_headers.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


class Batches:
    """Converts chunks of one shard to record batches.

    Args:
        schema: the Arrow schema that Spark expects; without ``rows``, a selection of ``COLUMNS``.
        shard: the value of the column ``partition``.
        stream: the value of the column ``stream``; null if it is empty.
        include_metadata: whether the column ``metadata`` is filled.
        rows: decodes the data into columns (``format`` is not raw).
    """

    def __init__(
        self,
        schema: pa.Schema,
        shard: int,
        *,
        stream: str = "",
        include_metadata: bool = False,
        rows: Decoder | None = None,
    ) -> None:
        self._schema = schema
        self._shard = shard
        self._stream = stream or None
        self._rows = rows
        self._spent = dict.fromkeys(TIMES, 0.0)
        "The seconds that the task has received, and was held by Spark, since the last batch."
        if rows is None:
            self._with_metadata = include_metadata and "metadata" in schema.names
        else:
            self._with_metadata = "metadata" in rows.modes.beside.values()
        self._clear()

    def _clear(self) -> None:
        self._runs: list[tuple[int, int, int]] = []  # first offset, count, time: one for each chunk
        self._data: list[pa.Array] = []
        self._metadata: list[bytes | None] = []
        self._count = self._size = 0

    def of(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all chunks, then log how many items were malformed."""
        for chunk in self._received(chunks):
            self._add(chunk)
            if self._count >= BATCH_ROWS or self._size >= BATCH_BYTES:
                yield from self._given()
        if self._count:
            yield from self._given()
        if self._rows is not None:
            self._rows.modes.report()

    def _received(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks, and count the time until each."""
        source = iter(chunks)
        while True:
            since = monotonic()
            chunk = next(source, None)
            self._spent["receive_us"] += monotonic() - since
            if chunk is None:
                return
            yield chunk

    def _given(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of what was added, and count the time for which Spark holds each."""
        held = 0.0
        for batch in self._flush():
            since = monotonic()
            yield batch
            held += monotonic() - since
        self._spent["held_us"] += held

    def _add(self, chunk: Chunk) -> None:
        data = data_column(chunk)
        self._runs.append((chunk.first, len(data), chunk.time_us))
        self._data.append(data)
        if self._with_metadata:
            self._metadata += chunk.metadata()
        self._count += len(data)
        self._size += data.nbytes

    def _flush(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        data = pa.concat_arrays(self._data)
        if self._rows is not None:
            modes = self._rows.modes
            modes.described = {kind: self._column(kind, data) for kind in modes.beside.values()}
            yield from self._rows.decode(data, self._offsets())
        else:
            columns = [self._column(name, data) for name in self._schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._spent = dict.fromkeys(TIMES, 0.0)
        self._clear()

    def _column(self, name: str, data: pa.Array) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        if name == "data":
            return data
        if name == "metadata":
            return pa.array(self._metadata, pa.binary()) if self._with_metadata else pa.nulls(len(data), pa.binary())
        if name == "partition":
            return pa.array(np.full(len(data), self._shard, np.int32))
        if name == "offset":
            return pa.array(self._offsets())
        if name in TIMES:
            return pa.concat_arrays([pa.array([round(self._spent[name] * 1e6)]), pa.nulls(len(data) - 1, pa.int64())])
        if name == "stream":
            return pa.repeat(pa.scalar(self._stream, pa.string()), len(data))
        _, counts, times = np.array(self._runs, np.int64).T
        return pa.array(np.repeat(times, counts)).view(pa.timestamp("us", "UTC"))

    def _offsets(self) -> Any:
        """Return the offset of each row, as a numpy array."""
        import numpy as np

        firsts, counts, _ = np.array(self._runs, np.int64).T
        before = np.cumsum(counts) - counts
        return np.repeat(firsts - before, counts) + np.arange(self._count)
