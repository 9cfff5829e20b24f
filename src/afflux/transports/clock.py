"""Read the clock of an event loop, which measures every deadline of a connection.

asyncio's loops and uvloop read the system's monotonic clock, but uvloop rounds it to milliseconds. So that clock is
read directly, unless the loop has a time of its own, as one in virtual time does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

__all__ = ["Clock", "clock_of", "now"]

Clock = Callable[[], float]
"Returns the time in seconds; only differences are meaningful."

_SAME_S = 1.0
"A loop whose time is this close to the system's monotonic clock reads that clock."


def clock_of(loop: asyncio.AbstractEventLoop) -> Clock:
    """Return the clock of a loop."""
    return monotonic if abs(loop.time() - monotonic()) < _SAME_S else loop.time


def now() -> float:
    """Return the time of the running loop; outside of a loop, the system's monotonic time."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return monotonic()
    return clock_of(loop)()
