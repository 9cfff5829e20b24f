"""Hypothesis strategies of session types and of their values. Contains no tests."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from afflux.sessions.types import (
    Annotation,
    Basic,
    Branch,
    Chain,
    Channel,
    Choose,
    Comment,
    Constant,
    Definition,
    End,
    Enum,
    Field,
    File,
    Name,
    Note,
    Offer,
    Recv,
    Send,
    Step,
    Struct,
    ValueType,
    Variant,
)

__all__ = ["SUM", "files", "values_of"]

SUM = "struct Done {}\nchannel sum = recv int -> offer | sum | recv Done -> send int -> end\n"
"The example of the specification."

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
LINES = st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=8).map(str.rstrip)
NUMBERS = {Basic.INT: st.integers(-(1 << 63), (1 << 63) - 1), Basic.UINT: st.integers(0, (1 << 64) - 1)}
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)

CONSTANTS = st.one_of(
    st.builds(Constant, st.just(Basic.STRING), TEXTS),
    st.builds(Constant, st.just(Basic.BOOL), st.booleans()),
    st.builds(Constant, st.just(Basic.INT), NUMBERS[Basic.INT]),
    st.builds(Constant, st.just(Basic.UINT), NUMBERS[Basic.UINT]),
    st.builds(Constant, st.just(Basic.FLOAT), FLOATS),
)
COMMENTS = st.builds(Comment, LINES, st.booleans()).filter(lambda note: note.doc or not note.text.startswith("/"))
NOTES = st.one_of(COMMENTS, st.builds(Annotation, st.just("tag"), st.none() | CONSTANTS))


def files() -> st.SearchStrategy[File]:
    """Files that break no rule. Hypothesis draws constants and notes; a seed decides the structure, which is faster."""
    some_constants = st.lists(CONSTANTS, min_size=1, max_size=3)
    return st.builds(_made, st.integers(0, 1 << 32), some_constants, st.lists(NOTES, max_size=3))


def _made(seed: int, constants: list[Constant], notes: list[Note]) -> File:
    return _Builder(Random(seed), constants, notes).file()


class _Builder:
    def __init__(self, random: Random, constants: list[Constant], notes: list[Note]) -> None:
        self.random = random
        self.constants = constants
        self.some_notes = notes
        self.structs = [f"Struct{number}" for number in range(random.randint(0, 3))]
        self.enums = [f"Enum{number}" for number in range(random.randint(0, 2))]
        self.channels = [f"channel_{number}" for number in range(random.randint(1, 3))]

    def file(self) -> File:
        made: list[Definition] = [Channel(name, self.chain(2), self.notes()) for name in self.channels]
        for number, name in enumerate(self.structs):
            inner = [self.member([*self.structs[:number], *self.enums]) for _ in range(self.random.randint(0, 3))]
            fields = tuple(Field(f"field{at}", *rest) for at, rest in enumerate(inner))
            made.append(Struct(name, fields, self.notes(), self.notes()))
        for name in self.enums:
            inner = [self.member(self.structs + self.enums) for _ in range(self.random.randint(0, 2))]
            variants = [Variant(f"variant{at}", *rest) for at, rest in enumerate([self.member([]), *inner])]
            made.append(Enum(name, tuple(variants), self.notes(), self.notes()))
        self.random.shuffle(made)
        return File(tuple(made), self.notes())

    def notes(self) -> tuple[Note, ...]:
        return tuple(self.some_notes[: self.random.choice((0, 0, 0, 1, 3))])

    def member(self, names: list[str]) -> tuple[ValueType, int | None, tuple[Note, ...]]:
        return self.kind(names), self.random.choice((None, None, 0, 7)), self.notes()

    def kind(self, names: list[str]) -> ValueType:
        some: list[ValueType] = [*Basic, *self.constants, *map(Name, names), *map(Name, names)]
        return self.random.choice(some)

    def steps(self) -> list[Step]:
        names = self.structs + self.enums
        kinds = self.random.choices((Recv, Send), k=self.random.randint(0, 3))
        return [kind(self.kind(names), self.notes()) for kind in kinds]

    def chain(self, depth: int) -> Chain:
        """A chain that reaches the end by its last branches; only these branch further, because they take all bars."""
        steps = self.steps()
        if depth == 0 or self.random.random() < 0.3:
            return Chain((*steps, End(self.notes())))
        branches = [self.branch() for _ in range(self.random.randint(1, 3))]
        kind = self.random.choice((Offer, Choose))
        return Chain((*steps, kind((*branches, self.chain(depth - 1)), self.notes())))

    def branch(self) -> Branch:
        if self.random.random() < 0.5:
            return Name(self.random.choice(self.channels))
        return Chain((*self.steps(), End(self.notes())))


def values_of(kind: ValueType, types: dict[str, Struct | Enum], depth: int = 4) -> st.SearchStrategy[Any]:
    """Values of a type, as Python values."""
    if isinstance(kind, Constant):
        return st.just(kind.value)
    if isinstance(kind, Name):
        definition = types[kind.name]
        if isinstance(definition, Struct):
            return st.tuples(*(values_of(field.type, types, depth - 1) for field in definition.fields))
        some = definition.variants[:1] if depth <= 0 else definition.variants
        return st.one_of(
            *(st.tuples(st.just(each.name), st.deferred(_later(each.type, types, depth - 1))) for each in some)
        )
    if kind in NUMBERS:
        return NUMBERS[kind]
    basics = {
        Basic.BOOL: st.booleans(),
        Basic.FLOAT: FLOATS,
        Basic.DOUBLE: st.floats(allow_nan=False),
        Basic.STRING: TEXTS,
    }
    return basics[kind]


def _later(kind: ValueType, types: dict[str, Struct | Enum], depth: int) -> Any:
    return lambda: values_of(kind, types, depth)
