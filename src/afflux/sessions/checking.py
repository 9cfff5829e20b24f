"""Check a tree of session types: names, ends, branches and values. Rule numbers are Limit-Stream's.

The rules are those of D-10. Each check visits each node a fixed number of times, so the time grows linearly with the
size of the file.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice

from afflux.core.limits import REASONS, Limits
from afflux.sessions.errors import Problem
from afflux.sessions.types import (
    Basic,
    Chain,
    Channel,
    Choose,
    Constant,
    Definition,
    End,
    Enum,
    Field,
    File,
    Name,
    Offer,
    Place,
    Recv,
    Send,
    Struct,
    ValueType,
    Variant,
    chains_of,
)

__all__ = ["MOST_BRANCHES", "MOST_PROBLEMS", "check", "in_range"]

MOST_BRANCHES = 10
MOST_PROBLEMS = 100
"Problems that are reported for a file."


def check(file: File, *, limits: Limits | None = None) -> tuple[Problem, ...]:
    """Return the rules that a file breaks, in the order of the rules; empty if there are none."""
    found = _Check(file, limits or Limits()).problems()
    return tuple(islice(found, MOST_PROBLEMS))


class _Check:
    def __init__(self, file: File, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._named: dict[str, Definition] = {each.name: each for each in reversed(file.definitions)}

    def problems(self) -> Iterator[Problem]:
        if (too_large := self._size()) is not None:
            yield too_large
            return
        names = [*self._clashes(), *self._references()]
        yield from names
        yield from self._shapes()
        yield from self._constants()
        if not names:
            yield from self._endless_channels()
            yield from self._endless_values()

    def _size(self) -> Problem | None:
        """Return the limit that is exceeded. It is checked first, because branches may be shared subtrees."""
        states = 0
        for channel in self._file.channels:
            for part in chains_of(channel.chain):
                states += len(part.steps)
                if states > self._limits.session_type_states:
                    text = f"the channels have more than {self._limits.session_type_states:,} steps"
                    return Problem(text, REASONS["session_type_states"], channel.place)
                deep = next(
                    (s for s in part.steps if isinstance(s, Offer | Choose) and s.depth > self._most_deep), None
                )
                if deep is not None:
                    text = f"offers and choices are nested more than {self._most_deep} deep"
                    return Problem(text, REASONS["session_type_depth"], deep.place)
        return None

    @property
    def _most_deep(self) -> int:
        return self._limits.session_type_depth

    # names

    def _clashes(self) -> Iterator[Problem]:
        yield from _twice("", self._file.definitions)
        for each in self._file.definitions:
            if isinstance(each, Struct):
                yield from _twice(f"{each.name}.", each.fields)
            elif isinstance(each, Enum):
                yield from _twice(f"{each.name}.", each.variants)

    def _references(self) -> Iterator[Problem]:
        for each in self._file.definitions:
            if isinstance(each, Channel):
                for part in chains_of(each.chain):
                    yield from self._names_in(part)
            else:
                for member in _members(each):
                    yield from self._value(member.type)

    def _names_in(self, part: Chain) -> Iterator[Problem]:
        for step in part.steps:
            if isinstance(step, Recv | Send):
                yield from self._value(step.type)
            elif isinstance(step, Offer | Choose):
                for branch in step.branches:
                    if isinstance(branch, Name) and not isinstance(named := self._named.get(branch.name), Channel):
                        text = f"{branch.name} is not defined" if named is None else f"{branch.name} is not a channel"
                        yield Problem(text, "R-34", branch.place)

    def _value(self, kind: ValueType) -> Iterator[Problem]:
        if isinstance(kind, Name):
            named = self._named.get(kind.name)
            if named is None:
                yield Problem(f"{kind.name} is not defined", "R-34", kind.place)
            elif isinstance(named, Channel):
                yield Problem(f"{kind.name} is a channel, which cannot be the type of a value", "R-39", kind.place)

    # chains and branches

    def _shapes(self) -> Iterator[Problem]:
        for channel in self._file.channels:
            for part in chains_of(channel.chain):
                yield from _shape(part, channel)

    # constants

    def _constants(self) -> Iterator[Problem]:
        for kind in self._value_types():
            if isinstance(kind, Constant) and not in_range(kind.basic, kind.value):
                yield Problem(f"the constant is outside the range of {kind.basic.value}", "R-31", kind.place)

    def _value_types(self) -> Iterator[ValueType]:
        for each in self._file.definitions:
            if isinstance(each, Channel):
                for part in chains_of(each.chain):
                    yield from (step.type for step in part.steps if isinstance(step, Recv | Send))
            else:
                yield from (member.type for member in _members(each))

    # the end is reachable

    def _endless_channels(self) -> Iterator[Problem]:
        ending: list[str] = []
        before: defaultdict[str, list[str]] = defaultdict(list)
        for channel in self._file.channels:
            for part in chains_of(channel.chain):
                for step in part.steps:
                    if isinstance(step, End):
                        ending.append(channel.name)
                    elif isinstance(step, Offer | Choose):
                        for branch in step.branches:
                            if isinstance(branch, Name):
                                before[branch.name].append(channel.name)
        reaching: set[str] = set()
        while ending:
            name = ending.pop()
            if name not in reaching:
                reaching.add(name)
                ending += before[name]
        for channel in self._file.channels:
            if channel.name not in reaching:
                yield Problem(f"no path of channel {channel.name} reaches end", "R-37", channel.place)

    # each type has finite values

    def _endless_values(self) -> Iterator[Problem]:
        """A struct is finite when all its fields are, an enum when one of its variants is."""
        missing: dict[str, int] = {}
        users: defaultdict[str, list[str]] = defaultdict(list)
        finite: list[str] = []
        for each in self._file.definitions:
            if isinstance(each, Channel):
                continue
            names = [member.type.name for member in _members(each) if isinstance(member.type, Name)]
            plain = len(_members(each)) > len(names)
            missing[each.name] = min(len(_members(each)), 1) if isinstance(each, Enum) else len(names)
            for name in names:
                users[name].append(each.name)
            if (isinstance(each, Enum) and plain) or (isinstance(each, Struct) and not names):
                finite.append(each.name)
        done: set[str] = set()
        while finite:
            name = finite.pop()
            if name in done:
                continue
            done.add(name)
            for user in users[name]:
                missing[user] -= 1
                if missing[user] <= 0:
                    finite.append(user)
        for each in self._file.definitions:
            if not isinstance(each, Channel) and each.name not in done:
                yield _endless(each)


def _endless(each: Struct | Enum) -> Problem:
    if isinstance(each, Struct):
        return Problem(f"struct {each.name} contains itself without an enum that can end it", "R-38", each.place)
    reason = "each of its variants contains it" if each.variants else "it has no variants"
    return Problem(f"enum {each.name} has no finite value: {reason}", "R-38", each.place)


def _members(each: Struct | Enum) -> tuple[Field, ...] | tuple[Variant, ...]:
    return each.fields if isinstance(each, Struct) else each.variants


def _twice(prefix: str, parts: Iterable[Definition | Field | Variant]) -> Iterator[Problem]:
    seen: dict[str, Place | None] = {}
    for part in parts:
        if part.name not in seen:
            seen[part.name] = part.place
        else:
            first = seen[part.name]
            where = "" if first is None else f", first at {first}"
            yield Problem(f"{prefix}{part.name} is defined twice{where}", "R-34", part.place)


def _shape(part: Chain, channel: Channel) -> Iterator[Problem]:
    place = channel.place
    for number, step in enumerate(part.steps, 1):
        last, place = number == len(part.steps), step.place or place
        if isinstance(step, Offer | Choose) and not 2 <= len(step.branches) <= MOST_BRANCHES:
            text = f"2 to {MOST_BRANCHES} branches are permitted, not {len(step.branches)}"
            yield Problem(text, "R-36", place)
        if not last and isinstance(step, Offer | Choose | End):
            after = part.steps[number].place or place
            yield Problem("nothing may follow end, offer or choose", "R-35", after)
    if not part.steps or not isinstance(part.steps[-1], Offer | Choose | End):
        yield Problem("a chain ends in end, offer or choose", "R-35", place)


def in_range(basic: Basic, value: bool | int | float | str) -> bool:
    """Whether a type can represent a value of its Python type."""
    match basic:
        case Basic.INT:
            return -(1 << 63) <= int(value) < 1 << 63
        case Basic.UINT:
            return 0 <= int(value) < 1 << 64
        case Basic.FLOAT:
            try:
                struct.pack(">f", value)
            except OverflowError:
                return False
            return math.isfinite(float(value))
    return True
