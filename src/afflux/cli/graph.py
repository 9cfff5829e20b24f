"""Draw credit granted and used over time as text, for ``--graph``."""

from __future__ import annotations

__all__ = ["WIDTH", "Graph", "spark"]

WIDTH = 60
"Maximum columns of a line."

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-:=+*#"


class Graph:
    """Count credit granted and used per time column. When all columns are used, their duration doubles.

    Memory is bounded by ``WIDTH`` columns for a stream of any length. Times are monotonic seconds.
    """

    def __init__(self, start: float, step: float = 0.01) -> None:
        self._start = start
        self._step = step
        self._used = [0]
        self._open = [0]
        self.granted = 0
        "Total items granted."
        self.used = 0
        "Items that arrived."
        self.lowest: int | None = None
        "Lowest open credit after any grant or item."

    def grant(self, n: int, now: float) -> None:
        """Record a grant of ``n`` items."""
        self.granted += n
        self._mark(now, 0)

    def item(self, now: float) -> None:
        """Record an arrived item."""
        self.used += 1
        self._mark(now, 1)

    def _mark(self, now: float, used: int) -> None:
        column = int((now - self._start) / self._step)
        while column >= WIDTH:
            self._halve()
            column = int((now - self._start) / self._step)
        while len(self._used) <= column:
            self._used.append(0)
            self._open.append(self._open[-1])
        self._used[column] += used
        self._open[column] = self.granted - self.used
        self.lowest = self._open[column] if self.lowest is None else min(self.lowest, self._open[column])

    def _halve(self) -> None:
        if len(self._used) % 2:
            self._used.append(0)
            self._open.append(self._open[-1])
        self._used = [sum(self._used[at : at + 2]) for at in range(0, len(self._used), 2)]
        self._open = self._open[1::2]
        self._step *= 2

    def lines(self, encoding: str = "utf-8") -> list[str]:
        """Return three lines: the legend, open credit, items. Bars are ASCII where the encoding has no others."""
        bars = _bars(encoding)
        seconds = len(self._used) * self._step
        return [
            f"credit granted {self.granted:,}, used {self.used:,}, one column is {self._step * 1000:g} ms",
            f"open  {spark(self._open, bars)} up to {max(self._open):,}",
            f"items {spark(self._used, bars)} {self.used / seconds:,.0f} per second",
        ]


def _bars(encoding: str) -> str:
    try:
        _BARS.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return _ASCII_BARS
    return _BARS


def spark(values: list[int], bars: str = _BARS) -> str:
    """Return one block character per value, scaled to the largest value."""
    top = max(values, default=0) or 1
    return "".join(" " if value == 0 else bars[min(7, value * 8 // (top + 1))] for value in values)
