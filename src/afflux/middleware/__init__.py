"""Middleware: what is done around every call, on either side. What bytes mean is none of its business.

::

    class Stamp(afflux.Middleware):
        async def request(self, call, next):
            return await next(call.replace(payload=b"#" + call.payload.data))

        async def stream(self, call, next):
            async for item in next(call):
                yield item

    peer = afflux.wrap(peer, Stamp(), Retry(3))              # around what this side asks for
    handler = afflux.wrap(handler, Metrics(print))           # around what this side answers
    router = afflux.Router(middleware=[Metrics(print)])      # the same, and it knows the routes

The first middleware is the outermost. A verb that no middleware has is the target's own: wrapping a peer with
``Retry``, which only has ``request``, leaves its streams as fast as they were. It is for asyncio; ``afflux.sync`` has
no handlers and asks in plain loops, where a ``for`` and a ``try`` do the same.
"""

from __future__ import annotations

from afflux.middleware.base import Call, Middleware, Next, NextItems
from afflux.middleware.limits import Gate, Limit, RouteLimits
from afflux.middleware.metrics import Metrics, Observation
from afflux.middleware.retry import Retry
from afflux.middleware.wrapping import wrap

__all__ = [
    "Call",
    "Gate",
    "Limit",
    "Metrics",
    "Middleware",
    "Next",
    "NextItems",
    "Observation",
    "Retry",
    "RouteLimits",
    "wrap",
]
