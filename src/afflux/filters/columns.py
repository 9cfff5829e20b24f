"""Know the names that filters use: columns with their types, and the types and flags that the protocols declare."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from afflux.core.fields import Kind
from afflux.filters.nodes import Column, Type
from afflux.protocols.registry import PROTOCOLS, frames_of

__all__ = ["RECORD", "TABLE", "columns", "flags", "words"]

RECORD: Final[Mapping[str, Type]] = {
    "ts": Type.TIME,
    "conn": Type.TEXT,
    "dir": Type.TEXT,
    "protocol": Type.TEXT,
    "stream": Type.NUMBER,
    "type": Type.TEXT,
    "flags": Type.FLAGS,
    "n": Type.NUMBER,
    "metadata_len": Type.NUMBER,
    "data_len": Type.NUMBER,
    "code": Type.NUMBER,
    "offset": Type.NUMBER,
    "length": Type.NUMBER,
    "error": Type.ERROR,
    "error.rule": Type.TEXT,
    "error.reason": Type.TEXT,
    "route": Type.TEXT,
}
"The columns of a frame record and the route, without ``fields``."
TABLE: Final[Mapping[str, Type]] = {"file": Type.TEXT, "packet": Type.NUMBER}
"The columns that the table of frames has in addition."
_TYPES: Final = {"int": Type.NUMBER, "str": Type.TEXT, "bytes": Type.TEXT}


@cache
def columns(table: bool) -> dict[str, Column]:
    """Return the columns by name: those of a record, or of the table of frames."""
    names = {**RECORD, **(TABLE if table else {})}
    found = {name: Column(name, type) for name, type in names.items()}
    for entry in PROTOCOLS.values():
        for frame in frames_of(entry.name):
            for field in frame.FIELDS:
                if field.kind.column is None and field.name not in ("stream", "n", "code"):
                    _add(found, field.name, _type(field.kind))
        for meaning in entry.meanings.frames.values() if entry.meanings else ():
            if meaning.amount:
                _add(found, meaning.amount, Type.NUMBER)  # a dissector may add it to the declared fields
    return found


def _add(found: dict[str, Column], name: str, type: Type) -> None:
    found.setdefault(f"fields.{name}", Column(f"fields.{name}", type))


def _type(kind: Kind) -> Type:
    return _TYPES.get(kind.python, Type.LIST)


@cache
def flags() -> frozenset[str]:
    """Return the letters of all flags."""
    frames = [frame for name in PROTOCOLS for frame in frames_of(name)]
    return frozenset(flag.letter for frame in frames for flag, _ in frame.FLAGS)


@cache
def words(column: str) -> frozenset[str] | None:
    """Return the words that may stand for a text without quotes; None if a column has no such words."""
    if column == "type":
        return frozenset(frame.NAME for name in PROTOCOLS for frame in frames_of(name))
    return frozenset(PROTOCOLS) if column == "protocol" else None
