"""Build Arrow columns from rows that msgspec has decoded and checked, a column at a time.

1. Each column declares what msgspec accepts for it (``wire``), which is a part of what values.py accepts. A row with
   anything else does not decode, and is left to values.py.
2. Text is converted by Arrow where all values of a column have the usual form, else value by value.
3. ``build`` reports the rows with misfits. What it returns for them is unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from afflux.spark.times import MAX_SECONDS, Zone, date_of, local_timestamp_of, timestamp_of
from afflux.spark.values import INTEGERS, Misfit, Number, base64_of, decimal_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "Struct", "column_of", "struct_of"]

_DATE_LENGTH, _TIME_LENGTH = len("2013-01-01"), len("2013-01-01T05:15:00")
_ZONE_LENGTH = len("+01:00")
_ZONE_HOURS = 18


class Column:
    """A column of a type that Arrow takes from Python's values as they are."""

    def __init__(self, wanted: pa.DataType, wire: Any) -> None:
        import msgspec

        self.wanted = wanted
        self.wire = wire
        "The type for msgspec, without null."
        self.nullable = wire if wire is msgspec.Raw else wire | None
        "The type for msgspec, with null: any value is a Raw."

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        """Return the values as an array, and add the positions of misfits to ``bad``."""
        import pyarrow as pa

        return pa.array(values, self.wanted)


class _Singles(Column):
    """Floats of 32 bits; a double exactly between two of them is left to values.py, which has the number's digits."""

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        doubles = pa.array(values, pa.float64())
        bits = doubles.fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
        bad.update(np.flatnonzero((bits & ((1 << 29) - 1)) == 1 << 28).tolist())
        return doubles.cast(self.wanted, safe=False)


class _Converted(Column):
    """Values that are converted by Arrow if all have the usual form, else one by one."""

    def __init__(self, wanted: pa.DataType, wire: Any, usual: Callable[[Any], Any], each: Callable[[Any], Any]) -> None:
        super().__init__(wanted, wire)
        self._usual = usual
        self._each = each

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import pyarrow as pa

        try:
            array = self._usual(values)
            if array is not None:
                return array.cast(self.wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass
        found = {value: self._each(value) for value in set(values) - {None}}
        found[None] = None
        bad.update(place for place, value in enumerate(values) if found[value] is None and value is not None)
        return pa.array([found[value] for value in values], self.wanted)


class _Decimals(Column):
    """Decimals, from the text of JSON numbers (msgspec.Raw)."""

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import pyarrow as pa

        fitted: list[Any] = [None] * len(values)
        for place, value in enumerate(values):
            if value is not None:
                try:
                    fitted[place] = self._fit(value)
                except Misfit:
                    bad.add(place)
        return pa.array(fitted, self.wanted)

    def _fit(self, value: Any) -> Any:
        if not isinstance(value, int | float | str):
            text = str(value, "ascii", "replace")
            if text == "null":
                return None
            if text[0] not in "-0123456789":
                raise Misfit("text is left to values.py, because it may have escapes")
            value = Number(text)
        return decimal_of(value, self.wanted.precision, self.wanted.scale)


class _Arrays(Column):
    """Arrays, from lists."""

    def __init__(self, wanted: pa.DataType, element: Column) -> None:
        super().__init__(wanted, list.__class_getitem__(element.nullable))
        self._element = element

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import pyarrow as pa

        offsets, nulls = _offsets(values)
        inner: set[int] = set()
        elements = self._element.build(list(chain.from_iterable(filter(None, values))), inner)
        bad.update(_rows(offsets, inner))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=self.wanted, mask=nulls)


class _Maps(Column):
    """Maps, from dicts."""

    def __init__(self, wanted: pa.DataType, key: Column, item: Column) -> None:
        super().__init__(wanted, dict.__class_getitem__((key.wire, item.nullable)))
        self._key = key
        self._item = item

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import pyarrow as pa

        offsets, nulls = _offsets(values)
        inner: set[int] = set()
        full = [value for value in values if value]
        keys = self._key.build(list(chain.from_iterable(full)), inner)
        items = self._item.build(list(chain.from_iterable(value.values() for value in full)), inner)
        bad.update(_rows(offsets, inner))
        array = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=self.wanted)
        if nulls is None:
            return array
        buffers = [pa.array(~nulls.to_numpy(zero_copy_only=False)).buffers()[1], array.buffers()[1]]
        return pa.Array.from_buffers(self.wanted, len(values), buffers, children=[_entries(array)])


class Struct(Column):
    """Objects, from msgspec's structs, whose fields are f0, f1, …"""

    def __init__(self, wanted: pa.DataType, columns: Sequence[Column]) -> None:
        import msgspec

        fields = [(f"f{place}", column.nullable, None) for place, column in enumerate(columns)]
        names = {f"f{place}": field.name for place, field in enumerate(wanted)}
        super().__init__(wanted, msgspec.defstruct("Row", fields, rename=names, gc=False))
        self._columns = [(attrgetter(f"f{place}"), column) for place, column in enumerate(columns)]

    def columns(self, rows: Sequence[Any], bad: set[int]) -> list[pa.Array]:
        """Return the arrays of the fields of rows, none of which is null."""
        return [column.build(list(map(field, rows)), bad) for field, column in self._columns]

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import pyarrow as pa

        nothing = self.wire()
        fields = self.columns([nothing if value is None else value for value in values], bad)
        return pa.StructArray.from_arrays(fields, fields=list(self.wanted), mask=_nulls(values))


def struct_of(wanted: Any, zone: Zone, *, text: bool) -> Struct:
    """Return the column of objects of a schema or an Arrow struct; ``text`` if values are JSON."""
    return Struct(wanted, [column_of(field.type, zone, text=text) for field in wanted])


def column_of(wanted: pa.DataType, zone: Zone, *, text: bool) -> Column:
    """Return the column of an Arrow type that values.check_type accepts; ``text`` if values are JSON."""
    import msgspec
    import pyarrow.types as t

    name = str(wanted)
    if name in INTEGERS:
        limit = 1 << INTEGERS[name] - 1
        return Column(wanted, Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)])
    if t.is_list(wanted):
        return _Arrays(wanted, column_of(wanted.value_type, zone, text=text))
    if t.is_map(wanted):
        return _Maps(wanted, column_of(wanted.key_type, zone, text=text), column_of(wanted.item_type, zone, text=text))
    if t.is_struct(wanted):
        return struct_of(wanted, zone, text=text)
    if t.is_decimal(wanted):
        return _Decimals(wanted, msgspec.Raw if text else int | float | str)
    if t.is_date(wanted):
        return _Converted(wanted, str, _usual_dates, date_of)
    if t.is_timestamp(wanted):
        return _timestamps(wanted, zone, text=text)
    if name == "float":
        return _Singles(wanted, float)
    if name == "binary" and text:
        return _Converted(wanted, str, lambda values: None, base64_of)
    return Column(wanted, {"bool": bool, "double": float, "string": str, "binary": bytes}[name])


def _timestamps(wanted: pa.DataType, zone: Zone, *, text: bool) -> Column:
    if not wanted.tz:
        return _Converted(wanted, str, _usual_local_timestamps, local_timestamp_of)
    if not text:
        return _Moments(wanted, datetime)

    def each(value: Any) -> int | None:
        if type(value) is int:
            return value * 1_000_000 if abs(value) <= MAX_SECONDS else None
        return timestamp_of(value, zone)

    return _Converted(wanted, int | str, lambda values: _usual_timestamps(values, zone), each)


class _Moments(Column):
    """Timestamps that MessagePack has as such; those without a zone are left to values.py."""

    def build(self, values: Sequence[Any], bad: set[int]) -> pa.Array:
        import pyarrow as pa

        naive = [place for place, value in enumerate(values) if value is not None and value.tzinfo is None]
        bad.update(naive)
        return pa.array(values, self.wanted)


def _usual_dates(values: Sequence[Any]) -> Any:
    """Return dates if all are ``yyyy-mm-dd`` or null; else None, or Arrow raises."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.array(values, pa.string())
    if pc.all(pc.equal(pc.binary_length(text), _DATE_LENGTH)).as_py() is False:
        return None
    return text.cast(pa.date32())


def _usual_local_timestamps(values: Sequence[Any]) -> Any:
    """Return local timestamps if all are ``yyyy-mm-dd hh:mm:ss[.ffffff]`` or null; else None, or Arrow raises."""
    import pyarrow as pa

    text = pa.array(values, pa.string())
    return None if _tails(text) is None else text.cast(pa.timestamp("us"))


def _usual_timestamps(values: Sequence[Any], zone: Zone) -> Any:
    """Return timestamps if all have the usual form, and all or none a zone: ``Z`` or ``+hh:mm``."""
    import pyarrow as pa

    text = pa.array(values, pa.string())
    tails = _tails(text)
    if tails is None:
        return None
    last = tails[:, _ZONE_LENGTH - 1]
    named = last == ord("Z")
    signed = (tails[:, 0] == ord("+")) | (tails[:, 0] == ord("-"))
    if len(tails) and (named | signed).all():
        hours = (tails[:, 1].astype(int) - 48) * 10 + tails[:, 2] - 48
        if (named | ((hours < _ZONE_HOURS) & (tails[:, 3] == ord(":")))).all():
            return text.cast(pa.timestamp("us", "UTC"))
        return None
    local = text.cast(pa.timestamp("us")).cast(pa.int64())
    utc = zone.to_utc(local.fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(utc, mask=local.is_null().to_numpy(zero_copy_only=False)).cast(pa.timestamp("us", "UTC"))


def _tails(text: pa.Array) -> Any:
    """Return the last six bytes of each text that is not null; None if one is not ``yyyy-mm-dd?hh:mm:ss…``."""
    import numpy as np

    text = text.drop_null()
    if not len(text):
        return np.zeros((0, _ZONE_LENGTH), np.uint8)
    edges = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    content = np.frombuffer(text.buffers()[2] or b"", np.uint8)
    starts = edges[:-1]
    if (edges[1:] - starts).min() < _TIME_LENGTH or (content[starts + 16] != ord(":")).any():
        return None
    return content[(edges[1:] - _ZONE_LENGTH)[:, None] + np.arange(_ZONE_LENGTH)]


def _nulls(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.array([value is None for value in values]) if None in values else None


def _offsets(values: Sequence[Any]) -> tuple[list[int], Any]:
    """Return where each list or dict starts in the elements of all, with the end; and which are null, if any is."""
    total = 0
    offsets = [0]
    for value in values:
        if value:
            total += len(value)
        offsets.append(total)
    return offsets, _nulls(values)


def _rows(offsets: Sequence[int], inner: set[int]) -> set[int]:
    """Return the rows of elements."""
    import numpy as np

    if not inner:
        return set()
    places = np.searchsorted(np.array(offsets), np.array(sorted(inner)), side="right") - 1
    return set(places.tolist())


def _entries(array: pa.MapArray) -> pa.Array:
    """Return keys and items of a map as structs, with its own names of fields."""
    import pyarrow as pa

    keys, items = array.keys, array.items
    return pa.StructArray.from_arrays([keys, items], fields=[array.type.key_field, array.type.item_field])
