"""Convert values to text and back: the places of a route and text/plain."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from math import isinf
from typing import Any, Final
from uuid import UUID

from afflux.codecs.kinds import bare, choices, is_union, name_of, not_a, one_of, shown

__all__ = ["FROM_TEXT", "text_of", "text_reader"]


@lru_cache(maxsize=1024)
def text_reader(kind: Any) -> Callable[[str], Any]:
    """Return a function that converts text to a ``kind`` or raises Mismatch. ``X | None`` is read as X.

    Raises:
        TypeError: the type has no text form.
    """
    kind = bare(kind)
    if is_union(kind):
        others = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(others) == 1:
            return text_reader(others[0])
    if kind in FROM_TEXT:
        return FROM_TEXT[kind]
    if (members := choices(kind)) is not None:
        named = {text_of(value): made for value, made in members}
        if len(named) == len(members):
            return _choice(one_of(kind, members), named)
        raise TypeError(f"{name_of(kind)} has two members with the same text")
    supported = ", ".join(map(name_of, FROM_TEXT))
    raise TypeError(f"{name_of(kind)} has no text form; supported: {supported}, an Enum and a Literal")


def text_of(value: Any) -> str:
    """Convert a value to text that ``text_reader`` reads back.

    Raises:
        TypeError: the type has no text form.
    """
    match value:
        case Enum():
            return text_of(value.value)
        case str():
            return str.__str__(value)
        case bool():
            return "true" if value else "false"
        case int() | float() | UUID():
            return str(value)
        case date():
            return value.isoformat()
    raise TypeError(f"{shown(value)} has no text form")


def _choice(expected: str, named: dict[str, Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text in named:
            return named[text]
        raise not_a(expected, text)

    return read


def _int(text: str) -> int:
    if re.fullmatch("-?[0-9]{1,4000}", text):
        return int(text)
    raise not_a("int", text)


def _float(text: str) -> float:
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) and not isinf(value := float(text)):
        return value
    raise not_a("float", text)


def _bool(text: str) -> bool:
    if text in ("true", "false"):
        return text == "true"
    raise not_a("bool (true or false)", text)


def _uuid(text: str) -> UUID:
    if re.fullmatch("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        return UUID(text)
    raise not_a("UUID", text)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise not_a("date (ISO 8601)", text) from None


def _datetime(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise not_a("datetime (ISO 8601)", text) from None


FROM_TEXT: Final[dict[Any, Callable[[str], Any]]] = {
    str: str,
    int: _int,
    float: _float,
    bool: _bool,
    UUID: _uuid,
    date: _date,
    datetime: _datetime,
}
"The types with a text form, in addition to Enum and Literal."
