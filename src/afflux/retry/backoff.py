"""Compute the delays between attempts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Growing delays: ``first`` seconds, then ``factor`` times the previous delay, up to ``most``.

    Each delay is shortened at random by up to the fraction ``jitter``, so that many clients of a lost server do not
    reconnect in step.
    """

    first: float = 0.1
    "Seconds before the first attempt."
    factor: float = 2.0
    "Factor between consecutive delays, 1 or more."
    most: float = 10.0
    "The longest delay, in seconds."
    jitter: float = 0.5
    "0 for exact delays, 1 for delays between 0 and the full time."
    tries: int | None = None
    "The number of attempts; None for no limit."
    patience: float = 10.0
    "Seconds that a request waits for the connection to return."

    def __post_init__(self) -> None:
        if not (0 <= self.first <= self.most and self.factor >= 1 and 0 <= self.jitter <= 1 and self.patience >= 0):
            raise ValueError(f"invalid {self}")
        if self.tries is not None and self.tries < 1:
            raise ValueError(f"tries must be 1 or more, not {self.tries}")

    def waits(self, random: Random) -> Iterator[float]:
        """Yield the seconds before each attempt, ``tries`` times."""
        wait, count = self.first, 0
        while self.tries is None or count < self.tries:
            yield wait * (1 - self.jitter * random.random())
            wait = min(self.most, wait * self.factor)
            count += 1
