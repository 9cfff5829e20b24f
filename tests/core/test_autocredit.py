"""The adaptive window on ways of made-up length, in made-up time: what it settles at, and what it never does."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.autocredit import AutoWindow, Kept, check_kept, window_of
from afflux.core.credit import Window
from afflux.core.errors import LocalProtocolError

Clock = Callable[[float], float]
"A value for each moment, in seconds."


class Way:
    """A source, a wire and a consumer, and the window between them. ``run`` lets seconds go by.

    The source makes an item when it has credit and the wire is free, which takes ``1 / rate`` for each; the consumer
    takes ``pace`` for each. ``ready`` says when the source has its n-th item.
    """

    def __init__(
        self,
        *,
        round_trip: float | Clock,
        rate: float,
        pace: float | Clock = 1e-6,
        size: int = 1,
        byte_limit: int = 1 << 21,
        jitter: float = 0.0,
        ready: Callable[[int], float] = lambda n: 0.0,
    ) -> None:
        self.window = AutoWindow(byte_limit)
        self._round_trip = round_trip if callable(round_trip) else lambda now: round_trip
        self._pace = pace if callable(pace) else lambda now: pace
        self._rate = rate
        self._size = size
        self._jitter = jitter
        self._ready = ready
        self._random = Random(1)
        self._numbers = count()
        self._events: list[tuple[float, int, str, int]] = []
        self._queue: deque[int] = deque()
        self._credit = self._made = 0
        self._free_at = self._arrives_at = 0.0
        self.targets: list[tuple[float, int]] = []
        "The window whenever an item was consumed."
        self._at(self._round_trip(0.0) / 2, "grant", self.window.initial(0.0))
        self._busy = False

    def run(self, until: float) -> Way:
        """Go on until that moment."""
        while self._events and self._events[0][0] <= until:
            now, _, kind, n = heapq.heappop(self._events)
            if kind == "item":
                self.window.arrived(1, now)
                self._queue.append(n)
                self._take(now)
            elif kind == "done":
                self._busy = False
                self.targets.append((now, self.window.target))
                if granted := self.window.consumed(1, self._size, now):
                    self._at(now + self._round_trip(now) / 2, "grant", granted)
                self._take(now)
            else:
                self._credit += n
                self._make(now)
        return self

    def rate(self, start: float, end: float) -> float:
        """Items consumed a second."""
        return sum(start <= at < end for at, _ in self.targets) / (end - start)

    def least_and_most(self, start: float, end: float) -> tuple[int, int]:
        """The window meanwhile."""
        seen = [target for at, target in self.targets if start <= at < end]
        return min(seen), max(seen)

    def _at(self, when: float, kind: str, n: int) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), kind, n))

    def _make(self, now: float) -> None:
        while self._credit:
            start = max(now, self._free_at)
            if (ready := self._ready(self._made)) > start:
                self._at(ready, "ready", 0)
                return
            self._free_at = start + 1 / self._rate
            late = self._random.random() * self._jitter
            self._arrives_at = max(self._arrives_at, self._free_at + self._round_trip(start) / 2 + late)
            self._at(self._arrives_at, "item", self._made)
            self._made += 1
            self._credit -= 1

    def _take(self, now: float) -> None:
        if self._queue and not self._busy:
            self._busy = True
            self._at(now + self._pace(now), "done", self._queue.popleft())


@pytest.mark.repetitive
@pytest.mark.parametrize(
    ("round_trip", "rate"), [(0.005, 100_000), (0.02, 20_000), (0.02, 1_000), (0.1, 2_000), (0.1, 60_000), (0.3, 500)]
)
def test_it_holds_what_is_under_way_and_half_as_much(round_trip: float, rate: float) -> None:
    way = Way(round_trip=round_trip, rate=rate).run(until=30 * round_trip)
    start, end = 20 * round_trip, 30 * round_trip
    assert way.rate(start, end) > 0.95 * rate
    under_way = rate * round_trip
    least, most = way.least_and_most(start, end)
    assert under_way * 1.2 < least
    assert most < max(under_way * 1.8, 40)


def test_it_doubles_in_less_than_two_round_trips() -> None:
    way = Way(round_trip=0.1, rate=60_000).run(until=1.6)
    assert way.targets[-1][1] > 16 * 2**8


@pytest.mark.parametrize(("round_trip", "most"), [(0.0004, 2), (0.02, 32), (0.1, 132)])
def test_a_slow_consumer_has_the_next_item_at_hand_and_no_more(round_trip: float, most: int) -> None:
    way = Way(round_trip=round_trip, rate=100_000, pace=0.00125).run(until=4)
    assert way.rate(2, 4) > 0.99 / 0.00125
    assert way.least_and_most(2, 4)[1] <= max(most, 2 + 800 * round_trip * 2)


def test_a_short_wait_costs_less_than_an_item_that_ages() -> None:
    way = Way(round_trip=0.0002, rate=100_000, pace=0.00125).run(until=4)
    assert way.least_and_most(2, 4) == (1, 1)
    assert way.rate(2, 4) > 0.8 / 0.00125


def test_it_follows_a_consumer_that_becomes_slow_and_fast_again() -> None:
    way = Way(round_trip=0.02, rate=10_000, pace=lambda now: 0.002 if 2 <= now < 4 else 1e-5).run(until=6)
    assert way.least_and_most(1, 2)[0] > 200
    assert way.least_and_most(3, 4)[1] < 40
    assert way.rate(4.3, 4.9) > 9_500


def test_a_consumer_that_stops_keeps_what_it_had() -> None:
    way = Way(round_trip=0.02, rate=10_000, pace=lambda now: 1e-5 if now < 2 else 1e6).run(until=2)
    held = way.window.outstanding
    way.run(until=1000)
    assert way.window.outstanding == held <= 400


def test_items_that_are_large_fit_the_bytes() -> None:
    way = Way(round_trip=0.1, rate=1_000, size=1000, byte_limit=50_000).run(until=6)
    assert way.least_and_most(2, 6)[1] == 50
    assert way.rate(2, 6) == pytest.approx(500, rel=0.12)


@pytest.mark.repetitive
@pytest.mark.parametrize("longer", [0.03, 0.034, 0.05, 0.1])
def test_a_way_that_becomes_longer_is_measured_anew(longer: float) -> None:
    way = Way(round_trip=lambda now: 0.02 if now < 3 else longer, rate=10_000).run(until=14)
    assert way.rate(2, 3) > 9_500
    assert way.rate(12, 14) > 9_500


def test_a_way_that_becomes_shorter_is_seen_at_once() -> None:
    way = Way(round_trip=lambda now: 0.2 if now < 4 else 0.02, rate=5_000).run(until=11)
    assert way.least_and_most(3, 4)[0] > 1_000
    assert way.least_and_most(10.8, 11)[1] < 400


@pytest.mark.repetitive
def test_ends_that_are_late_now_and_then_cost_little() -> None:
    way = Way(round_trip=0.02, rate=20_000, jitter=0.008).run(until=4)
    assert way.rate(1, 4) > 0.9 * 20_000


@pytest.mark.repetitive
def test_a_source_that_rests_may_still_send_bursts() -> None:
    way = Way(round_trip=0.02, rate=50_000, ready=lambda n: n * 0.002).run(until=8)
    assert way.rate(1, 8) == pytest.approx(500, rel=0.02)
    assert way.least_and_most(1, 8)[0] >= 16
    assert way.least_and_most(4, 8)[1] <= 50
    large = Way(round_trip=0.02, rate=50_000, ready=lambda n: n * 0.002, size=0x4000).run(until=4)
    assert large.least_and_most(3, 4)[1] < 32


def test_a_source_that_rests_for_long_does_not_look_like_a_long_way() -> None:
    way = Way(round_trip=0.02, rate=50_000, ready=lambda n: n * 0.1).run(until=120)
    assert way.least_and_most(60, 120)[1] <= 64


def test_bursts_are_taken_without_many_round_trips() -> None:
    way = Way(round_trip=0.02, rate=50_000, ready=lambda n: n // 1000 * 0.5).run(until=5)
    last = [at for at, _ in way.targets if 4 <= at < 4.5]
    assert len(last) == 1000
    assert last[-1] < 4 + 0.02 + 1000 / 50_000 + 2 * 0.02


@pytest.mark.repetitive
def test_no_window_is_endless() -> None:
    way = Way(round_trip=0.1, rate=2_000_000, size=0, byte_limit=1).run(until=2.2)
    assert way.window.size == 0x10000


@pytest.mark.repetitive
def test_it_asks_for_half_where_that_is_soon_enough() -> None:
    """On a short way a grant costs more than it brings."""
    window = Way(round_trip=0.00005, rate=500_000, pace=0.000002).run(until=0.5).window
    before, grants = window.outstanding, []
    for n in range(1, window.target):
        if granted := window.consumed(1, 1, 0.5 + n / 1e6):
            grants.append(granted)
            break
    assert grants == [window.target - before + n]
    assert grants[0] * 2 >= window.target > 100


def test_without_arrivals_it_stays_as_it_was() -> None:
    window = AutoWindow()
    assert window.initial(1.0) == 16
    for n in range(100):
        window.consumed(1, 10, 1.0 + n)
        assert 1 <= window.outstanding <= 16


def test_what_came_with_a_channels_request_is_part_of_the_window() -> None:
    window = AutoWindow()
    window.arrived(1, 0.0)
    assert window.initial(0.0) == 16  # the engine grants one less (RSocket D-8)
    assert window.consumed(1, 1, 0.0) == 0
    assert window.outstanding == 15


def test_a_clock_that_stands_still_does_no_harm() -> None:
    window = AutoWindow()
    window.initial(5.0)
    for _ in range(50):
        window.arrived(window.outstanding, 5.0)
        window.consumed(window.outstanding, 100, 5.0)
    assert window.outstanding == window.target == 16


def test_reports_are_due_for_a_quarter_of_the_window_and_grant_nothing_for_no_items() -> None:
    window = AutoWindow()
    assert window.initial(0.0) == 16
    assert window.step == 4
    window.arrived(16, 0.1)
    assert window.consumed(0, 0, 0.1) == 0
    assert window.outstanding == 16


def test_what_is_consumed_was_outstanding() -> None:
    window = AutoWindow()
    window.initial(0.0)
    for items, nbytes in ((17, 0), (-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="16 outstanding"):
            window.consumed(items, nbytes, 0.0)


@given(
    byte_limit=st.integers(1, 5_000),
    steps=st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 2_000), st.floats(0, 12), st.integers(0, 3)),
        max_size=80,
    ),
)
def test_it_never_stalls_and_never_overflows(
    byte_limit: int, steps: list[tuple[float, float, int, float, int]]
) -> None:
    window, now, here, consumed = AutoWindow(byte_limit), 0.0, 0, 0
    granted = window.initial(now)
    for arriving, taking, size, seconds, by_hand in steps:
        now += seconds**4 / 1000
        window.outstanding += by_hand
        granted += by_hand
        come = round(arriving * (granted - consumed - here))
        if come:
            window.arrived(come, now)
            here += come
        now += seconds**4 / 1000
        items = round(taking * here)
        grant = window.consumed(items, items * size, now)
        granted, consumed, here = granted + grant, consumed + items, here - items
        assert window.outstanding == granted - consumed
        assert grant == 0 or items
        assert window.outstanding >= 1
        assert 1 <= window.target <= window.size <= 0x10000
        assert 1 <= window.step <= window.target
        if grant:
            assert window.outstanding == window.target
            assert window.outstanding == 1 or window.outstanding * size <= byte_limit


@given(st.integers(1, 2000), st.integers(1, 1 << 30), st.integers(1, 1 << 24))
def test_a_grant_of_one_item_is_enough(items: int, microseconds: int, size: int) -> None:
    """Whatever has happened, who takes all that came can go on."""
    window, now = AutoWindow(1 << 21), 0.0
    window.initial(now)
    while items > 0:
        taken = min(items, window.outstanding)
        items -= taken
        now += microseconds / 1e6
        window.arrived(taken, now)
        window.consumed(taken, taken * size, now)
        assert window.outstanding >= 1


@pytest.mark.parametrize("credit", ["auto", 0, 1, 0x7FFFFFFF])
def test_what_may_be_given_as_credit(credit: Kept) -> None:
    check_kept(credit)
    window = window_of(credit, 1000)
    if credit == "auto":
        assert isinstance(window, AutoWindow)
    elif credit == 0:
        assert window is None
    else:
        assert type(window) is Window
        assert (window.size, window.byte_limit) == (credit, 1000)


@pytest.mark.parametrize("credit", ["many", None, 1.5, True])
def test_what_is_no_number_of_items(credit: Kept) -> None:
    with pytest.raises(TypeError, match=r'^credit= is a whole number of items, or "auto", not '):
        check_kept(credit)


@pytest.mark.parametrize("credit", [-1, 0x80000000])
def test_what_may_not(credit: Kept) -> None:
    with pytest.raises(LocalProtocolError, match=r'credit must be 0 to 2147483647 or "auto", not ') as caught:
        check_kept(credit)
    assert caught.value.rule == "FC-24"
