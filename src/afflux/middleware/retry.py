"""Asking once more, where that can do no harm."""

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
"After these nothing was processed: refused beforehand, never sent, never connected."
_UNKNOWN: Final[tuple[type[Error], ...]] = (Canceled, ConnectionClosed)
"After these it may have been."


class Retry(Middleware):
    """Asks a request again when it failed without being processed: around a peer.

    Errors after which a request may have been processed (Canceled, ConnectionClosed) are never tried again, unless
    ``idempotent`` says that processing it twice does no harm. Streams are not retried: their items have been seen.
    ``call.notes["attempt"]`` is 1, 2, …: a middleware further inside can see it.

    Args:
        times: how often to ask again, at most.
        backoff: how long to wait before each; ``Backoff(first=0)`` for not at all.
        on: the errors to try again after; by default all that are safe, with ``idempotent`` also those after which a
            connection may still be there or come back.
        idempotent: whether what is asked may be processed twice.
        random: where the jitter comes from.
        sleep: waits for so many seconds.

    Raises:
        ValueError: ``on`` has an error after which the request may have been processed, without ``idempotent``.
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
            raise ValueError(f"times is how often to ask again, 0 to 100, not {times!r}")
        self._on = ((*SAFE, *_UNKNOWN) if idempotent else SAFE) if on is None else on
        for kind in self._on:
            if not (isinstance(kind, type) and issubclass(kind, Error)):
                raise TypeError(f"on has classes of errors of afflux, not {kind!r}")
            if not idempotent and not issubclass(kind, SAFE):
                safe = ", ".join(error.__name__ for error in SAFE)
                raise ValueError(
                    f"after {kind.__name__} the request may have been processed: say idempotent=True "
                    f"if that may happen twice; safe without are {safe}"
                )
        self._times = times
        self._backoff = backoff or Backoff()
        self._random = random or Random(getrandbits(64))
        self._sleep = sleep

    async def request(self, call: Call, next: Next) -> Payload | None:
        """Ask, and ask again."""
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
                        error.add_note(f"asked {attempt} times")
                    raise
            await self._sleep(wait)
            attempt += 1


def _lost(call: Call) -> bool:
    """Whether the connection is over, and nothing brings it back."""
    peer = call.peer
    return peer is not None and peer.closed and peer.keeper is None


def _first(waits: Iterator[float]) -> float | None:
    """The next wait; None when there is none."""
    return next(waits, None)
