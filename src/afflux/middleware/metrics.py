"""Report the outcome of each call to an observer, which collects metrics."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from afflux.calls.arguments import check_callable, wrong
from afflux.calls.patterns import Patterns, parsed
from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectionClosed,
    Error,
    Invalid,
    LeaseExpired,
    LimitExceeded,
    ProtocolError,
    Rejected,
    Unsupported,
)
from afflux.core.payload import Payload
from afflux.middleware.base import Call, Middleware, Next, NextItems
from afflux.middleware.limits import Clock

__all__ = ["OTHER", "OUTCOMES", "Metrics", "Observation", "Routes", "outcome_of"]

OTHER: Final = "other"
"The label of all routes that are not registered."

_NAMES: Final[tuple[tuple[type[Error], str], ...]] = (
    (Rejected, "REJECTED"),
    (Canceled, "CANCELED"),
    (Invalid, "INVALID"),
    (ApplicationError, "APPLICATION_ERROR"),
    (ConnectionClosed, "CONNECTION_CLOSED"),
    (LeaseExpired, "LEASE_EXPIRED"),
    (LimitExceeded, "LIMIT_EXCEEDED"),
    (ProtocolError, "PROTOCOL_ERROR"),
    (Unsupported, "UNSUPPORTED"),
)
_MAKERS: Final = (("afflux.otel", "observer"), ("afflux.prometheus", "observer"))
"Functions that return an observer, and are none."
OUTCOMES: Final = ("ok", "canceled", *(name for _, name in _NAMES))
"All outcomes."


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A call that has ended. Verb, route and outcome have few values, so that a counter for each is safe."""

    verb: str
    "request, fire, stream, channel or push."
    route: str
    """The registered route, such as ``prices.{symbol}``; "" for none; "other" for an unregistered route. Never the
    text of a peer."""
    outcome: str
    """"ok"; "canceled" if the requester canceled; else the name of the error, one of ``OUTCOMES``. Any other exception
    counts as APPLICATION_ERROR, which is sent to the peer."""
    code: int | None
    "The error's code, if any. An application may have many codes."
    seconds: float
    "The duration; of a stream, from the first demand to its end."
    items: int
    "The items delivered; 1 for an answer."
    protocol: str = ""
    "The protocol's name, such as rsocket; empty if the peer is unknown."
    outbound: bool = False
    "Whether this side made the call."


class Metrics(Middleware):
    """Report every call to ``observer`` when it has ended.

    A Router provides the registered routes. Around a peer or a plain handler, list the routes to distinguish.

    Args:
        observer: called with an Observation; it must not block. The first exception that it raises is logged.
        routes: routes to distinguish, as registered: ``["stats", "prices.{symbol}"]``.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, observer: Callable[[Observation], object], *, routes: Iterable[str] = (), clock: Clock = monotonic
    ) -> None:
        check_callable("observer", observer, "a function of an Observation")
        if (getattr(observer, "__module__", ""), getattr(observer, "__name__", "")) in _MAKERS:
            raise TypeError("observer() returns the observer, so call it: Metrics(observer())")
        self._observer = observer
        self._routes = Routes(routes)
        self._clock = clock
        self._failed = False

    async def request(self, call: Call, next: Next) -> Payload | None:
        """Observe one request."""
        start, outcome, code, items = self._clock(), "canceled", None, 0
        try:
            answer = await next(call)
            outcome, items = "ok", int(answer is not None and call.verb == "request")
            return answer
        except Exception as error:
            outcome, code = outcome_of(error)
            raise
        finally:
            self._report(call, outcome, code, start, items)

    async def fire(self, call: Call, next: Next) -> None:
        """Observe one fire."""
        await self.request(call, next)

    async def push(self, call: Call, next: Next) -> None:
        """Observe one push."""
        await self.request(call, next)

    async def stream(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Observe one stream."""
        start, outcome, code, items = self._clock(), "canceled", None, 0
        try:
            async for item in next(call):
                items += 1
                yield item
            outcome = "ok"
        except (GeneratorExit, CancelledError):
            raise
        except Exception as error:
            outcome, code = outcome_of(error)
            raise
        finally:
            self._report(call, outcome, code, start, items)

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Observe one channel; its items are those of the responder."""
        return self.stream(call, next)

    def _report(self, call: Call, outcome: str, code: int | None, start: float, items: int) -> None:
        seconds = self._clock() - start
        seen = Observation(
            verb=call.verb,
            route=self._routes.label(call),
            outcome=outcome,
            code=code,
            seconds=seconds,
            items=items,
            protocol=getattr(call.peer, "protocol", ""),
            outbound=call.outbound,
        )
        try:
            self._observer(seen)
        except Exception:
            if not self._failed:
                self._failed = True
                logging.getLogger("afflux").exception("afflux: an observer of metrics raised; logged once")


class Routes:
    """Routes to distinguish, which bound the number of labels.

    Args:
        routes: routes as registered: ``["stats", "prices.{symbol}"]``.
    """

    def __init__(self, routes: Iterable[str]) -> None:
        if isinstance(routes, str):
            raise wrong("routes=", routes, 'a list of routes, such as ["prices.{symbol}"]')
        self._routes: Patterns[str] = Patterns()
        for route in routes:
            self._routes.add(parsed(route), route)

    def label(self, call: Call) -> str:
        """Return the registered route of a call; "" for none, ``OTHER`` for a route that is not registered."""
        if call.pattern is not None:
            return call.pattern
        if call.route is None:
            return ""
        found = self._routes.find(call.route)
        return OTHER if found is None else found[0]


def outcome_of(error: Exception) -> tuple[str, int | None]:
    """Return the outcome of a call that failed, one of ``OUTCOMES``, and the error's code, if any."""
    name = next((name for kind, name in _NAMES if isinstance(error, kind)), "APPLICATION_ERROR")
    return name, error.code if isinstance(error, Error) else None
