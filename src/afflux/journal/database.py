"""Write rows to the tables of a journal and read checked blocks, each change in one durable transaction.

The caller's lock protects the writer's connection, a lock of this class the reader's: in WAL mode a reader never
waits for the writer's disk. The WAL is copied to the database when it has grown to ``WAL_BYTES``; because overlapping
readers can delay that, all readers are blocked once when it has four times that size.
"""

from __future__ import annotations

import sqlite3
import struct
import threading
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from afflux.files import sqlite_code
from afflux.journal import files
from afflux.journal.blocks import Block, checksum
from afflux.journal.errors import JournalDamaged, JournalError

__all__ = ["WAL_BYTES", "Database", "Facts", "Reader", "Row"]

WAL_BYTES = 0x800000
"Bytes of WAL that are written before they are copied to the database."

Row = tuple[int, int, int, int, int, int | None, bytes]
"First offset, count, time, bytes charged, checksum, bytes of metadata, body."

_RETRYABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"Results after which a transaction may be repeated."
_STATE = struct.Struct("<qqqqqq")
_COLUMNS = "first, count, time_us, bytes, crc, metadata_bytes, body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The row of ``state``, as of the last transaction."""

    epoch: int
    "As in :class:`Journal`."
    key: bytes
    "As in :class:`Journal`."
    sealed: bool = False
    "True if no item will follow."
    first: int = 0
    "The lowest stored offset."
    head: int = 0
    "The next offset to be written."
    size: int = 0
    "Bytes charged for all blocks."
    time_us: int = 0
    "The time of the last block."

    def row(self) -> tuple[object, ...]:
        """Return the columns, with a checksum as the last."""
        numbers = (self.epoch, self.sealed, self.first, self.head, self.size, self.time_us)
        crc = zlib.crc32(self.key, zlib.crc32(_STATE.pack(*numbers)))
        return self.epoch, self.key, *map(int, numbers[1:]), crc


@dataclass(frozen=True, slots=True)
class Reader:
    """The one reader whose acknowledgements trim a journal."""

    name: str
    "The name that its operator chose."
    owner: int
    "A random number, 1 to 2^63 - 1, that the reader stores with its position: two readers of one name differ in it."

    def row(self) -> tuple[str, int, int]:
        """Return the columns, with a checksum as the last."""
        return self.name, self.owner, zlib.crc32(self.name.encode(), zlib.crc32(self.owner.to_bytes(8, "little")))


class Database:
    """The connections to one journal's file, which exists and is locked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        "The reason why the journal cannot be written: a failure of the disk, other than a full disk."
        self._marked = False
        self._reading = threading.Lock()
        self._writer = _connect(path)
        self._reader = _connect(path)
        try:
            self._reader.execute("PRAGMA query_only = 1")
            self.facts = self._load()
            "The row of ``state``, as of the last transaction."
            self.reader = self._load_reader()
            "The registered reader, or None."
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections. Committed items are then in the database, or in its WAL if the copy failed."""
        files.mark_closed(self.path)
        with self._reading:
            self._reader.close()
            with suppress(sqlite3.Error):
                self._writer.close()  # closing the last connection copies and removes the WAL
        if files.wal_bytes(self.path):
            files.mark_opened(self.path)

    # Writing: the caller holds a lock.

    def insert(self, rows: Sequence[Row]) -> int:
        """Add blocks, in order; return the new head."""
        head = rows[-1][0] + rows[-1][1]
        size = self.facts.size + sum(row[3] for row in rows)
        with self._transaction(replace(self.facts, head=head, size=size, time_us=rows[-1][2])) as writer:
            writer.executemany(f"INSERT INTO block ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        if files.wal_bytes(self.path) > 4 * WAL_BYTES:
            with self._reading, suppress(sqlite3.Error):
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        return head

    def boundary(self, offset: int) -> int:
        """Return the first offset of the block with ``offset``, which is stored."""
        with files.KIND.errors(self.path):
            row = self._writer.execute("SELECT max(first) FROM block WHERE first <= ?", (offset,)).fetchone()
        if row[0] is None:
            raise self._missing(offset)
        return int(row[0])

    def delete_below(self, boundary: int) -> int:
        """Delete the blocks that begin below ``boundary``; return the bytes charged for them."""
        with files.KIND.errors(self.path):
            row = self._writer.execute("SELECT total(bytes) FROM block WHERE first < ?", (boundary,)).fetchone()
        freed = int(row[0])
        with self._transaction(replace(self.facts, first=boundary, size=self.facts.size - freed)) as writer:
            writer.execute("DELETE FROM block WHERE first < ?", (boundary,))
        return freed

    def register(self, reader: Reader | None) -> None:
        """Store the reader whose acknowledgements trim; None for no reader."""
        migrating = self._version() == 1
        with self._transaction(self.facts) as writer:
            if migrating:
                writer.execute(files.READER_SCHEMA)
                writer.execute(f"PRAGMA user_version = {files.SCHEMA_VERSION}")
            writer.execute("DELETE FROM reader")
            if reader is not None:
                writer.execute("INSERT INTO reader VALUES (0, ?, ?, ?)", reader.row())
        self.reader = reader
        if migrating:  # the version is in the header of the file, which an older afflux reads
            with self._reading, suppress(sqlite3.Error):
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def _version(self) -> int:
        with files.KIND.errors(self.path):
            return int(self._writer.execute("PRAGMA user_version").fetchone()[0])

    def seal(self) -> None:
        """Record that no item will follow."""
        with self._transaction(replace(self.facts, sealed=True)):
            pass

    @contextmanager
    def _transaction(self, facts: Facts) -> Iterator[sqlite3.Connection]:
        """Run one durable transaction that also stores ``facts``."""
        with files.KIND.errors(self.path):
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute(
                    "UPDATE state SET epoch = ?, key = ?, sealed = ?, first = ?, head = ?, bytes = ?, "
                    "time_us = ?, crc = ?",
                    facts.row(),
                )
                self._writer.execute("COMMIT")
            except BaseException as error:
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error) and sqlite_code(error) not in _RETRYABLE:
                    self.failure = f"the disk failed ({error}); check the disk, then open it again"
                raise
            self.facts = facts
            if not self._marked:
                files.mark_opened(self.path)
                self._marked = True

    # Reading: from any thread.

    def _load(self) -> Facts:
        """Read the state, and check the first and the last block against it, because a crash affects the ends."""
        with files.KIND.errors(self.path):
            row = self._writer.execute("SELECT * FROM state").fetchone()
            ends = self._writer.execute("SELECT min(first), max(first) FROM block").fetchone()
        try:
            _, epoch, key, sealed, first, head, size, time_us, _ = row
            facts = Facts(
                epoch=epoch, key=key, sealed=bool(sealed), first=first, head=head, size=size,
                time_us=time_us,
            )  # fmt: skip
            whole = facts.row() == row[1:]
        except (TypeError, struct.error):  # SQLite stores any type in any column
            whole = False
        if not whole:
            raise JournalDamaged(self.path, f"the checksum of its state is wrong; {files.RESTORE}")
        lowest, last = (facts.head, None) if ends[0] is None else ends
        if lowest != facts.first:
            raise self._missing(facts.first)
        if last is not None and [block.end for block in self.blocks(last, last + 1)] != [facts.head]:
            raise self._missing(facts.head - 1)
        return facts

    def _load_reader(self) -> Reader | None:
        if self._version() == 1:
            return None
        with files.KIND.errors(self.path):
            row = self._writer.execute("SELECT name, owner, crc FROM reader").fetchone()
        if row is None:
            return None
        with suppress(AttributeError, TypeError, OverflowError):  # SQLite stores any type in any column
            if (found := Reader(*row[:2])).row() == row:
                return found
        raise JournalDamaged(self.path, f"the checksum of its reader is wrong; {files.RESTORE}")

    def blocks(self, offset: int, end: int) -> Generator[Block, None, None]:
        """Yield the stored blocks with the offsets from ``offset`` to before ``end``, uncut, each after its check.

        Other readers wait until the generator is exhausted or closed.

        Raises:
            JournalDamaged: a block is missing or its checksum is wrong.
        """
        query = (
            f"SELECT {_COLUMNS} FROM block WHERE first >= "
            "coalesce((SELECT max(first) FROM block WHERE first <= ?), 0) AND first < ? ORDER BY first"
        )
        expected = offset
        with self._reading, files.KIND.errors(self.path), closing(self._reader.execute(query, (offset, end))) as rows:
            while expected < end:
                row = rows.fetchone()
                block = None if row is None else self._checked(row)
                if block is None or not block.first <= expected < block.end:
                    raise self._missing(expected)
                yield block
                expected = block.end

    def _checked(self, row: Row) -> Block:
        first, count, time_us, _, crc, metadata_bytes, body = row
        with suppress(TypeError, struct.error):  # SQLite stores any type in any column
            if crc == checksum(first, count, time_us, metadata_bytes, body):
                return Block(first, count, time_us, metadata_bytes, body)
        raise JournalDamaged(self.path, f"the checksum of the block at offset {first} is wrong; {files.RESTORE}")

    def _missing(self, offset: int) -> JournalDamaged:
        return JournalDamaged(self.path, f"the block with offset {offset} is missing; {files.RESTORE}")

    def check_failure(self) -> None:
        """Raise JournalError if the disk has failed."""
        if self.failure is not None:
            raise JournalError(self.path, self.failure)


def _connect(path: Path) -> sqlite3.Connection:
    with files.KIND.errors(path):
        made = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
        try:
            made.execute("PRAGMA synchronous = FULL")
            made.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // files.PAGE_BYTES}")
            made.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        except BaseException:
            made.close()
            raise
    return made
