"""Make Arrow arrays out of numpy arrays and lists, buffer by buffer.

``pyarrow.array`` does the same for any object, and imports pandas to see whether it is one of its objects, which takes
longer than a small capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from afflux.capture.packets import Ints

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["column", "numbers", "taken", "texts", "valid"]

Present = npt.NDArray[np.bool_]


def valid(present: Present | None) -> pa.Buffer | None:
    """Return the bitmap of the values that are present; None if all are."""
    import pyarrow as pa

    if present is None or present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def numbers(values: npt.NDArray[Any], present: Present | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """Return numbers of 64 bits as an array of a type, which is int64 by default; null where they are not present."""
    import pyarrow as pa

    buffers = [valid(present), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.int64() if kind is None else kind, len(values), buffers)


def texts(words: Sequence[str | None]) -> pa.Array:
    """Return words as an array; null for None."""
    import pyarrow as pa

    octets = [b"" if word is None else word.encode() for word in words]
    ends = np.zeros(len(words) + 1, np.int32)
    np.cumsum([len(one) for one in octets], out=ends[1:])
    present = np.array([word is not None for word in words], np.bool_)
    buffers = [valid(present), pa.py_buffer(ends), pa.py_buffer(b"".join(octets))]
    return pa.Array.from_buffers(pa.string(), len(words), buffers)


def taken(words: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """Return the elements of an array with these numbers; null for negative ones."""
    rows = rows.astype(np.int64, copy=False)
    return words.take(numbers(rows, rows >= 0))


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of texts, booleans, or whole numbers, which may stand for times; null for None."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return texts(values)
    present = np.array([value is not None for value in values], np.bool_)
    if pa.types.is_boolean(kind):
        bits = np.packbits(np.array(values, np.bool_), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [valid(present), pa.py_buffer(bits)])
    whole: Ints = np.array([0 if value is None else value for value in values], np.int64)
    return numbers(whole, present, kind)
