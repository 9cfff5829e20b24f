"""Define the errors of a journal. Each contains the file, the problem and the remedy."""

from __future__ import annotations

from afflux.core.errors import LimitExceeded
from afflux.files import FileError

__all__ = [
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalGone",
    "JournalLocked",
    "JournalNoSpace",
    "ReaderConflict",
]


class JournalError(FileError):
    """A journal cannot be opened, read or written.

    Raised itself for a file of another program, a schema of a newer afflux, a journal of another stream,
    an append to a sealed journal, and a journal used after ``close`` or after its disk failed.
    """

    word = "journal"


class JournalDamaged(JournalError):
    """The file is truncated, or a block's checksum or order is wrong. It is never repaired by dropping items."""

    word = "journal-damaged"


class JournalLocked(JournalError):
    """Another process, or another object in this one, has the journal open."""

    word = "journal-locked"


class JournalFull(JournalError, LimitExceeded):
    """``journal_bytes`` is reached and nothing was appended. Trim acknowledged items, then append again."""

    word = "journal-full"


class JournalNoSpace(JournalError):
    """The disk is full. Appended items stay in memory; call ``commit`` again later."""

    word = "journal-no-space"


class JournalGone(JournalError):
    """The requested offset was trimmed; the message contains the lowest one left."""

    word = "offset-gone"


class ReaderConflict(JournalError):
    """Another reader acknowledges the journal. ``afflux journal --release`` frees the name of a reader that is gone."""

    word = "reader-conflict"
