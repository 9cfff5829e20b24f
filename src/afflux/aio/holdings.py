"""Count the bytes that the connections of this process hold, and end connections when they are too many.

1. Each connection reports what it holds at the end of a turn; the books add the difference. Nothing is scanned.
2. A report that takes the sum above the connection's own ``process_bytes`` starts a look at all holders. What they hold
   is counted anew first, because a transport writes without a report. Then the newest connections that hold something
   are ended with "overload" until the sum fits. A connection whose own ``process_bytes`` allow the sum stays.
3. The sum is of the process: of all event loops, servers and clients. Each loop ends connections of its own only.
   Blocking connections are not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from afflux.core.errors import ConnectionClosed
from afflux.core.limits import reached
from afflux.transports.clock import Clock, clock_of

if TYPE_CHECKING:
    from afflux.aio.pump import Pump

__all__ = ["Holdings"]

_LOOK_EVERY_S: Final = 0.1
"Seconds between two looks: each counts all holders."

_books: WeakKeyDictionary[asyncio.AbstractEventLoop, Holdings] = WeakKeyDictionary()
_numbers: Iterator[int] = count()


class Holdings:
    """What the connections of one event loop hold."""

    __slots__ = ("_holders", "_last_look", "_look", "_now", "held")

    def __init__(self, now: Clock) -> None:
        self._now = now
        self.held = 0
        "The sum, in bytes."
        self._holders: dict[Pump, None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._last_look = -_LOOK_EVERY_S

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Holdings:
        """The books of a loop."""
        books = _books.get(loop)
        if books is None:
            books = _books[loop] = Holdings(clock_of(loop))
        return books

    @staticmethod
    def number() -> int:
        """A number for a new connection: newer ones have greater numbers."""
        return next(_numbers)

    def report(self, pump: Pump, held: int) -> None:
        """A connection holds ``held`` bytes now."""
        before, pump.weight = pump.weight, held
        self.held += held - before
        if not before:
            self._holders[pump] = None
        elif not held:
            self._holders.pop(pump, None)
        if held > before and self._look is None and _total() > pump.engine.limits.process_bytes:
            wait = max(0.0, self._last_look + _LOOK_EVERY_S - self._now())
            self._look = pump.loop.call_later(wait, self._relieve)

    def exceed(self, most: int) -> bool:
        """Whether all connections of the process hold more than ``most`` bytes."""
        if _total() <= most:
            return False
        if self._now() >= self._last_look + _LOOK_EVERY_S:
            self._recount()
        return _total() > most

    def _recount(self) -> None:
        self._last_look = self._now()
        for pump in list(self._holders):
            pump.weigh()

    def _relieve(self) -> None:
        """End the newest connections that hold something, until the rest is within their limits."""
        self._recount()
        self._look = None
        leaving = sum(pump.weight for pump in self._holders if pump.over)
        total = _total() - leaving
        for pump in sorted(self._holders, key=lambda pump: pump.number, reverse=True):
            limits = pump.engine.limits
            if total > limits.process_bytes and not pump.over:
                total -= pump.weight
                text = reached(limits, "process_bytes")
                pump.end(ConnectionClosed(text, rule="process_bytes"))
                pump.run(pump.engine.close, pump.now(), reason=text)


def _total() -> int:
    """What all loops hold."""
    return sum([books.held for books in list(_books.values())])
