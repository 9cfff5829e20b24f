"""Append items to a log with offsets, and read them, with a blocking API.

Rules:

1. ``head`` counts durable items only. ``append`` collects in memory; ``commit`` gives the collected items to the
   backend in blocks, and only then moves ``head``.
2. Offsets are contiguous from ``first`` to ``head``, and the offset of an item never changes. ``epoch`` changes when
   the journal is recreated, so an offset with its epoch never identifies two different items.
3. Everything read is checked. Damaged data is refused.
4. ``journal_bytes`` bounds stored and collected items together: an append that exceeds it is refused as a whole. An
   item that no reader with the same limits could receive is refused as well.
5. Reading trims nothing. ``trim``, ``retain`` and ``acknowledge`` do, in whole blocks.
6. Reading never waits for a commit's disk write.

Every method may be called from any thread; ``append`` never waits for the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

from afflux.calls.arguments import wrong
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike, check_items
from afflux.journal.address import is_stream_address
from afflux.journal.blocks import BLOCK_OVERHEAD, ITEM_OVERHEAD, Block, Pending, columns, sizes
from afflux.journal.contract import Backend, Reader
from afflux.journal.database import OnDamage, SqliteBackend
from afflux.journal.errors import (
    ItemTooLarge,
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalGone,
    ReaderConflict,
    largest_item,
)
from afflux.journal.retention import Ages, Retention
from afflux.journal.stored import Stored

__all__ = ["BLOCK_BYTES", "Journal", "conflict"]

BLOCK_BYTES = 0x80000
"Bytes of a full block."

_RELEASE = "if that reader is gone, stop the server and run: afflux journal"


class Journal(Stored):
    """A log at ``path``, created if it is missing. Close it, or use it in ``with``.

    Args:
        path: the file of an SQLite database (see :mod:`afflux.journal.files`); the address of a JetStream stream,
            ``nats://host/STREAM`` (see :mod:`afflux.journal.stream`); or an open backend, which then has ``key`` and
            ``epoch`` already.
        limits: ``journal_bytes`` bounds the log, and ``payload_bytes`` each item; ``Limits.server()`` if None.
        block_bytes: bytes of a full block.
        key: identifies the stream; stored in a new journal, compared with that of an existing one.
        on_damage: with ``new-epoch`` every block is checked at opening, else the last one; the others are checked
            when they are read. The damaged files remain as ``….damaged-N``; readers get EPOCH_CHANGED.
        epoch: the epoch of a new journal, 1 to 2^63 - 1; chosen at random if None.

    Raises:
        JournalLocked: another process or object has it open.
        JournalDamaged: data is lost; nothing was changed.
        JournalAway: the servers of the stream do not answer.
        JournalError: a file or stream of another program, of a newer afflux, or with other items; or the disk failed.
        MissingExtra: a JetStream stream needs nats-py.
    """

    epoch: int
    "Changes when the log is recreated; never 0."
    head: int
    "The offset after the last durable item."
    tail: int
    "The offset of the next item to be appended: ``head`` and the items that wait for a commit."
    time_us: int
    "Time of the last durable block, in microseconds since 1970 (UTC); 0 before the first."
    sealed: bool
    "Whether the log is complete: no item follows."
    refused: int
    "The number of items that this object refused as too large."

    def __init__(
        self,
        path: str | Path | Backend,
        *,
        limits: Limits | None = None,
        block_bytes: int = BLOCK_BYTES,
        key: bytes = b"",
        on_damage: OnDamage = "refuse",
        epoch: int | None = None,
    ) -> None:
        limits = limits if limits is not None else Limits.server()
        if is_stream_address(path):
            from afflux.journal.jetstream import JetStreamBackend  # on use: few programs need it

            path = JetStreamBackend(path, key=key, epoch=epoch, journal_bytes=limits.journal_bytes)
        elif isinstance(path, (str, Path)):
            limit = limits.journal_bytes
            path = SqliteBackend(Path(path), key=key, on_damage=on_damage, epoch=epoch, journal_bytes=limit)
        elif not hasattr(path, "most_bytes"):
            raise wrong("path", path, "the path of a file, or a Backend")
        super().__init__(path, limits)
        self._block_bytes = min(block_bytes, path.most_bytes)
        self._collected: list[Pending] = []
        heads = path.heads
        self.epoch, self.head, self.tail = heads.epoch, heads.head, heads.head
        self.time_us, self.sealed = heads.time_us, heads.sealed
        self._sealing = heads.sealed
        self.refused = 0
        self._ages = Ages(heads.head)

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
                if not remove and self._failure is None:
                    self._flush()
            finally:
                with self._memory:
                    self._closed = True
                    self._collected.clear()
                if remove:
                    self._backend.remove()
                else:
                    self._backend.close()

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
    def size(self) -> int:
        """Bytes that count for ``journal_bytes``, stored or collected."""
        return self._size

    @property
    def item_bytes(self) -> int:
        """The most bytes of an item, data and metadata: what a reader with the same ``payload_bytes`` can receive, and
        what the storage accepts."""
        return min(largest_item(self.limits), self._backend.most_bytes - ITEM_OVERHEAD)

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
            ItemTooLarge: an item is larger than ``item_bytes``.
            JournalFull: there is not enough room.
            JournalError: the journal is sealed or closed.
            TypeError: ``items`` is one item, such as text.
        """
        check_items(items)
        data, metadata = columns(items)
        each = sizes(data, metadata)
        if each and max(each) > self.item_bytes + ITEM_OVERHEAD:
            self.refused += 1
            raise self.too_large(max(each) - ITEM_OVERHEAD)
        with self._memory:
            self._check_usable()
            if self._sealing:
                raise JournalError(self.path, "it is sealed and accepts no more items; use another journal")
            filled = self._collected[-1].size if self._collected else self._block_bytes
            cuts = _cuts(each, filled, self._block_bytes)
            charge = sum(each) + BLOCK_OVERHEAD * sum(new for new, _, _ in cuts)
            if self._size + charge > self.limits.journal_bytes:
                raise JournalFull.of(self.path, self.limits)
            first = self.tail
            for new, start, stop in cuts:
                if new:
                    self._collected.append(Pending(first + start, time_us))
                own = None if metadata is None else metadata[start:stop]
                self._collected[-1].extend(data[start:stop], own, sum(each[start:stop]))
            self._size += charge
            self.tail += len(data)
            return first, self.tail

    def too_large(self, size: int) -> ItemTooLarge:
        """Return the error for the next item, of ``size`` bytes."""
        return ItemTooLarge.of(self.path, size, self.tail, self.limits, self.item_bytes)

    def commit(self) -> int:
        """Make all appended items durable; return the head.

        Raises:
            JournalNoSpace: the disk is full. No item is lost; call it again when there is room.
            JournalError: the disk failed. The journal accepts no more items until it is opened again.
        """
        with self._change():
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
        with self._change():
            self._refresh()  # another process may have released or registered it
            registered = self.reader
            if registered is None:
                self._backend.register(reader)
            elif registered != reader:
                raise ReaderConflict(self.path, conflict(registered, reader))
            return self._trim(offset)

    def trim(self, offset: int) -> int:
        """Drop whole blocks of durable items below ``offset``, whoever may need them; return the lowest offset left.

        Raises:
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._change():
            return self._trim(offset)

    def retain(self, retention: Retention, now_us: int, room: int = 0) -> int:
        """Trim what ``retention`` does not keep; return the lowest offset left. Call it regularly.

        The age of a block that was stored before this object was opened is computed from its time. The age of a later
        one is the time since the first call that found it, so that no step of the clock trims it too early.

        Args:
            retention: what to keep.
            now_us: the current time in microseconds since 1970 (UTC), from a clock that does not step while the journal
                is open.
            room: bytes to make room for in ``journal_bytes``; only a retention with ``size`` does that.

        Raises:
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._change():
            self._refresh()
            excess = 0
            if retention.size is not None:
                excess = self._size - min(retention.size, max(0, self.limits.journal_bytes - room))
            with closing(self._backend.index()) as blocks:
                boundary = self._ages.boundary(blocks, excess, retention.seconds, now_us, self.head)
            return self.first if boundary is None else self._trim(boundary)

    def _trim(self, offset: int) -> int:
        before = self.first
        if offset <= before:
            return before
        boundary = self.head
        if offset < self.head:
            with closing(self._backend.read_blocks(offset, offset + 1)) as blocks:
                boundary = next(blocks).first
        if boundary <= before:
            return before
        size = self._backend.heads.size
        self.first = boundary  # set before the deletion, so that a reader of a missing block finds the cause
        try:
            self._backend.trim(boundary)
        finally:
            heads = self._backend.heads
            self.first = heads.first
            with self._memory:
                self._size -= size - heads.size
        return boundary

    def seal(self) -> None:
        """Commit, and permanently accept no more items. No-op if the journal is sealed."""
        with self._change():
            with self._memory:
                self._sealing = True
            try:
                self._flush()
                self._backend.seal()
            except BaseException:
                with self._memory:
                    self._sealing = False
                raise
            self.sealed = True  # set last, because it implies that the head is final

    def read(
        self, offset: int, limit_items: int = 0x10000, limit_bytes: int = BLOCK_BYTES, *, unchecked: int = 0
    ) -> list[Block]:
        """Return blocks, cut to the items from ``offset`` on; none if ``offset`` is the head or above.

        They contain at most ``limit_items``, and no further block after ``limit_bytes``. The checksum of a whole block
        of at most ``unchecked`` bytes is not compared.

        Raises:
            JournalGone: ``offset`` was trimmed.
            JournalDamaged: a block is missing or its checksum is wrong.
            JournalError: the journal is closed.
        """
        stop = min(offset + limit_items, self.head)
        found = self.read_blocks(offset, stop, limit_bytes, unchecked=unchecked)
        return [block.cut(offset, stop) for block in found]

    def read_blocks(self, start: int, stop: int, limit_bytes: int = BLOCK_BYTES, *, unchecked: int = 0) -> list[Block]:
        """Return the whole stored blocks that contain the offsets from ``start`` to before ``stop`` and the head.

        The first block may begin before ``start``, and the last one end after ``stop``. No further block follows after
        ``limit_bytes``. The checksum of a block of at most ``unchecked`` bytes within the range is not compared.
        ``body``, ``stored``, ``metadata_bytes``, ``time_us`` and ``crc`` of a block are as stored.

        Raises:
            JournalGone: ``start`` was trimmed.
            JournalDamaged: a block is missing or its checksum is wrong.
            JournalError: the journal is closed.
        """
        if self._closed:
            raise JournalError(self.path, "the journal is closed")
        stop = min(stop, self.head)
        found: list[Block] = []
        size = 0
        try:
            if self.first <= start < stop:
                with closing(self._backend.read_blocks(start, stop, unchecked)) as blocks:
                    for block in blocks:
                        found.append(block)
                        size += block.size
                        if size >= limit_bytes:
                            break
        except JournalDamaged:
            if start >= self.first:
                with suppress(JournalError):
                    self.refresh()  # another process may have trimmed it
            if start >= self.first:
                raise
        if start < self.first and not found:
            raise JournalGone(self.path, f"offset {start} was trimmed; the lowest one left is {self.first}")
        return found

    def _flush(self) -> None:
        """Write the collected items. Items appended meanwhile start a new block and wait for the next commit."""
        with self._memory:
            blocks, self._collected = self._collected, []
        if not blocks:
            return
        try:
            self._backend.append([block.pack() for block in blocks])
        except BaseException:
            stored = self._backend.heads.head
            with self._memory:
                self._collected[:0] = [block for block in blocks if block.first >= stored]
            raise
        finally:
            heads = self._backend.heads
            self.head, self.time_us = heads.head, heads.time_us


def conflict(registered: Reader, reader: Reader, where: str = "DIR") -> str:
    """Return the reason why ``reader`` cannot acknowledge a journal; ``where`` is its directory or address."""
    release = f"{_RELEASE} {where} --release {registered.name}"
    if registered.name != reader.name:
        return (
            f"reader {reader.name!r} cannot acknowledge this stream, because its reader is {registered.name!r}; "
            f"read it without acknowledging, or {release}"
        )
    return (
        f"reader {reader.name!r} cannot acknowledge this stream, because another reader {registered.name!r} does, with "
        f"a position (checkpoint) of its own; read it without acknowledging, or {release}"
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
