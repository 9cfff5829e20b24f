"""Pull items from an async iterator on demand.

1. A subscription needs one task, from its first request until its end.
2. A requested item is pulled. With ``ahead`` another item is pulled, to detect the end without a further request; if
   there is an item, it waits for demand.
3. At its end, a subscription closes the iterator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from afflux.core.errors import Canceled
from afflux.reactive.contracts import Subscriber
from afflux.reactive.links import Link, log

__all__ = ["BURST", "Pulled"]

T = TypeVar("T")

BURST = 256
"The most signals in one turn of the loop, as ``limits.loop_frames`` for a connection."

_STOPS = (KeyboardInterrupt, SystemExit)

_tasks: set[asyncio.Task[None]] = set()
"The tasks of all subscriptions, because an event loop has only weak references to tasks."


class Pulled(Link[T]):
    """A subscription to an async iterator, which it closes unless it never pulled from it.

    Args:
        ahead: signal the end as soon as it can be detected.
    """

    def __init__(self, subscriber: Subscriber[T], items: AsyncIterator[T], *, ahead: bool = False) -> None:
        super().__init__(subscriber)
        self._items = items
        self._ahead = ahead
        self._task: asyncio.Task[None] | None = None
        self._pulling = False
        self._idle: asyncio.Future[None] | None = None

    def wanted(self) -> None:
        """See Link."""
        self._wake()

    def halt(self) -> None:
        """See Link. A wait for the next item is canceled."""
        if self._task is not None:
            if self._pulling:
                self._task.cancel()
            else:
                self._wake()

    def look_ahead(self) -> None:
        """Detect the end without demand from now on."""
        self._ahead = True
        if not self.over:
            self._wake()

    async def close(self) -> None:
        """Close the iterator."""
        if (aclose := getattr(self._items, "aclose", None)) is not None:
            await aclose()

    # -- inside -----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Start the task, or wake it."""
        if self._task is None:
            self._task = self.home.loop.create_task(self._run())
            _tasks.add(self._task)
            self._task.add_done_callback(_done)
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _run(self) -> None:
        try:
            await self._pump()
        except StopAsyncIteration:
            self.complete()
        except asyncio.CancelledError:
            self.fail(Canceled("the task of the publisher was canceled"))  # no-op after halt
        except Exception as error:
            self.fail(error)
        except _STOPS:
            self.fail(RuntimeError("the program is exiting"))
            raise
        finally:
            try:
                await self.close()
            except Exception as error:
                log.error("afflux: the source of a publisher could not be closed", exc_info=error)

    async def _pump(self) -> None:
        burst = 0
        while await self._wait(pull=True):
            item = await self._pull()
            if not await self._wait(pull=False):
                return
            self.next(item)
            burst += 1
            if burst == BURST:
                burst = 0
                await asyncio.sleep(0)

    async def _wait(self, *, pull: bool) -> bool:
        """Wait until an item may be pulled, or signalled; return False after the end."""
        while not self.over:
            if self.demand or (pull and self._ahead):
                return True
            self._idle = self.home.loop.create_future()
            try:
                await self._idle
            finally:
                self._idle = None
        return False

    async def _pull(self) -> T:
        self._pulling = True
        try:
            return await self._items.__anext__()
        finally:
            self._pulling = False


def _done(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # retrieve an interrupt, which the loop has already raised, so that it is not logged
