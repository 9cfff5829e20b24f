"""How many calls at once and how often: for one route, or for all that a middleware is around."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from afflux.core.bucket import Bucket
from afflux.core.errors import Canceled, Rejected
from afflux.core.payload import Payload
from afflux.middleware.base import Call, Middleware, Next, NextItems

__all__ = ["Clock", "Gate", "Limit", "RouteLimits"]

Clock = Callable[[], float]
"Monotonic seconds."
_T = TypeVar("_T")


class Gate:
    """Lets so many in at once, and so many each second. A counter and a bucket, however many come."""

    def __init__(
        self, name: str, *, concurrent: int | None, rate: tuple[float, float] | None, clock: Clock = monotonic
    ) -> None:
        if concurrent is not None and (isinstance(concurrent, bool) or not isinstance(concurrent, int)):
            raise TypeError(f"concurrent is a number of calls, not {concurrent!r}")
        if concurrent is not None and concurrent < 1:
            raise ValueError(f"concurrent is at least 1, not {concurrent}")
        if rate is not None and not (isinstance(rate, tuple) and len(rate) == 2 and rate[0] >= 1 and rate[1] >= 0):
            raise ValueError(f"rate is (how many at once, how many each second), at least (1, 0), not {rate!r}")
        self._name = name
        self._concurrent = concurrent
        self._bucket = None if rate is None else Bucket(*rate)
        self._clock = clock
        self.inside = 0
        "How many are in."

    @contextmanager
    def held(self) -> Iterator[None]:
        """One place, until the block is left.

        Raises:
            Rejected: there is none. Nothing has been started, so the same call may be tried again.
        """
        if self._concurrent is not None and self.inside >= self._concurrent:
            raise Rejected(f'{self._name}: too many calls at once (limit "concurrent")', rule="concurrent")
        if self._bucket is not None and not self._bucket.take(1, self._clock()):
            raise Rejected(f'{self._name}: too many calls in this time (limit "rate")', rule="rate")
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


class Limit(Middleware):
    """At most so many calls at once, and so many in a time, over all verbs but push. Beyond it: Rejected.

    A stream or a channel is one call for as long as it lasts. Around a peer nothing is sent beyond the limit.

    Args:
        concurrent: how many calls may be under way.
        rate: how many calls at once, and how many each second from then on, such as ``(10, 5)``.
        name: what the error calls it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        concurrent: int | None = None,
        rate: tuple[float, float] | None = None,
        name: str = "all calls",
        clock: Clock = monotonic,
    ) -> None:
        self._gate = Gate(name, concurrent=concurrent, rate=rate, clock=clock)

    async def request(self, call: Call, next: Next) -> Payload | None:
        """One call."""
        with self._gate.held():
            return await next(call)

    async def fire(self, call: Call, next: Next) -> None:
        """One call."""
        with self._gate.held():
            await next(call)

    async def stream(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """One call, until it ends."""
        with self._gate.held():
            items = next(call)
            try:
                async for item in items:
                    yield item
            finally:
                await _close(items)

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """One call, until it ends."""
        return self.stream(call, next)


async def _close(items: Any) -> None:
    await items.aclose()


class RouteLimits(Limit):
    """The limits of one route. The innermost layer: what is refused here has reached no function.

    Args:
        route: what the errors call it.
        concurrent, rate, clock: as for Limit.
        payload_bytes: the most that a payload may hold, data and metadata. A larger request is Rejected; a larger item
            of a channel that is under way is Canceled.
        timeout: seconds for an answer, or for the function of a stream to make its next item; beyond it, Canceled. The
            time in which the peer grants no credit does not count.
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
        super().__init__(concurrent=concurrent, rate=rate, name=route, clock=clock)
        if payload_bytes is not None and (not isinstance(payload_bytes, int) or payload_bytes < 0):
            raise ValueError(f"payload_bytes is 0 or more, not {payload_bytes!r}")
        if timeout is not None and not 0 < timeout <= 86_400:
            raise ValueError(f"timeout is seconds, above 0 and at most a day, not {timeout!r}")
        self._route = route
        self._payload_bytes = payload_bytes
        self._timeout = timeout

    async def request(self, call: Call, next: Next) -> Payload | None:
        """One call."""
        self._weigh(call.payload)
        with self._gate.held():
            return await self._in_time(next(call))

    async def fire(self, call: Call, next: Next) -> None:
        """One call."""
        self._weigh(call.payload)
        with self._gate.held():
            await self._in_time(next(call))

    async def stream(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """One call, until it ends."""
        self._weigh(call.payload)
        with self._gate.held():
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
        """One call, until it ends."""
        if self._payload_bytes is not None:
            call = call.replace(items=_Weighed(call.items, self._payload_bytes, self._route))
        return self.stream(call, next)

    def _weigh(self, payload: Payload) -> None:
        if self._payload_bytes is not None and len(payload) > self._payload_bytes:
            raise Rejected(f'{self._route}: too large a payload (limit "payload_bytes")', rule="payload_bytes")

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


class _Weighed(AsyncIterator[Payload]):
    """A channel's inbound items, up to one that is too large."""

    def __init__(self, items: Any, most: int, route: str) -> None:
        self._items = items
        self._most = most
        self._route = route

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)

    async def __anext__(self) -> Payload:
        item: Payload = await self._items.__anext__()
        self._weigh(item)
        return item

    async def batches(self) -> AsyncIterator[list[Payload]]:
        """As the items have them."""
        async for batch in self._items.batches():
            for item in batch:
                self._weigh(item)
            yield batch

    def _weigh(self, item: Payload) -> None:
        if len(item) > self._most:
            raise Canceled(f'{self._route}: too large an item (limit "payload_bytes")', rule="payload_bytes")
