"""Let a handler list its routes: ``afflux.serve(list_routes=True)``."""

from __future__ import annotations

import inspect
from typing import Any

from afflux.aio.current import route_of
from afflux.calls.listing import LIST_ROUTES, listing
from afflux.core.errors import Invalid, Rejected
from afflux.core.payload import Payload

__all__ = ["listed"]


def listed(handler: Any) -> Any:
    """Return the handler, which answers requests for its routes.

    A handler lists them itself if it has a method ``list_routes``, as a Router has. Otherwise it has an attribute
    ``routes``: (verb, route) pairs.

    Raises:
        TypeError: the handler has neither.
    """
    if callable(switch := getattr(handler, "list_routes", None)):
        switch()
        return handler
    if getattr(handler, "routes", None) is None:
        raise TypeError(
            "list_routes needs a handler with routes: a Router, or an object with an attribute routes, a list of "
            f"(verb, route) pairs; not {type(handler).__name__}"
        )
    return _Listed(handler)


class _Listed:
    """A handler whose reserved route is answered with ``routes``. Other requests go to the handler."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._inner = getattr(handler, "as_handler", lambda: handler)()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def request(self, payload: Payload) -> Any:
        """Answer the reserved route, or call the handler."""
        try:
            wanted = route_of(payload) == LIST_ROUTES
        except Invalid:
            wanted = False
        if wanted:
            return listing(self._handler.routes)
        if not callable(call := getattr(self._inner, "request", None)):
            raise Rejected("the handler has no request")
        answer = call(payload)
        return await answer if inspect.isawaitable(answer) else answer
