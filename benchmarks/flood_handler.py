"""The handler of flooded servers: the demo responder plus large answers.

Requests "at once" and "later" are answered by 4 MiB, the latter by a handler that first awaits.
"""

from __future__ import annotations

import asyncio

from afflux import Payload
from afflux.demo.responder import Responder

__all__ = ["Handler"]

_SIZE = 4 << 20


class Handler(Responder):
    """The handler for ``afflux serve --handler``."""

    async def request(self, payload: Payload) -> Payload:
        """Return a large answer, or that of the demo responder."""
        if payload.data == b"at once":
            return Payload(b"." * _SIZE)
        if payload.data == b"later":
            await asyncio.sleep(0.001)
            return Payload(b"." * _SIZE)
        return await super().request(payload)
