"""The cases, in the order in which the report shows them."""

from __future__ import annotations

from interop.cases.base import CASES, Case, by_name

__all__ = ["CASES", "Case", "by_name"]

from interop.cases import basic, connection, demand, flow, large, mixed, sessions, sizes  # noqa: F401  # each adds its own
