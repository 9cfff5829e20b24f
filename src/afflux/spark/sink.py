"""Implement ``df.write`` and ``df.writeStream`` with pyspark's data source interfaces.

1. ``write`` runs in a task, possibly more than once for a partition: it stages rows and commits nothing. It cannot know
   whether the partition has ended or its input has failed, because both end the iterator.
2. ``commit`` runs on the driver when all tasks have succeeded. It names the attempts whose messages it got, so that
   rows of other attempts are dropped.
3. A streaming query has an id from its checkpoint, and Spark repeats a batch under its number: after a crash the
   receiver recognizes it. A batch write is a query with one batch and, unless ``writeId`` is given, a random id.
4. Other peers get rows in ``write``, with keys. There ``commit`` has nothing to do.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from afflux.core.errors import Invalid
from afflux.protocols.rsocket.staging import Abort, Commit, Part, Stage
from afflux.spark import sending
from afflux.spark.declaring import OptionError
from afflux.spark.outgoing import blocks, check_schema, payloads
from afflux.spark.sinkoptions import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StreamWriter", "Written"]

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
"Local properties of a task of a streaming query."


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has staged."""

    query: bytes
    batch: int
    run: bytes
    part: Part | None
    "None if the task had no rows."


class _Writing:
    """Base class of both writers. Pickled into tasks."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                'format("afflux") appends: mode("overwrite") and outputMode("complete") would have to remove rows that '
                "the peer has received"
            )
        self.options = options
        check_schema(options, [(field.name, field.dataType.simpleString()) for field in schema.fields])

    def _write(self, batches: Iterator[pa.RecordBatch], query: bytes, batch: int, run: bytes) -> Written:
        """Send the rows of a partition; no connection is made for none."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        rows = _first_rows(batches)
        if rows is None:
            return Written(query, batch, run, None)
        if self.options.delivery == AT_LEAST_ONCE:
            send = sending.send_requests if self.options.verb == "request" else sending.send_channel
            send(self.options, payloads(self.options, rows, (query, batch, partition)))
            return Written(query, batch, run, None)
        stage = Stage(
            query=query, batch=batch, run=run, partition=partition, attempt=int.from_bytes(secrets.token_bytes(8)) or 1
        )
        counted = _Counted(blocks(self.options, rows))
        staged = sending.stage(self.options, stage, counted)
        for _ in rows:  # a duplicate is not sent, but Spark counts its rows
            pass
        if not staged.duplicate and staged.rows != counted.rows:
            raise sending.WriteFailed(f"{self.options.target} staged {staged.rows} rows of {counted.rows}")
        return Written(query, batch, run, Part(partition, stage.attempt, staged.rows or 1))

    def _commit(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        parts = sorted(message.part for message in written if message.part is not None)
        if parts:
            first = written[0]
            commit = Commit(query=first.query, batch=first.batch, run=first.run, parts=tuple(parts))
            sending.commit(self.options, commit)

    def _abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        for message in messages:
            if isinstance(message, Written):
                if self.options.delivery == EXACTLY_ONCE:
                    sending.abort(self.options, Abort(query=message.query, batch=message.batch, run=message.run))
                return


class BatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a table once."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._run = secrets.token_bytes(16)
        self._query = self._run if options.write_id is None else _id(options.write_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task."""
        return self._write(iterator, self._query, 0, self._run)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the staged rows."""
        self._abort([*messages, Written(self._query, 0, self._run, None)])


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options.write_id is not None:
            raise OptionError("writeId is not possible for a stream, which is identified by its checkpoint")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task of a micro-batch."""
        context = TaskContext.get()
        found = [context.getLocalProperty(name) if context is not None else None for name in (_QUERY, _BATCH, _RUN)]
        query, batch, run = found
        if query is None or batch is None or run is None:
            raise Invalid(f"Spark did not pass {_QUERY}, {_BATCH} and {_RUN} to the task", rule="batch")
        return self._write(iterator, _id(query), int(batch), _id(run))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Make the rows of a micro-batch visible."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Drop the staged rows of a micro-batch."""
        self._abort(messages)


class _Counted:
    """Blocks, and the number of rows in those that were taken."""

    def __init__(self, counted: Iterator[tuple[int, bytes]]) -> None:
        self._counted = counted
        self.rows = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        rows, block = next(self._counted)
        self.rows += rows
        return block


def _first_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """Return the batches from the first one that has rows; None if there is none."""
    for batch in batches:
        if len(batch):
            return chain([batch], batches)
    return None


def _id(text: str) -> bytes:
    """Return 16 bytes for a UUID, or for any other text."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return hashlib.sha256(text.encode()).digest()[:16]
