"""Poll the link of a blocking connection. Signal handlers may run, and use the connection, in the middle of a poll."""

from __future__ import annotations

import select

from afflux.sync.guard import Guard, Woken
from afflux.transports.base import Link

__all__ = ["LinkPoll"]


class LinkPoll:
    """The poll of one connection's link."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._poll = select.poll()
        self._polling = False
        self.watched = select.POLLIN
        "The events that are polled for."

    def register(self, link: Link) -> None:
        """Add a link to the poll."""
        self.watched = select.POLLIN
        self._poll.register(link, select.POLLIN)

    def unregister(self, link: Link) -> None:
        """Remove a link from the poll."""
        self._poll.unregister(link)

    def watch(self, link: Link, wants: int) -> None:
        """Set the events to poll for."""
        if wants != self.watched:
            self.watched = wants
            self._poll.modify(link, wants)

    def wait(self, link: Link, wants: int, milliseconds: float | None) -> list[tuple[int, int]] | None:
        """Poll the link. Returns None when a signal handler has run: it may have read the awaited input, or closed the
        connection."""
        poll = self._poll
        if self._polling or wants != self.watched:  # a poll object cannot be used again during a poll
            poll = select.poll()
            poll.register(link, wants)
        polling, self._polling = self._polling, True
        try:
            try:
                self._guard.polling()
                return poll.poll(milliseconds)
            finally:
                self._guard.resumed()
                self._polling = polling
        except Woken:
            self._polling = polling
            return None
