"""Define the filter: a tree, and what each tool makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from afflux.filters.nodes import And, Column, Node, Not, Or
from afflux.filters.records import predicate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

__all__ = ["Filter"]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of frames. All its forms select the same frames."""

    node: Node
    "The tree."

    @classmethod
    def of(cls, text: str, *, table: bool = False) -> Self:
        """Parse a filter.

        Args:
            text: the filter, as docs/reference/filters.md describes it.
            table: accept the columns that only the table of frames has: ``file`` and ``packet``.

        Raises:
            FilterError: the text is no filter, with the place and the reason.
            MissingExtra: lark is not installed.
        """
        from afflux.filters.grammar import parse

        return cls(parse(text, table=table))

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the filter needs: ``error`` also for ``error.rule``, ``fields`` for each field."""
        return frozenset(column.name.partition(".")[0] for column in _columns(self.node))

    def predicate(self) -> Callable[[Mapping[str, Any]], bool]:
        """Return a function that says whether a frame record is selected. The record has the key ``route`` if
        ``columns`` has it: see ``Routes``."""
        test = predicate(self.node)
        return lambda record: test(record) is True

    def mask(self, table: pa.Table | pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows of an Arrow table of frames are selected, without nulls.

        Raises:
            KeyError: the table does not have a column of the filter.
            MissingExtra: pyarrow is not installed.
        """
        from afflux.filters.arrow import mask

        return mask(self.node, table)

    def column(self) -> SparkColumn:
        """Return the filter as a column of Spark, for ``DataFrame.where``; null if it is unknown.

        Raises:
            MissingExtra: pyspark is not installed.
        """
        from afflux.filters.spark import column

        return column(self.node)


def _columns(node: Node) -> Iterator[Column]:
    match node:
        case Not(inner):
            yield from _columns(inner)
        case And(nodes) | Or(nodes):
            for one in nodes:
                yield from _columns(one)
        case _:
            yield node.column
