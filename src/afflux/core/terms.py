"""What an application asks of a connection, whatever its protocol: each takes what it knows of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from afflux.core.payload import Payload

__all__ = ["TOKEN_BYTES", "Terms"]

TOKEN_BYTES: Final = 32
"Random bytes in the token of a session that can be resumed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the side that connects proposes."""

    payload: Payload | None = None
    "The payload of the setup."
    metadata_mime: str | None = None
    "MIME type of all metadata; None means the protocol's default."
    data_mime: str | None = None
    "MIME type of all data; None means the protocol's default."
    keepalive: float = 20.0
    "Seconds between keepalives."
    lifetime: float = 90.0
    "Seconds without a sign of life after which the peer counts as dead."
    mtu: int | None = None
    "Largest frame to send, in bytes; longer payloads are fragmented. None means the engine's default."
    leases: bool = False
    "The side that connects wants leases."
    lease: Any = None
    "What this side grants (a LeasePolicy); None for nothing in particular."
    token: bytes | None = None
    "What the session is to be resumed by; None for one that ends with its transport."
    sessions: Any = None
    "Where the side that listens keeps sessions that can be resumed; None for none."
    extensions: Collection[int] = ()
    "The extended types that the application knows."
    sizes: Callable[[str], int] | None = None
    "How large the elements of a publisher here are, by its name, for protocols that have elements of one size."
    dialect: Any = None
    "In which ways the peer is not by the protocol's text, for protocols that know several; None for none."
    handled: Collection[str] = ()
    "The verbs that the application answers, where it listens."
    own: Mapping[str, Any] = field(default_factory=dict)
    "What an address sets that only its protocol knows, by the option's name."
