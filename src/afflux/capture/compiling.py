"""Compile functions over arrays with numba, if it is installed and the work is worth it.

A function that is marked with ``compiled`` stays as it is, and works as it is. ``build`` returns its compiled form, in
which the marked functions that it calls are compiled too. The types are those of the annotations, so that each function
is compiled once, and is kept in a cache beside its file where that can be written.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "Column", "Columns", "Table", "build", "compiled", "is_built"]

Column: TypeAlias = npt.NDArray[np.int64]
"Numbers."
Table: TypeAlias = npt.NDArray[np.int64]
"Rows of numbers."
Columns: TypeAlias = npt.NDArray[np.int64]
"Rows of numbers, one column after the other in memory."
Bytes: TypeAlias = npt.NDArray[np.uint8]
"Rows of bytes."

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TYPES: Final = {
    "Column": "int64[::1]",
    "Table": "int64[:, ::1]",
    "Columns": "int64[::1, :]",
    "Bytes": "uint8[:, ::1]",
    "int": "int64",
    "bool": "boolean",
    "None": "void",
}
_MARKED: Final[list[FunctionType]] = []
"The marked functions, each after those that it calls."
_MADE: Final[dict[FunctionType, Any]] = {}
"Their compiled forms."
_SCOPES: Final[dict[str, dict[str, Any]]] = {}
"The names that the compiled functions of each module see."


def compiled(function: _Function) -> _Function:
    """Mark a function whose parameters have the types of ``_TYPES``. It may call functions that were marked before."""
    _MARKED.append(cast("FunctionType", function))
    return function


def build(function: _Function) -> _Function:
    """Return the compiled form of a marked function; the function itself if numba is not installed. The first call
    compiles for some seconds, unless the cache has it."""
    plain = cast("FunctionType", function)
    if plain not in _MADE:
        try:
            from numba import njit
        except ImportError:  # an extra: fast
            return function
        for marked in _MARKED:
            if marked not in _MADE:
                _compile(marked, njit)
    return cast("_Function", _MADE[plain])


def is_built(function: Callable[..., Any]) -> bool:
    """Return whether a marked function has been compiled."""
    return function in _MADE


def _compile(plain: FunctionType, njit: Any) -> None:
    """Compile a function whose callees are compiled. It allocates nothing, so it need not count references, which
    would take most of its time."""
    scope = _SCOPES.setdefault(plain.__module__, dict(plain.__globals__))
    scope.update({n: _MADE[v] for n, v in scope.items() if isinstance(v, FunctionType) and v in _MADE})
    copy = FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__)
    copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
    try:
        made = njit(_signature(plain), cache=True, _nrt=False)(copy)
    except RuntimeError:  # no directory for the cache
        made = njit(_signature(plain), _nrt=False)(copy)
    _MADE[plain] = scope[plain.__name__] = made


def _signature(function: FunctionType) -> str:
    types = {name: _TYPES[text] for name, text in function.__annotations__.items()}
    result = types.pop("return")
    return f"{result}({', '.join(types.values())})"
