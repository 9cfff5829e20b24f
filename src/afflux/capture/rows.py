"""Convert the findings of the ledger to Arrow tables (schemas.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture import ledger_columns as names
from afflux.capture import slots
from afflux.capture.arrays import numbers, taken, texts
from afflux.capture.packets import NO_TIME, Ints
from afflux.capture.schemas import schema
from afflux.core.meanings import StreamKind

if TYPE_CHECKING:
    import pyarrow as pa

    from afflux.capture.ledger import Findings, Ledger

__all__ = ["CAUSES", "ENDINGS", "credit", "latencies", "stalls", "streams", "timestamps"]

CAUSES: Final = ("peer", "transport", "producer", "lease", "local", "unknown")
"The causes of stalls, as kernels number them."
ENDINGS: Final = ("complete", "error", "cancel", "connection", "open", "unknown")
"How streams end, as kernels number it."
_EVENTS: Final = ("grant", "empty", "end")
_KINDS: Final = tuple(kind.name.lower() for kind in StreamKind)
_SIDES: Final = ("<", ">")
_MORE: Final = np.frombuffer("…".encode(), np.uint8)


def streams(findings: Findings, ledger: Ledger) -> pa.RecordBatch:
    """Return the rows of streams that have ended."""

    rows, types = findings.ended, ledger.translator
    longest, count = rows[:, slots.LONGEST], rows[:, slots.STALLS]
    columns = [
        _ids(rows[:, slots.CONN], ledger),
        numbers(rows[:, slots.STREAM]),
        _named([protocol for protocol, _ in types.types], rows[:, slots.AFTER_TYPE]),
        _named(_KINDS, rows[:, slots.KIND]),
        _named(_SIDES, rows[:, slots.ASKER]),
        _named(types.routes, rows[:, slots.ROUTE]),
        _histories(findings.letters, rows[:, slots.LETTERS]),
        timestamps(rows[:, slots.FIRST]),
        timestamps(rows[:, slots.LAST]),
        *(numbers(rows[:, slots.ITEMS + way]) for way in (0, 1)),
        *(numbers(rows[:, slots.BYTES + way]) for way in (0, 1)),
        *(_known(rows[:, slots.GRANTED + way]) for way in (0, 1)),
        _named(ENDINGS, rows[:, slots.ENDED]),
        _known(rows[:, slots.CODE]),
        numbers(count),
        _seconds(rows[:, slots.STALLED]),
        _seconds(longest, count > 0),
    ]
    return _batch("streams", columns)


def latencies(findings: Findings, ledger: Ledger) -> pa.RecordBatch:
    """Return the rows of ended streams that expect an answer."""

    rows = findings.ended
    without = (int(StreamKind.FIRE), int(StreamKind.PUSH), int(StreamKind.UNKNOWN))
    rows = rows[~np.isin(rows[:, slots.KIND], without)]
    first, answered, how = rows[:, slots.FIRST], rows[:, slots.ANSWERED], rows[:, slots.ENDED]
    columns = [
        _ids(rows[:, slots.CONN], ledger),
        numbers(rows[:, slots.STREAM]),
        _named(_KINDS, rows[:, slots.KIND]),
        _named(ledger.translator.routes, rows[:, slots.ROUTE]),
        timestamps(first),
        _seconds(answered - first, answered >= 0),
        _seconds(rows[:, slots.LAST] - first, how < names.CONNECTION),
        _named(ENDINGS, how),
        numbers(rows[:, slots.ITEMS]),
    ]
    return _batch("latencies", columns)


def credit(findings: Findings, ledger: Ledger, packets: Ints) -> pa.RecordBatch:
    """Return the events of credit. ``packets`` are the numbers of the frames' packets, from 1, or 0."""
    rows, frames = findings.credit, findings.credit[:, 7]
    columns = [
        _ids(rows[:, 0], ledger),
        numbers(rows[:, 1]),
        _named(_SIDES, rows[:, 2]),
        timestamps(findings.frames[frames, names.TIME]),
        _named(_EVENTS, rows[:, 3]),
        numbers(rows[:, 4]),
        numbers(rows[:, 5]),
        numbers(rows[:, 6]),
        numbers(rows[:, 5] - rows[:, 6]),
        numbers(packets[frames], packets[frames] > 0),
    ]
    return _batch("credit", columns)


def stalls(findings: Findings, ledger: Ledger) -> pa.RecordBatch:
    """Return the stalls."""

    rows, types = findings.stalls, [name for _, name in ledger.translator.types]
    columns = [
        _ids(rows[:, 0], ledger),
        numbers(rows[:, 1]),
        _named(_SIDES, rows[:, 2]),
        timestamps(rows[:, 3]),
        timestamps(rows[:, 4]),
        _seconds(rows[:, 4] - rows[:, 3]),
        _named(CAUSES, rows[:, 5]),
        _named(types, rows[:, 6]),
        _named(_SIDES, rows[:, 7]),
        numbers(rows[:, 8]),
        _named(types, rows[:, 9]),
        _named(ledger.translator.routes, rows[:, 10]),
    ]
    return _batch("stalls", columns)


def timestamps(time: Ints) -> pa.Array:
    """Return times in nanoseconds as an Arrow array; null for ``NO_TIME``."""
    import pyarrow as pa

    return numbers(time // 1_000, time != NO_TIME, pa.timestamp("us", tz="UTC"))


def _batch(table: str, columns: list[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(columns, schema=schema(table))


def _seconds(values: Ints, present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return nanoseconds in seconds; null where they are not present."""
    import pyarrow as pa

    return numbers(values / 1e9, present, pa.float64())


def _known(values: Ints) -> pa.Array:
    """Return numbers; negative ones are null."""
    return numbers(values, values >= 0)


def _named(words: Sequence[str | None], rows: Ints) -> pa.Array:
    """Return the names with these numbers; null for -1."""
    return taken(texts(words), rows)


def _ids(conns: Ints, ledger: Ledger) -> pa.Array:
    used = np.zeros(len(ledger.names), np.bool_)
    used[conns] = True
    known = np.flatnonzero(used)
    place = np.zeros(len(used), np.int64)
    place[known] = np.arange(len(known))
    return _named([ledger.names[number] for number in known.tolist()], place[conns])


def _histories(letters: npt.NDArray[np.uint8], counts: Ints) -> pa.Array:
    """Return the letters of each row as a text, with an ellipsis if there were more."""
    import pyarrow as pa

    more = counts > slots.HISTORY
    sizes = np.minimum(counts, slots.HISTORY)
    texts = np.zeros((len(letters), slots.HISTORY + len(_MORE)), np.uint8)
    texts[:, : slots.HISTORY] = letters
    texts[more, slots.HISTORY :] = _MORE
    sizes = sizes + np.where(more, len(_MORE), 0)
    data = texts[np.arange(texts.shape[1]) < sizes[:, None]]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.StringArray.from_buffers(len(letters), pa.py_buffer(offsets), pa.py_buffer(data))
