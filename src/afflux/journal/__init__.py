"""Replay streams from an append-only log on SQLite, or in a stream of NATS JetStream.

:class:`Journal` is the log, with a blocking API. :class:`Journalled` adds a cursor to the ``stream`` of any handler.
:class:`Backend` is what a journal needs of other storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
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

__getattr__, __dir__ = exports_of(
    __name__,
    {
        "Backend": "afflux.journal.contract",
        "Block": "afflux.journal.blocks",
        "BlockInfo": "afflux.journal.contract",
        "Heads": "afflux.journal.contract",
        "ItemTooLarge": "afflux.journal.errors",
        "Journal": "afflux.journal.store",
        "JournalAway": "afflux.journal.errors",
        "JournalDamaged": "afflux.journal.errors",
        "JournalError": "afflux.journal.errors",
        "JournalFull": "afflux.journal.errors",
        "JournalGone": "afflux.journal.errors",
        "JournalLocked": "afflux.journal.errors",
        "JournalNoSpace": "afflux.journal.errors",
        "JournalTaken": "afflux.journal.errors",
        "Journalled": "afflux.journal.serve",
        "Reader": "afflux.journal.contract",
        "ReaderConflict": "afflux.journal.errors",
        "Retention": "afflux.journal.retention",
        "Status": "afflux.journal.status",
        "inspect": "afflux.journal.status",
        "release": "afflux.journal.status",
    },
)
