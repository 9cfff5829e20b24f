"""Compute the figures of a run from its tally, under stable names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from afflux.bench.histogram import Histogram
from afflux.bench.plan import Plan
from afflux.bench.tally import Failure, Tally
from afflux.core.errors import Error

__all__ = ["FIGURES", "SERIES", "Result", "percent_of"]

SERIES = ("latency", "service", "start_delay", "first_item", "gap")
"Measured times, each with a histogram."

FIGURES = ("min", "mean", "stddev", "p50", "p90", "p95", "p99", "p999", "max")
"Figures of each series."

_KEPT_UP = 0.01
"The share of requests that may start late before a note is shown."


def percent_of(name: str) -> float:
    """Return the percentile of a figure's name: 99.0 for p99, 99.9 for p999, 97.5 for p97.5."""
    digits = name.removeprefix("p")
    return float(digits if "." in digits else f"{digits[:2]}.{digits[2:] or 0}")


def _most_frequent(failures: Iterable[Failure]) -> list[Failure]:
    return sorted(failures, key=lambda failure: -failure.count)


@dataclass(slots=True, kw_only=True)
class Result:
    """One run of a load."""

    plan: Plan
    tally: Tally
    started: float
    "When measuring started, in seconds since 1970."
    duration: float
    "Seconds to which the rates refer."
    requests: int
    "Requests started or scheduled."
    late: int = 0
    "Open load: requests that started more than a millisecond late."
    late_here: int = 0
    "How many of them were late because of the client machine."
    backlog: int = 0
    "Open load: maximum number of requests that were due but had not started."
    not_started: int = 0
    "Open load: requests that failed before they started."
    trip: float | None = None
    "Seconds of a round trip."
    cpu: float = 0.0
    "Processor share used by the client; with several processes, the largest."
    interrupted: bool = False
    lost: str | None = None
    "Why the run ended early, if the server became unreachable."
    refusal: Error | OSError | None = None
    "The error of the first refused connection; None if all connections were opened."

    @property
    def latency(self) -> Histogram:
        """Nanoseconds from the scheduled start of a request to its end."""
        return self.tally.latency

    @property
    def requests_per_s(self) -> float:
        """Successful requests per second."""
        return self.tally.in_time / self.duration if self.duration else 0.0

    @property
    def items_per_s(self) -> float:
        """Items received per second."""
        return self.tally.items_in_time / self.duration if self.duration else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes of data and metadata received per second."""
        return self.tally.bytes_in_time / self.duration if self.duration else 0.0

    @property
    def error_rate(self) -> float:
        """The share of requests that failed."""
        return self.tally.failed / self.requests if self.requests else 0.0

    @property
    def connections_open(self) -> int:
        """The connections that were opened."""
        return self.plan.connections - self.tally.refused

    @property
    def failures(self) -> list[Failure]:
        """Every kind of failure, the most frequent first."""
        return _most_frequent(self.tally.failures.values())

    @property
    def refusals(self) -> list[Failure]:
        """Why connections were refused, the most frequent cause first."""
        return _most_frequent(self.tally.refusals.values())

    @property
    def successful(self) -> bool:
        """Whether anything succeeded: a request, or streams alive at the end of the run that have delivered items.
        Items of streams that all failed do not count as success."""
        tally = self.tally
        return bool(tally.succeeded or (tally.items and (tally.cut or tally.unfinished)))

    @property
    def achieved(self) -> bool:
        """Open load: whether 99 % of the rate was completed, successfully or not; some requests may have waited."""
        served = self.tally.in_time + self.tally.failed
        return not self.not_started and served >= (1 - _KEPT_UP) * (self.plan.rate or 0.0) * self.duration

    @property
    def kept_up(self) -> bool | None:
        """Open load: whether at most 1 % of the requests waited for a free stream. None for closed load."""
        if self.plan.rate is None:
            return None
        waited = self.late - self.late_here
        return not self.not_started and waited <= _KEPT_UP * self.requests

    @property
    def slow_here(self) -> bool:
        """Open load: whether this machine was too slow to start requests in time."""
        return self.plan.rate is not None and self.late_here > _KEPT_UP * self.requests

    @property
    def stall(self) -> dict[str, float] | None:
        """The shares of the streams' time spent on credit, peer and application. None if unknown."""
        tally = self.tally
        total = tally.credit + tally.peer + tally.application
        if not self.plan.flows or self.trip is None or not total:
            return None
        return {"credit": tally.credit / total, "peer": tally.peer / total, "application": tally.application / total}

    def series(self, name: str) -> Histogram | None:
        """Return the histogram of a series, in nanoseconds; None if the load has no such series."""
        has = {"service": self.plan.rate is not None, "first_item": self.plan.flows, "gap": self.plan.flows}
        has["start_delay"] = has["service"]
        if not has.get(name, True):
            return None
        histogram: Histogram = getattr(self.tally, "delay" if name == "start_delay" else name)
        return histogram

    def record(self) -> dict[str, Any]:
        """Return every figure by its name, as in NDJSON and CSV. Values that do not apply are None."""
        return dict(self._record())

    def _record(self) -> Iterator[tuple[str, Any]]:
        plan, tally = self.plan, self.tally
        yield "uri", plan.uri
        yield "started_at", datetime.fromtimestamp(self.started, UTC).isoformat(timespec="milliseconds")
        yield "verb", plan.verb
        yield "load", "closed" if plan.rate is None else "open"
        yield "connections", plan.connections
        yield "connections_open", self.connections_open
        yield "connections_refused", tally.refused
        yield "concurrency", plan.streams
        yield "workers", plan.workers
        yield "credit", plan.credit if plan.flows and plan.bounded else "unbounded" if plan.flows else None
        yield "rate_asked_per_s", plan.rate
        yield "duration_s", round(self.duration, 6)
        yield "interrupted", self.interrupted
        yield "requests", self.requests
        yield "succeeded", tally.succeeded
        yield "failed", tally.failed
        yield "cut", tally.cut
        yield "unfinished", tally.unfinished
        yield "connections_lost", tally.connections_lost if plan.verb == "fire" else None
        yield "error_rate", round(self.error_rate, 6)
        yield "requests_per_s", round(self.requests_per_s, 3)
        yield "items", tally.items
        yield "items_per_s", round(self.items_per_s, 3)
        yield "received_bytes", tally.bytes
        yield "received_bytes_per_s", round(self.bytes_per_s, 3)
        open_load = plan.rate is not None
        yield "late", self.late if open_load else None
        yield "late_here", self.late_here if open_load else None
        yield "backlog_max", self.backlog if open_load else None
        yield "not_started", self.not_started if open_load else None
        yield "kept_up", self.kept_up
        stall = self.stall or {}
        for cause in ("credit", "peer", "application"):
            yield f"stall_{cause}", round(stall[cause], 6) if stall else None
        yield "round_trip_ms", None if self.trip is None else round(self.trip * 1e3, 6)
        yield "client_cpu", round(self.cpu, 4)
        for name in SERIES:
            yield from self._figures(name)

    def _figures(self, name: str) -> Iterator[tuple[str, float | None]]:
        histogram = self.series(name)
        known: dict[str, float] = {}
        if histogram:
            names = [figure for figure in FIGURES if figure.startswith("p")]
            known = dict(zip(names, histogram.percentiles(map(percent_of, names)), strict=True))
            known |= {figure: getattr(histogram, figure) for figure in FIGURES if figure not in known}
        for figure in FIGURES:
            yield f"{name}_{figure}_ms", round(known[figure] / 1e6, 6) if known else None

    @classmethod
    def together(cls, plan: Plan, parts: Sequence[Result]) -> Result:
        """Merge the results of several concurrent processes."""
        tally = Tally()
        for part in parts:
            tally.merge(part.tally)
        trips = [part.trip for part in parts if part.trip is not None]
        return cls(
            plan=plan,
            tally=tally,
            started=min(part.started for part in parts),
            duration=max(part.duration for part in parts),
            requests=sum(part.requests for part in parts),
            late=sum(part.late for part in parts),
            late_here=sum(part.late_here for part in parts),
            backlog=sum(part.backlog for part in parts),
            not_started=sum(part.not_started for part in parts),
            trip=min(trips, default=None),
            cpu=max(part.cpu for part in parts),
            interrupted=any(part.interrupted for part in parts),
            lost=next((part.lost for part in parts if part.lost is not None), None),
            refusal=next((part.refusal for part in parts if part.refusal is not None), None),
        )
