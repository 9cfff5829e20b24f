"""Find the verbs that a handler implements."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from types import FunctionType, MethodType
from typing import Any, Final

from afflux.calls.arguments import check_one_answer, check_takes_one

__all__ = ["VERBS", "Extension", "verbs_of"]

Extension = Callable[[int, bytes], Any]
"Called with the stream id (0: the connection) and the body of an EXT frame; may be async."

VERBS: Final = ("request", "fire", "stream", "channel", "push", "session")
"The methods that a handler may have."


def verbs_of(handler: object) -> dict[str, Callable[..., Any]]:
    """Return the methods of ``handler`` that implement verbs, by name.

    Raises:
        TypeError: the handler has no such method, or is a class; a method with one answer is a generator, or does not
            take one argument.
    """
    if handler is None:
        return {}
    given = handler
    if (convert := getattr(handler, "as_handler", None)) is not None:
        if isinstance(handler, type):
            raise _is_class(handler)
        handler = convert()
    found = {verb: method for verb in VERBS if callable(method := getattr(handler, verb, None))}
    if not found:
        raise TypeError(f"a handler has at least one of the methods {', '.join(VERBS)}; {_without_verbs(given)}")
    if isinstance(handler, type) and any(isinstance(getattr_static(handler, verb), FunctionType) for verb in found):
        raise _is_class(handler)
    for verb, method in found.items():
        check_one_answer(verb, method)
        check_takes_one(method)
    return found


def _is_class(handler: type) -> TypeError:
    return TypeError(f"a handler is an object, not its class: pass {handler.__name__}(), not {handler.__name__}")


def _without_verbs(handler: object) -> str:
    if hasattr(handler, "as_handler"):
        return f"{handler!r} has no functions yet: add them before it is served"
    if isinstance(handler, FunctionType | MethodType):
        return f"{handler.__qualname__} is a function: add it to an afflux.Router"
    return f"{handler!r} has none"
