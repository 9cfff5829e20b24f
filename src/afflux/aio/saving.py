"""Write the session of a connection to its file before its effects become visible.

``afflux.resume`` defines the file; this module decides when it is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from afflux.aio.state import State
from afflux.core.errors import Error
from afflux.core.events import Event
from afflux.resume.errors import StoreError

if TYPE_CHECKING:
    from afflux.resume.record import Record

__all__ = ["Saving"]


class Saving:
    """The session of one connection, and its record in a file."""

    __slots__ = ("_state", "record")

    def __init__(self, state: State, record: Record) -> None:
        self._state = state
        self.record = record

    def before(self, events: Iterable[Event]) -> bool:
        """Before events are dispatched: write those that the file must contain first. Returns False when that fails."""
        return not self.record.observe(events) or self.durable()

    def durable(self) -> bool:
        """Before bytes are written or handlers begin: write the session. Returns False when that fails: the connection
        is then over."""
        try:
            self.record.save()
        except StoreError as error:
            self._failed(error)
            return False
        return True

    def save_changes(self) -> None:
        """At the end of a turn: write the changes that the application made."""
        if self.record.dirty:
            self.durable()

    def settled(self, stream: int, items: int) -> None:
        """The application has consumed items: the file records it before the next one is delivered."""
        if self.record.consumed(stream, items):
            self.durable()

    def end(self) -> None:
        """The session is over: remove it from the file."""
        try:
            self.record.remove()
        except StoreError as error:
            self._state.log_failure(f"afflux: a session that is over stays in its file: {error}")

    def _failed(self, error: Error) -> None:
        state = self._state
        state.log_failure(f"afflux: a session cannot be stored: {error}")
        state.driver.drop_session(error)
