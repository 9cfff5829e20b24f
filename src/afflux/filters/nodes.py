"""Define the tree of a filter. Each backend gives every node the same meaning: true, false, or unknown.

A test of a missing value is unknown, except ``IsNull``. ``Not``, ``And`` and ``Or`` follow the logic of SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

__all__ = [
    "And",
    "Column",
    "Compare",
    "Has",
    "IsNull",
    "Match",
    "Node",
    "Not",
    "Operator",
    "Or",
    "Type",
    "Within",
    "depth",
]

Operator = Literal["==", "<", "<=", ">", ">="]


class Type(Enum):
    """The type of a column, and the words for it in errors."""

    NUMBER = "a number"
    TEXT = "text"
    TIME = "a time"
    FLAGS = "a list of flags"
    LIST = "a list"
    ERROR = "an error"


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a filter names. ``fields.NAME`` is a field that only some frames have."""

    name: str
    type: Type

    @property
    def field(self) -> str | None:
        """The name of the field in ``fields``; None for another column."""
        return self.name.removeprefix("fields.") if self.name.startswith("fields.") else None


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison with a number, a text (only ``==``), or a time as ``capture.times`` writes it."""

    column: Column
    operator: Operator
    value: int | str


@dataclass(frozen=True, slots=True)
class Within:
    """Whether a number, a text or a time is one of several."""

    column: Column
    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Whether a regular expression (patterns.py) matches a part of a text."""

    column: Column
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is missing. Never unknown."""

    column: Column


@dataclass(frozen=True, slots=True)
class Has:
    """Whether a frame has a flag."""

    column: Column
    letter: str


@dataclass(frozen=True, slots=True)
class Not:
    """The negation."""

    node: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of several."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of several."""

    nodes: tuple[Node, ...]


Node = Compare | Within | Match | IsNull | Has | Not | And | Or


def depth(node: Node) -> int:
    """Return the number of nodes on the longest path."""
    match node:
        case Not(one):
            return 1 + depth(one)
        case And(nodes) | Or(nodes):
            return 1 + max(map(depth, nodes))
        case _:
            return 1
