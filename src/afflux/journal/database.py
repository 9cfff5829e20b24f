"""Store the blocks of a journal in an SQLite database, each change in one durable transaction.

The caller's lock protects the writer's connection, a lock of this class the reader's: in WAL mode a reader never
waits for the writer's disk. The WAL is copied to the database when it has grown to ``WAL_BYTES``; because overlapping
readers can delay that, all readers are blocked once when it has four times that size.

A full disk: deleting needs room in the WAL, and emptying the WAL needs room in the database. A reserve file has it: it
is deleted when a trim finds no room, and created again afterwards. While the disk has little room, the WAL is emptied
after each commit, and a commit is refused that needs more than the database's free pages when there is no reserve.
"""

from __future__ import annotations

import secrets
import sqlite3
import struct
import threading
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from afflux.files import DISK_FULL
from afflux.journal import files
from afflux.journal.blocks import Block, block_header, needs_check
from afflux.journal.contract import BlockInfo, Heads, Reader
from afflux.journal.errors import AnotherStream, JournalDamaged, JournalError, JournalNoSpace

__all__ = ["WAL_BYTES", "OnDamage", "SqliteBackend"]

OnDamage = Literal["refuse", "new-epoch"]
"The action for a damaged journal: raise, or set its files aside and start an empty one with another epoch."

WAL_BYTES = 0x800000
"Bytes of WAL that are written before they are copied to the database."

_STEP = 16
"Blocks deleted at a time on a full disk."
_STATE = struct.Struct("<qqqqqq")
_COLUMNS = "first, count, time_us, bytes, crc, metadata_bytes, body"


def _state_row(heads: Heads) -> tuple[object, ...]:
    """Return the columns of ``state``, with a checksum as the last."""
    numbers = (heads.epoch, heads.sealed, heads.first, heads.head, heads.size, heads.time_us)
    crc = zlib.crc32(heads.key, zlib.crc32(_STATE.pack(*numbers)))
    return heads.epoch, heads.key, *map(int, numbers[1:]), crc


def _reader_row(reader: Reader) -> tuple[str, int, int]:
    """Return the columns of ``reader``, with a checksum as the last."""
    crc = zlib.crc32(reader.name.encode(), zlib.crc32(reader.owner.to_bytes(8, "little")))
    return reader.name, reader.owner, crc


class SqliteBackend:
    """A journal's file, locked; created if it is missing. See :class:`afflux.journal.contract.Backend`.

    Args:
        path: the file; :mod:`afflux.journal.files` describes its companion files.
        key: identifies the stream; stored in a new journal, compared with that of an existing one, unless it is None.
        on_damage: as in :class:`Journal`.
        epoch: the epoch of a new journal; chosen at random if None.
        journal_bytes: the limit of the journal, recorded for :func:`afflux.journal.inspect`.

    Raises:
        JournalLocked: another process or object has it open.
        JournalDamaged: data is lost; nothing was changed.
        JournalError: a file of another program, of a newer afflux, or of another stream; or the disk failed.
    """

    heads: Heads
    "The state as of the last transaction."
    most_bytes = 0x30000000
    "The largest block, in bytes: SQLite's blobs have at most 10^9."

    def __init__(
        self,
        path: Path,
        *,
        key: bytes | None = b"",
        on_damage: OnDamage = "refuse",
        epoch: int | None = None,
        journal_bytes: int | None = None,
    ) -> None:
        self.path = path
        self._journal_bytes = journal_bytes
        self.name = str(path)
        self._closed = False
        with files.KIND.errors(path):
            self._lock = files.lock(path)
        try:
            try:
                self._open(key, epoch, verify=on_damage == "new-epoch")
            except JournalDamaged:
                if on_damage == "refuse":
                    raise
                with files.KIND.errors(path):
                    files.set_aside(path)
                self._open(key, epoch, verify=False)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, key: bytes | None, epoch: int | None, *, verify: bool) -> None:
        if not files.check_files(self.path):
            heads = Heads(epoch=epoch or 1 + secrets.randbelow((1 << 63) - 1), key=key or b"")
            files.create(self.path, _state_row(heads))
        try:
            self._connect()
        except JournalDamaged:
            raise
        except JournalError:
            if not files.drop_reserve(self.path):
                raise
            self._connect()  # on a full disk SQLite finds no room for its -shm file
        try:
            if key is not None and self.heads.key != key:
                raise AnotherStream(self.path, "it contains another stream; choose another path", self.heads.key)
            if verify:
                for _ in self.read_blocks(self.heads.first, self.heads.head):
                    pass
        except BaseException:
            self._disconnect()
            raise
        files.keep_reserve(self.path)

    def _connect(self) -> None:
        self._marked = False
        self._reading = threading.Lock()
        self._writer = _connect(self.path)
        self._reader = _connect(self.path)
        try:
            self._reader.execute("PRAGMA query_only = 1")
            self.heads = replace(self._load(), **_load_rows(self._writer, self.path))
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """Close the connections. Stored items are then in the database, or in its WAL if the copy failed."""
        if not self._closed:
            self._closed = True
            try:
                self._disconnect()
                files.keep_reserve(self.path)
            finally:
                self._lock.close()

    def remove(self) -> None:
        """Close, and delete all files."""
        if not self._closed:
            self._closed = True
            try:
                self._disconnect()
                files.remove(self.path)
            finally:
                self._lock.close()

    def _disconnect(self) -> None:
        files.mark_closed(self.path)
        with self._reading:
            self._reader.close()
            with suppress(sqlite3.Error):
                self._writer.close()  # closing the last connection copies and removes the WAL
        if files.wal_bytes(self.path):
            with suppress(JournalNoSpace):
                files.mark_opened(self.path)

    # Writing: the caller holds a lock.

    def append(self, blocks: Sequence[Block]) -> None:
        """Store blocks."""
        head, last = self.heads.head, blocks[-1]
        if blocks[0].first != head:
            raise ValueError(f"a block at {blocks[0].first} cannot be appended at the head {head}")
        rows = [
            (each.first, each.stored, each.time_us, each.charge, each.crc, each.metadata_bytes, each.body)
            for each in blocks
        ]
        size = self.heads.size + sum(each.charge for each in blocks)
        with files.KIND.errors(self.path):
            tight = files.is_tight(self.path)
        if tight and not files.keep_reserve(self.path) and self._free_bytes() < sum(each.charge for each in blocks):
            raise JournalNoSpace(self.path, DISK_FULL)
        heads = replace(self.heads, head=last.end, size=size, time_us=last.time_us)
        try:
            self._insert(rows, heads)
        except JournalNoSpace:
            if self._free_bytes() < sum(each.charge for each in blocks):
                raise
            files.drop_reserve(self.path)  # the database has room, and only the WAL has not
            self._empty_wal()
            try:
                self._insert(rows, heads)
                self._empty_wal()
            finally:
                files.keep_reserve(self.path)
        if tight or files.wal_bytes(self.path) > 4 * WAL_BYTES:
            self._empty_wal()

    def _insert(self, rows: Sequence[tuple[object, ...]], heads: Heads) -> None:
        with self._transaction(heads) as writer:
            writer.executemany(f"INSERT INTO block ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _free_bytes(self) -> int:
        """Return the bytes of free pages, less some for the tree that contains the blocks."""
        with files.KIND.errors(self.path):
            return (int(self._writer.execute("PRAGMA freelist_count").fetchone()[0]) - 8) * files.PAGE_BYTES

    def trim(self, offset: int) -> None:
        """Delete blocks, on a full disk a few at a time, so that each needs little."""
        try:
            self._delete_below(offset)
        except JournalNoSpace:
            files.drop_reserve(self.path)
            for boundary in self._steps(offset):
                self._delete_below(boundary)
                self._empty_wal()
            files.keep_reserve(self.path)

    def _steps(self, offset: int) -> list[int]:
        with closing(self.index()) as blocks:
            ends = [block.end for block in takewhile(lambda block: block.first < offset, blocks)]
        return ends[_STEP - 1 : -1 : _STEP] + ends[-1:]

    def register(self, reader: Reader | None) -> None:
        """Store the reader."""
        row = None if reader is None else _reader_row(reader)
        self._replace("reader", row, replace(self.heads, reader=reader), since=2)

    def remember(self, note: bytes) -> None:
        """Store the note."""
        self._replace("note", (note, zlib.crc32(note)), replace(self.heads, note=note), since=3)

    def refresh(self) -> None:
        """No-op: no other process can change the file."""

    def _replace(self, table: str, row: tuple[object, ...] | None, heads: Heads, since: int) -> None:
        """Replace the row of a table of version ``since``; on a full disk with the room of the reserve."""
        try:
            self._replace_row(table, row, heads, since)
        except JournalNoSpace:
            files.drop_reserve(self.path)
            self._replace_row(table, row, heads, since)
            self._empty_wal()
            files.keep_reserve(self.path)

    def _delete_below(self, offset: int) -> None:
        with files.KIND.errors(self.path):
            row = self._writer.execute("SELECT total(bytes) FROM block WHERE first < ?", (offset,)).fetchone()
        with self._transaction(replace(self.heads, first=offset, size=self.heads.size - int(row[0]))) as writer:
            writer.execute("DELETE FROM block WHERE first < ?", (offset,))

    def _empty_wal(self) -> None:
        with self._reading, suppress(sqlite3.Error):
            self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def _replace_row(self, table: str, row: tuple[object, ...] | None, heads: Heads, since: int) -> None:
        missing = files.TABLES[_version(self._writer, self.path) : since]
        with self._transaction(heads) as writer:
            for schema in missing:
                writer.execute(schema)
            if missing:
                writer.execute(f"PRAGMA user_version = {since}")
            writer.execute(f"DELETE FROM {table}")
            if row is not None:
                writer.execute(f"INSERT INTO {table} VALUES (0{', ?' * len(row)})", row)
        if missing:  # the version is in the header of the file, which an older afflux reads
            self._empty_wal()

    def seal(self) -> None:
        """Record that no item will follow."""
        with self._transaction(replace(self.heads, sealed=True)):
            pass

    @contextmanager
    def _transaction(self, heads: Heads) -> Iterator[sqlite3.Connection]:
        """Run one durable transaction that also stores ``heads``."""
        with files.KIND.errors(self.path):
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute(
                    "UPDATE state SET epoch = ?, key = ?, sealed = ?, first = ?, head = ?, bytes = ?, "
                    "time_us = ?, crc = ?",
                    _state_row(heads),
                )
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer.execute("ROLLBACK")
                raise
            self.heads = heads
            if not self._marked:
                with suppress(JournalNoSpace):  # committed all the same
                    files.mark_opened(self.path, self._journal_bytes)
                    self._marked = True

    # Reading: from any thread.

    def _load(self) -> Heads:
        """Read the state, and check the first and the last block against it, because a crash affects the ends."""
        with files.KIND.errors(self.path):
            row = self._writer.execute("SELECT * FROM state").fetchone()
            ends = self._writer.execute("SELECT min(first), max(first) FROM block").fetchone()
        try:
            _, epoch, key, sealed, first, head, size, time_us, _ = row
            heads = Heads(
                epoch=epoch, key=key, sealed=bool(sealed), first=first, head=head, size=size,
                time_us=time_us,
            )  # fmt: skip
            whole = _state_row(heads) == row[1:]
        except (TypeError, struct.error):  # SQLite stores any type in any column
            whole = False
        if not whole:
            raise JournalDamaged(self.path, f"the checksum of its state is wrong; {files.RESTORE}")
        lowest, last = (heads.head, None) if ends[0] is None else ends
        if lowest != heads.first:
            raise self._missing(heads.first)
        if last is not None and [block.end for block in self.read_blocks(last, last + 1)] != [heads.head]:
            raise self._missing(heads.head - 1)
        return heads

    def read_blocks(self, start: int, stop: int, unchecked: int = 0) -> Generator[Block, None, None]:
        """Yield blocks. Other readers wait until the generator is exhausted or closed."""
        query = (
            f"SELECT {_COLUMNS} FROM block WHERE first >= "
            "coalesce((SELECT max(first) FROM block WHERE first <= ?), 0) AND first < ? ORDER BY first"
        )
        expected = start
        with self._reading, files.KIND.errors(self.path), closing(self._reader.execute(query, (start, stop))) as rows:
            while expected < stop:
                row = rows.fetchone()
                block = None if row is None else _block_of(row, self.path)
                if block is not None and needs_check(block, start, stop, unchecked) and not block.is_intact():
                    raise _damaged(self.path, block.first)
                if block is None or not block.first <= expected < block.end:
                    raise self._missing(expected)
                yield block
                expected = block.end

    def index(self) -> Generator[BlockInfo, None, None]:
        """Yield the blocks without their items. Other readers wait as for ``read_blocks``."""
        query = "SELECT first, first + count, time_us, bytes FROM block ORDER BY first"
        with self._reading, files.KIND.errors(self.path), closing(self._reader.execute(query)) as rows:
            for row in rows:
                yield BlockInfo(*row)

    def _missing(self, offset: int) -> JournalDamaged:
        return JournalDamaged(self.path, f"the block with offset {offset} is missing; {files.RESTORE}")


def _block_of(row: tuple[int, int, int, int, int, int | None, bytes], path: Path) -> Block:
    """Return the block in a row; its checksum is not compared."""
    first, count, time_us, _, crc, metadata_bytes, body = row
    with suppress(TypeError, struct.error):  # SQLite stores any type in any column
        block_header(first, count, time_us, metadata_bytes)
        if type(body) is bytes and type(crc) is int and 0 <= crc <= 0xFFFFFFFF:
            return Block(first, count, time_us, metadata_bytes, body, crc)
    raise _damaged(path, first)


def _damaged(path: Path, offset: int) -> JournalDamaged:
    return JournalDamaged(path, f"the checksum of the block at offset {offset} is wrong; {files.RESTORE}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    with files.KIND.errors(path):
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _load_rows(connection: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Return the reader and the note, as far as there are tables for them."""
    version = _version(connection, path)
    row = note = None
    with files.KIND.errors(path):
        if version >= 2:
            row = connection.execute("SELECT name, owner, crc FROM reader").fetchone()
        if version >= 3:
            note = connection.execute("SELECT text, crc FROM note").fetchone()
    found: dict[str, Any] = {}
    with suppress(AttributeError, TypeError, OverflowError):  # SQLite stores any type in any column
        if row is not None and _reader_row(reader := Reader(*row[:2])) == row:
            found["reader"] = reader
        if note is not None and zlib.crc32(note[0]) == note[1]:
            found["note"] = note[0]
    for name, stored in (("reader", row), ("note", note)):
        if stored is not None and name not in found:
            raise JournalDamaged(path, f"the checksum of its {name} is wrong; {files.RESTORE}")
    return found


def _connect(path: Path) -> sqlite3.Connection:
    with files.KIND.errors(path):
        made = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
        try:
            made.execute("PRAGMA synchronous = FULL")
            made.execute("PRAGMA secure_delete = 0")  # 1 in some builds: trimming would write all that it deletes
            made.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // files.PAGE_BYTES}")
            made.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        except BaseException:
            made.close()
            raise
    return made
