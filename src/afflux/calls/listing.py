"""Encode and decode the list of a server's routes, the answer to a request with the route ``afflux.routes``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from afflux.core.payload import Payload

__all__ = ["LIST_ROUTES", "ListedRoute", "listing", "routes_in"]

LIST_ROUTES: Final = "afflux.routes"
"The reserved route. A server answers it only if it was told to."

_ORDER = ("request", "fire", "stream", "channel")


@dataclass(frozen=True, slots=True)
class ListedRoute:
    """One route of a server."""

    verb: str
    "request, fire, stream or channel."
    route: str
    "The route or its pattern, such as ``prices.{symbol}``; empty for the function that answers any other route."


def listing(routes: Iterable[tuple[str, str]]) -> Payload:
    """Return the answer that lists (verb, route) pairs, by verb. The reserved route is left out."""
    ordered = sorted(routes, key=lambda each: _ORDER.index(each[0]) if each[0] in _ORDER else len(_ORDER))
    found = [asdict(ListedRoute(verb, route)) for verb, route in ordered if route != LIST_ROUTES]
    return Payload(json.dumps({"routes": found}, ensure_ascii=False, separators=(",", ":")).encode())


def routes_in(answer: Payload) -> list[ListedRoute]:
    """Return the routes in an answer.

    Raises:
        ValueError: the answer is not a list of routes, as from a server that does not list them.
    """
    found = json.loads(answer.data)
    if not isinstance(found, dict) or found.keys() != {"routes"} or not isinstance(found["routes"], list):
        raise ValueError("the answer is not a list of routes")
    routes = found["routes"]
    for each in routes:
        if not isinstance(each, dict) or not all(isinstance(each.get(name), str) for name in ("verb", "route")):
            raise ValueError("the answer has an entry that is not a route")
    return [ListedRoute(each["verb"], each["route"]) for each in routes]
