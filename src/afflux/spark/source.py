"""``format("afflux")``: the source as Spark sees it. Offsets, reading and columns are their own modules' business.

What runs where:

- The driver's Python process makes :class:`AffluxSource` from the options and refuses what can't be.
- One process for a query holds :class:`StreamReader` and asks it for offsets and partitions. It may die at any time;
  nothing in it is needed again.
- Tasks call ``read``, each in some worker, perhaps more than once for the same partition.

Rules:

1. What Spark has logged is read again exactly: a partition is a span of offsets, and a span is counted (reading.py).
2. The start of the next batch is the end of the last one that Spark finished: up to there the server may trim.
3. A read limit that Spark gives wins over the options; ReadAllAvailable lifts them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from afflux.core.errors import Invalid
from afflux.core.limits import Limits
from afflux.protocols.rsocket.cursor import State
from afflux.spark.arrow import DEFAULT_SCHEMA, Batches, check_columns
from afflux.spark.offsets import Mark, Offsets, Span, fair, fingerprint, offsets_of, split, to_json
from afflux.spark.options import LATEST, OptionError, Options
from afflux.spark.reading import Driver, SpanReader

if TYPE_CHECKING:
    import pyarrow as pa

    from afflux.spark.jsonrows import JsonRows

__all__ = ["AffluxSource", "BatchReader", "SpanPartition", "StreamReader"]

RANGE_BYTES = 64 << 20
"About so many bytes of data are read by one task."
SMALL = 1_000
"A batch of so few rows is not worth a look at its sizes: it is one range, if the options allow."


class SpanPartition(InputPartition):
    """What one task reads."""

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)

    value: Span | None
    "The span; None for no row at all."


class AffluxSource(DataSource):
    """A stream of any server that speaks the cursor, as a table."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.parsed = Options.parse(dict(options))
        "What was asked for."

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "afflux"

    def schema(self) -> str:
        """The columns when the user gives none."""
        if self.parsed.format == "json":
            raise OptionError('format=json needs your schema: .schema("carrier STRING, delay INT")')
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """Reads what there is once."""
        if self.parsed.starting_offsets == LATEST:
            raise OptionError("startingOffsets=latest leaves nothing to read in a batch read")
        return BatchReader(self.parsed, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """Reads batch after batch."""
        return StreamReader(self.parsed, schema)


class _Reading:
    """What both readers share: partitions and their rows. Pickled into tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self._schema = schema
        if options.format == "raw":
            check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)
        else:
            self._rows(_arrow_schema(schema))

    def cut(self, spans: list[Span]) -> list[SpanPartition]:
        """The spans as partitions: as many as the options ask for, or as their bytes do."""
        rows = sum(len(span) for span in spans)
        pieces = self.options.partitions
        if rows > SMALL:
            pieces = max(pieces, int(rows * (Driver(self.options).item_bytes(spans) or 0) // RANGE_BYTES) + 1)
        return [SpanPartition(span) for span in split(spans, pieces, Limits.server().partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one span, as Arrow batches, exactly as many as it has."""
        span = partition.value
        if span is None:
            return
        schema = _arrow_schema(self._schema)
        rows = self._rows(schema) if self.options.format == "json" else None
        batches = Batches(schema, span.shard, include_metadata=self.options.include_metadata, rows=rows)
        yield from batches.of(SpanReader(self.options, span))

    def _rows(self, schema: pa.Schema) -> JsonRows:
        from afflux.spark.jsonrows import JsonRows

        options = self.options
        failfast = options.mode == "failfast"
        return JsonRows(schema, options.stream_name, failfast=failfast, corrupt_record=options.corrupt_record)


class BatchReader(_Reading, DataSourceReader):
    """All from ``startingOffsets`` to the head, which is looked up when the query is planned."""

    def partitions(self) -> list[SpanPartition]:
        """The ranges to read."""
        driver = Driver(self.options)
        states = driver.settled()
        start = driver.start_of(states)
        spans = [
            Span(shard=shard, epoch=mark.epoch, first=mark.position, end=states[shard].head)
            for shard, mark in start.items()
        ]
        return self.cut(spans) or [SpanPartition(None)]


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch after the other."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._source = fingerprint(options.route, options.request_data)
        self._driver = Driver(options)
        self._now: dict[int, State] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Where a query without a checkpoint starts."""
        return to_json(self._driver.start(), self._source)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """The options as a read limit; of two, the second is kept by ``latestOffset``."""
        if self.options.max_rows_per_batch is not None:
            return ReadMaxRows(self.options.max_rows_per_batch)
        if self.options.max_bytes_per_batch is not None:
            return ReadMaxBytes(self.options.max_bytes_per_batch)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """From now on nothing is new."""
        self._now = self._driver.settled()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The end of the next batch; ``start`` when there is nothing new within ``pollTimeoutMs``.

        Raises:
            Invalid: ``start`` is not of this source.
            DataLost: what should follow ``start`` is gone.
            afflux.Error: the server could not be asked.
        """
        marks = offsets_of(start, self._source)
        states = self._states(marks)
        starts = {shard: self._driver.behind_gap(mark, states[shard]) for shard, mark in marks.items()}
        there = {shard: max(0, states[shard].head - mark.position) for shard, mark in starts.items()}
        taken = fair(there, self._budget(starts, there, limit))
        ends = {shard: Mark(mark.epoch, mark.position + taken[shard]) for shard, mark in starts.items()}
        return to_json(ends, self._source)

    def _states(self, marks: Offsets) -> dict[int, State]:
        """Where the shards stand; with availableNow, as if nothing had come since the query began."""
        acknowledge = self.options.acknowledge
        if self._now is not None:
            states = self._driver.states(marks, acknowledge=acknowledge)
            return {shard: _as_of(state, self._now.get(shard, state)) for shard, state in states.items()}
        wait = self.options.poll_timeout_ms
        states = self._driver.states(marks, wait_ms=wait, acknowledge=acknowledge)
        if all(state.sealed and state.head <= marks[shard].position for shard, state in states.items()):
            time.sleep(wait / 1000)  # a sealed stream answers at once, and Spark would ask it a hundred times a second
        return states

    def _budget(self, starts: Offsets, there: dict[int, int], limit: ReadLimit) -> int | None:
        """How many rows the batch may have; None for all."""
        if isinstance(limit, ReadAllAvailable):
            return None
        rows, size = self.options.max_rows_per_batch, self.options.max_bytes_per_batch
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        if size is None:
            return rows
        by_size = self._rows_within(size, starts, fair(there, rows))
        return by_size if rows is None else min(rows, by_size)

    def _rows_within(self, size: int, starts: Offsets, there: dict[int, int]) -> int:
        """About how many rows ``size`` bytes of data are, one at least: guessed from the first, then from those."""
        budget = max(1, len(there))
        for _ in range(2):
            taken = fair(there, budget)
            spans = [
                Span(shard=shard, epoch=mark.epoch, first=mark.position, end=mark.position + taken[shard])
                for shard, mark in starts.items()
                if taken[shard]
            ]
            average = self._driver.item_bytes(spans)
            budget = max(1, int(size // max(1.0, average or 1.0)))
        return budget

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpanPartition]:
        """The ranges between two logged offsets: the same rows whenever it is asked.

        Raises:
            Invalid: an offset is not of this source, or the end lies before the start.
        """
        starts, ends = offsets_of(start, self._source), offsets_of(end, self._source)
        if starts.keys() != ends.keys():
            raise Invalid(
                f"the checkpoint goes from shards {sorted(starts)} to shards {sorted(ends)}: it is damaged",
                rule="checkpoint",
            )
        if any(starts[shard].epoch != mark.epoch for shard, mark in ends.items()):
            states = self._driver.states(ends)
            starts = {shard: self._behind(starts[shard], mark, states[shard]) for shard, mark in ends.items()}
        spans = [
            Span(shard=shard, epoch=mark.epoch, first=starts[shard].position, end=mark.position)
            for shard, mark in ends.items()
        ]
        for span in spans:
            if span.end < span.first:
                raise Invalid(f"the checkpoint goes back, from offset {span.first} to {span.end}", rule="checkpoint")
        return self.cut(spans)

    def _behind(self, start: Mark, end: Mark, state: State) -> Mark:
        """The start in the end's epoch: a batch that begins with another epoch begins at its first item."""
        if start.epoch == end.epoch:
            return start
        start = self._driver.behind_gap(start, state)
        return start if start.epoch == end.epoch else end


def _as_of(state: State, then: State) -> State:
    """The state, with what was written after ``then`` left out."""
    if state.epoch != then.epoch or state.head <= then.head:
        return state
    return replace(state, head=max(state.first, then.head))


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
