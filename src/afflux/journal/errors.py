"""What can go wrong with a journal: each error says which file, what is wrong and what to do. Nothing else."""

from __future__ import annotations

from pathlib import Path

from afflux.core.errors import Error, LimitExceeded

__all__ = ["JournalDamaged", "JournalError", "JournalFull", "JournalGone", "JournalLocked", "JournalNoSpace"]


class JournalError(Error):
    """A journal can't be opened, read or written.

    Raised as it is for: a file of another program, a schema of a newer afflux, a journal of another stream,
    an append to a sealed journal, a journal used after ``close`` or after its disk failed.
    """

    path: Path
    "The journal's file."
    reason: str
    "What is wrong and what to do, without the path: fit to be told to a peer."

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", rule=self.word)
        self.path = path
        self.reason = reason

    word = "journal"
    "The reason word, which is ``rule`` as well."


class JournalDamaged(JournalError):
    """The file is truncated, or a block's checksum or order is wrong: it is never repaired by dropping items."""

    word = "journal-damaged"


class JournalLocked(JournalError):
    """Somebody else has the journal open: another process, or another object in this one."""

    word = "journal-locked"


class JournalFull(JournalError, LimitExceeded):
    """``journal_bytes`` is reached: nothing was appended. Trim acknowledged items, then append again."""

    word = "journal-full"


class JournalNoSpace(JournalError):
    """The disk is full. What was appended stays in memory, and ``commit`` may be tried again."""

    word = "journal-no-space"


class JournalGone(JournalError):
    """The offset asked for was trimmed: ``first`` is the lowest one left."""

    word = "offset-gone"
