"""Describe the faults of a network. ``Network`` applies them in virtual time, ``Proxy`` to real sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from random import Random

from afflux.calls.arguments import check_type

__all__ = ["FLAWLESS", "Faults", "Plan", "Weather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one direction of a connection.

    Raises:
        TypeError, ValueError: a value is of a wrong type or out of its range; the text names it.
    """

    delay: float = 0.0
    "Seconds until bytes arrive."
    jitter: float = 0.0
    "Up to this many seconds more, by chance; bytes stay in order."
    rate: float | None = None
    "Bytes that pass in a second; None for no bound."
    slices: int = 0
    "Bytes arrive in pieces of 1 to this many, by chance; 0: in pieces as they were written."
    cut_after: int | None = None
    "Bytes that arrive before the connection breaks."
    lose_after: int | None = None
    "Bytes that arrive before all others are lost, without either end being notified."

    def __post_init__(self) -> None:
        for name in ("delay", "jitter"):
            value = getattr(self, name)
            check_type(f"{name}=", value, (int, float), "a number of seconds")
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{name}= is a number of seconds, 0 or more, not {value!r}")
        if self.rate is not None:
            check_type("rate=", self.rate, (int, float), "a number of bytes per second")
            if not self.rate > 0:
                raise ValueError(f"rate= is a number of bytes per second, above 0, or None, not {self.rate!r}")
        for name in ("slices", "cut_after", "lose_after"):
            value = getattr(self, name)
            if value is None and name != "slices":
                continue
            check_type(f"{name}=", value, int, "a whole number of bytes")
            if value < 0:
                raise ValueError(f"{name}= is a number of bytes, 0 or more, not {value!r}")


FLAWLESS = Faults()
"Bytes arrive as they were written, without delay."

Plan = Callable[[int], tuple[Faults, Faults]]
"Given the number of a connection, from 0, returns the faults on the way to the server and to the client."


class Weather:
    """Decide with a seeded generator how the bytes of one direction travel."""

    def __init__(self, faults: Faults, random: Random) -> None:
        self.faults = faults
        self.passed = 0
        "Bytes that have arrived."
        self._random = random
        self._sent = 0.0
        self._due = 0.0

    @property
    def silent(self) -> bool:
        """Whether all bytes sent now are lost."""
        most = self.faults.lose_after
        return most is not None and self.passed >= most

    def piece(self, size: int) -> int:
        """Return how many of ``size`` bytes travel together."""
        slices = self.faults.slices
        return min(size, self._random.randint(1, slices)) if slices else size

    def due(self, size: int, now: float) -> float:
        """Return the time when bytes sent now arrive: after all that were sent before."""
        faults = self.faults
        self._sent = max(self._sent, now) + (size / faults.rate if faults.rate else 0.0)
        chance = self._random.random() * faults.jitter if faults.jitter else 0.0
        self._due = max(self._due, self._sent + faults.delay + chance)
        return self._due

    def arriving(self, size: int) -> tuple[int, bool]:
        """Return how many of ``size`` bytes arrive, and whether the connection breaks after them."""
        cut, lose = self.faults.cut_after, self.faults.lose_after
        breaks = cut is not None and self.passed + size >= cut
        left = min(size if most is None else max(0, most - self.passed) for most in (cut, lose))
        self.passed += min(size, left)
        return min(size, left), breaks
