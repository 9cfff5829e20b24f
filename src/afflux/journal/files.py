"""Lock, create, check and remove the files of a journal.

A journal ``ticks.journal`` has up to six files:

- ``ticks.journal``      the SQLite database, in WAL mode;
- ``…-wal``, ``…-shm``   files of SQLite, while the journal is open or after a crash: they belong to the database, keep
  them together;
- ``ticks.journal.lock`` an empty database that stays locked while the journal is open. SQLite's lock ends with the
  process, and a forked child does not have it.
- ``ticks.journal.open`` exists from the first write until the journal is closed. After a crash it shows that there was
  a WAL: if the WAL is missing, items are lost, and the journal is refused. It contains ``journal_bytes`` as text.
- ``ticks.journal.reserve`` occupies room that trimming needs on a full disk.

The database is created under the name ``….new`` and renamed when it is complete and durable, so a file with the
right name was once a complete journal: if it is empty or truncated, data is lost, and it is refused.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from afflux.files import IN_USE, FileKind, sqlite_code
from afflux.journal.errors import JournalDamaged, JournalError, JournalLocked, JournalNoSpace

__all__ = [
    "APPLICATION_ID",
    "KIND",
    "RESTORE",
    "SCHEMA_VERSION",
    "TABLES",
    "check_files",
    "create",
    "drop_reserve",
    "is_tight",
    "keep_reserve",
    "lock",
    "mark_closed",
    "mark_opened",
    "marked",
    "remove",
    "set_aside",
    "wal_bytes",
]

APPLICATION_ID = 0x41464C58
'"AFLX", in the header of the database.'
SCHEMA_VERSION = 3
"""Version of the tables below. Version 1 has no table ``reader``, version 2 no table ``note``. Such a journal is read
and written as it is, and gets the version of a table that it needs, so that an older afflux cannot trim what a reader
needs, or append without the note."""
PAGE_BYTES = 0x4000
"SQLite's page size, a compromise between large blocks and single items."

RESERVE_BYTES = 0x200000
"Bytes of the reserve: more than one commit and one trim need."
TIGHT_BYTES = 0x2000000
"Free bytes of the disk below which the WAL is emptied after each commit, so that it never needs more than the reserve."

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
RESTORE = "restore a copy, or open it with on_damage='new-epoch', which sets it aside and starts empty"
"The remedy for damage."
KIND = FileKind(
    application_id=APPLICATION_ID,
    schema_version=SCHEMA_VERSION,
    failed=JournalError,
    damaged=JournalDamaged,
    locked=JournalLocked,
    no_space=JournalNoSpace,
    damage="it is damaged",
    remedy=RESTORE,
)

_SCHEMA = """
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    epoch INTEGER NOT NULL,
    key BLOB NOT NULL,         -- identifies the stream, compared at opening
    sealed INTEGER NOT NULL,   -- 1 if no item will follow
    first INTEGER NOT NULL,    -- the lowest stored offset
    head INTEGER NOT NULL,     -- the next offset to be written
    bytes INTEGER NOT NULL,    -- bytes charged for the blocks
    time_us INTEGER NOT NULL,  -- of the last block, 0 before the first
    crc INTEGER NOT NULL       -- of this row: see database.py
);
CREATE TABLE block (
    first INTEGER PRIMARY KEY, -- offset of the first item
    count INTEGER NOT NULL,
    time_us INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    metadata_bytes INTEGER,    -- NULL if no item has metadata
    body BLOB NOT NULL         -- see blocks.py
);
"""
_NOTE_SCHEMA = """
CREATE TABLE note (            -- no row, or the note of the journal's owner
    id INTEGER PRIMARY KEY CHECK (id = 0),
    text BLOB NOT NULL,
    crc INTEGER NOT NULL       -- of text
);
"""
_READER_SCHEMA = """
CREATE TABLE reader (          -- no row, or the one reader whose acknowledgements trim
    id INTEGER PRIMARY KEY CHECK (id = 0),
    name TEXT NOT NULL,
    owner INTEGER NOT NULL,    -- a random number from the reader's own storage
    crc INTEGER NOT NULL       -- of this row: see database.py
);
"""


TABLES = (_SCHEMA, _READER_SCHEMA, _NOTE_SCHEMA)
"The tables that each version has added, from version 1."


def lock(path: Path) -> sqlite3.Connection:
    """Lock the journal at ``path`` until the connection is closed or the process ends.

    Raises:
        JournalLocked: another process or object has it open.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        locked = _lock_once(path)
        try:
            _lock_once(path).close()  # a second lock succeeds only if the first file was removed meanwhile
        except JournalLocked:
            return locked
        locked.close()


def _lock_once(path: Path) -> sqlite3.Connection:
    locked = sqlite3.connect(f"{path}.lock", isolation_level=None, timeout=0, check_same_thread=False)
    try:
        locked.execute("PRAGMA journal_mode = MEMORY")  # a file would need room on a full disk
        locked.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        locked.close()
        if sqlite_code(error) == sqlite3.SQLITE_BUSY:
            raise JournalLocked(path, IN_USE) from None
        raise JournalError(path, f"its .lock file cannot be locked ({error}); remove it if it is not in use") from error
    return locked


def create(path: Path, state: Sequence[object]) -> None:
    """Create an empty journal at ``path``, complete and durable or not at all. ``state`` is its row. The caller has the
    lock."""
    new = path.with_name(path.name + ".new")
    for leftover in (new, _companion(new, "-wal"), _companion(new, "-shm"), _companion(new, "-journal")):
        leftover.unlink(missing_ok=True)
    with KIND.errors(path):
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(new, isolation_level=None)) as made:
            made.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            made.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("PRAGMA synchronous = FULL")
            made.executescript(f"BEGIN; {' '.join(TABLES)} COMMIT;")
            made.execute("INSERT INTO state VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?)", state)
        _sync(new)
        new.rename(path)
        _sync(path.parent)


def check_files(path: Path) -> bool:
    """Return whether there is a journal at ``path``. The caller has the lock and no connection.

    Raises:
        JournalDamaged: data is lost.
        JournalError: the file belongs to another program or to a newer afflux.
    """
    wal = _size(_companion(path, "-wal"))
    if not path.exists():
        if wal or _companion(path, ".open").exists():
            raise JournalDamaged(path, f"the database is missing, but its companion files exist; {RESTORE}")
        return False
    with KIND.errors(path), path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise JournalDamaged(path, f"its header is not that of a journal; {RESTORE}")
    KIND.check_header(path, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))
    if not wal and _companion(path, ".open").exists():
        raise JournalDamaged(path, f"it was not closed and its -wal file with the last items is missing; {RESTORE}")
    expected = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    if not wal and _size(path) < expected:
        raise JournalDamaged(path, f"it is truncated: {_size(path)} bytes instead of {expected}; {RESTORE}")
    return True


def wal_bytes(path: Path) -> int:
    """Return the size of the WAL."""
    return _size(_companion(path, "-wal"))


def mark_opened(path: Path, journal_bytes: int | None = None) -> None:
    """Record that there is a WAL from now on, and the limit of the journal for ``inspect``."""
    with KIND.errors(path):
        mark = _companion(path, ".open")
        mark.touch(0o600)
        if journal_bytes is not None:
            with suppress(OSError):  # the mark itself is what counts
                mark.write_text(f"{journal_bytes}\n", encoding="ascii")
        _sync(path.parent)


def marked(path: Path) -> tuple[bool, int | None]:
    """Return whether the journal is open (or was not closed), and its limit if it is known."""
    try:
        text = _companion(path, ".open").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return False, None
    return True, int(text) if text.isdigit() else None


def mark_closed(path: Path) -> None:
    """Record that the WAL may be missing: call it before SQLite's last connection is closed."""
    with KIND.errors(path):
        _companion(path, ".open").unlink(missing_ok=True)
        _sync(path.parent)


def keep_reserve(path: Path) -> bool:
    """Create the reserve, or a smaller one on a full disk, unless it exists; return whether it has its full size."""
    reserve = _companion(path, ".reserve")
    size = _size(reserve)
    if size == RESERVE_BYTES:
        return True
    if not hasattr(os, "posix_fallocate"):
        return False
    for wanted in (RESERVE_BYTES, RESERVE_BYTES // 4, RESERVE_BYTES // 16):
        if wanted <= size:
            break
        try:
            handle = os.open(reserve, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(handle, 0, wanted)
            except OSError:
                os.ftruncate(handle, size)
                continue
            finally:
                os.close(handle)
        except OSError:
            break
        return wanted == RESERVE_BYTES
    return False


def is_tight(path: Path) -> bool:
    """Return whether the disk has little room."""
    return shutil.disk_usage(path.parent).free < TIGHT_BYTES


def drop_reserve(path: Path) -> bool:
    """Delete the reserve; return whether there was one."""
    reserve = _companion(path, ".reserve")
    occupied = _size(reserve) > 0
    reserve.unlink(missing_ok=True)
    return occupied


def remove(path: Path) -> None:
    """Delete a closed journal, its lock last. The caller has the lock."""
    with KIND.errors(path):
        for suffix in ("", "-wal", "-shm", ".open", ".reserve", ".lock"):
            _companion(path, suffix).unlink(missing_ok=True)
        _sync(path.parent)


def set_aside(path: Path) -> None:
    """Rename the files of a damaged journal to ``….damaged-N``. The caller has the lock."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    _companion(path, "-shm").unlink(missing_ok=True)
    for suffix in ("-wal", ""):
        with suppress(FileNotFoundError):
            _companion(path, suffix).rename(_companion(aside, suffix))
    _companion(path, ".open").unlink(missing_ok=True)
    _sync(path.parent)


def _companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    if os.name == "nt":  # Windows cannot open directories; NTFS journals renames
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
