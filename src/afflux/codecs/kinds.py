"""Inspect and name types, and describe values of the wrong type."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any, Literal

from afflux.core.texts import one_of as alternatives

__all__ = ["Mismatch", "bare", "choices", "is_union", "name_of", "not_a", "one_of", "shown"]

_SHOWN = 8
"Members of a choice that a text lists at most."


class Mismatch(ValueError):
    """A value of the wrong type. Its text contains the place, the expected type and the value."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected = expected
        "The expected type."
        self.found = found
        "A short description of the value."
        self.path: list[str] = []
        "The place: keys and indexes, the innermost first."

    def within(self, step: str) -> Mismatch:
        """Add an outer key or index to the place."""
        self.path.append(step)
        return self

    def text(self, root: str) -> str:
        """Return the text, with ``root`` as the name of the whole value."""
        return f"{root}{''.join(reversed(self.path))}: expected {self.expected}, {self.found}"

    def __str__(self) -> str:
        return self.text("the value")


def not_a(expected: str, value: object) -> Mismatch:
    """Return the mismatch of a value."""
    return Mismatch(expected, f"not {shown(value)}")


def shown(value: object) -> str:
    """Describe a value in a few words, with little of its content."""
    match value:
        case dict():
            return "a map"
        case list() | tuple():
            return "a list"
        case str() | bytes():
            return repr(value) if len(value) <= 40 else f"{value[:32]!r}…"
        case bool() | float() | None:
            return repr(value)
        case int():
            return str(value) if value.bit_length() <= 128 else "a very large int"
    return f"a {type(value).__name__}"


def name_of(kind: Any) -> str:
    """Return the name of a type: ``list[int]``, ``Order``, ``str | None``."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is type(None) or kind is ...:
        return "None" if kind is not ... else "..."
    if origin is Literal:
        return alternatives([repr(value) for value in inner])
    if is_union(kind):
        return " | ".join(map(name_of, inner))
    if origin is not None:
        return f"{name_of(origin)}[{', '.join(map(name_of, inner))}]"
    return getattr(kind, "__name__", None) or str(kind)


def bare(kind: Any) -> Any:
    """Return a type without Annotated, NewType, Required and alias names; None stands for the type of None."""
    while True:
        if typing.get_origin(kind) in (typing.Annotated, typing.Required, typing.NotRequired):
            kind = typing.get_args(kind)[0]
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif hasattr(kind, "__value__") and not isinstance(kind, type):
            kind = kind.__value__
        else:
            return type(None) if kind is None else kind


def is_union(kind: Any) -> bool:
    """Whether a type is ``A | B``."""
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def choices(kind: Any) -> list[tuple[Any, Any]] | None:
    """Return the plain values of an Enum or a Literal, each with its member; None for any other type.

    Raises:
        TypeError: the value of a member is not plain, such as a tuple.
    """
    if typing.get_origin(kind) is Literal:
        found = [(value.value if isinstance(value, Enum) else value, value) for value in typing.get_args(kind)]
    elif isinstance(kind, type) and issubclass(kind, Enum):
        found = [(member.value, member) for member in kind]
    else:
        return None
    for value, _ in found:
        if type(value) not in (str, int, float, bool, bytes, type(None)):
            raise TypeError(f"{name_of(kind)} has a member that is {shown(value)}, which has no form as data or text")
    return found


def one_of(kind: Any, members: list[tuple[Any, Any]]) -> str:
    """Describe a choice: ``'buy', 'sell' or 'hold'``, ``Side ('buy' or 'sell')``."""
    words = [shown(value) for value, _ in members[:_SHOWN]]
    known = alternatives(words) if len(members) <= _SHOWN else f"{', '.join(words)}, …"
    return f"{name_of(kind)} ({known})" if isinstance(kind, type) else known
