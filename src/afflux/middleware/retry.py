"""Retry requests that are safe to repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from random import Random, getrandbits
from typing import Final

from afflux.core.errors import Canceled, ConnectFailed, ConnectionClosed, Error, LeaseExpired, Rejected
from afflux.core.payload import Payload
from afflux.middleware.base import Call, Middleware, Next
from afflux.retry.backoff import Backoff

__all__ = ["SAFE", "Retry"]

SAFE: Final[tuple[type[Error], ...]] = (Rejected, LeaseExpired, ConnectFailed)
"Errors of requests that were not processed: refused beforehand, never sent, never connected."
_UNKNOWN: Final[tuple[type[Error], ...]] = (Canceled, ConnectionClosed)
"Errors of requests that may have been processed."


class Retry(Middleware):
    """Retry requests that failed without being processed. Wrap a peer with it.

    Requests that may have been processed (Canceled, ConnectionClosed) are repeated only if they are ``idempotent``.
    Streams are not retried, because items were delivered. ``call.notes["attempt"]`` is 1, 2, … for inner middlewares.

    Args:
        times: the most retries.
        backoff: the delays before the retries; ``Backoff(first=0)`` for none.
        on: the errors to retry after; by default all that are safe, with ``idempotent`` also those after which the
            connection may exist or return.
        idempotent: whether requests may be processed twice.
        random: the source of the jitter.
        sleep: waits for the given seconds.

    Raises:
        ValueError: ``on`` has an error after which the request may have been processed, and ``idempotent`` is False.
    """

    def __init__(
        self,
        times: int = 3,
        backoff: Backoff | None = None,
        *,
        on: tuple[type[Error], ...] | None = None,
        idempotent: bool = False,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if not isinstance(times, int) or not 0 <= times <= 100:
            raise ValueError(f"times must be 0 to 100 retries, not {times!r}")
        self._on = ((*SAFE, *_UNKNOWN) if idempotent else SAFE) if on is None else on
        for kind in self._on:
            if not (isinstance(kind, type) and issubclass(kind, Error)):
                raise TypeError(f"on must contain error classes of afflux, not {kind!r}")
            if not idempotent and not issubclass(kind, SAFE):
                safe = ", ".join(error.__name__ for error in SAFE)
                raise ValueError(
                    f"after {kind.__name__} the request may have been processed: pass idempotent=True "
                    f"if it is safe to repeat; always safe: {safe}"
                )
        self._times = times
        self._backoff = backoff or Backoff()
        self._random = random or Random(getrandbits(64))
        self._sleep = sleep

    async def request(self, call: Call, next: Next) -> Payload | None:
        """Send the request, and repeat it."""
        waits = islice(self._backoff.waits(self._random), self._times)
        attempt = 1
        while True:
            call.notes["attempt"] = attempt
            try:
                return await next(call)
            except self._on as error:
                wait = None if _lost(call) else _first(waits)
                if wait is None:
                    if attempt > 1:
                        error.add_note(f"after {attempt} attempts")
                    raise
            await self._sleep(wait)
            attempt += 1


def _lost(call: Call) -> bool:
    """Whether the connection is over and does not reconnect."""
    peer = call.peer
    return peer is not None and peer.closed and peer.keeper is None


def _first(waits: Iterator[float]) -> float | None:
    """Return the next delay; None if none is left."""
    return next(waits, None)
