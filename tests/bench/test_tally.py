"""What is counted adds up: two tallies are one that has counted all. Failures are told apart, up to a limit."""

from __future__ import annotations

import pickle

from afflux.bench.meter import Meter
from afflux.bench.tally import MOST_KINDS, Failure, Tally, kind_of
from afflux.core.errors import ApplicationError, ConnectionClosed


def count(tally: Tally, numbers: range) -> Tally:
    for number in numbers:
        tally.answered(0.0, number / 1000, number)
        tally.came(number, 10, 5.0, 4.0, None if number % 2 else 0.0)
        tally.ended(1.0, 2.0)
        tally.fail(Failure("Kind", number % 3, str(number)))
        tally.gave_up("Timeout", 1.5, "late")
        tally.served(0.0, number)
        tally.cut += 1
        meter = Meter(1, 1.0, 0.0)
        meter.waited(float(number))
        tally.flowed(meter)
    return tally


def test_two_are_one_that_has_counted_all() -> None:
    merged, alone = count(Tally(3.0), range(1, 6)), count(Tally(3.0), range(1, 12))
    merged.merge(pickle.loads(pickle.dumps(count(Tally(3.0), range(6, 12)))))
    assert vars(merged) == vars(alone)


def test_what_comes_after_the_time_is_counted_and_not_in_the_rate() -> None:
    tally = Tally(1.0)
    for now in (0.5, 1.0, 1.5):
        tally.answered(0.0, now, 7)
        tally.ended(0.0, now)
        tally.came(2, 5, now, 0.0, None)
    assert (tally.succeeded, tally.in_time) == (6, 4)
    assert (tally.items, tally.items_in_time) == (9, 6)
    assert (tally.bytes, tally.bytes_in_time) == (36, 24)


def test_items_that_came_together_are_nothing_apart() -> None:
    tally = Tally()
    tally.came(3, 0, 1.0, 0.0, 0.5)
    tally.came(2, 0, 3.0, 1.0, None)
    assert next(tally.gap.buckets()) == (0, 0, 3)
    assert (tally.gap.count, tally.gap.max) == (4, 2_000_000_000)
    assert (tally.first_item.count, tally.first_item.max) == (1, 500_000_000)


def test_a_failure_is_its_name_and_its_code() -> None:
    failure = kind_of(ApplicationError(0x301, "out of\x1b[31m stock " + "x" * 500))
    assert (failure.kind, failure.code, failure.example[:18]) == ("ApplicationError", 0x301, "out of [31m stock ")
    assert len(failure.example) == 240
    assert kind_of(ConnectionClosed("gone")).code is None


def test_a_server_with_many_codes_costs_no_memory() -> None:
    tally = Tally()
    for code in range(MOST_KINDS):
        tally.fail(Failure("ApplicationError", code, ""))
    assert len(tally.failures) == MOST_KINDS
    for code in range(1000, 2000):
        tally.fail(Failure("ApplicationError", code, "secret"))
    assert len(tally.failures) == MOST_KINDS + 1
    assert tally.failures[("Other", None)].count == 1000
    assert tally.failed == MOST_KINDS + 1000
    other = Tally()
    other.merge(tally)
    assert other.failed == tally.failed


def test_nothing_given_up_is_nothing() -> None:
    tally = Tally()
    tally.gave_up("NotStarted", 1.0, "late", 0)
    assert (tally.failed, tally.latency.count) == (0, 0)
