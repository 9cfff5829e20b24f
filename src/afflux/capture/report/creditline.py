"""Keep the credit of one direction of a stream over time, in a bounded number of points."""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
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
    """The events of credit for the items of one direction of a stream, in ascending order of time.

    The events do not say when the items between two of them were sent. They are spread evenly over the time between the
    events in which the stream did not stall.
    """

    __slots__ = ("points", "stalls")

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.stalls: list[tuple[int, int]] = []
        "The stalls of this direction: start and stop in microseconds since 1970, in ascending order."

    def add(self, row: Row) -> None:
        """Add a row of the table ``credit``; one without a time is ignored."""
        if row["ts"] is None:
            return
        self.points.append(Point(*(int(row[name] or 0) for name in Point._fields)))
        if len(self.points) > _MOST:
            self.points = thin(self.points, _MOST // 2)

    def until(self, ts: int | None, used: int) -> None:
        """Continue to a time at which this many items were sent: the last event may be a grant, long before the end of
        the stream or of the capture."""
        last = self.points[-1] if self.points else None
        if last is not None and ts is not None and ts > last.ts and used >= last.used:
            self.points.append(Point(ts, last.granted, used, last.granted - used, 0))

    def at(self, ts: int) -> int | None:
        """Return the balance at a time; None before the first event."""
        point = self._between(ts)
        return None if point is None else point.balance

    def shown(self, most: int) -> list[Point]:
        """Return about ``most`` points to be joined by lines: of the events, and of the ends of the stalls."""
        points = thin(self.points, most)
        ends = {at for stall in self.stalls for at in stall} - {point.ts for point in points}
        first, last = points[0].ts, points[-1].ts
        between = [point for at in ends if first < at < last and (point := self._between(at)) is not None]
        return sorted([*points, *between], key=lambda point: point.ts)

    def _between(self, ts: int) -> Point | None:
        """Return the credit at a time, as an event that grants nothing."""
        after = bisect_right(self.points, ts, key=lambda point: point.ts)
        if not after:
            return None
        last = self.points[after - 1]
        if after == len(self.points) or last.ts == ts:
            return last._replace(ts=ts, n=0)
        following = self.points[after]
        whole = self._flowing(last.ts, following.ts)
        share = self._flowing(last.ts, ts) / whole if whole else 0.0
        used = last.used + round((following.used - last.used) * share)
        return Point(ts, last.granted, used, last.granted - used, 0)

    def _flowing(self, start: int, stop: int) -> int:
        """Return the microseconds between two times in which the stream did not stall."""
        return stop - start - sum(max(0, min(stop, high) - max(start, low)) for low, high in self.stalls)


def thin(points: list[Point], most: int) -> list[Point]:
    """Return about this many points: of each of equal intervals the first, one with the least credit, and the last."""
    if len(points) <= most:
        return points
    start, stop = points[0].ts, points[-1].ts
    width = (stop - start) // max(1, most // 3) + 1
    kept: list[Point] = []
    for _, interval in groupby(points, key=lambda point: (point.ts - start) // width):
        part = list(interval)
        least = min(range(len(part)), key=lambda at: part[at].balance)
        kept += [part[at] for at in sorted({0, least, len(part) - 1})]
    return kept
