"""What is counted while a load runs. Sums and histograms only: it takes as much memory for ten requests as for ten
million, and two tallies add up to what one would have counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from afflux.bench.histogram import Histogram
from afflux.bench.meter import Meter
from afflux.core.errors import Error

__all__ = ["MOST_KINDS", "Failure", "Tally", "kind_of"]

MOST_KINDS = 32
"Kinds of failure that are counted one by one; further ones count together."

_EXAMPLE = 120
"Characters of a peer's text that are kept."


@dataclass(slots=True)
class Failure:
    """One kind of failure."""

    kind: str
    "The error's name, such as Rejected; Timeout for a request that was given up, NotStarted for one that never began."
    code: int | None
    "The error code on the wire, if it came from there."
    example: str
    "What the first one said."
    count: int = 0


def kind_of(error: Error) -> Failure:
    """What counts an error together with others."""
    text = "".join(char if char.isprintable() else " " for char in error.message)
    return Failure(type(error).__name__, error.code, text[:_EXAMPLE])


class Tally:
    """What one process has counted in one run.

    Args:
        until: the end of the time that rates are of; what comes later is counted, but not in the rates.
    """

    def __init__(self, until: float = inf) -> None:
        self.until = until
        self.succeeded = 0
        "Requests answered, fires sent, and streams that ended or were taken from as far as was wanted."
        self.in_time = 0
        "Those of them that were before ``until``."
        self.cut = 0
        "Streams that had no end, and were canceled at the end of the time."
        self.unfinished = 0
        "What was under way, or due, when the run was interrupted."
        self.connections_lost = 0
        "Under fires, which do not hear of it: how often a connection was lost."
        self.items = 0
        self.items_in_time = 0
        self.bytes = 0
        "Bytes of data and metadata that came."
        self.bytes_in_time = 0
        self.failures: dict[tuple[str, int | None], Failure] = {}
        self.latency = Histogram()
        "Nanoseconds from the moment at which a request was meant to begin to its end."
        self.service = Histogram()
        "The same from the moment at which it did begin."
        self.delay = Histogram()
        "From the one moment to the other."
        self.first_item = Histogram()
        "From the moment at which a stream was meant to begin to its first item."
        self.gap = Histogram()
        "From one item to the next. Items that came together are nothing apart."
        self.application = 0.0
        "Seconds of streams, see Meter."
        self.credit = 0.0
        self.peer = 0.0

    @property
    def failed(self) -> int:
        """Requests that failed, of whatever kind."""
        return sum(failure.count for failure in self.failures.values())

    # -- what happened ----------------------------------------------------------------------------------------

    def served(self, start: float, now: float) -> None:
        """Under open load: what began at ``start`` is over."""
        self.service.record(int((now - start) * 1e9))

    def answered(self, meant: float, now: float, size: int) -> None:
        """A request has its answer, of ``size`` bytes."""
        self.latency.record(int((now - meant) * 1e9))
        self.succeeded += 1
        self.items += 1
        self.bytes += size
        if now <= self.until:
            self.in_time += 1
            self.items_in_time += 1
            self.bytes_in_time += size

    def ended(self, meant: float, now: float) -> None:
        """A stream, or a request without an answer, is over."""
        self.latency.record(int((now - meant) * 1e9))
        self.succeeded += 1
        if now <= self.until:
            self.in_time += 1

    def came(self, items: int, size: int, now: float, before: float, meant: float | None) -> None:
        """Items of a stream came together, at ``now``; those before them came at ``before``. ``meant`` is for the first
        ones: when the stream was meant to begin."""
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
        """A stream is over: where its time went."""
        self.application += meter.application
        self.credit += meter.credit
        self.peer += meter.peer

    def fail(self, failure: Failure, count: int = 1) -> None:
        """Something failed ``count`` times."""
        key = (failure.kind, failure.code)
        known = self.failures.get(key)
        if known is None:
            if len(self.failures) >= MOST_KINDS:
                failure = Failure("Other", None, "further kinds of failure, counted together")
                key = (failure.kind, failure.code)
            known = self.failures.setdefault(key, failure)
        known.count += count

    def gave_up(self, kind: str, seconds: float, example: str, count: int = 1) -> None:
        """Requests were given up after so many seconds: their latency is that much at least, and counts as that."""
        if count:
            self.fail(Failure(kind, None, example), count)
            self.latency.record(int(seconds * 1e9), count)

    # -- together ---------------------------------------------------------------------------------------------

    def merge(self, other: Tally) -> None:
        """Add what another process has counted."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(value, Histogram):
                mine.merge(value)
            elif name == "failures":
                for failure in value.values():
                    self.fail(Failure(failure.kind, failure.code, failure.example), failure.count)
            elif name != "until":
                setattr(self, name, mine + value)
