"""Keep the credit of one direction of a stream over time, in a bounded number of points."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from afflux.capture.report.columns import Row

__all__ = ["CreditLine", "Point"]

_MOST: Final = 4096
"Points that are kept; beyond, about half of them are left out."


class Point(NamedTuple):
    """The credit after one event."""

    ts: int
    "Microseconds since 1970."
    granted: int
    used: int
    balance: int
    n: int
    "Items granted by the event."


class CreditLine:
    """The events of credit for the items of one direction of a stream, in ascending order of time."""

    __slots__ = ("points", "thinned")

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.thinned = False

    def add(self, row: Row) -> None:
        """Add a row of the table ``credit``; one without a time is ignored."""
        if row["ts"] is None:
            return
        self.points.append(Point(*(int(row[name] or 0) for name in Point._fields)))
        if len(self.points) > _MOST:
            self.points = thin(self.points, _MOST // 2)
            self.thinned = True

    def at(self, ts: int) -> int | None:
        """Return the balance at a time: after its last event, or between two events on a line; None before the first.

        The events do not say when the items between them were used.
        """
        after = bisect_right(self.points, ts, key=lambda point: point.ts)
        if not after:
            return None
        last = self.points[after - 1]
        if after == len(self.points) or last.ts == ts:
            return last.balance
        following = self.points[after]
        before = following.balance - following.n  # a grant adds its items at once
        return round(last.balance + (before - last.balance) * (ts - last.ts) / (following.ts - last.ts))


def thin(points: list[Point], most: int) -> list[Point]:
    """Return at most about this many points: of each of equal intervals the one with the least credit, and the last."""
    if len(points) <= most:
        return points
    start, stop = points[0].ts, points[-1].ts
    width = max(1, (stop - start) // (most // 2) + 1)
    kept: list[Point] = [points[0]]
    interval: list[Point] = []
    for point in points[1:]:
        if interval and (point.ts - start) // width != (interval[0].ts - start) // width:
            kept += _ends(interval)
            interval = []
        interval.append(point)
    return kept + _ends(interval)


def _ends(interval: list[Point]) -> list[Point]:
    """Return the first point with the least credit, and the last."""
    least = min(range(len(interval)), key=lambda at: interval[at].balance)
    return interval[least:][:1] + interval[max(least + 1, len(interval) - 1) :]
