"""Buffer the items that arrive on one stream until the application consumes them."""

from __future__ import annotations

from collections import deque

from afflux.core.events import Block, Items

__all__ = ["Inbox"]


class Inbox:
    """The items that have arrived on one stream and were not consumed yet."""

    __slots__ = ("arrived", "broken", "ended", "error", "unread")

    def __init__(self) -> None:
        self.arrived: deque[Items | Block] = deque()
        self.ended = False
        "No more items will arrive."
        self.error: Exception | None = None
        "Why it ended; None for an orderly end."
        self.broken: Exception | None = None
        "Why nothing more can be sent, although all has arrived."
        self.unread = 0
        "Bytes of a session that wait in the engine."

    def finish(self, error: Exception | None) -> None:
        """No more items will arrive. The first reason counts."""
        if not self.ended:
            self.ended, self.error = True, error
        self.broken = self.broken or error
