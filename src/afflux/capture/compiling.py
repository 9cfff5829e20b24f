"""Compile functions over arrays with numba, if it is installed and the work is worth it.

A function that is marked with ``compiled`` stays as it is, and works as it is. ``build`` returns its compiled form, in
which the marked functions that it calls are compiled too. The types are those of the annotations, and the compiled form
is kept in a cache beside its file where that can be written.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from types import FunctionType
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "Column", "Columns", "Table", "build", "compiled", "is_built", "is_loaded"]

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
_CALLED: Final[dict[FunctionType, Any]] = {}
"What compiled functions call in their place. It is compiled with its first caller that is not in the cache."
_MADE: Final[dict[FunctionType, Any]] = {}
"The compiled forms."
_SCOPES: Final[dict[str, dict[str, Any]]] = {}
"The names that the compiled functions of each module see."


def compiled(function: _Function) -> _Function:
    """Mark a function whose parameters have the types of ``_TYPES``. It may call functions that were marked before."""
    _MARKED.append(cast("FunctionType", function))
    return function


def build(function: _Function) -> _Function:
    """Return the compiled form of a marked function; the function itself if numba is not installed. The first call
    compiles for some seconds, unless the cache has it: then only this function is read, which has in it what it
    calls."""
    plain = cast("FunctionType", function)
    if plain not in _MADE:
        try:
            import numba
        except ImportError:  # an extra: fast
            return function
        njit: Any = numba.njit
        marked = _MARKED[: _MARKED.index(plain)]
        for one in marked:
            if one not in _CALLED:
                copy, scope = _copy(one, one.__qualname__)
                _CALLED[one] = scope[one.__name__] = njit(_nrt=False)(copy)
        _MADE[plain] = _compile(plain, njit, _fingerprint([*marked, plain]))
    return cast("_Function", _MADE[plain])


def is_built(function: Callable[..., Any]) -> bool:
    """Return whether a marked function has been compiled."""
    return function in _MADE


def is_loaded() -> bool:
    """Whether a marked function has been compiled: the next one then takes some milliseconds, if the cache has it."""
    return bool(_MADE)


def _compile(plain: FunctionType, njit: Any, fingerprint: str) -> Any:
    """Compile a function. It allocates nothing, so it need not count references, which would take most of its time."""
    copy, _ = _copy(plain, f"{plain.__qualname__}_{fingerprint}")
    try:
        return njit(_signature(plain), cache=True, nogil=True, _nrt=False)(copy)
    except RuntimeError:  # no directory for the cache
        return njit(_signature(plain), nogil=True, _nrt=False)(copy)


def _copy(plain: FunctionType, name: str) -> tuple[FunctionType, dict[str, Any]]:
    """Return a copy of a function that calls the compiled forms of others, and the names that it sees."""
    scope = _SCOPES.setdefault(plain.__module__, dict(plain.__globals__))
    scope.update({n: _CALLED[v] for n, v in scope.items() if isinstance(v, FunctionType) and v in _CALLED})
    copy = FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__)
    copy.__module__, copy.__qualname__ = plain.__module__, name
    return copy, scope


def _fingerprint(functions: list[FunctionType]) -> str:
    """Return a digest of functions and their constants. It is in the name under which the cache keeps a function, which
    has the code of its callees in it: the cache itself sees only changes of the function's own file."""
    found = blake2b(digest_size=6)
    for function in functions:
        code, scope = function.__code__, function.__globals__
        numbers = [scope[name] for name in code.co_names if isinstance(scope.get(name), int)]
        found.update(repr((code.co_code, code.co_consts, numbers)).encode())
    return found.hexdigest()


def _signature(function: FunctionType) -> str:
    types = {name: _TYPES[text] for name, text in function.__annotations__.items()}
    result = types.pop("return")
    return f"{result}({', '.join(types.values())})"
