"""Keep the frames of one stream for a ladder diagram, in a bounded number of arrows.

Consecutive frames of one direction and type make one arrow, unless time passes between them. Of a long stream the first
and the last arrows are kept, and those around the longest pauses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from afflux.capture.report.columns import Row, codes, micros, numbers
from afflux.capture.report.creditline import CreditLine

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Arrow", "Ladder"]

_PAUSE: Final = 10_000
"Microseconds without a frame of the stream after which a new arrow begins."
_PAUSES: Final = 3
"Pauses whose surroundings are kept."
_STALLS: Final = 64
"Stalls of a stream that are kept, the longest."


class Arrow(NamedTuple):
    """Consecutive frames of one direction and type."""

    number: int
    "Its place among the arrows of the stream."
    before: int
    "Frames of the stream before it."
    first: int
    "The time of the first frame, in microseconds since 1970."
    last: int
    dir: str
    type: str | None
    frames: int
    n: int | None
    "The sum of the frames' n; None if they have none."
    length: int
    packet: int | None
    "The packet that completed the first frame."


@dataclass(slots=True)
class _Pause:
    """A pause, and the arrows around it."""

    length: int
    arrows: list[Arrow]
    missing: int
    "Arrows after the pause that are still to be added."


class Ladder:
    """The frames, stalls and credit of one stream.

    Args:
        stream: its row in the table ``streams``.
        most: how many arrows are kept.
    """

    def __init__(self, stream: Row, most: int) -> None:
        self.stream = stream
        self.credit: dict[str, CreditLine] = {">": CreditLine(), "<": CreditLine()}
        "By the direction of the items."
        self.stalls: list[Row] = []
        "Rows of the table ``stalls``, in ascending order of time."
        self.seen = 0
        "Frames of the stream."
        self._arrows = 0
        self._pending: Arrow | None = None
        self._around = max(1, most // 18)
        self._first = max(1, most - most // 3 - 2 * _PAUSES * self._around)
        self._head: list[Arrow] = []
        self._tail: deque[Arrow] = deque(maxlen=max(1, most // 3))
        self._recent: deque[Arrow] = deque(maxlen=self._around)
        self._pauses: list[_Pause] = []

    def stalled(self, rows: list[Row]) -> None:
        """Add stalls."""
        longest = sorted([*self.stalls, *rows], key=lambda row: -(row["seconds"] or 0))[:_STALLS]
        self.stalls = sorted(longest, key=lambda row: row["start"] or 0)
        for side, line in self.credit.items():
            mine = [(row["start"], row["stop"]) for row in self.stalls if row["dir"] == side]
            line.stalls = [stall for stall in mine if None not in stall]

    def ended(self) -> None:
        """All rows were added: continue the credit up to the stream's last frame."""
        asker, last = self.stream["requester"], self.stream["last"]
        for side, line in self.credit.items():
            line.until(last, self.stream["items_out" if side == asker else "items_in"] or 0)

    def frames(self, batch: pa.RecordBatch) -> None:
        """Add frames in ascending order of time; those without a time are ignored."""
        times, known = micros(batch, "ts")
        places = np.flatnonzero(known)
        if not len(places):
            return
        times = times[places]
        (sides, side), (types, kinds) = codes(batch, "dir"), codes(batch, "type")
        sides, types = sides[places], types[places]
        n, length, packet = (numbers(batch, name)[places] for name in ("n", "length", "packet"))
        changed = (np.diff(sides) != 0) | (np.diff(types) != 0) | (np.diff(times) >= _PAUSE)
        starts = np.concatenate(([0], np.flatnonzero(changed) + 1))
        stops = np.append(starts[1:], len(places))
        lengths = np.add.reduceat(np.nan_to_num(length), starts)
        sums = np.add.reduceat(np.nan_to_num(n), starts)
        for at, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            made = Arrow(
                *(0, self.seen + start, int(times[start]), int(times[stop - 1])),
                *(side[sides[start]], kinds[types[start]], stop - start),
                n=None if np.isnan(n[start]) else int(sums[at]),
                length=int(lengths[at]),
                packet=None if np.isnan(packet[start]) else int(packet[start]),
            )
            self._add(made)
        self.seen += len(places)

    def _add(self, arrow: Arrow) -> None:
        """Continue the last arrow, or keep it and begin the next."""
        last = self._pending
        if last is None:
            self._pending = arrow
        elif (last.dir, last.type) == (arrow.dir, arrow.type) and arrow.first - last.last < _PAUSE:
            n = arrow.n if last.n is None else last.n + (arrow.n or 0)
            frames, length = last.frames + arrow.frames, last.length + arrow.length
            self._pending = last._replace(last=arrow.last, frames=frames, n=n, length=length)
        else:
            self._keep(last, arrow.first - last.last)
            self._pending = arrow._replace(number=last.number + 1)

    def _keep(self, arrow: Arrow, pause: int) -> None:
        """Keep an arrow that a pause follows; the pause is in microseconds."""
        self._arrows += 1
        for one in self._pauses:
            if one.missing:
                one.arrows.append(arrow)
                one.missing -= 1
        if len(self._head) < self._first:
            self._head.append(arrow)
        else:
            self._tail.append(arrow)
        self._recent.append(arrow)
        if pause >= _PAUSE and (len(self._pauses) < _PAUSES or pause > self._pauses[-1].length):
            self._pauses.append(_Pause(pause, list(self._recent), self._around))
            self._pauses.sort(key=lambda one: -one.length)
            del self._pauses[_PAUSES:]

    def arrows(self) -> list[Arrow]:
        """Return the arrows that were kept, in ascending order; call it after the last frame."""
        if self._pending is not None:
            self._keep(self._pending, 0)
            self._pending = None
        kept = [*self._head, *self._tail, *(arrow for one in self._pauses for arrow in one.arrows)]
        return sorted({arrow.number: arrow for arrow in kept}.values())


@dataclass(slots=True)
class Rows:
    """The rows of a ladder as the page's script draws them. Times are microseconds since the first frame."""

    ladder: Ladder
    start: int = 0
    made: list[list[Any]] = field(default_factory=list)

    def all(self) -> list[list[Any]]:
        """Return ``["f", …]`` for an arrow, ``["s", …]`` for a stall and ``["o", frames]`` for frames left out."""
        arrows = self.ladder.arrows()
        if not arrows:
            return []
        self.start = arrows[0].first
        stalls = deque(stall for stall in self.ladder.stalls if stall["start"] is not None)
        for at, arrow in enumerate(arrows):
            following = arrows[at + 1] if at + 1 < len(arrows) else None
            self._arrow(arrow)
            while stalls and (following is None or stalls[0]["start"] < following.first):
                stall = stalls.popleft()
                if following is None or following.number == arrow.number + 1:
                    self._stall(stall)
            if following is not None and following.number > arrow.number + 1:
                self.made.append(["o", following.before - arrow.before - arrow.frames])
        return self.made

    def _arrow(self, arrow: Arrow) -> None:
        held = [self.ladder.credit[side].at(arrow.last) for side in "><"]
        self.made.append(
            [
                *("f", arrow.first - self.start, arrow.last - arrow.first, arrow.dir, arrow.type, arrow.frames),
                *(arrow.n, arrow.length, *held, arrow.packet),
            ]
        )

    def _stall(self, stall: Row) -> None:
        self.made.append(["s", stall["start"] - self.start, stall["seconds"], stall["cause"], stall["dir"]])
