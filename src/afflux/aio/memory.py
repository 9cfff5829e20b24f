"""Count the bytes that the connections of this process buffer, and end connections when the sum is too large.

1. Each connection reports its bytes at the end of a turn; the sum is adjusted by the difference. Nothing is scanned.
2. A report that raises the sum above the connection's own ``process_bytes`` schedules a check of all connections. Their
   bytes are counted again first, because a transport writes without a report. Then the newest connections that buffer
   something are ended with "overload" until the sum fits. A connection whose own ``process_bytes`` allow the sum stays.
3. The sum covers the process: all event loops, servers and clients. Each loop ends only its own connections.
   Blocking connections are not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

from afflux.aio.input import Input
from afflux.aio.state import State
from afflux.core.errors import ConnectionClosed
from afflux.core.limits import reached
from afflux.transports.clock import Clock, clock_of

__all__ = ["Memory", "MemoryUse"]

_LOOK_EVERY_S: Final = 0.1
"Seconds between two checks: each counts all connections."

_memories: WeakKeyDictionary[asyncio.AbstractEventLoop, Memory] = WeakKeyDictionary()
_numbers: Iterator[int] = count()


class MemoryUse:
    """The bytes that one connection buffers: in its engine, before it and after it."""

    __slots__ = ("_input", "_memory", "below", "number", "reported", "state", "unsent_answers")

    def __init__(self, state: State, input: Input) -> None:
        self.state = state
        self._input = input
        self._memory = Memory.of(state.loop)
        self.number = next(_numbers)
        "Newer connections have greater numbers."
        self.reported = 0
        "Bytes of the last report."
        self.below = 0
        "Bytes that the transport has received and not delivered."
        self.unsent_answers = 0
        "Bytes of answers that wait for room."

    def report(self, size: int | None = None) -> None:
        """Report the bytes that this connection buffers now. ``size``: those of the engine and after it, if known."""
        state = self.state
        if size is None:
            size = state.engine.held_bytes
            if state.transport is not None:
                size += state.transport.get_write_buffer_size()
        size += self._input.buffered + self.below + self.unsent_answers
        if state.lost or size < 0:
            size = 0
        if size != self.reported:
            self._memory.report(self, size)


class Memory:
    """The bytes that the connections of one event loop buffer."""

    __slots__ = ("_last_look", "_look", "_now", "_uses", "size")

    def __init__(self, now: Clock) -> None:
        self._now = now
        self.size = 0
        "The sum, in bytes."
        self._uses: dict[MemoryUse, None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._last_look = -_LOOK_EVERY_S

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Memory:
        """Return the memory of the connections of ``loop``."""
        memory = _memories.get(loop)
        if memory is None:
            memory = _memories[loop] = Memory(clock_of(loop))
        return memory

    def report(self, use: MemoryUse, size: int) -> None:
        """Record that a connection buffers ``size`` bytes now."""
        before, use.reported = use.reported, size
        self.size += size - before
        if not before:
            self._uses[use] = None
        elif not size:
            self._uses.pop(use, None)
        if size > before and self._look is None and self._total() > use.state.engine.limits.process_bytes:
            wait = max(0.0, self._last_look + _LOOK_EVERY_S - self._now())
            self._look = use.state.loop.call_later(wait, self._relieve)

    def exceeds(self, most: int) -> bool:
        """Return whether all connections of the process buffer more than ``most`` bytes."""
        if self._total() <= most:
            return False
        if self._now() >= self._last_look + _LOOK_EVERY_S:
            self._recount()
        return self._total() > most

    def _total(self) -> int:
        """Return the sum over all loops."""
        return self.size if len(_memories) == 1 else sum([memory.size for memory in list(_memories.values())])

    def _recount(self) -> None:
        self._last_look = self._now()
        for use in list(self._uses):
            use.report()

    def _relieve(self) -> None:
        """End the newest connections that buffer something, until the rest is within their limits."""
        self._recount()
        self._look = None
        total = self._total() - sum(use.reported for use in self._uses if use.state.over)
        for use in sorted(self._uses, key=lambda use: use.number, reverse=True):
            state = use.state
            limits = state.engine.limits
            if total > limits.process_bytes and not state.over:
                total -= use.reported
                text = reached(limits, "process_bytes")
                state.driver.end(ConnectionClosed(text, rule="process_bytes"))
                state.run(state.engine.close, state.now(), reason=text)
