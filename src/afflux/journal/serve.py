"""Journalled: gives any handler's ``stream`` a cursor. Only this file knows both journals and the wire's cursor.

A REQUEST_STREAM with a cursor entry is answered from the journal of that stream; without one, and for all other
verbs, the inner handler answers as if nobody stood before it. Which stream it is, is decided by the request's
data and its metadata without the cursor and without tracing: so two users with different credentials never share
a journal, and a new token makes a new one. Only a digest of these is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from afflux.aio.current import mime_types
from afflux.core.errors import ApplicationError, Error, Invalid, Rejected, Unsupported, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike
from afflux.journal.blocks import Block
from afflux.journal.errors import JournalError, JournalFull, JournalGone, JournalLocked, JournalNoSpace
from afflux.journal.feed import Feed, Source
from afflux.journal.store import BLOCK_BYTES, Journal, OnDamage
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    JOURNAL_FAILED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    UNKNOWN_SHARD,
    Head,
    Position,
    Read,
    State,
    encode_entry,
    is_positioned,
    split_request,
    with_position,
)
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, TRACING_MIME, compose, entries, route_of
from afflux.router import Router

__all__ = ["Journalled"]

_VERBS = frozenset({"request", "fire", "channel", "push"})


def _now_us() -> int:
    return time.time_ns() // 1000


class Journalled:
    """A handler that answers with what ``handler`` answers, and its streams by cursor as well.

    Close it after the server: ``async with Journalled(inner, "journals") as handler, afflux.serve(uri, handler):``

    Args:
        handler: any handler with the verb ``stream``.
        directory: where the journals are kept, one file a stream; made when missing.
        limits: ``journal_bytes`` bounds each journal.
        replays: whether a stream begins with its first item each time it is started, so that what is journalled
            already has to be skipped: True, False, or asked with the request. When None, the attribute
            ``replays`` of the handler's ``stream`` (of a router's function for that route), or of the handler, says
            so; without one it is False, and what comes after a restart is appended.
        journals: how many journals the directory may hold; a request that needs one more is refused.
        linger_s: how long a lone item waits for others before it is committed, in seconds.
        on_damage: as in :class:`Journal`.
        clock: microseconds since 1970 (UTC); for timestamps only.
    """

    def __init__(
        self,
        handler: Any,
        directory: str | Path,
        *,
        limits: Limits | None = None,
        replays: bool | Callable[[Payload], bool] | None = None,
        journals: int = 64,
        linger_s: float = 0.005,
        on_damage: OnDamage = "refuse",
        clock: Callable[[], int] = _now_us,
    ) -> None:
        self.directory = Path(directory)
        self.limits = limits if limits is not None else Limits.server()
        self._handler = handler
        if isinstance(handler, Router):
            self._handler = handler.as_handler()
            replays = partial(_route_replays, handler) if replays is None else replays
        self._replays = replays
        self._journals = journals
        self._linger_s = linger_s
        self._on_damage: OnDamage = on_damage
        self._clock = clock
        self._feeds: dict[bytes, asyncio.Task[Feed | None]] = {}
        self._opening: set[str] = set()
        self._writers = ThreadPoolExecutor(4, "afflux-journal-write")
        self._readers = ThreadPoolExecutor(4, "afflux-journal-read")
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        if name in _VERBS:
            return getattr(self._handler, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every inner stream, commit, and close the journals. Readers that wait are told REJECTED."""
        self._closed = True
        for task in list(self._feeds.values()):
            with suppress(Exception):
                if (feed := await asyncio.shield(task)) is not None:
                    await feed.stop(Rejected("the journals are being closed", code=Code.REJECTED))
        self._feeds.clear()
        self._writers.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    def stream(self, payload: Payload) -> AsyncIterator[PayloadLike | Sequence[PayloadLike]]:
        """Answer a REQUEST_STREAM: by cursor in lists of items, else as the inner handler does.

        Raises:
            Invalid: the cursor breaks a rule.

        Iterating raises:
            Rejected: the journal can't be had now: in use elsewhere, no space, or too many.
            ApplicationError: with one of the codes of :mod:`afflux.protocols.rsocket.cursor`.
            Exception: what the inner stream failed with, after all its items.
        """
        if mime_types()[0] not in (None, COMPOSITE_MIME):
            return self._inner(payload)  # type: ignore[no-any-return] # a cursor is an entry of composite metadata
        try:
            cursor, metadata = split_request(payload.metadata, self.limits.composite_entries)
        except Violation as violation:
            raise Invalid(violation.reason, code=Code.INVALID, rule=violation.rule) from None
        if cursor is None:
            return self._inner(payload)  # type: ignore[no-any-return] # whatever the handler gives
        return self._answer(cursor, Payload(payload.data, metadata))

    # Answers.

    async def _answer(self, cursor: Read | Head, request: Payload) -> AsyncIterator[PayloadLike | list[PayloadLike]]:
        if cursor.shard:
            raise ApplicationError(UNKNOWN_SHARD, f"shard {cursor.shard} is unknown, there is only shard 0")
        try:
            feed = await self._feed(request)
            await self._acknowledge(feed, cursor)
            if isinstance(cursor, Head):
                yield await self._head(feed, cursor)
                return
            async with aclosing(self._read(feed, cursor)) as answers:
                async for items in answers:
                    yield items
        except JournalError as error:
            self._refuse_closed()
            raise _told(error) from error

    async def _acknowledge(self, feed: Feed, cursor: Read | Head) -> None:
        journal = feed.journal
        if cursor.epoch not in (0, journal.epoch):
            have = f"it is {journal.epoch} with offsets {journal.first} to {journal.head}"
            raise ApplicationError(EPOCH_CHANGED, f"epoch {cursor.epoch} was asked for at {_wanted(cursor)}, {have}")
        ahead = cursor.acknowledged if cursor.acknowledged > journal.head else _wanted(cursor)
        sealed = journal.sealed
        if ahead > journal.head and (cursor.epoch or sealed or ahead == cursor.acknowledged):
            raise ApplicationError(OFFSET_AHEAD, f"offset {ahead} is above the head, which is {journal.head}")
        if cursor.acknowledged > journal.first:
            await feed.trim(cursor.acknowledged)

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
        feed.told = True
        sealed = journal.sealed  # before the head: who sees it set has to see the last head
        state = State(
            epoch=journal.epoch, first=journal.first, head=journal.head, time_us=journal.time_us, sealed=sealed
        )
        return Payload(b"", encode_entry(state))

    async def _read(self, feed: Feed, cursor: Read) -> AsyncGenerator[list[PayloadLike], None]:
        journal = feed.journal
        offset = cursor.first
        end = offset + cursor.limit if cursor.limit else 1 << 63
        loop = asyncio.get_running_loop()
        while offset < end:
            self._refuse_closed()
            changed = feed.changed
            sealed = journal.sealed  # before the head: both change in another thread, the head first
            if offset < journal.head:
                feed.told = True
                blocks = await loop.run_in_executor(self._readers, journal.read, offset, end - offset, BLOCK_BYTES)
                offset = blocks[-1].end
                yield _items(blocks, journal.epoch)
            elif offset < journal.first:
                raise JournalGone(journal.path, f"offset {offset} was trimmed, the lowest left is {journal.first}")
            elif sealed:
                return
            elif feed.error is not None:
                raise await self._failure(feed)
            else:
                await changed.wait()

    async def _failure(self, feed: Feed) -> Exception:
        """What to tell a reader about a feed that failed; one that nobody will miss is removed."""
        error = feed.error
        if feed.void:
            await self._drop(feed, remove=True)
        return Error("the stream failed") if error is None else error.with_traceback(None)

    # Feeds: each is one task, that opens it or, later, another one that drops it.

    async def _feed(self, request: Payload) -> Feed:
        """The feed of a stream, open and, unless it is sealed, running."""
        key = _key(request)
        while True:
            self._refuse_closed()
            task = self._feeds.get(key)
            if task is None:
                task = self._put(key, self._open(key, request))
                if (feed := await asyncio.shield(task)) is not None:
                    return feed
            elif (feed := await asyncio.shield(task)) is None:
                continue
            elif feed.broken:
                await self._drop(feed)
            else:
                self._ensure_running(feed, request)
                return feed

    def _put(self, key: bytes, work: Coroutine[Any, Any, Feed | None]) -> asyncio.Task[Feed | None]:
        def forget(task: asyncio.Task[Feed | None]) -> None:
            gone = task.cancelled() or task.exception() is not None or task.result() is None
            if gone and self._feeds.get(key) is task:
                del self._feeds[key]

        task = self._feeds[key] = asyncio.create_task(work)
        task.add_done_callback(forget)
        return task

    async def _open(self, key: bytes, request: Payload) -> Feed:
        path = self.directory / f"{_prefix(request)}-{key.hex()[:32]}.journal"
        source = Source(lambda: self._inner(request))
        self._opening.add(path.name)
        try:
            if not path.exists():
                await source.begin()  # a stream that refuses at once leaves no file
                self._refuse_one_more()
            journal = await asyncio.get_running_loop().run_in_executor(
                self._writers, lambda: Journal(path, limits=self.limits, key=key, on_damage=self._on_damage)
            )
        except BaseException:
            await source.close()
            raise
        finally:
            self._opening.discard(path.name)
        feed = Feed(key, journal, self._writers, self._clock, self._linger_s)
        if not journal.sealed:
            feed.start(source, skip=self._skip(feed, request))
        return feed

    def _ensure_running(self, feed: Feed, request: Payload) -> None:
        if not feed.running and not feed.journal.sealed:
            feed.start(Source(lambda: self._inner(request)), skip=self._skip(feed, request))

    async def _drop(self, feed: Feed, *, remove: bool = False) -> None:
        task = self._feeds.get(feed.key)
        if task is not None and task.done() and task.result() is feed:
            await asyncio.shield(self._put(feed.key, feed.drop(remove=remove)))

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Rejected("the journals are being closed", code=Code.REJECTED)

    def _refuse_one_more(self) -> None:
        there = {path.name for path in self.directory.glob("*.journal")} if self.directory.exists() else set()
        if len(there | self._opening) > self._journals:
            word = "too-many-journals"
            raise Rejected(f"{word}: no further stream can be journalled here", code=Code.REJECTED, rule=word)

    def _skip(self, feed: Feed, request: Payload) -> int:
        replays = self._replays
        if replays is None:
            replays = getattr(self._handler.stream, "replays", getattr(self._handler, "replays", False))
        return feed.tail if (replays(request) if callable(replays) else replays) else 0

    def _inner(self, request: Payload) -> Any:
        stream = getattr(self._handler, "stream", None)
        if stream is None:
            raise Unsupported("this handler has no streams")
        return stream(request)


def _route_replays(router: Router, request: Payload) -> bool:
    function, _ = router.find("stream", route_of(request.metadata))
    return bool(getattr(function, "replays", False))


def _key(request: Payload) -> bytes:
    """Which stream a request means, as a digest: credentials are part of it, and stay off the disk."""
    others = compose((mime, value) for mime, value in _entries(request) if mime != TRACING_MIME)
    digest = hashlib.sha256(len(request.data).to_bytes(8, "big"))
    digest.update(request.data)
    digest.update(others)
    return digest.digest()


def _prefix(request: Payload) -> str:
    """What a person recognises the file by."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", route_of(request.metadata) or "").strip("-")[:40] or "stream"


def _entries(request: Payload) -> list[tuple[str, bytes]]:
    return list(entries(request.metadata, len(request.metadata))) if request.metadata else []


def _wanted(cursor: Read | Head) -> int:
    return cursor.first if isinstance(cursor, Read) else cursor.after


def _items(blocks: Sequence[Block], epoch: int) -> list[PayloadLike]:
    """Items as they are sent: a position on the first one and wherever the time changes."""
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
                epoch=epoch, offset=block.first + index, time_us=block.time_us, empty_metadata=own == b""
            )
            items[start + index] = Payload(data[index], with_position(position, own))
        time_us = block.time_us
    return items


def _told(error: JournalError) -> Error:
    """What a peer is told: the file's name, not where it lies."""
    text = f"{error.word} {error.path.name}: {error.reason}"
    if isinstance(error, JournalGone):
        return ApplicationError(OFFSET_GONE, error.reason, rule=error.word)
    if isinstance(error, (JournalLocked, JournalNoSpace, JournalFull)):
        return Rejected(text, code=Code.REJECTED, rule=error.word)
    return ApplicationError(JOURNAL_FAILED, text, rule=error.word)
