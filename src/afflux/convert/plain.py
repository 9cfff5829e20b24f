"""Typed values to plain ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from afflux.convert.kinds import DEPTH
from afflux.convert.text import text_of

__all__ = ["plain"]

_PLAIN: Final = frozenset((type(None), bool, int, float, str, bytes))


def plain(value: Any, depth: int = 0) -> Any:
    """The plain form of a value: dataclasses become maps, tuples and sets lists, keys text.

    Raises:
        TypeError: a type that has none; its name is in the text.
        ValueError: nested deeper than ``DEPTH``.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth >= DEPTH:
        raise ValueError(f"values that nest deeper than {DEPTH}")
    depth += 1
    if kind is list or kind is tuple:
        return [one if type(one) in _PLAIN else plain(one, depth) for one in value]
    if kind is dict:
        return {
            (key if type(key) is str else text_of(key)): (one if type(one) in _PLAIN else plain(one, depth))
            for key, one in value.items()
        }
    if is_dataclass(kind):
        return {name: plain(getattr(value, name), depth) for name in _fields(kind)}
    return _of_another(value, depth)


def _of_another(value: Any, depth: int) -> Any:
    match value:
        case Enum():
            return plain(value.value, depth)
        case str() | UUID() | date():
            return text_of(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case Mapping():
            return plain(dict(value), depth - 1)
        case list() | tuple() | set() | frozenset():
            return plain(list(value), depth - 1)
    raise TypeError(f"a {type(value).__name__} can not be sent as data")


@lru_cache(maxsize=1024)
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
