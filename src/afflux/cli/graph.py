"""The line that --graph draws on stderr: credit granted and used against time. Arithmetic and text only."""

from __future__ import annotations

__all__ = ["WIDTH", "Graph", "spark"]

WIDTH = 60
"Columns of a line, at most."

_BARS = "▁▂▃▄▅▆▇█"


class Graph:
    """Counts what was granted and used, in columns of time that double in width when they run out.

    Memory is bounded by ``WIDTH`` columns however long the stream is. Times are monotonic seconds.
    """

    def __init__(self, start: float, step: float = 0.01) -> None:
        self._start = start
        self._step = step
        self._used = [0]
        self._open = [0]
        self.granted = 0
        "Items granted in all."
        self.used = 0
        "Items that arrived."
        self.lowest: int | None = None
        "The least credit that was ever open after a grant or an item."

    def grant(self, n: int, now: float) -> None:
        """``n`` more items were granted."""
        self.granted += n
        self._mark(now, 0)

    def item(self, now: float) -> None:
        """An item arrived."""
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

    def lines(self) -> list[str]:
        """Three lines: what each column means, open credit, items."""
        seconds = len(self._used) * self._step
        return [
            f"credit granted {self.granted:,}, used {self.used:,}, a column is {self._step * 1000:g} ms",
            f"open  {spark(self._open)} up to {max(self._open):,}",
            f"items {spark(self._used)} {self.used / seconds:,.0f} a second",
        ]


def spark(values: list[int]) -> str:
    """Eight heights of block for the values, against the largest."""
    top = max(values, default=0) or 1
    return "".join(" " if value == 0 else _BARS[min(7, value * 8 // (top + 1))] for value in values)
