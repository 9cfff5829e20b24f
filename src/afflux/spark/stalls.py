"""Add up the seconds in which no rows flow, by cause, as the reader of a query sees them.

- ``source``: Spark has asked for rows, and there are none that it has not read.
- ``away``: Spark has asked for rows, and the server of a stream does not answer.
- ``spark``: more rows are stored than the batch may have, and Spark has not asked for the next batch yet: its tasks or
  the table are slower than the stream.
- ``full``: the journal of a shard is full, so its producer waits. This may coincide with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

__all__ = ["Stalls"]


class Stalls:
    """The stalls since the start of a reader.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._asked = self._answered = clock()
        self._behind = self._full = False

    def asked(self) -> None:
        """Spark asks for the end of the next batch."""
        self._asked = self._clock()
        if self._behind:
            self._add("spark", self._asked - self._answered)

    def answered(self, *, rows: int, lag: int, away: bool, full: bool) -> None:
        """The reader answers.

        Args:
            rows: the rows of the batch.
            lag: the stored rows behind it.
            away: whether the server of a stream does not answer.
            full: whether the journal of a shard is full.
        """
        now = self._clock()
        if away or not rows:
            self._add("away" if away else "source", now - self._asked)
        if self._full:
            self._add("full", now - self._answered)
        self._answered, self._behind, self._full = now, lag > 0, full

    def report(self) -> dict[str, float]:
        """Return the seconds of each cause that there was."""
        return {cause: round(seconds, 3) for cause, seconds in sorted(self._seconds.items())}

    def _add(self, cause: str, seconds: float) -> None:
        self._seconds[cause] = self._seconds.get(cause, 0.0) + seconds
