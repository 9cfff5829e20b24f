"""Declare the part of an engine by which its session can outlive a transport, as the other parts use it.

A member whose protocol has resumption implements it (rsocket/resumption.py); the others have None in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from afflux.core.engine import Resumption
from afflux.core.errors import Violation

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["Resuming"]


class Resuming(Protocol):
    """Resumption of one connection's session."""

    away: float | None
    "Since when there is no transport, or none that has been resumed."

    @property
    def retains(self) -> bool:
        """Whether what is sent is retained."""

    @property
    def size(self) -> int:
        """Bytes retained."""

    def ability(self, connection: Connection) -> Resumption:
        """What a driver calls."""

    def agree(self, connection: Connection, setup: Any) -> None:
        """SETUP is agreed on: retain, if it asks for that."""

    def established(self, connection: Connection) -> None:
        """The connection may be used."""

    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport now."""

    def broken(self, connection: Connection, violation: Violation) -> bool:
        """Whether a violation ends an attempt to resume, and not the session."""

    def over(self, connection: Connection) -> None:
        """The connection is over for good."""

    def weigh(self, connection: Connection) -> None:
        """Count what the session holds."""

    def weigh_away(self, connection: Connection) -> None:
        """The same while there is no transport, when no pass counts it."""

    def report(self, connection: Connection) -> None:
        """Report the received position, when the peer would have to stop otherwise (R-51)."""

    def reported(self) -> int:
        """The received position, which is being reported now."""

    def progress(self, position: int) -> bool:
        """Whether a reported position is far enough beyond the last for its keepalive to cost nothing."""

    def note(self, position: int) -> None:
        """A keepalive cost nothing because of its position."""

    def acknowledged(self, position: int) -> bool:
        """The peer reports its position. False when it goes backwards."""

    def due(self, connection: Connection) -> float:
        """When ``tick_away`` is wanted."""

    def tick_away(self, connection: Connection) -> None:
        """Time passed without a transport."""

    def store_due(self, connection: Connection) -> float | None:
        """When ``watch_store`` is wanted; None while there is room."""

    def watch_store(self, connection: Connection) -> None:
        """Give up a store that stays full for too long (RE-17)."""
