"""Convert frames (frames.py) to the Arrow table ``frames`` (schemas.py)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from afflux.capture.frames import NONE, Frames
from afflux.capture.packets import Ints
from afflux.capture.rows import timestamps
from afflux.capture.schemas import schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batch"]


def batch(frames: Frames, numbers: Ints, file: str, *, payload: bool) -> pa.RecordBatch:
    """Return the rows of frames.

    Args:
        frames: the frames, with their payloads if ``payload``.
        numbers: the number of the packet of each, from 1; 0 if it is unknown.
        file: the capture.
        payload: add metadata and data.
    """
    import pyarrow as pa

    count = len(frames)
    kinds, ids = frames.kinds.rows, [one.connection.id for one in frames.conversations]
    columns = [
        _taken(ids, frames.conn),
        timestamps(frames.time),
        _taken(["<", ">"], frames.client.astype(np.int64)),
        _taken([kind.protocol for kind in kinds], frames.kind),
        _number(frames.stream),
        _taken([kind.name for kind in kinds], frames.kind),
        _flags(frames),
        *(_number(getattr(frames, name)) for name in ("n", "metadata_len", "data_len", "code", "offset", "length")),
        _sparse({row: dict(zip(("rule", "reason"), one, strict=True)) for row, one in frames.errors.items()}, count,
                pa.struct([("rule", pa.string()), ("reason", pa.string())])),
        _sparse({row: json.dumps(one, ensure_ascii=False, default=_shown) for row, one in frames.fields.items()},
                count, pa.string()),
        _taken([file], np.zeros(count, np.int64)),
        _number(np.where(numbers > 0, numbers, NONE)),
    ]  # fmt: skip
    if payload:
        for name in ("metadata", "data"):
            columns.append(_octets(frames, name))
    return pa.RecordBatch.from_arrays(columns, schema=schema("frames", payload=payload))


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _taken(values: Sequence[str | None], places: Any) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.string()).take(pa.array(places))


def _number(column: Ints) -> Any:
    import pyarrow as pa

    return pa.array(column, mask=column == NONE)


def _flags(frames: Frames) -> Any:
    """Return the letters of the flags: few combinations of type and flags occur."""
    import pyarrow as pa

    pairs = frames.kind.astype(np.int64) << 32 | frames.flags.astype(np.int64)
    distinct, places = np.unique(pairs, return_inverse=True)
    letters = [frames.kinds[pair >> 32].letters(pair & 0xFFFF_FFFF) for pair in distinct.tolist()]
    return pa.array(letters, pa.list_(pa.string())).take(pa.array(places))


def _sparse(values: dict[int, Any], count: int, type_: Any) -> Any:
    """Return a column of which few rows have a value."""
    import pyarrow as pa

    if not values:
        return pa.nulls(count, type_)
    places = np.full(count, -1, np.int64)
    places[list(values)] = np.arange(len(values))
    return pa.array(list(values.values()), type_).take(pa.array(places, mask=places < 0))


def _octets(frames: Frames, name: str) -> Any:
    """Return metadata or data: slices of the block of the payloads, in the order of their places."""
    import pyarrow as pa

    found = frames.payloads
    if found is None:
        return pa.nulls(len(frames), pa.binary())
    starts, sizes = getattr(found, name), getattr(frames, f"{name}_len")
    rows = np.flatnonzero(starts != NONE)
    order = rows[np.argsort(starts[rows], kind="stable")]
    begin, stop = starts[order], starts[order] + sizes[order]
    places = np.full(len(frames), -1, np.int64)
    if (begin[1:] < stop[:-1]).any():
        pieces = [found.block[at:end] for at, end in zip(begin.tolist(), stop.tolist(), strict=True)]
        places[order] = np.arange(len(order))
        return pa.array(pieces, pa.binary()).take(pa.array(places, mask=places < 0))
    places[order] = 2 * np.arange(len(order))
    bounds = np.stack((begin, stop), axis=1).ravel().astype(np.int32)
    bounds = bounds if len(bounds) else np.zeros(1, np.int32)
    values = pa.Array.from_buffers(
        pa.binary(), max(0, len(bounds) - 1), [None, pa.py_buffer(bounds), pa.py_buffer(found.block)]
    )
    return values.take(pa.array(places, mask=places < 0))
