"""Keep the file of a session in step with its connection: what was not written down must not be seen.

How a session gets into its file and out of it belongs to ``afflux.resume``.
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
        """Before events are dispatched: write down those that the file must contain first. False when that fails."""
        return not self.record.observe(events) or self.durable()

    def durable(self) -> bool:
        """Before bytes are written or handlers begin: write down the session. False when that fails: then the
        connection is over."""
        try:
            self.record.save()
        except StoreError as error:
            self._failed(error)
            return False
        return True

    def save_changes(self) -> None:
        """At the end of a turn: write down what the application has done."""
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
        state.log_failure(f"afflux: a session can not be kept: {error}")
        state.driver.drop_session(error)
