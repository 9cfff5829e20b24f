"""Put times, sizes and the causes of stalls into words, and make text from a capture harmless to show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

__all__ = ["BLAME", "blamed", "clean", "clock", "count", "date", "seconds", "size"]

BLAME: Final = {
    "peer": ("receiver", "granted no credit", "The receiver granted no credit."),
    "transport": (
        "receiver",
        "did not empty its window, or the network was full",
        "The sender had credit, but the receiver's TCP window or the network was full.",
    ),
    "producer": ("sender", "had credit, and sent nothing", "The sender had credit and room, and sent nothing."),
    "local": (
        "sender",
        "sent frames of other streams instead",
        "The sender had credit and room, and sent frames of other streams.",
    ),
    "lease": ("sender", "granted no lease", "A request waited for a lease."),
    "unknown": ("unknown", "not known", "The capture lacks frames that would tell the cause."),
}
"By cause: the end that stopped the items, what it did, and the meaning."

_SIDES: Final = {">": ("client", "server"), "<": ("server", "client")}
"The sender and the receiver of items, by direction."


def blamed(cause: str | None, direction: str | None) -> tuple[str, str]:
    """Return which side stopped the items, and what it did; ``unknown`` if the capture does not show it."""
    side, did, _ = BLAME.get(cause or "", BLAME["unknown"])
    if side == "unknown":
        return side, did
    sender, receiver = _SIDES.get(direction or "", ("sender", "receiver"))
    return (receiver if side == "receiver" else sender), did


def clean(text: Any, most: int = 1 << 16) -> str:
    """Return a text with its control and direction characters written as escapes, cut after ``most`` characters."""
    shown = str(text)
    if len(shown) > most:
        shown = shown[: most - 1] + "…"
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)


def count(number: float | None) -> str:
    """Return a whole number with separators."""
    return "–" if number is None else f"{number:,.0f}"


def seconds(value: float | None) -> str:
    """Return a duration with three significant digits."""
    if value is None:
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale * 0.9995 or unit == "µs":
            break
    if value >= 119.5:
        minutes, rest = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
    return f"{_digits(value / scale)} {unit}"


def size(value: float | None) -> str:
    """Return bytes with three significant digits, in powers of 1,000."""
    if value is None:
        return "–"
    if value < 999.5:
        return f"{value:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            break
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    """Return three significant digits, without an exponent."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def clock(micros: int | None, *, days: bool = False) -> str:
    """Return a time in UTC, from microseconds since 1970; with its date if ``days``."""
    if micros is None:
        return "–"
    return _moment(micros).strftime("%Y-%m-%d %H:%M:%S.%f" if days else "%H:%M:%S.%f")


def date(micros: int) -> str:
    """Return the date of a time in UTC, from microseconds since 1970."""
    return _moment(micros).strftime("%Y-%m-%d")
