"""Serve and use reactive streams over the network, with back-pressure. Large modules are imported on first use.

::

    async with afflux.serve("tcp://127.0.0.1:0", handler) as server:
        async with afflux.connect(server.uri) as peer:
            reply = await peer.request(b"ping", route="echo")
            async for item in peer.stream(b"ticks", credit=32):
                ...
"""

from __future__ import annotations

import afflux.starting  # noqa: F401  # before all other imports: see there

# isort: split
from typing import TYPE_CHECKING, Any

from afflux.core.errors import (
    AddressError,
    ApplicationError,
    BindFailed,
    Canceled,
    ConnectFailed,
    ConnectionClosed,
    Error,
    Invalid,
    LeaseExpired,
    LimitExceeded,
    LocalProtocolError,
    MissingExtra,
    ProtocolError,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Unsupported,
)
from afflux.core.exports import exports_of
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux import asgi, auth, codecs, middleware, otel, prometheus, reactive, sync, testing
    from afflux.aio.client import connect
    from afflux.aio.current import route_of
    from afflux.aio.flow import ItemStream
    from afflux.aio.peer import Peer, current_peer
    from afflux.aio.pool import Pool
    from afflux.aio.server import Server, serve
    from afflux.aio.session import Session
    from afflux.broker import Broker
    from afflux.calls import compose, entries, reply
    from afflux.core.credit import StreamStatus
    from afflux.core.limits import Limits
    from afflux.gateway import Origin, Relay, relay
    from afflux.middleware import Call, Middleware, wrap
    from afflux.protocols.rsocket.lease import FixedLease, Lease, RateLease
    from afflux.protocols.rsocket.metadata import (
        Accept,
        Bearer,
        Credentials,
        Entries,
        MimeType,
        Route,
        Simple,
        TraceContext,
        Zipkin,
    )
    from afflux.reactive.contracts import Processor, Publisher, Subscriber, Subscription
    from afflux.retry.backoff import Backoff
    from afflux.router import Router
    from afflux.transports.security import Tls

__all__ = [
    "Accept",
    "AddressError",
    "ApplicationError",
    "Bearer",
    "Backoff",
    "BindFailed",
    "Broker",
    "Call",
    "Canceled",
    "ConnectFailed",
    "ConnectionClosed",
    "Credentials",
    "Entries",
    "Error",
    "FixedLease",
    "Invalid",
    "ItemStream",
    "Lease",
    "LeaseExpired",
    "LimitExceeded",
    "Limits",
    "LocalProtocolError",
    "Middleware",
    "MimeType",
    "MissingExtra",
    "Origin",
    "Payload",
    "Peer",
    "Pool",
    "Processor",
    "ProtocolError",
    "Publisher",
    "Rejected",
    "Relay",
    "RemoteProtocolError",
    "Route",
    "RateLease",
    "Router",
    "Server",
    "Session",
    "SetupRefused",
    "Simple",
    "StreamStatus",
    "Subscriber",
    "Subscription",
    "Tls",
    "TraceContext",
    "Unsupported",
    "Zipkin",
    "__version__",
    "asgi",
    "auth",
    "codecs",
    "compose",
    "connect",
    "current_peer",
    "entries",
    "reactive",
    "middleware",
    "otel",
    "prometheus",
    "relay",
    "reply",
    "route_of",
    "serve",
    "sync",
    "testing",
    "wrap",
]

__version__ = "0.1.0"

_find, __dir__ = exports_of(
    __name__,
    {
        "Backoff": "afflux.retry.backoff",
        "FixedLease": "afflux.protocols.rsocket.lease",
        "Lease": "afflux.protocols.rsocket.lease",
        "RateLease": "afflux.protocols.rsocket.lease",
        "Accept": "afflux.protocols.rsocket.metadata",
        "Bearer": "afflux.protocols.rsocket.metadata",
        "Broker": "afflux.broker",
        "Call": "afflux.middleware",
        "Credentials": "afflux.protocols.rsocket.metadata",
        "Entries": "afflux.protocols.rsocket.metadata",
        "ItemStream": "afflux.aio.flow",
        "Limits": "afflux.core.limits",
        "Origin": "afflux.gateway",
        "Relay": "afflux.gateway",
        "relay": "afflux.gateway",
        "Middleware": "afflux.middleware",
        "MimeType": "afflux.protocols.rsocket.metadata",
        "Peer": "afflux.aio.peer",
        "Pool": "afflux.aio.pool",
        "Processor": "afflux.reactive.contracts",
        "Publisher": "afflux.reactive.contracts",
        "Route": "afflux.protocols.rsocket.metadata",
        "Router": "afflux.router",
        "Server": "afflux.aio.server",
        "Session": "afflux.aio.session",
        "Simple": "afflux.protocols.rsocket.metadata",
        "StreamStatus": "afflux.core.credit",
        "Subscriber": "afflux.reactive.contracts",
        "Subscription": "afflux.reactive.contracts",
        "Tls": "afflux.transports.security",
        "TraceContext": "afflux.protocols.rsocket.metadata",
        "Zipkin": "afflux.protocols.rsocket.metadata",
        "asgi": "afflux",
        "auth": "afflux",
        "codecs": "afflux",
        "compose": "afflux.calls",
        "connect": "afflux.aio.client",
        "current_peer": "afflux.aio.peer",
        "entries": "afflux.calls",
        "reactive": "afflux",
        "middleware": "afflux",
        "otel": "afflux",
        "prometheus": "afflux",
        "reply": "afflux.calls",
        "route_of": "afflux.aio.current",
        "serve": "afflux.aio.server",
        "sync": "afflux",
        "testing": "afflux",
        "wrap": "afflux.middleware",
    },
)


def __getattr__(name: str) -> Any:
    if name in ("connect", "serve"):
        from afflux.aio.starting import found

        return found(name, _find)
    return _find(name)
