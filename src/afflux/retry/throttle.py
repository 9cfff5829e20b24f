"""Limit attempts to resume unknown sessions to ``auth_failures`` a minute for each address (RE-13).

1. Above the limit, every attempt of the address waits, even for a known session, so that parallel attempts do not help
   to find tokens.
2. An attempt that would wait too long is refused unchecked, at the end of the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from afflux.core.limits import Limits
from afflux.retry.failures import Failures, address_of
from afflux.transports.clock import Clock, now

__all__ = ["ResumeThrottle"]


class ResumeThrottle:
    """The failed attempts at one server. Clients without a host (mem, unix) are not throttled."""

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Clock = now,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._most = max(1, limits.auth_failures)
        self._longest = limits.handshake_s / 2
        self._failures = Failures()
        self._clock = clock
        self._sleep = sleep

    def add(self, host: str) -> None:
        """Record a failed attempt."""
        if host:
            self._failures.add(address_of(host), self._most, self._clock())

    def wait(self, host: str) -> float:
        """Return the seconds until an attempt of this host may be checked; 0.0 for now."""
        return self._failures.wait(address_of(host), self._most, self._clock()) if host else 0.0

    async def turn(self, host: str) -> bool:
        """Wait until an attempt may be checked; return False if that takes more than half of ``handshake_s``."""
        until = self._clock() + self._longest
        while wait := self.wait(host):
            left = until - self._clock()
            await self._sleep(max(0.0, min(wait, left)))
            if wait > left:
                return False
        return True
