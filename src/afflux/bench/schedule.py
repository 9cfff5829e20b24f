"""Schedule the start of each request.

1. Closed load: a free stream starts the next request immediately.
2. Open load: request k is scheduled at ``start + k / rate``, regardless of earlier requests. Each time is computed
   separately, so errors do not accumulate and the schedule does not drift.
3. A request without a free stream waits in a queue, and its latency includes that wait. The queue is two numbers
   (requests due, requests started), so a server that falls behind costs no memory.
4. A request that has waited longer than ``patience`` is not started: it has timed out. This bounds the queue in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import ceil, floor, inf

from afflux.bench.alarm import Alarm

__all__ = ["LATE_S", "Arrivals", "Closed", "Open", "Turns"]

LATE_S = 0.001
"Seconds after its scheduled start from which a request counts as late."


class Arrivals:
    """The schedule of open load. It starts with ``begin``.

    Args:
        rate: requests per second.
        patience: seconds after which a request that has not started fails.
        count: number of requests; None for no limit.
        seconds: requests are scheduled only within this many seconds after the start.
        offset: delay of the first request, in units of ``1 / rate``. Several processes with different offsets share a
            rate.
        step: units of ``1 / rate`` between two requests of this process.
    """

    def __init__(
        self,
        rate: float,
        patience: float,
        *,
        count: int | None = None,
        seconds: float = inf,
        offset: int = 0,
        step: int = 1,
    ) -> None:
        self._rate = rate
        self._patience = patience
        self._seconds = seconds
        self._offset = offset
        self._step = step
        self._start = 0.0
        self._last = inf if count is None else count
        self._next = 0
        self.given_up = 0
        "Requests that were never started."
        self.backlog = 0
        "Maximum number of requests that were due but had not started."

    def begin(self, start: float) -> None:
        """Start the schedule."""
        self._start = start
        self._last = min(self._last, self._first_from(start + self._seconds))

    def moment(self, number: int) -> float:
        """Return the scheduled start of a request."""
        return self._start + (self._offset + number * self._step) / self._rate

    @property
    def left(self) -> bool:
        """Whether requests remain."""
        return self._next < self._last

    @property
    def following(self) -> float:
        """The scheduled start of the next request; only valid while ``left``."""
        return self.moment(self._next)

    def due(self, now: float) -> int:
        """Return the number of requests that are due but have not started."""
        return int(min(self._last, self._first_from(now, past=True))) - self._next

    def take(self, now: float) -> float | None:
        """Start a request and return its scheduled start; None if none is due."""
        due = self.due(now)
        if due > 0 and now - self.moment(self._next) > self._patience:
            late = min(due, int(self._first_from(now - self._patience)) - self._next)
            self.given_up += late
            self._next += late
            due -= late
        if due <= 0:
            return None
        if due > self.backlog:
            self.backlog = due
        self._next += 1
        return self.moment(self._next - 1)

    def stop(self) -> None:
        """Cancel the remaining requests, including those that are due."""
        self._last = self._next

    def _first_from(self, moment: float, *, past: bool = False) -> float:
        """Return the number of the first request scheduled at or after ``moment``; with ``past``, after it."""
        if moment == inf:
            return inf
        number = ((moment - self._start) * self._rate - self._offset) / self._step
        near = floor(number) if past else ceil(number)
        near = max(0, near - 1)
        while (at := self.moment(near)) < moment or (past and at == moment):  # corrects rounding
            near += 1
        return near


class Turns:
    """Give each stream the scheduled start of its next request. No turn is given before ``begin``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[float | None]] = deque()
        self._begun = False
        self.begun = 0
        "Turns given."
        self.late = 0
        "Requests that started more than LATE_S late."
        self.late_here = 0
        "How many of them were late although a stream was free, because this machine was slow."

    async def take(self) -> float | None:
        """Wait for the next turn; None if none are left."""
        raise NotImplementedError

    def begin(self, start: float) -> None:
        """Start giving turns."""
        raise NotImplementedError

    def stop(self, now: float) -> int:
        """Stop giving turns; return the number of due requests that will not start."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the timer."""

    def _wait(self) -> asyncio.Future[float | None]:
        """Return a future for a turn. Turns are given in order of waiting."""
        waiter: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter


class Closed(Turns):
    """Give turns immediately: at most ``count``, within ``seconds``."""

    def __init__(self, clock: Callable[[], float], *, count: int | None = None, seconds: float = inf) -> None:
        super().__init__(clock)
        self._left = inf if count is None else count
        self._seconds = seconds
        self._until = inf

    async def take(self) -> float | None:
        """See ``Turns``."""
        if not self._begun:
            await self._wait()
        now = self._clock()
        if self._left <= 0 or now >= self._until:
            return None
        self._left -= 1
        self.begun += 1
        return now

    def begin(self, start: float) -> None:
        """See ``Turns``."""
        self._begun = True
        self._until = start + self._seconds
        while self._waiting:
            self._waiting.popleft().set_result(None)

    def stop(self, now: float) -> int:
        """See ``Turns``."""
        self._left = 0
        return 0


class Open(Turns):
    """Give one turn for each arrival of the schedule."""

    def __init__(self, arrivals: Arrivals, clock: Callable[[], float], *, exact: bool = True) -> None:
        super().__init__(clock)
        self.arrivals = arrivals
        self._idle_until = -inf
        self._alarm = Alarm(clock, self._ring, exact=exact)

    async def take(self) -> float | None:
        """See ``Turns``."""
        arrivals = self.arrivals
        if self._begun and not self._waiting:
            now = self._clock()
            if (moment := arrivals.take(now)) is not None:
                self._began(moment, now, moment <= self._idle_until)
                return moment
            if not arrivals.left:
                return None
            self._alarm.set(arrivals.following)
        moment = await self._wait()
        if moment is not None:
            self._began(moment, self._clock(), True)
        return moment

    def _began(self, moment: float, now: float, idle: bool) -> None:
        """Count a start. ``idle``: a stream was free at the scheduled start, so this machine caused the delay."""
        self.begun += 1
        if now - moment > LATE_S:
            self.late += 1
            self.late_here += idle

    def begin(self, start: float) -> None:
        """See ``Turns``."""
        self.arrivals.begin(start)
        self._begun = True
        self._ring()

    def stop(self, now: float) -> int:
        """See ``Turns``."""
        due = max(0, self.arrivals.due(now)) if self._begun else 0
        self.arrivals.stop()
        self._ring()
        return due

    def close(self) -> None:
        """See ``Turns``."""
        self._alarm.close()

    def _ring(self) -> None:
        """Give turns to waiting streams, and set the alarm for the next arrival."""
        waiting, arrivals = self._waiting, self.arrivals
        if waiting:
            self._idle_until = self._clock()
        while waiting:
            if waiting[0].done():
                waiting.popleft()
            elif (moment := arrivals.take(self._clock())) is not None:
                waiting.popleft().set_result(moment)
            elif arrivals.left:
                self._alarm.set(arrivals.following)
                return
            else:
                waiting.popleft().set_result(None)
