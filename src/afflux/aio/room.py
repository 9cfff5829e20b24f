"""Let producers and requests wait for room to send, in order of arrival, and share the room of each turn.

1. A woken producer produces items, and the flush that follows wakes the next ones.
2. Room that a producer has claimed in a turn and not used yet is promised: other producers do not get it.
3. Large payloads wait for each other: each of them may exceed the room, but only one at a time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from afflux.aio.output import Output
from afflux.aio.state import State

if TYPE_CHECKING:
    from afflux.aio.sender import Sender

__all__ = ["BATCH", "Room", "Waiters", "wait_in"]

Waiters = OrderedDict[asyncio.Future[None], None]
"Waiting requests, in the order in which they are woken. One that is woken, or canceled, is removed."

BATCH = 64
"Requests between two looks at the room; each further 4 KiB count as one more."


class Room:
    """The room to send of one connection, and the producers, requests and handlers that wait for it."""

    __slots__ = (
        "_at_once",
        "_crowded",
        "_output",
        "_state",
        "_writable",
        "dirty",
        "handlers_wait",
        "loop_bytes",
        "loop_frames",
        "producing",
        "promised",
        "sent",
        "turn",
        "waiting_for_large_slot",
        "waiting_for_room",
    )

    def __init__(self, state: State, output: Output) -> None:
        limits = state.engine.limits
        self._state = state
        self._output = output
        self.loop_frames: int = limits.loop_frames
        self.loop_bytes: int = limits.loop_bytes
        self._at_once = max(1, limits.outbound_high_frames // limits.loop_frames)
        self.dirty: list[Sender] = []
        "Producers that have produced something in this turn."
        self.waiting_for_room: dict[Sender, None] = {}
        "Producers that wait for room, in order."
        self.waiting_for_large_slot: dict[Sender, None] = {}
        "Producers that wait with a large item until another one has left, in order."
        self.producing = 0
        "Producers that are at work: they share the room."
        self.promised = 0
        "Room that producers may use in this turn and have not used yet."
        self.sent = 0
        "Items that producers have sent."
        self.handlers_wait = False
        "Handlers wait for room before they begin."
        self.turn = 0
        "Counts the turns in which something was queued."
        self._crowded = False
        "The scheduler shares the connection with producers that wait."
        self._writable: Waiters | tuple[()] = ()
        "Requests that wait for room, in order."

    @property
    def awaited(self) -> bool:
        """Whether something waits for room."""
        return bool(self.waiting_for_room or self.waiting_for_large_slot or self._writable or self.handlers_wait)

    async def until_room(self, size: int) -> None:
        """Wait until there is room to queue ``size`` bytes, in order of arrival.

        Raises:
            Error: the connection is over.
        """
        first = False
        output, state = self._output, self._state
        while not state.over and (output.room() if size > self.loop_bytes else output.room_beside()) <= 0:
            self._writable = self._writable or OrderedDict()
            await wait_in(self._writable, output.flush_soon, first=first)
            output.flush_soon()  # wakes the next ones after this turn, even if this one queues nothing
            first = True  # a woken waiter stays first
        state.check()

    def delays(self, sender: Sender | None) -> bool:
        """Whether a producer waits for room."""
        return sender in self.waiting_for_room or sender in self.waiting_for_large_slot

    def collect(self) -> None:
        """Before a write: queue what producers have produced in this turn."""
        state = self._state
        if self.dirty and not (state.away or state.lost):
            dirty, self.dirty = self.dirty, []
            for sender in dirty:
                sender.flush()
        self.turn += 1
        self.promised = 0
        if state.scheduler is not None and (self.waiting_for_room or self._crowded):
            self._crowded = bool(self.waiting_for_room)
            state.scheduler.crowd(len(self.waiting_for_room))

    def on_writable(self, unsent: int) -> bool:
        """After a write: wake waiters once there is plenty of room, and as many as fit. Returns whether handlers may
        begin again."""
        if not (self.waiting_for_room or self.waiting_for_large_slot or self._writable or self.handlers_wait):
            return False
        engine, scheduler = self._state.engine, self._state.scheduler
        may_begin, plenty = False, self._output.plenty
        if (room := engine.room(unsent) if scheduler is None else scheduler.room_beside(unsent)) >= plenty:
            for sender in islice(self.waiting_for_room, min(1 + room // self.loop_bytes, self._at_once)):
                sender.call()
            self._wake_requests(BATCH)
            may_begin, self.handlers_wait = self.handlers_wait, False
        if self.waiting_for_large_slot and engine.room(unsent) >= plenty:
            next(iter(self.waiting_for_large_slot)).call()
        return may_begin

    def end(self) -> None:
        """The connection is over: wake all requests."""
        self._wake_requests(len(self._writable))

    def _wake_requests(self, most: int) -> None:
        while self._writable and most:
            waiter, _ = self._writable.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                most -= 1


async def wait_in(waiters: Waiters, pass_on: Callable[[], None], *, first: bool) -> None:
    """Wait until this waiter is taken out of the queue and woken. A waiter that is canceled leaves the queue; if it
    was woken at the same time, ``pass_on`` wakes the next one."""
    waiter = asyncio.get_running_loop().create_future()
    waiters[waiter] = None
    if first:
        waiters.move_to_end(waiter, last=False)
    try:
        await waiter
    except BaseException:
        if waiter.done() and not waiter.cancelled():
            pass_on()
        raise
    finally:
        waiters.pop(waiter, None)
