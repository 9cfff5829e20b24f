"""State what the tables need to know of a connection with frames, whatever has decoded it."""

from __future__ import annotations

from typing import Protocol

from afflux.capture.connections import Connection
from afflux.core.entry import ProtocolEntry

__all__ = ["Followed", "Talk", "rising"]


class Talk(Protocol):
    """A connection with frames."""

    @property
    def id(self) -> str:
        """See ``Connection.id``."""

    @property
    def connection(self) -> Connection:
        """The connection."""

    @property
    def protocol(self) -> ProtocolEntry | None:
        """Its protocol."""

    @property
    def others(self) -> tuple[ProtocolEntry, ...]:
        """The protocols with the same first bytes that are never guessed."""

    @property
    def client(self) -> bool | None:
        """The direction of the client (see ``Connection.opener``); None until it is known."""

    @property
    def synced(self) -> tuple[bool, bool]:
        """Whether the bytes of the server and of the client are known from the first one. The client is known."""


class Followed:
    """A connection whose directions are followed; see Talk."""

    __slots__ = ("client", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client: bool | None = None
        "The direction of the client (see ``Connection.opener``); None until it is known."

    @property
    def id(self) -> str:
        """See Talk."""
        return self.connection.id

    @property
    def synced(self) -> tuple[bool, bool]:
        """See Talk."""
        halves, client = self.connection.halves, bool(self.client)
        return halves[not client].synced, halves[client].synced


def rising(talk: Talk) -> bool:
    """Return the direction of the client."""
    client = talk.client if talk.client is not None else talk.connection.opener
    return True if client is None else client
