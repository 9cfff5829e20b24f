"""Choose what a journal trims by time and size, and trim it regularly."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from afflux.calls.arguments import check_type
from afflux.journal.contract import BlockInfo
from afflux.journal.errors import JournalError

__all__ = ["Ages", "Retention", "retain_regularly"]

_RETAIN_S = 30.0
"The most seconds between two trims."
_MARKS = 32
"How many heads are recorded in the time that a retention keeps."


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a journal keeps, whoever has read it; older items are trimmed. None sets no bound.

    Raises:
        TypeError: a bound is not a number.
        ValueError: it is not positive.
    """

    seconds: float | None = None
    "Items stored longer ago are trimmed."
    size: int | None = None
    "Bytes as in ``journal_bytes``: of more, the oldest are trimmed."

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("size", self.size)):
            if value is None:
                continue
            check_type(f"Retention: {name}=", value, (int, float), f"a number of {'bytes' if name == 'size' else name}")
            if not value > 0:
                raise ValueError(f"Retention: {name} must be above 0, not {value!r}")


class Ages:
    """The ages of the blocks of an open journal.

    The age of a block that was stored before the journal was opened is computed from its time. The age of a later one
    is the time since the first call of ``boundary`` that found it, so that no step of the clock makes it older.
    """

    def __init__(self, opened_at: int) -> None:
        self._opened_at = opened_at
        self._marks: deque[tuple[int, int]] = deque()

    def boundary(
        self, blocks: Iterable[BlockInfo], excess: int, seconds: float | None, now_us: int, head: int
    ) -> int | None:
        """Return the end of the last block to trim: of the oldest that have ``excess`` bytes, and of those older than
        ``seconds``; None for no block.

        Args:
            blocks: all blocks, the oldest first.
            excess: bytes to trim at least.
            seconds: the greatest age; None for any.
            now_us: the current time, from a clock that does not step while the journal is open.
            head: the current head.
        """
        oldest_us = None if seconds is None else now_us - int(seconds * 1e6)
        aged = 0 if oldest_us is None else self._aged(now_us, oldest_us, head)
        boundary: int | None = None
        for block in blocks:
            old = block.end <= aged
            if oldest_us is not None and block.end <= self._opened_at:
                old = block.time_us < oldest_us
            if excess <= 0 and not old:
                break
            excess -= block.charge
            boundary = block.end
        return boundary

    def _aged(self, now_us: int, oldest_us: int, head: int) -> int:
        """Record the head, and return the latest one that was recorded before ``oldest_us``."""
        marks = self._marks
        if not marks or now_us - marks[-1][0] >= (now_us - oldest_us) // _MARKS:
            marks.append((now_us, head))
        aged = 0
        while marks and marks[0][0] < oldest_us:
            aged = marks.popleft()[1]
        return aged


class Retaining(Protocol):
    """A feed with a retention."""

    async def retain(self) -> None:
        """Trim what the retention does not keep."""


async def retain_regularly(keep: Retention, feeds: Callable[[], Iterable[Retaining]]) -> None:
    """Trim the current feeds of a server, until the task is cancelled."""
    interval_s = _RETAIN_S if keep.seconds is None else min(_RETAIN_S, max(0.05, keep.seconds / 32))
    while True:
        for feed in list(feeds()):
            with suppress(JournalError):  # its readers receive it
                await feed.retain()
        await asyncio.sleep(interval_s)
