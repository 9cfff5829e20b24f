"""Define the events that a driver reports to its owner: the handlers of the connection, and its server or client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from afflux.core.events import Established, Extended, Opened, Pushed, Requests, Resuming, SessionOpened, Suspended

if TYPE_CHECKING:
    from afflux.aio.sender import Sender

__all__ = ["NOBODY", "Owner"]


class Owner:
    """The owner of a connection. Every method is a no-op unless a subclass replaces it."""

    def established(self, event: Established) -> None:
        """The connection may be used, or is to be decided."""

    def opened(self, event: Opened) -> None:
        """The peer sent a request. The owner calls ``consumed`` for its payload when a handler begins."""

    def requested(self, event: Requests) -> None:
        """The peer sent several requests together."""
        for one in event.each():
            self.opened(one)

    def session_opened(self, event: SessionOpened) -> None:
        """The peer opened a session of bytes."""

    def canceled(self, stream: int) -> None:
        """The peer canceled, or lost, one of its requests."""

    def failed(self, sender: Sender, error: Exception) -> None:
        """An item of a producer cannot be sent."""

    def begin(self) -> None:
        """The events of a pass are dispatched, after ``driver.requested`` was set: begin the handlers."""

    def on_writable(self) -> None:
        """There is room to send again, after ``room.handlers_wait`` was set."""

    def task_ended(self, stream: int, task: asyncio.Task[Any]) -> None:
        """A task that was spawned for a stream has ended."""

    def pushed(self, event: Pushed) -> None:
        """The peer pushed metadata."""

    def extended(self, event: Extended) -> None:
        """A frame of an extension arrived."""

    def suspended(self, event: Suspended) -> None:
        """The transport is gone; the session continues."""

    def resuming(self, event: Resuming) -> None:
        """A new connection asks to resume a session."""

    def resumed(self) -> None:
        """The session has a transport again."""

    def ended(self) -> None:
        """The connection is over; handlers may still be ending."""

    def parted(self) -> None:
        """The connection is over and has no transport any more; handlers may still be ending."""

    def left(self) -> None:
        """The transport is gone, and every task has ended."""


NOBODY: Final = Owner()
"The owner of a connection that has left."
