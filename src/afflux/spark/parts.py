"""Receive the rows of one part as Arrow blocks, and write them to a Parquet file.

A block is an Arrow IPC stream: a schema and its record batches. The name of a complete file is
``part-<partition>-<attempt>-<rows>-<columns>.parquet``. ``columns`` is the fingerprint of the schema (schemas.py), so
that parts are compared without opening them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from afflux.core.errors import Invalid
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.staging import Part, Stage, Staged
from afflux.spark.ipc import MALFORMED, read_stream
from afflux.spark.schemas import mismatch, plain

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["Owner", "PartWriter", "stem"]


class Owner(Protocol):
    """The table of a part."""

    def group_bytes(self) -> int:
        """Return the bytes of rows that a part may buffer."""

    def reserve(self, size: int) -> None:
        """Count bytes of a part."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse rows with other columns than those of the table."""

    def complete(self, writer: PartWriter, schema: pa.Schema) -> Staged:
        """Move the synced file to the complete parts."""

    def dropped(self, writer: PartWriter) -> None:
        """Delete the file."""


class PartWriter:
    """One part. Its methods block; any thread may call them, one at a time, except ``discard``."""

    def __init__(self, owner: Owner, stage: Stage, path: Path) -> None:
        self.stage = stage
        self.path = path
        "The partial file, created with the first rows."
        self.rows = 0
        "Rows received."
        self.size = 0
        "Bytes of the file that are counted for the table."
        self.refused = ""
        "Why the part will not be completed; empty while it may be."
        self._owner = owner
        self._mutex = threading.Lock()
        self._schema: pa.Schema | None = None
        self._output: tuple[pq.ParquetWriter, pa.NativeFile] | None = None
        self._group: list[pa.RecordBatch] = []
        self._buffered = 0
        self._over = False

    def write(self, blocks: Iterable[bytes]) -> None:
        """Add rows.

        Raises:
            Invalid: a block is not an Arrow IPC stream.
            ApplicationError: the columns are not those of the blocks before, or of the table (SCHEMA_MISMATCH).
            Rejected: the table has no room.
            OSError: the file cannot be written.
        """
        with self._mutex:
            if self._over:
                return
            for block in blocks:
                self._add(block)
            if self._buffered >= self._owner.group_bytes():
                self._flush()

    def finish(self) -> Staged:
        """Sync the file and complete the part. Raises as :meth:`write`."""
        with self._mutex:
            if self._schema is None or not self.rows or self._over:
                raise Invalid("a part has at least one row", code=Code.INVALID)
            self._flush()
            self._close()
            self._reserve(self.path.stat().st_size)
            handle = os.open(self.path, os.O_RDWR)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            staged = self._owner.complete(self, self._schema)
            self._over = True
            return staged

    def discard(self) -> None:
        """Delete the file, unless the part is complete. Idempotent."""
        with self._mutex:
            if self._over:
                return
            self._over = True
            self._group.clear()
            try:
                self._close()
            finally:
                self._owner.dropped(self)

    def _add(self, block: bytes) -> None:
        import pyarrow as pa

        try:
            found, batches = read_stream(pa.py_buffer(block))
            schema = plain(found)
            for batch in batches:
                self._group.append(batch.cast(schema))
                self.rows += len(batch)
                self._buffered += batch.nbytes
        except (pa.ArrowException, *MALFORMED) as error:
            raise Invalid(f"a block is not an Arrow IPC stream of rows: {error}", code=Code.INVALID) from None
        if self._schema is None:
            self._owner.check_schema(schema)
            self._schema = schema
        elif not self._schema.equals(schema):
            raise mismatch(self._schema, schema)

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._output is None:
            file = pa.OSFile(str(self.path), "wb")
            self._output = pq.ParquetWriter(file, self._schema), file
        if self._group:
            writer, file = self._output
            rows = pa.Table.from_batches(self._group)
            writer.write_table(rows, row_group_size=max(1, len(rows)))
            self._group, self._buffered = [], 0
            self._reserve(file.tell())

    def _reserve(self, size: int) -> None:
        self._owner.reserve(size - self.size)
        self.size = size

    def _close(self) -> None:
        if self._output is not None:
            (writer, file), self._output = self._output, None
            with file:
                writer.close()


def stem(part: Part) -> str:
    """Return the name of the file of a part, without the fingerprint of its columns."""
    return f"part-{part.partition:05}-{part.attempt:016x}-{part.rows}"
