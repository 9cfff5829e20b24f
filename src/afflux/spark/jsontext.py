"""Write rows of Arrow batches as JSON objects, as Spark's ``to_json`` with the time zone UTC does.

Nulls of columns and fields are left out, those in arrays and maps are ``null``. BINARY is base64, timestamps are ISO
8601 with milliseconds (or microseconds, where there are any), dates ``"2013-01-01"``, DECIMAL is a number with all its
digits, and NaN and the infinities are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. Map keys are text.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["json_rows"]

_Write = Callable[[Any], str]


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as one JSON object, in UTF-8."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        write, start = _writer(field.type), f"{json.dumps(field.name, ensure_ascii=False)}:"
        columns.append([None if value is None else start + write(value) for value in column.to_pylist()])
    rows = zip(*columns, strict=True) if columns else [()] * len(batch)
    return [("{" + ",".join([part for part in row if part is not None]) + "}").encode() for row in rows]


def _writer(kind: pa.DataType) -> _Write:
    """Return the function that writes values of a type, without nulls."""
    import pyarrow.types as types

    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_integer(kind):
        return str
    if types.is_floating(kind):
        return _float
    if types.is_decimal(kind):
        return lambda value: format(value, "f")
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz is not None else ""
        return lambda value: f'"{_time(value)}{zone}"'
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: f'"{b64encode(value).decode()}"'
    if types.is_struct(kind):
        return _struct({field.name: _writer(field.type) for field in kind})
    if types.is_map(kind):
        return _map(_or_null(_writer(kind.item_type)))
    if types.is_list(kind) or types.is_large_list(kind):
        item = _or_null(_writer(kind.value_type))
        return lambda value: "[" + ",".join([item(each) for each in value]) + "]"
    return lambda value: json.dumps(str(value), ensure_ascii=False)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _time(value: Any) -> str:
    """Return a timestamp in UTC, with milliseconds, or microseconds if it has any."""
    from datetime import UTC

    value = value if value.tzinfo is None else value.astimezone(UTC)
    return str(
        value.replace(tzinfo=None).isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
    )


def _struct(fields: dict[str, _Write]) -> _Write:
    named = {name: (json.dumps(name, ensure_ascii=False) + ":", write) for name, write in fields.items()}

    def write(value: dict[str, Any]) -> str:
        parts = [start + write(value[name]) for name, (start, write) in named.items() if value[name] is not None]
        return "{" + ",".join(parts) + "}"

    return write


def _map(item: _Write) -> _Write:
    def write(value: list[tuple[Any, Any]]) -> str:
        return "{" + ",".join([f"{json.dumps(str(key), ensure_ascii=False)}:{item(each)}" for key, each in value]) + "}"

    return write


def _or_null(write: _Write) -> _Write:
    return lambda value: "null" if value is None else write(value)
