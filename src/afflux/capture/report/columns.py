"""Read columns of record batches as numpy arrays, and select rows by a score. Times become microseconds since 1970."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OTHERS", "Groups", "Row", "Top", "codes", "grouped", "micros", "numbers", "rows"]

Row = dict[str, Any]
"The values of one row by the names of its columns."
T = TypeVar("T")


def micros(batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a column of times, in microseconds since 1970, and which of them are known."""
    column = _micros(batch.column(name))
    return column.fill_null(0).to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False)


def _micros(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())


def numbers(batch: pa.RecordBatch, name: str) -> NDArray[np.float64]:
    """Return a column of numbers; NaN for null."""
    import pyarrow as pa

    made: NDArray[np.float64] = batch.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return made


def codes(batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """Return a column as indexes into the list of its different values; a null is a value."""
    import pyarrow as pa

    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def grouped(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[tuple[Any, ...], NDArray[np.int64]]]:
    """Yield each combination of values of the columns, with the indexes of its rows in ascending order."""
    if not batch.num_rows:
        return
    joined = np.zeros(batch.num_rows, np.int64)
    values = []
    for name in names:
        column, known = codes(batch, name)
        if int(joined.max()) * len(known) >= 1 << 62:
            joined = np.unique(joined, return_inverse=True)[1]
        joined = joined * len(known) + column
        values.append((column, known))
    order = np.argsort(joined, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(joined[order])) + 1):
        yield tuple(known[column[part[0]]] for column, known in values), part


def rows(batch: pa.RecordBatch, places: NDArray[np.int64] | None = None) -> list[Row]:
    """Return rows as dicts, with times in microseconds since 1970."""
    import pyarrow as pa

    chosen = batch if places is None else batch.take(pa.array(places))
    columns = {
        name: (_micros(column) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(chosen.schema.names, chosen.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class Top:
    """The rows with the highest scores.

    Args:
        most: how many rows are kept.
        columns: the columns that break ties, in ascending order.
    """

    __slots__ = ("_kept", "_most", "_ties", "seen")

    def __init__(self, most: int, *columns: str) -> None:
        self._most = most
        self._ties = columns
        self._kept: list[tuple[float, tuple[str, ...], Row]] = []
        self.seen = 0

    def take(self, batch: pa.RecordBatch, score: NDArray[np.float64]) -> None:
        """Consider the rows whose score is above zero."""
        places = np.flatnonzero(score > 0)
        self.seen += len(places)
        if len(places) > self._most:
            places = places[np.argsort(-score[places], kind="stable")[: self._most]]
        if len(self._kept) == self._most:
            places = places[-score[places] <= self._kept[-1][0]]
        made = [
            (-float(score[place]), tuple(str(row[name]).rjust(20) for name in self._ties), row)
            for place, row in zip(places, rows(batch, places), strict=True)
        ]
        self._kept = heapq.nsmallest(self._most, [*self._kept, *made], key=lambda one: one[:2])

    @property
    def rows(self) -> list[Row]:
        """The rows, the highest score first."""
        return [row for _, _, row in self._kept]


OTHERS: Final = "\0others"
"The key of what was counted together because there were too many groups."


class Groups(Generic[T]):
    """Values by key, for a bounded number of keys; all further keys share one value.

    Args:
        most: how many keys have a value of their own.
        make: makes the value of a new key.
    """

    __slots__ = ("_make", "_most", "values")

    def __init__(self, most: int, make: Callable[[], T]) -> None:
        self._most = most
        self._make = make
        self.values: dict[Hashable, T] = {}

    def __getitem__(self, key: Hashable) -> T:
        found = self.values.get(key)
        if found is None:
            key = key if len(self.values) < self._most else OTHERS
            found = self.values.get(key)
            if found is None:
                found = self.values[key] = self._make()
        return found

    def largest(self, size: Callable[[T], float]) -> Sequence[tuple[Any, T]]:
        """Return the keys and values, the largest first, and what was counted together last."""
        return sorted(self.values.items(), key=lambda one: (one[0] == OTHERS, -size(one[1]), str(one[0])))
