"""Make a filter a function of a frame record (core.dissect)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from afflux.filters.grammar import LARGEST
from afflux.filters.nodes import And, Column, Compare, Has, IsNull, Match, Node, Not, Or, Type, Within
from afflux.filters.patterns import for_python

__all__ = ["COMPARISONS", "Test", "predicate"]

Test = Callable[[Mapping[str, Any]], "bool | None"]
"Returns True or False for a record, or None if it is unknown."
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def predicate(node: Node) -> Test:
    """Return the test of a node. Records have the key ``route`` if the filter needs it."""
    match node:
        case IsNull(column):
            value = _value(column)
            return lambda record: value(record) is None
        case Has(column, letter):
            value = _value(column)
            return lambda record: letter in value(record)
        case Compare(column, sign, wanted):
            compare = COMPARISONS[sign]
            return _test(column, lambda value: compare(value, wanted))
        case Within(column, values):
            members = frozenset(values)
            return _test(column, lambda value: value in members)
        case Match(column, pattern):
            search = re.compile(for_python(pattern), re.ASCII | re.DOTALL).search
            return _test(column, lambda value: search(value) is not None)
        case Not(inner):
            test = predicate(inner)
            return lambda record: None if (found := test(record)) is None else not found
        case And(nodes):
            return _joined([predicate(one) for one in nodes], decisive=False)
        case Or(nodes):
            return _joined([predicate(one) for one in nodes], decisive=True)


def _joined(tests: list[Test], decisive: bool) -> Test:
    """Return a test that is ``decisive`` if one of several is, unknown if one is, otherwise the opposite."""

    def joined(record: Mapping[str, Any]) -> bool | None:
        unknown = False
        for test in tests:
            found = test(record)
            if found is decisive:
                return decisive
            unknown |= found is None
        return None if unknown else not decisive

    return joined


def _test(column: Column, test: Callable[[Any], bool]) -> Test:
    value = _value(column)
    return lambda record: None if (found := value(record)) is None else test(found)


def _value(column: Column) -> Callable[[Mapping[str, Any]], Any]:
    name, field = column.name, column.field
    if field is not None:
        return lambda record: record["fields"].get(field)
    if name.startswith("error."):
        part = name.removeprefix("error.")
        return lambda record: None if record["error"] is None else record["error"][part]
    if column.type is Type.NUMBER:
        return lambda record: None if (found := record.get(name)) is None else min(found, LARGEST)
    return lambda record: record.get(name)
