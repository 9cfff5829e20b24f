"""Print what a server does at an interval: rates, live streams and what they wait for, refusals (``serve --stats``)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from afflux.cli.exits import usage
from afflux.cli.inputs import duration
from afflux.observing import WIDE, Sample, sample

if TYPE_CHECKING:
    from afflux.aio.server import Server
    from afflux.aio.traffic import Traffic

__all__ = ["COLUMNS", "interval", "printing", "scaled", "stats_lines"]

COLUMNS: Final = 80
"The most characters of a line."
_DAY_S: Final = 86_400.0
"The longest interval, in seconds."
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def interval(text: str) -> float:
    """Parse --stats into seconds. Exits with a usage error below a tenth of a second, or above a day."""
    seconds = duration(text, "--stats")
    if not 0.1 <= seconds <= _DAY_S:
        usage(f"invalid --stats {text!r}: expected 100ms to 1d")
    return seconds


@asynccontextmanager
async def printing(server: Server, seconds: float, label: str = "") -> AsyncIterator[Printer]:
    """Print the state of a server to stderr every ``seconds``, and once more at the end. The ``print`` of the result
    prints at once.

    Args:
        server: the server, which has started.
        seconds: the interval.
        label: stands before each line, such as the number of a worker.
    """
    printer = Printer(server, label)
    task = asyncio.get_running_loop().create_task(printer.run(seconds))
    try:
        yield printer
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await printer.print()


class Printer:
    """Prints the state of one server."""

    def __init__(self, server: Server, label: str) -> None:
        self._server = server
        self._label = label
        self._now = asyncio.get_running_loop().time
        self._at = self._now()
        self._before = Sample(traffic=server.traffic(), refused=Counter(server.refused))

    async def run(self, seconds: float) -> None:
        """Print at every interval."""
        while True:
            await asyncio.sleep(seconds)
            await self.print()

    async def print(self) -> None:
        """Print what has happened since the last time."""
        before, found, now = self._before, await sample(self._server, self._before), self._now()
        parts = [f"{found.connections} connected", f"{found.live} live"]
        parts += _rates(before.traffic, found.traffic, now - self._at) + _waits(found)
        parts += _troubles(before.traffic, found.traffic, found.refused - before.refused)
        self._before, self._at = found, now
        lead = f"{datetime.now():%H:%M:%S} {self._label}"
        sys.stderr.write("".join(f"{line}\n" for line in stats_lines(lead, parts)))
        sys.stderr.flush()


def _rates(before: Traffic, now: Traffic, seconds: float) -> list[str]:
    """Return the rates. Those of items in both directions, and of streams, are left out while they are zero."""
    rates = [
        ("requests/s", now.requests - before.requests, True),
        ("streams/s", now.streams - before.streams, False),
        ("items/s out", now.items_sent - before.items_sent, False),
        ("items/s in", now.items_received - before.items_received, False),
        ("B/s out", now.bytes_sent - before.bytes_sent, True),
        ("B/s in", now.bytes_received - before.bytes_received, True),
    ]
    per = max(seconds, 1e-9)
    return [scaled(count / per, unit) for unit, count, always in rates if count or always]


def _troubles(before: Traffic, now: Traffic, refused: Counter[str]) -> list[str]:
    """Return what went wrong since the last time."""
    found = []
    if now.failed > before.failed:
        found.append(f"{now.failed - before.failed} failed")
    if now.rejected > before.rejected:
        found.append(f"{now.rejected - before.rejected} requests rejected")
    if refused:
        found.append(f"{refused.total()} refused: {_counts(refused)}")
    return found


def _waits(found: Sample) -> list[str]:
    """Return the credit of the live streams, and the stalled ones."""
    if not found.live:
        return []
    parts = [f"credit {'unlimited' if found.credit >= WIDE else scaled(found.credit)}"]
    if found.stalled:
        parts.append(f"{found.stalled.total()} stalled: {_counts(found.stalled)}")
    return parts


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def scaled(number: float, unit: str = "") -> str:
    """Return a number of at most three digits with a decimal prefix: 0 B/s, 7.5 B/s, 999 B/s, 1.2 kB/s, 45 MB/s; 45k
    without a unit or with one that is a word."""
    for prefix in _PREFIXES:
        if number < 999.5 or prefix == _PREFIXES[-1]:
            break
        number /= 1000
    whole = number >= 9.95 or (number == int(number) and not prefix)
    text = f"{number:.0f}" if whole else f"{number:.1f}"
    return f"{text} {prefix}{unit}" if unit.startswith("B") else f"{text}{prefix} {unit}".rstrip()


def stats_lines(lead: str, parts: Iterable[str]) -> list[str]:
    """Join parts to lines of at most ``COLUMNS`` characters. The first begins with ``lead``, the others with spaces."""
    lines, line = [], lead
    indent = " " * len(lead)
    for part in parts:
        added = f"{line}{part}" if line in (lead, indent) else f"{line} | {part}"
        if len(added) > COLUMNS and line not in (lead, indent):
            lines.append(line)
            added = f"{indent}{part}"
        line = added
    return [*lines, line]
