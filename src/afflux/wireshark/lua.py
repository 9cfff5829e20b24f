"""Write values as Lua."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["lua"]

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RESERVED = frozenset(
    (
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local"),
        *("nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
    )
)
_SHORT = 110


def lua(value: Any, indent: str = "") -> str:
    """Return a value in the syntax of Lua: None, a bool, an int, ASCII text, a sequence or a mapping. The entries of a
    mapping whose value is None are left out.

    Raises:
        TypeError: the value is of another type.
    """
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _text(value)
        case Mapping():
            parts = [f"{_index(key)} = {lua(one, indent + '  ')}" for key, one in value.items() if one is not None]
        case Sequence():
            parts = [lua(one, indent + "  ") for one in value]
        case _:
            raise TypeError(f"no Lua for {value!r}")
    short = "{ " + ", ".join(parts) + " }" if parts else "{}"
    if len(indent) + len(short) <= _SHORT and "\n" not in short:
        return short
    return "{\n" + "".join(f"{indent}  {part},\n" for part in parts) + indent + "}"


def _index(key: str | int) -> str:
    if isinstance(key, str) and _NAME.fullmatch(key) and key not in _RESERVED:
        return key
    return f"[{lua(key)}]"


def _text(value: str) -> str:
    """Return a string; every byte that is not printable ASCII is escaped."""
    octets = "".join(
        chr(octet) if 0x20 <= octet < 0x7F and octet not in b'"\\' else f"\\{octet:03}" for octet in value.encode()
    )
    return f'"{octets}"'
