"""Limit rates with token buckets. The callers set the price of each event."""

from __future__ import annotations

from afflux.core.errors import Violation
from afflux.core.limits import REASONS, Limits

__all__ = ["Bucket", "spend"]

_GRAIN = 1e-9
"Tolerance in tokens: floating-point seconds are exact at the limit."


class Bucket:
    """A bucket of at most ``burst`` tokens, full at first, refilled with ``per_second``.

    Time is an argument, in monotonic seconds, used only when tokens are taken. A time before the latest one refills
    nothing, and no span of time refills twice.
    """

    __slots__ = ("_at", "_level", "burst", "per_second")

    burst: float
    "The most tokens in the bucket."
    per_second: float
    "Tokens added each second; 0 for none."

    def __init__(self, burst: float, per_second: float) -> None:
        if not (burst >= 0 and per_second >= 0):
            raise ValueError(f"invalid bucket: {burst} tokens, {per_second} per second; expected 0 or more of both")
        self.burst = burst
        self.per_second = per_second
        self._level = float(burst)
        self._at = 0.0

    def take(self, n: float, now: float) -> bool:
        """Take ``n`` tokens and return True; if there are fewer, take none and return False."""
        level = self.level(now)
        if n > level + _GRAIN:
            return False
        self._level = max(0.0, level - n)
        return True

    def level(self, now: float) -> float:
        """Return the number of tokens at ``now``."""
        if now > self._at:
            self._level = min(float(self.burst), self._level + (now - self._at) * self.per_second)
            self._at = now
        return self._level

    def wait(self, n: float, now: float) -> float | None:
        """Return the seconds from ``now`` until ``n`` tokens can be taken: 0.0 for immediately, None for never."""
        missing = n - self.level(now)
        if missing <= _GRAIN:
            return 0.0
        if n > self.burst or not self.per_second:
            return None
        return missing / self.per_second


def spend(bucket: Bucket | None, limits: Limits, limit: str, price: int, now: float) -> Bucket:
    """Take ``price`` tokens from the bucket of a limit and return the bucket. None stands for a full bucket, because
    most connections never need one.

    Raises:
        Violation: there are too few tokens; its reason word is the limit's.
    """
    if bucket is None:
        burst, per_second = getattr(limits, limit)
        bucket = Bucket(limits.most_cancels if limit == "cancel_bucket" else burst, per_second)
    if not bucket.take(price, now):
        raise Violation(REASONS[limit], rule=limit)
    return bucket
