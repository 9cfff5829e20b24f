"""Define the tree of a session-type file: channels, their steps, and the types of values. Rule numbers are
Limit-Stream's.

The classes are values: frozen and comparable. A place in the text takes no part in comparisons. ``parsing`` creates
trees, ``formatting`` writes them, ``checking`` checks them and ``compiling`` converts a checked tree to machines.
"""

# ruff: noqa: RUF009 -- _place() returns a new field, as dataclasses require
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "Annotation",
    "Basic",
    "Branch",
    "Chain",
    "Channel",
    "Choose",
    "Comment",
    "Constant",
    "Definition",
    "End",
    "Enum",
    "Field",
    "File",
    "Name",
    "Note",
    "Offer",
    "Place",
    "Recv",
    "Send",
    "Step",
    "Struct",
    "ValueType",
    "Variant",
    "chains_of",
]


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the text."""

    line: int
    "The line, from 1."
    column: int
    "The character in the line, from 1."

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


def _place() -> Place | None:
    return field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Comment:
    """A line ``// text``, or ``/// text`` for documentation."""

    text: str
    doc: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation, ``#[name]`` or ``#[name = constant]``. It has no effect."""

    name: str
    value: Constant | None = None


Note = Comment | Annotation


# Types of values


class Basic(StrEnum):
    """The basic types."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Constant:
    """A type with one value."""

    basic: Basic
    "The type of the value: bool, int (signed), uint (unsigned), float or string."
    value: bool | int | float | str
    spelled: str | None = field(default=None, compare=False, repr=False)
    "The literal as written, if it was parsed."
    place: Place | None = _place()


@dataclass(frozen=True, slots=True)
class Name:
    """A reference to a definition: to a struct or an enum as a type, to a channel as a branch."""

    name: str
    place: Place | None = _place()


ValueType = Basic | Constant | Name


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct."""

    name: str
    type: ValueType
    number: int | None = None
    "The number after ``=``. It does not affect the wire (R-33)."
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of an enum."""

    name: str
    type: ValueType
    number: int | None = None
    "The number after ``=``. It does not affect the wire (R-33)."
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()


# Steps of channels


@dataclass(frozen=True, slots=True)
class Recv:
    """Receive a value."""

    type: ValueType
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()


@dataclass(frozen=True, slots=True)
class Send:
    """Send a value."""

    type: ValueType
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()


@dataclass(frozen=True, slots=True)
class Offer:
    """Continue with the branch that the peer chooses."""

    branches: tuple[Branch, ...]
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()
    depth: int = field(init=False, compare=False, repr=False)
    "How many offers and choices are nested here, this one included."

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth_of(self.branches))


@dataclass(frozen=True, slots=True)
class Choose:
    """Choose the branch to continue with."""

    branches: tuple[Branch, ...]
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()
    depth: int = field(init=False, compare=False, repr=False)
    "How many offers and choices are nested here, this one included."

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth_of(self.branches))


@dataclass(frozen=True, slots=True)
class End:
    """The end of the session."""

    notes: tuple[Note, ...] = ()
    place: Place | None = _place()


Step = Recv | Send | Offer | Choose | End


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps in order. The last one is an end, an offer or a choice (R-35)."""

    steps: tuple[Step, ...]


Branch = Chain | Name


def _depth_of(branches: tuple[Branch, ...]) -> int:
    """Return the depth of an offer or a choice from that of its branches, without descending into them."""
    inner = (
        step.depth
        for branch in branches
        if isinstance(branch, Chain)
        for step in branch.steps
        if isinstance(step, Offer | Choose)
    )
    return 1 + max(inner, default=0)


# Definitions


@dataclass(frozen=True, slots=True)
class Channel:
    """A named chain: the server's steps."""

    name: str
    chain: Chain
    notes: tuple[Note, ...] = ()
    place: Place | None = _place()


@dataclass(frozen=True, slots=True)
class Struct:
    """A named sequence of fields."""

    name: str
    fields: tuple[Field, ...] = ()
    notes: tuple[Note, ...] = ()
    last_notes: tuple[Note, ...] = ()
    "Notes between the last field and the closing brace."
    place: Place | None = _place()


@dataclass(frozen=True, slots=True)
class Enum:
    """A named choice between variants."""

    name: str
    variants: tuple[Variant, ...] = ()
    notes: tuple[Note, ...] = ()
    last_notes: tuple[Note, ...] = ()
    "Notes between the last variant and the closing brace."
    place: Place | None = _place()


Definition = Channel | Struct | Enum


@dataclass(frozen=True, slots=True)
class File:
    """The definitions of a file, in order."""

    definitions: tuple[Definition, ...] = ()
    last_notes: tuple[Note, ...] = ()
    "Notes after the last definition."

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels."""
        return tuple(each for each in self.definitions if isinstance(each, Channel))


def chains_of(chain: Chain) -> Iterator[Chain]:
    """Yield a chain and the chains in its branches, outer ones first."""
    waiting = [chain]
    while waiting:
        chain = waiting.pop()
        yield chain
        for step in chain.steps:
            if isinstance(step, Offer | Choose):
                waiting += [branch for branch in reversed(step.branches) if isinstance(branch, Chain)]
