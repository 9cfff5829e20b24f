"""Dispatch requests to functions by route, with converted arguments and encoded results.

``routes.py`` defines the Router, ``binding.py`` inspects functions, ``typed.py`` converts arguments and results.
"""

from __future__ import annotations

from afflux.router.routes import RouteOptions, Router, route_of

__all__ = ["RouteOptions", "Router", "route_of"]
