"""A journal's files: the lock, the birth, the checks before anything is believed. No items are read here.

A journal ``ticks.journal`` is up to five files:

- ``ticks.journal``      the SQLite database, in WAL mode;
- ``…-wal``, ``…-shm``   SQLite's own, while it is open or after a crash: they belong to the database, keep them
  together;
- ``ticks.journal.lock`` an empty database that whoever has the journal open keeps locked. SQLite's lock ends with
  the process, however that ends, and a forked child does not have it.
- ``ticks.journal.open`` is there from the first write on until it is closed. After a crash it says that there was
  a WAL: when that is gone, items went with it, and the journal is refused.

The database is made under the name ``….new`` and renamed when it is whole and on the disk, so a file with the
right name was once a whole journal: when it is empty or cut, something was lost, and it is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from afflux.journal.errors import JournalDamaged, JournalError, JournalLocked, JournalNoSpace

__all__ = [
    "APPLICATION_ID",
    "RESTORE",
    "SCHEMA_VERSION",
    "check_files",
    "create",
    "lock",
    "mark_closed",
    "mark_opened",
    "remove",
    "set_aside",
    "sqlite_code",
    "translated",
    "wal_bytes",
]

APPLICATION_ID = 0x41464C58
'"AFLX", in the header of the database: how our files are told from those of other programs.'
SCHEMA_VERSION = 1
"Of the tables below; another layout gets another number."
PAGE_BYTES = 0x4000
"SQLite's page: large blocks like large pages, lone items small ones."

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
RESTORE = "restore a copy, or open it with on_damage='new-epoch', which sets it aside and starts empty"
"What to do about damage."

_SCHEMA = """
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    epoch INTEGER NOT NULL,
    key BLOB NOT NULL,         -- which stream it is, compared at opening
    sealed INTEGER NOT NULL,   -- 1 when no item will follow
    first INTEGER NOT NULL,    -- the lowest offset that is there
    head INTEGER NOT NULL,     -- the next offset to be written
    bytes INTEGER NOT NULL,    -- what the blocks take, counted as limits count it
    time_us INTEGER NOT NULL,  -- of the last block, 0 when there never was one
    crc INTEGER NOT NULL       -- of all of this: database.py
);
CREATE TABLE block (
    first INTEGER PRIMARY KEY, -- offset of the first item
    count INTEGER NOT NULL,
    time_us INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    metadata_bytes INTEGER,    -- NULL when no item has metadata
    body BLOB NOT NULL         -- blocks.py
);
"""


def lock(path: Path) -> sqlite3.Connection:
    """Lock the journal at ``path`` until the connection is closed or the process ends.

    Raises:
        JournalLocked: somebody has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        held = _lock_once(path)
        try:
            _lock_once(path).close()  # two locks on one name: what we hold was removed meanwhile
        except JournalLocked:
            return held
        held.close()


def _lock_once(path: Path) -> sqlite3.Connection:
    held = sqlite3.connect(f"{path}.lock", isolation_level=None, timeout=0, check_same_thread=False)
    try:
        held.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        held.close()
        if sqlite_code(error) == sqlite3.SQLITE_BUSY:
            raise JournalLocked(path, "somebody else has it open; close that, or use another journal") from None
        raise JournalError(path, f"its .lock file can't be locked ({error}); remove that if nobody uses it") from error
    return held


def create(path: Path, state: Sequence[object]) -> None:
    """Make an empty journal at ``path``, whole and durable or not at all; ``state`` is its row. Hold the lock."""
    new = path.with_name(path.name + ".new")
    for leftover in (new, _beside(new, "-wal"), _beside(new, "-shm"), _beside(new, "-journal")):
        leftover.unlink(missing_ok=True)
    with translated(path):
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(new, isolation_level=None)) as made:
            made.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            made.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("PRAGMA synchronous = FULL")
            made.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            made.execute("INSERT INTO state VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?)", state)
        _sync(new)
        new.rename(path)
        _sync(path.parent)


def check_files(path: Path) -> bool:
    """Whether there is a journal at ``path`` (False: nothing at all). Hold the lock, have no connection.

    Raises:
        JournalDamaged: something was lost.
        JournalError: it is the file of another program, or of a newer afflux.
    """
    wal = _size(_beside(path, "-wal"))
    if not path.exists():
        if wal or _beside(path, ".open").exists():
            raise JournalDamaged(path, f"the database is gone, what lay beside it is there; {RESTORE}")
        return False
    with translated(path), path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise JournalDamaged(path, f"it does not start as a journal does; {RESTORE}")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise JournalError(path, "it is a database of another program; choose another path")
    version = int.from_bytes(header[60:64], "big")
    if version != SCHEMA_VERSION:
        raise JournalError(path, f"its schema is version {version}, this afflux reads {SCHEMA_VERSION}; update afflux")
    if not wal and _beside(path, ".open").exists():
        raise JournalDamaged(path, f"it was not closed and its -wal file is gone, and items with it; {RESTORE}")
    expected = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    if not wal and _size(path) < expected:
        raise JournalDamaged(path, f"it is cut: {_size(path)} bytes instead of {expected}; {RESTORE}")
    return True


def wal_bytes(path: Path) -> int:
    """How large the WAL is."""
    return _size(_beside(path, "-wal"))


def mark_opened(path: Path) -> None:
    """Note that there is a WAL from now on."""
    with translated(path):
        _beside(path, ".open").touch(0o600)
        _sync(path.parent)


def mark_closed(path: Path) -> None:
    """Note that the WAL may go: call it before SQLite's last connection is closed."""
    with translated(path):
        _beside(path, ".open").unlink(missing_ok=True)
        _sync(path.parent)


def remove(path: Path) -> None:
    """Delete a closed journal, its lock last. Hold the lock."""
    with translated(path):
        for suffix in ("", "-wal", "-shm", ".open", ".lock"):
            _beside(path, suffix).unlink(missing_ok=True)
        _sync(path.parent)


def set_aside(path: Path) -> Path:
    """Rename a damaged journal and what belongs to it to ``….damaged-N``; return the new name. Hold the lock."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    _beside(path, "-shm").unlink(missing_ok=True)
    for suffix in ("-wal", ""):
        with suppress(FileNotFoundError):
            _beside(path, suffix).rename(_beside(aside, suffix))
    _beside(path, ".open").unlink(missing_ok=True)
    _sync(path.parent)
    return aside


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system say into a JournalError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = sqlite_code(error)
        if code == sqlite3.SQLITE_FULL:
            raise JournalNoSpace(path, "the disk is full; make room and try again") from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, sqlite3.DataError):
            raise JournalDamaged(path, f"it is damaged ({error}); {RESTORE}") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise JournalLocked(path, f"another program uses the database ({error}); close that") from error
        raise JournalError(path, f"SQLite failed ({error}); check the disk, then open it again") from error
    except OSError as error:
        raise JournalError(path, f"{error.strerror or error}; check the directory and its permissions") from error


def sqlite_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 when the error comes from Python's module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    if os.name == "nt":  # directories can't be opened there; renames are journalled by NTFS
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
