"""Write durations in messages."""

from __future__ import annotations

__all__ = ["in_words"]


def in_words(seconds: float) -> str:
    """Return a duration for a message, in the unit that a person reads: ``90 s``, ``0.25 s``, ``6.9 ms``, ``1 µs``."""
    if seconds >= 1000 or seconds == 0:
        return f"{seconds:,.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale * (0.00995 if unit == "s" else 0.995):
            return f"{seconds / scale:.3g} {unit}"
    return "less than 1 µs"
