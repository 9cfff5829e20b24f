"""Decode the data of a batch into the columns of the user's schema: each item is an object, and becomes a row.

1. msgspec decodes and checks the rows, and columns.py makes columns of them. A row that does not decode, or has a value
   that cannot be converted, is parsed again by itself, and values.py fits its fields one by one.
2. A row is malformed if its item is not an object, or any field does not fit. Fields that fit have their values, the
   others are null. ``mode`` decides: the row with the item in the column for corrupt records, no row, or an error.
3. The result for a row does not depend on the other rows, and the time is linear: a malformed row costs about 10
   microseconds, whatever is beside it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Invalid
from afflux.spark.arrow import TIMES
from afflux.spark.columns import struct_of
from afflux.spark.times import Zone
from afflux.spark.values import Fits, Misfit, Number, check_type, is_record

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CBOR", "DROPMALFORMED", "FAILFAST", "JSON", "MSGPACK", "PERMISSIVE", "BadRow", "Format", "Modes", "Rows"]

PERMISSIVE, FAILFAST, DROPMALFORMED = "permissive", "failfast", "dropmalformed"
NOTHING: Mapping[str, str] = MappingProxyType({})
_SHOWN = 100
"Bytes of a malformed item that an error quotes."
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"A surrogate in UTF-8, which Java replaces by one character and Python by three."

_log = logging.getLogger("afflux.spark")


class BadRow(Invalid, ValueError):
    """An item is malformed, and the mode is failfast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of items."""

    name: str
    "As in errors."
    parse: Callable[[bytes], Any]
    "Returns the value of one item, an object as Fits takes it; raises Misfit."
    decoder: Callable[[Any], Callable[[bytes], Any]] | None
    "Returns msgspec's function for a type; None if msgspec does not have the format."
    text: bool
    "Whether items are text: so is the column for corrupt records, and BINARY is base64."


def _json_decoder(wanted: Any) -> Callable[[bytes], Any]:
    import msgspec

    return msgspec.json.Decoder(wanted).decode


def _msgpack_decoder(wanted: Any) -> Callable[[bytes], Any]:
    import msgspec

    return msgspec.msgpack.Decoder(wanted).decode


_STRICT = json.JSONDecoder(parse_float=Number, object_pairs_hook=tuple)


def _json(item: bytes) -> Any:
    text = str(_SURROGATE.sub(b"\xef\xbf\xbd", item), "utf-8", "replace")
    try:
        return _STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise Misfit(f"not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        raise Misfit(f"not JSON: {error}") from None


def _msgpack(item: bytes) -> Any:
    import msgspec

    try:
        return msgspec.msgpack.decode(item)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise Misfit(f"not MessagePack: {error}") from None


def _cbor(item: bytes) -> Any:
    import io

    import cbor2

    try:
        decoder = cbor2.CBORDecoder(source := io.BytesIO(item))
        value = decoder.decode()
        if source.read(1):
            raise Misfit("not CBOR: there is more than one value")
        return value
    except Misfit:
        raise
    except Exception as error:  # a tag's own decoder may raise anything
        raise Misfit(f"not CBOR: {error}") from None


JSON = Format(name="JSON", parse=_json, decoder=_json_decoder, text=True)
MSGPACK = Format(name="MessagePack", parse=_msgpack, decoder=_msgpack_decoder, text=False)
CBOR = Format(name="CBOR", parse=_cbor, decoder=None, text=False)


class Modes:
    """Decides what becomes of malformed items, and counts them.

    Args:
        schema: all columns.
        source: the name of the stream in errors.
        mode: PERMISSIVE, FAILFAST or DROPMALFORMED.
        corrupt_record: the name of the column for malformed items, if the schema has it.
        text: whether that column is a STRING, else BINARY.
        beside: the columns that describe the item, and what they contain.

    Raises:
        Invalid: the column for malformed items, or one that describes the item, has another type or is missing, a
            column is NOT NULL, or two have one name.
    """

    def __init__(
        self,
        schema: pa.Schema,
        source: str,
        mode: str,
        corrupt_record: str,
        *,
        text: bool,
        beside: Mapping[str, str] = NOTHING,
    ) -> None:
        import pyarrow as pa

        self.schema = schema
        self.malformed = 0
        "The malformed items so far."
        self.items = 0
        "The items so far."
        self._source = source
        self._mode = mode
        self._text = text
        self._first: tuple[int, str] | None = None
        self._corrupt = corrupt_record if corrupt_record in schema.names else None
        if len(set(schema.names)) < len(schema.names):
            raise Invalid("two columns have the same name", rule="schema")
        if self._corrupt and schema.field(self._corrupt).type != (pa.string() if text else pa.binary()):
            wanted = "STRING" if text else "BINARY"
            raise Invalid(f"column {self._corrupt} gets malformed items and must be {wanted}", rule="schema")
        self.beside = beside
        self.described: dict[str, pa.Array] = {}
        "What describes the items of the data that is decoded next; set by the caller."
        for name, kind in beside.items():
            _check_beside(schema, name, kind)
        self.wanted = pa.schema([field for field in schema if field.name not in (self._corrupt, *beside)])
        "The columns of the data."
        for field in schema:
            _check_nullable(field.name, field)

    def note(self, offset: int, item: bytes, why: str) -> None:
        """Count a malformed item.

        Raises:
            BadRow: the mode is failfast.
        """
        self.malformed += 1
        if self._first is None:
            self._first = offset, why
        if self._mode == FAILFAST:
            shown = item[:_SHOWN] + (b"..." if len(item) > _SHOWN else b"")
            raise BadRow(f"{self._source}, offset {offset}: {why}: {shown!r}", rule="mode")

    def batch(
        self, columns: Sequence[pa.Array], count: int, malformed: dict[int, bytes], items: Sequence[int] | None = None
    ) -> pa.RecordBatch:
        """Return a batch.

        Args:
            columns: those of the data.
            count: the number of rows.
            malformed: the malformed items by their row.
            items: for each row the place of its item in the data; None if each item is a row.
        """
        import numpy as np
        import pyarrow as pa

        arrays = dict(zip(self.wanted.names, columns, strict=True))
        for name, kind in self.beside.items():
            whole = self.described[kind]
            arrays[name] = whole if items is None else whole.take(pa.array(items, pa.int64()))
        if self._corrupt:
            arrays[self._corrupt] = self._items(count, malformed)
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)
        if malformed and self._mode == DROPMALFORMED:
            kept = np.ones(count, np.bool_)
            kept[list(malformed)] = False
            batch = batch.filter(pa.array(kept))
        return batch

    def _items(self, count: int, malformed: dict[int, bytes]) -> pa.Array:
        import pyarrow as pa

        wanted = pa.string() if self._text else pa.binary()
        if not malformed:
            return pa.nulls(count, wanted)
        items: list[Any] = [None] * count
        for row, item in malformed.items():
            items[row] = str(item, "utf-8", "replace") if self._text else item
        return pa.array(items, wanted)

    def report(self) -> None:
        """Log the number of malformed items, if there are any."""
        if self._first:
            offset, why = self._first
            text = "%s: %d of %d items were malformed; the first, at offset %d: %s"
            _log.warning(text, self._source, self.malformed, self.items, offset, why)


class Rows:
    """Decodes batches of items.

    Args:
        modes: the schema, and what becomes of malformed items.
        form: the format of the items.
        zone: the zone of timestamps without one.

    Raises:
        Invalid: values of the format cannot be converted to the type of a column.
    """

    def __init__(self, modes: Modes, form: Format, zone: Zone) -> None:
        for field in modes.wanted:
            check_type(field.name, field.type, text_keys=form.text)
        self.modes = modes
        self._form = form
        self._fits = Fits(modes.wanted, zone)
        if form.decoder:
            self._struct = struct_of(modes.wanted, zone, text=form.text)
            self._decode = form.decoder(self._struct.wire)

    def decode(self, data: pa.Array, offsets: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``data`` (BINARY); ``offsets`` are the positions of its items in the stream.

        Raises:
            BadRow: an item is malformed and the mode is failfast.
        """
        items: list[bytes] = data.to_pylist()
        self.modes.items += len(items)
        if self._form.decoder is None:
            columns, malformed = self._fitted(items, range(len(items)), offsets)
        else:
            left: set[int] = set()
            columns = self._struct.columns(self._decoded(items, left), left)
            malformed = {}
            if left:
                places = sorted(left)
                others, malformed = self._fitted(items, places, offsets)
                columns = _replaced(columns, places, others)
        yield self.modes.batch(columns, len(items), malformed)

    def _decoded(self, items: list[bytes], left: set[int]) -> list[Any]:
        """Return the structs of the items; for those that do not decode, which are added to ``left``, empty ones."""
        import msgspec

        rows: list[Any] = []
        rest = iter(items)
        while len(rows) < len(items):
            try:
                rows.extend(map(self._decode, rest))  # after an error, what was decoded before it is in the list
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                left.add(len(rows))
                rows.append(self._struct.wire())
        return rows

    def _fitted(
        self, items: list[bytes], places: Sequence[int], offsets: Sequence[int]
    ) -> tuple[list[pa.Array], dict[int, bytes]]:
        """Return the columns of some items, and those of them that are malformed."""
        import pyarrow as pa

        rows: list[dict[str, Any]] = []
        malformed: dict[int, bytes] = {}
        for place in places:
            self._fits.why = None
            try:
                rows.append(self._fits.row(self._form.parse(items[place])))
            except (Misfit, RecursionError) as error:
                rows.append({})
                self._fits.why = str(error)
            if self._fits.why is not None:
                malformed[place] = items[place]
                self.modes.note(int(offsets[place]), items[place], self._fits.why)
        return pa.array(rows, pa.struct(list(self.modes.wanted))).flatten(), malformed


def _replaced(columns: list[pa.Array], places: list[int], others: list[pa.Array]) -> list[pa.Array]:
    """Replace some rows by those of ``others``."""
    import numpy as np
    import pyarrow as pa

    if not columns:
        return columns
    count = len(columns[0])
    order = np.arange(count)
    order[places] = np.arange(count, count + len(places))
    taken = pa.array(order)
    return [pa.concat_arrays([column, other]).take(taken) for column, other in zip(columns, others, strict=True)]


def _check_beside(schema: pa.Schema, name: str, kind: str) -> None:
    import pyarrow as pa

    types = {
        "stream": ("STRING", pa.string()),
        "partition": ("INT", pa.int32()),
        "offset": ("BIGINT", pa.int64()),
        "timestamp": ("TIMESTAMP", pa.timestamp("us", "UTC")),
        "metadata": ("BINARY", pa.binary()),
        **dict.fromkeys(TIMES, ("BIGINT", pa.int64())),
    }
    spelled, wanted = types[kind]
    if name not in schema.names:
        raise Invalid(
            f"metadataColumns has {name!r}, but the schema has no column {name}: add {name} {spelled}", rule="schema"
        )
    if schema.field(name).type != wanted:
        raise Invalid(f"column {name} gets the item's {kind} and must be {spelled}", rule="schema")


def _check_nullable(name: str, field: pa.Field) -> None:
    import pyarrow.types as t

    if not field.nullable:
        raise Invalid(f"column {name} is NOT NULL, but an item may lack it: declare it nullable", rule="schema")
    wanted = field.type
    if is_record(wanted):
        for each in wanted:
            _check_nullable(f"{name}.{each.name}", each)
    elif t.is_list(wanted):
        _check_nullable(f"{name}.element", wanted.value_field)
    elif t.is_map(wanted):
        _check_nullable(f"{name}.value", wanted.item_field)
