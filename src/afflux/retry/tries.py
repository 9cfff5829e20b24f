"""Decide when a client tries to resume a session again, and when it stops trying. Time is an argument."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

from afflux.core.bucket import Bucket
from afflux.core.limits import Limits
from afflux.retry.backoff import Backoff

__all__ = ["ResumeTries"]

_MARGIN_S = 0.05
"Tries are this much further apart than a server demands: its clock differs from the client's."


class ResumeTries:
    """The tries of one session: as far apart as the backoff says, and as a server allows (``resume_rate``)."""

    def __init__(self, limits: Limits, backoff: Backoff, random: Random) -> None:
        most, gap = limits.resume_rate
        self._backoff = backoff
        self._random = random
        self._gap = gap + _MARGIN_S
        self._rate = Bucket(most, most / (60 + _MARGIN_S))
        self._last = -inf
        self._waits: Iterator[float] = backoff.waits(random)

    def next(self, now: float) -> float | None:
        """The time of the next try; None when no tries are left."""
        wait = next(self._waits, None)
        return None if wait is None else max(now + wait, self._last + self._gap, now + (self._rate.wait(1, now) or 0.0))

    def begin(self, now: float) -> None:
        """A try begins."""
        self._last = now
        self._rate.take(1, now)

    def succeeded(self) -> None:
        """The session was resumed: the next tries begin with short waits."""
        self._waits = self._backoff.waits(self._random)
