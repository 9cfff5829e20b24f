"""Append items to a log with offsets, and read them, with a blocking API.

Rules:

1. ``head`` counts durable items only. ``append`` collects in memory; ``commit`` writes the collected items in one
   transaction, waits for the disk (WAL, synchronous=FULL), and only then moves ``head``.
2. Offsets are contiguous from ``first`` to ``head``, and the offset of an item never changes. ``epoch`` changes when
   the journal is recreated, so an offset with its epoch never identifies two different items.
3. Everything read is checked: the CRC-32 of each block, and that no block is missing. Damaged data is refused.
4. ``journal_bytes`` bounds stored and collected items together: an append that exceeds it is refused as a whole.
5. Reading uses its own connection and never waits for a commit's disk write.

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
from afflux.journal.database import Database, Facts, Reader, Row
from afflux.journal.errors import JournalDamaged, JournalError, JournalFull, JournalGone, ReaderConflict

__all__ = ["BLOCK_BYTES", "BLOCK_OVERHEAD", "Journal", "OnDamage"]

BLOCK_BYTES = 0x40000
"Bytes of a full block."
BLOCK_OVERHEAD = 64
"Bytes charged for a block in addition to its items."

_RELEASE = "if that reader is gone, stop the server and run: afflux journal DIR --release"

OnDamage = Literal["refuse", "new-epoch"]
"The action for a damaged journal: raise, or set its files aside and start an empty one with another epoch."


class Journal:
    """A log at ``path``, created if it is missing. Close it, or use it in ``with``.

    Args:
        path: the file; :mod:`afflux.journal.files` describes its companion files.
        limits: ``journal_bytes`` bounds the log; ``Limits.server()`` if None.
        block_bytes: bytes of a full block.
        key: identifies the stream; stored in a new journal, compared with that of an existing one.
        on_damage: with ``new-epoch`` every block is checked at opening, else the last one; the others are checked
            when they are read. The damaged files remain as ``….damaged-N``; readers get EPOCH_CHANGED.
        epoch: the epoch of a new journal, 1 to 2^63 - 1; chosen at random if None.

    Raises:
        JournalLocked: another process or object has it open.
        JournalDamaged: data is lost; nothing was changed.
        JournalError: a file of another program, of a newer afflux, or of another stream; or the disk failed.
    """

    epoch: int
    "Changes when the log is recreated; never 0."
    first: int
    "The lowest stored offset; ``head`` if the log is empty."
    head: int
    "The offset after the last durable item."
    tail: int
    "The offset of the next item to be appended: ``head`` and the items that wait for a commit."
    time_us: int
    "Time of the last durable block, in microseconds since 1970 (UTC); 0 before the first."
    sealed: bool
    "Whether the log is complete: no item follows."

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
        self._writing = threading.Lock()  # orders writes; locked during disk writes
        self._memory = threading.Lock()  # protects the numbers and the collected blocks; locked briefly
        self._collected: list[Pending] = []
        self._closed = False
        with files.KIND.errors(self.path):
            self._lock = files.lock(self.path)
        try:
            try:
                self._open(key, epoch, verify=on_damage == "new-epoch")
            except JournalDamaged:
                if on_damage == "refuse":
                    raise
                with files.KIND.errors(self.path):
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
                raise JournalError(self.path, "it contains another stream; choose another path")
            if verify:
                for _ in self._database.blocks(facts.first, facts.head):
                    pass
        except BaseException:
            self._database.close()
            raise
        self.epoch, self.first, self.head, self.tail = facts.epoch, facts.first, facts.head, facts.head
        self._size, self.time_us, self.sealed = facts.size, facts.time_us, facts.sealed
        self._sealing = facts.sealed

    def close(self) -> None:
        """Commit appended items, close the files and release the lock. No-op if the journal is closed.

        Raises:
            JournalError: the commit failed and its items are lost. The journal is closed nevertheless.
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
        """Close the journal and delete its files. The next journal at this path is empty and has another epoch."""
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
    def room(self) -> int:
        """Bytes that may still be appended; each item is charged ITEM_OVERHEAD in addition to its bytes."""
        return max(0, self.limits.journal_bytes - self._size)

    @property
    def pending(self) -> int:
        """Bytes that are appended and wait for a commit."""
        with self._memory:
            return sum(block.size for block in self._collected)

    def append(self, items: Sequence[PayloadLike], time_us: int) -> tuple[int, int]:
        """Collect items for the next commit, all or none; return their first offset and the offset after the last.

        Args:
            items: the items, in order.
            time_us: the current time, in microseconds since 1970 (UTC). Items of one block share that of its first.

        Raises:
            JournalFull: there is not enough room.
            JournalError: the journal is sealed or closed, or its disk has failed.
        """
        data, metadata = columns(items)
        each = sizes(data, metadata)
        with self._memory:
            self._check_usable()
            if self._sealing:
                raise JournalError(self.path, "it is sealed and accepts no more items; use another journal")
            filled = self._collected[-1].size if self._collected else self._block_bytes
            cuts = _cuts(each, filled, self._block_bytes)
            charge = sum(each) + BLOCK_OVERHEAD * sum(new for new, _, _ in cuts)
            if self._size + charge > self.limits.journal_bytes:
                raise JournalFull(self.path, "journal_bytes is reached; trim items to make room")
            first = self.tail
            for new, start, stop in cuts:
                if new:
                    self._collected.append(Pending(first + start, time_us))
                own = None if metadata is None else metadata[start:stop]
                self._collected[-1].extend(data[start:stop], own, sum(each[start:stop]))
            self._size += charge
            self.tail += len(data)
            return first, self.tail

    def commit(self) -> int:
        """Make all appended items durable in one transaction; return the head.

        Raises:
            JournalNoSpace: the disk is full. No item is lost; call it again when there is room.
            JournalError: the disk failed. The journal accepts no more items until it is opened again.
        """
        with self._writing:
            self._check_usable()
            self._flush()
            return self.head

    def acknowledge(self, reader: Reader, offset: int = 0) -> int:
        """Drop whole blocks of durable items below ``offset`` for ``reader``; return the lowest offset left.

        The first reader is registered durably, before anything is dropped; 0 registers only.

        Raises:
            ReaderConflict: another reader is registered: one of another name, or another one of the same name.
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._writing:
            self._check_usable()
            registered = self._database.reader
            if registered is None:
                self._database.register(reader)
            elif registered != reader:
                raise ReaderConflict(self.path, _conflict(registered, reader))
            return self._trim(offset)

    def release(self, name: str) -> None:
        """Forget the registered reader, so that another one may acknowledge.

        Raises:
            ReaderConflict: the registered reader has another name, or there is none.
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._writing:
            self._check_usable()
            registered = self._database.reader
            if registered is None or registered.name != name:
                found = "none is registered" if registered is None else f"its reader is {registered.name!r}"
                raise ReaderConflict(self.path, f"there is no reader {name!r} to release: {found}")
            self._database.register(None)

    @property
    def reader(self) -> Reader | None:
        """The reader whose acknowledgements trim, or None."""
        return self._database.reader

    def trim(self, offset: int) -> int:
        """Drop whole blocks of durable items below ``offset``, whoever may need them; return the lowest offset left.

        Raises:
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._writing:
            self._check_usable()
            return self._trim(offset)

    def _trim(self, offset: int) -> int:
        before = self.first
        if offset <= before:
            return before
        boundary = self.head if offset >= self.head else self._database.boundary(offset)
        if boundary <= before:
            return before
        self.first = boundary  # set before the deletion, so that a reader of a missing block finds the cause
        try:
            freed = self._database.delete_below(boundary)
        except BaseException:
            self.first = before
            raise
        with self._memory:
            self._size -= freed
        return boundary

    def seal(self) -> None:
        """Commit, and permanently accept no more items. No-op if the journal is sealed."""
        with self._writing:
            self._check_usable()
            with self._memory:
                self._sealing = True
            try:
                self._flush()
                self._database.seal()
            except BaseException:
                with self._memory:
                    self._sealing = False
                raise
            self.sealed = True  # set last, because it implies that the head is final

    def read(self, offset: int, limit_items: int = 0x10000, limit_bytes: int = BLOCK_BYTES) -> list[Block]:
        """Return blocks with the items from ``offset``; none if ``offset`` is the head or above.

        They contain at most ``limit_items``, and no further block after ``limit_bytes``.

        Raises:
            JournalGone: ``offset`` was trimmed.
            JournalDamaged: a block is missing or its checksum is wrong.
            JournalError: the journal is closed.
        """
        if self._closed:
            raise JournalError(self.path, "the journal is closed")
        end = min(offset + limit_items, self.head)
        found: list[Block] = []
        size = 0
        try:
            if self.first <= offset < end:
                with closing(self._database.blocks(offset, end)) as blocks:
                    for block in blocks:
                        found.append(block.cut(offset, end))
                        size += block.size
                        if size >= limit_bytes:
                            break
        except JournalDamaged:
            if offset >= self.first:
                raise
        if offset < self.first and not found:
            raise JournalGone(self.path, f"offset {offset} was trimmed; the lowest one left is {self.first}")
        return found

    def _flush(self) -> None:
        """Write the collected items. Items appended meanwhile start a new block and wait for the next commit."""
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
        self.head, self.time_us = head, blocks[-1].time_us

    def _check_usable(self) -> None:
        if self._closed:
            raise JournalError(self.path, "the journal is closed")
        self._database.check_failure()


def _conflict(registered: Reader, reader: Reader) -> str:
    if registered.name != reader.name:
        return (
            f"reader {reader.name!r} cannot acknowledge this stream, because its reader is {registered.name!r}; "
            f"read it without acknowledging, or {_RELEASE} {registered.name}"
        )
    return (
        f"reader {reader.name!r} cannot acknowledge this stream, because another reader {registered.name!r} does, with "
        f"a position (checkpoint) of its own; read it without acknowledging, or {_RELEASE} {registered.name}"
    )


def _cuts(each: list[int], filled: int, block_bytes: int) -> list[tuple[bool, int, int]]:
    """Distribute items to blocks, of which the open one has ``filled`` bytes: (new block, start, stop) for each."""
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
