"""Replayable streams: an append-only log with cursors on SQLite, and the handler that serves it.

:class:`Journal` is the log, blocking; :class:`Journalled` gives any handler's ``stream`` a cursor. Nothing is
defined in this file.
"""

from __future__ import annotations

from afflux.journal.blocks import Block
from afflux.journal.errors import (
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalGone,
    JournalLocked,
    JournalNoSpace,
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
]
