"""Adapt a window to the items that the application consumes in one round trip. Time is an argument.

The fixed window is in credit.py. All measurements are made at the receiver:

1. A **flight** lasts from a grant until the application has taken the first item sent under that grant. It measures
   the round trip (until that item arrived), the rate at which the application took items, and how long the
   application waited for items. There is one flight at a time.
2. The **round trip** is the smallest measured, because a longer one contains queueing. It expires after
   ``_REMEMBERED_S`` or ``_REMEMBERED`` round trips unless it is confirmed, and when several consecutive flights take
   much longer while the application waits, because the path has become longer. The window is then halved for one
   flight, so that the new measurement does not contain our own queue.
3. The **rate** is the greatest of the last few flights while the application waits for items, because a short
   interruption of the network does not make it slow. While items wait for the application, which has then become
   slow, only the last two flights count.
4. The **window** is rate × round trip × ``_STEADY``, or the items taken in ``_LEAST_S`` if they are more, plus one.
   While the window limits the sender (the application waits, there is no queue, and the rate has grown with the
   window) it is ``_GROWING`` × rate × round trip.
5. While the application waits, a burst of ``_BURST`` items or ``_BURST_BYTES`` needs no round trip.

Further invariants: nothing is granted unless something was consumed, so an application that stops consuming receives
no more than was granted; and no window exceeds ``_MOST`` items.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Literal

from afflux.core.credit import SATURATED, Window
from afflux.core.errors import LocalProtocolError

__all__ = ["AutoWindow", "Kept", "check_kept", "window_of"]

Kept = int | Literal["auto"]
"The window of a stream: items, 0 to grant by hand, or ``auto`` to adapt it."

_FIRST = 16
"Items of the first grant, before anything is measured."
_MOST = 0x10000
_BURST = 32
_BURST_BYTES = 0x10000
_STEADY = 1.25
"Compensates for grants that cover several items."
_GROWING = 3.0
"Growth factor. The rate lags a round trip behind the window, so the window doubles in about 1.5 round trips."
_LEAST_S = 0.0015
"The time that two busy event loops may need for a turn."
_FEW = 4
"Items that are subtracted from those of ``_LEAST_S``: with so few, a turn is shorter than the time of an item."
_SHORT = 0.25
"Fraction of an item's time: a wait this short costs less than one more queued item."
_REMEMBERED_S = 5.0
_REMEMBERED = 64
"Round trips after which the smallest expires, if they take longer than ``_REMEMBERED_S``; a measurement costs half."
_DOUBTED_S = 1.0
"Seconds after which the first round trip expires, which includes the start of a handler."
_LONGEST_S = 1.0
"The longest round trip; a source that needs longer pauses by itself."
_RATES = 8
"Number of flights from which the greatest rate is taken."
_QUEUE = 1.6
"A flight longer than this many round trips contains queueing."
_LOST = 8
"Consecutive flights with more time and a lower rate after which the round trip expires."


class Flight:
    """Measurements from one grant until the first item sent under it is taken."""

    __slots__ = ("mark", "round_trip", "since", "start", "waited")

    def __init__(self, now: float, done: int, granted: int) -> None:
        self.since = now
        self.start = done
        "Items consumed before the grant."
        self.mark = granted
        "Items granted before: the flight ends with the next one."
        self.round_trip = 0.0
        "Seconds until that item arrived; 0 before."
        self.waited = 0.0
        "Seconds during which the application had no items."


class AutoWindow(Window):
    """A window whose ``size`` follows what the application consumes. Use it like ``Window``, with the time in seconds,
    and report what ``arrived``."""

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
        "Time since which the application waits."
        self._flight: Flight | None = None
        self._base = 0.0
        "The round trip; 0 while it is unknown."
        self._forget_at = 0.0
        self._probing = False
        "True while the round trip is measured again."
        self._rates: list[float] = []
        self._growing = True
        self._flat = 0
        self._grew = 0
        self._lost = 0
        self._peak = 0.0
        self._jitter = 0.0
        self._last = 0.0
        self._waiting = 0
        "Consecutive flights in which the application waited for most of the time."
        self._busy = False
        "True while the application, not the sender, is the slower side."
        self._enough = _MOST
        "Items consumed in one round trip."

    @property
    def step(self) -> int:
        """How many items the application may take before it reports them: a quarter of the window."""
        return max(1, self.target // 4)

    def initial(self, now: float = 0.0) -> int:
        """See Window."""
        self._flight = Flight(now, self._done, self._done + self.outstanding)
        self._idle = now
        return super().initial()

    def arrived(self, items: int, now: float) -> None:
        """Report that ``items`` have arrived. The application may take them later."""
        self._arrived += items
        flight = self._flight
        if flight is not None:
            if self._idle is not None:
                flight.waited += now - max(self._idle, flight.since)
            if not flight.round_trip and self._arrived > flight.mark:
                flight.round_trip = max(now - flight.since, 1e-6)
        self._idle = None

    def consumed(self, items: int, nbytes: int, now: float = 0.0) -> int:
        """Report that the application consumed ``items`` of ``nbytes`` in total. Return how many to grant now: 0, or at
        least an eighth of the window, or half of it where that is soon enough.

        Raises:
            ValueError: the number exceeds what is outstanding, or is negative (a bug of the caller).
        """
        self._check(items, nbytes)
        if not items:
            return 0
        self.outstanding -= items
        self._done += items
        flight = self._flight
        if flight is not None and (self._done > flight.mark or self._is_late(now - flight.since)):
            self._flight = None
            self._end_flight(flight, now)
        if self._idle is None and self._done >= self._arrived:
            self._idle = now
        if self._base and not self._probing and (now > self._forget_at or self._lost >= _LOST):
            self._probing = True
            self._flight = None
            self.size = max(1, self.size // 2)
        self._update_target(items, nbytes)
        grant = self.target - self.outstanding
        if (grant * 2 < self.target and (grant * 8 < self.target or self.outstanding > self._enough)) or grant <= 0:
            return 0
        if self._flight is None:
            self._flight = Flight(now, self._done, self._done + self.outstanding)
        self.outstanding += grant
        return grant

    def _is_late(self, seconds: float) -> bool:
        """Whether a flight of that length can be abandoned, because it cannot improve the round trip."""
        return bool(self._base) and not self._probing and seconds > 2 * max(self._base, _LEAST_S)

    def _end_flight(self, flight: Flight, now: float) -> None:
        """Adapt the window to a flight that has ended or lasts too long."""
        known = self._base and not self._probing
        if flight.round_trip:
            self._update_round_trip(flight.round_trip, now)
        elapsed = now - flight.since
        if not known or elapsed <= 0:
            return
        self._update_rate(flight, (self._done - flight.start) / elapsed, flight.waited / elapsed)
        rate, way = max(self._rates), self._base + min(2 * self._jitter, self._base / 4)
        self._enough = _MOST if self._growing else 1 + ceil(rate * way * 1.125)
        rate *= _GROWING if self._growing else _STEADY
        wanted = 1 + max(ceil(rate * way - _SHORT), int(rate * _LEAST_S) - _FEW)
        if self._waiting > 2:
            wanted = max(wanted, min(_BURST, _BURST_BYTES * self._items // max(1, self._bytes)))
        self.size = max(1, min(_MOST, wanted))

    def _update_round_trip(self, round_trip: float, now: float) -> None:
        """Apply a measured round trip."""
        before, probing = self._base, self._probing
        if before:
            self._jitter += (min(abs(round_trip - self._last), before) - self._jitter) / 8
        self._last = round_trip
        if not before or probing or round_trip < before:
            self._base = min(round_trip, _LONGEST_S)
        if not before:
            self._forget_at = now + _DOUBTED_S
        elif probing and round_trip < 0.9 * before:
            self._forget_at = now  # there was a queue, and half of it may remain
        elif probing or round_trip < 1.1 * self._base:
            self._forget_at = now + max(_REMEMBERED_S, _REMEMBERED * self._base)
        if probing:
            self._probing = False
            self._lost = 0
            self._peak = 0.0

    def _update_rate(self, flight: Flight, rate: float, waited: float) -> None:
        """Apply the rate of a flight; ``waited`` is the fraction of its time during which the application waited."""
        self._waiting = self._waiting + 1 if waited > 0.5 else 0
        if waited < 0.25:  # a larger window would not help
            self._busy = True
            self._growing = False
            self._rates = [*self._rates[-1:], rate]
            self._peak = 0.0
            return
        if self._busy and self._waiting:  # the application has become fast
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
    """Check the argument ``credit=`` of an application.

    Raises:
        TypeError: it is not "auto" or a whole number.
        LocalProtocolError: it is a number of items out of range (rule ``FC-24``).
    """
    if credit == "auto":
        return
    if not isinstance(credit, int) or isinstance(credit, bool):
        raise TypeError(f'credit= is a whole number of items, or "auto", not {credit!r}')
    if not 0 <= credit <= 0x7FFFFFFF:
        raise LocalProtocolError(f'credit must be 0 to {0x7FFFFFFF} or "auto", not {credit!r}', rule="FC-24")


def window_of(credit: Kept, byte_limit: int, overhead: int = 0) -> Window | None:
    """Return the window of a stream; None if all grants are by hand."""
    if credit == "auto":
        return AutoWindow(byte_limit, overhead)
    return Window(credit, byte_limit, overhead) if credit else None
