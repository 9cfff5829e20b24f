"""Compile functions over arrays with numba, if it is installed and the work is worth it.

A function that is marked with ``compiled`` stays as it is, and works as it is. ``build`` returns its compiled form, in
which the marked functions that it calls are compiled too. The types are those of the annotations, so that each function
is compiled once, and is kept in a cache beside its file where that can be written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "Column", "Table", "build", "compiled"]

Column: TypeAlias = npt.NDArray[np.int64]
"Numbers."
Table: TypeAlias = npt.NDArray[np.int64]
"Rows of numbers."
Bytes: TypeAlias = npt.NDArray[np.uint8]
"Rows of bytes."

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TYPES: Final = {
    "Column": "int64[::1]",
    "Table": "int64[:, ::1]",
    "Bytes": "uint8[:, ::1]",
    "int": "int64",
    "bool": "boolean",
    "None": "void",
}
_MARKED: Final[list[FunctionType]] = []
"The marked functions, each after those that it calls."


def compiled(function: _Function) -> _Function:
    """Mark a function whose parameters have the types of ``_TYPES``. It may call functions that were marked before."""
    _MARKED.append(cast("FunctionType", function))
    return function


@cache
def build(function: _Function) -> _Function:
    """Return the compiled form of a marked function; the function itself if numba is not installed. The first call
    compiles for some seconds, unless the cache has it."""
    try:
        from numba import njit
    except ImportError:  # an extra: fast
        return function
    names: dict[str, dict[str, Any]] = {}
    made: dict[FunctionType, Any] = {}
    for plain in _MARKED:
        scope = names.setdefault(plain.__module__, dict(plain.__globals__))
        scope.update({n: made[v] for n, v in scope.items() if isinstance(v, FunctionType) and v in made})
        copy = FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__)
        copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
        made[plain] = scope[plain.__name__] = njit(_signature(plain), cache=True, _nrt=False)(copy)
    return cast("_Function", made[cast("FunctionType", function)])


def _signature(function: FunctionType) -> str:
    types = {name: _TYPES[text] for name, text in function.__annotations__.items()}
    result = types.pop("return")
    return f"{result}({', '.join(types.values())})"
