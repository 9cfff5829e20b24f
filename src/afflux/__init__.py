"""afflux: reactive wires with back-pressure. The outside; nothing clever, and nothing heavy is imported before use.

::

    async with afflux.serve("tcp://127.0.0.1:0", handler) as server:
        async with afflux.connect(server.uri) as peer:
            reply = await peer.request(b"ping", route="echo")
            async for item in peer.stream(b"ticks", credit=32):
                ...
"""

from __future__ import annotations

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
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux import sync
    from afflux.aio.client import connect
    from afflux.aio.flow import ItemStream
    from afflux.aio.peer import Peer, current_peer
    from afflux.aio.server import Server, serve
    from afflux.core.limits import Limits
    from afflux.router import Router, route_of

__all__ = [
    "AddressError",
    "ApplicationError",
    "BindFailed",
    "Canceled",
    "ConnectFailed",
    "ConnectionClosed",
    "Error",
    "Invalid",
    "ItemStream",
    "LeaseExpired",
    "LimitExceeded",
    "Limits",
    "LocalProtocolError",
    "MissingExtra",
    "Payload",
    "Peer",
    "ProtocolError",
    "Rejected",
    "RemoteProtocolError",
    "Router",
    "Server",
    "SetupRefused",
    "Unsupported",
    "__version__",
    "connect",
    "current_peer",
    "route_of",
    "serve",
    "sync",
]

__version__ = "0.1.0"

_LATER = {
    "ItemStream": "afflux.aio.flow",
    "Limits": "afflux.core.limits",
    "Peer": "afflux.aio.peer",
    "Router": "afflux.router",
    "Server": "afflux.aio.server",
    "connect": "afflux.aio.client",
    "current_peer": "afflux.aio.peer",
    "route_of": "afflux.router",
    "serve": "afflux.aio.server",
    "sync": "afflux",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'afflux' has no attribute {name!r}")
    from importlib import import_module

    module = import_module("afflux.sync") if name == "sync" else getattr(import_module(_LATER[name]), name)
    globals()[name] = module
    return module


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
