"""Stop a command that runs until SIGINT or SIGTERM, also while it is still starting."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from typing import TypeVar

from afflux.cli.process import leave_at_once
from afflux.cli.telling import tell

__all__ = ["GRACE", "Stopped", "listen_for_signals", "unless_stopped"]

GRACE = 5.0
"Seconds that live streams may continue after a signal."

_T = TypeVar("_T")


class Stopped(Exception):  # noqa: N818 -- no error
    """A signal has arrived before the command was ready."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


def listen_for_signals(stopped: asyncio.Future[signal.Signals]) -> None:
    """Set ``stopped`` at the first signal; a second signal of the same kind ends the process at once. If the first has
    not ended it after a while, a line says so: journals may wait for servers that are away."""
    loop = asyncio.get_running_loop()

    def arrived(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        if number == signal.SIGINT:
            leave_at_once()  # asyncio's own handler would wait for the threads of the loop
        if not stopped.done():
            stopped.set_result(number)
            loop.call_later(GRACE + 1, tell, f"afflux: still ending; another {number.name} ends it at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, arrived, number)


async def unless_stopped(stopped: asyncio.Future[signal.Signals], work: Awaitable[_T]) -> _T:
    """Return the result of ``work``, which is canceled by a signal. Raises what it raises.

    Raises:
        Stopped: a signal arrived first.
    """
    task = asyncio.ensure_future(work)
    ends: set[asyncio.Future[object]] = {stopped, task}  # type: ignore[arg-type]  # of other results
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        raise Stopped(stopped.result())
    return task.result()
