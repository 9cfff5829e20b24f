"""An adaptive window: as many items as the consumer takes in one round trip, and some more. Time is an argument.

Here is arithmetic only, as in credit.py, which has the fixed window. All that it follows is seen at the receiver:

1. A **flight** goes from a grant to the moment when the application has taken the first item which that grant allowed.
   It measures the round trip (to the arrival of that item), the rate at which the application took items, and how
   long it waited for them meanwhile. One flight at a time.
2. The **round trip** is the least that was measured: more is a queue. It is forgotten after ``_REMEMBERED_S`` or
   ``_REMEMBERED`` round trips unless it is confirmed, and when one flight after the other takes much longer while
   the application waits: the way has become longer. Then the window is halved for one flight, so that what is
   measured anew is not our own queue.
3. The **rate** is the greatest of the last few flights while the application waits for items, for a network that
   hiccups is not slow. While items wait for the application only the last two count: it has become slow.
4. The **window** is rate × round trip × ``_STEADY``, or what is taken in ``_LEAST_S`` where that is more, and one item
   in hand. As long as it is the window that holds the sender back (the application waits, there is no queue, and the
   rate has grown with the window) it is ``_GROWING`` times rate × round trip.
5. While the application waits, a burst of ``_BURST`` items or ``_BURST_BYTES`` needs no round trip.

Invariants, beside those of ``Window``: nothing is granted unless something was consumed, so a consumer that stops
holds what it had and no more; and no window is above ``_MOST`` items, however small they are.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Literal

from afflux.core.credit import SATURATED, Window
from afflux.core.errors import LocalProtocolError

__all__ = ["AutoWindow", "Kept", "check_kept", "window_of"]

Kept = int | Literal["auto"]
"Credit to keep open on a stream: items, 0 to grant by hand, or as many as it seems to need."

_FIRST = 16
"Items of the first grant, when nothing is known."
_MOST = 0x10000
_BURST = 32
_BURST_BYTES = 0x10000
_STEADY = 1.25
"Covers that a grant is made for several items together."
_GROWING = 3.0
"The rate lags a round trip behind the window: so it doubles in about one and a half."
_LEAST_S = 0.0015
"What two busy event loops may need for a turn,"
_FEW = 4
"but for so many items of it: a turn is shorter than the time of an item then."
_SHORT = 0.25
"Of the time of an item: to wait so long for the next costs less than one more that waits would."
_REMEMBERED_S = 5.0
_REMEMBERED = 64
"Round trips, where that is longer: to measure one costs half of one."
_DOUBTED_S = 1.0
"The first round trip has the start of a handler in it, and is forgotten sooner."
_LONGEST_S = 1.0
"A round trip that takes longer is a source that rests."
_RATES = 8
"Flights that the greatest rate is taken from."
_QUEUE = 1.6
"Times the round trip: there is a queue."
_LOST = 8
"Flights that took longer and brought less, in a row, after which the round trip is forgotten."


class Flight:
    """From one grant to the first item that it allowed."""

    __slots__ = ("mark", "round_trip", "since", "start", "waited")

    def __init__(self, now: float, done: int, granted: int) -> None:
        self.since = now
        self.start = done
        "Items consumed before."
        self.mark = granted
        "Items granted before: one more has to come."
        self.round_trip = 0.0
        "0 until that one has arrived."
        self.waited = 0.0
        "Seconds for which the application had nothing."


class AutoWindow(Window):
    """A window whose ``size`` follows what the application consumes. Use it like ``Window``, and tell it the time, in
    seconds, and what ``arrived``."""

    __slots__ = (
        "_arrived",
        "_base",
        "_busy",
        "_done",
        "_enough",
        "_flat",
        "_flight",
        "_forget_at",
        "_grew",
        "_growing",
        "_idle",
        "_jitter",
        "_last",
        "_lost",
        "_peak",
        "_probing",
        "_rates",
        "_waiting",
    )

    def __init__(self, byte_limit: int = SATURATED, overhead: int = 0) -> None:
        super().__init__(_FIRST, byte_limit, overhead)
        self._done = 0
        self._arrived = 0
        self._idle: float | None = None
        "Since when the application waits."
        self._flight: Flight | None = None
        self._base = 0.0
        "The round trip; 0 while it is not known."
        self._forget_at = 0.0
        self._probing = False
        "The round trip is being measured anew."
        self._rates: list[float] = []
        self._growing = True
        self._flat = 0
        self._grew = 0
        self._lost = 0
        self._peak = 0.0
        self._jitter = 0.0
        self._last = 0.0
        self._waiting = 0
        "Flights in a row in which the application waited for most of the time."
        self._busy = False
        "When it was last one or the other, the application was the slow one."
        self._enough = _MOST
        "Items that last for a round trip."

    @property
    def step(self) -> int:
        """How many items the application may take before it says so: a quarter of the window."""
        return max(1, self.target // 4)

    def initial(self, now: float = 0.0) -> int:
        """See Window."""
        self._flight = Flight(now, self._done, self._done + self.outstanding)
        self._idle = now
        return super().initial()

    def arrived(self, items: int, now: float) -> None:
        """So many items have come; the application need not have taken them yet."""
        self._arrived += items
        flight = self._flight
        if flight is not None:
            if self._idle is not None:
                flight.waited += now - max(self._idle, flight.since)
            if not flight.round_trip and self._arrived > flight.mark:
                flight.round_trip = max(now - flight.since, 1e-6)
        self._idle = None

    def consumed(self, items: int, nbytes: int, now: float = 0.0) -> int:
        """The application consumed ``items`` of ``nbytes`` in all. Return how many to grant now: 0, or at least an
        eighth of the window, and half of it where that is soon enough.

        Raises:
            ValueError: more than is outstanding, or a negative number (a bug of the caller).
        """
        self._check(items, nbytes)
        if not items:
            return 0
        self.outstanding -= items
        self._done += items
        flight = self._flight
        if flight is not None and (self._done > flight.mark or self._is_late(now - flight.since)):
            self._flight = None
            self._learn(flight, now)
        if self._idle is None and self._done >= self._arrived:
            self._idle = now
        if self._base and not self._probing and (now > self._forget_at or self._lost >= _LOST):
            self._probing = True
            self._flight = None
            self.size = max(1, self.size // 2)
        self._weigh(items, nbytes)
        grant = self.target - self.outstanding
        if (grant * 2 < self.target and (grant * 8 < self.target or self.outstanding > self._enough)) or grant <= 0:
            return 0
        if self._flight is None:
            self._flight = Flight(now, self._done, self._done + self.outstanding)
        self.outstanding += grant
        return grant

    def _is_late(self, seconds: float) -> bool:
        """Whether a flight of that length needs not be waited for: it will tell nothing about the round trip."""
        return bool(self._base) and not self._probing and seconds > 2 * max(self._base, _LEAST_S)

    def _learn(self, flight: Flight, now: float) -> None:
        """A flight has ended, or lasts too long."""
        known = self._base and not self._probing
        if flight.round_trip:
            self._trust(flight.round_trip, now)
        elapsed = now - flight.since
        if not known or elapsed <= 0:
            return
        self._follow(flight, (self._done - flight.start) / elapsed, flight.waited / elapsed)
        rate, way = max(self._rates), self._base + min(2 * self._jitter, self._base / 4)
        self._enough = _MOST if self._growing else 1 + ceil(rate * way * 1.125)
        rate *= _GROWING if self._growing else _STEADY
        wanted = 1 + max(ceil(rate * way - _SHORT), int(rate * _LEAST_S) - _FEW)
        if self._waiting > 2:
            wanted = max(wanted, min(_BURST, _BURST_BYTES * self._items // max(1, self._bytes)))
        self.size = max(1, min(_MOST, wanted))

    def _trust(self, round_trip: float, now: float) -> None:
        """A round trip was measured."""
        before, probing = self._base, self._probing
        if before:
            self._jitter += (min(abs(round_trip - self._last), before) - self._jitter) / 8
        self._last = round_trip
        if not before or probing or round_trip < before:
            self._base = min(round_trip, _LONGEST_S)
        if not before:
            self._forget_at = now + _DOUBTED_S
        elif probing and round_trip < 0.9 * before:
            self._forget_at = now  # there was a queue, and half of it may still be there
        elif probing or round_trip < 1.1 * self._base:
            self._forget_at = now + max(_REMEMBERED_S, _REMEMBERED * self._base)
        if probing:
            self._probing = False
            self._lost = 0
            self._peak = 0.0

    def _follow(self, flight: Flight, rate: float, waited: float) -> None:
        """Take the rate of a flight; ``waited`` is the part of its time for which the application waited."""
        self._waiting = self._waiting + 1 if waited > 0.5 else 0
        if waited < 0.25:  # a larger window is no use to it
            self._busy = True
            self._growing = False
            self._rates = [*self._rates[-1:], rate]
            self._peak = 0.0
            return
        if self._busy and self._waiting:  # it has become fast
            self._busy = False
            self._growing = True
            self._flat = 0
        grows = rate > 1.15 * max(self._rates, default=0.0)
        self._flat = 0 if grows else self._flat + 1
        self._grew = self._grew + 1 if grows else 0
        took = (flight.round_trip or inf) / max(self._base, _LEAST_S)
        self._peak = max(rate, self._peak * 0.998)
        lost = took > 1.1 and rate < 0.9 * self._peak and self._waiting
        self._lost = self._lost + 1 if lost else 0
        if took > _QUEUE or self._flat >= 3:
            self._growing = False
        elif self._grew >= 3:
            self._growing = True
        self._rates = [*self._rates[1 - _RATES :], rate]


def check_kept(credit: object) -> None:
    """What an application may give as ``credit=``.

    Raises:
        LocalProtocolError: it is neither "auto" nor a number of items, or that is out of range (rule ``FC-24``).
    """
    if credit != "auto" and not (isinstance(credit, int) and 0 <= credit <= 0x7FFFFFFF):
        raise LocalProtocolError(f'credit is 0 to {0x7FFFFFFF}, or "auto", not {credit!r}', rule="FC-24")


def window_of(credit: Kept, byte_limit: int, overhead: int = 0) -> Window | None:
    """The window to keep open; None when all grants are by hand."""
    if credit == "auto":
        return AutoWindow(byte_limit, overhead)
    return Window(credit, byte_limit, overhead) if credit else None
