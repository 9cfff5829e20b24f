"""Define the errors of a journal. Each contains the file, the problem and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from afflux.core.errors import LimitExceeded
from afflux.core.limits import Limits
from afflux.files import FileError

__all__ = [
    "AnotherStream",
    "ItemTooLarge",
    "JournalAway",
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalGone",
    "JournalLocked",
    "JournalMissing",
    "JournalNoSpace",
    "JournalTaken",
    "ReaderConflict",
    "largest_item",
]


_POSITION_BYTES = 64
"Bytes of ``payload_bytes`` that an item leaves for its position on the wire."


def largest_item(limits: Limits) -> int:
    """Return the most bytes of an item, data and metadata, that a reader with the same limits can receive."""
    return max(0, limits.payload_bytes - _POSITION_BYTES)


class JournalError(FileError):
    """A journal cannot be opened, read or written.

    Raised itself for a file of another program, a schema of a newer afflux, a journal of another stream,
    an append to a sealed journal, and a journal used after ``close`` or after its disk failed.
    """

    word = "journal"


class AnotherStream(JournalError):
    """The journal has another key than the one that was given, so it contains another stream."""

    def __init__(self, path: Path, reason: str, stored: bytes) -> None:
        super().__init__(path, reason)
        self.stored = stored
        "The key of the journal."


class JournalDamaged(JournalError):
    """The file is truncated, or a block's checksum or order is wrong. It is never repaired by dropping items."""

    word = "journal-damaged"


class JournalLocked(JournalError):
    """Another process, or another object in this one, has the journal open."""

    word = "journal-locked"


class JournalFull(JournalError, LimitExceeded):
    """``journal_bytes`` is reached and nothing was appended. Trim acknowledged items, then append again."""

    word = "journal-full"

    @classmethod
    def of(cls, path: Path, limits: Limits) -> Self:
        """Return the error for a journal without room."""
        most = limits.journal_bytes
        return cls(path, f"journal_bytes={most} is reached; trim items to make room, or raise it")


class ItemTooLarge(JournalError, LimitExceeded):
    """An item is larger than readers with the same ``payload_bytes`` can receive. Nothing was appended."""

    word = "item-too-large"

    @classmethod
    def of(cls, path: Path, size: int, tail: int, limits: Limits, most: int) -> Self:
        """Return the error for an item of ``size`` bytes that was to be stored at ``tail``; ``most`` are possible."""
        if most < largest_item(limits):
            return cls(
                path,
                f"an item of {size} bytes was refused at offset {tail}: a message of its server has at most {most} "
                "(max_payload); send it in parts, or raise max_payload",
            )
        return cls(
            path,
            f"an item of {size} bytes was refused at offset {tail}: with payload_bytes={limits.payload_bytes}, an "
            f"item has at most {largest_item(limits)}; send it in parts, or raise payload_bytes here and in readers",
        )


class JournalNoSpace(JournalError):
    """The disk is full. Appended items stay in memory; call ``commit`` again later."""

    word = "journal-no-space"


class JournalAway(JournalError):
    """The servers of the journal have not answered for the time that their address permits. Open it again later."""

    word = "journal-away"


class JournalMissing(JournalError):
    """There is no such stream."""

    word = "journal-missing"


class JournalTaken(JournalError):
    """Another writer has appended to the journal since this object opened it."""

    word = "journal-taken"


class JournalGone(JournalError):
    """The requested offset was trimmed; the message contains the lowest one left."""

    word = "offset-gone"


class ReaderConflict(JournalError):
    """Another reader acknowledges the journal. ``afflux journal --release`` frees the name of a reader that is gone."""

    word = "reader-conflict"
