"""Replay streams from an append-only log on SQLite.

:class:`Journal` is the log, with a blocking API. :class:`Journalled` adds a cursor to the ``stream`` of any handler.
"""

from __future__ import annotations

from afflux.journal.blocks import Block
from afflux.journal.database import Reader
from afflux.journal.errors import (
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalGone,
    JournalLocked,
    JournalNoSpace,
    ReaderConflict,
)
from afflux.journal.serve import Journalled
from afflux.journal.store import Journal

__all__ = [
    "Block",
    "Journal",
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalGone",
    "JournalLocked",
    "JournalNoSpace",
    "Journalled",
    "Reader",
    "ReaderConflict",
]
