"""Check the arguments of ``connect`` and ``serve``, so that one of a wrong type is an error at once, not at its first
use. Values are checked where they are used.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Mapping
from inspect import isasyncgenfunction, isawaitable, isgeneratorfunction, signature
from typing import TYPE_CHECKING, Any, Final, NoReturn

from afflux.core.limits import Limits
from afflux.retry.backoff import Backoff

__all__ = [
    *("AsyncOnly", "SyncOnly", "awaits", "blocks", "check_arguments", "check_callable", "check_one_answer"),
    *("check_takes_one", "check_type", "text_of_route", "wrong"),
]

_SECONDS: Final = ("timeout", "keepalive", "lifetime", "lease_wait")
_BACKOFF: Final = (bool, Backoff), "True, False or an afflux.Backoff"
_SWITCH: Final = bool, "True or False"
_RIGHT: Final[dict[str, tuple[Any, str]]] = {
    "limits": (Limits, "an afflux.Limits, such as afflux.Limits.server(payload_bytes=16 << 20)"),
    "resume": _BACKOFF,
    "reconnect": _BACKOFF,
    "metadata_mime": (str, "text, such as 'application/json'"),
    "data_mime": (str, "text, such as 'application/json'"),
    "mtu": (int, "a whole number of bytes"),
    "extensions": (Mapping, "a mapping of extended types or names to functions"),
    "store": ((str, os.PathLike), "the path of a file"),
    "reuse_port": _SWITCH,
    "list_routes": _SWITCH,
}
_LONGEST: Final = 60


def check_arguments(given: Mapping[str, object]) -> None:
    """Check the types of the arguments of ``connect`` or ``serve``, by name; None is always allowed. Names that are not
    known here are skipped.

    Raises:
        TypeError: the text names the argument, and what is right.
        ValueError: a time is below 0.
    """
    for name, value in given.items():
        if value is None:
            continue
        if name in _SECONDS:
            check_type(f"{name}=", value, (int, float), "a number of seconds")
            if not value >= 0:  # type: ignore[operator]
                raise ValueError(f"{name}= is a number of seconds, 0 or more, not {value!r}")
        elif name == "on_setup":
            check_callable(f"{name}=", value, "a function of the setup and the peer")
        elif name == "lease":
            if not isinstance(value, bool) and not callable(getattr(value, "start", None)):
                raise wrong("lease=", value, "a policy such as afflux.FixedLease(100, ttl=1), or at a client True")
        elif name in _RIGHT:
            check_type(f"{name}=", value, *_RIGHT[name])


def check_type(name: str, value: object, kinds: type | tuple[type, ...], right: str) -> None:
    """Check that an argument is of one of ``kinds``; a bool is not a number.

    Raises:
        TypeError: it is not.
    """
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise wrong(name, value, right)


def check_callable(name: str, value: object, right: str) -> None:
    """Check that an argument can be called.

    Raises:
        TypeError: it cannot.
    """
    if not callable(value):
        raise wrong(name, value, right)


def wrong(name: str, value: object, right: str) -> TypeError:
    """Return the error for an argument of a wrong type."""
    shown = repr(value)
    return TypeError(f"{name} is {right}, not {shown if len(shown) <= _LONGEST else type(value).__name__}")


def check_one_answer(verb: str, function: Callable[..., Any]) -> None:
    """Check that the function of a verb with one answer, or none, is not a generator, which would never run.

    Raises:
        TypeError: it is one.
    """
    if verb in ("request", "fire", "push") and (isasyncgenfunction(function) or isgeneratorfunction(function)):
        name = getattr(function, "__qualname__", repr(function))
        answer = "has one answer, so return it" if verb == "request" else "has no answer, so yield nothing"
        raise TypeError(f"{name} yields, but {verb} {answer}; several items are a stream or a channel")


def check_takes_one(function: Callable[..., Any]) -> None:
    """Check that a method for calls takes one argument. A function whose parameters are unknown passes.

    Raises:
        TypeError: it takes none, or needs more.
    """
    try:
        parameters = signature(function)
    except (TypeError, ValueError):
        return
    try:
        parameters.bind(None)
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        message = f"{name}{parameters} is called with one argument: the payload, or the items of a channel"
        raise TypeError(message) from None


def text_of_route(route: object) -> str:
    """Return a route that is text.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(route, str):
        return route
    raise TypeError(f"route= is text, such as 'prices.eu', not {route!r}")


class AsyncOnly:
    """An object that ``with`` refuses with the right words, because it needs ``async with``."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        raise TypeError(f'{type(self).__name__} is asynchronous: write "async with", in an async function')

    def __exit__(self, *_: object) -> None: ...


class SyncOnly:
    """An object of ``afflux.sync`` that ``async with`` refuses with the right words, because it blocks."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker finds the missing methods itself

        def __aenter__(self) -> NoReturn:
            raise blocks(self, 'write "with"')

        def __aexit__(self, *_: object) -> None: ...


def blocks(one: object, right: str) -> TypeError:
    """Return the error for an object of ``afflux.sync`` that is used as an asynchronous one. ``right``: what to do."""
    name = type(one).__name__
    return TypeError(f"{name} of afflux.sync blocks: {right}, or connect with afflux.connect in an async function")


def awaits(value: object) -> bool:
    """Whether a handler's result is to be awaited: a coroutine is, the items of a stream or channel are not."""
    return isawaitable(value) and not isinstance(value, AsyncIterable)
