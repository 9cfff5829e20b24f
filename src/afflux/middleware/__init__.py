"""Run code around every call, at a client or a server, without decoding the payloads.

::

    class Stamp(afflux.Middleware):
        async def request(self, call, next):
            return await next(call.replace(payload=b"#" + call.payload.data))

        async def stream(self, call, next):
            async for item in next(call):
                yield item

    peer = afflux.wrap(peer, Stamp(), Retry(3))              # around requests of this side
    handler = afflux.wrap(handler, Metrics(print))           # around answers of this side
    router = afflux.Router(middleware=[Metrics(print)])      # the same, with registered routes

The first middleware is the outermost. A verb that no middleware implements is not wrapped: ``Retry``, which only has
``request``, does not slow the streams of a peer. Middleware requires asyncio; with ``afflux.sync``, which has no
handlers, use a loop and ``try``.
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
