"""Translate what Spark pushes down to a Python data source (``DataSourceReader.pushFilters``) into a filter."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from afflux.filters.columns import columns
from afflux.filters.filter import Filter
from afflux.filters.grammar import LARGEST, written
from afflux.filters.nodes import And, Column, Compare, IsNull, Match, Node, Not, Operator, Type, Within
from afflux.filters.patterns import MOST_CHARACTERS, quoted

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter as Pushed

__all__ = ["pushed"]

_SIGNS: Final[dict[str, Operator]] = {
    "EqualTo": "==",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_TEXTS: Final = {"StringStartsWith": ("^", ""), "StringEndsWith": ("", "$"), "StringContains": ("", "")}
"What precedes and follows the text in a pattern."


def pushed(filters: Iterable[Pushed]) -> tuple[Filter | None, list[Pushed]]:
    """Return the filter that is all of the filters which can be translated, and the others, which Spark applies.

    Returns:
        The filter, None if there is nothing to apply; and what a reader's ``pushFilters`` returns.
    """
    nodes: list[Node] = []
    others: list[Pushed] = []
    for one in filters:
        node = _node(one)
        if node is None:
            others.append(one)
        else:
            nodes.append(node)
    if not nodes:
        return None, others
    return Filter(nodes[0] if len(nodes) == 1 else And(tuple(nodes))), others


def _node(one: Any) -> Node | None:
    kind = type(one).__name__
    if kind == "Not":
        inner = _node(one.child)
        return None if inner is None else Not(inner)
    column = columns(True).get(".".join(getattr(one, "attribute", ())))
    if column is None:
        return None
    if kind == "IsNull":
        return IsNull(column)
    if kind == "IsNotNull":
        return Not(IsNull(column))
    if kind == "EqualNullSafe":
        return _equal(column, one.value)
    if kind in _TEXTS:
        return _text(column, kind, one.value)
    if kind == "In":
        values = [_value(column, value) for value in one.value]
        return None if not values or None in values else Within(column, tuple(v for v in values if v is not None))
    return _compare(column, kind, getattr(one, "value", None))


def _compare(column: Column, kind: str, given: Any) -> Node | None:
    value = _value(column, given)
    if value is None or kind not in _SIGNS or (column.type is Type.TEXT and kind != "EqualTo"):
        return None
    return Compare(column, _SIGNS[kind], value)


def _equal(column: Column, given: Any) -> Node | None:
    """Two missing values are equal, and the result is never unknown."""
    if given is None:
        return IsNull(column)
    value = _value(column, given)
    return None if value is None else And((Not(IsNull(column)), Compare(column, "==", value)))


def _text(column: Column, kind: str, given: Any) -> Node | None:
    before, after = _TEXTS[kind]
    if column.type is not Type.TEXT or not isinstance(given, str):
        return None
    pattern = before + quoted(given) + after
    return None if len(pattern) > MOST_CHARACTERS else Match(column, pattern)


def _value(column: Column, given: Any) -> int | str | None:
    """Return a value to compare a column with; None if it is of another type."""
    if column.type is Type.NUMBER and type(given) is int and -LARGEST <= given <= LARGEST:
        return given
    if column.type is Type.TEXT and isinstance(given, str):
        return given
    if column.type is Type.TIME and isinstance(given, datetime):
        return written(given)
    return None
