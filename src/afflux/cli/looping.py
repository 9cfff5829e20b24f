"""Run a command's coroutine, which SIGINT cancels between two callbacks of the event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

__all__ = ["run_loop"]

_T = TypeVar("_T")


def run_loop(job: Coroutine[Any, Any, _T]) -> _T:
    """Run a job as ``asyncio.run`` does, but let a callback of the loop handle SIGINT.

    The handler of ``asyncio.run`` cancels the job in the middle of any callback. A callback that has just looked at its
    future then sets the result of a canceled one, and the loop logs InvalidStateError with a traceback. A second
    SIGINT raises KeyboardInterrupt at once, as there.
    """
    handled = threading.current_thread() is threading.main_thread()
    handled = handled and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return asyncio.run(_canceled_by_callback(job) if handled else job)


async def _canceled_by_callback(job: Coroutine[Any, Any, _T]) -> _T:
    loop, handler = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted or not callable(handler):
            raise KeyboardInterrupt
        interrupted = True
        loop.call_soon_threadsafe(handler, number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        return await job
    finally:
        signal.signal(signal.SIGINT, handler)
