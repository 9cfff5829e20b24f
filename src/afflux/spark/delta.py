"""Write the micro-batches of a query into a Delta table, each exactly once, with the package deltalake.

Spark's own package for Delta consists of jars. This sink needs none: tasks write Parquet files into the table's
directory, and the driver commits those of a batch with one transaction of the table's log.

Rules:

1. The transaction contains the query's id and the batch's number as Delta's application transaction, as Spark's own
   package does. Spark repeats a batch under its number: the table then has it, and the repeated files are not added.
   Either package may continue a table that the other one has begun.
2. Two transactions of one query conflict: of two drivers with one checkpoint, one commits a batch.
3. Files of attempts that were not committed are not part of the table. VACUUM deletes them. Nothing is deleted here,
   because a commit whose answer was lost may have added them.
4. A task keeps at most ``GROUP_BYTES`` of rows, and ``OPEN_FILES`` files open.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from afflux.core.errors import Invalid, MissingExtra, Unsupported
from afflux.spark.arrow import arrow_schema
from afflux.spark.schemas import plain

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

__all__ = ["FORMAT", "DeltaRefused", "DeltaSink", "DeltaWriter", "File", "Files", "Written", "located", "prepare"]

FORMAT: Final = "afflux-delta"
"The name under which a session knows the sink."
GROUP_BYTES: Final = 64 << 20
"Bytes of rows that a task collects before it writes them."
OPEN_FILES: Final = 64
"Files that a task has open, one for each value of the partition columns."
_QUERY = "sql.streaming.queryId"
"Local property of a task: the id of the query, which is in its checkpoint."
_FEATURES = {"timestampNtz", "appendOnly", "invariants"}
"Features of a table with which plain files may be added to it."
_PLAIN_VERSION = 2
_FEATURES_VERSION = 7
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_NAME_LENGTH = 100
_PARTITIONS = ("string", "byte", "short", "integer", "long", "boolean", "date", "timestamp")
"Delta's types whose values can be written as partitions without a loss."


class DeltaRefused(Invalid, ValueError):
    """The table cannot be written: other columns, other partitions, or features that this sink does not have."""


@dataclass(frozen=True)
class File:
    """A file that a task has written."""

    path: str
    size: int
    rows: int
    values: dict[str, str | None]
    "The values of the partition columns, as Delta's log writes them."


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written."""

    query: str
    files: tuple[File, ...]


def located(out: str) -> str:
    """Return the address of a table: a directory of this machine with its absolute path, others as they are."""
    return os.path.abspath(out) if not urlsplit(out).scheme else out


def prepare(out: str, schema: StructType, partition_by: Sequence[str]) -> None:
    """Create the table, or check that rows of these columns may be added to it.

    Raises:
        MissingExtra: deltalake is not installed.
        Unsupported: Spark is older than 4.1.
        DeltaRefused: the table has other columns or partitions, or needs what this sink cannot do.
    """
    try:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise MissingExtra("--format delta without Spark's own package for it", "delta") from None
    if DataSourceStreamArrowWriter is object:
        raise Unsupported("writing a Delta table with deltalake needs Spark 4.1 or newer")
    columns = plain(arrow_schema(schema))
    try:
        wanted = Schema.from_arrow(columns)
        _check_partitions({field.name: str(getattr(field.type, "type", "")) for field in wanted.fields}, partition_by)
        table = DeltaTable.create(located(out), schema=wanted, partition_by=list(partition_by), mode="ignore")
        table = DeltaTable(located(out))
    except (DeltaError, OSError, ValueError) as error:
        raise DeltaRefused(f"Delta table {out}: {_first_line(error)}") from None
    _check_table(out, table, wanted, partition_by)


def _check_partitions(types: Mapping[str, str], partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if name not in types:
            raise ValueError(f"partition column {name!r} is not one of the columns {', '.join(types)}")
        if types[name] not in _PARTITIONS:
            raise ValueError(f"column {name!r} cannot partition a table; columns of {', '.join(_PARTITIONS)} can")
    if len(set(partition_by)) == len(types):
        raise ValueError("all columns partition the table: at least one must not")


def _check_table(out: str, table: DeltaTable, wanted: Any, partition_by: Sequence[str]) -> None:
    there = [(field.name, field.type) for field in table.schema().fields]
    if there != [(field.name, field.type) for field in wanted.fields]:
        names = (
            ", ".join(f"{field.name} {_type_name(field.type)}" for field in each)
            for each in (table.schema().fields, wanted.fields)
        )
        raise DeltaRefused("Delta table {} has the columns {}; the stream has {}".format(out, *names))
    partitions = table.metadata().partition_columns
    if partitions != list(partition_by):
        have, want = (", ".join(each) or "no column" for each in (partitions, partition_by))
        raise DeltaRefused(f"Delta table {out} is partitioned by {have}, not by {want}")
    protocol = table.protocol()
    features = set(protocol.writer_features or ()) - _FEATURES
    if features or protocol.min_writer_version not in (_PLAIN_VERSION, _FEATURES_VERSION):
        needs = ", ".join(sorted(features)) or f"version {protocol.min_writer_version} of the writer's protocol"
        raise DeltaRefused(f"Delta table {out} needs {needs}: write it with Spark's own package for Delta")


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "type", kind))


class DeltaSink(DataSource):
    """A Delta table as the sink of a query. Options: ``path``, and ``partitionBy`` as a JSON array of names."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaWriter:  # noqa: N802 -- Spark's name
        """Return the writer of a query."""
        if overwrite:
            raise DeltaRefused("only outputMode append is possible")
        options: MutableMapping[str, str] = self.options
        return DeltaWriter(options["path"], plain(arrow_schema(schema)), json.loads(options.get("partitionBy", "[]")))


class DeltaWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query. Pickled into tasks.

    Args:
        out: the address of the table.
        columns: its columns.
        partition_by: the names of its partition columns.
    """

    def __init__(self, out: str, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        self._out = out
        self._columns = columns
        self._partition_by = list(partition_by)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task of a micro-batch into files that are not part of the table yet."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        if query is None:
            raise Invalid(f"Spark did not pass {_QUERY} to the task", rule="batch")
        files = Files(self._out, self._columns, self._partition_by)
        rows: list[pa.RecordBatch] = []
        collected = 0
        for batch in iterator:
            rows.append(batch)
            collected += batch.nbytes
            if collected >= GROUP_BYTES:
                files.write(rows)
                rows, collected = [], 0
        files.write(rows)
        return Written(query, files.close())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Add the files of a micro-batch to the table, unless the table has that batch (rule 1)."""
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import CommitFailedError

        written = [message for message in messages if isinstance(message, Written) and message.files]
        if not written:
            return
        query = written[0].query
        table = DeltaTable(self._out)
        if _has(table, query, batchId):
            return
        added = [_added(file) for message in written for file in message.files]
        properties = CommitProperties(app_transactions=[Transaction(query, batchId, int(time.time() * 1000))])
        more: dict[str, Any] = {"partition_by": self._partition_by, "commit_properties": properties}
        try:
            table.create_write_transaction(added, "append", table.schema(), **more)
        except CommitFailedError:
            if not _has(DeltaTable(self._out), query, batchId):  # else another driver of this query was first (rule 2)
                raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Leave the files (rule 3)."""


def _has(table: DeltaTable, query: str, batch: int) -> bool:
    last = table.transaction_version(query)
    return last is not None and last >= batch


def _added(file: File) -> Any:
    from deltalake.transaction import AddAction

    now, counted = int(time.time() * 1000), json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.size, file.values, now, True, counted)


class _Open:
    """A Parquet file that is being written."""

    def __init__(self, files: Any, path: str, columns: pa.Schema, values: dict[str, str | None]) -> None:
        from pyarrow.parquet import ParquetWriter

        self._path, self._values, self._rows = path, values, 0
        self._stream = files.open_output_stream(path)
        self._writer = ParquetWriter(self._stream, columns, compression="snappy")

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        self._writer.write_table(rows, row_group_size=len(rows))
        self._rows += len(rows)

    def close(self) -> File:
        """Write the end of the file."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return File(self._path, size, self._rows, self._values)


class Files:
    """The files that a task writes.

    Args:
        out: the address of the table.
        columns: its columns.
        partition_by: the names of its partition columns.

    Raises:
        MissingExtra: deltalake is not installed in this Python, which may be an executor's.
    """

    def __init__(self, out: str, columns: pa.Schema, partition_by: list[str]) -> None:
        import pyarrow as pa
        from pyarrow.fs import PyFileSystem

        try:
            from deltalake.fs import DeltaStorageHandler
        except ImportError:
            raise MissingExtra("a task that writes a Delta table", "delta") from None

        self._system = PyFileSystem(DeltaStorageHandler(out))
        self._columns = columns
        self._partition_by = partition_by
        self._stored = pa.schema([field for field in columns if field.name not in partition_by])
        self._open: OrderedDict[tuple[str | None, ...], _Open] = OrderedDict()
        self._closed: list[File] = []

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Write rows, in their order for each value of the partition columns."""
        import pyarrow as pa

        if not batches:
            return
        table = pa.Table.from_batches(batches).cast(self._columns)
        for values, rows in self._parts(table) if len(table) else ():
            file = self._open.pop(values, None) or self._new(values)
            self._open[values] = file
            file.write(rows)

    def close(self) -> tuple[File, ...]:
        """Complete all files, and return them."""
        self._closed += [file.close() for file in self._open.values()]
        self._open.clear()
        return tuple(self._closed)

    def _new(self, values: tuple[str | None, ...]) -> _Open:
        if len(self._open) >= OPEN_FILES:
            self._closed.append(self._open.popitem(last=False)[1].close())
        named = dict(zip(self._partition_by, values, strict=True))
        directories = [_directory(name, value) for name, value in named.items()]
        path = "/".join([*directories, f"part-{uuid.uuid4()}.snappy.parquet"])
        return _Open(self._system, path, self._stored, named)

    def _parts(self, table: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Yield the rows of each combination of partition values, without these columns."""
        if not self._partition_by:
            yield (), table
            return
        import numpy as np
        import pyarrow as pa

        keys = table.select(self._partition_by).rename_columns(
            [str(number) for number in range(len(self._partition_by))]
        )
        numbered = keys.append_column("row", pa.array(np.arange(len(table))))
        names = keys.column_names
        groups = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
        stored = table.select(self._stored.names)
        for number, group in enumerate(groups.select(names).to_pylist()):
            rows = groups["row_list"][number].values
            yield tuple(_text(value) for value in group.values()), stored.take(rows)


def _text(value: Any) -> str | None:
    """Return the value of a partition column as Delta's log has it. An empty text is null there."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "tzinfo"):
        return str(value.replace(tzinfo=None).isoformat(" ", "microseconds"))
    return str(value)


def _directory(name: str, value: str | None) -> str:
    """Return the name of a directory. It is for people only: the values are in the log."""
    shown = "__HIVE_DEFAULT_PARTITION__" if value is None else value
    return "=".join(_UNSAFE.sub("_", text[:_NAME_LENGTH]) for text in (name, shown))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
