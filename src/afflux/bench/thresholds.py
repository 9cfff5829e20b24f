"""Parse thresholds such as ``p99>20ms`` and compare results with them.

::

    threshold  =  METRIC  (">" | ">=" | "<" | "<=")  LIMIT

The kind of the metric determines how its limit is written:

- a time, with its unit: ``p50`` ``p99`` ``p999`` (99.9 %) ``p97.5`` ``min`` ``mean`` ``stddev`` ``max`` of the latency;
  a prefix selects another series: ``first_item_p99``, ``gap_max``, ``service_p50``, ``start_delay_p99``;
- a rate: ``rate`` (successful requests per second), ``items/s``: ``2500``, ``10k``, ``1.5M``;
- bytes per second, ``bytes/s``: ``10MB``, ``512KiB``;
- a count: ``errors``, ``late``;
- a share, 0 to 1 or with %: ``error_rate``, ``stall`` (waiting for credit), ``stall_peer``, ``stall_application``, and
  ``achieved`` (of the requested rate).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from afflux.bench.plan import Plan
from afflux.bench.result import FIGURES, SERIES, Result, percent_of

__all__ = ["METRICS", "Threshold", "shown_time"]

Kind = Literal["time", "rate", "bytes", "count", "share"]

METRICS: dict[str, Kind] = {
    "p50": "time",
    "p90": "time",
    "p95": "time",
    "p99": "time",
    "p999": "time",
    "min": "time",
    "mean": "time",
    "stddev": "time",
    "max": "time",
    "rate": "rate",
    "items/s": "rate",
    "bytes/s": "bytes",
    "errors": "count",
    "late": "count",
    "error_rate": "share",
    "stall": "share",
    "stall_peer": "share",
    "stall_application": "share",
    "achieved": "share",
}
"Metrics and their kinds."

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_WRITTEN = re.compile(r"\s*([A-Za-z][\w./]*)\s*(>=|<=|>|<)\s*(\S+(?: ?[A-Za-zµ%/]+)?)\s*")
_PERCENTILE = re.compile(r"p(\d{1,2}\.\d+|\d{1,2}|9\d{2,5})")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ%]*)(/s)?")
_UNITS: dict[Kind, dict[str, float]] = {
    "time": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0},
    "rate": {"": 1, "k": 1e3, "M": 1e6},
    "bytes": {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "count": {"": 1},
    "share": {"": 1, "%": 0.01},
}
_EXAMPLES: dict[Kind, str] = {
    "time": "20ms",
    "rate": "1000",
    "bytes": "10MB",
    "count": "0",
    "share": "1%",
}
_SHOWN = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_FLOWING = ("first_item", "gap", "items/s", "stall", "stall_peer", "stall_application")
_OPEN = ("service", "start_delay", "late", "achieved")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit that fails a run when it is crossed."""

    text: str
    "The original text."
    series: str
    "``latency`` or another series; only meaningful if ``kind`` is time."
    metric: str
    kind: Kind
    compare: str
    limit: float
    "Seconds, per second, bytes per second, a count or a share."

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Parse a threshold.

        Raises:
            ValueError: the syntax is wrong; the text describes the correct one.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ValueError(
                f"invalid threshold {text!r}: expected METRIC, one of > >= < <=, and a limit, such as p99>20ms"
            )
        name, compare, amount = found.groups()
        series, metric, kind = _metric(name)
        return cls(text.strip(), series, metric, kind, compare, _limit(name, compare, amount, kind))

    def check(self, plan: Plan) -> None:
        """Check that a load measures the metric.

        Raises:
            ValueError: it does not.
        """
        about = self.series if self.kind == "time" else self.metric
        if about in _FLOWING and not plan.flows:
            raise ValueError(f"{self.text!r}: only measured with --stream and --channel")
        if about in _OPEN and plan.rate is None:
            raise ValueError(f"{self.text!r}: only measured with --rate")

    def value(self, result: Result) -> float | None:
        """Return the measured value; None if there is none."""
        if self.kind == "time":
            histogram = result.series(self.series)
            if not histogram:
                return None
            if (percent := _percent(self.metric)) is not None:
                return histogram.percentile(percent) / 1e9
            return float(getattr(histogram, self.metric)) / 1e9
        return _value(self.metric, result)

    def crossed(self, result: Result) -> str | None:
        """Return a message if the result crosses the limit or has no value to compare; otherwise None."""
        value = self.value(result)
        if value is None:
            return f"{self.text}: nothing was measured"
        if _COMPARE[self.compare](value, self.limit):
            return f"{self.text}: measured {self._shown(value)}"
        return None

    def _shown(self, value: float) -> str:
        match self.kind:
            case "time":
                return shown_time(value)
            case "share":
                return f"{value:.2%}".replace("%", " %")
            case "bytes":
                return f"{value / 1e6:,.3f} MB/s"
            case "rate":
                return f"{value:,.1f} per second"
        return f"{value:,.0f}"


def shown_time(seconds: float) -> str:
    """Format a time with three digits and its unit."""
    unit, size = next((each for each in _SHOWN if seconds >= each[1]), _SHOWN[-1])
    number = seconds / size
    if not number:
        return "0"
    digits = 0 if number >= 100 else 1 if number >= 10 else 2
    return f"{number:,.{digits}f} {unit}"


def _metric(name: str) -> tuple[str, str, Kind]:
    """Parse a metric's name into series, metric and kind."""
    series, metric = "latency", name
    for each in SERIES:
        if name.startswith(f"{each}_"):
            series, metric = each, name.removeprefix(f"{each}_")
    if _PERCENTILE.fullmatch(metric):
        if not _percent(metric):
            raise ValueError("use min instead of p0")
        return series, metric, "time"
    kind = METRICS.get(metric)
    if kind is None or (metric != name and kind != "time"):
        raise ValueError(f"unknown metric {name!r}; {_hint(name, metric)}")
    return series, metric, kind


def _hint(name: str, metric: str) -> str:
    """Return a suggestion for an unknown metric."""
    if metric == "p100":
        return "use max instead of p100"
    if re.fullmatch(r"p\d+", metric):
        return "a percentile is below 100, and a fraction needs a point: p12.5"
    if (series := name.lower()) in SERIES:
        prefix = "" if series == "latency" else f"{series}_"
        return f"did you mean {prefix}p99? figures of {series}: {', '.join(prefix + figure for figure in FIGURES)}"
    near = get_close_matches(name.lower(), METRICS, 1)
    return f"{f'did you mean {near[0]}? ' if near else ''}available: {', '.join(METRICS)}"


def _limit(name: str, compare: str, amount: str, kind: Kind) -> float:
    found = _AMOUNT.fullmatch(amount)
    units = _UNITS[kind]
    if found is None or found[2] not in units or (found[3] and kind not in ("rate", "bytes")):
        what = {"time": "a time with its unit", "bytes": "bytes per second", "share": "a share"}.get(kind, f"a {kind}")
        raise ValueError(f"invalid limit {amount!r}: {name} is {what}, such as {name}{compare}{_EXAMPLES[kind]}")
    value = float(found[1]) * units[found[2]]
    if kind == "share" and value > 1:
        raise ValueError(f"invalid limit {amount!r}: {name} is a share, 0 to 1 or 0% to 100%")
    return value


def _percent(metric: str) -> float | None:
    """Return the percentile of a metric, or None."""
    return percent_of(metric) if _PERCENTILE.fullmatch(metric) else None


def _value(metric: str, result: Result) -> float | None:
    match metric:
        case "rate":
            return result.requests_per_s
        case "items/s":
            return result.items_per_s
        case "bytes/s":
            return result.bytes_per_s
        case "errors":
            return result.tally.failed
        case "late":
            return result.late
        case "error_rate":
            return result.error_rate
        case "achieved":
            return result.requests_per_s / (result.plan.rate or 1.0)
    cause = metric.removeprefix("stall_") if metric != "stall" else "credit"
    return None if result.stall is None else result.stall[cause]
