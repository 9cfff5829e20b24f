"""Send requests and wait for their one answer; queue requests while as many are in flight as the peer accepts.

1. The requests of one turn are opened together, with one call of the engine.
2. A request waits in order of arrival for a slot (``limits.streams``), for room, for the pacing of cancels and for a
   lease.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from operator import itemgetter
from typing import Any

from afflux.aio.leases import LeaseQueue
from afflux.aio.output import Output
from afflux.aio.room import BATCH, Room, Waiters, wait_in
from afflux.aio.state import State
from afflux.aio.streams import Streams
from afflux.core.errors import Error
from afflux.core.payload import Payload

__all__ = ["Call", "Calls"]

Call = list[Any]
"""A request of this turn: its payload, which its stream id replaces, and the future of its answer.

A list, because it is the cheapest object with two places: a class with slots costs 0.15 µs more for each request."""

_PAYLOAD = itemgetter(0)


class Calls:
    """The requests of one connection."""

    __slots__ = (
        "_leases",
        "_most",
        "_output",
        "_room",
        "_state",
        "_streams",
        "_woken",
        "batch_budget",
        "batches",
        "loop_bytes",
        "queued",
        "replies",
        "waiting",
    )

    def __init__(self, state: State, output: Output, room: Room, streams: Streams, leases: LeaseQueue) -> None:
        self._state = state
        self._output = output
        self._room = room
        self._streams = streams
        self._leases = leases
        self._most = state.engine.limits.streams
        self.loop_bytes = room.loop_bytes
        self.replies: dict[int, asyncio.Future[Payload]] = {}
        "The future of each answer, by stream."
        self.queued: list[Call] = []
        "Requests that are opened together at the end of this turn."
        self.batch_budget = 0
        "How many more requests may be queued before the next check of the room."
        self.batches = True
        "Requests may be opened together; False where each is written to a file first."
        self.waiting: Waiters | tuple[()] = ()
        "Requests that wait for a slot."
        self._woken = 0
        "Requests that were woken and have not been sent yet."

    # -- requests that go together ------------------------------------------------------------------------------

    def may_batch(self) -> bool:
        """Whether ``ask`` may be called now; renews ``batch_budget``."""
        if self.queued:
            self._output.flush()  # the peer may begin with these
        state = self._state
        if self.batches and not (state.away or state.over or self.crowded):
            self.batch_budget = min(BATCH, self._most - len(self.replies))
        return self.batch_budget > 0

    def ask(self, payload: Payload, size: int) -> Call:
        """Send a request of ``size`` bytes at the end of this turn, or before; ``Call[1]`` is the future of its
        answer."""
        self.batch_budget -= 1 + (size >> 12)
        call = [payload, self._state.loop.create_future()]
        self.queued.append(call)
        if not self._output.flushing:
            self._output.flush_soon()
        return call

    def send(self) -> None:
        """Open the requests of this turn."""
        calls, self.queued = [call for call in self.queued if not call[1].cancelled()], []
        try:
            ids = self._state.engine.ask(list(map(_PAYLOAD, calls)))
        except Error as error:
            for call in calls:
                if not call[1].done():
                    call[1].set_exception(error.again())
            return
        replies = self.replies
        for place, id in enumerate(ids):
            call = calls[place]
            call[0] = id
            replies[id] = call[1]
        if len(ids) < len(calls):
            self.queued = calls[len(ids) :]
            self.send()

    def withdraw(self, call: Call) -> None:
        """Cancel a request whose answer is not wanted any more."""
        if type(call[0]) is int:
            self.cancel(call[0])

    # -- requests that go alone ---------------------------------------------------------------------------------

    async def ask_alone(self, payload: Payload) -> Payload:
        """Send a request by itself, because it needs a lease, is written to a file first, or others wait."""
        state = self._state
        stream = state.driver.open("request", payload)
        future = self.replies[stream] = state.loop.create_future()
        self._output.flush_soon()
        try:
            answer: Payload = await future
            return answer
        except asyncio.CancelledError:
            self.cancel(stream)
            raise
        finally:
            del future  # its error refers to this frame: the payload is to be freed without a garbage collector
            if not self.batches:
                state.driver.forget(stream)

    def cancel(self, stream: int) -> None:
        """Cancel a request in flight, if it is one."""
        if self.replies.pop(stream, None) is not None:
            self._streams.cancel_own(stream)
            self.wake()

    # -- requests that wait -------------------------------------------------------------------------------------

    @property
    def crowded(self) -> bool:
        """Whether a request should wait: as many as allowed are in flight, much waits to be written, or it needs a
        lease."""
        if self._leases.agreed or len(self.replies) >= self._most or self.waiting or self._output.crowded:
            return True
        return self._streams.pause(len(self.replies)) > 0

    async def ready(self, size: int) -> None:
        """Wait until a request of ``size`` bytes may be sent.

        Raises:
            Error: the connection is over.
        """
        if self.queued:
            self.send()
        if self.crowded or size > self.loop_bytes:
            await self._until_slot(size)
        self._state.check()

    async def writable(self, verb: str, size: int = 0) -> None:
        """Wait for room, the pacing of cancels and a lease: then ``verb`` may open a stream with ``size`` bytes.

        Raises:
            LeaseExpired: no lease came in time.
            Error: the connection is over.
        """
        await self._room.until_room(size)
        while (pause := self._streams.pause(len(self.replies))) and not self._state.over:
            await asyncio.sleep(pause)
            await self._room.until_room(size)
        await self._leases.wait(verb)

    async def _until_slot(self, size: int) -> None:
        """Wait for a slot, in order of arrival, and until a stream may be opened."""
        first = False
        while True:
            while not self._state.over and (len(self.replies) >= self._most or (self.waiting and not first)):
                self.waiting = self.waiting or OrderedDict()
                self.batch_budget = 0  # preserve FIFO order
                await wait_in(self.waiting, self._was_woken, first=first)
                self._was_woken()
                first = True
            await self.writable("request", size)
            if self.queued:
                self.send()
            if len(self.replies) < self._most:  # all slots may have been taken while this request waited for room
                return

    def _was_woken(self) -> None:
        """A woken request is sent now, or was canceled: wake the next ones after this turn."""
        self._woken -= 1
        if self.waiting:
            self._state.loop.call_soon(self.wake)

    def wake(self) -> None:
        """Wake as many waiting requests as there are slots, less those that were woken and not sent yet."""
        free = self._most - len(self.replies) - self._woken
        while self.waiting and (free > 0 or self._state.over):
            waiter, _ = self.waiting.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
                free -= 1

    # -- the end ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The connection is over: every request fails, once."""
        state = self._state
        reason_of = state.reasons()
        for stream, future in self.replies.items():
            if not future.done():
                future.set_exception(reason_of(stream))
        for call in self.queued:
            if not call[1].done():
                call[1].set_exception(state.unsent())
        self.replies.clear()
        self.queued.clear()
        self.batch_budget = 0
