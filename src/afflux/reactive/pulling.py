"""A subscription that pulls from an async iterator: demand becomes ``anext``. What the iterator is, others know.

1. A subscription costs one task, from its first request until its end.
2. An item is pulled when it was asked for. With ``ahead`` one more is: to tell the end without a further request; an
   item that is found instead waits for demand.
3. A subscription that is over has closed what it was pulling from.
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
"Signals between two turns of the loop: what ``limits.loop_frames`` is to a connection."

_STOPS = (KeyboardInterrupt, SystemExit)

_tasks: set[asyncio.Task[None]] = set()
"The tasks of all subscriptions: an event loop holds on to none."


class Pulled(Link[T]):
    """A subscription to an async iterator. It closes the iterator; one that it never pulled from stays as it is.

    Args:
        ahead: tell the end as soon as it can be known.
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
        self._go()

    def halt(self) -> None:
        """See Link. A wait for the next item is canceled."""
        if self._task is not None:
            if self._pulling:
                self._task.cancel()
            else:
                self._go()

    def look_ahead(self) -> None:
        """Find out now whether the end has come."""
        self._ahead = True
        if not self.over:
            self._go()

    async def close(self) -> None:
        """Close the iterator."""
        if (aclose := getattr(self._items, "aclose", None)) is not None:
            await aclose()

    # -- inside -----------------------------------------------------------------------------------------------

    def _go(self) -> None:
        """Start the task, or let it look again."""
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
            self.fail(Canceled("the task of the publisher was canceled"))  # when it is over: by halt
        except Exception as error:
            self.fail(error)
        except _STOPS:
            self.fail(RuntimeError("the program is about to end"))
            raise
        finally:
            try:
                await self.close()
            except Exception as error:
                log.error("afflux: the source of a publisher could not be closed", exc_info=error)

    async def _pump(self) -> None:
        burst = 0
        while await self._may(pull=True):
            item = await self._pull()
            if not await self._may(pull=False):
                return
            self.next(item)
            burst += 1
            if burst == BURST:
                burst = 0
                await asyncio.sleep(0)

    async def _may(self, *, pull: bool) -> bool:
        """Wait until an item may be pulled, or signalled; False when nothing is wanted any more."""
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
        task.exception()  # an interrupt, which the loop has raised already: not for its log
