"""Ask a server for its routes, for ``request --routes`` and the completion of ``shell``."""

from __future__ import annotations

import json
from typing import Any

from afflux.calls.listing import LIST_ROUTES, ListedRoute, routes_in
from afflux.cli.output import Printer
from afflux.core.errors import ApplicationError, Error, Invalid, Rejected, Unsupported
from afflux.core.payload import Payload

__all__ = ["ROUTE_COLUMNS", "routes_of", "show_routes"]

ROUTE_COLUMNS = ("verb", "route")
"The columns of a route."

_HOW = "it lists them with afflux serve --list-routes, or afflux.Router(list_routes=True)"


async def routes_of(peer: Any) -> list[ListedRoute]:
    """Return the routes of a server.

    Raises:
        Error: the server does not list its routes, or the protocol has no routes.
    """
    refused = f"{peer.uri} does not list its routes: {_HOW}"
    try:
        return routes_in(await peer.request(b"", route=LIST_ROUTES))
    except ValueError as error:
        if isinstance(error, Error):
            raise
        raise Error(refused) from None
    except Unsupported as error:
        error.add_note("so it has no routes to list")
        raise
    except (Rejected, Invalid, ApplicationError) as error:
        error.add_note(refused)
        raise


async def show_routes(peer: Any, show: Printer) -> None:
    """Print one item for each route. Raises as ``routes_of`` does."""
    for each in await routes_of(peer):
        show.item(Payload(json.dumps({"verb": each.verb, "route": each.route}, ensure_ascii=False).encode()))
