"""Write what an engine has queued: once in each turn of the loop, in the order of its scheduler.

1. Any part that queues something calls ``flush_soon``. All that is queued in one turn is one write.
2. The connection to a peer that does not read is ended: ``write_min_rate``, averaged over ``write_stall_s``.
3. At the end this half is closed first, so that the peer can read the last frames: a close with unread input would
   reset the connection.
"""

from __future__ import annotations

import asyncio

from afflux.aio.input import Input
from afflux.aio.memory import MemoryUse
from afflux.aio.state import State
from afflux.core.errors import ConnectionClosed
from afflux.transports.reading import end_half

__all__ = ["Output"]

_PACE_S = 0.001
_BLOCK = 0x40000
"Bytes of one write, as of one read: with 64 KiB, 64 streams of 1 KiB items were a fifth slower."


class Output:
    """The outbound bytes of one connection."""

    __slots__ = (
        "_ending",
        "_flushed_early",
        "_input",
        "_memory",
        "_pacer",
        "_stall",
        "_state",
        "blocked",
        "flushing",
        "low",
        "peer_ended",
        "plenty",
        "written",
    )

    def __init__(self, state: State, input: Input, memory: MemoryUse) -> None:
        limits = state.engine.limits
        self._state = state
        self._input = input
        self._memory = memory
        self.low = limits.outbound_low_bytes
        self.plenty = limits.outbound_high_bytes - self.low
        "Bytes of room above which waiting producers continue."
        self.flushing = False
        "A flush is scheduled for the end of this turn."
        self._flushed_early = False
        self.blocked = False
        "The transport accepts no more for now."
        self._ending = False
        self.peer_ended = False
        "The peer has ended its half."
        self.written = 0
        "Bytes that were handed to the transports."
        self._stall: asyncio.TimerHandle | None = None
        self._pacer: asyncio.TimerHandle | None = None

    def flush_soon(self) -> None:
        """Write what is queued at the end of this turn of the loop."""
        if not self.flushing:
            self.flushing = True
            self._state.loop.call_soon(self.flush)

    def flush_early(self) -> None:
        """Write what is queued now, because this side has more to do in this turn, and the peer can work meanwhile.
        Effective once in a turn, because a write costs as much as some twenty messages."""
        if not self._flushed_early and not self._state.over:
            self.flush_soon()
            self.flush(early=True)
            self.flushing = self._flushed_early = True  # until the flush at the end of the turn

    def room(self) -> int:
        """Bytes that may still be queued."""
        state = self._state
        transport = state.transport
        return state.engine.room(0 if transport is None else transport.get_write_buffer_size())

    def room_beside(self) -> int:
        """Bytes that may still be queued by anything but a large payload."""
        state = self._state
        transport = state.transport
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        return state.engine.room(unsent) if state.scheduler is None else state.scheduler.room_beside(unsent)

    @property
    def crowded(self) -> bool:
        """Whether the queue is long enough that a request should wait as well."""
        state = self._state
        room = state.engine.room(0) if state.scheduler is None else state.scheduler.room_beside(0)
        return self.blocked or room < self.plenty

    def flush(self, *, unpaced: bool = False, early: bool = False) -> None:
        """Write what is queued, up to what the transport accepts. The scheduler may leave some of it for the next turn,
        unless ``unpaced``. ``early``: another flush follows in this turn."""
        self.flushing = self._flushed_early = False
        state = self._state
        if state.left:
            return
        driver, transport = state.driver, state.transport
        driver.collect()
        if transport is None or state.lost:
            if state.away:
                if driver.saving is not None:
                    driver.saving.save_changes()
                state.arm_timer()
            self._memory.report()
            return
        scheduler = None if unpaced else state.scheduler
        engine, paced = state.engine, False
        while not self.blocked and not (paced := scheduler is not None and scheduler.should_yield()):
            if not (data := engine.outgoing(_BLOCK)):
                break
            if state.watch is not None:
                state.watch.sent(data)
            if driver.saving is not None and not driver.saving.durable():
                return
            self.written += len(data)
            transport.write(data)
        if driver.saving is not None:
            driver.saving.save_changes()
        if state.over and not engine.queued and not self.blocked:
            self._end_half(transport)
        unsent = transport.get_write_buffer_size()
        if unsent and self._stall is None:
            self._watch(unsent)
        driver.on_writable(unsent)
        if paced and self._pacer is None:
            self._pacer = state.loop.call_later(_PACE_S, self._pace)
        if not early:
            self.settle(unsent)

    def settle(self, unsent: int = 0) -> None:
        """At the end of a flush, or of a pass that needs none: report memory, pause or resume reading, and arm the
        timer."""
        state, memory, input = self._state, self._memory, self._input
        size = state.engine.held_bytes + unsent
        if size != memory.reported or input.held:
            memory.report(size)
        input.check()
        state.arm_timer()
        state.idle.end(state.now())

    def write_rest(self, transport: asyncio.Transport) -> None:
        """Write all that is queued, even if the transport is full."""
        state = self._state
        while data := state.engine.outgoing():
            if state.watch is not None:
                state.watch.sent(data)
            transport.write(data)

    def reset(self) -> None:
        """Forget the transport."""
        self.stop()
        self.blocked = self._ending = self.peer_ended = False

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in (self._stall, self._pacer):
            if handle is not None:
                handle.cancel()
        self._stall = self._pacer = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _pace(self) -> None:
        """A millisecond is over: streams in deficit may send a little."""
        self._pacer = None
        if self._state.scheduler is not None:
            self._state.scheduler.pace()
        self.flush()

    def _end_half(self, transport: asyncio.Transport) -> None:
        """End this half and wait for the peer's end."""
        if transport.is_closing() or self._ending:
            return
        self._ending = True
        if self.peer_ended or not transport.can_write_eof():
            transport.close()
        else:
            end_half(transport)
            self._input.resume(transport)

    def _watch(self, unsent: int) -> None:
        """Check after ``write_stall_s`` that all that waits now has left, or as much as ``write_min_rate`` requires."""
        limits = self._state.engine.limits
        enough = self.written - unsent + max(1, min(unsent, int(limits.write_min_rate * limits.write_stall_s)))
        self._stall = self._state.loop.call_later(limits.write_stall_s, self._check_stall, enough)

    def _check_stall(self, enough: int) -> None:
        self._stall = None
        state = self._state
        transport = state.transport
        if transport is None or state.lost or not (unsent := transport.get_write_buffer_size()):
            return
        if self.written - unsent < enough:
            state.driver.lose(ConnectionClosed("write-stall: the peer does not read", rule="write_stall_s"))
        else:
            self._watch(unsent)
