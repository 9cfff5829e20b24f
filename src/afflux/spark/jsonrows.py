"""Decode the data of a batch into the columns of the user's schema (``format=json``).

1. Each item is a JSON object; fields that are not in the schema are ignored, missing ones are null.
2. Arrow parses a whole batch. If it has a bad row, the batch is halved until the bad rows are isolated, so that the
   parser's decision does not depend on other rows.
3. All columns of a bad row are null, and the column for corrupt records has its text; with ``mode=failfast`` an error
   with stream and offset is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRow", "JsonRows"]

_OPEN = 0x7B
"An opening brace."
_SHOWN = 100
"Bytes of a bad row that an error quotes."


class BadRow(Invalid, ValueError):
    """An item is not a JSON object of the schema, and the mode is failfast."""


class JsonRows:
    """Decodes batches into one schema.

    Args:
        schema: the columns, as Arrow types.
        source: the name of the stream in errors.
        failfast: whether a bad row raises.
        corrupt_record: the name of the column for the text of bad rows, if the schema has it.

    Raises:
        Invalid: JSON cannot be converted to the type of a column, or the column for corrupt records is not text.
    """

    def __init__(self, schema: pa.Schema, source: str, *, failfast: bool, corrupt_record: str) -> None:
        import pyarrow as pa
        import pyarrow.json as pj

        self._schema = schema
        self._source = source
        self._failfast = failfast
        self._corrupt = corrupt_record if corrupt_record in schema.names else None
        if self._corrupt and schema.field(self._corrupt).type != pa.string():
            raise Invalid(f"column {self._corrupt} gets the text of bad rows and must be a STRING", rule="schema")
        wanted = [each for each in schema if each.name != self._corrupt]
        parsed = pa.schema([pa.field(each.name, _parsed_as(each.type)) for each in wanted])
        self._wanted = pa.schema(wanted)
        self._parse = pj.ParseOptions(explicit_schema=parsed, unexpected_field_behavior="ignore")
        for each in wanted:
            self._check(each)

    def _check(self, wanted: pa.Field) -> None:
        import pyarrow as pa
        import pyarrow.json as pj

        explicit = pa.schema([pa.field(wanted.name, _parsed_as(wanted.type))])
        try:
            pj.read_json(pa.BufferReader(b"{}\n"), parse_options=pj.ParseOptions(explicit_schema=explicit))
        except pa.ArrowNotImplementedError:
            raise Invalid(
                f"column {wanted.name}: JSON cannot be converted to {wanted.type}; read a STRING, convert it in Spark",
                rule="schema",
            ) from None

    def decode(self, data: pa.Array, offsets: Any) -> pa.RecordBatch:
        """Return the rows of ``data`` (BINARY); ``offsets`` are their positions in the stream.

        Raises:
            BadRow: a row is bad and the mode is failfast.
        """
        import pyarrow as pa

        bad: list[int] = []
        table = self._rows(data)
        if table is None:
            bad = self._bad_rows(data)
            if bad and self._failfast:
                raise self._bad_row(data[bad[0]].as_py(), int(offsets[bad[0]]))
            table = self._rows(_emptied(data, bad))
            if table is None:
                raise AssertionError("rows that parse separately must parse together")
        columns = {name: _one(table.column(name)) for name in self._wanted.names}
        if self._corrupt:
            columns[self._corrupt] = _texts(data, bad)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _bad_rows(self, data: pa.Array) -> list[int]:
        """Return the indexes of bad rows, at least one; with failfast only the first."""
        bad: list[int] = []
        todo = [(0, len(data))]
        while todo and not (bad and self._failfast):
            first, end = todo.pop()
            if end - first == len(data) or self._rows(data.slice(first, end - first)) is None:
                middle = (first + end) // 2
                if end - first > 1:
                    todo += [(middle, end), (first, middle)]
                else:
                    bad.append(first)
        return bad

    def _rows(self, data: pa.Array) -> pa.Table | None:
        """Return the rows; None if any is bad."""
        import pyarrow as pa
        import pyarrow.json as pj

        lines = _lines(data)
        if lines is None:
            return None
        whole = pj.ReadOptions(use_threads=False, block_size=max(1, len(lines)))
        try:
            table = pj.read_json(pa.BufferReader(lines), parse_options=self._parse, read_options=whole)
            if table.num_rows != len(data):
                return None
            table = table.select(self._wanted.names).cast(self._wanted)
            table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return table

    def _bad_row(self, row: bytes, offset: int) -> BadRow:
        shown = row[:_SHOWN] + (b"..." if len(row) > _SHOWN else b"")
        return BadRow(f"{self._source}, offset {offset}: not a JSON object of the schema: {shown!r}", rule="mode")


def _lines(data: pa.Array) -> bytes | None:
    """Return the items as lines; None if an item cannot be an object, or could be parsed as several.

    A line break inside an item can only occur between its tokens, where a space is equivalent.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    edges = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
    content = np.frombuffer(data.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    starts = edges[:-1] - edges[0]
    if (edges[1:] == edges[:-1]).any():
        return None
    if (content[starts] != _OPEN).any():
        if len(data) > 1:
            return None
        content = np.frombuffer(bytes(content).lstrip(b" \t\r\n"), np.uint8)
        if not len(content) or content[0] != _OPEN:
            return None
        return bytes(content).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
    broken = (content == 0x0A) | (content == 0x0D)
    if broken.any():
        content = np.where(broken, np.uint8(0x20), content)
        buffers = [None, pa.py_buffer(edges - edges[0]), pa.py_buffer(content)]
        data = pa.Array.from_buffers(pa.binary(), len(data), buffers)
    table = pa.ListArray.from_arrays(pa.array([0, len(data)], pa.int32()), data)
    return bytes(pc.binary_join(table, b"\n")[0].as_buffer()) + b"\n"


def _parsed_as(wanted: pa.DataType) -> pa.DataType:
    """Return the type to parse: text for dates, because Arrow's JSON reader supports only dates that are numbers."""
    import pyarrow as pa

    return pa.string() if pa.types.is_date(wanted) else wanted


def _emptied(data: pa.Array, bad: list[int]) -> pa.Array:
    """Replace bad rows by empty objects, and remove whitespace before objects."""
    import pyarrow as pa

    rows = data.to_pylist()
    for row in bad:
        rows[row] = b"{}"
    return pa.array([row.lstrip() for row in rows], pa.binary())


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _texts(data: pa.Array, bad: list[int]) -> pa.Array:
    import pyarrow as pa

    if not bad:
        return pa.nulls(len(data), pa.string())
    texts: list[str | None] = [None] * len(data)
    for row in bad:
        texts[row] = str(data[row].as_py(), "utf-8", "replace")
    return pa.array(texts, pa.string())
