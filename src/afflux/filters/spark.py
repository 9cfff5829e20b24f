"""Make a filter a column of Spark, for a DataFrame with the columns of the table of frames. Needs pyspark."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from afflux.core.errors import MissingExtra
from afflux.filters.nodes import And, Column, Compare, Has, IsNull, Match, Node, Not, Or, Type, Within
from afflux.filters.patterns import for_java
from afflux.filters.records import COMPARISONS

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

__all__ = ["column"]


def column(node: Node) -> SparkColumn:
    """Return the column of a node: true, false, or null if it is unknown.

    Raises:
        MissingExtra: pyspark is not installed.
    """
    try:
        from pyspark.sql import functions
    except ImportError:
        raise MissingExtra("a filter of DataFrames", "spark") from None
    match node:
        case IsNull(one):
            return _value(one).isNull()
        case Has(one, letter):
            return functions.array_contains(_value(one), letter)
        case Compare(one, sign, wanted):
            found: SparkColumn = COMPARISONS[sign](_value(one), _literal(one, wanted))  # type: ignore[assignment]
            return found
        case Within(one, values):
            return _value(one).isin([_literal(one, value) for value in values])
        case Match(one, pattern):
            return _value(one).rlike(for_java(pattern))
        case Not(inner):
            return ~column(inner)
        case And(nodes):
            return reduce(and_, map(column, nodes))
        case Or(nodes):
            return reduce(or_, map(column, nodes))


def _value(one: Column) -> SparkColumn:
    from pyspark.sql import functions

    if one.field is None:
        return functions.col(one.name)
    found = functions.get_json_object(functions.col("fields"), f"$.{one.field}")
    return found.cast("decimal(20,0)") if one.type is Type.NUMBER else found


def _literal(one: Column, value: int | str) -> Any:
    from pyspark.sql import functions

    return functions.lit(datetime.fromisoformat(str(value)) if one.type is Type.TIME else value)
