"""Convert frames to rows of the Arrow table ``frames``, from the buffers of their columns. Needs pyarrow.

Words that occur in many rows, such as types and flags, are taken from the few distinct ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afflux.capture import arrays
from afflux.capture import frame_kernels as kernel
from afflux.capture.frames import NONE, NUMBERS, Frames
from afflux.capture.kernels import SHARED, Boundaries
from afflux.capture.packets import NO_TIME, Ints
from afflux.capture.schemas import schema

__all__ = ["batch"]

_PAIRS = 0x1_0000
"Types with flags that are found by their number; more are sorted."
_FEW = 32
"Words whose array is kept, and such arrays."
_SHORT = 4_096
"Characters of such words."
_ERROR = pa.struct([("rule", pa.string()), ("reason", pa.string())])
_TIME = pa.timestamp("us", tz="UTC")


def batch(
    frames: Frames,
    *,
    file: str | None = None,
    earlier: Sequence[str] = (),
    numbers: Ints | None = None,
    positions: Ints | None = None,
    payload: bool = False,
    dictionaries: bool = False,
    boundaries: Boundaries = SHARED,
) -> pa.RecordBatch:
    """Return the rows; see ``Frames.arrow``. ``boundaries`` copies payloads."""
    count, words = len(frames), _coded if dictionaries else _shown
    kinds = frames.kinds.rows
    columns: dict[str, pa.Array] = {
        "conn": words([one.id for one in frames.conversations], frames.conn),
        "ts": arrays.numbers(frames.time // 1_000, frames.time != NO_TIME, _TIME),
        "dir": words(["<", ">"], frames.client),
        "protocol": words([kind.protocol or None for kind in kinds], frames.kind),
        "type": words([kind.name for kind in kinds], frames.kind),
        "flags": _flags(frames, boundaries),
        "error": _errors(frames.errors, count),
        "fields": words(*_distinct(frames.fields, count, "{}", _json)),
        "file": words(*_files(frames, file, earlier)),
        "file_offset": pa.nulls(count, pa.int64()) if positions is None else arrays.numbers(positions, positions >= 0),
        "packet": pa.nulls(count, pa.int64()) if numbers is None else arrays.numbers(numbers, numbers > 0),
    }
    for name in NUMBERS:
        values: Ints = getattr(frames, name)
        columns[name] = arrays.numbers(values, values != NONE)
    if payload:
        if frames.payloads is None:
            raise ValueError("the payloads of these frames were not kept: FrameBatches(..., payload=True)")
        places, block = frames.payloads, frames.payloads.block
        columns["metadata"] = _binary(block, places.metadata, frames.metadata_len, boundaries)
        columns["data"] = _binary(block, places.data, frames.data_len, boundaries)
    whole = schema("frames", payload=payload)
    if dictionaries:
        return pa.RecordBatch.from_arrays([columns[name] for name in whole.names], whole.names)
    return pa.RecordBatch.from_arrays([columns[name] for name in whole.names], schema=whole)


def _files(frames: Frames, file: str | None, earlier: Sequence[str]) -> tuple[list[str | None], npt.NDArray[np.int32]]:
    """Return the names of files, and the number of each frame's file."""
    names: dict[str | None, int] = {file: 0}
    numbers = np.array([names.setdefault(name, len(names)) for name in earlier], np.int32)
    found = np.zeros(len(frames), np.int32)
    if not earlier:
        return list(names), found
    first = np.flatnonzero((frames.packet >= 0) & (frames.packet < len(earlier)))
    found[first] = numbers[frames.packet[first]]
    return list(names), found


def _coded(words: list[str | None], rows: npt.NDArray[Any]) -> pa.Array:
    """Return the words with these numbers, as a dictionary array. Its dictionary has no nulls, which pyarrow could
    neither unify nor write as Parquet: rows without a word have no number."""
    codes = np.ascontiguousarray(rows, np.int32)
    missing = [number for number, word in enumerate(words) if word is None]
    valid = arrays.valid(~np.isin(codes, missing)) if missing else None
    numbers = pa.Array.from_buffers(pa.int32(), len(codes), [valid, pa.py_buffer(codes)])
    shown = tuple(["" if word is None else word for word in words])
    known = _words(shown) if len(shown) <= _FEW and sum(map(len, shown)) <= _SHORT else arrays.texts(shown)
    return pa.DictionaryArray.from_arrays(numbers, known, safe=False)


@lru_cache(_FEW)
def _words(words: tuple[str, ...]) -> pa.Array:
    """Return few words as an array: most batches of a capture have the same."""
    return arrays.texts(words)


def _shown(words: list[str | None], rows: npt.NDArray[Any]) -> pa.Array:
    """Return the words with these numbers."""
    return arrays.taken(arrays.texts(words), rows)


def _flags(frames: Frames, boundaries: Boundaries) -> pa.Array:
    """Return the letters of the flags: each combination of a type and its flags is made once."""
    width = int(frames.flags.max(initial=0)).bit_length()
    pairs = frames.kind.astype(np.int64) << width | frames.flags
    if len(frames.kinds) << width <= _PAIRS:
        rows = np.full(len(frames.kinds) << width, NONE, np.int64)
        rows[pairs] = 0
        used = np.flatnonzero(rows == 0)
        rows[used] = np.arange(len(used))
        places = rows[pairs]
    else:
        used, places = np.unique(pairs, return_inverse=True)
    words = [frames.kinds[pair >> width].letters(pair & (1 << width) - 1) for pair in used.tolist()]
    return _letters(words, places, boundaries)


def _letters(words: list[list[str]], rows: Ints, boundaries: Boundaries) -> pa.Array:
    """Return the lists of letters with these numbers. Letters of one byte, as most are, are put together faster."""
    flat = [letter for found in words for letter in found]
    if not all(len(letter) == 1 and letter.isascii() for letter in flat):
        ends: npt.NDArray[np.int32] = np.zeros(len(words) + 1, np.int32)
        np.cumsum([len(letters) for letters in words], out=ends[1:])
        offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
        return arrays.taken(pa.ListArray.from_arrays(offsets, arrays.texts(flat)), rows)
    sizes = np.array([len(letters) for letters in words], np.int64)
    firsts, text = np.cumsum(sizes) - sizes, np.frombuffer("".join(flat).encode(), np.uint8)
    ends = np.zeros(len(rows) + 1, np.int32)
    function = boundaries.compiled(kernel.letters)
    if function is None:
        counts = sizes[rows]
        np.cumsum(counts, out=ends[1:])
        octets = text[np.arange(int(ends[-1])) + np.repeat(firsts[rows] - ends[:-1], counts)]
    else:
        room: npt.NDArray[np.uint8] = np.empty(len(rows) * int(sizes.max(initial=0)), np.uint8)
        function(rows, firsts, sizes, text, ends, room)
        octets = room[: ends[-1]].copy()
    each = np.arange(len(octets) + 1, dtype=np.int32)
    letters = pa.Array.from_buffers(pa.string(), len(octets), [None, pa.py_buffer(each), pa.py_buffer(octets)])
    offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
    return pa.ListArray.from_arrays(offsets, letters)


def _errors(found: dict[int, tuple[str, str]], count: int) -> pa.Array:
    if not found:
        return pa.nulls(count, _ERROR)
    words, places = _distinct(found, count, ("", ""), lambda one: one)
    columns = [arrays.texts([word[number] for word in words]) for number in range(2)]
    return arrays.taken(pa.StructArray.from_arrays(columns, fields=list(_ERROR)), np.where(places, places, NONE))


def _distinct(found: dict[int, Any], count: int, default: Any, shown: Callable[[Any], Any]) -> tuple[list[Any], Ints]:
    """Return the different values of a column that few rows have, and which of them each row has."""
    places = np.zeros(count, np.int64)
    distinct: dict[int, int] = {}
    words = [default]
    for row, value in found.items():
        number = distinct.setdefault(id(value), len(words))
        if number == len(words):
            words.append(shown(value))
        places[row] = number
    return words, places


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
    data = boundaries.pieces(block, at, sizes, ends[:-1], total)
    buffers = [arrays.valid(present), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(at), buffers)
