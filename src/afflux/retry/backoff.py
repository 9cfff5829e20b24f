"""How long to wait before trying again. Who tries what again is decided elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that grow: ``first`` seconds, then ``factor`` times as long each time, up to ``most``.

    Each is made shorter by chance, by up to the share ``jitter`` of it, so that many clients that lost the same server
    do not come back in step.
    """

    first: float = 0.1
    "Seconds before the first try."
    factor: float = 2.0
    most: float = 10.0
    "Seconds at most before a try."
    jitter: float = 0.5
    "0 for none, 1 for anything between no time and all of it."
    tries: int | None = None
    "How often to try; None for as often as it takes."
    patience: float = 10.0
    "Seconds that a request waits for the connection to be there again."

    def __post_init__(self) -> None:
        if not (0 <= self.first <= self.most and self.factor >= 1 and 0 <= self.jitter <= 1 and self.patience >= 0):
            raise ValueError(f"waits that can not be: {self}")
        if self.tries is not None and self.tries < 1:
            raise ValueError(f"one try or more, not {self.tries}")

    def waits(self, random: Random) -> Iterator[float]:
        """The seconds before each try; it ends after ``tries``."""
        wait, count = self.first, 0
        while self.tries is None or count < self.tries:
            yield wait * (1 - self.jitter * random.random())
            wait = min(self.most, wait * self.factor)
            count += 1
