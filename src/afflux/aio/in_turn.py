"""Call the handlers of a connection's push and extensions, one at a time, in the order of the wire."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from afflux.aio.requests import awaited
from afflux.aio.slots import Slots

__all__ = ["CallsInTurn"]


class CallsInTurn:
    """Calls that run one after another. Reading pauses while too many of them wait."""

    __slots__ = ("_slots", "_task", "_waiting")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: deque[Callable[[], Any]] | tuple[()] = ()
        self._task: asyncio.Task[None] | None = None

    def add(self, call: Callable[[], Any]) -> None:
        """Queue one more call."""
        driver = self._slots.driver
        self._waiting = self._waiting or deque()
        self._waiting.append(call)
        if self._task is None:
            self._task = driver.tasks.spawn(self._run(), self._slots.context.copy())
        if len(self._waiting) >= driver.engine.limits.metadata_push_queue:
            driver.input.on_hold = True

    def stop(self) -> None:
        """Drop the calls that wait."""
        if self._waiting:
            self._waiting.clear()

    async def _run(self) -> None:
        driver = self._slots.driver
        try:
            while self._waiting:
                call = self._waiting.popleft()
                try:
                    await awaited(call())
                except Exception as error:
                    driver.state.log_failure("afflux: a handler of push or of an extension raised", error)
                if driver.input.on_hold:
                    driver.input.on_hold = False
                    driver.input.check()
        finally:
            self._task = None
