"""The journal: an append-only log with offsets, blocking. No asyncio, no streams, no cursors on the wire.

Rules:

1. ``head`` names durable items only. ``append`` collects in memory; ``commit`` writes all that was collected in
   one transaction, waits for the disk (WAL, synchronous=FULL), and only then moves ``head``.
2. Offsets are contiguous from ``first`` to ``head``; each item keeps its offset for ever. ``epoch`` changes when
   the journal is made anew, so an offset with its epoch never names two different items.
3. Whatever is read was checked: CRC-32 of each block, no gap between blocks. What is damaged is refused.
4. ``journal_bytes`` bounds what is stored and collected together: an append beyond it is refused as a whole.
5. Reading uses a connection of its own and never waits for a commit's disk write.

Every method may be called from any thread; ``append`` never waits for the disk.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike
from afflux.journal import files
from afflux.journal.blocks import Block, Pending, checksum, columns, sizes
from afflux.journal.database import Database, Facts, Row
from afflux.journal.errors import JournalDamaged, JournalError, JournalFull, JournalGone

__all__ = ["BLOCK_BYTES", "BLOCK_OVERHEAD", "Journal", "OnDamage"]

BLOCK_BYTES = 0x40000
"How large a block grows before the next one is begun."
BLOCK_OVERHEAD = 64
"Bytes that a block is charged besides its items."

OnDamage = Literal["refuse", "new-epoch"]
"What to do with a damaged journal: raise, or set its files aside and begin an empty one with another epoch."


# long: seven of its methods are numbers to be read
class Journal:
    """A log at ``path``, made when there is none. Close it, or use it in ``with``.

    Args:
        path: the file; :mod:`afflux.journal.files` says what lies beside it.
        limits: ``journal_bytes`` bounds it; ``Limits.server()`` when None.
        block_bytes: how large a block grows.
        key: which stream it holds: stored at birth, compared later.
        on_damage: with ``new-epoch`` every block is checked at opening, else the last one; the others are checked
            when they are read. The damaged files stay, as ``….damaged-N``; readers are told EPOCH_CHANGED.
        epoch: of a new journal, 1 to 2^63 - 1; chosen at random when None.

    Raises:
        JournalLocked: somebody has it open.
        JournalDamaged: something was lost; nothing was changed.
        JournalError: a file of another program, of a newer afflux, or of another stream; or the disk failed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        limits: Limits | None = None,
        block_bytes: int = BLOCK_BYTES,
        key: bytes = b"",
        on_damage: OnDamage = "refuse",
        epoch: int | None = None,
    ) -> None:
        self.path = Path(path)
        self.limits = limits if limits is not None else Limits.server()
        self._block_bytes = block_bytes
        self._writing = threading.Lock()  # the order of writes; held while the disk works
        self._memory = threading.Lock()  # the numbers and the collected blocks; held for moments only
        self._collected: list[Pending] = []
        self._closed = False
        with files.translated(self.path):
            self._lock = files.lock(self.path)
        try:
            try:
                self._open(key, epoch, verify=on_damage == "new-epoch")
            except JournalDamaged:
                if on_damage == "refuse":
                    raise
                with files.translated(self.path):
                    files.set_aside(self.path)
                self._open(key, epoch, verify=False)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, key: bytes, epoch: int | None, *, verify: bool) -> None:
        if not files.check_files(self.path):
            epoch = epoch or 1 + secrets.randbelow((1 << 63) - 1)
            files.create(self.path, Facts(epoch=epoch, key=key).row())
        self._database = Database(self.path)
        try:
            facts = self._database.facts
            if facts.key != key:
                raise JournalError(self.path, "it holds another stream; choose another path")
            if verify:
                for _ in self._database.blocks(facts.first, facts.head):
                    pass
        except BaseException:
            self._database.close()
            raise
        self.epoch = facts.epoch
        "Changes when the log is made anew; never 0."
        self._first, self._head, self._tail = facts.first, facts.head, facts.head
        self._size, self._time_us, self._sealed = facts.size, facts.time_us, facts.sealed
        self._sealing = facts.sealed

    def close(self) -> None:
        """Commit what was appended, close the files and let go of the lock. Closing twice does no harm.

        Raises:
            JournalError: the commit failed, what it should have written is lost. It is closed all the same.
        """
        self._close(remove=False)

    def _close(self, *, remove: bool) -> None:
        with self._writing:
            if self._closed:
                return
            try:
                if self._database.failure is None and not remove:
                    self._flush()
            finally:
                with self._memory:
                    self._closed = True
                    self._collected.clear()
                try:
                    self._database.close()
                    if remove:
                        files.remove(self.path)
                finally:
                    self._lock.close()

    def remove(self) -> None:
        """Close it and delete its files. Whoever opens the path again gets an empty one with another epoch."""
        self._close(remove=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        sealed = ", sealed" if self.sealed else ""
        return f"Journal({str(self.path)!r}, epoch={self.epoch:x}, first={self.first}, head={self.head}{sealed})"

    @property
    def first(self) -> int:
        """The lowest offset that is still there; ``head`` when nothing is."""
        return self._first

    @property
    def head(self) -> int:
        """The offset after the last durable item."""
        return self._head

    @property
    def tail(self) -> int:
        """The offset that the next item appended will have: above ``head`` by what waits for a commit."""
        return self._tail

    @property
    def time_us(self) -> int:
        """When the last durable block was begun, microseconds since 1970 (UTC); 0 when there never was one."""
        return self._time_us

    @property
    def sealed(self) -> bool:
        """Whether no item will ever follow."""
        return self._sealed

    @property
    def room(self) -> int:
        """Bytes that may still be appended; an item is charged ITEM_OVERHEAD more than its own."""
        return max(0, self.limits.journal_bytes - self._size)

    @property
    def pending(self) -> int:
        """Bytes that were appended and not yet taken by a commit."""
        with self._memory:
            return sum(block.size for block in self._collected)

    def append(self, items: Sequence[PayloadLike], time_us: int) -> tuple[int, int]:
        """Collect items for the next commit, all or none; return their first offset and the one after the last.

        Args:
            items: in order.
            time_us: now, microseconds since 1970 (UTC). Items of one block share the time of its first.

        Raises:
            JournalFull: there is no room for them.
            JournalError: the journal is sealed or closed, or its disk has failed.
        """
        data, metadata = columns(items)
        each = sizes(data, metadata)
        with self._memory:
            self._refuse_unusable()
            if self._sealing:
                raise JournalError(self.path, "it is sealed, no item can follow; use another journal")
            filled = self._collected[-1].size if self._collected else self._block_bytes
            cuts = _cuts(each, filled, self._block_bytes)
            charge = sum(each) + BLOCK_OVERHEAD * sum(new for new, _, _ in cuts)
            if self._size + charge > self.limits.journal_bytes:
                raise JournalFull(self.path, "journal_bytes is reached; acknowledge items to make room")
            first = self._tail
            for new, start, stop in cuts:
                if new:
                    self._collected.append(Pending(first + start, time_us))
                own = None if metadata is None else metadata[start:stop]
                self._collected[-1].extend(data[start:stop], own, sum(each[start:stop]))
            self._size += charge
            self._tail += len(data)
            return first, self._tail

    def commit(self) -> int:
        """Make all that was appended durable, in one transaction; return the head.

        Raises:
            JournalNoSpace: the disk is full. Nothing is lost; call it again when there is room.
            JournalError: the disk failed. The journal takes no more items until it is opened again.
        """
        with self._writing:
            self._refuse_unusable()
            self._flush()
            return self._head

    def trim(self, offset: int) -> int:
        """Drop whole blocks of durable items below ``offset``; return the lowest offset left.

        Raises:
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._writing:
            self._refuse_unusable()
            before = self._first
            if offset <= before:
                return before
            boundary = self._head if offset >= self._head else self._database.boundary(offset)
            if boundary <= before:
                return before
            self._first = boundary  # first, so that a reader who misses a block finds out why
            try:
                freed = self._database.delete_below(boundary)
            except BaseException:
                self._first = before
                raise
            with self._memory:
                self._size -= freed
            return boundary

    def seal(self) -> None:
        """Commit, and allow no more items, now and after a restart. Sealing twice does no harm."""
        with self._writing:
            self._refuse_unusable()
            with self._memory:
                self._sealing = True
            try:
                self._flush()
                self._database.seal()
            except BaseException:
                with self._memory:
                    self._sealing = False
                raise
            self._sealed = True  # last: who sees it knows that the head is final

    def read(self, offset: int, limit_items: int = 0x10000, limit_bytes: int = BLOCK_BYTES) -> list[Block]:
        """Blocks with the items from ``offset`` on; empty when ``offset`` is the head or above.

        At most ``limit_items``, and no further block once ``limit_bytes`` are reached.

        Raises:
            JournalGone: ``offset`` was trimmed.
            JournalDamaged: a block is missing or its checksum is wrong.
            JournalError: the journal is closed.
        """
        if self._closed:
            raise JournalError(self.path, "it is closed")
        end = min(offset + limit_items, self._head)
        found: list[Block] = []
        size = 0
        try:
            if self._first <= offset < end:
                with closing(self._database.blocks(offset, end)) as blocks:
                    for block in blocks:
                        found.append(block.cut(offset, end))
                        size += block.size
                        if size >= limit_bytes:
                            break
        except JournalDamaged:
            if offset >= self._first:
                raise
        if offset < self._first and not found:
            raise JournalGone(self.path, f"offset {offset} was trimmed, the lowest one left is {self._first}")
        return found

    def _flush(self) -> None:
        """Write what was collected. Items appended meanwhile begin a new block and wait for the next time."""
        with self._memory:
            blocks, self._collected = self._collected, []
        if not blocks:
            return
        try:
            head = self._database.insert([_row(block) for block in blocks])
        except BaseException:
            with self._memory:
                self._collected[:0] = blocks
            raise
        self._head, self._time_us = head, blocks[-1].time_us

    def _refuse_unusable(self) -> None:
        if self._closed:
            raise JournalError(self.path, "it is closed")
        self._database.refuse_failed()


def _cuts(each: list[int], filled: int, block_bytes: int) -> list[tuple[bool, int, int]]:
    """How items fall into blocks, the open one of which has ``filled`` bytes: (in a new one, from, to before)."""
    if filled < block_bytes and filled + sum(each) <= block_bytes:
        return [(False, 0, len(each))] if each else []
    cuts: list[tuple[bool, int, int]] = []
    ends = list(accumulate(each, initial=0))
    start = bisect_right(ends, block_bytes - filled) - 1 if filled < block_bytes else 0
    if start:
        cuts.append((False, 0, start))
    while start < len(each):
        stop = max(start + 1, bisect_right(ends, ends[start] + block_bytes) - 1)
        cuts.append((True, start, stop))
        start = stop
    return cuts


def _row(block: Pending) -> Row:
    first, count, time_us, metadata_bytes, body = block.pack()
    crc = checksum(first, count, time_us, metadata_bytes, body)
    return first, count, time_us, block.size + BLOCK_OVERHEAD, crc, metadata_bytes, body
