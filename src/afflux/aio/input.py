"""Pass the input of one connection to its engine, in passes of bounded length, and pause reading when necessary.

1. One read is one pass, dispatched as events in the order of the wire. A read that would take longer than ``loop_ms``
   becomes several passes.
2. Reading pauses while the engine accepts no more input, while a handler of the connection falls behind, and while too
   much output waits to be written.
3. When reading has paused for ``write_stall_s`` and the application has consumed nothing, the driver is asked to end
   the stream that buffers most.
"""

from __future__ import annotations

import asyncio

from afflux.aio.state import State
from afflux.transports.reading import DISCARDED_BYTES

__all__ = ["Input"]

_LARGEST_PIECE = 0x40000
_LARGE = _LARGEST_PIECE // 2
"""Bytes of a read after which there is probably another: uvloop reads up to 32 times in one turn of the loop, and
other connections would wait for all of them. After the fourth such read, reading waits for the next turn."""
_LARGE_READS = 4
_FIRST_PIECE = 0x2000
"Bytes of the first passes: the time that a pass over this peer's input takes has not been measured yet."
_SMALLEST_PIECE = 0x1000
_REST = 8
"""The part of a piece by which a read may exceed it. A layer adds a message's beginning to what it reads: its reads
exceed the largest piece by a message, and a pass over so few bytes would cost a turn and two copies."""
_SETTLE_BYTES = 0x4000
"Consumed bytes that are reported to the engine immediately; smaller amounts are collected."
_SETTLE_ITEMS = 64


class Input:
    """The inbound bytes of one connection."""

    __slots__ = (
        "_consumptions",
        "_discarded",
        "_jam",
        "_large_reads",
        "_loop_s",
        "_pause",
        "_piece_queued",
        "_state",
        "consumed_bytes",
        "consumed_items",
        "held",
        "on_hold",
        "piece",
        "reading",
        "taken",
    )

    def __init__(self, state: State) -> None:
        limits = state.engine.limits
        self._state = state
        self._loop_s = limits.loop_ms / 1000
        self.piece: int = min(limits.loop_bytes, _FIRST_PIECE)
        "The most bytes of one pass."
        self.held = b""
        "Bytes that wait for a pass."
        self.taken = 0
        "Bytes that passes were run over."
        self._piece_queued = False
        "A pass over ``held`` is scheduled."
        self._large_reads = 0
        self.reading = True
        self.on_hold = False
        "A handler of the connection falls behind: reading pauses."
        self._discarded = 0
        self.consumed_bytes = 0
        "Consumed bytes that have not been reported to the engine yet."
        self.consumed_items = 0
        self._consumptions = 0
        self._jam: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None

    @property
    def buffered(self) -> int:
        """Bytes that wait for a pass, less those that were consumed and are not settled yet."""
        return len(self.held) - self.consumed_bytes

    def receive(self, data: bytes) -> None:
        """Receive bytes: in one pass, or in several turns of the loop."""
        if self.held or len(data) > self.piece + self.piece // _REST:
            self.held += data
            self.check()
        else:
            self.take(data)

    def take(self, data: bytes | memoryview) -> None:
        """Run one pass. The size of the next one follows from the time that this one takes (FR-28)."""
        state, size = self._state, len(data)
        self.taken += size
        start = state.now()
        state.idle.begin(start)
        if state.watch is not None:
            state.watch.received(data)
        state.driver.dispatch(state.engine.receive(data, start))
        now = state.now()
        state.idle.end(now)
        took = now - start
        if took > self._loop_s:
            self.piece = max(_SMALLEST_PIECE, min(self.piece, size) // 2)
        elif size >= self.piece and self.piece < _LARGEST_PIECE and took * 4 < self._loop_s:
            self.piece *= 2
        if size >= _LARGE:
            self._leave_turn()

    def discard(self, size: int) -> None:
        """Drop input that arrives after the end. It is read so that the peer can receive the last frames. After
        DISCARDED_BYTES reading stops until ``flush_s`` is over."""
        self._discarded += size
        transport = self._state.transport
        if self._discarded > DISCARDED_BYTES and self.reading and transport is not None:
            self.reading = False
            transport.pause_reading()

    def consumed(self, size: int, items: int) -> None:
        """The application consumed ``items`` items of ``size`` bytes in all."""
        self.consumed_bytes += size
        self.consumed_items += items
        self._consumptions += 1
        if self.consumed_bytes >= _SETTLE_BYTES or self.consumed_items >= _SETTLE_ITEMS or not self.reading:
            self.settle()
            if not self.reading:
                self.check()

    def settle(self) -> None:
        """Free the memory budget of consumed items."""
        self._state.engine.consumed(self.consumed_bytes, self.consumed_items)
        self.consumed_bytes = self.consumed_items = 0

    def check(self) -> None:
        """Start or pause reading."""
        state = self._state
        wants = state.engine.wants_read and not self.on_hold and self._pause is None
        if wants and self.reading and not (self.held or self._piece_queued):
            return
        transport = state.transport
        if transport is None or state.over or transport.is_closing():
            return
        if wants and self.held and not self._piece_queued:
            self._queue_piece()
        if wants and not self.held and not self._piece_queued:
            self.resume(transport)
            return
        if self.reading:
            self.reading = False
            transport.pause_reading()
        if not wants and self._jam is None:  # reading may have been paused before, between the pieces of a read
            self._watch_jam()

    def resume(self, transport: asyncio.Transport) -> None:
        """Start reading, if it is paused."""
        if not self.reading:
            self.reading = True
            transport.resume_reading()

    def pause_for(self, seconds: float) -> None:
        """Pause reading: the peer causes more work than its limits allow."""
        if self._pause is None:
            self._pause = self._state.loop.call_later(seconds, self._end_pause)
            self.check()

    def reset(self) -> bytes:
        """Forget the transport. Returns bytes that were read from it and wait for a pass."""
        self.stop()
        held, self.held = self.held, b""
        self._piece_queued = False
        self.reading = True
        return held

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in (self._jam, self._pause):
            if handle is not None:
                handle.cancel()
        self._jam = self._pause = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _queue_piece(self) -> None:
        self._piece_queued = True
        self._state.loop.call_soon(self._take_piece)

    def _take_piece(self) -> None:
        """Run a pass over a part of one read; reading pauses meanwhile."""
        self._piece_queued = False
        if self.held and self._state.engine.wants_read and not self._state.over:
            piece, self.held = self.held[: self.piece], self.held[self.piece :]
            self.take(piece)
        self.check()

    def _leave_turn(self) -> None:
        """Leave the rest of the turn to other connections after a few large reads in it."""
        self._large_reads += 1
        if self._large_reads == 1:
            self._state.loop.call_soon(self._new_turn)
        elif self._large_reads >= _LARGE_READS and not self._piece_queued:
            self._queue_piece()
            self.check()

    def _new_turn(self) -> None:
        self._large_reads = 0

    def _end_pause(self) -> None:
        self._pause = None
        self.check()

    def _watch_jam(self) -> None:
        state = self._state
        self._jam = state.loop.call_later(state.engine.limits.write_stall_s, self._check_jam, self._consumptions)

    def _check_jam(self, consumptions: int) -> None:
        """Call ``on_jam`` if nothing was consumed since the watch began."""
        self._jam = None
        state = self._state
        if self.reading or state.over or state.transport is None or state.engine.wants_read:
            return
        if self._consumptions == consumptions:
            state.driver.on_jam()
        self.check()
