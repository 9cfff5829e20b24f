"""Routes: which function answers which request. No asyncio and no I/O lives here."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from afflux.core.errors import Invalid, Rejected, Violation
from afflux.core.payload import Payload

__all__ = ["Router", "route_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def route_of(payload: Payload) -> str | None:
    """The route in a request's composite metadata; None when there is none.

    Raises:
        Invalid: the metadata is not composite metadata.
    """
    metadata = payload.metadata
    if not metadata:
        return None
    return _route(metadata) if len(metadata) <= 256 else _read_route(metadata)


@lru_cache(maxsize=1024)
def _route(metadata: bytes) -> str | None:
    return _read_route(metadata)


def _read_route(metadata: bytes) -> str | None:
    from afflux.protocols.rsocket import metadata as format

    try:
        return format.route_of(metadata)
    except Violation as violation:
        raise Invalid(f"the metadata can not be read: {violation.reason}", rule=violation.rule) from None


class Router:
    """A handler made of functions, one for each verb and route.

    ::

        router = afflux.Router()

        @router.request("echo")
        async def echo(payload): return payload

        @router.stream("prices.{symbol}")
        async def prices(payload, symbol): yield ...

    A place in braces matches anything without a dot (``{rest}`` at the very end anything at all, dots included, if
    written ``{rest...}``) and is passed by name. An exact route wins over a pattern, and an earlier pattern over a
    later one. A function without a route, ``@router.request()``, answers what no other does. A channel's function
    gets the items; its route is that of the first one. ``push`` has no route.
    """

    def __init__(self) -> None:
        self._exact: dict[str, dict[str | None, Callable[..., Any]]] = {}
        self._patterns: dict[str, list[tuple[str, re.Pattern[str], Callable[..., Any]]]] = {}
        self._push: Callable[..., Any] | None = None

    def request(self, route: str | None = None) -> Callable[[_Function], _Function]:
        """Register a function ``(payload, **places) -> payload``."""
        return self._adder("request", route)

    def fire(self, route: str | None = None) -> Callable[[_Function], _Function]:
        """Register a function ``(payload, **places) -> None``."""
        return self._adder("fire", route)

    def stream(self, route: str | None = None) -> Callable[[_Function], _Function]:
        """Register an async generator ``(payload, **places)``."""
        return self._adder("stream", route)

    def channel(self, route: str | None = None) -> Callable[[_Function], _Function]:
        """Register an async generator ``(items, **places)``."""
        return self._adder("channel", route)

    def push(self, function: _Function) -> _Function:
        """Register the function ``(metadata) -> None``."""
        if self._push is not None:
            raise ValueError("push has a function already")
        self._push = function
        return function

    @property
    def routes(self) -> list[tuple[str, str]]:
        """Every (verb, route) there is, exact ones first; "" is the one without a route."""
        exact = [(verb, route or "") for verb, routes in self._exact.items() for route in routes]
        patterns = [(verb, route) for verb, found in self._patterns.items() for route, _, _ in found]
        return exact + patterns

    def find(self, verb: str, route: str | None) -> tuple[Callable[..., Any], dict[str, str]]:
        """The function for a request, and what its places matched.

        Raises:
            Rejected: there is none.
        """
        exact = self._exact.get(verb, {})
        if route is not None:
            if (function := exact.get(route)) is not None:
                return function, {}
            for _, pattern, function in self._patterns.get(verb, ()):
                if found := pattern.fullmatch(route):
                    return function, found.groupdict()
        if (function := exact.get(None)) is not None:
            return function, {}
        raise Rejected(f'no route "{route[:128]}" for {verb}' if route is not None else f"{verb} needs a route")

    def as_handler(self) -> object:
        """What the drivers call: an object with the verbs that have functions."""
        return _Dispatch(self)

    def _adder(self, verb: str, route: str | None) -> Callable[[_Function], _Function]:
        if route is not None and not isinstance(route, str):
            raise TypeError(f"a route is text; write @router.{verb}() for the function without one")

        def add(function: _Function) -> _Function:
            if route is None or "{" not in route:
                known = self._exact.setdefault(verb, {})
                if route in known:
                    raise ValueError(f'{verb} "{route}" has a function already')
                known[route] = function
            else:
                self._patterns.setdefault(verb, []).append((route, _compile(route), function))
            return function

        return add


def _compile(route: str) -> re.Pattern[str]:
    rest = re.search(r"\{([A-Za-z_][A-Za-z0-9_]*)\.\.\.\}$", route)
    head = route[: rest.start()] if rest else route
    parts = _PLACE.split(head)
    text = "".join(f"(?P<{part}>[^.]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts))
    if "{" in _PLACE.sub("", head) or "}" in _PLACE.sub("", head):
        raise ValueError(f'the braces of "{route}" do not hold a name')
    if rest:
        text += f"(?P<{rest[1]}>.+)"
    try:
        return re.compile(text, re.DOTALL)
    except re.error as error:
        raise ValueError(f'"{route}" is no route: {error}') from None


class _Dispatch:
    """A router as a handler. It has exactly the verbs for which the router has functions."""

    def __init__(self, router: Router) -> None:
        self._router = router
        for verb in {**router._exact, **router._patterns}:
            setattr(self, verb, self._channel if verb == "channel" else self._caller(verb))
        if router._push is not None:
            self.push = router._push

    def _caller(self, verb: str) -> Callable[[Payload], Any]:
        find = self._router.find

        def call(payload: Payload) -> Any:
            function, places = find(verb, route_of(payload))
            return function(payload, **places)

        return call

    def _channel(self, items: Any) -> Any:
        """The route of a channel is that of its first item, which ``items`` shows without taking it."""
        function, places = self._router.find("channel", route_of(items.first))
        return function(items, **places)
