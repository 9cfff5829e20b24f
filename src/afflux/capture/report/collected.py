"""Read the tables of a capture for a report, in two passes if they can be read twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from afflux.capture.report.bounds import Bounds
from afflux.capture.report.details import Details, Traffic
from afflux.capture.report.source import COLUMNS, DETAILS, TABLES, Batches, Directory, Source
from afflux.capture.report.summary import Summary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Collected", "collect"]


@dataclass(slots=True)
class Collected:
    """What the page shows."""

    summary: Summary
    details: Details
    traffic: Traffic
    unkept: int = 0
    "Frames and events of credit that were not kept, because the tables were read only once."
    absent: frozenset[str] = frozenset()
    "Tables that the source does not have."


def collect(source: Source, bounds: Bounds, absent: frozenset[str] = frozenset()) -> Collected:
    """Read the tables. ``absent`` are those that the source does not have; a directory shows them itself.

    Raises:
        CaptureError: a directory has no tables, or a file in it is damaged.
    """
    summary, traffic = Summary(bounds), Traffic(bounds)
    if isinstance(source, str | Path):
        source = Directory(Path(source))
        absent = source.absent
    if not callable(source):
        return _once(source, summary, traffic, bounds, absent)
    for table, batch in source(TABLES):
        summary.take(table, batch)
    details = Details(summary.ladders.rows, bounds)
    for table, batch in source(DETAILS):
        if table == "frames":
            traffic.take(batch)
        details.take(table, batch)
    details.ended()
    return Collected(summary, details, traffic, absent=absent)


def _once(source: Batches, summary: Summary, traffic: Traffic, bounds: Bounds, absent: frozenset[str]) -> Collected:
    """Read the tables in one pass, and keep rows that the details may need, up to ``kept_bytes``."""
    kept: list[tuple[str, pa.RecordBatch]] = []
    size = unkept = 0
    for table, batch in source:
        summary.take(table, batch)
        if table == "frames":
            traffic.take(batch)
        if table not in DETAILS:
            continue
        needed = batch.select(list(COLUMNS[table]))
        size += needed.nbytes
        if size <= bounds.kept_bytes:
            kept.append((table, needed))
        else:
            unkept += batch.num_rows
    details = Details(summary.ladders.rows, bounds)
    for table, batch in kept:
        details.take(table, batch)
    details.ended()
    return Collected(summary, details, traffic, unkept, absent)
