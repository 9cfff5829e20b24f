"""What one stream waited for: the three causes add up to all of its time, and each is told from the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.bench.meter import UNBOUNDED, Meter
from afflux.core.autocredit import AutoWindow, Kept


def causes(meter: Meter) -> tuple[float, float, float]:
    return pytest.approx((meter.credit, meter.peer, meter.application))


def test_half_a_window_is_granted_when_half_was_taken() -> None:
    meter = Meter(8, 0.0, 0.0)
    assert meter.opened(0) == 8
    grants = [meter.came(1, 10, 0) for _ in range(12)]
    assert grants == [0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4]


def test_no_more_is_granted_than_is_wanted() -> None:
    meter = Meter(8, 0.0, 0.0, take=10)
    assert meter.opened(0) == 8
    assert meter.came(6, 60, 0) == 2
    assert (meter.came(4, 40, 0), meter.taken) == (0, 10)
    assert Meter(UNBOUNDED, 0.0, 0.0, take=3).opened(0) == 3
    assert Meter(UNBOUNDED, 0.0, 0.0).opened(0) == UNBOUNDED


def test_large_items_make_the_window_smaller() -> None:
    meter = Meter(100, 0.0, 0.0, byte_limit=1000)
    assert meter.opened(0) == 100
    assert sum(meter.came(10, 1000, 0) for _ in range(10)) == 10


def test_an_adaptive_window_grants_as_it_does_in_a_stream() -> None:
    meter, window = Meter("auto", 0.01, 0.0), AutoWindow()
    assert meter.opened(0.0) == window.initial(0.0)
    for step in range(1, 200):
        now = step / 100
        meter.waited(now)
        window.arrived(4, now)
        assert meter.came(4, 40, now) == window.consumed(4, 40, now)


def test_without_credit_there_is_nothing_to_measure() -> None:
    with pytest.raises(ValueError, match="requires credit"):
        Meter(0, 0.0, 0.0)


def test_a_window_of_one_waits_a_round_trip_for_each_item() -> None:
    """The peer answers each grant at once: an item comes a round trip of 1 after the grant."""
    meter = Meter(1, 1.0, 0.0)
    meter.opened(0.0)
    for now in (1.0, 2.0, 3.0):
        meter.waited(now)
        assert meter.came(1, 10 * 1, now) == 1
    assert causes(meter) == (2, 1, 0)  # the first one was the request's own round trip


def test_a_slow_peer_is_not_blamed_on_credit() -> None:
    """It takes 10 for an item, and a round trip is 1: so long it had no credit, for the rest of the time it had."""
    meter = Meter(1, 1.0, 0.0)
    meter.opened(0.0)
    for now in (11.0, 22.0, 33.0):
        meter.waited(now)
        meter.came(1, 10 * 1, now)
    assert causes(meter) == (2, 31, 0)


def test_a_window_that_never_runs_dry_costs_nothing() -> None:
    """An item each 1, a round trip of 2, a window of 8: the credit for an item is there long before."""
    meter = Meter(8, 2.0, 0.0)
    meter.opened(0.0)
    for now in range(3, 52):
        meter.waited(float(now))
        meter.came(1, 10 * 1, float(now))
    assert causes(meter) == (0, 51, 0)


def test_a_window_that_arrives_in_pieces_is_still_one_window() -> None:
    """All 8 are sent at once and arrive in two reads: the grant of the first is still on its way after the second."""
    meter = Meter(8, 10.0, 0.0)
    meter.opened(0.0)
    meter.waited(10.0)
    assert meter.came(4, 40, 10.0) == 4
    meter.waited(10.1)
    assert meter.came(4, 40, 10.1) == 4
    meter.waited(20.0)
    assert causes(meter) == (9.9, 10.1, 0)


def test_work_is_the_clients_own() -> None:
    meter = Meter(4, 1.0, 0.0)
    meter.opened(0.0)
    meter.waited(1.0)
    meter.came(2, 20, 1.0)
    meter.worked(5.0)
    meter.came(0, 0, 5.0)
    meter.waited(5.5)
    assert causes(meter) == (0, 1.5, 4)


def test_without_a_round_trip_credit_is_not_reported() -> None:
    meter = Meter(1, None, 0.0)
    meter.opened(0.0)
    for now in (1.0, 2.0):
        meter.waited(now)
        meter.came(1, 10, now)
    assert meter.credit == 0


def test_the_end_of_a_stream_is_waited_for_too() -> None:
    meter = Meter(2, 1.0, 0.0, take=2)
    meter.opened(0.0)
    meter.waited(1.0)
    meter.came(2, 20, 1.0)
    meter.waited(4.0)
    assert causes(meter) == (0, 4, 0)


@settings(deadline=None)
@given(
    st.integers(1, 20) | st.just("auto"),
    st.floats(0, 5),
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5), st.floats(0, 1)), max_size=40),
)
def test_the_causes_add_up_to_all_of_the_time(credit: Kept, trip: float, steps: list[tuple[float, int, float]]) -> None:
    meter, now = Meter(credit, trip, 0.0), 0.0
    granted = meter.opened(now)
    for wait, wanted, work in steps:
        now += wait
        meter.waited(now)
        items = min(wanted, granted)
        granted += meter.came(items, 10 * items, now) - items
        now += work
        meter.worked(now)
    assert meter.credit + meter.peer + meter.application == pytest.approx(now)
    assert min(meter.credit, meter.peer, meter.application) >= -1e-9
