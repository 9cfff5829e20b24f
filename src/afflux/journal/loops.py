"""Run coroutines for callers without an event loop: in a thread of its own, or while the caller waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar, cast

__all__ = ["CallerLoop", "Closed", "Loop", "Started", "ThreadLoop"]

_T = TypeVar("_T")

Started = Future[_T] | asyncio.Task[_T]
"A coroutine that was started. ``cancel`` may be called on it; ``Loop.result`` waits for it."


class Closed(Exception):  # noqa: N818 -- its caller finds the error
    """The loop was closed before the coroutine had ended."""


class Loop(Protocol):
    """Runs coroutines."""

    def start(self, work: Coroutine[Any, Any, _T]) -> Started[_T]:
        """Start a coroutine.

        Raises:
            Closed: the loop is closed.
        """
        ...

    def result(self, started: Started[_T]) -> _T:
        """Return the result of a coroutine. Raises what it raises.

        Raises:
            Closed: the loop was closed meanwhile.
        """
        ...

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run ``last``, which cancels all others, and close the loop. Idempotent."""


class ThreadLoop:
    """A loop in a thread of its own. Any thread may use it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="afflux-loop", daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, _T]) -> Started[_T]:
        """Start a coroutine: see ``Loop``."""
        with self._closing:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise Closed

    def result(self, started: Started[_T]) -> _T:
        """Return the result of a coroutine: see ``Loop``."""
        try:
            return cast(Future[_T], started).result()
        except CancelledError:
            raise Closed from None
        except BaseException:
            started.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Close the loop: see ``Loop``."""
        with self._closing:
            closed, self._closed = self._closed, True
        if closed:
            last.close()
            return
        asyncio.run_coroutine_threadsafe(last, self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class CallerLoop:
    """A loop that runs while its caller waits for a result: cheaper than a thread, and idle in between. For one thread,
    in which no other loop runs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def start(self, work: Coroutine[Any, Any, _T]) -> Started[_T]:
        """Start a coroutine: see ``Loop``. It runs as soon as the caller waits."""
        if self._loop.is_closed():
            work.close()
            raise Closed
        return self._loop.create_task(work)

    def result(self, started: Started[_T]) -> _T:
        """Return the result of a coroutine: see ``Loop``."""
        if self._loop.is_closed():
            raise Closed
        try:
            return self._loop.run_until_complete(cast(asyncio.Task[_T], started))
        except BaseException:
            started.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Close the loop: see ``Loop``."""
        if self._loop.is_closed():
            last.close()
            return
        self._loop.run_until_complete(last)
        self._loop.close()
