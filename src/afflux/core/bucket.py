"""Token buckets: how often something may happen. What it costs to misbehave is said where it is charged."""

from __future__ import annotations

from afflux.core.errors import Violation
from afflux.core.limits import REASONS, Limits

__all__ = ["Bucket", "spend"]

_GRAIN = 1e-9
"A billionth of a token is forgiven, so that seconds in floating point are exact at the limit."


class Bucket:
    """``burst`` tokens at most, full at first, refilled with ``per_second``.

    Time is an argument, in monotonic seconds; it is looked at only when something is taken. Time that goes
    backwards refills nothing, and what it went back is not refilled a second time.
    """

    __slots__ = ("_at", "_level", "burst", "per_second")

    burst: float
    "The most that can be taken at once."
    per_second: float
    "What comes back each second; 0 for never."

    def __init__(self, burst: float, per_second: float) -> None:
        if not (burst >= 0 and per_second >= 0):
            raise ValueError(f"a bucket holds and refills 0 or more tokens, not {burst} and {per_second}")
        self.burst = burst
        self.per_second = per_second
        self._level = float(burst)
        self._at = 0.0

    def take(self, n: float, now: float) -> bool:
        """Take ``n`` tokens; False, and nothing taken, when fewer are there. The last token may be taken."""
        level = self.level(now)
        if n > level + _GRAIN:
            return False
        self._level = max(0.0, level - n)
        return True

    def level(self, now: float) -> float:
        """How many tokens there are at ``now``."""
        if now > self._at:
            self._level = min(float(self.burst), self._level + (now - self._at) * self.per_second)
            self._at = now
        return self._level

    def wait(self, n: float, now: float) -> float | None:
        """Seconds from ``now`` until ``n`` tokens can be taken: 0.0 for at once, None for never."""
        missing = n - self.level(now)
        if missing <= _GRAIN:
            return 0.0
        if n > self.burst or not self.per_second:
            return None
        return missing / self.per_second


def spend(bucket: Bucket | None, limits: Limits, limit: str, price: int, now: float) -> Bucket:
    """Take ``price`` tokens from the bucket of a limit, and return it: None is one that nothing was taken from yet, as
    most connections have them.

    Raises:
        Violation: there are not enough; its reason word is the limit's.
    """
    if bucket is None:
        burst, per_second = getattr(limits, limit)
        bucket = Bucket(limits.most_cancels if limit == "cancel_bucket" else burst, per_second)
    if not bucket.take(price, now):
        raise Violation(REASONS[limit], rule=limit)
    return bucket
