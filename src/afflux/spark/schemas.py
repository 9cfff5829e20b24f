"""Compare the columns of rows: their plain form, its fingerprint, and the differences as text."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from afflux.core.errors import ApplicationError
from afflux.protocols.rsocket.staging import SCHEMA_MISMATCH

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["mark_of", "mismatch", "plain"]

_FLAT = (
    *("boolean", "integer", "floating", "decimal", "date", "timestamp", "duration", "interval", "null"),
    *("string", "large_string", "binary", "large_binary"),
)
"Types without others inside; the memory for their values is proportional to the bytes of a block."


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the columns with nulls permitted, timestamps in UTC and no metadata, at any depth.

    Queries over the same data may differ in all three: nulls depend on the plan, and the zone on the session.

    Raises:
        ValueError: a type is not one of Spark's, such as a dictionary, a view or run-end encoding.
    """
    import pyarrow as pa

    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, _plain_type(field.type), nullable=True)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_map(kind):
        key = pa.field(kind.key_field.name, _plain_type(kind.key_type), nullable=False)
        return pa.map_(key, _plain_field(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if any(is_kind(kind) for is_kind in (getattr(types, f"is_{name}") for name in _FLAT)):
        return kind
    raise ValueError(f"columns of type {kind} are unsupported")


def mark_of(schema: pa.Schema) -> str:
    """Return the fingerprint of plain columns, 16 characters."""
    return hashlib.sha256(schema.serialize().to_pybytes()).hexdigest()[:16]


def mismatch(wanted: pa.Schema, found: pa.Schema) -> ApplicationError:
    """Return the error for rows with other columns, which names those that differ."""
    missing = [f"{each.name} {each.type}" for each in wanted if each not in found]
    surplus = [f"{each.name} {each.type}" for each in found if each not in wanted]
    parts = [f"{word} {', '.join(names)}" for word, names in (("missing", missing), ("unexpected", surplus)) if names]
    text = "; ".join(parts) or f"the order is {', '.join(found.names)} instead of {', '.join(wanted.names)}"
    return ApplicationError(SCHEMA_MISMATCH, f"the columns are not those of the table: {text}")
