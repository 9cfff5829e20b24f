"""Define the compiled form of a session type: a machine of numbered states. Rule numbers are Limit-Stream's.

A machine is one side's view of a channel; ``dual`` returns the other side's. It needs no parser: ``loaded`` creates it
from plain data, which ``plain`` returns and generated modules contain. ``monitor`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from afflux.core.limits import Limits
from afflux.sessions.formatting import format_type
from afflux.sessions.types import Basic, Constant, Enum, Field, Name, Struct, ValueType, Variant
from afflux.sessions.values import Codec, codecs

__all__ = ["IllegalStep", "Kind", "Machine", "State", "loaded", "plain"]


class Kind(StrEnum):
    """The kinds of steps."""

    RECV = "recv"
    SEND = "send"
    OFFER = "offer"
    CHOOSE = "choose"
    END = "end"


DUAL: Final = {
    Kind.RECV: Kind.SEND,
    Kind.SEND: Kind.RECV,
    Kind.OFFER: Kind.CHOOSE,
    Kind.CHOOSE: Kind.OFFER,
    Kind.END: Kind.END,
}
"The peer's step for each step."

IMPLIED: Final = {Kind.OFFER: Kind.RECV, Kind.CHOOSE: Kind.SEND}
"The step that chooses the first branch without a message, if that branch begins with it (R-27)."


class IllegalStep(Exception):  # noqa: N818 -- not an error until blame is known
    """A step that the type does not permit in a state; a monitor assigns the blame."""

    def __init__(self, state: int, expected: str, seen: str, rule: str = "SI-25") -> None:
        super().__init__(f"expected {expected} (state {state}), not {seen}")
        self.state, self.expected, self.seen, self.rule = state, expected, seen, rule


@dataclass(frozen=True, slots=True)
class State:
    """A state: the step that is legal there, and what follows."""

    kind: Kind
    next: tuple[int, ...] = ()
    "The state after a recv or a send; the state of each branch of an offer or a choice."
    type: ValueType | None = None
    "The type of the value of a recv or a send."


@dataclass(frozen=True)
class Machine:
    """The states of one side of a channel. State 0 is the first.

    Machines are values. Attributes that start with an underscore are caches.
    """

    name: str
    "The channel's name, which SETUP carries."
    states: tuple[State, ...]
    types: Mapping[str, Struct | Enum] = field(default_factory=dict)
    "The definitions that the types of values refer to."
    classes: Mapping[str, type] = field(default_factory=dict, compare=False, repr=False)
    "The class of each struct whose values are objects instead of tuples."
    limits: Limits = field(default_factory=Limits, compare=False, repr=False)
    "The limits of values."

    def dual(self) -> Machine:
        """Return the other side's machine: the same states with the dual steps (R-40)."""
        return replace(self, states=tuple(replace(state, kind=DUAL[state.kind]) for state in self.states))

    def step(self, state: int, kind: Kind, branch: int = 0) -> int:
        """Return the state after a step.

        Args:
            kind: the step. In an offer (a choice) whose first branch begins with a recv (a send), that step is legal as
                well and implies the first branch (R-27).
            branch: the branch that was chosen, from 1.

        Raises:
            IllegalStep: the type does not permit the step in this state.
        """
        here = self.states[state]
        if kind is not here.kind:
            entered = self.entered(state, kind)
            if entered is None:
                raise IllegalStep(state, self.expected(state), kind.value)
            return self.states[entered].next[0]
        if kind in (Kind.OFFER, Kind.CHOOSE):
            if type(branch) is not int or not 1 <= branch <= len(here.next):
                raise IllegalStep(state, self.expected(state), f"branch {branch!r}")
            return here.next[branch - 1]
        return here.next[0] if here.next else state

    def entered(self, state: int, kind: Kind) -> int | None:
        """Return the state in which a recv or a send is taken: this one, or the first branch that it implies (R-27);
        None if it is illegal."""
        here = self.states[state]
        if here.kind is kind:
            return state
        return here.next[0] if IMPLIED.get(here.kind) is kind and self.implies(state) else None

    def loop(self, state: int, kind: Kind) -> int | None:
        """Return the state in which a recv or a send is taken if the same step may follow it without end, as in
        ``items = send int -> choose | items | end``; None otherwise."""
        here = self.entered(state, kind)
        return here if here is not None and self.entered(self.states[here].next[0], kind) == here else None

    def returns(self, state: int, kind: Kind) -> bool:
        """Whether a loop is entered at this offer or choice, and returns to it, or to one that is the same."""
        here = self.loop(state, kind)
        return here is not None and here != state and self._is_same(self.states[here].next[0], state)

    def _is_same(self, one: int, other: int) -> bool:
        """Whether the same conversations follow two states."""
        waiting, seen = [(one, other)], set[tuple[int, int]]()
        while waiting:
            pair = waiting.pop()
            left, right = self.states[pair[0]], self.states[pair[1]]
            if pair[0] == pair[1] or pair in seen:
                continue
            if (left.kind, left.type, len(left.next)) != (right.kind, right.type, len(right.next)):
                return False
            seen.add(pair)
            waiting += zip(left.next, right.next, strict=True)
        return True

    def implies(self, state: int) -> bool:
        """Whether the first branch of this offer or choice is chosen by its first message (R-27)."""
        here = self.states[state]
        return here.kind in IMPLIED and self.states[here.next[0]].kind is IMPLIED[here.kind]

    def expected(self, state: int) -> str:
        """Return in words what the type expects in a state, such as ``send int``."""
        here = self.states[state]
        if here.type is not None:
            return f"{here.kind.value} {format_type(here.type)}"
        if here.kind is Kind.END:
            return "end"
        return f"{here.kind.value} of branches 1 to {len(here.next)}"

    def codec(self, state: int) -> Codec:
        """Return the codec of the value that is received or sent in a state."""
        found = self._codecs[state]
        if found is None:
            kind = self.states[state].type
            if kind is None:
                raise IllegalStep(state, self.expected(state), "a value")
            found = self._codecs[state] = self._codec_of(kind)
        return found

    @cached_property
    def _codecs(self) -> list[Codec | None]:
        return [None] * len(self.states)

    @cached_property
    def _codec_of(self) -> Callable[[ValueType], Codec]:
        return codecs(self.types, self.classes, self.limits)

    def with_classes(self, classes: Mapping[str, type], limits: Limits | None = None) -> Machine:
        """Return a machine whose structs are objects of ``classes``, by the struct's name."""
        return replace(self, classes=dict(classes), limits=limits or self.limits)


def plain(machine: Machine) -> dict[str, Any]:
    """Return a machine as plain data: names, numbers, lists and maps, as in JSON."""
    return {
        "name": machine.name,
        "states": [_plain_state(state) for state in machine.states],
        "types": {name: _plain_definition(each) for name, each in machine.types.items()},
    }


def _plain_state(state: State) -> list[Any]:
    kind = [] if state.type is None else [_plain_type(state.type)]
    return [state.kind.value, *kind, *state.next]


def _plain_type(kind: ValueType) -> Any:
    match kind:
        case Name(name):
            return name
        case Constant(basic, value):
            return [basic.value, value]
    return kind.value


def _plain_definition(each: Struct | Enum) -> list[Any]:
    members = each.fields if isinstance(each, Struct) else each.variants
    word = "struct" if isinstance(each, Struct) else "enum"
    return [word, *([member.name, _plain_type(member.type)] for member in members)]


def loaded(data: Mapping[str, Any]) -> Machine:
    """Return the machine of plain data.

    Raises:
        ValueError: the data is not a machine.
    """
    try:
        types = {str(name): _definition(str(name), parts) for name, parts in data["types"].items()}
        states = tuple(_state(parts, types) for parts in data["states"])
        name = str(data["name"])
        _check_states(states)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"not a session type: {error!r}") from None
    return Machine(name, states, types)


def _check_states(states: tuple[State, ...]) -> None:
    if not states:
        raise ValueError("no states")
    for state in states:
        if not all(0 <= number < len(states) for number in state.next):
            raise ValueError(f"the states are 0 to {len(states) - 1}, not {state.next}")


def _state(parts: Iterable[Any], types: Mapping[str, Any]) -> State:
    word, *rest = parts
    kind = Kind(word)
    made = None
    if kind in (Kind.RECV, Kind.SEND):
        made = _type(rest.pop(0))
        if isinstance(made, Name) and made.name not in types:
            raise ValueError(f"{made.name} is not defined")
    wrong = not all(type(number) is int for number in rest)
    least, most = {Kind.END: (0, 0), Kind.RECV: (1, 1), Kind.SEND: (1, 1)}.get(kind, (2, 10))
    if wrong or not least <= len(rest) <= most:
        raise ValueError(f"{kind.value} is followed by {rest}")
    return State(kind, tuple(rest), made)


def _type(data: Any) -> ValueType:
    if isinstance(data, str):
        return Basic(data) if data in tuple(Basic) else Name(data)
    basic, value = data
    return Constant(Basic(basic), value)


def _definition(name: str, parts: Iterable[Any]) -> Struct | Enum:
    word, *members = parts
    if word == "struct":
        return Struct(name, tuple(Field(str(member), _type(kind)) for member, kind in members))
    if word == "enum":
        return Enum(name, tuple(Variant(str(member), _type(kind)) for member, kind in members))
    raise ValueError(f"{word!r} is neither struct nor enum")
