"""Compare session types: equality up to unfolding, and subtyping.

A server of a subtype safely serves the clients of its supertype: it may offer more branches and receive more values,
and it may choose among fewer branches and send fewer values. Names do not matter, except those of an enum's variants:
they are on the wire. Both comparisons visit each pair of states once and do not recurse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from afflux.core.errors import LimitExceeded
from afflux.sessions.checking import in_range
from afflux.sessions.machine import Kind, Machine, State
from afflux.sessions.types import Basic, Constant, Enum, Name, Struct, ValueType

__all__ = ["is_equal", "is_subtype", "why_not"]

MOST_PAIRS: Final = 1_000_000
"Pairs of states that a comparison visits."

Types = Mapping[str, Struct | Enum]


def is_equal(one: Machine, other: Machine) -> bool:
    """Whether two session types permit the same steps, however often their names are unfolded. Raises as why_not."""
    return why_not(one, other) is None and why_not(other, one) is None


def is_subtype(actual: Machine, expected: Machine) -> bool:
    """Whether a side that follows ``actual`` is safe where ``expected`` is expected. Raises as ``why_not`` does."""
    return why_not(actual, expected) is None


def why_not(actual: Machine, expected: Machine) -> str | None:
    """Return why ``actual`` is not a subtype of ``expected``; None if it is.

    Raises:
        LimitExceeded: the comparison would visit more than a million pairs of states.
    """
    waiting, seen = [(0, 0)], {(0, 0)}
    values = _Values(actual.types, expected.types)
    while waiting:
        here, there = waiting.pop()
        one, other = actual.states[here], expected.states[there]
        if (reason := _reason(one, other, values)) is not None:
            return (
                f"{actual.expected(here)} (state {here}) against {expected.expected(there)} (state {there}): {reason}"
            )
        for pair in zip(one.next, other.next, strict=False):
            if pair not in seen:
                seen.add(pair)
                waiting.append(pair)
        if len(seen) > MOST_PAIRS:
            raise LimitExceeded(f"the types have more than {MOST_PAIRS:,} pairs of states", rule="too-many-states")
    return None


def _reason(one: State, other: State, values: _Values) -> str | None:
    if one.kind is not other.kind:
        return "the steps differ"
    if one.type is not None and other.type is not None:
        if one.kind is Kind.SEND and not values.within(one.type, other.type):
            return "it sends values that the other type does not send"
        if one.kind is Kind.RECV and not values.within(one.type, other.type, reverse=True):
            return "it does not receive all values of the other type"
    if one.kind is Kind.OFFER and len(one.next) < len(other.next):
        return "it offers fewer branches"
    if one.kind is Kind.CHOOSE and len(one.next) > len(other.next):
        return "it chooses among more branches"
    return None


class _Values:
    """Compare types of values of two machines."""

    def __init__(self, ones: Types, others: Types) -> None:
        self._types = (ones, others)
        self._known: set[tuple[ValueType, ValueType, bool]] = set()

    def within(self, one: ValueType, other: ValueType, reverse: bool = False) -> bool:
        """Whether all values of ``one`` are values of ``other``, or the reverse."""
        smaller, larger = reversed(self._types) if reverse else self._types
        first = (other, one) if reverse else (one, other)
        waiting, seen = [first], {first}
        while waiting:
            small, large = waiting.pop()
            if (small, large, reverse) in self._known:
                continue
            inner = _inner(small, large, smaller, larger)
            if inner is None:
                return False
            waiting += [pair for pair in inner if pair not in seen]
            seen.update(inner)
        self._known |= {(small, large, reverse) for small, large in seen}
        return True


def _inner(
    small: ValueType, large: ValueType, smaller: Types, larger: Types
) -> list[tuple[ValueType, ValueType]] | None:
    """Return the pairs of types that must be compared as well; None if the types differ."""
    if isinstance(small, Name) and isinstance(large, Name):
        match smaller[small.name], larger[large.name]:
            case Struct(fields=ours), Struct(fields=theirs) if len(ours) == len(theirs):
                return [(one.type, other.type) for one, other in zip(ours, theirs, strict=True)]
            case Enum(variants=some), Enum(variants=all_of_them):
                by_name = {each.name: each.type for each in all_of_them}
                if all(each.name in by_name for each in some):
                    return [(each.type, by_name[each.name]) for each in some]
        return None
    return [] if _contained(small, large) else None


def _contained(small: ValueType, large: ValueType) -> bool:
    """Compare types without parts."""
    match small, large:
        case Basic(), Basic():
            return small is large or (small is Basic.FLOAT and large is Basic.DOUBLE)
        case Constant(), Constant():
            return small.value == large.value and type(small.value) is type(large.value)
        case Constant(basic=Basic.INT | Basic.UINT), (Basic.INT | Basic.UINT) as basic:
            return in_range(basic, small.value)
        case Constant(basic=basic), Basic():
            return _contained(basic, large)
    return False
