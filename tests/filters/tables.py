"""Frame records as an Arrow table. Contains no tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("conn", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("dir", pa.string()),
        ("protocol", pa.dictionary(pa.int32(), pa.string())),
        ("stream", pa.int64()),
        ("type", pa.string()),
        ("flags", pa.list_(pa.string())),
        *((name, pa.int64()) for name in ("n", "metadata_len", "data_len", "code", "offset", "length")),
        ("error", pa.struct([("rule", pa.string()), ("reason", pa.string())])),
        ("fields", pa.string()),
        ("file", pa.string()),
        ("packet", pa.int64()),
        ("route", pa.string()),
    ]
)


def table_of(records: Sequence[dict[str, Any]]) -> pa.Table:
    """The table of frames; ``fields`` is null in a row that has none."""
    rows = [
        record
        | {
            "ts": record["ts"] and datetime.fromisoformat(record["ts"]),
            "fields": json.dumps(record["fields"], ensure_ascii=False) if record["fields"] else None,
        }
        for record in records
    ]
    return pa.Table.from_pylist(rows, SCHEMA)
