"""Replay streams from an append-only log on SQLite, or in a stream of NATS JetStream.

:class:`Journal` is the log, with a blocking API. :class:`Journalled` adds a cursor to the ``stream`` of any handler.
:class:`Backend` is what a journal needs of other storage.
"""

from __future__ import annotations

from afflux.journal.blocks import Block
from afflux.journal.contract import Backend, BlockInfo, Heads, Reader
from afflux.journal.errors import (
    ItemTooLarge,
    JournalAway,
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalGone,
    JournalLocked,
    JournalNoSpace,
    JournalTaken,
    ReaderConflict,
)
from afflux.journal.retention import Retention
from afflux.journal.serve import Journalled
from afflux.journal.status import Status, inspect, release
from afflux.journal.store import Journal

__all__ = [
    "Backend",
    "Block",
    "BlockInfo",
    "Heads",
    "ItemTooLarge",
    "Journal",
    "JournalAway",
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalGone",
    "JournalLocked",
    "JournalNoSpace",
    "JournalTaken",
    "Journalled",
    "Reader",
    "ReaderConflict",
    "Retention",
    "Status",
    "inspect",
    "release",
]
