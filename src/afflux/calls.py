"""What a verb's arguments become: one payload with its metadata. Shared by the asyncio and the blocking side."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from afflux.address import Address
from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.registry import Terms

__all__ = ["Cursor", "Metadata", "call_payload", "terms_of"]

Metadata = bytes | bytearray | memoryview | None
"Metadata as an argument."


class Cursor(Protocol):
    """A cursor entry (protocols.rsocket.cursor): it knows its own bytes."""

    def encode(self) -> bytes:
        """The entry's bytes."""


def call_payload(
    data: PayloadLike, metadata: Metadata = None, route: str | None = None, cursor: Cursor | None = None
) -> Payload:
    """The request payload of a verb.

    Without ``route`` and ``cursor``, ``metadata`` goes as it is. With either of them the metadata is composite:
    the route first, then the cursor, then ``metadata`` as an entry of type application/octet-stream.

    Raises:
        TypeError: ``metadata`` is given twice, in ``data`` and beside it.
        LocalProtocolError: the route can not be written.
    """
    payload = payload_of(data)
    if metadata is None and route is None and cursor is None:
        return payload
    if payload.metadata is not None:
        raise TypeError("the payload has metadata already: give route=, cursor= and metadata= with plain data")
    if route is None and cursor is None:
        return Payload(payload.data, bytes(metadata or b""))
    if cursor is None and metadata is None:
        return Payload(payload.data, _route_only(str(route)))
    return Payload(payload.data, _composed(metadata, route, cursor))


@lru_cache(maxsize=1024)
def _route_only(route: str) -> bytes:
    return _composed(None, route, None)


def _composed(metadata: Metadata, route: str | None, cursor: Cursor | None) -> bytes:
    from afflux.protocols.rsocket.cursor import CURSOR_MIME
    from afflux.protocols.rsocket.metadata import OCTET_STREAM, compose

    entries = []
    if cursor is not None:
        entries.append((CURSOR_MIME, cursor.encode()))
    if metadata is not None:
        entries.append((OCTET_STREAM, bytes(metadata)))
    try:
        return compose(entries, route=route)
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None


def terms_of(
    address: Address,
    limits: Limits,
    setup: PayloadLike | None,
    metadata_mime: str | None,
    data_mime: str | None,
    keepalive: float | None,
    lifetime: float | None,
    mtu: int | None,
) -> Terms:
    """What a client proposes, by its arguments and its address."""
    wanted = {
        "keepalive": limits.keepalive_s if keepalive is None else keepalive,
        "lifetime": limits.lifetime_s if lifetime is None else lifetime,
        "mtu": mtu,
        **address.options,
    }
    payload = None if setup is None else payload_of(setup)
    return Terms(payload=payload, metadata_mime=metadata_mime, data_mime=data_mime, **wanted)
