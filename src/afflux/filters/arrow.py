"""Apply a filter to an Arrow table of frames (docs/filters.md). Needs pyarrow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from afflux.core.errors import MissingExtra
from afflux.filters.nodes import And, Column, Compare, Has, IsNull, Match, Node, Not, Or, Type, Within
from afflux.filters.patterns import for_python

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["mask"]


def mask(node: Node, table: pa.Table | pa.RecordBatch) -> pa.BooleanArray:
    """Return which rows of a table are selected, without nulls.

    Raises:
        KeyError: the table does not have a column of the filter.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow.compute as pc
    except ImportError:
        raise MissingExtra("a filter of tables", "spark") from None
    return pc.fill_null(_Masks(table).of(node), False)


class _Masks:
    """The results of nodes for one table: arrays of true, false and null."""

    def __init__(self, table: pa.Table | pa.RecordBatch) -> None:
        self._table = table
        self._fields: list[dict[str, Any]] | None = None

    def of(self, node: Node) -> Any:
        """Return the result of a node."""
        import pyarrow.compute as pc

        match node:
            case IsNull(column):
                return pc.is_null(self._column(column))
            case Has(column, letter):
                return self._has(self._column(column), letter)
            case Compare(column, sign, wanted):
                return self._compare(column, sign, wanted)
            case Within(column, values):
                members = frozenset(self._literal(column, value) for value in values)
                return self._each(self._column(column), lambda value: value in members)
            case Match(column, pattern):
                search = re.compile(for_python(pattern), re.ASCII | re.DOTALL).search
                return self._each(self._column(column), lambda value: search(value) is not None)
            case Not(inner):
                return pc.invert(self.of(inner))
            case And(nodes):
                return self._joined(pc.and_kleene, nodes)
            case Or(nodes):
                return self._joined(pc.or_kleene, nodes)

    def _joined(self, join: Callable[[Any, Any], Any], nodes: tuple[Node, ...]) -> Any:
        found = self.of(nodes[0])
        for node in nodes[1:]:
            found = join(found, self.of(node))
        return found

    def _column(self, column: Column) -> Any:
        """Return a column as one array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.field is not None:
            return self._field(column, column.field)
        name, _, part = column.name.partition(".")
        found = self._table.column(name)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return pc.struct_field(found, part) if part else found

    def _field(self, column: Column, name: str) -> pa.Array:
        """Return a value of the column ``fields``, which has JSON."""
        import pyarrow as pa

        if self._fields is None:
            texts = self._table.column("fields").to_pylist()
            self._fields = [{} if text is None else json.loads(text) for text in texts]
        values = [row.get(name) for row in self._fields]
        if column.type is Type.NUMBER:
            return pa.array(values, pa.decimal128(20))
        return pa.array([None if value is None else value if isinstance(value, str) else "" for value in values])

    def _compare(self, column: Column, sign: str, wanted: int | str) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = self._column(column)
        if column.type is Type.TEXT:
            return self._each(found, lambda value: value == wanted)
        function = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}[sign]
        return function(found, pa.scalar(self._literal(column, wanted), found.type))

    def _literal(self, column: Column, value: int | str) -> Any:
        """Return a value as the table has it."""
        return datetime.fromisoformat(str(value)) if column.type is Type.TIME else value

    def _each(self, found: Any, test: Callable[[Any], bool]) -> Any:
        """Return the result of a test for each value; equal values are tested once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not isinstance(found, pa.DictionaryArray):
            found = pc.dictionary_encode(found)
        results = [None if value is None else test(value) for value in found.dictionary.to_pylist()]
        return pc.take(pa.array(results, pa.bool_()), found.indices)

    def _has(self, found: Any, letter: str) -> Any:
        """Return which lists contain a letter."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = np.zeros(len(found), np.bool_)
        hits = pc.fill_null(pc.equal(pc.list_flatten(found), letter), False)
        rows[pc.filter(pc.list_parent_indices(found), hits).to_numpy()] = True
        return pa.array(rows)
