"""Register functions by verb and route, and call the function that matches a request."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypedDict, TypeVar, Unpack, overload

from afflux.aio.current import route_of
from afflux.calls.arguments import check_callable, check_one_answer, wrong
from afflux.calls.listing import LIST_ROUTES, listing
from afflux.calls.patterns import PLACES, Patterns, Route, parsed
from afflux.core.errors import Error, Invalid, Rejected
from afflux.core.payload import Payload
from afflux.middleware.base import Middleware, Routed, checked, layers_of
from afflux.middleware.limits import RouteLimits
from afflux.middleware.wrapping import answering, requested_route
from afflux.router.binding import bound

if TYPE_CHECKING:
    from afflux.sessions.chan import Chan, SessionType
    from afflux.sessions.machine import Machine

__all__ = ["RouteOptions", "Router", "route_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Server = TypeVar("_Server")
_Session: TypeAlias = "Callable[[Chan[_Server]], Awaitable[None]]"
"Serves a session from the server's first endpoint."


class RouteOptions(TypedDict, total=False):
    """The options of one route."""

    codec: str
    "The MIME type that it reads and writes; by default the request selects it."
    concurrent: int
    "The most concurrent calls; a stream is one call until its end. Further calls raise Rejected."
    rate: tuple[float, float]
    "The burst, and the calls per second; further calls raise Rejected."
    payload_bytes: int
    "The most bytes of a request, data and metadata; a larger one raises Rejected."
    timeout: float
    "Seconds until a call raises Canceled; of a stream, for each item of its function."
    middleware: Sequence[Middleware]
    "Middleware of this route, inside the router's own."


_OPTIONS: Final = tuple(RouteOptions.__annotations__)
_LIMITS: Final = ("concurrent", "rate", "payload_bytes", "timeout")

_MOST_ROUTE_BYTES: Final = 255
"The longest route that a routing entry can carry (RSocket R-56)."
_SHOWN_CHARACTERS: Final = 40
"Characters of a route in an error."
_SHOWN: Final = 8
"Routes that the repr of a router shows."


@dataclass(slots=True)
class _Entry:
    """A registered route."""

    pattern: str
    "The route as registered."
    function: Callable[..., Any]
    "The registered function."
    run: Callable[..., Any]
    "The function with its middleware, called with the payload or the items, and the places by name."
    session: SessionType[Any, Any] | None = None
    "The session type of a channel that has one."


class Router(Routed):
    """A handler that consists of functions, each with a verb and a route.

    ::

        router = afflux.Router()

        @router.request("echo")
        async def echo(payload): return payload

        @router.stream("prices.{symbol}", concurrent=100)
        async def prices(payload, symbol): yield ...

        @router.request("orders.{id:int}.put", codec="application/json")
        async def put(order: Order, id: int, entries: afflux.Entries) -> Receipt: ...

    **Routes.** A place in braces matches text without a dot and is passed by name; ``{rest...}`` at the end matches
    dots as well. An exact route precedes patterns, and an earlier pattern precedes later ones. A function without a
    route, ``@router.request()``, is the fallback. A channel's function gets the items; its route is that of the first
    item. ``push`` has no route.

    **Arguments** follow from the function's annotations; a mistake raises TypeError at registration.

    - The first parameter is the request: a Payload, or its data as bytes or decoded to the annotated type (a dict, a
      list, a str, a dataclass, a TypedDict, …: see :mod:`afflux.codecs`). For a channel, the items:
      ``AsyncIterator[Order]``.
    - A parameter with the name of a place gets its text, converted if the parameter or the place (``{id:int}``) has a
      type: int, float, bool, UUID, date, datetime, an Enum or a Literal. A text that cannot be converted is Invalid.
    - A parameter of the type ``afflux.Entries`` gets the request's metadata, one of the type ``afflux.Peer`` the peer.
    - Any other parameter needs a default.

    **Results.** A function whose data is decoded, whose annotated result is not a payload, or that has a ``codec``, may
    return or yield any value: bytes and payloads are sent unchanged, None is an answer without an item, and everything
    else is encoded, a list as one value. Results of other functions are not encoded: they are payloads, bytes or text,
    in a stream also lists of them.

    **The codec** is ``codec``, else that of the data type in the request's metadata (``afflux.MimeType``), else that of
    the connection's data type. The answer has the first type that the request accepts (``afflux.Accept``) and that can
    represent it, else the request's type; a response of another type names its type (RSocket R-57).

    Args:
        middleware: middleware around every function, and around requests without a function; see
            :mod:`afflux.middleware`.
        clock: returns monotonic seconds, for ``rate``.
        list_routes: whether clients may list the routes; see ``list_routes()``.
    """

    def __init__(
        self,
        *,
        middleware: Sequence[Middleware] = (),
        clock: Callable[[], float] = monotonic,
        list_routes: bool = False,
    ) -> None:
        self._middleware = _checked(middleware)
        self._clock = clock
        self._tables: dict[str, Patterns[_Entry]] = {}
        self._push: Callable[..., Any] | None = None
        if list_routes:
            self.list_routes()

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

    @overload
    def session(
        self, session_type: SessionType[_Server, Any], route: str | None = None
    ) -> Callable[[_Session[_Server]], _Session[_Server]]: ...

    @overload
    def session(self, session_type: Machine, route: str | None = None) -> Callable[[_Session[Any]], _Session[Any]]: ...

    def session(self, session_type: SessionType[Any, Any] | Machine, route: str | None = None) -> Any:
        """Register an async function ``(chan) -> None`` that serves a channel by a session type.

        ``chan`` is the server's first endpoint, and the function takes all steps up to ``end``. The route is the
        channel's name if None. In ``limit`` the engine checks the steps, in other protocols a monitor does."""
        from afflux.aio.typed import serve_session
        from afflux.sessions.chan import type_of

        found = type_of(session_type)
        path = parsed(found.name if route is None else route)
        if path.places:
            raise ValueError("the route of a session has no places")

        def add(function: _Session[Any]) -> _Session[Any]:
            self._put("channel", path, function, partial(serve_session, found, function), {}, found)
            return function

        return add

    def session_steps(self, channel: str) -> Any:
        """Return the steps of a channel in ``limit``, None without a function for it; the server calls this."""
        from afflux.protocols.limit import Plain
        from afflux.protocols.limit.typed import Typed

        try:
            entry, _ = self._find("channel", None if channel == "plain" else channel)
        except Rejected:
            return None
        return Plain(client=False) if entry.session is None else Typed(entry.session.server)

    def push(self, function: _Function) -> _Function:
        """Register the function ``(metadata) -> None``."""
        check_callable("the argument of push", function, "a function (push has no routes: write @router.push)")
        check_one_answer("push", function)
        if self._push is not None:
            raise ValueError("push already has a function")
        self._push = function
        return function

    def list_routes(self) -> None:
        """Answer requests with the route ``afflux.routes`` with the list of routes, as JSON: for
        ``afflux request --routes``. The router's middleware applies. Calling it again has no effect."""
        if self.pattern("request", LIST_ROUTES) != LIST_ROUTES:

            async def routes(payload: Payload) -> Payload:
                return listing(self.routes)

            self.request(LIST_ROUTES)(routes)

    @property
    def routes(self) -> list[tuple[str, str]]:
        """All (verb, route) pairs, exact routes first; "" is the fallback."""
        exact = [(verb, route or "") for verb, table in self._tables.items() for route in table.exact]
        return exact + [(verb, route) for verb, table in self._tables.items() for route, _, _ in table.places]

    def __repr__(self) -> str:
        routes = self.routes
        shown = [f'{verb} "{route:.40}"' if route else f"{verb} fallback" for verb, route in routes[:_SHOWN]]
        return f"<Router: {', '.join(shown) or 'no routes'}{', …' if len(routes) > _SHOWN else ''}>"

    def find(self, verb: str, route: str | None) -> tuple[Callable[..., Any], dict[str, str]]:
        """Return the function for a request, and the texts of its places.

        Raises:
            Rejected: no function matches.
        """
        entry, places = self._find(verb, route)
        return entry.function, places

    def pattern(self, verb: str, route: str | None) -> str | None:
        """Return the registered route that answers a request; "" for the fallback, None without a match."""
        try:
            return self._find(verb, route)[0].pattern
        except Rejected:
            return None

    def as_handler(self) -> object:
        """Return the handler that the drivers call: an object with the verbs that have functions."""
        push = None if self._push is None else _around("push", "", self._push, self._middleware)
        return _Dispatch(self._tables, push, self._find, self._refusing)

    def _find(self, verb: str, route: str | None) -> tuple[_Entry, dict[str, str]]:
        if (table := self._tables.get(verb)) is not None:
            if route is not None and (found := table.find(route)) is not None:
                return found
            if (entry := table.exact.get(None)) is not None:
                return entry, {}
        raise _no_route(verb, route)

    def _adder(self, verb: str, route: str | None, options: RouteOptions) -> Callable[[_Function], _Function]:
        if route is not None and not isinstance(route, str):
            raise TypeError(f"a route must be text; write @router.{verb}() for the fallback")
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(f'unknown route option "{name}"; known: {", ".join(_OPTIONS)}')
        read = parsed(route or "")

        def add(function: _Function) -> _Function:
            names = sys._getframe(1).f_locals  # resolves annotations in quotes
            self._add(verb, None if route is None else read, function, names, options)
            return function

        return add

    def _add(
        self, verb: str, route: Route | None, function: Any, names: Mapping[str, Any], options: RouteOptions
    ) -> None:
        pattern, places = ("", {}) if route is None else (route.text, route.places)
        self._put(verb, route, function, bound(function, verb, pattern, places, options.get("codec"), names), options)

    def _put(
        self,
        verb: str,
        route: Route | None,
        function: Callable[..., Any],
        run: Callable[..., Any],
        options: RouteOptions,
        session: SessionType[Any, Any] | None = None,
    ) -> None:
        """Add a function to the table of a verb."""
        _check_length(route)
        table, pattern = self._tables.get(verb, Patterns()), "" if route is None else route.text
        if (None if route is None else pattern) in table:
            raise ValueError(f'{verb} "{pattern}" already has a function')
        table.add(route, _Entry(pattern, function, self._layered(verb, pattern, run, options), session))
        self._tables[verb] = table

    def _layered(self, verb: str, pattern: str, run: Callable[..., Any], options: RouteOptions) -> Callable[..., Any]:
        """Return a route's function with its middleware and limits."""
        middleware = [*self._middleware, *_checked(options.get("middleware", ()))]
        if any(name in options for name in _LIMITS):
            limits: Any = {name: options.get(name) for name in _LIMITS}
            middleware.append(RouteLimits(f'route "{pattern}"', clock=self._clock, **limits))
        return _around(verb, pattern, run, middleware)

    def _refusing(self, verb: str, error: Error) -> Callable[..., Any]:
        """Return a function that raises the error of a request without a function, with the middleware around it."""

        def refuse(payload: Any, /) -> NoReturn:
            raise error

        return _around(verb, None, refuse, self._middleware)


def _check_length(route: Route | None) -> None:
    """Check that a client can request a route.

    Raises:
        ValueError: its text, with a character for each place, does not fit into a routing entry (RSocket R-56).
    """
    if route is None:
        return
    size = len((route.text if route.pattern is None else PLACES.sub("x", route.text)).encode())
    if size > _MOST_ROUTE_BYTES:
        shown = f"{route.text[:_SHOWN_CHARACTERS]}…"
        raise ValueError(f'the route "{shown}" has {size} bytes: a routing entry has room for {_MOST_ROUTE_BYTES}')


def _checked(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    if not isinstance(middleware, Iterable):
        raise wrong("middleware=", middleware, "a list of instances of subclasses of afflux.Middleware")
    return checked(middleware) if middleware else ()


def _around(
    verb: str, pattern: str | None, run: Callable[..., Any], middleware: Sequence[Middleware]
) -> Callable[..., Any]:
    if not middleware:
        return run
    layers = layers_of(middleware, verb)
    return answering(verb, run, layers, partial(_about, verb, pattern)) if layers else run


def _about(verb: str, pattern: str | None, payload: Payload) -> dict[str, Any]:
    return {"route": requested_route(verb, payload), "pattern": pattern}


class _Dispatch:
    """The handler of a router, with exactly the verbs that have functions."""

    def __init__(
        self,
        tables: Mapping[str, Patterns[_Entry]],
        push: Callable[..., Any] | None,
        find: Callable[[str, str | None], tuple[_Entry, dict[str, str]]],
        refusing: Callable[[str, Error], Callable[..., Any]],
    ) -> None:
        self._find = find
        self._refusing = refusing
        for verb, table in tables.items():
            setattr(self, verb, self._channel if verb == "channel" else self._caller(verb, table))
        if push is not None:
            self.push = push

    def _caller(self, verb: str, table: Patterns[_Entry]) -> Callable[[Payload], Any]:
        exact, places, refuse = table.exact, table.places, self._refuse

        def call(payload: Payload) -> Any:
            try:
                route = route_of(payload) if payload.metadata else None
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
        """Dispatch a channel by the route of its first item, ``items.first``, which is not consumed."""
        try:
            entry, places = self._find("channel", route_of(items.first))
        except Error as error:
            return self._refuse("channel", error, items)
        return entry.run(items, **places)

    def _refuse(self, verb: str, error: Error, argument: Any) -> Any:
        return self._refusing(verb, error)(argument)


def _no_route(verb: str, route: str | None) -> Rejected:
    return Rejected(f"{verb} needs a route" if route is None else f'no route "{route[:128]}" for {verb}')
