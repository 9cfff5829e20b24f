"""Record whether an event loop waited for input before the current pass.

A server whose loop waited is faster than its client, or the two take turns: one works while the other waits. It then
writes the answers of one pass in two parts, so that the client works on the first while the server produces the second.
The requests that follow arrive in two parts as well, and both sides keep working. Where the loop did not wait, as with
many clients, a second write would only cost time.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

__all__ = ["Idle"]

_WAITED_S = 0.000_1
"""Seconds without work after which the loop has waited. With 30 µs, passes of two busy sides were split as well."""

_idles: WeakKeyDictionary[asyncio.AbstractEventLoop, Idle] = WeakKeyDictionary()


class Idle:
    """The pauses between the passes of all connections of one event loop."""

    __slots__ = ("_ended", "waited")

    def __init__(self) -> None:
        self._ended = 0.0
        self.waited = False
        "The loop had no work before the current pass."

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Idle:
        """Return the record of ``loop``."""
        idle = _idles.get(loop)
        if idle is None:
            idle = _idles[loop] = Idle()
        return idle

    def begin(self, now: float) -> None:
        """A pass over the input of a connection begins."""
        self.waited = now - self._ended > _WAITED_S

    def end(self, now: float) -> None:
        """A pass, or a write, has ended."""
        self._ended = now
