"""When a blocking client tries to get its session back, and by which link. Nothing here waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from time import monotonic

from afflux.core.bucket import Bucket
from afflux.core.errors import Error
from afflux.core.limits import Limits
from afflux.retry.backoff import Backoff
from afflux.transports.base import Link

__all__ = ["Redial"]

_MARGIN_S = 0.05
"Tries are so much further apart than a server demands: its clock is not ours."


class Redial:
    """The tries of one session. ``dial(seconds)`` opens a link within so many seconds."""

    def __init__(self, dial: Callable[[float], Link], limits: Limits, backoff: Backoff, timeout: float) -> None:
        most, gap = limits.resume_rate
        self._dial = dial
        self._backoff = backoff
        self._timeout = timeout
        self._gap = gap + _MARGIN_S
        self._rate = Bucket(most, most / (60 + _MARGIN_S))
        self._random = Random()
        self._last = 0.0
        self._waits: Iterator[float] = backoff.waits(self._random)
        self.due: float | None = None
        "When the next try is; None when there is none."
        self.link: Link | None = None
        "The link of the last try. It stays here when the one who waited for it was interrupted."
        self.error: Error | None = None
        "Why the last try failed."

    def plan(self) -> None:
        """The link is gone, or a try has failed: when is the next?"""
        wait, now = next(self._waits, None), monotonic()
        if wait is None:
            self.due = None
        else:
            self.due = max(now + wait, self._last + self._gap, now + (self._rate.wait(1, now) or 0.0))

    def succeeded(self) -> None:
        """The session goes on: the next time begins with short waits."""
        self._waits = self._backoff.waits(self._random)
        self.error = None

    def dial(self, until: float | None) -> None:
        """Try now, until then at most. ``link`` has the link; when there is none, the next try is planned."""
        self._last = now = monotonic()
        self._rate.take(1, now)
        seconds = self._timeout if until is None else max(_MARGIN_S, min(self._timeout, until - now))
        try:
            self.link = self._dial(seconds)
        except Error as error:
            self.error = error
            self.plan()

    def take(self) -> Link | None:
        """The link that was opened, once."""
        link, self.link = self.link, None
        return link
