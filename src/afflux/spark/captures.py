"""Implement ``format("afflux-capture")``: the tables of captures, in batch and as they arrive.

Rules:

1. The driver plans: it indexes the captures (capture/indexing.py) and divides their flows into groups. A task decodes
   one group, and yields the rows of one table as Arrow batches.
2. A stream takes whole files. An offset has the name, the size and the time of every file of the directory that was
   taken, so a batch that is repeated has the same files. Files that are gone from the directory leave the offset.
3. A file is taken when it has not changed for ``settleSeconds``, or when it has been moved into the directory with an
   older time. One that changes after it was taken fails the query: its rows would be incomplete or come twice.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from afflux.capture.errors import CaptureError
from afflux.capture.places import CaptureFiles, captures_among, captures_in
from afflux.capture.units import Unit, units_of
from afflux.core.errors import Invalid
from afflux.filters import Filter, pushed
from afflux.spark.captureoptions import CaptureOptions
from afflux.spark.memory import give_back

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CaptureReader", "CaptureSource", "CaptureStreamReader"]

_log = logging.getLogger("afflux.spark")
_POLL_S = 0.5
_FILES = "files"


class CaptureSource(DataSource):
    """The tables of captures."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = CaptureOptions.parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "afflux-capture"

    def schema(self) -> StructType:
        """Return the columns of the table, those of the option ``columns`` in its order."""
        from pyspark.sql.pandas.types import from_arrow_schema

        found: StructType = from_arrow_schema(_arrow_schema(self._parsed))
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the captures that exist."""
        _check_schema(self.schema(), schema)
        return (PushingReader if self._parsed.push_filters else CaptureReader)(self._parsed)

    def streamReader(self, schema: StructType) -> CaptureStreamReader:  # noqa: N802 -- Spark's name
        """Return a reader of captures as they arrive in a directory."""
        _check_schema(self.schema(), schema)
        return CaptureStreamReader(self._parsed)


class UnitPartition(InputPartition):
    """What one task decodes."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(None)
        self.unit = unit


class _Reading:
    """Decodes the units of a table."""

    def __init__(self, options: CaptureOptions) -> None:
        self.options = options

    def units(self, files: CaptureFiles) -> list[UnitPartition]:
        """Return the partitions of some captures; one without rows if there is nothing to decode."""
        options = self.options
        limits = options.decoding.limits
        units = units_of(files, limits, index_dir=options.index_place, count=options.partitions)
        return [UnitPartition(unit) for unit in units]

    def rows(self, unit: Unit, more: Filter | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a unit, of which ``more`` selects some."""
        try:
            yield from self._rows(unit, more)
        finally:
            give_back()

    def _rows(self, unit: Unit, more: Filter | None) -> Iterator[pa.RecordBatch]:
        names = _arrow_schema(self.options).names
        for _, batch in self.options.decoding.of(unit):
            chosen = batch if more is None else batch.filter(more.mask(batch))
            if len(chosen):
                yield chosen.select(names)


class CaptureReader(DataSourceReader):
    """Reads the captures that exist when a query is planned, as far as they go then."""

    def __init__(self, options: CaptureOptions) -> None:
        self._reading = _Reading(options)
        self._pushed: Filter | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks decode. Raises as ``captures_in`` and ``units_of`` do."""
        return self._reading.units(captures_in(self._reading.options.all_paths, _log.warning))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow batches."""
        if isinstance(partition, UnitPartition):
            yield from self._reading.rows(partition.unit, self._pushed)


class PushingReader(CaptureReader):
    """A reader that applies filters of the query."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 -- Spark's name
        """Take the filters that can be applied to frames while they are decoded; return the others."""
        options = self._reading.options
        if options.table != "frames":
            return filters
        found, others = pushed(filters)
        if found is not None and not found.columns <= {*options.decoding.schema("frames").names}:
            return filters
        self._pushed = found
        return others


class CaptureStreamReader(DataSourceStreamReader):
    """Reads captures as they arrive in a directory."""

    def __init__(self, options: CaptureOptions) -> None:
        self._reading = _Reading(options)
        if len(options.all_paths) != 1 or not Path(options.all_paths[0]).is_dir():
            raise Invalid(f"readStream follows one directory, not {', '.join(options.all_paths)}", rule="path")
        self._directory = Path(options.all_paths[0])
        self._taken: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the offset before the first file."""
        return {_FILES: {}}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the offset with the files that are complete now; ``start`` is where the next batch begins.

        Raises:
            Invalid: a file has changed after it was taken (rule 3).
        """
        taken = self._taken if start is None else start[_FILES]
        there = self._there()
        for name in taken.keys() & there.keys():
            if there[name] != taken[name]:
                raise Invalid(
                    f"{self._directory / name} had {taken[name][0]} bytes when its rows were read, and now has "
                    f"{there[name][0]}: move it away to go on, and raise settleSeconds, or move files here when they "
                    "are complete",
                    rule="changed",
                )
        settled = time.time() - self._reading.options.settle_seconds
        names = [name for name, state in there.items() if name in taken or state[1] <= settled * 1e9]
        self._taken = {name: there[name] for name in sorted(names)}
        if self._taken == taken:
            time.sleep(_POLL_S)
        return {_FILES: self._taken}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of the files between two offsets: always the same rows.

        Raises:
            CaptureError: a file is gone or has changed.
        """
        self._taken = end[_FILES]
        names = [name for name, state in end[_FILES].items() if start[_FILES].get(name) != state]
        there = self._there()
        for name in names:
            if there.get(name) != end[_FILES][name]:
                raise CaptureError(
                    f"{self._directory / name} is gone or has changed, and its batch is not finished: put it back, "
                    "or start with another checkpoint and an empty table"
                )
        return self._reading.units(captures_among((self._directory / name for name in names), _log.warning))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow batches."""
        if isinstance(partition, UnitPartition):
            yield from self._reading.rows(partition.unit)

    def _there(self) -> dict[str, Any]:
        """Return the size and the time of each file of the directory."""
        found = {}
        for path in self._directory.iterdir():
            if path.name.startswith((".", "_")):
                continue
            try:
                state = path.stat()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
                continue  # removed since it was listed, or a link to nothing
            if S_ISREG(state.st_mode):
                found[path.name] = [state.st_size, state.st_mtime_ns]
        return found


def _arrow_schema(options: CaptureOptions) -> pa.Schema:
    import pyarrow as pa

    whole = options.decoding.schema(options.table)
    return pa.schema([whole.field(name) for name in options.columns]) if options.columns else whole


def _check_schema(own: StructType, given: StructType) -> None:
    if [one.name for one in own] != [one.name for one in given]:
        raise Invalid(
            f"the table has the columns {own.simpleString()}: choose some with the option columns", rule="schema"
        )
