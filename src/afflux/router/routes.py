"""The Router. No asyncio and no I/O lives here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, NoReturn, TypedDict, TypeVar, Unpack

from afflux.aio.current import route_of
from afflux.calls.patterns import Patterns, Route, parsed
from afflux.core.errors import Error, Invalid, Rejected
from afflux.core.payload import Payload
from afflux.middleware.base import Middleware, Routed, checked, layers_of
from afflux.middleware.limits import RouteLimits
from afflux.middleware.wrapping import answering
from afflux.router.binding import bound

__all__ = ["RouteOptions", "Router", "route_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class RouteOptions(TypedDict, total=False):
    """What can be said of one route, beside its function."""

    codec: str
    "The MIME type that it reads and writes; without one, what the request asks for."
    concurrent: int
    "How many calls may be under way; a stream is one for as long as it lasts. One more is Rejected."
    rate: tuple[float, float]
    "How many calls at once, and how many each second from then on; one more is Rejected."
    payload_bytes: int
    "The most that a request may hold, data and metadata; a larger one is Rejected."
    timeout: float
    "Seconds until a call is Canceled; of a stream, for each item that its function makes."
    middleware: Sequence[Middleware]
    "Around this route alone, inside of the router's own."


_OPTIONS: Final = tuple(RouteOptions.__annotations__)
_LIMITS: Final = ("concurrent", "rate", "payload_bytes", "timeout")


@dataclass(slots=True)
class _Entry:
    """One route."""

    pattern: str
    "As it was registered."
    function: Callable[..., Any]
    "What was registered."
    run: Callable[..., Any]
    "The same, with all that is around it: called with the payload, or the items, and the places by name."


class Router(Routed):
    """A handler made of functions, one for each verb and route.

    ::

        router = afflux.Router()

        @router.request("echo")
        async def echo(payload): return payload

        @router.stream("prices.{symbol}", concurrent=100)
        async def prices(payload, symbol): yield ...

        @router.request("orders.{id:int}.put", codec="application/json")
        async def put(order: Order, id: int, entries: afflux.Entries) -> Receipt: ...

    **Routes.** A place in braces matches anything without a dot (``{rest}`` at the very end anything at all, dots
    included, if written ``{rest...}``) and is passed by name. An exact route wins over a pattern, and an earlier
    pattern over a later one. A function without a route, ``@router.request()``, answers what no other does. A
    channel's function gets the items; its route is that of the first one. ``push`` has no route.

    **Arguments** follow from the function's annotations; a mistake is a TypeError when it is registered.

    - The first parameter is the request: a Payload, or its data: as bytes, or decoded as the type says (a dict, a list,
      a str, a dataclass, a TypedDict, …: see :mod:`afflux.codecs`). A channel's are its items:
      ``AsyncIterator[Order]``.
    - A parameter with the name of a place gets that; converted when it, or the place (``{id:int}``), has a type: int,
      float, bool, UUID, date, datetime, an Enum or a Literal. What does not convert is Invalid.
    - A parameter of the type ``afflux.Entries`` gets the request's metadata, one of ``afflux.Peer`` the peer that asks.
    - Any other needs a default.

    **Results.** A function that takes its data decoded, that says it returns something other than payloads, or that has
    a ``codec``, may return any value, or yield any: bytes and payloads go as they are, None is an answer without an
    item, and everything else is encoded, a list as one value. Any other function gives payloads, bytes or text, in a
    stream also lists of them, and nothing is done to it.

    **Which codec:** ``codec``, else what the request's metadata says its data is (``afflux.MimeType``), else the
    connection's data type. The answer is of the first type that the request accepts (``afflux.Accept``) and that can
    hold it, else of the request's; a response of another type names its type (RSocket R-57).

    Args:
        middleware: around every function, and around requests that no function answers; see :mod:`afflux.middleware`.
        clock: monotonic seconds, for ``rate``.
    """

    def __init__(self, *, middleware: Sequence[Middleware] = (), clock: Callable[[], float] = monotonic) -> None:
        self._middleware = _checked(middleware)
        self._clock = clock
        self._tables: dict[str, Patterns[_Entry]] = {}
        self._push: Callable[..., Any] | None = None

    def request(self, route: str | None = None, **options: Unpack[RouteOptions]) -> Callable[[_Function], _Function]:
        """Register a function ``(payload, **places) -> payload``."""
        return self._adder("request", route, options)

    def fire(self, route: str | None = None, **options: Unpack[RouteOptions]) -> Callable[[_Function], _Function]:
        """Register a function ``(payload, **places) -> None``."""
        return self._adder("fire", route, options)

    def stream(self, route: str | None = None, **options: Unpack[RouteOptions]) -> Callable[[_Function], _Function]:
        """Register an async generator ``(payload, **places)``."""
        return self._adder("stream", route, options)

    def channel(self, route: str | None = None, **options: Unpack[RouteOptions]) -> Callable[[_Function], _Function]:
        """Register an async generator ``(items, **places)``."""
        return self._adder("channel", route, options)

    def push(self, function: _Function) -> _Function:
        """Register the function ``(metadata) -> None``."""
        if self._push is not None:
            raise ValueError("push has a function already")
        self._push = function
        return function

    @property
    def routes(self) -> list[tuple[str, str]]:
        """Every (verb, route) there is, exact ones first; "" is the one without a route."""
        exact = [(verb, route or "") for verb, table in self._tables.items() for route in table.exact]
        return exact + [(verb, route) for verb, table in self._tables.items() for route, _, _ in table.places]

    def find(self, verb: str, route: str | None) -> tuple[Callable[..., Any], dict[str, str]]:
        """The function for a request, and what its places matched.

        Raises:
            Rejected: there is none.
        """
        entry, places = self._find(verb, route)
        return entry.function, places

    def pattern(self, verb: str, route: str | None) -> str | None:
        """The registered route that answers a request; "" for the function without one, None when there is none."""
        try:
            return self._find(verb, route)[0].pattern
        except Rejected:
            return None

    def as_handler(self) -> object:
        """What the drivers call: an object with the verbs that have functions."""
        return _Dispatch(self)

    def _find(self, verb: str, route: str | None) -> tuple[_Entry, dict[str, str]]:
        if (table := self._tables.get(verb)) is not None:
            if route is not None and (found := table.find(route)) is not None:
                return found
            if (entry := table.exact.get(None)) is not None:
                return entry, {}
        raise _no_route(verb, route)

    def _adder(self, verb: str, route: str | None, options: RouteOptions) -> Callable[[_Function], _Function]:
        if route is not None and not isinstance(route, str):
            raise TypeError(f"a route is text; write @router.{verb}() for the function without one")
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(f'a route has no option "{name}"; there is: {", ".join(_OPTIONS)}')
        read = parsed(route or "")

        def add(function: _Function) -> _Function:
            names = sys._getframe(1).f_locals  # what annotations in quotes may mean where the function is
            self._add(verb, None if route is None else read, function, names, options)
            return function

        return add

    def _add(
        self, verb: str, route: Route | None, function: Any, names: Mapping[str, Any], options: RouteOptions
    ) -> None:
        table, pattern = self._tables.get(verb, Patterns()), "" if route is None else route.text
        if (None if route is None else pattern) in table:
            raise ValueError(f'{verb} "{pattern}" has a function already')
        places = {} if route is None else route.places
        run = bound(function, verb, pattern, places, options.get("codec"), names)
        table.add(route, _Entry(pattern, function, self._layered(verb, pattern, run, options)))
        self._tables[verb] = table

    def _layered(self, verb: str, pattern: str, run: Callable[..., Any], options: RouteOptions) -> Callable[..., Any]:
        """A route's function with the middleware and the limits around it."""
        middleware = [*self._middleware, *_checked(options.get("middleware", ()))]
        if any(name in options for name in _LIMITS):
            limits: Any = {name: options.get(name) for name in _LIMITS}
            middleware.append(RouteLimits(f'route "{pattern}"', clock=self._clock, **limits))
        return _around(verb, pattern, run, middleware)

    def _refusing(self, verb: str, error: Error) -> Callable[..., Any]:
        """What answers a request that no function does: the error, with the middleware around it."""

        def refuse(payload: Any, /) -> NoReturn:
            raise error

        return _around(verb, None, refuse, self._middleware)


def _checked(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    if not middleware:
        return ()
    return checked(middleware)


def _around(
    verb: str, pattern: str | None, run: Callable[..., Any], middleware: Sequence[Middleware]
) -> Callable[..., Any]:
    if not middleware:
        return run
    layers = layers_of(middleware, verb)
    return answering(verb, run, layers, partial(_about, verb, pattern)) if layers else run


def _about(verb: str, pattern: str | None, payload: Payload) -> dict[str, Any]:
    """What is known of a call. Metadata that can not be read has no route."""
    route = None
    if verb != "push":
        with suppress(Invalid):
            route = route_of(payload)
    return {"route": route, "pattern": pattern}


class _Dispatch:
    """A router as a handler. It has exactly the verbs for which the router has functions."""

    def __init__(self, router: Router) -> None:
        self._router = router
        for verb in router._tables:
            setattr(self, verb, self._channel if verb == "channel" else self._caller(verb))
        if router._push is not None:
            self.push = _around("push", "", router._push, router._middleware)

    def _caller(self, verb: str) -> Callable[[Payload], Any]:
        table = self._router._tables[verb]
        exact, places, refuse = table.exact, table.places, self._refuse

        def call(payload: Payload) -> Any:
            try:
                route = route_of(payload)
            except Invalid as error:
                return refuse(verb, error, payload)
            if (entry := exact.get(route)) is not None:
                return entry.run(payload)
            if route is not None:
                for _, pattern, entry in places:
                    if found := pattern.fullmatch(route):
                        return entry.run(payload, **found.groupdict())
            if (entry := exact.get(None)) is not None:
                return entry.run(payload)
            return refuse(verb, _no_route(verb, route), payload)

        return call

    def _channel(self, items: Any) -> Any:
        """The route of a channel is that of its first item, which ``items`` shows without taking it."""
        try:
            entry, places = self._router._find("channel", route_of(items.first))
        except Error as error:
            return self._refuse("channel", error, items)
        return entry.run(items, **places)

    def _refuse(self, verb: str, error: Error, argument: Any) -> Any:
        return self._router._refusing(verb, error)(argument)


def _no_route(verb: str, route: str | None) -> Rejected:
    return Rejected(f"{verb} needs a route" if route is None else f'no route "{route[:128]}" for {verb}')
