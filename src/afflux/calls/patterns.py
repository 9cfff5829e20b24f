"""Parse and match routes with places, such as ``prices.{symbol}``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

__all__ = ["PLACES", "PLACE_TYPES", "Patterns", "Route", "parsed"]

PLACE_TYPES: Final[dict[str, type]] = {
    kind.__name__.lower(): kind for kind in (str, int, float, bool, UUID, date, datetime)
}
"The types that a route may declare for a place."

_T = TypeVar("_T")
_NAME = r"([A-Za-z_][A-Za-z0-9_]*)(?::([A-Za-z]+))?"
_PLACE = re.compile(rf"\{{{_NAME}\}}")
PLACES: Final = re.compile(r"\{[^}]*\}")
"The places of a route that has been parsed."
_REST = re.compile(rf"\{{{_NAME}\.\.\.\}}$")


@dataclass(frozen=True, slots=True)
class Route:
    """A parsed route."""

    text: str
    "The route as declared."
    pattern: re.Pattern[str] | None
    "The pattern that matches it; None if it has no places."
    places: dict[str, type | None]
    "The places in order, each with its declared type."


def parsed(route: str) -> Route:
    """Parse a route.

    Raises:
        ValueError: its braces do not enclose a name, two places have one, or the type of a place is unknown.
    """
    if "{" not in route:
        return Route(route, None, {})
    rest = _REST.search(route)
    head = route[: rest.start()] if rest else route
    if "{" in _PLACE.sub("", head) or "}" in _PLACE.sub("", head):
        raise ValueError(f'the braces of "{route}" do not enclose a name')
    text, at, places = "", 0, {}
    for place in _PLACE.finditer(head):
        text += f"{re.escape(head[at : place.start()])}(?P<{place[1]}>[^.]+)"
        at = place.end()
        places[place[1]] = _type(route, place[1], place[2])
    text += re.escape(head[at:])
    if rest:
        text += f"(?P<{rest[1]}>.+)"
        places[rest[1]] = _type(route, rest[1], rest[2])
    names = [place[1] for place in _PLACE.finditer(head)] + ([rest[1]] if rest else [])
    if doubled := [name for name in places if names.count(name) > 1]:
        raise ValueError(f'the route "{route}" has the place "{doubled[0]}" twice: give each place its own name')
    return Route(route, re.compile(text, re.DOTALL), places)


def _type(route: str, place: str, name: str | None) -> type | None:
    if name is not None and name not in PLACE_TYPES:
        known = ", ".join(PLACE_TYPES)
        raise ValueError(f'the place "{place}" of "{route}" has the unknown type "{name}"; known: {known}')
    return None if name is None else PLACE_TYPES[name]


@dataclass(slots=True)
class Patterns(Generic[_T]):
    """Routes with a value for each. Exact routes precede patterns, and earlier patterns precede later ones."""

    exact: dict[str | None, _T] = field(default_factory=dict)
    "The values of routes without places; None is the fallback."
    places: list[tuple[str, re.Pattern[str], _T]] = field(default_factory=list)
    "The values of routes with places, in order."

    def add(self, route: Route | None, value: _T) -> None:
        """Add a route; None is the fallback."""
        if route is None or route.pattern is None:
            self.exact[None if route is None else route.text] = value
        else:
            self.places.append((route.text, route.pattern, value))

    def find(self, route: str) -> tuple[_T, dict[str, Any]] | None:
        """Return the value of a route and the texts of its places; None without a match. The fallback is not used."""
        if (value := self.exact.get(route)) is not None:
            return value, {}
        for _, pattern, value in self.places:
            if found := pattern.fullmatch(route):
                return value, found.groupdict()
        return None

    def __contains__(self, route: str | None) -> bool:
        return route in self.exact or any(route == known for known, _, _ in self.places)
