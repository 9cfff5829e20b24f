"""Count the outcomes of a load in sums and histograms. Memory is constant, and tallies of several processes can be
merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from afflux.bench.histogram import Histogram
from afflux.bench.meter import Meter
from afflux.core.errors import Error

__all__ = ["MOST_KINDS", "Failure", "Tally", "kind_of"]

MOST_KINDS = 32
"Kinds of failure that are counted separately; further kinds are counted together."

_EXAMPLE = 240
"Maximum characters of a peer's text."


_Key = tuple[str, int | str | None]


@dataclass(slots=True)
class Failure:
    """One kind of failure."""

    kind: str
    "The error's name, such as Rejected; Timeout for a request without an answer, NotStarted for one never started."
    code: int | None
    "The error code on the wire, if it came from there."
    example: str
    "The text of the first error."
    count: int = 0


def kind_of(error: Error) -> Failure:
    """Return the kind under which an error is counted."""
    text = "".join(char if char.isprintable() else " " for char in error.message)
    kind = "Timeout" if isinstance(error, TimeoutError) else type(error).__name__
    return Failure(kind, error.code, text[:_EXAMPLE])


class Tally:
    """The counts of one process in one run.

    Args:
        until: the end of the time to which rates refer; later results are counted, but not in the rates.
    """

    def __init__(self, until: float = inf) -> None:
        self.until = until
        self.succeeded = 0
        "Requests answered, fires sent, and streams that ended or reached ``take``."
        self.in_time = 0
        "Successes before ``until``."
        self.cut = 0
        "Endless streams that were canceled at the end of the run."
        self.unfinished = 0
        "Requests in flight or due when the run was interrupted."
        self.connections_lost = 0
        "Connections lost during fires, which do not raise on a loss."
        self.refusals: dict[_Key, Failure] = {}
        "Connections that were refused, or could not be made, before the load began; by kind and text."
        self.items = 0
        self.items_in_time = 0
        self.bytes = 0
        "Bytes of data and metadata received."
        self.bytes_in_time = 0
        self.failures: dict[_Key, Failure] = {}
        self.latency = Histogram()
        "Nanoseconds from the scheduled start of a request to its end."
        self.service = Histogram()
        "Nanoseconds from the actual start of a request to its end."
        self.delay = Histogram()
        "Nanoseconds from the scheduled to the actual start."
        self.first_item = Histogram()
        "Nanoseconds from the scheduled start of a stream to its first item."
        self.gap = Histogram()
        "Nanoseconds between consecutive items; 0 for items that arrived together."
        self.application = 0.0
        "Seconds of streams, see ``Meter``."
        self.credit = 0.0
        self.peer = 0.0

    @property
    def failed(self) -> int:
        """Failed requests of all kinds."""
        return sum(failure.count for failure in self.failures.values())

    @property
    def refused(self) -> int:
        """Connections that were refused, for all reasons."""
        return sum(failure.count for failure in self.refusals.values())

    # -- counting ---------------------------------------------------------------------------------------------

    def served(self, start: float, now: float) -> None:
        """Open load: record the end of a request that started at ``start``."""
        self.service.record(int((now - start) * 1e9))

    def answered(self, meant: float, now: float, size: int) -> None:
        """Count a request with its answer of ``size`` bytes."""
        self.latency.record(int((now - meant) * 1e9))
        self.succeeded += 1
        self.items += 1
        self.bytes += size
        if now <= self.until:
            self.in_time += 1
            self.items_in_time += 1
            self.bytes_in_time += size

    def ended(self, meant: float, now: float) -> None:
        """Count the end of a stream or of a request without an answer."""
        self.latency.record(int((now - meant) * 1e9))
        self.succeeded += 1
        if now <= self.until:
            self.in_time += 1

    def came(self, items: int, size: int, now: float, before: float, meant: float | None) -> None:
        """Count items that arrived together at ``now``; the previous ones arrived at ``before``. ``meant`` is the
        scheduled start of the stream, for its first items."""
        together = items - 1
        if meant is None:
            self.gap.record(int((now - before) * 1e9))
        else:
            self.first_item.record(int((now - meant) * 1e9))
        if together:
            self.gap.record(0, together)
        self.items += items
        self.bytes += size
        if now <= self.until:
            self.items_in_time += items
            self.bytes_in_time += size

    def flowed(self, meter: Meter) -> None:
        """Add the times of a stream that has ended."""
        self.application += meter.application
        self.credit += meter.credit
        self.peer += meter.peer

    def fail(self, failure: Failure, count: int = 1) -> None:
        """Count a failure ``count`` times."""
        _count(self.failures, (failure.kind, failure.code), failure, count)

    def refuse(self, failure: Failure, count: int = 1) -> None:
        """Count ``count`` refused connections."""
        _count(self.refusals, (failure.kind, failure.example), failure, count)

    def gave_up(self, kind: str, seconds: float, example: str, count: int = 1) -> None:
        """Count requests that timed out after ``seconds``, which is recorded as their latency."""
        if count:
            self.fail(Failure(kind, None, example), count)
            self.latency.record(int(seconds * 1e9), count)

    # -- merging ----------------------------------------------------------------------------------------------

    def merge(self, other: Tally) -> None:
        """Add the counts of another process."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(value, Histogram):
                mine.merge(value)
            elif name in ("failures", "refusals"):
                for key, failure in value.items():
                    _count(mine, key, Failure(failure.kind, failure.code, failure.example), failure.count)
            elif name != "until":
                setattr(self, name, mine + value)


def _count(counts: dict[_Key, Failure], key: _Key, failure: Failure, count: int) -> None:
    """Count a failure under its key; further keys than MOST_KINDS are counted together."""
    if key not in counts and len(counts) >= MOST_KINDS:
        failure = Failure("Other", None, "further kinds of failure, counted together")
        key = (failure.kind, None)
    counts.setdefault(key, failure).count += count
