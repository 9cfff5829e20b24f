"""Routes: which function answers which request, what it is given, and what its result becomes.

``routes.py`` has the Router, ``patterns.py`` how routes are matched, ``binding.py`` what a function asks for,
``typed.py`` how it gets it.
"""

from __future__ import annotations

from afflux.router.routes import RouteOptions, Router, route_of

__all__ = ["RouteOptions", "Router", "route_of"]
