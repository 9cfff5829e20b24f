"""Strangers who ask a server for sessions that are not there: each address may do so ``auth_failures`` times a minute
(RE-13). Which sessions there are is server.py's.

1. Who is beyond that waits, whether the session is there or not: so guessing many at once gains nothing.
2. Who would wait too long is refused unchecked, and late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from afflux.core.limits import Limits
from afflux.retry.failures import Failures, address_of
from afflux.transports.clock import Clock, now

__all__ = ["ResumeThrottle"]


class ResumeThrottle:
    """The wrong guesses that a server has seen. A client without a host (mem, unix) is never slowed."""

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Clock = now,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._most = max(1, limits.auth_failures)
        self._patience = limits.handshake_s / 2
        self._failures = Failures()
        self._clock = clock
        self._sleep = sleep

    def add(self, host: str) -> None:
        """One more was wrong."""
        if host:
            self._failures.add(address_of(host), self._most, self._clock())

    def wait(self, host: str) -> float:
        """Seconds until one from this host may be looked at; 0.0 for now."""
        return self._failures.wait(address_of(host), self._most, self._clock()) if host else 0.0

    async def turn(self, host: str) -> bool:
        """Wait until one may be looked at; False, after half of the handshake's time, when that is too late."""
        until = self._clock() + self._patience
        while wait := self.wait(host):
            left = until - self._clock()
            await self._sleep(max(0.0, min(wait, left)))
            if wait > left:
                return False
        return True
