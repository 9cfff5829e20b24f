"""When each request is meant to begin. No connection and no counting of answers here; time is what the clock says.

1. Closed load: a stream that is free begins the next request at once.
2. Open load: request k is meant to begin at ``start + k / rate``, whatever became of those before it. That is worked
   out anew for each k, so nothing adds up and the schedule does not drift.
3. A request that finds no stream free waits its turn, and its latency has begun. The queue is a pair of numbers (how
   many are due, how many have begun), so that a server which falls behind costs no memory.
4. What has waited longer than ``patience`` is not begun any more: it has timed out. That bounds the queue in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import ceil, floor, inf

from afflux.bench.alarm import Alarm

__all__ = ["LATE_S", "Arrivals", "Closed", "Open", "Turns"]

LATE_S = 0.001
"A request that begins so many seconds after its moment counts as late."


class Arrivals:
    """The schedule of open load: arithmetic only. It stands still until ``begin``.

    Args:
        rate: requests a second.
        patience: seconds after which one that has not begun is given up.
        count: how many there are; None for no end.
        seconds: none is meant to begin so many seconds after the start, or later.
        offset: how much later than at the start the first one comes, in parts of ``1 / rate``: so that several
            processes can share a rate, in turn.
        step: each of them takes every so manieth one.
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
        "How many were never begun."
        self.backlog = 0
        "The most that were due and had not begun."

    def begin(self, start: float) -> None:
        """The first one is meant to begin now, or a little later."""
        self._start = start
        self._last = min(self._last, self._first_from(start + self._seconds))

    def moment(self, number: int) -> float:
        """When a request is meant to begin."""
        return self._start + (self._offset + number * self._step) / self._rate

    @property
    def left(self) -> bool:
        """Whether any are to come."""
        return self._next < self._last

    @property
    def following(self) -> float:
        """When the next one is meant to begin; only while ``left``."""
        return self.moment(self._next)

    def due(self, now: float) -> int:
        """How many are due and have not begun."""
        return int(min(self._last, self._first_from(now, past=True))) - self._next

    def take(self, now: float) -> float | None:
        """Begin one: when it was meant to begin. None when none is due."""
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
        """No more are to come, not even those that are due."""
        self._last = self._next

    def _first_from(self, moment: float, *, past: bool = False) -> float:
        """The number of the first request that is meant to begin at ``moment`` or later; ``past`` it, or later."""
        if moment == inf:
            return inf
        number = ((moment - self._start) * self._rate - self._offset) / self._step
        near = floor(number) if past else ceil(number)
        near = max(0, near - 1)
        while (at := self.moment(near)) < moment or (past and at == moment):  # what division has rounded off
            near += 1
        return near


class Turns:
    """Who asks for a turn gets the moment at which its request is meant to begin. None is given before ``begin``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[float | None]] = deque()
        self._begun = False
        self.begun = 0
        "How many turns were given."
        self.late = 0
        "How many began more than LATE_S after their moment."
        self.late_here = 0
        "How many of them did so though a stream was free: this machine is the slow one."

    async def take(self) -> float | None:
        """The next turn; None when there is none any more."""
        raise NotImplementedError

    def begin(self, start: float) -> None:
        """The time begins."""
        raise NotImplementedError

    def stop(self, now: float) -> int:
        """Give no more turns; how many requests were due and will never begin."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the clock costs."""

    def _wait(self) -> asyncio.Future[float | None]:
        """A turn, later. Whoever waits longest gets the next one."""
        waiter: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter


class Closed(Turns):
    """A turn for everyone who asks: ``count`` in all, for so many ``seconds``."""

    def __init__(self, clock: Callable[[], float], *, count: int | None = None, seconds: float = inf) -> None:
        super().__init__(clock)
        self._left = inf if count is None else count
        self._seconds = seconds
        self._until = inf

    async def take(self) -> float | None:
        """See Turns."""
        if not self._begun:
            await self._wait()
        now = self._clock()
        if self._left <= 0 or now >= self._until:
            return None
        self._left -= 1
        self.begun += 1
        return now

    def begin(self, start: float) -> None:
        """See Turns."""
        self._begun = True
        self._until = start + self._seconds
        while self._waiting:
            self._waiting.popleft().set_result(None)

    def stop(self, now: float) -> int:
        """See Turns."""
        self._left = 0
        return 0


class Open(Turns):
    """A turn for each arrival, from the first one on: its own start does not count."""

    def __init__(self, arrivals: Arrivals, clock: Callable[[], float], *, exact: bool = True) -> None:
        super().__init__(clock)
        self.arrivals = arrivals
        self._idle_until = -inf
        self._alarm = Alarm(clock, self._ring, exact=exact)

    async def take(self) -> float | None:
        """See Turns."""
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
        """``idle``: at its moment a stream was free, and only this machine can have kept it from beginning."""
        self.begun += 1
        if now - moment > LATE_S:
            self.late += 1
            self.late_here += idle

    def begin(self, start: float) -> None:
        """See Turns."""
        self.arrivals.begin(start)
        self._begun = True
        self._ring()

    def stop(self, now: float) -> int:
        """See Turns."""
        due = max(0, self.arrivals.due(now)) if self._begun else 0
        self.arrivals.stop()
        self._ring()
        return due

    def close(self) -> None:
        """See Turns."""
        self._alarm.close()

    def _ring(self) -> None:
        """It is time for the next one, or there is none."""
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
