"""Read and write composite metadata and its entries, as values. See ``frames.py`` for the frames that carry it.

Metadata belongs to a request, so a malformed entry raises a Violation with the code INVALID, which fails that
request and not the connection (D-7). afflux's own entry of replayable streams belongs to ``cursor.py``.
"""

from afflux.protocols.rsocket.metadata.authentication import (
    Authentication,
    Bearer,
    Credentials,
    Simple,
    decode_credentials,
)
from afflux.protocols.rsocket.metadata.broker import (
    BROKER_MIME,
    BROKER_MIMES,
    Address,
    BrokerFrame,
    BrokerInfo,
    RouteJoin,
    RouteRemove,
    RouteSetup,
    decode_broker,
)
from afflux.protocols.rsocket.metadata.composite import Entry, EntryLike, compose, entries, pair_of
from afflux.protocols.rsocket.metadata.mime import (
    ACCEPT_MIME,
    AUTHENTICATION_MIME,
    COMPOSITE_MIME,
    MIME_IDS,
    MIME_NAMES,
    MIME_TYPE_MIME,
    OCTET_STREAM,
    ROUTING_MIME,
    TRACING_MIME,
    CompactLen,
    decode_mime,
    encode_mime,
    mime_name,
)
from afflux.protocols.rsocket.metadata.routing import Route, encode_tags, tags
from afflux.protocols.rsocket.metadata.tracing import TRACE_CONTEXT_MIME, Sampling, TraceContext, Zipkin
from afflux.protocols.rsocket.metadata.types import Accept, MimeType
from afflux.protocols.rsocket.metadata.view import Entries, route_of

__all__ = [
    "ACCEPT_MIME",
    "AUTHENTICATION_MIME",
    "BROKER_MIME",
    "BROKER_MIMES",
    "COMPOSITE_MIME",
    "MIME_IDS",
    "MIME_NAMES",
    "MIME_TYPE_MIME",
    "OCTET_STREAM",
    "ROUTING_MIME",
    "TRACE_CONTEXT_MIME",
    "TRACING_MIME",
    "Accept",
    "Address",
    "Authentication",
    "Bearer",
    "BrokerFrame",
    "BrokerInfo",
    "CompactLen",
    "Credentials",
    "Entries",
    "Entry",
    "EntryLike",
    "MimeType",
    "Route",
    "RouteJoin",
    "RouteRemove",
    "RouteSetup",
    "Sampling",
    "Simple",
    "TraceContext",
    "Zipkin",
    "compose",
    "decode_broker",
    "decode_credentials",
    "decode_mime",
    "encode_mime",
    "encode_tags",
    "entries",
    "mime_name",
    "pair_of",
    "route_of",
    "tags",
]
