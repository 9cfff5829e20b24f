"""The tables of a journal: rows in, checked blocks out, each change one durable transaction. No buffering here.

The writer's connection is used under a lock of the caller, the reader's under one of its own: in WAL mode a
reader never waits for the writer's disk. The WAL is copied to the database when it has grown to ``WAL_BYTES``;
readers that overlap all the time could keep it growing, so at four times that they are held up for once.
"""

from __future__ import annotations

import sqlite3
import struct
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from afflux.journal import files
from afflux.journal.blocks import Block, checksum
from afflux.journal.errors import JournalDamaged, JournalError

__all__ = ["WAL_BYTES", "Database", "Facts", "Row"]

WAL_BYTES = 0x800000
"How much WAL is written before it is copied to the database."

Row = tuple[int, int, int, int, int, int | None, bytes]
"First offset, count, time, bytes charged, checksum, bytes of metadata, body."

_COLUMNS = "first, count, time_us, bytes, crc, metadata_bytes, body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a journal knew when it was closed, or when its process died."""

    epoch: int
    "As in :class:`Journal`."
    key: bytes
    "As in :class:`Journal`."
    opened: bool
    "True when it was never closed."
    sealed: bool
    "True when no item will follow."
    first: int
    "The lowest offset that is there."
    head: int
    "The next offset to be written."
    size: int
    "Bytes charged for all blocks."
    time_us: int
    "Of the last block."


class Database:
    """The connections to one journal's file, which exists and is locked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        "Why nothing more can be written: the disk failed, other than by being full."
        self._reading = threading.Lock()
        self._writer = _connect(path)
        try:
            self._reader = _connect(path)
            self._reader.execute("PRAGMA query_only = 1")
        except BaseException:
            self._writer.close()
            raise

    def close(self, *, clean: bool) -> None:
        """Close; ``clean`` says that all is written, so the next one to open it can expect the file to be whole."""
        try:
            if clean and self.failure is None:
                with self._transaction() as writer:
                    writer.execute("UPDATE state SET opened = 0")
        finally:
            with self._reading:
                self._reader.close()
            with suppress(sqlite3.Error):  # closing checkpoints; what it can't copy stays in the WAL
                self._writer.close()

    # Writing: the caller holds a lock.

    def mark_opened(self) -> None:
        """Note in the main file that the journal is open, before anything is written."""
        with files.translated(self.path):
            self._writer.execute("UPDATE state SET opened = 1")
            self._writer.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    def insert(self, rows: Sequence[Row]) -> int:
        """Add blocks, in order; return the new head."""
        head = rows[-1][0] + rows[-1][1]
        with self._transaction() as writer:
            writer.executemany(f"INSERT INTO block ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            writer.execute(
                "UPDATE state SET head = ?, bytes = bytes + ?, time_us = ?",
                (head, sum(row[3] for row in rows), rows[-1][2]),
            )
        if files.wal_bytes(self.path) > 4 * WAL_BYTES:
            with self._reading, suppress(sqlite3.Error):
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        return head

    def boundary(self, offset: int) -> int | None:
        """The first offset of the block that holds ``offset``."""
        with files.translated(self.path):
            row = self._writer.execute("SELECT max(first) FROM block WHERE first <= ?", (offset,)).fetchone()
        return None if row[0] is None else int(row[0])

    def delete_below(self, boundary: int) -> int:
        """Delete the blocks that begin below ``boundary``; return the bytes they were charged."""
        with self._transaction() as writer:
            freed = int(writer.execute("SELECT total(bytes) FROM block WHERE first < ?", (boundary,)).fetchone()[0])
            writer.execute("DELETE FROM block WHERE first < ?", (boundary,))
            writer.execute("UPDATE state SET bytes = bytes - ?", (freed,))
        return freed

    def seal(self) -> None:
        """Note that no item will follow."""
        with self._transaction() as writer:
            writer.execute("UPDATE state SET sealed = 1")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with files.translated(self.path):
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException as error:
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error) and files.sqlite_code(error) != sqlite3.SQLITE_FULL:
                    self.failure = f"its disk failed ({error}); check the disk, then open it again"
                raise

    # Reading: from any thread.

    def facts(self) -> Facts:
        """Read the state, and check the last block against it: whatever happens to a process happens there.

        Raises:
            JournalDamaged: they do not fit together.
        """
        with files.translated(self.path):
            row = self._writer.execute(
                "SELECT epoch, key, opened, sealed, head, bytes, time_us, (SELECT min(first) FROM block) FROM state"
            ).fetchone()
        if row is None:
            raise JournalDamaged(self.path, f"its state is missing; {files.RESTORE}")
        epoch, key, opened, sealed, head, size, time_us, first = row
        if first is not None:
            last = self.boundary((1 << 63) - 1) or first
            ends = [block.end for block in self.blocks(last, max(head, last + 1))]
            if ends != [head]:
                raise JournalDamaged(self.path, f"its last block ends at {ends[-1]}, not at {head}; {files.RESTORE}")
        return Facts(
            epoch=epoch, key=key, opened=bool(opened), sealed=bool(sealed), first=head if first is None else first,
            head=head, size=size, time_us=time_us,
        )  # fmt: skip

    def blocks(self, offset: int, end: int) -> Generator[Block, None, None]:
        """The stored blocks that hold ``offset`` to before ``end``, uncut, each checked before it is handed out.

        Holds up other readers until it is exhausted or closed.

        Raises:
            JournalDamaged: a block is missing or its checksum is wrong.
        """
        query = (
            f"SELECT {_COLUMNS} FROM block WHERE first >= "
            "coalesce((SELECT max(first) FROM block WHERE first <= ?), 0) AND first < ? ORDER BY first"
        )
        expected = offset
        with self._reading, files.translated(self.path), closing(self._reader.execute(query, (offset, end))) as rows:
            while expected < end:
                row = rows.fetchone()
                block = None if row is None else self._checked(row)
                if block is None or not block.first <= expected < block.end:
                    raise JournalDamaged(self.path, f"the block with offset {expected} is missing; {files.RESTORE}")
                yield block
                expected = block.end

    def _checked(self, row: Row) -> Block:
        first, count, time_us, _, crc, metadata_bytes, body = row
        with suppress(TypeError, struct.error):  # SQLite keeps any type in any column
            if crc == checksum(first, count, time_us, metadata_bytes, body):
                return Block(first, count, time_us, metadata_bytes, body)
        raise JournalDamaged(self.path, f"the checksum of the block at offset {first} is wrong; {files.RESTORE}")

    def refuse_failed(self) -> None:
        """Raise JournalError when the disk has failed before."""
        if self.failure is not None:
            raise JournalError(self.path, self.failure)


def _connect(path: Path) -> sqlite3.Connection:
    with files.translated(path):
        made = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
        try:
            made.execute("PRAGMA synchronous = FULL")
            made.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // files.PAGE_BYTES}")
            made.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        except BaseException:
            made.close()
            raise
    return made
