"""Read the setup of the connection that the running handler answers."""

from __future__ import annotations

from typing import Final

from afflux.aio.peer import Peer, running_peer
from afflux.calls import CHANNEL_NAME, COMPOSITE, route_in
from afflux.core.payload import Payload

__all__ = ["mime_types", "route_of", "takes_entries"]

OCTETS: Final = "application/octet-stream"


def route_of(payload: Payload, metadata_mime: str | None = None) -> str | None:
    """Return the route in a request's metadata; None when there is none.

    Args:
        payload: the request.
        metadata_mime: the connection's metadata type; if None, that of the request which the running handler answers,
            and composite outside of handlers. In composite metadata the route is an entry, routing metadata is the
            route itself, and metadata of any other type has no route.

    Raises:
        Invalid: the composite metadata, or the routing metadata, cannot be read.
    """
    if metadata_mime is None and payload.metadata:
        peer = running_peer(None)
        metadata_mime = None if peer is None else _metadata_mime(peer)
    return route_in(payload, metadata_mime)


def takes_entries(peer: Peer) -> bool:
    """Return whether the metadata of requests to a peer is composite, so that an entry can be added."""
    setup = peer._driver.engine.setup
    return setup is not None and setup.metadata_mime == COMPOSITE


def mime_types() -> tuple[str | None, str]:
    """Return the MIME types of metadata and data of the running handler's connection. The first is None outside of
    handlers, where metadata is composite, and "" in a protocol without metadata."""
    if (peer := running_peer(None)) is None:
        return None, OCTETS
    engine = peer._driver.engine
    data_mime = OCTETS if engine.typed_sessions is not None or engine.setup is None else engine.setup.data_mime
    return _metadata_mime(peer), data_mime


def _metadata_mime(peer: Peer) -> str:
    """Return the MIME type of the metadata of a peer; "" in a protocol without metadata."""
    engine = peer._driver.engine
    if engine.typed_sessions is not None:
        return CHANNEL_NAME
    setup = engine.setup
    return "" if setup is None else setup.metadata_mime
