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
        for name in ("first", "factor", "most", "jitter", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"invalid Backoff: {name}= is a number, not {value!r}")
        if fault := self._fault():
            raise ValueError(f"invalid Backoff: {fault}")
        if self.tries is None:
            return
        if isinstance(self.tries, bool) or not isinstance(self.tries, int):
            raise TypeError(f"invalid Backoff: tries= is a whole number or None, not {self.tries!r}")
        if self.tries < 1:
            raise ValueError(f"tries must be 1 or more, not {self.tries}")

    def _fault(self) -> str | None:
        """Describe the value that cannot be. NaN is none of the allowed ones."""
        if not self.first >= 0:
            return f"first= is 0 seconds or more, not {self.first!r}"
        if not self.most >= self.first:
            return f"most= is first={self.first!r} seconds or more, not {self.most!r}"
        if not self.factor >= 1:
            return f"factor= is 1 or more, not {self.factor!r}"
        if not 0 <= self.jitter <= 1:
            return f"jitter= is 0 to 1, not {self.jitter!r}"
        return None if self.patience >= 0 else f"patience= is 0 seconds or more, not {self.patience!r}"

    def waits(self, random: Random) -> Iterator[float]:
        """Yield the seconds before each attempt, ``tries`` times."""
        wait, count = self.first, 0
        while self.tries is None or count < self.tries:
            yield wait * (1 - self.jitter * random.random())
            wait = min(self.most, wait * self.factor)
            count += 1
