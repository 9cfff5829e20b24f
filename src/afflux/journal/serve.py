"""Serve streams by cursor from journals.

A REQUEST_STREAM with a cursor entry is answered from the journal of that stream; all other requests go to the inner
handler. A stream is identified by the request's data and its metadata without the cursor and without tracing, so
that users with different credentials never share a journal, and a new token starts a new one. Only a digest of them is
stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from afflux.aio.current import mime_types
from afflux.aio.verbs import verbs_of
from afflux.calls.arguments import AsyncOnly
from afflux.core.errors import ApplicationError, Invalid, Rejected, Unsupported, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike
from afflux.journal.answers import Answers, wire_error
from afflux.journal.database import OnDamage
from afflux.journal.errors import JournalError
from afflux.journal.feed import Feed, Source
from afflux.journal.places import place_of
from afflux.journal.retention import Retention, retain_regularly
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.cursor import (
    UNKNOWN_SHARD,
    Request,
    split_request,
)
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, TRACING_MIME, compose, entries, route_of
from afflux.router import Router

__all__ = ["Journalled"]

_VERBS = frozenset({"request", "fire", "channel", "push"})


_T = TypeVar("_T")


def _now_us() -> int:
    return time.time_ns() // 1000


class Journalled(AsyncOnly):
    """A handler that answers as ``handler`` does and also serves its streams by cursor.

    Close it after the server: ``async with Journalled(inner, "journals") as handler, afflux.serve(uri, handler):``

    Args:
        handler: any handler with the verb ``stream``.
        directory: the directory of the journals, with one file for each stream; created if it is missing. Or an address
            ``nats://host/STREAM``: the journals are streams whose names begin with ``STREAM-``.
        limits: ``journal_bytes`` bounds each journal, ``payload_bytes`` each item.
        keep: what to keep; older items are trimmed. Without it, only the acknowledgements of one reader trim.
        replays: whether a stream always starts with its first item, so that journalled items must be skipped: True,
            False, or a function of the request. None uses the attribute ``replays`` of the handler's ``stream`` (of a
            router's function for that route) or of the handler; without it, items after a restart are appended.
        journals: the most journals in the directory; a request that needs another is refused.
        linger_s: seconds that an item waits for others before it is committed, or longer on a slow disk: as long as the
            previous commit took, at most 0.1 s. 0 commits at once.
        on_damage: as in :class:`Journal`.
        clock: returns microseconds since 1970 (UTC), for timestamps only.
    """

    def __init__(
        self,
        handler: Any,
        directory: str | Path,
        *,
        limits: Limits | None = None,
        keep: Retention | None = None,
        replays: bool | Callable[[Payload], bool] | None = None,
        journals: int = 64,
        linger_s: float = 0.005,
        on_damage: OnDamage = "refuse",
        clock: Callable[[], int] = _now_us,
    ) -> None:
        if isinstance(handler, type):
            verbs_of(handler)  # refuses a class in place of its object
        self._place = place_of(directory)
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
        self._answers = Answers(partial(self._drop, remove=True))
        self._keep = keep
        self._retaining: asyncio.Task[None] | None = None

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

    async def prepare(self) -> None:
        """Fail now if the journals cannot be stored: create the directory, or connect to the servers.

        Raises:
            OSError: the directory cannot be created.
            JournalError: the servers cannot be used.
        """
        await self._run(self._place.prepare)

    async def close(self) -> None:
        """End every inner stream, commit, and close the journals. Waiting readers get REJECTED."""
        self._answers.close()
        if self._retaining is not None:
            self._retaining.cancel()
            await asyncio.wait({self._retaining})
        opened = [task for task in self._feeds.values() if task.done()]
        opening = [task for task in self._feeds.values() if not task.done()]
        await _stop(opened)
        await asyncio.to_thread(self._place.close)  # fails an opening that waits for servers that are away
        await _stop(opening)
        self._feeds.clear()
        self._writers.shutdown(wait=False)

    def stream(self, payload: Payload) -> AsyncIterator[PayloadLike | Sequence[PayloadLike]]:
        """Answer a REQUEST_STREAM: with a cursor in lists of items, else as the inner handler does.

        Raises:
            Invalid: the cursor breaks a rule.

        Iterating raises:
            Rejected: the journal is not available: locked, without space, or one too many.
            ApplicationError: with one of the codes of :mod:`afflux.protocols.rsocket.cursor`.
            Exception: the error of the inner stream, after all its items.
        """
        if mime_types()[0] not in (None, COMPOSITE_MIME):
            return self._inner(payload)  # type: ignore[no-any-return] # a cursor is an entry of composite metadata
        try:
            cursor, metadata = split_request(payload.metadata, self.limits.composite_entries)
        except Violation as violation:
            raise Invalid(violation.reason, code=Code.INVALID, rule=violation.rule) from None
        if cursor is None:
            return self._inner(payload)  # type: ignore[no-any-return] # the handler is untyped
        return self._answer(cursor, Payload(payload.data, metadata))

    # Answers.

    async def _answer(self, cursor: Request, request: Payload) -> AsyncIterator[PayloadLike | list[PayloadLike]]:
        if cursor.shard:
            raise ApplicationError(UNKNOWN_SHARD, f"unknown shard {cursor.shard}; the only shard is 0")
        try:
            feed = await self._feed(request)
        except JournalError as error:
            self._answers.check_open()
            raise wire_error(error) from error
        async with aclosing(self._answers.answer(feed, cursor)) as answers:
            async for items in answers:
                yield items

    # Feeds: each is the result of the task that opens it; another task that drops it may replace that one.

    async def _feed(self, request: Payload) -> Feed:
        """Return the feed of a stream, open and, unless it is sealed, running."""
        key = _key(request)
        while True:
            self._answers.check_open()
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
        name = f"{_prefix(request)}-{key.hex()[:32]}"
        source = Source(lambda: self._inner(request))
        self._opening.add(name)
        try:
            if name not in (names := await self._run(self._place.names)):
                await source.begin()  # a stream that refuses immediately leaves no journal
                self._check_count(names)
            opening = partial(self._place.open, name, limits=self.limits, key=key, on_damage=self._on_damage)
            journal = await self._run(opening)
        except BaseException:
            await source.close()
            raise
        finally:
            self._opening.discard(name)
        feed = Feed(key, journal, self._writers, self._clock, self._linger_s, self._keep)
        if not journal.sealed:
            feed.start(source, replays=self._is_replayed(request))
        if self._retaining is None and self._keep is not None:
            self._retaining = asyncio.create_task(retain_regularly(self._keep, self._open_feeds))
        return feed

    def _open_feeds(self) -> Iterator[Feed]:
        for task in list(self._feeds.values()):
            if task.done() and not task.cancelled() and not task.exception() and (feed := task.result()) is not None:
                yield feed

    def _ensure_running(self, feed: Feed, request: Payload) -> None:
        if not feed.running and not feed.journal.sealed:
            feed.start(Source(lambda: self._inner(request)), replays=self._is_replayed(request))

    async def _drop(self, feed: Feed, *, remove: bool = False) -> None:
        task = self._feeds.get(feed.key)
        if task is not None and task.done() and task.result() is feed:
            await asyncio.shield(self._put(feed.key, feed.drop(remove=remove)))

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._writers, work)

    def _check_count(self, names: set[str]) -> None:
        if len(names | self._opening) > self._journals:
            word = "too-many-journals"
            raise Rejected(f"{word}: at most {self._journals}", code=Code.REJECTED, rule=word)

    def _is_replayed(self, request: Payload) -> bool:
        replays = self._replays
        if replays is None:
            replays = getattr(self._handler.stream, "replays", getattr(self._handler, "replays", False))
        return bool(replays(request) if callable(replays) else replays)

    def _inner(self, request: Payload) -> Any:
        stream = getattr(self._handler, "stream", None)
        if stream is None:
            raise Unsupported("the handler does not support streams")
        return stream(request)


async def _stop(tasks: Iterable[asyncio.Task[Feed | None]]) -> None:
    """Stop the feeds of tasks, when they are opened."""
    for task in tasks:
        with suppress(Exception):
            if (feed := await asyncio.shield(task)) is not None:
                await feed.stop(Rejected("the journals are being closed", code=Code.REJECTED))


def _route_replays(router: Router, request: Payload) -> bool:
    function, _ = router.find("stream", route_of(request.metadata))
    return bool(getattr(function, "replays", False))


def _key(request: Payload) -> bytes:
    """Return the digest that identifies the stream of a request, so that credentials are not stored."""
    others = compose((mime, value) for mime, value in _entries(request) if mime != TRACING_MIME)
    digest = hashlib.sha256(len(request.data).to_bytes(8, "big"))
    digest.update(request.data)
    digest.update(others)
    return digest.digest()


def _prefix(request: Payload) -> str:
    """Return a readable prefix for the name of the file."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", route_of(request.metadata) or "").strip("-")[:40] or "stream"


def _entries(request: Payload) -> list[tuple[str, bytes]]:
    return list(entries(request.metadata, len(request.metadata))) if request.metadata else []
