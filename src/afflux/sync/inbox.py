"""Buffer what has arrived on one stream until the application consumes it."""

from __future__ import annotations

from collections import deque

from afflux.core.events import Block, Items

__all__ = ["Inbox"]


class Inbox:
    """What has arrived on one stream and was not consumed yet."""

    __slots__ = ("arrived", "broken", "ended", "error", "unread")

    def __init__(self) -> None:
        self.arrived: deque[Items | Block] = deque()
        self.ended = False
        "Nothing more will arrive."
        self.error: Exception | None = None
        "Why it ended, if not in order."
        self.broken: Exception | None = None
        "Why nothing more can be said, though all has arrived."
        self.unread = 0
        "Bytes of a session that wait in the engine."

    def finish(self, error: Exception | None) -> None:
        """Nothing more will arrive. The first reason counts."""
        if not self.ended:
            self.ended, self.error = True, error
        self.broken = self.broken or error
