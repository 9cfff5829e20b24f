"""Format the times of packets."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from afflux.capture.packets import NO_TIME

__all__ = ["timestamp"]


def timestamp(time: int) -> str | None:
    """Return a time in nanoseconds as ISO 8601 with microseconds; None for ``NO_TIME``."""
    if time == NO_TIME:
        return None
    return f"{_second(time // 1_000_000_000)}.{time // 1_000 % 1_000_000:06}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
