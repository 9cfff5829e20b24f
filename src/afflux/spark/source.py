"""Implement ``format("afflux")`` with pyspark's data source interfaces.

Processes:

- The driver's Python process creates :class:`AffluxSource` and checks the options.
- A process for each query has a :class:`StreamReader` and requests offsets and partitions from it. It may die at any
  time, because its state is not needed again.
- Tasks call ``read`` in a worker, possibly more than once for a partition. A small batch needs none: its rows travel
  with its plan (prefetching.py).

Rules:

1. Logged batches are read again exactly: a partition is a span of offsets, and its items are counted (reading.py).
2. Nothing is acknowledged, except by a query with ``acknowledgeAs`` (acknowledging.py).
3. A read limit of Spark overrides the options; ReadAllAvailable removes them.
4. The start of a new query is resolved once, and logged with the end of its first batch (offsets.py). With
   ``startingOffsets=latest`` that batch is empty. The start of a stream or shard that is new since the last run of the
   query is resolved in the same way. One that is gone since then is data loss.
5. While the server is away, ``latestOffset`` returns ``start``, so that Spark can stop the query. It waits until the
   server has answered once, and with availableNow, because the query would end. Spark reports progress of batches only,
   so an outage of several attempts gets two empty batches: its start adds a key to the offset, its end removes it. A
   full journal is shown in the same way, since a query that has read all of it would run no batch.
6. Spark before 4.2 does not pass ``start`` and ``limit``: the reader assumes the end of the last batch.
"""

from __future__ import annotations

import gc
import logging
import pickle
import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from afflux.core.errors import Invalid
from afflux.core.limits import Limits
from afflux.protocols.rsocket.cursor import State
from afflux.spark import shipping
from afflux.spark.acknowledging import Acknowledger
from afflux.spark.arrow import DEFAULT_SCHEMA, STREAMS_SCHEMA, Batches, arrow_schema, check_columns
from afflux.spark.asking import as_of
from afflux.spark.connection import Away
from afflux.spark.declaring import OptionError
from afflux.spark.embedding import READER_NAME
from afflux.spark.offsets import (
    AWAY,
    FULL,
    READER,
    Key,
    Mark,
    Offsets,
    Sources,
    Span,
    begins_of,
    fair,
    fingerprint,
    is_unresolved,
    moved_from,
    offsets_of,
    shard_of,
    spans_between,
    split,
    stream_of,
    text_of,
    to_json,
    unresolved,
)
from afflux.spark.options import LATEST, Options
from afflux.spark.prefetching import Prefetching
from afflux.spark.progress import Progress
from afflux.spark.reading import SpanReader, lose
from afflux.spark.streams import Drivers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    from afflux.spark.decoding import Decoder
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # Spark 4.0 and 4.1
        from afflux.spark.older import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

__all__ = ["AffluxSource", "BatchReader", "SpanPartition", "StreamReader"]

RANGE_BYTES = 256 << 20
"The approximate bytes of data of a task."
SMALL = 1_000
"Rows up to which sizes are not sampled: such a batch is one range, if the options permit."
REPORTED = 3
"Failed attempts after which an outage shows in the progress of a query."

_log = logging.getLogger("afflux.spark")
register_pickle_by_value(sys.modules[shipping.__name__])  # type: ignore[no-untyped-call] # of pyspark


class SpanPartition(InputPartition):
    """The span of a task."""

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)

    value: Span | None
    "The span; None for no rows."


class AffluxSource(DataSource):
    """A stream, from a server that supports the cursor, as a table."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.parsed = Options.parse(dict(options))
        "The parsed options."

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "afflux"

    def schema(self) -> str:
        """Return the columns without a schema of the user."""
        form = self.parsed.format
        if form != "raw":
            raise OptionError(f'format={form} requires a schema, such as .schema("carrier STRING, delay INT")')
        return STREAMS_SCHEMA if self.parsed.streams else DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader of the stored items."""
        if any(own.starts == LATEST for own in self.parsed.each().values()):
            raise OptionError("startingOffsets=latest is not possible for a batch read")
        if self.parsed.acknowledge_as is not None:
            raise OptionError("acknowledgeAs is not possible for a batch read, which stores no position")
        if self.parsed.journal_dir is not None:
            raise OptionError("journalDir is not possible for a batch read; run afflux relay instead")
        return BatchReader(self.parsed, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """Return a reader of micro-batches."""
        return StreamReader(self.parsed, schema)


class _Reading:
    """Base class of both readers: partitions and their rows. Pickled into tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self._schema = schema
        if options.format == "raw":
            check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)
        else:
            self._rows(arrow_schema(schema), options)

    def __reduce__(self) -> tuple[Any, ...]:
        return shipping.rebuild, (type(self).__name__, pickle.dumps((self.options, self._schema)))

    def cut(self, spans: list[Span], drivers: Drivers) -> list[SpanPartition]:
        """Split spans into partitions, by the options and by size."""
        rows = sum(len(span) for span in spans)
        pieces = self.options.partitions
        if rows > SMALL:
            pieces = max(pieces, int(drivers.data_bytes(spans) // RANGE_BYTES) + 1)
        return [SpanPartition(span) for span in drivers.located(split(spans, pieces, Limits.server().partitions))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a span, as Arrow batches."""
        span = partition.value
        if span is None:
            return
        _settle_worker()
        yield from self.batches(SpanReader(self.options.of(span.stream), span))

    def batches(self, reader: SpanReader) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a span."""
        span, options = reader.span, reader.options
        schema = arrow_schema(self._schema)
        rows = self._rows(schema, options) if options.format != "raw" else None
        more: dict[str, Any] = {"stream": span.stream, "include_metadata": options.include_metadata, "rows": rows}
        yield from Batches(schema, span.shard, **more).of(reader)

    def _rows(self, schema: pa.Schema, options: Options) -> Decoder:
        from afflux.spark.decoding import decoder_of

        return decoder_of(options, schema)


class BatchReader(_Reading, DataSourceReader):
    """Reads from ``startingOffsets`` to the head, which is requested when the query is planned."""

    def partitions(self) -> list[SpanPartition]:
        """Return the ranges to read. A stream that has not ended is logged as a warning: the result is a part of it."""
        with Drivers(self.options) as drivers:
            states = drivers.settled()
            start = drivers.start_of(states)
            spans = spans_between(start, {key: Mark(mark.epoch, states[key].head) for key, mark in start.items()})
            partitions = self.cut(spans, drivers)
        for span in spans:
            if not states[span.key].sealed:
                text = "partial result: %s has not ended; this read returns shard %d, offsets %d to %d"
                name = self.options.of(span.stream).stream_name
                _log.warning(text, name, span.shard, span.first, span.end - 1)
        return partitions or [SpanPartition(None)]


class StreamReader(Prefetching, _Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._source = _sources(options)
        self._drivers = Drivers(options)
        self._checked = False
        "Whether this process has looked for shards that are new or gone."
        self._now: dict[Key, State] | None = None
        self._acknowledger = Acknowledger(options.acknowledge_as or (READER_NAME if options.journal_dir else None))
        self._next: dict[str, Any] | None = None
        "The start of the next batch, as far as it is known."
        self._asked: dict[str, Any] | None = None
        "The start of the batch whose end was requested last."
        self._progress = Progress(options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return a placeholder for the start of a query without a checkpoint; ``latestOffset`` resolves it."""
        return unresolved(self._source)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return the options as a read limit; if there are two, ``latestOffset`` applies the second."""
        if self.options.max_rows_per_batch is not None:
            return ReadMaxRows(self.options.max_rows_per_batch)
        if self.options.max_bytes_per_batch is not None:
            return ReadMaxBytes(self.options.max_bytes_per_batch)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Ignore items that are written from now on."""
        self._now = self._drivers.settled()

    def latestOffset(  # noqa: N802 -- Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch; ``start`` without new items within ``pollTimeoutMs``.

        Raises:
            Invalid: ``start`` is not an offset of this source.
            DataLost: items after ``start`` are missing.
            ApplicationError: another reader acknowledges the stream.
            afflux.Error: the request failed, or the server was away for longer than ``reconnectTimeoutMs``.
        """
        self.caught_up()
        self._progress.asked()
        start = self._next if start is None else start
        if start is None:
            self._next = self._first_without_start()
            return self._next
        self._acknowledger.start(start)
        self._next = self._first(limit) if is_unresolved(start, self._source) else self._after(start, limit)
        self._progress.answered(self._drivers)
        self._asked = start
        return self._next

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Return what the query's progress shows of the source (progress.py). Spark logs the batch afterwards; its rows
        are read meanwhile."""
        self.caught_up()
        report = self._progress.report(self._drivers)
        self._read_ahead()
        return report

    def _read_ahead(self) -> None:
        """Read the next batch now, if it is a part of the shards that the last one had, each in the same epoch."""
        start, self._asked = self._asked, None
        if self.options.partitions != 1 or start is None or self._next is None or is_unresolved(start, self._source):
            return
        starts, ends = (offsets_of(offset, self._source) for offset in (start, self._next))
        if all(key in starts and starts[key].epoch == mark.epoch for key, mark in ends.items()):
            self.read_ahead(spans_between(starts, ends), self._prefetched)

    def stop(self) -> None:
        """Close the connections."""
        self.caught_up()
        self._drivers.close()

    def commit(self, end: dict[str, Any]) -> None:
        """Record that Spark will not request items before ``end`` again; the next ``latestOffset`` acknowledges it."""
        self._acknowledger.commit(offsets_of(end, self._source))

    def _first(self, limit: ReadLimit | None) -> dict[str, Any]:
        """Return the end of the first batch of a query, with its begin. With ``acknowledgeAs`` the batch is empty: it
        logs the owner, so that no item is read before the servers have accepted it."""
        states = self._first_states()
        self._checked = True
        begin = self._drivers.start_of(states)
        ends = self._ends(begin, states, ReadMaxRows(0) if self.options.acknowledge_as is not None else limit)
        return self._acknowledger.end(to_json(ends, self._source, begin), begin, ends, states)

    def _after(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        """Return the end of the batch that begins at a resolved start."""
        logged = offsets_of(start, self._source)
        self._drivers.moved(moved_from(start, self._source))
        marks, begins = self._current(logged)
        try:
            states = self._states(marks)
        except Away:
            return start | {AWAY: True} if self._is_away() else start
        starts = {key: self._drivers.behind_gap(key, marks[key], state) for key, state in states.items()}
        ends = marks | self._ends(starts, states, limit)
        same = {key: mark for key, mark in start.items() if key not in (READER, AWAY, FULL)}
        end = same if ends == logged else to_json(ends, self._source, begins)
        if self._progress.full and self._now is None:
            end |= {FULL: True}
        end = self._acknowledger.end(end, marks, ends, states)
        return end | {AWAY: True} if self._is_away() else end

    def _current(self, logged: Offsets) -> tuple[Offsets, Offsets]:
        """Return the marks of the shards that there are now, and of those where the new ones begin.

        Raises:
            DataLost: a shard of the checkpoint is gone, and ``failOnDataLoss`` is true.
        """
        names = self._drivers.each.keys()
        marks = {key: mark for key, mark in logged.items() if stream_of(key) in names}
        begins: Offsets = {}
        if not self._checked:
            heads = self._drivers.heads()
            named = {name for name, driver in self._drivers.each.items() if isinstance(driver.options.starts, dict)}
            marks = {key: mark for key, mark in marks.items() if key in heads or stream_of(key) in named}
            begins = self._drivers.start_of({key: state for key, state in heads.items() if key not in logged})
            self._checked = True
        for key in logged.keys() - marks.keys():
            self._gone(key, logged[key].position)
        return marks | begins, begins

    def _gone(self, key: Key, position: int) -> None:
        of = f"stream {stream_of(key)!r}" if stream_of(key) else "the stream of the option uri"
        lose(
            self.options,
            f"the checkpoint has shard {shard_of(key)} of {of} up to offset {position}, which is not there any more",
        )

    def _is_away(self) -> bool:
        return self._now is None and any(each.attempts >= REPORTED for each in self._drivers.outages.values())

    def _ends(self, starts: Offsets, states: dict[Key, State], limit: ReadLimit | None) -> Offsets:
        """Return the ends of a batch."""
        there = {key: max(0, states[key].head - mark.position) for key, mark in starts.items()}
        taken = fair(there, self._budget(starts, there, limit))
        ends: Offsets = {key: Mark(mark.epoch, mark.position + taken[key]) for key, mark in starts.items()}
        self._progress.note(ends, states, taken)
        return ends

    def _first_states(self) -> dict[Key, State]:
        """Return the states for the first batch of a query, with items if that is possible."""
        states = self._drivers.heads()
        if self._now is not None:
            return {key: as_of(state, self._now.get(key, state)) for key, state in states.items()}
        if self.options.starting_offsets == LATEST:
            return states
        begin = self._drivers.start_of(states)
        return self._drivers.states(begin, wait_ms=self.options.poll_timeout_ms)

    def _first_without_start(self) -> dict[str, Any]:
        """Return the heads: Spark before 4.2 does not say where the query continues."""
        states = self._first_states()
        begins = self._drivers.start_of(states) if self.options.streams else None  # any of them may be new
        return to_json({key: Mark(state.epoch, state.head) for key, state in states.items()}, self._source, begins)

    def _states(self, marks: Offsets) -> dict[Key, State]:
        """Return the states of the shards whose servers are not away; with availableNow, those of all, without items
        written since the start of the query."""
        relays = self._drivers.relays
        own = {key: mark for key, mark in marks.items() if self.options.acknowledge_as or stream_of(key) in relays}
        requests = self._acknowledger.requests(own)
        wait = 0 if self._now is not None else self.options.poll_timeout_ms
        states = self._drivers.states(marks, wait_ms=wait, acknowledge=requests, patient=self._now is not None)
        self._acknowledger.sent({key: request for key, request in requests.items() if key in states})
        if self._now is not None:
            return {key: as_of(state, self._now.get(key, state)) for key, state in states.items()}
        if all(state.sealed and state.head <= marks[key].position for key, state in states.items()):
            time.sleep(wait / 1000)  # a sealed stream answers immediately, and Spark would poll continuously
        return states

    def _budget(self, starts: Offsets, there: dict[Key, int], limit: ReadLimit | None) -> int | None:
        """Return the most rows of a batch; None for all."""
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

    def _rows_within(self, size: int, starts: Offsets, there: dict[Key, int]) -> int:
        """Estimate how many rows have ``size`` bytes of data, at least one, from samples in two passes."""
        budget = max(1, len(there))
        for _ in range(2):
            taken = fair(there, budget)
            ends = {key: Mark(mark.epoch, mark.position + taken[key]) for key, mark in starts.items() if taken[key]}
            average = self._drivers.item_bytes(spans_between(starts, ends))
            budget = max(1, int(size // max(1.0, average or 1.0)))
        return budget

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpanPartition]:
        """Return the ranges between two logged offsets, always with the same rows.

        Raises:
            Invalid: an offset is not of this source, or the end precedes the start.
            DataLost: a stream is gone that the batch reads.
        """
        self.caught_up()
        ends = offsets_of(end, self._source)
        self._drivers.moved(moved_from(end, self._source))
        self._next = end
        if is_unresolved(start, self._source):
            starts = self._begin(end, ends)
        else:
            starts = begins_of(end, self._source) | offsets_of(start, self._source)
        if not ends.keys() <= starts.keys():
            texts = [sorted(map(text_of, each)) for each in (starts, ends)]
            raise Invalid(
                f"the shards of the checkpoint change from {texts[0]} to {texts[1]}: it is damaged", rule="checkpoint"
            )
        for key in [key for key in ends if stream_of(key) not in self._drivers.each]:
            self._gone(key, ends.pop(key).position)
        moved = {key: mark for key, mark in ends.items() if starts[key].epoch != mark.epoch}
        for key, state in self._drivers.states(moved).items():
            starts[key] = self._behind(key, starts[key], ends[key], state)
        spans = spans_between(starts, ends)
        for span in spans:
            if span.end < span.first:
                text = f"the checkpoint decreases from offset {span.first} to {span.end}: it is damaged"
                raise Invalid(text, rule="checkpoint")
        partitions = self.cut(spans, self._drivers)
        if self.options.partitions == 1 and len(partitions) == 1:  # Spark takes the rows of one partition only
            self.prefetch(spans, self._prefetched)
        return partitions

    def _prefetched(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a span, over the connection of this process."""
        driver = self._drivers.each[span.stream]
        return self.batches(SpanReader(driver.options, span, driver.connection))

    def _begin(self, end: dict[str, Any], ends: Offsets) -> Offsets:
        """Return where the first batch of a query begins."""
        if begin := begins_of(end, self._source):
            return begin
        if self.options.starting_offsets == LATEST:  # logged by an older afflux, or under Spark before 4.2
            return ends
        starts = self._drivers.start_of(self._drivers.heads())
        past = {key for key, mark in ends.items() if key in starts and starts[key].epoch == mark.epoch}
        return starts | {key: min(starts[key], ends[key], key=lambda mark: mark.position) for key in past}

    def _behind(self, key: Key, start: Mark, end: Mark, state: State) -> Mark:
        """Return the start in the end's epoch: the first item, for a start in another epoch."""
        start = self._drivers.behind_gap(key, start, state)
        return start if start.epoch == end.epoch else end


def _sources(options: Options) -> Sources:
    """Return the fingerprints of the streams."""
    found = {name: fingerprint(each.route, each.request_data, each.address) for name, each in options.each().items()}
    return found if options.streams else found[""]


@cache
def _settle_worker() -> None:
    """Exempt what this process has imported from garbage collection, once.

    A Spark worker collects after each task, which takes longer than a small range: 50 ms for the modules of pyspark,
    pyarrow and pandas.
    """
    gc.collect()
    gc.freeze()
