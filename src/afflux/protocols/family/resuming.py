"""Declare the interface of the part that lets a session outlive its transport, as the other parts use it.

Members with resumption implement it (rsocket/resumption.py); for the others the part is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from afflux.core.engine import Resumption
from afflux.core.errors import Violation

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = ["Resuming"]


class Resuming(Protocol):
    """The resumption of one connection's session."""

    away: float | None
    "When the transport was lost, until one is resumed; None while connected."

    @property
    def retains(self) -> bool:
        """Whether sent frames are retained."""

    @property
    def size(self) -> int:
        """Bytes retained."""

    def ability(self, connection: Connection) -> Resumption:
        """Return the object that a driver calls."""

    def agree(self, connection: Connection, setup: Any) -> None:
        """Start to retain frames, if the agreed SETUP requests resumption."""

    def established(self, connection: Connection) -> None:
        """Note that the connection may be used."""

    def resumable(self, connection: Connection) -> bool:
        """Whether the session would outlive its transport now."""

    def broken(self, connection: Connection, violation: Violation) -> bool:
        """Whether a violation ends an attempt to resume, and not the session."""

    def over(self, connection: Connection) -> None:
        """Forget the session: the connection has ended for good."""

    def weigh(self, connection: Connection) -> None:
        """Update the size of the session in its server's table."""

    def weigh_away(self, connection: Connection) -> None:
        """Update that size while there is no transport, when no pass does."""

    def report(self, connection: Connection) -> None:
        """Report the received position, if the peer would have to stop otherwise (R-51)."""

    def reported(self) -> int:
        """Return the received position, for a frame that reports it now."""

    def is_free(self, position: int) -> bool:
        """Whether a keepalive that reports ``position`` is free: it is far enough beyond the last free one."""

    def acknowledged(self, position: int) -> bool:
        """Apply the position that the peer reports. False when it goes backwards."""

    def due(self, connection: Connection) -> float:
        """When ``tick_away`` is due."""

    def tick_away(self, connection: Connection) -> None:
        """Act on elapsed time while there is no transport."""

    def store_due(self, connection: Connection) -> float | None:
        """When ``watch_store`` is due; None while there is room."""

    def watch_store(self, connection: Connection) -> None:
        """Discard a store that stays full for too long (RE-17)."""
