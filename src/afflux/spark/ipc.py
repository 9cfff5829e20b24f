"""Decode items that are Arrow IPC streams straight into columns (``format=arrow``).

1. An item is one stream: its schema, and any number of record batches, each of at most ROWS rows. All rows of an item
   have its offset. Columns are found by name; the schema's columns that an item lacks are null.
2. The memory for an item is proportional to its bytes: dictionaries, compressed bodies, views and run-end encoding,
   with which a few bytes can describe gigabytes, are refused before anything is decoded.
3. Items come from peers: all offsets, lengths and text are validated.
4. A malformed item, or one whose columns do not fit, is one row of nulls, with the item in the column for corrupt
   records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Invalid
from afflux.spark.rows import Modes
from afflux.spark.times import Zone
from afflux.spark.values import Misfit

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MALFORMED", "ROWS", "ArrowRows", "read_stream"]

ROWS = 1 << 20
"The most rows of a record batch of an item; columns without data make any number possible."
MALFORMED = (Misfit, ValueError, OSError, struct.error, IndexError)
"What reading a malformed stream raises, besides ArrowException of pyarrow, which is imported when it is needed."
_FLUSH = 50_000
"Rows after which decoded batches are complete."
_HEADER_TYPE, _HEADER, _BODY_COMPRESSION = 1, 2, 3
"Fields of the flatbuffers tables Message and RecordBatch, by their place in the format's schema."


class ArrowRows:
    """Decodes batches of items; arguments and errors as for rows.Rows."""

    def __init__(self, modes: Modes, zone: Zone) -> None:
        if modes.beside and not modes.wanted:
            raise Invalid("format=arrow needs a column of the data besides those of metadataColumns", rule="schema")
        self.modes = modes
        self._zone = zone

    def decode(self, data: pa.Array, offsets: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items in ``data`` (BINARY); ``offsets`` are their positions in the stream.

        Raises:
            BadRow: an item is malformed and the mode is failfast.
        """
        import pyarrow as pa

        self.modes.items += len(data)
        parts: list[list[pa.Array]] = []
        malformed: dict[int, bytes] = {}
        items: list[int] = []
        count = 0
        for place, item in enumerate(data):
            try:
                batches = self._item(item.as_buffer())
            except (pa.ArrowException, *MALFORMED) as error:
                self.modes.note(int(offsets[place]), item.as_py(), f"not Arrow IPC of the schema: {error}")
                malformed[count] = item.as_py()
                batches = [[pa.nulls(1, field.type) for field in self.modes.wanted]]
            for columns in batches:
                parts.append(columns)
                count += len(columns[0]) if columns else 0
            if self.modes.beside:
                items += [place] * (count - len(items))
            if count >= _FLUSH:
                yield self._flush(parts, count, malformed, items)
                parts, malformed, items, count = [], {}, [], 0
        if count:
            yield self._flush(parts, count, malformed, items)

    def _flush(
        self, parts: list[list[pa.Array]], count: int, malformed: dict[int, bytes], items: list[int]
    ) -> pa.RecordBatch:
        import pyarrow as pa

        columns = [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]
        return self.modes.batch(columns, count, malformed, items)

    def _item(self, item: pa.Buffer) -> list[list[pa.Array]]:
        """Return the columns of each batch of an item."""
        import pyarrow as pa

        schema, found = read_stream(item)
        places = [schema.get_field_index(field.name) for field in self.modes.wanted]
        for field, place in zip(self.modes.wanted, places, strict=True):
            if place >= 0 and not _fits(schema.field(place).type, field.type):
                raise Misfit(f"column {field.name} is {schema.field(place).type}, not {field.type}")
        if any(pa.types.is_dictionary(field.type) for field in schema):
            raise Misfit("dictionaries are unsupported")
        return [
            [
                pa.nulls(batch.num_rows, field.type) if place < 0 else self._cast(batch.column(place), field.type)
                for field, place in zip(self.modes.wanted, places, strict=True)
            ]
            for batch in found
        ]

    def _cast(self, column: pa.Array, wanted: pa.DataType) -> pa.Array:
        import pyarrow as pa
        import pyarrow.types as t

        if t.is_timestamp(wanted) and wanted.tz and not column.type.tz:
            local = column.cast(pa.timestamp("us")).cast(pa.int64())
            utc = self._zone.to_utc(local.fill_null(0).to_numpy(zero_copy_only=False))
            return pa.array(utc, mask=local.is_null().to_numpy(zero_copy_only=False)).cast(wanted)
        return column.cast(wanted)


def read_stream(item: pa.Buffer) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the validated batches of an Arrow IPC stream.

    The caller checks the types of the schema: dictionaries, views and run-end encoding are not refused here.

    Raises:
        pyarrow.ArrowException, MALFORMED: it is malformed; the iterator raises these as well.
    """
    import pyarrow as pa

    if not item.size:
        raise Misfit("it is empty")
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(item))
    schema = pa.ipc.read_schema(messages.read_next_message())

    def batches() -> Iterator[pa.RecordBatch]:
        for message in messages:
            _check_message(message)
            batch = pa.ipc.read_record_batch(message, schema)
            if batch.num_rows > ROWS:
                raise Misfit(f"a batch has {batch.num_rows} rows, more than {ROWS}")
            batch.validate(full=True)
            yield batch

    return schema, batches()


def _fits(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values can be cast without growing: the same kind of type, with other bits, units or offsets."""
    import pyarrow.types as t

    if t.is_struct(own) and t.is_struct(wanted):
        return own.num_fields == wanted.num_fields and all(
            one.name == other.name and _fits(one.type, other.type) for one, other in zip(own, wanted, strict=True)
        )
    if (t.is_list(own) or t.is_large_list(own)) and t.is_list(wanted):
        return _fits(own.value_type, wanted.value_type)
    if t.is_map(own) and t.is_map(wanted):
        return _fits(own.key_type, wanted.key_type) and _fits(own.item_type, wanted.item_type)
    kinds: list[tuple[Any, Any]] = [
        (t.is_integer, t.is_integer),
        (t.is_integer, t.is_decimal),
        (t.is_floating, t.is_floating),
        (t.is_decimal, t.is_decimal),
        (t.is_date, t.is_date),
        (t.is_null, lambda _: True),
        (lambda each: t.is_string(each) or t.is_large_string(each), t.is_string),
        (lambda each: t.is_binary(each) or t.is_large_binary(each), t.is_binary),
        (t.is_boolean, t.is_boolean),
    ]
    if t.is_timestamp(own) and t.is_timestamp(wanted):
        return bool(wanted.tz) or not own.tz
    return any(one(own) and other(wanted) for one, other in kinds)


def _check_message(message: Any) -> None:
    """Raise Misfit if a message is not a record batch without compression."""
    if message.type != "record batch":
        raise Misfit(f"a {message.type} follows the schema; only record batches without dictionaries are supported")
    metadata = bytes(message.metadata)
    root = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, root, _HEADER)
    table = header + struct.unpack_from("<I", metadata, header)[0]
    if _field(metadata, table, _BODY_COMPRESSION):
        raise Misfit("compressed record batches are unsupported, because they can be any size: write them uncompressed")


def _field(metadata: bytes, table: int, place: int) -> int:
    """Return the position of a field of a flatbuffers table; 0 if it is absent."""
    entries = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, entries)[0]
    entry = 4 + 2 * place
    offset = struct.unpack_from("<H", metadata, entries + entry)[0] if entry < size else 0
    return table + offset if offset else 0
