"""Queue requests until there is a lease, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from afflux.aio.state import State
from afflux.core.errors import LeaseExpired
from afflux.core.events import Leased

__all__ = ["LeaseQueue"]


class _Turn(asyncio.Event):
    """Set when a request may look for a lease."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self.verb = verb


class LeaseQueue:
    """The requests of one connection that wait for a lease."""

    __slots__ = ("_state", "_waiting", "agreed", "first", "wait_s")

    def __init__(self, state: State) -> None:
        self._state = state
        self.agreed: bool = state.engine.leases is not None
        "Requests need a lease."
        self.wait_s: float | None = None
        "Seconds that a request may wait for one; None: it fails immediately."
        self.first: asyncio.Future[None] | None = None
        "Done when the peer has granted its first lease, or the connection is over; None where nothing waits for it."
        self._waiting: deque[_Turn] | tuple[()] = ()

    @property
    def verbs(self) -> Iterator[str]:
        """The verbs of the requests that wait, in order of arrival."""
        return (turn.verb for turn in self._waiting)

    async def wait(self, verb: str) -> None:
        """Wait until there is a lease, if requests need one and may wait for it. ``verb`` is that of the request.

        Raises:
            LeaseExpired: none came in time, or as many wait as ``lease_queue`` allows.
            Error: the connection is over.
        """
        seconds, state = self.wait_s, self._state
        leases, waiting = state.engine.leases, self._waiting or deque()
        if leases is None or seconds is None or (not waiting and leases.lease(state.now())[0]):
            return
        self._waiting = waiting
        if len(waiting) >= state.engine.limits.lease_queue:
            raise LeaseExpired(f"{len(waiting)} requests wait for a lease already", rule="lease_queue")
        turn = _Turn(verb)
        waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                while not state.over and not (waiting[0] is turn and leases.lease(state.now())[0]):
                    turn.clear()
                    await turn.wait()
        except TimeoutError:
            text = f"no lease to send a request under came within {seconds:g} s"
            raise LeaseExpired(text, rule="LE-08") from None
        finally:
            waiting.remove(turn)
            state.loop.call_soon(self._wake)
        state.check()

    def granted(self, event: Leased) -> None:
        """The peer has granted a lease."""
        if self.first is not None and not self.first.done():
            self.first.set_result(None)
        if event.requests:
            self._wake()

    def end(self) -> None:
        """The connection is over."""
        self._wake()
        if self.first is not None and not self.first.done():
            self.first.set_result(None)

    def _wake(self) -> None:
        """Wake the request that waits longest; it wakes the next one when it has been sent."""
        if self._waiting:
            self._waiting[0].set()
