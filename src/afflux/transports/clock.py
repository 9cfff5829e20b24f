"""Read the clock of an event loop, which measures every deadline of a connection.

asyncio's loops and uvloop read the system's monotonic clock, but uvloop rounds it to milliseconds. So that clock is
read directly, unless the loop has a time of its own, as one in virtual time does. ``in_words`` writes
times in messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

__all__ = ["Clock", "clock_of", "in_words", "now"]

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


def in_words(seconds: float) -> str:
    """Return a duration for a message, in the unit that a person reads: ``90 s``, ``0.25 s``, ``6.9 ms``, ``1 µs``."""
    if seconds >= 1000 or seconds == 0:
        return f"{seconds:,.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale * (0.00995 if unit == "s" else 0.995):
            return f"{seconds / scale:.3g} {unit}"
    return "less than 1 µs"
