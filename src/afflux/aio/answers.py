"""Estimate how large the answers to one peer are, to bound the memory of the handlers that run at the same time.

A handler that waits for something produces its whole answer when the wait ends, whether there is room to send it or
not. So the number of handlers that run on one connection is bounded by the expected size of their answers. The estimate
can be wrong: a connection buffers at most ``MAX_BUFFERED`` times ``connection_bytes`` of waiting answers; further ones
fail.
"""

from __future__ import annotations

__all__ = ["MAX_BUFFERED", "AnswerSizes"]

MAX_BUFFERED = 32
"How many times ``connection_bytes`` the answers of a connection may take while they wait for room."

_TRIAL = 2
"Handlers that may run, whatever the expected size of their answers."
_LIGHT = 0x400
"Bytes of a mean that sets no bound."
_WEIGHT = 8
"Number of recent answers that the mean covers."


class AnswerSizes:
    """The mean size of recent answers, in bytes."""

    __slots__ = ("_mean", "heavy", "trial")

    def __init__(self) -> None:
        self._mean: float | None = None
        self.heavy = True
        "Whether small answers are recorded: the mean is large, or there is none yet."
        self.trial = _TRIAL
        "Handlers that may run at least."

    def seen(self, size: int, count: int = 1) -> None:
        """Record ``count`` answers of ``size`` bytes in all."""
        mean = size / count
        if self._mean is None:
            self._mean = mean
        else:
            self._mean += (mean - self._mean) * min(1.0, count / _WEIGHT)
        self.heavy = self._mean > _LIGHT
        if mean > _LIGHT:
            self.trial = _TRIAL

    def most(self, room: int) -> int:
        """Return how many handlers may run so that twice their expected answers fit into ``room`` bytes, because some
        are larger than the mean; at least ``trial``."""
        if self._mean is None:
            return self.trial
        return max(self.trial, int(room / max(1.0, 2 * self._mean)))

    def widen(self) -> None:
        """Requests have waited for a while: let twice as many handlers run, until one produces a large answer. The
        running ones may wait for an event that another request causes."""
        self.trial *= 2
