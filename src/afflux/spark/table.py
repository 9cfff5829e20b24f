"""Store staged batches as Parquet files, and make each batch visible once, by renaming one directory.

Layout of a table's directory. Names that begin with ``_`` are ignored by Spark, pyarrow and others::

    query=<uuid>/batch=<number>/part-<partition>-<attempt>-<rows>-<schema>.parquet    visible
    _afflux/lock                                locked while a receiver has the table open
    _afflux/partial/…                           parts that are being received
    _afflux/staging/<query>/<run>/<batch>/…     complete parts that are not visible yet
    _afflux/committed/<query>                   the last committed batch and the last runs, as JSON
    _afflux/columns/<fingerprint>               columns of parts: an Arrow schema
    _afflux/table                               the fingerprint of the table's columns, after the first commit

Rules:

0. A directory is a new table or has ``_afflux``: one with other files is refused. Hidden files, whose names begin with
   a dot, are not counted, because readers skip them and file managers create them.
1. A part is complete when its file is synced and renamed into ``staging``. A partial file is deleted, at the latest
   when the table is opened again.
2. A commit deletes the parts that it does not name, and renames the directory of the batch to its visible name. At that
   moment the batch is committed. The file in ``committed`` follows, so that a batch is recognized after the user has
   deleted it. After a crash between the two, it is written from the visible name.
3. A batch that is not above the last committed one of its query is a duplicate: Spark commits batches in order.
4. A new run of a query replaces the previous one, whose staged parts are deleted, and which is refused from then on.
   Duplicates are dropped without this, by rule 3.
5. Staged parts are deleted with the commit of their batch or of a later one, with ABORT, with the next run, and after
   ``stale_s`` seconds.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from afflux.core.errors import ApplicationError, Error, Rejected
from afflux.core.limits import Limits
from afflux.files import IN_USE
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.staging import (
    NOT_STAGED,
    Abort,
    Commit,
    Committed,
    Part,
    Stage,
    Staged,
)
from afflux.spark.parts import PartWriter, stem
from afflux.spark.queries import NotATable, Queries, TableError, TableLocked, as_uuid, replace_file, sync_directory
from afflux.spark.schemas import mark_of, mismatch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STALE_S", "Table", "storage_error"]

STALE_S = 86_400.0
"Seconds after which staged parts of a query that has not returned are deleted."
BUFFER_BYTES = 0x1000_0000
"Bytes of rows that all parts together buffer before they are written: 256 MiB."
GROUP_BYTES = 0x80_0000
"Bytes of rows of a row group, if memory permits: 8 MiB."
LEAST_GROUP_BYTES = 0x4_0000
"The same with many parts: 256 KiB."
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Table:
    """A directory of committed batches. Its methods block, and any thread may call them.

    Args:
        directory: created if it is missing.
        limits: ``staged_bytes`` bounds the parts that are not committed, ``staging_parts`` those being received.
        stale_s: seconds after which staged parts are deleted.

    Raises:
        TableLocked: another receiver has the table open.
        NotATable: the directory has other files.
        TableError: the directory cannot be used.
    """

    def __init__(self, directory: str | Path, *, limits: Limits | None = None, stale_s: float = STALE_S) -> None:
        self.directory = Path(directory)
        self.limits = limits if limits is not None else Limits.server()
        self._own = self.directory / "_afflux"
        self._stale_s = stale_s
        self._mutex = threading.Lock()
        self._writers: set[PartWriter] = set()
        self._closed = False
        self.staged_bytes = 0
        "Bytes of parts that are not committed, complete or not."
        with self._errors():
            self._check_files()
            for name in ("partial", "staging", "committed", "columns"):
                (self._own / name).mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self._own / "lock", self.directory)
            shutil.rmtree(self._own / "partial")
            (self._own / "partial").mkdir()
            self._schema = self._table_schema()
            self._queries = Queries(self.directory, self._own, self._drop)
            self._sweep()

    def close(self) -> None:
        """Drop the parts that are being received, and unlock the table. Idempotent."""
        with self._mutex:  # after this, another receiver may have the table
            self._closed = True
        for writer in list(self._writers):
            writer.discard()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stage(self, stage: Stage) -> PartWriter | None:
        """Begin a part; None if the batch is a duplicate.

        Raises:
            ApplicationError: a later run of the query has begun (RUN_SUPERSEDED).
            Rejected: too many parts are being received.
        """
        with self._mutex, self._errors():
            if stage.batch <= self._queries.enter(stage.query, stage.run).last:
                return None
            if len(self._writers) >= self.limits.staging_parts:
                raise Rejected(
                    f"too-many-parts: {len(self._writers)} are being received",
                    code=Code.REJECTED,
                    rule="too-many-parts",
                )
            writer = PartWriter(self, stage, self._own / "partial" / uuid.uuid4().hex)
            self._writers.add(writer)
            return writer

    def commit(self, commit: Commit) -> Committed:
        """Make a batch visible, durably. Repeating it has no effect.

        Raises:
            ApplicationError: a part is not staged (NOT_STAGED), its columns are not those of the table
                (SCHEMA_MISMATCH), or a later run of the query has begun (RUN_SUPERSEDED).
            Rejected: the disk is full, or the table was closed.
            TableError: the table cannot be written.
        """
        with self._mutex, self._errors():
            if self._closed:
                raise Rejected("the receiver is closing", code=Code.REJECTED)
            query = self._queries.enter(commit.query, commit.run)
            if commit.batch <= query.last:
                return Committed(rows=0, duplicate=True)
            staged = self._queries.staged(commit.query, commit.run) / str(commit.batch)
            chosen = self._chosen(commit, staged)
            if chosen:
                self._check_parts(chosen)
                self._publish(staged, set(chosen), self._queries.visible(commit.query) / f"batch={commit.batch}")
            query.last = commit.batch
            self._queries.note(commit.query, query)
            for old in self._queries.staged(commit.query, commit.run).glob("*"):
                if int(old.name) <= commit.batch:
                    self._drop(old)
            return Committed(rows=sum(part.rows for part in commit.parts))

    def abort(self, abort: Abort) -> None:
        """Drop what a run has staged for a batch.

        Raises:
            ApplicationError: a later run of the query has begun (RUN_SUPERSEDED).
        """
        with self._mutex, self._errors():
            self._queries.enter(abort.query, abort.run)
            for writer in [one for one in self._writers if _same_batch(one.stage, abort)]:
                writer.refused = "the batch was aborted"
            self._drop(self._queries.staged(abort.query, abort.run) / str(abort.batch))
            self._sweep()

    # -- used by parts ------------------------------------------------------------------------------------------

    def group_bytes(self) -> int:
        """Return the bytes of rows that a part may buffer."""
        return max(LEAST_GROUP_BYTES, min(GROUP_BYTES, BUFFER_BYTES // max(1, len(self._writers))))

    def reserve(self, size: int) -> None:
        """Count bytes of a part.

        Raises:
            Rejected: ``staged_bytes`` is reached.
        """
        with self._mutex:
            if self.staged_bytes + size > self.limits.staged_bytes:
                text = f"sink-full: {self.staged_bytes:,} bytes are staged; at most {self.limits.staged_bytes:,}"
                raise Rejected(text, code=Code.REJECTED, rule="sink-full")
            self.staged_bytes += size

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse rows with other columns than those of the table.

        Raises:
            ApplicationError: SCHEMA_MISMATCH.
        """
        if self._schema is not None and not self._schema.equals(schema):
            raise mismatch(self._schema, schema)

    def complete(self, writer: PartWriter, schema: pa.Schema) -> Staged:
        """Move the synced file of a part to the staged ones, unless its batch is a duplicate by now."""
        with self._mutex, self._errors():
            self._writers.discard(writer)
            stage = writer.stage
            if stage.batch <= self._queries.enter(stage.query, stage.run).last:
                self._unlink(writer)
                return Staged(rows=writer.rows, duplicate=True)
            if writer.refused:
                self._unlink(writer)
                raise Rejected(writer.refused, code=Code.REJECTED)
            place = self._queries.staged(stage.query, stage.run) / str(stage.batch)
            place.mkdir(parents=True, exist_ok=True)
            mark, part = mark_of(schema), Part(stage.partition, stage.attempt, writer.rows)
            if not (self._own / "columns" / mark).exists():
                replace_file(self._own / "columns" / mark, schema.serialize().to_pybytes())
            writer.path.rename(place / f"{stem(part)}-{mark}.parquet")
            return Staged(rows=writer.rows)

    def dropped(self, writer: PartWriter) -> None:
        """Delete the file of a part that is not complete."""
        with self._mutex:
            self._writers.discard(writer)
            self._unlink(writer)

    # -- inside: the caller has the mutex -----------------------------------------------------------------------

    def _check_files(self) -> None:
        """Refuse a directory that has files, but not those of a receiver (rule 0)."""
        if (self._own / "committed").is_dir() or not self.directory.is_dir():
            return
        names = (entry.name for entry in os.scandir(self.directory) if not entry.name.startswith("."))
        if (found := min((name for name in names if name != self._own.name), default=None)) is not None:
            text = f"it has other files, such as {found!r}, and no table of a receiver; choose a new or an empty"
            raise NotATable(self.directory, f"{text} directory")

    def _unlink(self, writer: PartWriter) -> None:
        self.staged_bytes -= writer.size
        writer.size = 0
        with suppress(OSError):
            writer.path.unlink(missing_ok=True)

    def _chosen(self, commit: Commit, staged: Path) -> list[str]:
        """Return the names of the files of the parts."""
        there = {path.name.rpartition("-")[0]: path.name for path in staged.glob("part-*.parquet")}
        chosen = []
        for part in commit.parts:
            if (name := there.get(stem(part))) is None:
                text = (
                    f"partition {part.partition} of batch {commit.batch} of query {as_uuid(commit.query)} is not staged"
                )
                raise ApplicationError(NOT_STAGED, f"{text} with {part.rows} rows as attempt {part.attempt:x}")
            chosen.append(name)
        return chosen

    def _check_parts(self, names: list[str]) -> None:
        """Refuse parts with different columns. The columns of the first batch become those of the table."""
        marks = [name.removesuffix(".parquet").rpartition("-")[2] for name in names]
        wanted = self._schema if self._schema is not None else self._columns(marks[0])
        for mark in set(marks) - {mark_of(wanted)}:
            raise mismatch(wanted, self._columns(mark))
        if self._schema is None:
            replace_file(self._own / "table", marks[0].encode())
            self._schema = wanted

    def _table_schema(self) -> pa.Schema | None:
        """Return the columns of the table; None before the first commit."""
        path = self._own / "table"
        return self._columns(path.read_text()) if path.exists() else None

    def _columns(self, mark: str) -> pa.Schema:
        import pyarrow as pa

        return pa.ipc.read_schema(pa.py_buffer((self._own / "columns" / mark).read_bytes()))

    def _publish(self, staged: Path, names: set[str], target: Path) -> None:
        for path in staged.iterdir():
            if path.name not in names:
                self._drop(path)
        sync_directory(staged)
        size = _size(staged)
        if not target.parent.exists():
            target.parent.mkdir()
            sync_directory(self.directory)
        staged.rename(target)
        sync_directory(target.parent)
        self.staged_bytes -= size

    def _drop(self, path: Path) -> None:
        """Delete staged parts: a file or a directory."""
        size = _size(path)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        self.staged_bytes -= size - _size(path)

    def _sweep(self) -> None:
        """Delete stale staged parts, and count the others."""
        oldest = time.time() - self._stale_s
        for staged in self._own.glob("staging/*/*/*"):
            with suppress(FileNotFoundError):
                if staged.stat().st_mtime < oldest:
                    shutil.rmtree(staged, ignore_errors=True)
        for level in ("staging/*/*", "staging/*"):
            for parent in self._own.glob(level):
                with suppress(OSError):  # not empty
                    parent.rmdir()
        self.staged_bytes = sum(writer.size for writer in self._writers)
        self.staged_bytes += sum(_size(path) for path in self._own.glob("staging/*/*/*"))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the system; a full disk is worth a retry."""
        try:
            yield
        except OSError as error:
            raise storage_error(self.directory, error) from error


def storage_error(directory: Path, error: OSError) -> Error:
    """Return the error for a peer, without paths: a full disk is worth a retry."""
    if error.errno in _NO_SPACE:
        return Rejected("no-space: the disk of the table is full", code=Code.REJECTED, rule="no-space")
    return TableError(directory, f"it cannot be written: {error.strerror or error}")


def _same_batch(stage: Stage, abort: Abort) -> bool:
    return (stage.query, stage.batch, stage.run) == (abort.query, abort.batch, abort.run)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory; 0 without either."""
    try:
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        return sum(each.stat().st_size for each in files)
    except FileNotFoundError:
        return 0


def _lock(path: Path, directory: Path) -> int | None:
    """Lock a file until it is closed or the process ends; None where the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise TableLocked(directory, IN_USE.replace("file", "directory")) from None
    return handle
