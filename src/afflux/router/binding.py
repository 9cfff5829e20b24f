"""Inspect the parameters and results of a function when it is registered. ``typed.py`` calls it."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from afflux.calls.arguments import check_one_answer
from afflux.codecs.kinds import bare, is_union, name_of
from afflux.codecs.text import text_reader
from afflux.core.payload import Payload

__all__ = ["Plan", "bound"]

_EMPTY: Final = inspect.Parameter.empty
_ANY: Final = (_EMPTY, Any, object)
_PAYLOADS: Final = (*_ANY, Payload, bytes, bytearray, memoryview, str, type(None))
"Result types that are not encoded."
_MANY: Final = (AsyncIterator, AsyncIterable, AsyncGenerator, Iterator, Iterable, Generator, Sequence, list, tuple)
_WAITED: Final = (Awaitable, Coroutine)


@dataclass(slots=True)
class Plan:
    """The parameters and results of a function."""

    data: Any = Payload
    "The type of the first parameter: Payload, bytes, or a type to decode; of a channel, of each item."
    optional: bool = False
    "Whether the first parameter is None without data."
    places: dict[str, Callable[[str], Any]] = field(default_factory=dict)
    "Converters of places with a type."
    entries: list[str] = field(default_factory=list)
    "Parameters that get the metadata."
    peers: list[str] = field(default_factory=list)
    "Parameters that get the peer."
    codes: bool = False
    "Whether results are encoded."
    results: tuple[Any, ...] = ()
    "The annotated types of the results."

    @property
    def decodes(self) -> bool:
        """Whether data is decoded."""
        return self.data not in (Payload, bytes)


_STRUCTURED = "application/json"
"The format that checks types for all structured formats."


def bound(
    function: Callable[..., Any],
    verb: str,
    route: str,
    places: Mapping[str, type | None],
    codec: str | None,
    names: Mapping[str, Any],
) -> Callable[..., Any]:
    """Return a function of the payload (or the items) and the places as text, by name: ``function`` itself if it needs
    no conversion.

    Raises:
        TypeError: a parameter has no source, or a place has no parameter.
        Unsupported: the codec is unknown; MissingExtra: it is not installed.
    """
    from afflux import codecs

    fixed = None if codec is None else codecs.find(codec)
    try:
        check_one_answer(verb, function)
        plan = _plan(function, verb, places, names)
        if plan.decodes:
            (codecs.find(_STRUCTURED) if fixed is None else fixed).check(plan.data)
    except TypeError as error:
        called = getattr(getattr(function, "func", function), "__qualname__", type(function).__qualname__)
        raise TypeError(f'{verb} "{route}", {called}: {error}') from None
    plan.codes = verb != "fire" and (plan.codes or plan.decodes or fixed is not None)
    plan.results = plan.results if plan.codes else ()
    if plan == Plan():
        return function
    from afflux.router.typed import Typed

    return Typed(function, plan, f'route "{route}"', fixed).verb(verb)


def _plan(function: Any, verb: str, places: Mapping[str, type | None], names: Mapping[str, Any]) -> Plan:
    plan = Plan(places={name: text_reader(kind) for name, kind in places.items() if kind not in (None, str)})
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions in C have no signature: pass everything
        return plan
    hints = _Hints(function, names)
    parameters = list(signature.parameters.values())
    first, others = _first(parameters, places), parameters[1:]
    if first.kind is not first.VAR_POSITIONAL:
        kind = hints.parameter(first)
        plan.data = _item_type(kind, first.name) if verb == "channel" else _data_type(kind)
        plan.optional = is_union(plan.data) and type(None) in typing.get_args(plan.data)
    for parameter in others:
        _add(plan, parameter, hints, places)
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in others)
    taken = {parameter.name for parameter in others}
    if not takes_all and (missing := [name for name in places if name not in taken]):
        raise TypeError(f'the route has the place "{missing[0]}", but there is no parameter {missing[0]}')
    answer = hints.result(signature.return_annotation)
    plan.results = _results(answer, many=verb in ("stream", "channel"))
    plan.codes = not set(plan.results) <= set(_PAYLOADS)
    return plan


def _first(parameters: list[inspect.Parameter], places: Mapping[str, Any]) -> inspect.Parameter:
    """Return the parameter for the payload or the items."""
    if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise TypeError("it has no parameter; the first parameter is the payload, or the items of a channel")
    first = parameters[0]
    if first.name in places and first.kind is not first.VAR_POSITIONAL:
        raise TypeError(f"the first parameter is the payload, but {first.name} is a place: put a parameter before it")
    return first


def _add(plan: Plan, parameter: inspect.Parameter, hints: _Hints, places: Mapping[str, type | None]) -> None:
    """Add a parameter to the plan."""
    from afflux.aio.peer import Peer
    from afflux.protocols.rsocket.metadata import Entries

    name = parameter.name
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return
    if name not in places and parameter.default is not _EMPTY and not hints.known(parameter):
        return
    kind = hints.parameter(parameter)
    if (name in places or kind in (Entries, Peer)) and parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{name} is passed by name, so it cannot be positional-only")
    if name in places:
        _add_place(plan, name, kind, places[name])
    elif kind is Entries:
        plan.entries.append(name)
    elif kind is Peer:
        plan.peers.append(name)
    elif parameter.default is _EMPTY:
        known = ", ".join(places) or "none"
        raise TypeError(
            f"the parameter {name} has no source; places of the route: {known}; "
            "further types: afflux.Entries and afflux.Peer"
        )


def _add_place(plan: Plan, name: str, kind: Any, declared: type | None) -> None:
    if kind in _ANY:
        return
    read = text_reader(kind)
    if declared not in (None, str) and read is not text_reader(declared):
        raise TypeError(f"the place {name} is {name_of(declared)} in the route and {name_of(kind)} in the function")
    if read is not str:
        plan.places[name] = read


def _data_type(kind: Any) -> Any:
    """Return the type of the first parameter: Payload, bytes, or a type to decode."""
    parts = typing.get_args(kind) if is_union(kind) else (kind,)
    if kind in _ANY or Payload in parts:
        return Payload
    return kind


def _item_type(kind: Any, name: str) -> Any:
    """Return the type of a channel's items."""
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if kind in _ANY or (isinstance(origin, type) and issubclass(origin, AsyncIterable) and not inner):
        return Payload
    if origin in (AsyncIterator, AsyncIterable, AsyncGenerator):
        return _data_type(inner[0])
    raise TypeError(f"{name} gets the items of a channel: expected AsyncIterator[…], not {name_of(kind)}")


def _results(kind: Any, *, many: bool) -> tuple[Any, ...]:
    """Return the annotated types that a function returns or yields, without payloads and None."""
    kind = bare(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in _WAITED and inner:
        return _results(inner[-1], many=many)
    if many:
        if origin not in _MANY or not inner:
            return ()
        kind = bare(inner[0])
        if typing.get_origin(kind) is list and _are_payloads(typing.get_args(kind)[0]):
            return ()  # several payloads at once
    parts = typing.get_args(kind) if is_union(kind) else (kind,)
    return tuple(part for part in parts if part not in (*_ANY, Payload, type(None)))


def _are_payloads(kind: Any) -> bool:
    return all(part in _PAYLOADS for part in (typing.get_args(kind) if is_union(kind) else (kind,)))


class _Hints:
    """The resolved annotations of a function."""

    def __init__(self, function: Any, names: Mapping[str, Any]) -> None:
        function = inspect.unwrap(function)
        while isinstance(function, functools.partial):
            function = function.func
        if not inspect.isroutine(function):  # a callable object
            function = type(function).__call__
        home = getattr(getattr(function, "__func__", function), "__globals__", {})
        self._names = {**_known(), **home, **names}

    def known(self, parameter: inspect.Parameter) -> bool:
        """Whether the annotation can be resolved."""
        try:
            self._resolved(parameter.annotation)
        except Exception:
            return False
        return True

    def parameter(self, parameter: inspect.Parameter) -> Any:
        """Return the type of a parameter, ``_EMPTY`` for none.

        Raises:
            TypeError: the annotation cannot be resolved.
        """
        try:
            return self._resolved(parameter.annotation)
        except Exception as error:
            raise TypeError(
                f"the type of {parameter.name} is unknown when the function is registered: {error}; "
                "import it outside of TYPE_CHECKING and define it before the function"
            ) from None

    def result(self, annotation: Any) -> Any:
        """Return the type of the result; ``_EMPTY`` if it is unknown, so that results are not encoded."""
        try:
            return self._resolved(annotation)
        except Exception:
            return _EMPTY

    def _resolved(self, annotation: Any) -> Any:
        if annotation is _EMPTY:
            return _EMPTY
        holder = SimpleNamespace(__annotations__={"it": annotation})
        return bare(typing.get_type_hints(holder, self._names)["it"])


def _known() -> dict[str, Any]:
    """Return names that are often imported only for type checkers."""
    from collections import abc

    afflux = sys.modules["afflux"]
    common = ("AsyncIterator", "AsyncIterable", "AsyncGenerator", "Iterator", "Iterable", "Generator", "Awaitable")
    return {
        **{name: getattr(abc, name) for name in (*common, "Sequence", "Mapping")},
        **{name: getattr(afflux, name) for name in ("Payload", "Entries", "Peer", "ItemStream")},
        "Any": Any,
        "afflux": afflux,
    }
