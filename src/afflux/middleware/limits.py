"""Limit the number and the rate of calls, for one route or for all calls around which a middleware is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from time import monotonic
from typing import Any, TypeVar

from afflux.calls.arguments import check_type
from afflux.core.bucket import Bucket
from afflux.core.errors import Canceled, Rejected
from afflux.core.payload import Payload
from afflux.middleware.base import Call, Middleware, Next, NextItems

__all__ = ["Clock", "Gate", "Limit", "RouteLimits"]

Clock = Callable[[], float]
"Monotonic seconds."
_T = TypeVar("_T")


class Gate:
    """Limits concurrent calls with a counter and their rate with a token bucket."""

    def __init__(
        self, name: str, *, concurrent: int | None, rate: tuple[float, float] | None, clock: Clock = monotonic
    ) -> None:
        if concurrent is not None and (isinstance(concurrent, bool) or not isinstance(concurrent, int)):
            raise TypeError(f"concurrent must be a number of calls, not {concurrent!r}")
        if concurrent is not None and concurrent < 1:
            raise ValueError(f"concurrent must be at least 1, not {concurrent}")
        if rate is not None and not _is_rate(rate):
            raise ValueError(f"rate must be (burst, calls per second), at least (1, 0), not {rate!r}")
        self._name = name
        self._concurrent = concurrent
        self._bucket = None if rate is None else Bucket(*rate)
        self._clock = clock
        self.inside = 0
        "The number of current calls."

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Admit a call for the duration of the block.

        Raises:
            Rejected: a limit is reached. The call has not started, so a retry is safe.
        """
        if self._concurrent is not None and self.inside >= self._concurrent:
            raise Rejected(f'{self._name}: too many concurrent calls (limit "concurrent")', rule="concurrent")
        if self._bucket is not None and not self._bucket.take(1, self._clock()):
            raise Rejected(f'{self._name}: too many calls per second (limit "rate")', rule="rate")
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


def _is_rate(rate: object) -> bool:
    match rate:
        case tuple((int() | float() as burst, int() | float() as per_second)):
            return burst >= 1 and per_second >= 0
    return False


class Limit(Middleware):
    """Limit concurrent calls and their rate, over all verbs but push. Calls beyond a limit raise Rejected.

    A stream or a channel counts as one call until its end. Around a peer, calls beyond the limit are not sent.

    Args:
        concurrent: the most concurrent calls.
        rate: the burst, and the calls per second, such as ``(10, 5)``.
        name: the name in errors.
        clock: returns monotonic seconds.

    Raises:
        TypeError: neither ``concurrent`` nor ``rate`` is given, or one is of another type.
        ValueError: one is out of range.
    """

    def __init__(
        self,
        *,
        concurrent: int | None = None,
        rate: tuple[float, float] | None = None,
        name: str = "all calls",
        clock: Clock = monotonic,
    ) -> None:
        if concurrent is None and rate is None:
            raise TypeError("Limit needs a limit: give concurrent=, such as 100, or rate=, such as (10, 5), or both")
        self._gate = Gate(name, concurrent=concurrent, rate=rate, clock=clock)

    async def request(self, call: Call, next: Next) -> Payload | None:
        """Limit a call."""
        with self._gate.entered():
            return await next(call)

    async def fire(self, call: Call, next: Next) -> None:
        """Limit a call."""
        with self._gate.entered():
            await next(call)

    async def stream(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Limit a call, which lasts until the end of its items."""
        with self._gate.entered():
            items = next(call)
            try:
                async for item in items:
                    yield item
            finally:
                await _close(items)

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Limit a call, which lasts until the end of its items."""
        return self.stream(call, next)


async def _close(items: Any) -> None:
    await items.aclose()


class RouteLimits(Limit):
    """The limits of one route, as its innermost layer: a refused call has not reached a function.

    Args:
        route: the name in errors.
        concurrent, rate, clock: as for Limit.
        payload_bytes: the most bytes of a payload, data and metadata. A larger request raises Rejected, a larger item
            of a channel Canceled.
        timeout: seconds for an answer, or for the next item of a stream's function, after which Canceled is raised.
            Time without credit does not count.
    """

    def __init__(
        self,
        route: str,
        *,
        concurrent: int | None = None,
        payload_bytes: int | None = None,
        timeout: float | None = None,
        rate: tuple[float, float] | None = None,
        clock: Clock = monotonic,
    ) -> None:
        # Not Limit's, which needs one of the two: a route may have other limits alone.
        self._gate = Gate(route, concurrent=concurrent, rate=rate, clock=clock)
        if payload_bytes is not None and (not isinstance(payload_bytes, int) or payload_bytes < 0):
            raise ValueError(f"payload_bytes must be 0 or more, not {payload_bytes!r}")
        if timeout is not None:
            check_type("timeout=", timeout, (int, float), "a number of seconds")
            if not 0 < timeout <= 86_400:
                raise ValueError(f"timeout must be seconds, above 0 and at most a day, not {timeout!r}")
        self._route = route
        self._payload_bytes = payload_bytes
        self._timeout = timeout

    async def request(self, call: Call, next: Next) -> Payload | None:
        """Limit a call."""
        self._check_size(call.payload)
        with self._gate.entered():
            return await self._in_time(next(call))

    async def fire(self, call: Call, next: Next) -> None:
        """Limit a call."""
        self._check_size(call.payload)
        with self._gate.entered():
            await self._in_time(next(call))

    async def stream(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Limit a call, which lasts until the end of its items."""
        self._check_size(call.payload)
        with self._gate.entered():
            items = next(call)
            try:
                while True:
                    try:
                        item = await self._in_time(anext(items))
                    except StopAsyncIteration:
                        return
                    yield item
            finally:
                await _close(items)

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Limit a call, which lasts until the end of its items."""
        if self._payload_bytes is not None:
            call = call.replace(items=_SizeChecked(call.items, self._payload_bytes, self._route))
        return self.stream(call, next)

    def _check_size(self, payload: Payload) -> None:
        if self._payload_bytes is not None and len(payload) > self._payload_bytes:
            raise Rejected(f'{self._route}: the payload is too large (limit "payload_bytes")', rule="payload_bytes")

    async def _in_time(self, work: Awaitable[_T]) -> _T:
        if self._timeout is None:
            return await work
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                return await work
        except TimeoutError:
            if not scope.expired():
                raise
            raise Canceled(f'{self._route}: it took too long (limit "timeout")', rule="timeout") from None


class _SizeChecked(AsyncIterator[Payload]):
    """A channel's inbound items, up to the first that is too large."""

    def __init__(self, items: Any, most: int, route: str) -> None:
        self._items = items
        self._most = most
        self._route = route

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)

    async def __anext__(self) -> Payload:
        item: Payload = await self._items.__anext__()
        if not self._fits(item):
            raise self._too_large()
        return item

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """Yield the batches of the items."""
        async for batch in self._items.batches():
            fitting = list(takewhile(self._fits, batch))
            if fitting:
                yield fitting
            if len(fitting) < len(batch):
                raise self._too_large()

    def _fits(self, item: Payload) -> bool:
        return len(item) <= self._most

    def _too_large(self) -> Canceled:
        return Canceled(f'{self._route}: the item is too large (limit "payload_bytes")', rule="payload_bytes")
