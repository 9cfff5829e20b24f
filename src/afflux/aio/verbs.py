"""Find the verbs that a handler implements."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from types import FunctionType
from typing import Any, Final

__all__ = ["VERBS", "Extension", "verbs_of"]

Extension = Callable[[int, bytes], Any]
"Called with the stream id (0: the connection) and the body of an EXT frame; may be async."

VERBS: Final = ("request", "fire", "stream", "channel", "push", "session")
"The methods that a handler may have."


def verbs_of(handler: object) -> dict[str, Callable[..., Any]]:
    """Return the methods of ``handler`` that implement verbs, by name.

    Raises:
        TypeError: the handler has no such method, or is a class.
    """
    if handler is None:
        return {}
    handler = getattr(handler, "as_handler", lambda: handler)()
    found = {verb: method for verb in VERBS if callable(method := getattr(handler, verb, None))}
    if not found:
        raise TypeError(f"a handler has at least one of the methods {', '.join(VERBS)}; {handler!r} has none")
    if isinstance(handler, type) and any(isinstance(getattr_static(handler, verb), FunctionType) for verb in found):
        raise TypeError(f"a handler is an object, not its class: pass {handler.__name__}(), not {handler.__name__}")
    return found
