"""One journal, the task that fills it, and those who wait for it. Runs on one event loop; knows no cursors.

A feed is filled by two tasks. One pulls the inner stream and appends: it stops pulling while the journal has no
room, so whoever produces gets no more credit; beside the journal it holds one item (or one list, if the stream
yields lists) at most. The other commits what was appended, in a worker thread: as soon as the commit before is
done, or ``linger_s`` later when there is less than a block. Only then is an item visible.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from afflux.core.payload import PayloadLike
from afflux.journal.errors import JournalError, JournalFull, JournalLocked, JournalNoSpace
from afflux.journal.store import BLOCK_BYTES, Journal

__all__ = ["Feed", "Source"]

_PENDING_BYTES = 4 * BLOCK_BYTES
"How much is appended ahead of a commit."
_END: Final = object()


class Source:
    """The inner stream, pulled one step at a time."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._items: AsyncIterator[Any] | None = None
        self._next: asyncio.Future[Any] | None = None

    async def begin(self) -> None:
        """Start the stream and let it run until it first waits.

        Raises:
            Exception: what the stream raised until then, such as that there is no such route.
        """
        if self._items is not None:
            return
        started = self._start()
        self._items = aiter(await started if inspect.isawaitable(started) else started)
        self._next = asyncio.ensure_future(self._step())
        await asyncio.sleep(0)
        if self._next.done():
            self._next.result()

    async def pull(self) -> list[PayloadLike] | None:
        """The next items, or None after the last."""
        await self.begin()
        step, self._next = self._next, None
        item = await (self._step() if step is None else step)
        if item is _END:
            return None
        return item if isinstance(item, list) else [item]

    async def close(self) -> None:
        """End the stream, wherever it is."""
        if self._next is not None:
            self._next.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._next
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()

    async def _step(self) -> Any:
        if self._items is None:
            return _END
        return await anext(self._items, _END)


class Feed:
    """A journal with readers and, while it runs, a writer."""

    def __init__(self, journal: Journal, writers: Executor, clock: Callable[[], int], linger_s: float) -> None:
        self.journal = journal
        self.changed = asyncio.Event()
        "Set, and replaced, at each change: take it, look at the journal, then wait for it."
        self.error: Exception | None = None
        "Why the writer stopped; None while it runs and when it completed."
        self.told = False
        "Whether somebody has learned the epoch."
        self._writers = writers
        self._clock = clock
        self._linger_s = linger_s
        self._task: asyncio.Task[None] | None = None
        self._dirty = asyncio.Event()
        self._full = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether the inner stream is being pulled."""
        return self._task is not None and not self._task.done()

    @property
    def broken(self) -> bool:
        """Whether the journal has to be opened anew: its disk failed, other than by being full or busy."""
        return isinstance(self.error, JournalError) and not isinstance(
            self.error, (JournalFull, JournalLocked, JournalNoSpace)
        )

    @property
    def void(self) -> bool:
        """Whether the writer failed before the first item, and nobody will miss the journal."""
        return self.error is not None and not self.running and not self.told and self.journal.tail == 0

    def start(self, source: Source, *, skip: int) -> None:
        """Fill the journal from ``source``, without its first ``skip`` items."""
        self.error = None
        self._task = asyncio.create_task(self._fill(source, skip))

    async def trim(self, offset: int) -> None:
        """Drop what lies below ``offset``; wakes a writer that waits for room."""
        await self._run(self.journal.trim, offset)
        self._notify()

    async def stop(self, reason: Exception) -> None:
        """End the writer and tell ``reason`` to whoever waits; then close the journal."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.error = reason
        self._notify()
        await self._run(self.journal.close)

    async def _fill(self, source: Source, skip: int) -> None:
        pull = asyncio.create_task(self._pull(source, skip))
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
            await self._run(self.journal.seal if pulled is None else self.journal.commit)
            if isinstance(pulled, Exception):
                raise pulled
        except Exception as error:
            self.error = error
        self._notify()

    async def _pull(self, source: Source, skip: int) -> None:
        try:
            while (items := await source.pull()) is not None:
                if skip:
                    passed = min(skip, len(items))
                    skip -= passed
                    items = items[passed:]
                if items:
                    await self._append(items)
                    await self._until(lambda: self.journal.room > 0 and self.journal.pending < _PENDING_BYTES)
        finally:
            await source.close()

    async def _append(self, items: list[PayloadLike]) -> None:
        try:
            self.journal.append(items, self._clock())
        except JournalFull:
            if len(items) > 1:
                await self._append(items[: len(items) // 2])
                await self._append(items[len(items) // 2 :])
                return
            if self.journal.room == self.journal.limits.journal_bytes:
                raise  # it would not fit an empty journal
            room = self.journal.room
            await self._until(lambda: self.journal.room > room)
            await self._append(items)
            return
        self._dirty.set()
        if self.journal.pending >= BLOCK_BYTES:
            self._full.set()

    async def _commit(self) -> None:
        while True:
            await self._dirty.wait()
            if self._linger_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._linger_s):
                        await self._full.wait()
            self._dirty.clear()
            self._full.clear()
            await self._run(self.journal.commit)
            self._notify()

    async def _until(self, ready: Callable[[], bool]) -> None:
        while True:
            changed = self.changed
            if ready():
                return
            await changed.wait()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def _run(self, work: Callable[..., object], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writers, work, *args)
