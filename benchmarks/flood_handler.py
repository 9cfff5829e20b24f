"""The handler of the servers that are flooded: the demo responder, with large answers beside it.

Requests "at once" and "later" are answered by 4 MiB, the latter by a handler that awaits something first.
"""

from __future__ import annotations

import asyncio

from afflux import Payload
from afflux.demo.responder import Responder

__all__ = ["Handler"]

_SIZE = 4 << 20


class Handler(Responder):
    """What ``afflux serve --handler`` runs."""

    async def request(self, payload: Payload) -> Payload:
        """A large answer, or what the demo responder answers."""
        if payload.data == b"at once":
            return Payload(b"." * _SIZE)
        if payload.data == b"later":
            await asyncio.sleep(0.001)
            return Payload(b"." * _SIZE)
        return await super().request(payload)
