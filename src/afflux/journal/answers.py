"""Answer requests with a cursor from feeds: READ with items, HEAD and ACKNOWLEDGE with a state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial

from afflux.core.errors import ApplicationError, Error, Rejected
from afflux.core.payload import Payload, PayloadLike
from afflux.journal.blocks import Block
from afflux.journal.contract import Reader
from afflux.journal.errors import (
    ItemTooLarge,
    JournalAway,
    JournalError,
    JournalFull,
    JournalGone,
    JournalLocked,
    JournalNoSpace,
    ReaderConflict,
)
from afflux.journal.feed import Feed
from afflux.journal.store import BLOCK_BYTES, Journal
from afflux.journal.wire import MOST_WIRE_BYTES, pack
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    JOURNAL_FAILED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    READER_CONFLICT,
    Acknowledge,
    Head,
    Position,
    Read,
    Request,
    State,
    encode_entry,
    is_positioned,
    with_position,
)

__all__ = ["Answers", "positioned", "wire_error"]


_KEPT_BYTES = 8 << 20
"""Bytes that are allocated once and freed.

glibc adapts to the largest block that was freed: then it keeps the memory of the blocks that are sent. Otherwise it
returns it to the kernel, which clears it for the next block: a fifth of the CPU time of a server."""


class Answers:
    """The answers of one server, and the threads that read its journals.

    Args:
        discard: called with a feed that failed before its first item, and whose epoch no reader has.
    """

    def __init__(self, discard: Callable[[Feed], Awaitable[None]] | None = None) -> None:
        self._discard = discard
        self._readers = ThreadPoolExecutor(4, "afflux-journal-read")
        self._closed = False
        _ = bytes(_KEPT_BYTES)

    def close(self) -> None:
        """Refuse further requests; an answer ends with its next step."""
        self._closed = True
        self._readers.shutdown(wait=False)

    def check_open(self) -> None:
        """Raise Rejected if it is closed."""
        if self._closed:
            raise Rejected("the journals are being closed", code=Code.REJECTED)

    async def answer(self, feed: Feed, cursor: Request) -> AsyncGenerator[PayloadLike | list[PayloadLike], None]:
        """Answer one request; READ is answered with lists of items.

        Raises:
            Rejected: the journal is not available.
            ApplicationError: with one of the codes of :mod:`afflux.protocols.rsocket.cursor`.
            Exception: the error of the feed's stream, after all its items.
        """
        try:
            self._check(feed.journal, cursor)
            if isinstance(cursor, Head):
                yield await self._head(feed, cursor)
                return
            if isinstance(cursor, Acknowledge):
                await feed.acknowledge(Reader(cursor.name, cursor.owner), cursor.offset)
                yield _state(feed, cursor.shard)
                return
            async with aclosing(self._read(feed, cursor)) as answers:
                async for items in answers:
                    yield items
        except JournalError as error:
            self.check_open()
            raise wire_error(error) from error

    @staticmethod
    def _check(journal: Journal, cursor: Request) -> None:
        """Refuse another epoch, and an offset that the requester cannot have seen."""
        offset = _requested_offset(cursor)
        if cursor.epoch not in (0, journal.epoch):
            current = f"the epoch is {journal.epoch}, with offsets {journal.first} to {journal.head}"
            text = f"epoch {cursor.epoch} was requested at offset {offset}; {current}"
            raise ApplicationError(EPOCH_CHANGED, text)
        if offset > journal.head and (cursor.epoch or journal.sealed):
            raise ApplicationError(OFFSET_AHEAD, f"offset {offset} is above the head {journal.head}")

    async def _head(self, feed: Feed, cursor: Head) -> Payload:
        journal = feed.journal
        with suppress(TimeoutError):
            async with asyncio.timeout(cursor.wait_ms / 1000 if cursor.wait_ms else None):
                while True:
                    changed = feed.changed
                    if journal.head > cursor.after or journal.sealed:
                        break
                    if feed.error is not None:
                        raise await self._failure(feed)
                    if not cursor.wait_ms:
                        break
                    await changed.wait()
        return _state(feed, cursor.shard)

    async def items(self, feed: Feed) -> AsyncGenerator[PayloadLike | list[PayloadLike], None]:
        """Follow a feed from its first stored item, without positions. Raises as ``answer`` does."""
        try:
            async with aclosing(self._read(feed, Read(first=feed.journal.first), positions=False)) as answers:
                async for items in answers:
                    yield items
        except JournalError as error:
            self.check_open()
            raise wire_error(error) from error

    async def _read(
        self, feed: Feed, cursor: Read, *, positions: bool = True
    ) -> AsyncGenerator[list[PayloadLike], None]:
        journal = feed.journal
        offset = cursor.first
        end = offset + cursor.limit if cursor.limit else 1 << 63
        loop = asyncio.get_running_loop()
        read = partial(journal.read, limit_bytes=BLOCK_BYTES)
        if cursor.blocks:  # the client compares their checksums
            read = partial(journal.read, limit_bytes=MOST_WIRE_BYTES, unchecked=MOST_WIRE_BYTES)
        while offset < end:
            self.check_open()
            changed = feed.changed
            sealed = journal.sealed  # read before the head: both change in another thread, the head first
            if offset < journal.head:
                feed.epoch_disclosed = True
                blocks = await loop.run_in_executor(self._readers, read, offset, end - offset)
                offset = blocks[-1].end
                if not positions:
                    yield _plain(blocks)
                else:
                    encode = _wire_blocks if cursor.blocks else positioned
                    yield encode(blocks, journal.epoch, cursor.shard)
            elif offset < journal.first:
                raise JournalGone(journal.path, f"offset {offset} was trimmed; the lowest one left is {journal.first}")
            elif sealed:
                return
            elif feed.error is not None:
                raise await self._failure(feed)
            else:
                await changed.wait()

    async def _failure(self, feed: Feed) -> Exception:
        """Return the error for a reader of a failed feed, which is discarded if it can be."""
        error = feed.error
        if feed.discardable and self._discard is not None:
            await self._discard(feed)
        return Error("the stream failed") if error is None else error.with_traceback(None)


def _requested_offset(cursor: Request) -> int:
    if isinstance(cursor, Read):
        return cursor.first
    return cursor.after if isinstance(cursor, Head) else cursor.offset


def _state(feed: Feed, shard: int) -> Payload:
    """Return the answer to HEAD and ACKNOWLEDGE."""
    feed.epoch_disclosed = True
    journal = feed.journal
    sealed = journal.sealed  # read before the head, so that True implies the final head
    state = State(
        shard=shard, epoch=journal.epoch, first=journal.first, head=journal.head, time_us=journal.time_us,
        sealed=sealed, full=feed.stall is not None,
    )  # fmt: skip
    return Payload(b"", encode_entry(state))


def _wire_blocks(blocks: Sequence[Block], epoch: int, shard: int) -> list[PayloadLike]:
    """Return the blocks to send, each as one item; large ones as their items."""
    items: list[PayloadLike] = []
    for block in blocks:
        if block.size > MOST_WIRE_BYTES:
            items += positioned([block], epoch, shard)
        else:
            position = Position(shard=shard, epoch=epoch, offset=block.first, time_us=block.time_us, block=True)
            items.append(Payload(pack(block), encode_entry(position)))
    return items


def positioned(blocks: Sequence[Block], epoch: int, shard: int) -> list[PayloadLike]:
    """Return the items to send, with a position on the first one and where the time changes."""
    items: list[PayloadLike] = []
    time_us: int | None = None
    for block in blocks:
        data, metadata = block.data(), block.metadata()
        start = len(items)
        if metadata is None:
            items += data
        else:
            items += [Payload(value, own) for value, own in zip(data, metadata, strict=True)]
        marked = [index for index, own in enumerate(metadata or ()) if index and is_positioned(own)]
        for index in marked if block.time_us == time_us else [0, *marked]:
            own = None if metadata is None else metadata[index]
            position = Position(
                shard=shard,
                epoch=epoch,
                offset=block.first + index,
                time_us=block.time_us,
                empty_metadata=own == b"",
            )
            items[start + index] = Payload(data[index], with_position(position, own))
        time_us = block.time_us
    return items


def _plain(blocks: Sequence[Block]) -> list[PayloadLike]:
    items: list[PayloadLike] = []
    for block in blocks:
        items += block.data() if block.metadata() is None else block.payloads()
    return items


def wire_error(error: JournalError) -> Error:
    """Convert an error for the peer: with the name of the file, without its directory."""
    text = f"{error.word} {error.path.name}: {error.reason}"
    if isinstance(error, JournalGone):
        return ApplicationError(OFFSET_GONE, error.reason, rule=error.word)
    if isinstance(error, ReaderConflict):
        return ApplicationError(READER_CONFLICT, error.reason, rule=error.word)
    if isinstance(error, (ItemTooLarge, JournalAway, JournalLocked, JournalNoSpace, JournalFull)):
        return Rejected(text, code=Code.REJECTED, rule=error.word)
    return ApplicationError(JOURNAL_FAILED, text, rule=error.word)
