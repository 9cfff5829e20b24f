"""Remember durably which position of the remote stream the items of the journals come from.

One record, the *mark*, pairs a position of the remote with the offset of each shard that follows it. From there on the
items are contiguous, so the position to continue from is computed from what is stored: the mark changes at a gap, not
with each item. Crash safety rests on the order: the mark is durable before the first item that it describes is
appended, and it names only offsets that are durable already.

With one shard the remote is read again from the first item that is not stored. With more, items are distributed by
their key, and the remote is read again from the mark; the items of each shard that are stored already are skipped.

The mark is the note of the journal of the first shard, so it is stored where that journal is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from afflux.journal.errors import JournalDamaged, JournalError
from afflux.journal.files import KIND
from afflux.journal.store import Journal
from afflux.protocols.rsocket.gap import Gap, Place, gap_from

__all__ = ["Ledger", "Mark", "Start"]

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A position of the remote stream, and where the items from there on are stored."""

    remote: str
    "The address of the remote."
    journals: tuple[int, ...]
    "The epoch of each shard's journal."
    cursor: bool
    "Whether the remote has a cursor; otherwise ``place`` counts the items of a subscription, with epoch 0."
    place: Place
    "The position of the next item of the remote."
    at: tuple[int, ...]
    "For each shard, the offset of the next item."
    gap: Gap | None = None
    "The gap before it: the first item of each shard from ``at`` on records it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to continue."""

    place: Place
    "The position of the first item to read."
    skip: list[int] = field(default_factory=list)
    "For each shard, how many of its items to skip."


class Ledger:
    """The mark, as the note of a journal.

    Args:
        journal: the journal, that of the first shard.
        remote: the address of the remote stream.
        journals: the epoch of each shard's journal.
        moved: accept a mark of another address: the same stream has moved.
        former: the file in which earlier versions had the mark; ``adopt`` moves it to the journal.

    Raises:
        JournalDamaged: the mark cannot be read.
        JournalError: it belongs to the stream of another address.
    """

    def __init__(
        self,
        journal: Journal,
        remote: str,
        journals: tuple[int, ...],
        *,
        moved: bool = False,
        former: Path | None = None,
    ) -> None:
        self.path = journal.path
        self.remote = remote
        self.journals = journals
        self.mark: Mark | None = None
        "The mark; None before the first item."
        self._journal = journal
        self._former = former if former is not None and former.exists() else None
        written = journal.note
        if not written and self._former is not None:
            self.path = self._former
            with KIND.errors(self.path):
                written = self.path.read_bytes()
        mark = _parsed(self.path, written) if written else None
        if mark is None or mark.journals != journals:  # new journals, in place of deleted ones, have other epochs
            return
        if mark.remote != remote and not moved:
            text = f"it contains the stream of {mark.remote}; choose another directory, or add --moved if that stream "
            raise JournalError(self.path, f"{text}is at {remote} now")
        self.mark = mark

    def start(self, heads: list[int]) -> Start | None:
        """Return where to continue, given the head of each shard; None before the first item.

        Raises:
            JournalDamaged: a journal has fewer items than it had.
        """
        mark = self.mark
        if mark is None:
            return None
        stored = []
        for head, at in zip(heads, mark.at, strict=True):
            if head < at:
                raise JournalDamaged(
                    self.path, f"the journal ends at offset {head}, but it had {at}: it is an older copy"
                )
            stored.append(head - at - (mark.gap is not None and head > at))
        if len(heads) > 1:
            return Start(place=mark.place, skip=stored)
        return Start(place=Place(mark.place.epoch, mark.place.offset + stored[0]), skip=[0])

    def unrecorded(self, heads: list[int]) -> list[int]:
        """Return the shards in which the gap of the mark is not recorded yet."""
        mark = self.mark
        if mark is None or mark.gap is None:
            return []
        return [shard for shard, head in enumerate(heads) if head == mark.at[shard]]

    def save(self, *, cursor: bool, place: Place, at: list[int], gap: Gap | None) -> None:
        """Replace the mark, durably. ``at`` are durable heads.

        Raises:
            JournalNoSpace: the disk is full; the former mark is still there.
            JournalError: the disk failed.
        """
        remote, journals = self.remote, self.journals
        mark = Mark(remote=remote, journals=journals, cursor=cursor, place=place, at=tuple(at), gap=gap)
        if mark != self.mark:
            self._write(mark)

    def adopt(self) -> None:
        """Write the remote's address of today into the mark, and move that of an earlier version to the journal.

        Raises as ``save`` does.
        """
        if (mark := self.mark) is not None and (mark.remote != self.remote or not self._journal.note):
            self._write(replace(mark, remote=self.remote))
        if self._former is not None:
            with KIND.errors(self._former):
                self._former.unlink(missing_ok=True)
            self._former = None
        self.path = self._journal.path

    def _write(self, mark: Mark) -> None:
        self._journal.remember(json.dumps(_plain(mark), separators=(",", ":")).encode())
        self.mark = mark


def _plain(mark: Mark) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "remote": mark.remote,
        "journals": mark.journals,
        "cursor": mark.cursor,
        "epoch": mark.place.epoch,
        "offset": mark.place.offset,
        "at": mark.at,
        "gap": None if mark.gap is None else mark.gap.value(),
    }


def _parsed(path: Path, text: bytes) -> Mark:
    try:
        value = json.loads(text)
        version = value["version"]
        if version != _VERSION:
            raise JournalError(path, f"its version is {version}, this afflux reads {_VERSION}; update afflux")
        return Mark(
            remote=str(value["remote"]),
            journals=tuple(int(epoch) for epoch in value["journals"]),
            cursor=bool(value["cursor"]),
            place=Place(int(value["epoch"]), int(value["offset"])),
            at=tuple(int(offset) for offset in value["at"]),
            gap=None if value["gap"] is None else gap_from(value["gap"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise JournalDamaged(path, f"it cannot be read ({error}); restore a copy with its journals") from None
