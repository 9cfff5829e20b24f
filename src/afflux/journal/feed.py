"""Fill a journal from a stream and notify its readers, on one event loop.

One task pulls the inner stream and appends small batches. It stops while the journal or its disk has no room, so that
the producer gets no more credit; it buffers at most a batch, or one item or list that is larger. Another task commits
the appended items in a worker thread, as soon as the previous commit is done if they are a block. Less waits for more:
``linger_s``, or as long as the previous commit took, so that small commits leave half of the disk's time to others.
Only committed items are visible, and they can be read while the producer waits.

An item that no reader could receive is refused: its error is raised in the inner stream where it yielded the item. If
the stream handles it, it continues; otherwise readers get the error after all items.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, monotonic_ns
from typing import Any, Final

from afflux.calls.arguments import awaits
from afflux.core.errors import Error
from afflux.core.payload import Payload, payload_of
from afflux.journal.blocks import BLOCK_OVERHEAD, ITEM_OVERHEAD
from afflux.journal.contract import Reader
from afflux.journal.errors import ItemTooLarge, JournalError, JournalFull, JournalLocked, JournalNoSpace
from afflux.journal.retention import Retention
from afflux.journal.store import BLOCK_BYTES, Journal

__all__ = ["Feed", "Source"]

_PENDING_BYTES = 4 * BLOCK_BYTES
"Bytes appended ahead of a commit."
_BATCH_BYTES = 0x8000
"Bytes of a batch; appending costs less for many items together."
_BATCH_ITEMS = 0x400
"Items of a batch."
_RETRY_S = 1.0
"Seconds after which a commit is repeated on a full disk, and a full journal looks for trims of other processes."
_SLACK_BYTES = 0x4000000
"The most bytes above a retention's size before a commit trims, because each trim waits for the disk."
_LINGER_MAX_S = 0.1
"The most seconds that items wait for others because the previous commit was slow."
_log = logging.getLogger("afflux.journal")
END: Final = object()
"Returned after the last item."


class Source:
    """The inner stream, pulled step by step."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._items: AsyncIterator[Any] | None = None
        self._next: asyncio.Future[Any] | None = None

    async def begin(self) -> None:
        """Start the stream and let it run until it first waits.

        Raises:
            Exception: the error of the stream until then, for example an unknown route.
        """
        if self._items is not None:
            return
        started = self._start()
        self._items = aiter(await started if awaits(started) else started)
        self._next = asyncio.ensure_future(self._step())
        await asyncio.sleep(0)
        if self._next.done():
            self._next.result()

    async def first(self) -> Any:
        """Return the first item, or END."""
        await self.begin()
        step, self._next = self._next, None
        return END if step is None else await step

    async def refuse(self, error: Exception) -> Any:
        """Raise ``error`` in the stream; return the next item, or END.

        Raises:
            Exception: ``error``, if the stream does not handle it, or the one that the stream raises.
        """
        throw = getattr(self._items, "athrow", None)
        if throw is None:
            raise error
        try:
            return await throw(error)
        except StopAsyncIteration:
            return END

    def next(self) -> Awaitable[Any]:
        """Return the next item, or END, after ``first`` was awaited."""
        if self._items is None:
            raise RuntimeError("the stream has not started")
        return anext(self._items, END)

    async def close(self) -> None:
        """Close the stream in any state."""
        if self._next is not None:
            self._next.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._next
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()

    async def _step(self) -> Any:
        return await self.next()


class Feed:
    """A journal with readers and, while it runs, a writer."""

    def __init__(
        self,
        key: bytes,
        journal: Journal,
        writers: Executor,
        clock: Callable[[], int],
        linger_s: float,
        retention: Retention | None = None,
    ) -> None:
        self.key = key
        self.journal = journal
        self.changed = asyncio.Event()
        "Set and replaced at each change: read it before the journal, then wait for it."
        self.error: Exception | None = None
        "The error that stopped the writer; None while it runs and after completion."
        self.epoch_disclosed = False
        "True after a reader has received the epoch."
        self._writers = writers
        self._clock = clock
        self._linger_s = linger_s
        self._retention = retention
        self._steady = _steady(clock())
        self._task: asyncio.Task[None] | None = None
        self._batch: list[Payload | bytes] = []
        self._dirty = asyncio.Event()
        self._full = asyncio.Event()
        self._stalls: dict[type[JournalError], JournalError] = {}

    @property
    def running(self) -> bool:
        """Whether the inner stream is being pulled."""
        return self._task is not None and not self._task.done()

    @property
    def stall(self) -> JournalError | None:
        """The reason why the inner stream waits for room: a full disk or a full journal; None if it does not."""
        return next(iter(self._stalls.values()), None)

    @property
    def broken(self) -> bool:
        """Whether the journal must be opened again, because its disk failed, other than by being full or busy."""
        return isinstance(self.error, JournalError) and not isinstance(
            self.error, (ItemTooLarge, JournalFull, JournalLocked, JournalNoSpace)
        )

    @property
    def tail(self) -> int:
        """The number of items ever pulled, durable or not."""
        return self.journal.tail + len(self._batch)

    @property
    def discardable(self) -> bool:
        """Whether the journal can be removed: the writer failed before the first item, and no reader has its epoch."""
        return self.error is not None and not self.running and not self.epoch_disclosed and self.tail == 0

    def start(self, source: Source, *, replays: bool) -> None:
        """Start to fill the journal from ``source``, which begins with the stored items if it ``replays``."""
        self.error = None
        self._task = asyncio.create_task(self._fill(source, replays))

    async def retain(self) -> None:
        """Trim what the retention does not keep."""
        if self._retention is not None:
            await self._trimmed(self.journal.retain, self._retention, self._steady())

    async def acknowledge(self, reader: Reader, offset: int) -> None:
        """Drop items below ``offset`` for ``reader``, and wake a writer that waits for room."""
        await self._trimmed(self.journal.acknowledge, reader, offset)

    async def _trimmed(self, work: Callable[..., object], *args: object) -> None:
        before = self.journal.first
        await self._run(work, *args)
        if self.journal.first != before:
            self._dirty.set()
            self._notify()

    async def stop(self, reason: Exception, *, remove: bool = False) -> None:
        """Stop the writer, fail the waiting readers with ``reason``, and close or remove the journal."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with suppress(JournalError):
            self._append_if_room()
        self.error = reason
        self._notify()
        await self._run(self.journal.remove if remove else self.journal.close)

    async def drop(self, *, remove: bool) -> None:
        """Stop a failed feed."""
        with suppress(JournalError):
            await self.stop(self.error or Error("the stream failed"), remove=remove)

    async def _fill(self, source: Source, replays: bool) -> None:
        pull = asyncio.create_task(self._pull(source, replays))
        commit = asyncio.create_task(self._commit())
        try:
            await asyncio.wait({pull, commit}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pull.cancel()
            commit.cancel()
            pulled, committed = await asyncio.gather(pull, commit, return_exceptions=True)
        try:
            if isinstance(committed, Exception):
                raise committed
            await self._durably(self.journal.seal if pulled is None else self.journal.commit)
            await self._retain_size()
            if isinstance(pulled, Exception):
                raise pulled
        except Exception as error:
            self.error = error
        self._notify()

    async def _pull(self, source: Source, replays: bool) -> None:
        try:
            await self._pull_all(source, replays)
        except Exception:
            await self._append_batch()
            raise
        finally:
            await source.close()

    async def _pull_all(self, source: Source, replays: bool) -> None:
        most = min(_BATCH_BYTES, self.journal.limits.journal_bytes // 8)
        skip = self.tail if replays else 0
        size = 0
        item = await source.first()
        while item is not END:
            items = _payloads(item)
            if skip:
                skip, items = max(0, skip - len(items)), items[skip:]
            if (refused := _first_too_large(items, self.journal.item_bytes)) is not None:
                size = 0
                self._batch += items[:refused]
                await self._append_batch()
                item = await self._refuse(source, len(items[refused]), replays)
                continue
            self._batch += items
            size += sum(map(len, items))
            charge = size + ITEM_OVERHEAD * len(self._batch) + BLOCK_OVERHEAD
            if size >= most or len(self._batch) >= _BATCH_ITEMS or charge > self.journal.room:
                size = 0
                await self._append_batch()
                while self.journal.room <= 0:
                    await self._wait_for_room(self.changed, JournalFull.of(self.journal.path, self.journal.limits))
                while self.journal.pending >= _PENDING_BYTES:
                    await self.changed.wait()
            elif self._batch:
                self._dirty.set()
            item = await source.next()
        await self._append_batch()

    async def _refuse(self, source: Source, size: int, replays: bool) -> Any:
        """Raise the refusal of an item in the stream; return its next item. The rest of a list is not stored.

        A stream that replays may not continue: after a restart its items would have other numbers.
        """
        self.journal.refused += 1
        error = self.journal.too_large(size)
        _log.warning("journal %s: %s", self.journal.path, error.reason)
        if replays:
            raise error
        return await source.refuse(error)

    async def _append_batch(self) -> None:
        """Append all that was pulled, in as many parts as there is room for, waiting for more room."""
        count = len(self._batch)
        while self._batch:
            changed = self.changed
            try:
                self.journal.append(self._batch[:count], self._clock())
                del self._batch[:count]
                count = len(self._batch)
            except JournalFull as full:
                if count > 1:
                    count //= 2
                    continue
                if self.journal.room == self.journal.limits.journal_bytes:
                    raise  # the item does not fit into an empty journal
                if self.journal.pending:
                    self._dirty.set()
                await self._wait_for_room(changed, full)
                count = len(self._batch)
        self._dirty.set()
        if self.journal.pending >= BLOCK_BYTES:
            self._full.set()

    async def _wait_for_room(self, changed: asyncio.Event, cause: JournalError) -> None:
        if self.journal.pending:
            await changed.wait()  # what waits for the disk may be trimmed soon
            return
        retention, limits = self._retention, self.journal.limits
        if retention is not None and retention.size is not None:
            room = min(_PENDING_BYTES, limits.journal_bytes // 8)
            if self._batch:
                room = max(room, len(self._batch[0]) + ITEM_OVERHEAD + BLOCK_OVERHEAD)
            await self._trimmed(self.journal.retain, retention, self._steady(), room)
        if not changed.is_set():
            full = self.journal.room
            with self._stalled(cause):
                while self.journal.room <= full:
                    changed = self.changed
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_RETRY_S):
                            await changed.wait()
                    if not changed.is_set():
                        await self._trimmed(self.journal.refresh)  # another process may have trimmed

    @contextmanager
    def _stalled(self, cause: JournalError) -> Iterator[None]:
        """Record and log that the inner stream waits, and that it does not wait any more."""
        _log.warning("journal %s: %s; its stream waits", self.journal.path, cause.reason)
        self._stalls[type(cause)] = cause
        try:
            yield
        finally:
            del self._stalls[type(cause)]
            _log.info("journal %s: its stream continues", self.journal.path)

    def _append_if_room(self) -> None:
        """Append the batch if there is room for all of it; otherwise it is appended after a trim."""
        if self._batch:
            with suppress(JournalFull):
                self.journal.append(self._batch, self._clock())
                self._batch = []

    async def _commit(self) -> None:
        linger_s = self._linger_s
        while True:
            await self._dirty.wait()
            if linger_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(linger_s):
                        await self._full.wait()
            self._dirty.clear()
            self._full.clear()
            self._append_if_room()
            begun = monotonic()
            await self._durably(self.journal.commit)
            if self._linger_s:
                linger_s = max(self._linger_s, min(monotonic() - begun, _LINGER_MAX_S))
            self._notify()
            await self._retain_size()

    async def _retain_size(self) -> None:
        size = None if self._retention is None else self._retention.size
        if size is not None and self.journal.size > size + min(size // 32, _SLACK_BYTES):
            await self.retain()

    async def _durably(self, work: Callable[[], object]) -> None:
        """Run a commit; while the disk is full, again after each trim and every ``_RETRY_S`` seconds."""
        with ExitStack() as stalled:
            while True:
                self._dirty.clear()
                try:
                    await self._run(work)
                    return
                except JournalNoSpace as error:
                    if not self._stalls.get(JournalNoSpace):
                        stalled.enter_context(self._stalled(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_S):
                        await self._dirty.wait()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def _run(self, work: Callable[..., object], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writers, work, *args)


def _steady(start_us: int) -> Callable[[], int]:
    """Return a clock that starts at ``start_us`` and does not step."""
    started = monotonic_ns()
    return lambda: start_us + (monotonic_ns() - started) // 1000


def _payloads(item: Any) -> list[Payload | bytes]:
    """Return the items of a value that a stream yielded: one item, or a list of items."""
    if type(item) is bytes or type(item) is Payload:
        return [item]
    if type(item) is not list:
        return [payload_of(item)]
    return item if set(map(type, item)) <= {bytes, Payload} else [payload_of(value) for value in item]


def _first_too_large(items: list[Payload | bytes], most: int) -> int | None:
    """Return the index of the first item above ``most`` bytes."""
    if max(map(len, items), default=0) <= most:
        return None
    return next(index for index, item in enumerate(items) if len(item) > most)
