"""Define the options of a connection in every protocol. An engine uses those that its protocol supports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

from afflux.core.payload import Payload

__all__ = ["TOKEN_BYTES", "Place", "Terms"]

Place = Callable[[BytesIO], object]
"Places the memory of a buffer that has not been written, such as in large pages."

TOKEN_BYTES: Final = 32
"Random bytes in the token of a session that can be resumed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The proposal of a client, or the options of a server."""

    payload: Payload | None = None
    "The payload sent with the setup."
    metadata_mime: str | None = None
    "MIME type of all metadata; None means the protocol's default."
    data_mime: str | None = None
    "MIME type of all data; None means the protocol's default."
    keepalive: float = 20.0
    "Seconds between keepalives."
    lifetime: float = 90.0
    "Seconds without a received byte after which the peer counts as dead."
    mtu: int | None = None
    "Largest frame to send, in bytes; longer payloads are fragmented. None means the engine's default."
    leases: bool = False
    "True if the client requests leases."
    lease: Any = None
    "The leases that this side grants (a LeasePolicy); None grants none."
    token: bytes | None = None
    "The token by which the session is resumed; None for a session that ends with its transport."
    sessions: Any = None
    "The server's store of sessions that can be resumed; None if it has none."
    extensions: Collection[Any] = ()
    "The extension types that the application supports: numbers, or names in protocols whose extensions have names."
    sizes: Callable[[str], int] | None = None
    "Returns the element size of a local publisher by its name, in protocols whose elements have one size."
    channels: Callable[[str], Any] | None = None
    "Returns the local steps of a channel by its name, in protocols whose channels have session types."
    dialect: Any = None
    "The peer's deviations from the protocol, in protocols that support some; None for none."
    handled: Collection[str] = ()
    "The verbs that a server's application answers."
    own: Mapping[str, Any] = field(default_factory=dict)
    "Options of the address that belong to its protocol alone, by name."
    place: Place | None = None
    "Called with the buffer of each large payload before it is filled; None for ordinary memory."
