"""What must not happen: how it is written, what is told when it is written otherwise, and what is compared."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from afflux.bench import Plan, Result, Threshold
from afflux.bench.tally import Failure, Tally
from afflux.bench.thresholds import METRICS, shown_time

URI = "tcp://127.0.0.1:7000"


def result(**choices: Any) -> Result:
    """10 s: 1 to 100 ms, a hundred answers of 1,000 bytes; 25 failures."""
    tally = Tally()
    for ms in range(1, 101):
        tally.answered(0.0, ms / 1000, 1000)
        tally.served(0.0, ms / 2000)
        tally.delay.record(ms * 500_000)
        tally.first_item.record(ms * 100_000)
        tally.gap.record(ms * 10_000)
    tally.fail(Failure("Rejected", 0x202, "no"), 25)
    tally.credit, tally.peer, tally.application = 1.0, 2.0, 5.0
    return Result(
        plan=Plan(uri=URI, **choices), tally=tally, started=time.time(), duration=10.0, requests=125, late=7, trip=0.001
    )


STREAM = {"verb": "stream"}
OPEN = {"rate": 20.0}


@pytest.mark.parametrize(
    ("text", "choices", "crossed"),
    [
        ("p99>20ms", {}, "p99>20ms: measured 99.0 ms"),
        ("p99>99.1ms", {}, None),
        ("p99 >= 99ms", {}, "p99 >= 99ms: measured 99.0 ms"),
        ("p99 > 99.1 ms", {}, None),
        ("p50<1s", {}, "p50<1s: measured 50.0 ms"),
        ("p50<=49ms", {}, None),
        ("p999>0.1s", {}, None),
        ("p99.9>99ms", {}, "p99.9>99ms: measured 100 ms"),
        ("p7>6500us", {}, "p7>6500us: measured 7.00 ms"),
        ("min>1ns", {}, "min>1ns: measured 1.00 ms"),
        ("max>1m", {}, None),
        ("mean>50ms", {}, "mean>50ms: measured 50.5 ms"),
        ("stddev<1µs", {}, None),
        ("rate<1k", {}, "rate<1k: measured 10.0 per second"),
        ("rate<9.9/s", {}, None),
        ("bytes/s<1MB", {}, "bytes/s<1MB: measured 0.010 MB/s"),
        ("bytes/s<1KiB/s", {}, None),
        ("errors>0", {}, "errors>0: measured 25"),
        ("errors>25", {}, None),
        ("error_rate>1%", {}, "error_rate>1%: measured 20.00 %"),
        ("error_rate>0.2", {}, None),
        ("stall>12%", STREAM, "stall>12%: measured 12.50 %"),
        ("stall_peer>0.25", STREAM, None),
        ("stall_application>50%", STREAM, "stall_application>50%: measured 62.50 %"),
        ("first_item_p50>4ms", STREAM, "first_item_p50>4ms: measured 5.00 ms"),
        ("gap_max>1ms", STREAM, None),
        ("items/s<11", STREAM, "items/s<11: measured 10.0 per second"),
        ("service_p50>24ms", OPEN, "service_p50>24ms: measured 25.0 ms"),
        ("start_delay_max>49ms", OPEN, "start_delay_max>49ms: measured 50.0 ms"),
        ("late>6", OPEN, "late>6: measured 7"),
        ("achieved<95%", OPEN, "achieved<95%: measured 50.00 %"),
    ],
)
def test_a_threshold_is_crossed_or_not(text: str, choices: dict[str, Any], crossed: str | None) -> None:
    threshold = Threshold.parse(text)
    measured = result(**choices)
    threshold.check(measured.plan)
    assert threshold.crossed(measured) == crossed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "METRIC, one of > >= < <="),
        ("p99", "such as p99>20ms"),
        ("p99=20ms", "such as p99>20ms"),
        ("p99>20ms please", "such as p99>20ms"),
        ("p99>20", "invalid limit '20': p99 is a time with its unit, such as p99>20ms"),
        ("p99>20MB", "p99 is a time with its unit"),
        ("p99>fast", "p99 is a time with its unit"),
        ("p99>20ms/s", "p99 is a time with its unit"),
        ("rate<1s", "invalid limit '1s': rate is a rate, such as rate<1000"),
        ("errors>1%", "errors is a count, such as errors>0"),
        ("error_rate>20", "error_rate is a share, 0 to 1 or 0% to 100%"),
        ("bytes/s<1x", "bytes/s is bytes per second, such as bytes/s<10MB"),
        ("error_rat>1%", "did you mean error_rate?"),
        ("latency>1ms", "unknown metric 'latency'; did you mean p99? figures of latency: min, mean"),
        ("P99>1ms", "did you mean p99? available: p50"),
        ("p99.9.9>1ms", "unknown metric"),
        ("p100>1ms", "use max instead of p100"),
        ("p0>1ms", "use min instead of p0"),
        ("p123>1ms", "a percentile is below 100, and a fraction needs a point"),
        ("gap_errors>1", "unknown metric 'gap_errors'"),
        ("bytes>1", "did you mean bytes/s?"),
    ],
)
def test_a_wrong_spelling_is_reported_with_the_right_one(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Threshold.parse(text)


@pytest.mark.parametrize("text", ["stall>1%", "first_item_p99>1ms", "gap_p50>1ms", "items/s<1", "stall_peer>1%"])
def test_what_only_streams_have(text: str) -> None:
    threshold = Threshold.parse(text)
    threshold.check(Plan(uri=URI, verb="channel"))
    with pytest.raises(ValueError, match="only measured with --stream and --channel"):
        threshold.check(Plan(uri=URI))


@pytest.mark.parametrize("text", ["late>1", "achieved<99%", "service_p99>1ms", "start_delay_p99>1ms"])
def test_what_only_open_load_has(text: str) -> None:
    threshold = Threshold.parse(text)
    threshold.check(Plan(uri=URI, rate=5))
    with pytest.raises(ValueError, match="only measured with --rate"):
        threshold.check(Plan(uri=URI))


def test_where_nothing_was_measured_a_threshold_is_crossed() -> None:
    empty = Result(plan=Plan(uri=URI, verb="stream"), tally=Tally(), started=0.0, duration=1.0, requests=0)
    for text in ("p99>20ms", "stall>1%"):
        assert Threshold.parse(text).crossed(empty) == f"{text}: nothing was measured"
    assert Threshold.parse("errors>0").crossed(empty) is None


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_can_be_written(metric: str) -> None:
    limit = {"time": "1ms", "share": "1%"}.get(METRICS[metric], "1")
    threshold = Threshold.parse(f"{metric}>{limit}")
    assert threshold.kind == METRICS[metric]
    assert threshold.value(result(verb="stream", rate=20.0)) is not None


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0"),
        (1e-9, "0.00 µs"),
        (12.34e-6, "12.3 µs"),
        (0.00123, "1.23 ms"),
        (0.5, "500 ms"),
        (1234.5, "1,234 s"),
    ],
)
def test_times_have_three_digits(seconds: float, shown: str) -> None:
    assert shown_time(seconds) == shown
