"""Plain values to typed ones. How, is worked out once for each type."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final, Literal
from uuid import UUID

from afflux.convert.kinds import Mismatch, bare, choices, is_union, name_of, not_a, one_of, shown
from afflux.convert.text import FROM_TEXT, text_reader

__all__ = ["reader"]

_Read = Callable[[Any], Any]


class _Plan:
    """How to read one type. It is filled in after it was made, so that a type may hold itself."""

    __slots__ = ("name", "rank", "read", "shapes", "tags")

    def __init__(self, name: str) -> None:
        self.name = name
        self.rank = 0
        "Of two that fit, a union takes the one with the lower rank."
        self.read: _Read = _as_it_is
        self.shapes: tuple[type, ...] = ()
        "The types of the plain values that it takes; none means all."
        self.tags: dict[str, tuple[Any, ...]] = {}
        "Of a record: the values of its fields that are Literals."


@lru_cache(maxsize=1024)
def reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a ``kind`` of a plain value, or raises Mismatch. The table of the package says what a kind may be.

    Raises:
        TypeError: data can not become that; the text says which part of it.
    """
    return _Compiler().plan(kind).read


class _Compiler:
    """Works out one type, and the types in it."""

    def __init__(self) -> None:
        self._plans: dict[Any, _Plan] = {}

    def plan(self, kind: Any) -> _Plan:
        """How to read ``kind``; when that is still being worked out, what it will be."""
        kind = bare(kind)
        if kind in self._plans:
            return self._plans[kind]
        plan = self._plans[kind] = _Plan(name_of(kind))
        origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
        if kind in (Any, object):
            plan.read = _as_it_is
        elif kind in _SCALARS:
            plan.shapes, plan.read = _SCALARS[kind]
            plan.rank = list(_SCALARS).index(kind)
        elif (members := choices(kind)) is not None:
            plan.shapes, plan.read = _choice(one_of(kind, members), members)
        elif is_union(kind):
            self._fill_union(plan, [self.plan(part) for part in inner])
        elif origin in _LISTS:
            self._fill_list(plan, _LISTS[origin], inner)
        elif origin in (dict, Mapping):
            self._fill_map(plan, inner)
        elif isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "__required_keys__")):
            self._fill_record(plan, kind)
        else:
            there = ", ".join(map(name_of, (*_SCALARS, list, tuple, set, frozenset, dict)))
            raise TypeError(f"data can not become {plan.name}; it can become {there}, Enum, Literal, a dataclass, …")
        return plan

    def _fill_list(self, plan: _Plan, make: Callable[[Iterable[Any]], Any], inner: tuple[Any, ...]) -> None:
        plan.shapes = (list,)
        if make is tuple and inner and inner[-1] is not ...:
            plan.read = _row(plan.name, [self.plan(part) for part in inner])
        else:
            plan.read = _list(plan.name, make, self.plan(inner[0] if inner else Any))

    def _fill_map(self, plan: _Plan, inner: tuple[Any, ...]) -> None:
        plan.shapes = (dict,)
        if not inner:
            plan.read = _exactly(dict)
        elif inner[0] is str and inner[1] is Any:
            plan.read = _object
        else:
            plan.read = _map(plan.name, text_reader(inner[0]), self.plan(inner[1]))

    def _fill_record(self, plan: _Plan, kind: type) -> None:
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except NameError as error:
            raise TypeError(f"{plan.name} has a field of a type that is not known at run time: {error}") from None
        needed = _needed(kind, hints)
        plan.shapes = (dict,)
        plan.tags = {name: typing.get_args(hints[name]) for name in needed if typing.get_origin(hints[name]) is Literal}
        fields = []
        for name, need in needed.items():
            try:
                fields.append((name, self.plan(hints[name]), need))
            except TypeError as error:
                raise TypeError(f"{plan.name}.{name}: {error}") from None
        plan.read = _record(plan.name, kind, fields)

    def _fill_union(self, plan: _Plan, members: list[_Plan]) -> None:
        if not all(member.shapes for member in members):
            plan.read = _as_it_is
            return
        plan.shapes = tuple({shape: None for member in members for shape in member.shapes})
        members = sorted(members, key=lambda member: member.rank)
        by_shape = {shape: [member for member in members if shape in member.shapes] for shape in plan.shapes}
        if len(by_shape.get(list, ())) > 1:
            raise TypeError(f"{plan.name} holds two kinds of list, which can not be told apart")
        if len(records := by_shape.get(dict, [])) > 1:
            by_shape[dict] = [_tagged(plan.name, records)]
        plan.read = _union(plan.name, by_shape)


def _needed(kind: Any, hints: dict[str, Any]) -> dict[str, bool]:
    """The fields of a dataclass or a TypedDict, and whether each has to be there."""
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return {
            field.name: field.default is missing and field.default_factory is missing
            for field in dataclasses.fields(kind)
            if field.init
        }
    needed = {name: name in kind.__required_keys__ for name in hints}
    for name, hint in hints.items():  # in quotes, the class itself has not seen these
        if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            needed[name] = typing.get_origin(hint) is typing.Required
    return needed


# Readers.


def _as_it_is(value: Any) -> Any:
    return value


def _exactly(kind: type) -> _Read:
    name = name_of(kind)

    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise not_a(name, value)

    return read


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise not_a("float", value)


def _from_text(kind: Any) -> _Read:
    read_text = FROM_TEXT[kind]

    def read(value: Any) -> Any:
        if type(value) is str:
            return read_text(value)
        if type(value) is kind:  # CBOR and MessagePack have a form of their own for moments
            return value
        raise not_a(kind.__name__, value)

    return read


_SCALARS: Final[dict[Any, tuple[tuple[type, ...], _Read]]] = {
    type(None): ((type(None),), _exactly(type(None))),
    bool: ((bool,), _exactly(bool)),
    int: ((int,), _exactly(int)),
    float: ((float, int), _float),
    bytes: ((bytes,), _exactly(bytes)),
    UUID: ((str,), _from_text(UUID)),
    date: ((str,), _from_text(date)),
    datetime: ((str, datetime), _from_text(datetime)),
    str: ((str,), _exactly(str)),
}
"In the order in which a union tries them: ``A | B`` and ``B | A`` are equal."
_LISTS: Final[dict[Any, Callable[[Iterable[Any]], Any]]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Collection: list,
    Iterable: list,
}


def _choice(expected: str, members: list[tuple[Any, Any]]) -> tuple[tuple[type, ...], _Read]:
    """The shapes and the reader of an Enum or a Literal. A value and its type have to fit: True is not 1."""
    shapes = tuple({type(value): None for value, _ in members})
    named = {(type(value), value): made for value, made in members}

    def read(value: Any) -> Any:
        kind = type(value)
        if kind in shapes and (kind, value) in named:
            return named[kind, value]
        raise not_a(expected, value)

    return shapes, read


def _list(name: str, make: Callable[[Iterable[Any]], Any], item: _Plan) -> _Read:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise not_a(name, value)
        if make is list and item.read is _as_it_is:
            return value
        made: list[Any] = []
        try:
            made.extend(map(item.read, value))
        except Mismatch as mismatch:
            raise mismatch.within(f"[{len(made)}]") from None
        try:
            return make(made)
        except TypeError:  # a list in a set
            raise not_a(name, value) from None

    return read


def _row(name: str, items: list[_Plan]) -> _Read:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise not_a(name, value)
        if len(value) != len(items):
            raise Mismatch(name, f"not {len(value)} items")
        return tuple(_step(f"[{at}]", item, one) for at, (item, one) in enumerate(zip(items, value, strict=True)))

    return read


def _step(step: str, plan: _Plan, value: Any) -> Any:
    try:
        return plan.read(value)
    except Mismatch as mismatch:
        raise mismatch.within(step) from None


def _object(value: Any) -> Any:
    """A map with text for keys and anything inside."""
    if type(value) is not dict or not {str}.issuperset(map(type, value)):
        raise not_a("dict[str, Any]", value)
    return value


def _map(name: str, key_of: Callable[[str], Any], item: _Plan) -> _Read:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise not_a(name, value)
        made = {}
        for key, one in value.items():
            try:
                if type(key) is not str:
                    raise not_a("text for a key", key)
                made[key_of(key)] = item.read(one)
            except Mismatch as mismatch:
                raise mismatch.within(f"[{shown(key)}]") from None
        return made

    return read


def _record(name: str, make: Any, fields: list[tuple[str, _Plan, bool]]) -> _Read:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise not_a(name, value)
        made = {}
        for key, field, needed in fields:
            if key in value:
                try:
                    made[key] = field.read(value[key])
                except Mismatch as mismatch:
                    raise mismatch.within(f".{key}") from None
            elif needed:
                raise Mismatch(field.name, "but it is missing").within(f".{key}")
        try:
            return make(**made)
        except ValueError as error:  # its __post_init__ knows better
            raise Mismatch(name, f"but {error}") from None

    return read


def _tagged(name: str, records: list[_Plan]) -> _Plan:
    """One plan for several kinds of maps, told apart by one field."""
    for field in records[0].tags:
        members = [(value, record) for record in records for value in record.tags.get(field, ())]
        if all(field in record.tags for record in records) and len({value for value, _ in members}) == len(members):
            break
    else:
        raise TypeError(f'{name} holds two kinds of map; give each a field such as kind: Literal["buy"]')
    plan = _Plan(name)
    _, choose = _choice(one_of(Literal, members), members)

    def read(value: Any) -> Any:
        try:
            record = choose(value.get(field))
        except Mismatch as mismatch:
            raise mismatch.within(f".{field}") from None
        return record.read(value)

    plan.read = read
    return plan


def _union(name: str, by_shape: dict[type, list[_Plan]]) -> _Read:
    def read(value: Any) -> Any:
        members = by_shape.get(type(value), ())
        for member in members:
            try:
                return member.read(value)
            except Mismatch:
                if len(members) == 1:
                    raise
        raise not_a(name, value)

    return read
