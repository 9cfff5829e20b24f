"""Define transition tables: ``state × input → next state, action, rule``, complete by construction.

A :class:`Table` is data. The engine steps through it, the tests visit every cell, and the diagrams in the
documentation are drawn from it, so that the three agree. The engines implement the actions.

Rules of a table, each checked when it is built (ValueError):

1. Each cell is filled once: two rows for one cell are an error, and a cell without a row gets the
   ``otherwise`` action and stays in its state.
2. Rows name only states and inputs of the table.
3. Each state can be reached from the start.
4. States and inputs are numbered from 0 (IntEnum); inputs without gaps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

__all__ = ["Row", "Same", "Step", "Table", "functions", "members", "numbered", "same"]

S = TypeVar("S", bound=IntEnum)
I = TypeVar("I", bound=IntEnum)  # noqa: E741 -- states, inputs, actions: S, I, A
A = TypeVar("A", bound=Enum | str)
M = TypeVar("M", bound=IntEnum)
F = TypeVar("F")


class Same(Enum):
    """The type of :data:`same`."""

    SAME = "same"


same: Final = Same.SAME
"In a row: the state does not change."


@dataclass(frozen=True, slots=True)
class Row(Generic[S, I, A]):
    """A line of a table: in each of ``states``, each of ``inputs`` leads to the same step."""

    states: S | tuple[S, ...]
    inputs: I | tuple[I, ...]
    action: A
    next: S | Same
    rule: str
    "Citation: a rule (such as R-27), a section of the specification, or a hostile case (FC-02)."


def members(named: M | tuple[M, ...]) -> tuple[M, ...]:
    """Return the states or the inputs of a row as a tuple."""
    return named if isinstance(named, tuple) else (named,)


class Step(NamedTuple, Generic[S, A]):
    """The effect of one input in one state."""

    next: S
    action: A
    rule: str


class Table(Generic[S, I, A]):
    """A complete transition table.

    ``states`` and ``inputs`` are an enum class or some of its members; ``otherwise`` is the action and the rule
    of every cell without a row.

    Raises:
        ValueError: the rows break a rule of this module.
    """

    __slots__ = ("inputs", "name", "otherwise", "start", "states", "steps")

    name: str
    states: tuple[S, ...]
    inputs: tuple[I, ...]
    start: S
    otherwise: tuple[A, str]
    steps: tuple[tuple[Step[S, A], ...], ...]
    "The cells by number: ``steps[state][input]``. The tuple of a state that is not in this table is empty."

    def __init__(
        self,
        name: str,
        *,
        states: Iterable[S],
        inputs: Iterable[I],
        start: S,
        rows: Iterable[Row[S, I, A]],
        otherwise: tuple[A, str],
    ) -> None:
        self.name = name
        self.states = tuple(states)
        self.inputs = tuple(inputs)
        self.start = start
        self.otherwise = otherwise
        self._check_members()
        filled = self._fill(rows)
        members = {int(state): state for state in self.states}
        self.steps = tuple(self._line(members.get(number), filled) for number in range(max(members) + 1))
        self._check_reach()

    def step(self, state: S, input: I) -> Step[S, A]:
        """Return the effect of ``input`` in ``state``.

        Raises:
            IndexError: the state is not in this table (a bug of the caller).
        """
        return self.steps[state][input]

    def __getitem__(self, cell: tuple[S, I]) -> Step[S, A]:
        return self.steps[cell[0]][cell[1]]

    def cells(self) -> Iterator[tuple[S, I, Step[S, A]]]:
        """Yield every cell, state by state."""
        for state in self.states:
            for input, step in zip(self.inputs, self.steps[state], strict=True):
                yield state, input, step

    def mermaid(self) -> str:
        """Return a Mermaid ``stateDiagram-v2`` of the cells that differ from ``otherwise``."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.start.name}"]
        for state, inputs, step in self._rows():
            names = ", ".join(input.name for input in inputs)
            lines.append(f"    {state.name} --> {step.next.name}: {names} / {_label(step.action)}")
        outgoing = {state for state, _, step in self.cells() if step.next != state}
        lines += [f"    {state.name} --> [*]" for state in self.states if state not in outgoing]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """Return a Markdown table: a line for each state, step and rule, then a line for the remaining cells."""
        action, rule = self.otherwise
        lines = ["|State|Input|Action|Next|Rule|", "|---|---|---|---|---|"]
        for state, inputs, step in self._rows():
            names = ", ".join(input.name for input in inputs)
            next = "same" if step.next == state else step.next.name
            lines.append(f"|{state.name}|{names}|{_label(step.action)}|{next}|{step.rule}|")
        lines.append(f"|any|anything else|{_label(action)}|same|{rule}|")
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return f"<Table {self.name!r}: {len(self.states)} states × {len(self.inputs)} inputs>"

    def _rows(self) -> Iterator[tuple[S, list[I], Step[S, A]]]:
        """Yield the cells that differ from ``otherwise``; inputs with the same step in one state are grouped."""
        for state in self.states:
            together: dict[Step[S, A], list[I]] = {}
            for input, step in zip(self.inputs, self.steps[state], strict=True):
                if step != (state, *self.otherwise):
                    together.setdefault(step, []).append(input)
            for step, inputs in together.items():
                yield state, inputs, step

    def _line(self, state: S | None, filled: dict[tuple[S, I], Step[S, A]]) -> tuple[Step[S, A], ...]:
        """Return the steps of one state, ``otherwise`` where no row filled the cell."""
        if state is None:
            return ()
        rest = Step(state, *self.otherwise)
        return tuple(filled.get((state, input), rest) for input in self.inputs)

    def _check_members(self) -> None:
        if not _among(self.start, self.states):
            raise ValueError(f"{self.name}: the start {self.start!r} is not a state of this table")
        if min(self.states) < 0 or len(set(self.states)) != len(self.states):
            raise ValueError(f"{self.name}: states are different numbers from 0 up")
        if list(self.inputs) != list(range(len(self.inputs))):
            raise ValueError(f"{self.name}: inputs are numbered from 0 without gaps")

    def _fill(self, rows: Iterable[Row[S, I, A]]) -> dict[tuple[S, I], Step[S, A]]:
        filled: dict[tuple[S, I], Step[S, A]] = {}
        for row in rows:
            targets = () if isinstance(row.next, Same) else (row.next,)
            states, inputs = members(row.states), members(row.inputs)
            for state in (*states, *targets):
                if not _among(state, self.states):
                    raise ValueError(f"{self.name}: {state!r} is not a state of this table")
            for input in inputs:
                if not _among(input, self.inputs):
                    raise ValueError(f"{self.name}: {input!r} is not an input of this table")
                for state in states:
                    if (state, input) in filled:
                        raise ValueError(f"{self.name}: two rows for {state.name} × {input.name}")
                    next = state if isinstance(row.next, Same) else row.next
                    filled[state, input] = Step(next, row.action, row.rule)
        return filled

    def _check_reach(self) -> None:
        reached, waiting = {self.start}, [self.start]
        while waiting:
            for step in self.steps[waiting.pop()]:
                if step.next not in reached:
                    reached.add(step.next)
                    waiting.append(step.next)
        lost = [state.name for state in self.states if state not in reached]
        if lost:
            raise ValueError(f"{self.name}: unreachable states: {', '.join(lost)}")


def _among(member: IntEnum, members: Iterable[IntEnum]) -> bool:
    """Compare by identity, because members of two enums are equal when their numbers are."""
    return any(member is other for other in members)


def _label(action: Enum | str) -> str:
    return action.name if isinstance(action, Enum) else action


def numbered(functions: Mapping[A, F], *, unhandled: Collection[A] = ()) -> list[F]:
    """Return the functions of actions, which are numbered from 0, as a list indexed by the number: a dictionary would
    call the hash function of the enumeration at each step.

    Args:
        functions: the function of each action.
        unhandled: actions that the owner of the list performs before it is read, or that no step has here; their place
            is None.

    Raises:
        ValueError: an action is in neither, or in both.
    """
    actions: Any = type(next(iter(functions)))
    wrong = [action.name for action in actions if (action in functions) == (action in unhandled)]
    if wrong:
        raise ValueError(f'{actions.__name__}: expected either a function or "unhandled" for {", ".join(wrong)}')
    return [cast("F", functions.get(action)) for action in actions]


def functions(actions: type[Enum], owner: type, *, unhandled: Collection[Enum] = ()) -> list[Any]:
    """Return the functions of actions as ``numbered`` does: the method of ``owner`` with the name of each action, in
    lower case.

    Raises:
        ValueError: an action has neither a method nor is in ``unhandled``, or has both.
    """
    methods = {action: getattr(owner, action.name.lower()) for action in actions if hasattr(owner, action.name.lower())}
    return numbered(methods, unhandled=unhandled)
