"""A file of sessions: SQLite in WAL mode, each change one transaction. What a session is made of is record.py's.

1. One process has the file: SQLite's exclusive lock, which ends with the process, however that ends.
2. Tokens are in it: mode 0600.
3. ``synchronous = NORMAL``: what was committed survives the process. After a power loss the last transactions may be
   missing, and the file is whole; then the positions do not fit, and the peer refuses the session.
4. Every row has a checksum: a session is exactly what was written, or the file is refused.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from afflux.resume.errors import StoreDamaged, StoreError, StoreLocked, StoreNoSpace

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "Change", "Item", "Kind", "Saved", "Store"]

APPLICATION_ID = 0x41464C52
'"AFLR", in the header of the database: how our files are told from those of other programs.'
SCHEMA_VERSION = 1
"Of the tables below and of what they hold; another layout gets another number."

_REMEDY = "remove the file, and its sessions are lost"
_PAGE_BYTES = 0x1000
_WAL_PAGES = 0x200000 // _PAGE_BYTES
"How much WAL is written before it is copied to the database."

_SCHEMA = """
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,        -- "client" or "server": which side has written it
    address TEXT NOT NULL,     -- whom a client is connected to; empty at a server
    seen REAL NOT NULL         -- since when there may be no transport, in seconds since 1970
);
CREATE TABLE part (            -- the state, in parts that change at different times: JSON, bytes as base64
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID;
CREATE TABLE block (           -- frames that were sent and may have to be sent again
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,    -- position of the first byte
    until INTEGER NOT NULL,    -- position behind the last one
    frames BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, first)
);
CREATE TABLE item (            -- items that have come and were not taken
    session INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,   -- 0 for the first item of the stream
    data BLOB NOT NULL,
    metadata BLOB,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, stream, number)
);
"""

Kind = Literal["client", "server"]
Item = tuple[int, int, bytes, bytes | None]
"Stream, number, data, metadata."


@dataclass(slots=True, kw_only=True)
class Change:
    """What one transaction does to one session."""

    seen: float
    "Since when there may be no transport, in seconds since 1970."
    parts: dict[str, Any] = field(default_factory=dict)
    "Parts of the state that have changed."
    gone: list[str] = field(default_factory=list)
    "Parts that are there no longer."
    blocks: list[tuple[int, int, bytes]] = field(default_factory=list)
    "Frames that were sent: first position, the position behind, the frames."
    first: int | None = None
    "Frames before this position are wanted no longer."
    items: list[Item] = field(default_factory=list)
    "Items that have come."
    taken: list[tuple[int, int]] = field(default_factory=list)
    "Stream, and the number of the first item that was not taken."
    dropped: list[int] = field(default_factory=list)
    "Streams whose items are wanted no longer."


@dataclass(slots=True, kw_only=True)
class Saved:
    """One session, as it was written."""

    key: int
    kind: str
    address: str
    seen: float
    parts: dict[str, Any] = field(default_factory=dict)
    blocks: list[tuple[int, bytes]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    "In the order of streams and numbers."


class Store:
    """An open file of sessions, which nobody else can open meanwhile.

    Raises:
        StoreLocked: somebody has it.
        StoreDamaged: it is not whole.
        StoreError: it is the file of another program, or of a newer afflux, or can't be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self._translated():
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self.path.chmod(0o600)
            self._file: sqlite3.Connection | None = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        try:
            with self._translated():
                self._prepare(self._file)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close. What was committed stays. Twice does no harm."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(sqlite3.Error):
                file.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file is None

    # -- reading --------------------------------------------------------------------------------------------

    def sessions(self) -> list[Saved]:
        """All that are there, the one that was seen last at the end.

        Raises:
            StoreDamaged: a checksum is wrong.
        """
        with self._translated():
            file = self._open()
            found = [
                Saved(key=key, kind=kind, address=address, seen=seen)
                for key, kind, address, seen in file.execute(
                    "SELECT id, kind, address, seen FROM session ORDER BY seen, id"
                )
            ]
            for saved in found:
                self._read(file, saved)
        return found

    def _read(self, file: sqlite3.Connection, saved: Saved) -> None:
        key = (saved.key,)
        for name, text, crc in file.execute("SELECT name, value, crc FROM part WHERE session = ?", key):
            self._check(crc, name, text)
            saved.parts[name] = json.loads(text, object_hook=_bytes_of)
        rows = file.execute("SELECT first, until, frames, crc FROM block WHERE session = ? ORDER BY first", key)
        for first, until, frames, crc in rows:
            self._check(crc, first, until, frames)
            saved.blocks.append((first, frames))
        rows = file.execute(
            "SELECT stream, number, data, metadata, crc FROM item WHERE session = ? ORDER BY stream, number", key
        )
        for *item, crc in rows:
            self._check(crc, *item)
            saved.items.append((item[0], item[1], item[2], item[3]))

    def _check(self, crc: object, *values: Any) -> None:
        if crc != _crc(*values):
            raise StoreDamaged(self.path, f"a checksum is wrong; {_REMEDY}")

    # -- writing --------------------------------------------------------------------------------------------

    def save(self, key: int | None, kind: Kind, address: str, change: Change) -> int:
        """Write a change of a session; a new one has no key yet. Return its key.

        Raises:
            StoreError: nothing was written.
        """
        parts = [(name, _written(value)) for name, value in change.parts.items()]
        with self._transaction() as file:
            if key is None:
                made = file.execute(
                    "INSERT INTO session (kind, address, seen) VALUES (?, ?, ?)", (kind, address, change.seen)
                )
                key = int(made.lastrowid or 0)
            else:
                file.execute("UPDATE session SET seen = ? WHERE id = ?", (change.seen, key))
            file.executemany(
                "INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?)",
                [(key, name, text, _crc(name, text)) for name, text in parts],
            )
            file.executemany("DELETE FROM part WHERE session = ? AND name = ?", [(key, name) for name in change.gone])
            file.executemany(
                "INSERT INTO block VALUES (?, ?, ?, ?, ?)", [(key, *block, _crc(*block)) for block in change.blocks]
            )
            if change.first is not None:
                file.execute("DELETE FROM block WHERE session = ? AND until <= ?", (key, change.first))
            file.executemany(
                "DELETE FROM item WHERE session = ? AND stream = ?", [(key, stream) for stream in change.dropped]
            )
            file.executemany(
                "DELETE FROM item WHERE session = ? AND stream = ? AND number < ?",
                [(key, *taken) for taken in change.taken],
            )
            file.executemany(
                "INSERT INTO item VALUES (?, ?, ?, ?, ?, ?)", [(key, *item, _crc(*item)) for item in change.items]
            )
        return key

    def remove(self, key: int) -> None:
        """Forget a session.

        Raises:
            StoreError: it is still there.
        """
        with self._transaction() as file:
            file.execute("DELETE FROM session WHERE id = ?", (key,))
            for table in ("part", "block", "item"):
                file.execute(f"DELETE FROM {table} WHERE session = ?", (key,))

    # -- inside ---------------------------------------------------------------------------------------------

    def _prepare(self, file: sqlite3.Connection) -> None:
        """Lock it, look whether it is ours, make the tables of a new one."""
        file.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        application, version, tables = (
            file.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if tables or application or version:
            if application != APPLICATION_ID:
                raise StoreError(self.path, "it is a database of another program; choose another path")
            if version != SCHEMA_VERSION:
                text = f"its schema is version {version}, this afflux reads {SCHEMA_VERSION}; update afflux"
                raise StoreError(self.path, text)
        else:
            file.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        file.execute("PRAGMA journal_mode = WAL").fetchone()
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}").fetchone()
        file.execute("BEGIN IMMEDIATE")  # WAL or not: from here on nobody else has it
        if not tables:
            for statement in _SCHEMA.split(";\n"):
                file.execute(statement)
            file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            file.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        file.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            raise StoreError(self.path, "it was closed; open it again")
        return self._file

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            file = self._open()
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
                file.execute("COMMIT")
            except BaseException:
                if file.in_transaction:
                    with suppress(sqlite3.Error):
                        file.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what SQLite and the operating system say into a StoreError that says what to do."""
        path = self.path
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_FULL:
                raise StoreNoSpace(path, "the disk is full; make room and try again") from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, sqlite3.DataError):
                raise StoreDamaged(path, f"it is damaged, or no file of sessions ({error}); {_REMEDY}") from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreLocked(path, "somebody else has it open; close that, or use another file") from error
            raise StoreError(path, f"SQLite failed ({error}); check the disk, then open it again") from error
        except OSError as error:
            text = f"{error.strerror or error}; check the directory and its permissions"
            raise StoreError(path, text) from error


def _crc(*values: Any) -> int:
    """Of numbers, texts, bytes and None, each told from the other and from its neighbours."""
    crc = 0
    for value in values:
        raw = value if isinstance(value, bytes) else repr(value).encode()
        crc = zlib.crc32(raw, zlib.crc32(b"%d " % len(raw), crc))
    return crc


def _written(value: Any) -> str:
    return json.dumps(value, default=_text_of, separators=(",", ":"))


def _text_of(value: Any) -> dict[str, str]:
    """Bytes in JSON."""
    return {"base64": b64encode(value).decode()}


def _bytes_of(value: dict[str, Any]) -> Any:
    return b64decode(value["base64"]) if value.keys() == {"base64"} else value
