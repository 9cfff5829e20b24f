"""Combine reading (source.py) and writing (sink.py) to ``format("afflux")``.

Spark creates the data source before it says whether rows are read or written. Options are therefore checked for both at
once, and refused if they are possible for neither.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from afflux.spark.options import OptionError, Options, _unknown, spellings
from afflux.spark.sink import BatchWriter, StreamWriter
from afflux.spark.sinkoptions import SPARKS_OWN, SinkOptions
from afflux.spark.source import AffluxSource, BatchReader, StreamReader

__all__ = ["AffluxFormat"]


class AffluxFormat(DataSource):
    """Streams as tables, and tables as streams."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        _check(dict(options))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return AffluxSource.name()

    def schema(self) -> str:
        """Return the columns to read without a schema of the user."""
        return AffluxSource(self.options).schema()

    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader of the stored items."""
        return AffluxSource(self.options).reader(schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """Return a reader of micro-batches."""
        return AffluxSource(self.options).streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of a table."""
        return BatchWriter(SinkOptions.parse(dict(self.options)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 -- Spark's name
        """Return a writer of micro-batches."""
        return StreamWriter(SinkOptions.parse(dict(self.options)), schema, overwrite)


def _check(given: dict[str, str]) -> None:
    """Refuse options that neither reading nor writing accepts, with the error of the one that knows all names."""
    try:
        Options.parse(given)
    except OptionError as reading:
        try:
            SinkOptions.parse(given)
        except OptionError as writing:
            names, known = {name.lower() for name in given} - {*SPARKS_OWN}, spellings(Options) | spellings(SinkOptions)
            for name in names - known.keys():
                raise OptionError(_unknown(name, known)) from None
            raise (writing if names <= spellings(SinkOptions).keys() else reading) from None
