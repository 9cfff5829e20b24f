"""Compile functions over arrays with numba if it is installed; otherwise they run as they are, more slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["COMPILES", "compiled"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:  # an extra: fast
    njit = None

COMPILES = njit is not None
"Whether functions are compiled."


def compiled(function: _Function) -> _Function:
    """Return the compiled function, which has the original as ``py_func``; without numba, the function itself. It is
    compiled at the first call, and kept in a cache beside its file where that can be written."""
    if njit is None:
        return function
    made: _Function = njit(cache=True)(function)
    return made
