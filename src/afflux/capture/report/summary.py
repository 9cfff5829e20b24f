"""Aggregate the small tables of a capture in bounded memory: what is counted, what is worst, what is shown in detail.

This is the first pass. Frames and credit are the second (details.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from afflux.capture.report.bounds import Bounds
from afflux.capture.report.columns import Groups, Row, Top, grouped, micros, numbers, rows
from afflux.capture.report.percentiles import Percentiles
from afflux.capture.report.timeline import Timeline
from afflux.capture.schemas import NOT_WHOLE
from afflux.capture.wording import unseen

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CAUSES", "Cause", "Route", "Summary", "Violation"]

CAUSES = ("peer", "transport", "producer", "local", "lease", "unknown")
"The causes of stalls, in the order in which they are shown."
_SECOND = 1_000_000
_SIDES = ["one_way", "client_packets", "server_packets"]
_STALLED, _FAILED = 1e12, 1e9
"Scores that place streams that stalled before those that failed, and those before the others, which may be long."


@dataclass(slots=True)
class Cause:
    """The stalls with one cause."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0


@dataclass(slots=True)
class Route:
    """The latencies of one route and kind, in seconds."""

    first: Percentiles = field(default_factory=Percentiles)
    "Until the first answer."
    total: Percentiles = field(default_factory=Percentiles)
    "Until the end."
    requests: int = 0


@dataclass(slots=True)
class Violation:
    """Violations of one rule by one type of frame, for one reason."""

    count: int = 0
    example: Row = field(default_factory=dict)
    "The first of them."


class Summary:
    """What a capture contains, from the tables ``connections``, ``streams``, ``stalls``, ``latencies``, ``violations``.

    Call ``take`` with each batch of these tables, in any order.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.seen: Counter[str] = Counter()
        "Rows of each table."
        self.first: int | None = None
        "The first time in the capture, in microseconds since 1970; None without packets."
        self.last: int | None = None
        self.totals: Counter[str] = Counter()
        "Frames, bytes and lost bytes of all connections; streams that stalled."
        self.contents: Groups[Counter[str]] = Groups(bounds.groups, Counter)
        "Connections and bytes by content."
        self.kinds: Counter[tuple[str, str]] = Counter()
        "Streams by kind and end."
        self.causes: dict[str, Cause] = {cause: Cause() for cause in CAUSES}
        self.routes: Groups[Route] = Groups(bounds.groups, Route)
        self.broken: Groups[Violation] = Groups(bounds.groups, Violation)
        self.lost: Groups[Violation] = Groups(bounds.groups, Violation)
        "Frames that are not whole in the capture, and connections that are not decoded."
        self.late: Row = {}
        "The first row of a connection whose packets are not in the order of time."
        self.stalls = Top(bounds.stalls, "conn", "stream", "start")
        self.connections = Top(bounds.connections, "conn")
        self.worst = Top(bounds.streams, "conn", "stream")
        self.ladders = Top(bounds.ladders, "conn", "stream")
        self.stalling = Timeline(len(CAUSES), bounds.times)
        "Microseconds of stalls by cause over time."

    def take(self, table: str, batch: pa.RecordBatch) -> None:
        """Add the rows of a table; the others are ignored."""
        take = {
            "connections": self._connections,
            "streams": self._streams,
            "stalls": self._stalls,
            "latencies": self._latencies,
            "violations": self._violations,
        }.get(table)
        if take is not None and batch.num_rows:
            self.seen[table] += batch.num_rows
            take(batch)

    def _times(self, batch: pa.RecordBatch, *names: str) -> None:
        for name in names:
            times, known = micros(batch, name)
            if known.any():
                low, high = int(times[known].min()), int(times[known].max())
                self.first = low if self.first is None else min(self.first, low)
                self.last = high if self.last is None else max(self.last, high)

    def _connections(self, batch: pa.RecordBatch) -> None:
        self._times(batch, "opened", "closed")
        both = np.nan_to_num(numbers(batch, "client_bytes")) + np.nan_to_num(numbers(batch, "server_bytes"))
        for name, values in (("bytes", both), ("lost_bytes", numbers(batch, "lost_bytes"))):
            self.totals[name] += int(np.nansum(values))
        self.totals["lossy"] += int((np.nan_to_num(numbers(batch, "lost_bytes")) > 0).sum())
        self.totals["one_way"] += sum(map(unseen, batch.select(_SIDES).filter(batch["one_way"]).to_pylist()))
        self.totals["frames"] += int(np.nansum(numbers(batch, "frames")))
        for (protocol, content), places in grouped(batch, "protocol", "content"):
            # "encrypted (TLS; server name …)" has as many texts as there are servers
            found = self.contents[protocol or (content or "unknown").partition(" (")[0]]
            found["connections"] += len(places)
            found["bytes"] += int(both[places].sum())
        ours = (~np.isnan(numbers(batch, "streams"))) & (np.nan_to_num(numbers(batch, "streams")) > 0)
        wrong = np.nan_to_num(numbers(batch, "violations"))
        self.connections.take(batch, 1 + both + ours * 1e14 + np.minimum(wrong, 1e4) * 1e15)

    def _streams(self, batch: pa.RecordBatch) -> None:
        self._times(batch, "first", "last")
        failed = np.zeros(batch.num_rows)
        for (kind, ended), places in grouped(batch, "kind", "ended"):
            self.kinds[kind or "unknown", ended or "unknown"] += len(places)
            failed[places] = ended in ("error", "cancel", "connection", "dropped")
        longest = np.nan_to_num(numbers(batch, "longest_stall_s"))
        stalled = np.nan_to_num(numbers(batch, "stalled_s"))
        self.totals["stalled_streams"] += int((np.nan_to_num(numbers(batch, "stalls")) > 0).sum())
        self.worst.take(batch, stalled * _STALLED + failed * (1 + np.nan_to_num(numbers(batch, "items_in"))))
        lasted = (micros(batch, "last")[0] - micros(batch, "first")[0]) / _SECOND
        self.ladders.take(batch, longest * _STALLED + failed * _FAILED + 1 + np.clip(lasted, 0, _FAILED / 2))

    def _stalls(self, batch: pa.RecordBatch) -> None:
        seconds = np.nan_to_num(numbers(batch, "seconds"))
        self.stalls.take(batch, np.maximum(seconds, 1e-9))
        starts, stops = micros(batch, "start")[0], micros(batch, "stop")[0]
        for (cause,), places in grouped(batch, "cause"):
            if cause not in self.causes:
                continue
            found, times = self.causes[cause], seconds[places]
            found.count += len(places)
            found.seconds += float(times.sum())
            found.longest = max(found.longest, float(times.max()))
            self.stalling.spread(CAUSES.index(cause), starts[places], np.maximum(stops[places], starts[places]))

    def _latencies(self, batch: pa.RecordBatch) -> None:
        first, total = numbers(batch, "first_s"), numbers(batch, "total_s")
        for key, places in grouped(batch, "route", "kind"):
            route = self.routes[key]
            route.requests += len(places)
            route.first.add(first[places])
            route.total.add(total[places])

    def _violations(self, batch: pa.RecordBatch) -> None:
        for key, places in grouped(batch, "kind", "rule", "type", "dir", "expected"):
            if key[0] == "order":
                self.totals["disordered"] += len(places)
                self.late = self.late or rows(batch, places[:1])[0]
            if key[0] == "order" or key[1] == "encrypted":  # the page counts encrypted connections by content
                continue
            found = (self.lost if key[0] in (*NOT_WHOLE, "undecoded") else self.broken)[key]
            found.count += len(places)
            if not found.example:
                found.example = rows(batch, places[:1])[0]
