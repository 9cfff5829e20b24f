"""Estimate how large the answers to one peer are, to bound the memory of the handlers that run at the same time.

A handler that waits for something makes its answer all at once, whether there is room to send it or not. So the number
of handlers that run on one connection is bounded by what their answers are expected to weigh. The estimate can be
wrong: a connection holds at most ``HELD`` times ``connection_bytes`` of answers that wait, and what is beyond fails.
"""

from __future__ import annotations

__all__ = ["HELD", "AnswerSizes"]

HELD = 32
"How many times ``connection_bytes`` the answers of a connection may take while they wait for room."

_TRIAL = 2
"Handlers that may run whatever their answers are expected to weigh."
_LIGHT = 0x400
"Bytes of a mean that bounds nothing."
_WEIGHT = 8
"Answers that a mean of the last few looks back on."


class AnswerSizes:
    """The mean size of the last answers, in bytes."""

    __slots__ = ("_mean", "heavy", "trial")

    def __init__(self) -> None:
        self._mean: float | None = None
        self.heavy = True
        "Whether small answers are worth recording: the mean is large, or not known."
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
        """How many handlers may run so that twice their answers are expected to fit into ``room`` bytes, because some
        are larger than the mean; at least ``trial``."""
        if self._mean is None:
            return self.trial
        return max(self.trial, int(room / max(1.0, 2 * self._mean)))

    def widen(self) -> None:
        """Requests have waited for a while: let twice as many handlers run, until one gives a large answer. Those that
        run may wait for long, for something that another request brings about."""
        self.trial *= 2
