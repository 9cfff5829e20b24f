"""Raise typed errors for SQLite files: locked, damaged, without space, or written by another program.

The sessions file (``resume``) and the journal are kinds of file, each with its own subclasses of :class:`FileError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING

from afflux.core.errors import Error

if TYPE_CHECKING:
    import sqlite3

__all__ = ["DISK_FULL", "IN_USE", "FileError", "FileKind", "sqlite_code"]

DISK_FULL = "the disk is full; make room and try again"
"The reason of a write without room."
IN_USE = "another process or object has it open; close that, or use another file"
"The reason of a locked file."


class FileError(Error):
    """A file cannot be opened, read or written."""

    path: Path
    "The file."
    reason: str
    "The problem and its remedy, without the path, so that it may be sent to a peer."
    word = "file"
    "The reason word, which is also ``rule``."

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", rule=self.word)
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of SQLite file: its identification and its errors."""

    application_id: int
    "The id in the header of the database that distinguishes it from the files of other programs."
    schema_version: int
    "The newest version of its tables; older ones are read, too."
    failed: type[FileError]
    "Raised for errors without a type of their own."
    damaged: type[FileError]
    locked: type[FileError]
    no_space: type[FileError]
    damage: str
    "The text for a damaged file."
    remedy: str
    "The remedy for a damaged file."

    def check_header(self, path: Path, application_id: int, schema_version: int) -> None:
        """Check the numbers in the header of a database.

        Raises:
            FileError: the file belongs to another program or to a newer afflux.
        """
        if application_id != self.application_id:
            raise self.failed(path, "it is a database of another program; choose another path")
        if not 1 <= schema_version <= self.schema_version:
            text = f"its schema is version {schema_version}, this afflux reads {self.schema_version}; update afflux"
            raise self.failed(path, text)

    @contextmanager
    def errors(self, path: Path) -> Iterator[None]:
        """Convert errors of SQLite and of the operating system to errors with a remedy."""
        import sqlite3  # on use: every program imports the errors, few use a file

        try:
            yield
        except sqlite3.Error as error:
            code = sqlite_code(error)
            if code == sqlite3.SQLITE_FULL:
                raise self.no_space(path, DISK_FULL) from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, sqlite3.DataError):
                raise self.damaged(path, f"{self.damage} ({error}); {self.remedy}") from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self.locked(path, IN_USE) from error
            raise self.failed(path, f"SQLite failed ({error}); check the disk, then open it again") from error
        except OSError as error:
            if error.errno in (ENOSPC, EDQUOT):
                raise self.no_space(path, DISK_FULL) from error
            raise self.failed(path, f"{error.strerror or error}; check the directory and its permissions") from error


def sqlite_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for an error of Python's module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
