"""Figures: worked out from what was counted, and the same whether one process has counted or several."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from afflux.bench import Plan, Result
from afflux.bench.result import FIGURES, SERIES, percent_of
from afflux.bench.tally import Failure, Tally

URI = "tcp://127.0.0.1:7000"


def part(number: int = 1, **choices: object) -> Result:
    tally = Tally(10.0)
    for ms in range(1, 11):
        tally.answered(0.0, ms / 1000, 100 * number)
        tally.served(0.0, ms / 1000)
    tally.fail(Failure("Rejected", 0x202, "no"), number)
    tally.cut, tally.unfinished = 2, 3
    tally.credit, tally.peer, tally.application = 1.0, 2.0, 1.0
    return Result(
        plan=Plan(uri=URI, **choices),  # type: ignore[arg-type]
        tally=tally,
        started=1_700_000_000.0 + number,
        duration=5.0,
        requests=15 + number,
        late=number,
        late_here=1,
        backlog=10 * number,
        not_started=0,
        trip=0.001 * number,
        cpu=number / 10,
    )


def test_rates_are_of_what_came_in_time() -> None:
    result = part()
    result.tally.until = 0.0
    result.tally.answered(0.0, 1.0, 100)
    assert (result.requests_per_s, result.items_per_s, result.bytes_per_s) == (2.0, 2.0, 200.0)
    assert result.tally.succeeded == 11


def test_every_figure_has_a_name_with_its_unit() -> None:
    record = part(verb="stream", rate=3.0, credit=8).record()
    for name in SERIES:
        assert [f"{name}_{figure}_ms" for figure in FIGURES] == [each for each in record if each.startswith(f"{name}_")]
    assert (record["latency_p50_ms"], record["latency_max_ms"], record["latency_mean_ms"]) == (
        pytest.approx(5.0, rel=1e-3),
        10.0,
        pytest.approx(5.5, rel=1e-3),
    )
    assert (record["load"], record["rate_asked_per_s"], record["credit"], record["verb"]) == ("open", 3.0, 8, "stream")
    assert (record["stall_credit"], record["stall_peer"], record["stall_application"]) == (0.25, 0.5, 0.25)
    assert record["started_at"] == "2023-11-14T22:13:21.000+00:00"
    assert record["round_trip_ms"] == 1.0
    assert record["gap_p99_ms"] is None


def test_what_does_not_apply_is_none() -> None:
    record = part().record()
    assert {name for name, value in record.items() if value is None and not name.endswith("_ms")} == {
        "credit",
        "rate_asked_per_s",
        "late",
        "late_here",
        "backlog_max",
        "not_started",
        "kept_up",
        "connections_lost",
        "stall_credit",
        "stall_peer",
        "stall_application",
    }
    assert part(verb="stream", credit="auto").record()["credit"] == "auto"
    assert part(verb="stream", credit=0x7FFFFFFF).record()["credit"] == "unbounded"


def test_names_are_the_same_for_every_load() -> None:
    names = list(part().record())
    assert list(part(verb="stream", rate=1.0).record()) == names
    assert list(Result(plan=Plan(uri=URI), tally=Tally(), started=0, duration=0, requests=0).record()) == names


def test_an_empty_run_has_no_figures() -> None:
    empty = Result(plan=Plan(uri=URI), tally=Tally(), started=0.0, duration=0.0, requests=0)
    assert (empty.requests_per_s, empty.items_per_s, empty.bytes_per_s, empty.error_rate) == (0, 0, 0, 0)
    assert (empty.successful, empty.stall, empty.failures) == (False, None, [])


def test_items_of_streams_that_all_failed_are_no_success() -> None:
    tally = Tally()
    tally.came(9, 90, 1.0, 0.0, 0.0)
    tally.fail(Failure("ConnectionClosed", None, "gone"), 120)
    failed = Result(plan=Plan(uri=URI, verb="stream"), tally=tally, started=0.0, duration=1.0, requests=120)
    assert not failed.successful
    tally.cut = 1
    assert failed.successful


@pytest.mark.parametrize(("in_time", "given_up", "achieved"), [(99, 0, True), (98, 0, False), (99, 1, False)])
def test_whether_a_rate_was_achieved(in_time: int, given_up: int, achieved: bool) -> None:
    result = replace(part(rate=20.0), not_started=given_up)
    result.tally.in_time = in_time - result.tally.failed
    assert result.achieved is achieved


@pytest.mark.parametrize(
    ("late", "here", "given_up", "kept_up", "slow"),
    [
        (0, 0, 0, True, False),
        (1, 0, 0, True, False),
        (2, 0, 0, False, False),
        (9, 9, 0, True, True),
        (0, 0, 1, False, False),
    ],
)
def test_who_was_too_slow(late: int, here: int, given_up: int, kept_up: bool, slow: bool) -> None:
    """A hundredth of the requests may begin late without a word."""
    result = replace(part(rate=5.0), requests=100, late=late, late_here=here, not_started=given_up)
    assert (result.kept_up, result.slow_here) == (kept_up, slow)
    assert replace(result, plan=Plan(uri=URI)).kept_up is None


def test_what_several_processes_measured_is_one_result() -> None:
    plan = Plan(uri=URI, workers=2, connections=2)
    both = Result.together(plan, [part(1), pickle.loads(pickle.dumps(part(2)))])
    assert (both.requests, both.tally.succeeded, both.tally.failed, both.tally.cut) == (33, 20, 3, 4)
    assert (both.requests_per_s, both.bytes_per_s) == (4.0, 600.0)
    assert both.latency.count == 20
    assert (both.late, both.late_here, both.backlog) == (3, 2, 30)
    assert (both.trip, both.cpu, both.started) == (0.001, 0.2, 1_700_000_001.0)
    assert (both.interrupted, both.lost) == (False, None)
    parts = [replace(part(1), interrupted=True, trip=None), replace(part(2), lost="gone", trip=None)]
    ended = Result.together(plan, parts)
    assert (ended.interrupted, ended.lost, ended.trip) == (True, "gone", None)


@pytest.mark.parametrize(
    ("name", "percent"), [("p50", 50), ("p5", 5), ("p999", 99.9), ("p9999", 99.99), ("p97.5", 97.5)]
)
def test_names_of_percentiles(name: str, percent: float) -> None:
    assert percent_of(name) == percent
