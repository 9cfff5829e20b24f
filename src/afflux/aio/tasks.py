"""Start the tasks of one connection, cancel each at most once, and wait for their end when the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final

from afflux.aio.state import State

__all__ = ["TASK_FAILED", "Tasks"]

TASK_FAILED: Final = "afflux: a handler's task failed"
"What is logged for an exception that nothing else reports."


class Tasks:
    """The tasks of one connection."""

    __slots__ = ("_state", "running")

    def __init__(self, state: State) -> None:
        self._state = state
        self.running: dict[asyncio.Task[Any], int] = {}
        "The stream that each task serves, 0 if there is no stream; ``~stream`` when the task was canceled."

    def spawn(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None, stream: int = 0
    ) -> asyncio.Task[Any]:
        """Start a task. The driver's owner is notified when a task for a ``stream`` ends."""
        loop = self._state.loop
        task = loop.create_task(work) if context is None else loop.create_task(work, context=context)
        self.running[task] = stream
        task.add_done_callback(self._done)
        return task

    def serves(self, task: asyncio.Task[Any], stream: int) -> None:
        """A task of ``spawn`` that served no stream serves ``stream`` until it ends."""
        self.running[task] = ~stream if self.running.get(task, 0) else stream

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task of ``spawn``, once: a second cancel would interrupt its orderly end."""
        if (stream := self.running.get(task, -1)) >= 0:
            self.running[task] = ~stream
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        stream, driver = self.running.pop(task, 0), self._state.driver
        if stream and stream != -1:
            driver.owner.task_ended(max(stream, ~stream), task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._state.log_failure(TASK_FAILED, error)
        if self._state.lost:
            driver.check_finished()
