"""Combine reading (source.py) and writing (sink.py) to ``format("afflux")``.

Rules:

1. Spark creates the data source before it says whether rows are read or written. Options are therefore checked for both
   at once, and refused if they are possible for neither.
2. For a table of its catalog Spark passes the options when the table is created, and only the columns when it is read.
   The first column of such a table therefore carries the options in its metadata.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from afflux.core.errors import Unsupported
from afflux.spark import shipping
from afflux.spark.declaring import OptionError, of_user, spellings, unknown_option
from afflux.spark.options import Options
from afflux.spark.sinkoptions import IN_SQL, SPARKS_OWN, SinkOptions
from afflux.spark.source import AffluxSource, BatchReader, StreamReader

if TYPE_CHECKING:
    from afflux.spark.sink import BatchWriter, StreamWriter

__all__ = ["AffluxFormat"]

_CARRIED = "afflux.options"
"The key of the options in the metadata of a column."
_TYPES = {
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "STRING": StringType(),
}


class AffluxFormat(DataSource):
    """Streams as tables, and tables as streams."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if options:
            _check(dict(options))

    def __reduce__(self) -> tuple[Any, ...]:
        return shipping.rebuild, (type(self).__name__, pickle.dumps((dict(self.options),)))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return AffluxSource.name()

    def schema(self) -> StructType | str:
        """Return the columns to read without a schema of the user."""
        given = dict(self.options)
        own = of_user(given)
        try:
            columns = AffluxSource(self.options).schema()
        except OptionError as error:
            if own is given:
                raise
            raise OptionError(f"{error}; a table in SQL can only be read: {IN_SQL}") from None
        return columns if own is given else _carrying(columns, own)

    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader of the stored items."""
        return AffluxSource(self._options(schema)).reader(schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """Return a reader of micro-batches."""
        return AffluxSource(self._options(schema)).streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of a table."""
        _require_arrow_writers()
        from afflux.spark.sink import BatchWriter

        return BatchWriter(SinkOptions.parse(dict(self.options)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 -- Spark's name
        """Return a writer of micro-batches."""
        _require_arrow_writers()
        from afflux.spark.sink import StreamWriter

        return StreamWriter(SinkOptions.parse(dict(self.options)), schema, overwrite)

    def _options(self, schema: StructType) -> MutableMapping[str, str]:
        """Return the options, from the columns if Spark has passed none."""
        carried = schema.fields[0].metadata.get(_CARRIED) if schema.fields else None
        return self.options if self.options or carried is None else dict(carried)


def _carrying(columns: str, options: Mapping[str, str]) -> StructType:
    """Return the columns of a table with its options."""
    first, *others = (column.split(" ") for column in columns.split(", "))
    fields = [StructField(first[0], _TYPES[first[1]], True, {_CARRIED: dict(options)})]
    return StructType(fields + [StructField(name, _TYPES[kind]) for name, kind in others])


def _require_arrow_writers() -> None:
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise Unsupported(f"writing needs Spark 4.1 or newer; this is {pyspark.__version__}")


def _check(given: dict[str, str]) -> None:
    """Refuse options that neither reading nor writing accepts, with the error of the one that knows all names."""
    try:
        Options.parse(given)
    except OptionError as reading:
        try:
            SinkOptions.parse(of_user(given))
        except OptionError as writing:
            names = {name.lower() for name in of_user(given)} - {*SPARKS_OWN}
            known = spellings(Options) | spellings(SinkOptions)
            for name in names - known.keys():
                raise OptionError(unknown_option(name, known)) from None
            raise (writing if names <= spellings(SinkOptions).keys() else reading) from None
