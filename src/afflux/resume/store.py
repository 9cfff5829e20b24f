"""Read and write a sessions file: SQLite in WAL mode, one transaction for each change. See record.py for its content.

1. One process has the file open, by SQLite's exclusive lock, which ends with the process.
2. The file contains tokens, so its mode is 0600.
3. ``synchronous = NORMAL``: committed changes survive the process. After a power loss the last transactions may be
   missing, but the file is intact; the positions then do not match, and the peer refuses the session.
4. Every row has a checksum: a session is restored exactly as it was written, or the file is refused.
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

from afflux.files import FileKind
from afflux.resume.errors import StoreDamaged, StoreError, StoreLocked, StoreNoSpace

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "Change", "Item", "Kind", "Saved", "Store"]

APPLICATION_ID = 0x41464C52
'"AFLR", in the header of the database.'
SCHEMA_VERSION = 1
"Version of the tables below and of their values; it changes with the layout."

_KIND = FileKind(
    application_id=APPLICATION_ID,
    schema_version=SCHEMA_VERSION,
    failed=StoreError,
    damaged=StoreDamaged,
    locked=StoreLocked,
    no_space=StoreNoSpace,
    damage="it is damaged or not a sessions file",
    remedy="remove the file, and its sessions are lost",
)
_PAGE_BYTES = 0x1000
_WAL_PAGES = 0x200000 // _PAGE_BYTES
"Pages of WAL that are written before they are copied to the database."

_SCHEMA = """
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,        -- "client" or "server": the side that wrote it
    address TEXT NOT NULL,     -- the server of a client; empty at a server
    seen REAL NOT NULL         -- when the session last had a transport, in seconds since 1970
);
CREATE TABLE part (            -- the state, in parts that change at different times: JSON, bytes as base64
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID;
CREATE TABLE block (           -- sent frames that may have to be sent again
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,    -- position of the first byte
    until INTEGER NOT NULL,    -- position after the last byte
    frames BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, first)
);
CREATE TABLE item (            -- items that have arrived and were not consumed
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
    """The changes of one session in one transaction."""

    seen: float
    "When the session last had a transport, in seconds since 1970."
    parts: dict[str, Any] = field(default_factory=dict)
    "Parts of the state that have changed."
    gone: list[str] = field(default_factory=list)
    "Parts to delete."
    blocks: list[tuple[int, int, bytes]] = field(default_factory=list)
    "Sent frames to add: first position, position after the last byte, frames."
    first: int | None = None
    "Delete frames before this position."
    items: list[Item] = field(default_factory=list)
    "Items that have arrived."
    taken: list[tuple[int, int]] = field(default_factory=list)
    "Stream, and the number of the first item that was not consumed."
    dropped: list[int] = field(default_factory=list)
    "Streams whose items are to be deleted."


@dataclass(slots=True, kw_only=True)
class Saved:
    """A session as stored."""

    key: int
    kind: str
    address: str
    seen: float
    parts: dict[str, Any] = field(default_factory=dict)
    blocks: list[tuple[int, bytes]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    "The items, ordered by stream and number."


class Store:
    """An open and locked sessions file.

    Raises:
        StoreLocked: another process or object has it open.
        StoreDamaged: the file is damaged.
        StoreError: the file belongs to another program or to a newer afflux, or cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with _KIND.errors(self.path):
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self.path.chmod(0o600)
            self._file: sqlite3.Connection | None = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        try:
            with _KIND.errors(self.path):
                self._prepare(self._file)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. No-op if it is closed."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(sqlite3.Error):
                file.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file is None

    # -- reading --------------------------------------------------------------------------------------------

    def sessions(self) -> list[Saved]:
        """Return all sessions, the most recently connected last.

        Raises:
            StoreDamaged: a checksum is wrong.
        """
        with _KIND.errors(self.path):
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
            raise StoreDamaged(self.path, f"a checksum is wrong; {_KIND.remedy}")

    # -- writing --------------------------------------------------------------------------------------------

    def save(self, key: int | None, kind: Kind, address: str, change: Change) -> int:
        """Write a change of a session, with the key None for a new one, and return its key.

        Raises:
            StoreError: nothing was written.
        """
        parts = [(name, _json_of(value)) for name, value in change.parts.items()]
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
        """Delete a session.

        Raises:
            StoreError: the session is still stored.
        """
        with self._transaction() as file:
            file.execute("DELETE FROM session WHERE id = ?", (key,))
            for table in ("part", "block", "item"):
                file.execute(f"DELETE FROM {table} WHERE session = ?", (key,))

    # -- inside ---------------------------------------------------------------------------------------------

    def _prepare(self, file: sqlite3.Connection) -> None:
        """Lock the file, check its header, and create the tables of a new file."""
        file.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        application, version, tables = (
            file.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if tables or application or version:
            _KIND.check_header(self.path, application, version)
        else:
            file.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        file.execute("PRAGMA journal_mode = WAL").fetchone()
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}").fetchone()
        file.execute("BEGIN IMMEDIATE")  # takes the exclusive lock, in WAL mode or not
        if not tables:
            for statement in _SCHEMA.split(";\n"):
                file.execute(statement)
            file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            file.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        file.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            raise StoreError(self.path, "the file is closed; open it again")
        return self._file

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _KIND.errors(self.path):
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


def _crc(*values: Any) -> int:
    """Return the CRC-32 of numbers, texts, bytes and None; types and boundaries count."""
    crc = 0
    for value in values:
        raw = value if isinstance(value, bytes) else repr(value).encode()
        crc = zlib.crc32(raw, zlib.crc32(b"%d " % len(raw), crc))
    return crc


def _json_of(value: Any) -> str:
    return json.dumps(value, default=_base64_of, separators=(",", ":"))


def _base64_of(value: Any) -> dict[str, str]:
    return {"base64": b64encode(value).decode()}


def _bytes_of(value: dict[str, Any]) -> Any:
    return b64decode(value["base64"]) if value.keys() == {"base64"} else value
