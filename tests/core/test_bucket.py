"""Token buckets: exact at the limit, refilled by time, never by time that goes backwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.bucket import Bucket, spend
from afflux.core.errors import Violation
from afflux.core.limits import Limits


def test_burst_is_allowed_and_one_more_is_not() -> None:
    bucket = Bucket(200, 20)
    assert all(bucket.take(1, 5.0) for _ in range(199))  # just below
    assert bucket.take(1, 5.0)  # exactly at
    assert not bucket.take(1, 5.0)  # just above


def test_several_tokens_are_taken_together_or_not_at_all() -> None:
    bucket = Bucket(60, 1)
    assert bucket.take(50, 0.0)
    assert not bucket.take(50, 0.0)
    assert bucket.level(0.0) == 10
    assert bucket.take(10, 0.0)


@pytest.mark.parametrize("start", [0.0, 10.05, 1e6 + 0.3])
def test_refill_is_exact_in_floating_point(start: float) -> None:
    bucket = Bucket(1, 20)
    assert bucket.take(1, start)
    assert not bucket.take(1, start + 0.0499)
    assert bucket.take(1, start + 0.05)


def test_refill_stops_at_the_burst() -> None:
    bucket = Bucket(5, 100)
    assert bucket.take(5, 1.0)
    assert bucket.level(1000.0) == 5


def test_time_that_goes_back_refills_nothing_and_is_not_refilled_twice() -> None:
    bucket = Bucket(10, 1)
    assert bucket.take(10, 100.0)
    assert not bucket.take(1, 50.0)
    assert not bucket.take(1, 100.0)
    assert bucket.take(1, 101.0)


def test_zero_rate_never_refills() -> None:
    bucket = Bucket(1, 0)
    assert bucket.take(1, 0.0)
    assert not bucket.take(1, 1e9)
    assert bucket.wait(1, 1e9) is None


def test_wait_returns_the_time_until_tokens_are_there() -> None:
    bucket = Bucket(2, 4)
    assert bucket.wait(2, 0.0) == 0.0
    assert bucket.take(2, 0.0)
    assert bucket.wait(2, 0.0) == 0.5
    assert bucket.wait(3, 0.0) is None
    assert bucket.take(2, 0.5)


@pytest.mark.parametrize("bad", [(-1, 1), (1, -1), (float("nan"), 1)])
def test_a_bucket_needs_sane_numbers(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="invalid bucket"):
        Bucket(*bad)


@given(
    burst=st.integers(0, 50),
    rate=st.integers(0, 50),
    takes=st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 20)), max_size=60),
)
def test_never_more_than_burst_and_refill(burst: int, rate: int, takes: list[tuple[int, int]]) -> None:
    bucket = Bucket(burst, rate)
    now = highest = 0
    taken = 0
    for n, step in takes:
        now += step
        highest = max(highest, now)
        before = bucket.level(now)
        if bucket.take(n, now):
            taken += n
        else:
            assert bucket.level(now) == before < n
        assert 0 <= bucket.level(now) <= burst
        assert taken <= burst + rate * highest


def test_the_bucket_of_a_limit_is_made_when_something_is_taken() -> None:
    limits = Limits(glitch_bucket=(2, 1))
    bucket = spend(None, limits, "glitch_bucket", 1, 0.0)
    assert (bucket.burst, bucket.per_second, bucket.level(0.0)) == (2, 1, 1)
    assert spend(bucket, limits, "glitch_bucket", 1, 0.0) is bucket
    with pytest.raises(Violation) as broken:
        spend(bucket, limits, "glitch_bucket", 1, 0.5)
    assert (broken.value.reason, broken.value.rule) == ("protocol-abuse", "glitch_bucket")
    assert spend(bucket, limits, "glitch_bucket", 1, 1.5) is bucket


def test_cancels_have_what_refills_in_five_seconds_beside_the_burst() -> None:
    """Before that reading slows down; it ends the connection only of who can not be slowed down."""
    limits = Limits(cancel_bucket=(20, 4))
    bucket = spend(None, limits, "cancel_bucket", 40, 0.0)
    assert (limits.most_cancels, bucket.burst, bucket.per_second) == (40, 40, 4)
    with pytest.raises(Violation, match="cancel-flood"):
        spend(bucket, limits, "cancel_bucket", 1, 0.0)
