"""Convert frames to rows of the Arrow table ``frames``, from the buffers of their columns. Needs pyarrow.

Words that occur in many rows, such as types and flags, are taken from the few distinct ones.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afflux.capture.frames import NONE, NUMBERS, Frames
from afflux.capture.kernels import SHARED, Boundaries
from afflux.capture.packets import NO_TIME, Ints
from afflux.capture.schemas import schema

__all__ = ["batch"]

_FLAGS = pa.list_(pa.string())
_ERROR = pa.struct([("rule", pa.string()), ("reason", pa.string())])
_TIME = pa.timestamp("us", tz="UTC")


def batch(
    frames: Frames,
    *,
    file: str | None = None,
    numbers: Ints | None = None,
    payload: bool = False,
    boundaries: Boundaries = SHARED,
) -> pa.RecordBatch:
    """Return the rows; see ``Frames.arrow``. ``boundaries`` copies payloads."""
    count = len(frames)
    kinds = frames.kinds.rows
    columns: dict[str, pa.Array] = {
        "conn": _taken([one.connection.id for one in frames.conversations], frames.conn, pa.string()),
        "ts": _numbers(frames.time // 1_000, frames.time != NO_TIME, _TIME),
        "dir": _taken(["<", ">"], frames.client.astype(np.int64), pa.string()),
        "protocol": _taken([kind.protocol for kind in kinds], frames.kind, pa.string()),
        "type": _taken([kind.name for kind in kinds], frames.kind, pa.string()),
        "flags": _flags(frames),
        "error": _sparse(frames.errors, count, _ERROR, None, lambda one: {"rule": one[0], "reason": one[1]}),
        "fields": _sparse(frames.fields, count, pa.string(), "{}", _json),
        "file": pa.repeat(pa.scalar(file, pa.string()), count),
        "packet": pa.nulls(count, pa.int64()) if numbers is None else _numbers(numbers, numbers > 0, pa.int64()),
    }
    for name in NUMBERS:
        values: Ints = getattr(frames, name)
        columns[name] = _numbers(values, values != NONE, pa.int64())
    if payload:
        if frames.payloads is None:
            raise ValueError("the payloads of these frames were not kept: FrameBatches(..., payload=True)")
        places, block = frames.payloads, frames.payloads.block
        columns["metadata"] = _binary(block, places.metadata, frames.metadata_len, boundaries)
        columns["data"] = _binary(block, places.data, frames.data_len, boundaries)
    whole = schema("frames", payload=payload)
    return pa.RecordBatch.from_arrays([columns[name] for name in whole.names], schema=whole)


def _valid(present: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Return the bitmap of the values that are present; None if all are."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _numbers(values: Ints, present: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    buffers = [_valid(present), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _taken(words: list[Any], rows: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(words, kind).take(pa.array(rows))


def _flags(frames: Frames) -> pa.Array:
    """Return the letters of the flags: each combination of a type and its flags is made once."""
    bits = pa.array(frames.kind.astype(np.int64) << 32 | frames.flags).dictionary_encode()
    words = [frames.kinds[pair >> 32].letters(pair & 0xFFFF_FFFF) for pair in bits.dictionary.to_pylist()]
    return pa.array(words, _FLAGS).take(bits.indices)


def _sparse(found: dict[int, Any], count: int, kind: pa.DataType, default: Any, shown: Any) -> pa.Array:
    """Return a column of values that few rows have."""
    places = np.zeros(count, np.int64)
    distinct: dict[int, int] = {}
    words = [default]
    for row, value in found.items():
        number = distinct.setdefault(id(value), len(words))
        if number == len(words):
            words.append(shown(value))
        places[row] = number
    return _taken(words, places, kind)


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _binary(block: bytes, at: Ints, sizes: Ints, boundaries: Boundaries) -> pa.Array:
    """Return pieces of a block."""
    present = at >= 0
    ends = np.zeros(len(at) + 1, np.int64)
    np.cumsum(np.where(present, sizes, 0), out=ends[1:])
    total = int(ends[-1])
    if total > 0x7FFF_FFFF:
        raise OverflowError(f"the payloads of one batch have {total} bytes: at most 2147483647 fit")
    data = boundaries.pieces(block, at, sizes, total)
    buffers = [_valid(present), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(at), buffers)
