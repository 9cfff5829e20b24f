"""Follow a stream into a table until it is told to stop. See ``afflux spark tail`` (cli/spark.py).

Rules:

1. The table is written by a query of Spark with a checkpoint in it: a repeated call continues where the last one ended,
   and each item is in the table exactly once.
2. Each batch is reported when it has ended. While none ends, the reason is reported after 5 seconds, and then after
   times that double: an idle stream, a lost server, or a batch that runs.
3. A stop waits for the end of the running batch. A second one ends the batch too. The next call repeats a batch that
   had begun, so the table may have more rows than were reported until then, but has none twice.
4. Spark refuses a checkpoint in which a kill has left a temporary file and no batch. Such files are deleted before the
   query starts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from afflux.core.errors import Error, Invalid
from afflux.spark.leaving import JVM_ENDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "CHECKPOINT",
    "CONTINUES",
    "DELTA",
    "Batch",
    "Stall",
    "Summary",
    "TableRefused",
    "Tail",
    "TailFailed",
    "follow",
    "java_reason_of",
    "reason_of",
]

CHECKPOINT: Final = "_checkpoint"
"The directory of the checkpoint in the table. Readers of Parquet skip names that begin with an underscore."
CONTINUES: Final = "the same command continues"
"What to do when Spark's JVM has ended."
_CHECK_S = 1
"Seconds between checks of the progress."
_STALL_S = 5.0
"Seconds without a batch after which the reason is reported."
DELTA: Final = "delta"
_FILES_LOG = "_spark_metadata"
_DELTA_LOG = "_delta_log"
_OWN = (CHECKPOINT, _FILES_LOG, _DELTA_LOG)
"What a directory has that an earlier call wrote."
_CREATED = f"{0:020}.json"
"The first entry in the log of a Delta table, which creates it without rows."
_ASKS = "Getting offsets"
"How the status of a query begins while its source finds the end of a batch."
_UNKNOWN_FORMAT = "DATA_SOURCE_NOT_FOUND"


class TableRefused(Invalid, ValueError):
    """The table cannot be written: other files are in its directory, or Spark does not know its format or columns."""


class TailFailed(Error):
    """The query ended with an error; the text is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What to write where.

    Raises:
        TableRefused: the directory has other files.
    """

    options: Mapping[str, str]
    'The options of ``format("afflux")``.'
    out: str
    "The directory of the table, on any file system of Spark."
    format: str = "parquet"
    "A format that Spark can write."
    schema: str | None = None
    "The columns of the data, such as ``carrier STRING, delay INT``; None: the default columns."
    partition_by: Sequence[str] = ()
    "Columns by whose values the files are distributed into directories."
    every_s: float = 0.0
    "The least seconds from the start of a batch to the start of the next."
    available_now: bool = False
    "End after the items that exist."
    log: str = "above"
    "Where the log of Spark is."

    def __post_init__(self) -> None:
        if not self.out.strip():
            raise TableRefused("the table needs a directory, and its name is empty")
        directory = self.directory
        if directory is None:
            return
        try:
            exists = directory.exists()
        except PermissionError as error:
            raise TableRefused(f"cannot read {self.out!r}: {error.strerror}") from error
        if exists and not directory.is_dir():
            raise TableRefused(f"{self.out} is a file: the table needs a directory")
        if directory.is_dir():
            self._check_files(directory)

    @property
    def directory(self) -> Path | None:
        """The directory; None if it is not on a file system of this process."""
        parts = urlsplit(self.out)
        return Path(parts.path) if parts.scheme in ("", "file") else None

    def _check_files(self, directory: Path) -> None:
        names = {path.name for path in directory.iterdir()}
        if names and not names.intersection(_OWN):
            raise TableRefused(f"{self.out} has files that are no table of this command: choose a new directory")
        other = _FILES_LOG if self.format == DELTA else _DELTA_LOG
        if _has_batches(directory / other):
            written = "other files of Spark, such as Parquet" if self.format == DELTA else "a Delta table"
            raise TableRefused(f"{self.out} has {written}, not --format {self.format}: choose a new directory")
        if CHECKPOINT not in names and any(_has_batches(directory / log) for log in (_FILES_LOG, _DELTA_LOG)):
            text = (
                f"{self.out} has a table, but not its checkpoint {CHECKPOINT}, which says how far the stream is in it"
            )
            raise TableRefused(f"{text}: choose a new directory")


def _has_batches(log: Path) -> bool:
    """Return whether a table's log has more than the table's creation."""
    return log.is_dir() and any(not path.name.startswith(".") and path.name != _CREATED for path in log.iterdir())


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that has ended."""

    number: int
    rows: int
    seconds: float
    credit: int | None
    "The most rows of a batch; None without ``maxRowsPerBatch``."
    lag: int
    "Items that the server has stored behind the end of the batch."
    state: tuple[str, ...]
    "What else the source reports, such as an outage or a full journal."

    def __str__(self) -> str:
        rate = self.rows / max(self.seconds, 1e-3)
        used = f"credit {self.rows:,} of {self.credit:,}, " if self.credit is not None else ""
        words = f"batch {self.number}: {self.rows:,} rows, {rate:,.0f} rows/s, {used}lag {self.lag:,}"
        return "; ".join((words, *self.state))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which no batch has ended."""

    seconds: float
    cause: str

    def __str__(self) -> str:
        return f"no batch for {self.seconds:.0f} s: {self.cause}"


@dataclass(slots=True)
class Summary:
    """The result of a call."""

    out: str
    batches: int = 0
    rows: int = 0
    end: dict[str, int] = field(default_factory=dict)
    "The offset after the last item, by shard."


def follow(
    spark: SparkSession, tail: Tail, report: Callable[[Batch | Stall], None], stops: Callable[[], int]
) -> Summary:
    """Write the stream into the table, and return what was written.

    Args:
        spark: the session.
        tail: what to write where.
        report: is called for each batch with rows, and while none ends.
        stops: returns how often a stop was requested so far (rule 3).

    Raises:
        TableRefused: Spark does not know the format or the columns.
        TailFailed: the query ended with an error.
    """
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        query = _start(spark, tail)
    except PySparkException as error:
        raise TableRefused(reason_of(str(error))) from None
    except Py4JJavaError as error:
        reason = java_reason_of(error.java_exception)
        hint = '; pass its package to Spark, such as --conf "spark.jars.packages=GROUP:ARTIFACT:VERSION"'
        raise TableRefused(reason + (hint if _UNKNOWN_FORMAT in reason else "")) from None
    try:
        watched = _Watch(query, tail, report)
        _until_stopped(query, watched, stops)
        query.stop()
        watched.look()
        return watched.summary
    except PySparkException as error:
        raise TailFailed(reason_of(str(error))) from None
    except (Py4JError, ConnectionError):
        raise TailFailed(f"{JVM_ENDED}; {CONTINUES}") from None
    finally:
        with suppress(PySparkException, Py4JError, ConnectionError):
            query.stop()


def java_reason_of(error: Any) -> str:
    """Return the reason in an exception of Java; with that of its first cause, if the text only introduces it."""
    reason = reason_of(str(error.getMessage()))
    cause = error
    while (further := cause.getCause()) is not None:
        cause = further
    return f"{reason} {reason_of(str(cause.getMessage()))}" if reason.endswith(":") else reason


def reason_of(text: str) -> str:
    """Return the reason in an error of Spark: the error at the end of Python's traceback if it has one, else its first
    line with the last cause in Java's, such as a full disk."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if line.startswith(("afflux.", "pyspark.errors."))]
    if raised:
        name, _, text = raised[-1].partition(": ")
        return text or name
    if not lines:
        return "an error of Spark without a text"
    if thrown := _thrown(text):
        return thrown
    chain = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    causes = [line.partition(": ")[2] or line for line in chain]
    return f"{lines[0]} ({causes[-1]})" if causes and causes[-1] not in lines[0] else lines[0]


def _thrown(text: str) -> str:
    """Return the first line of the error after the last traceback of Python in a text; nothing if it has none."""
    lines = text.splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[places[-1] :] if places else []
    return next((line for line in after if line and not line[0].isspace()), "")


def _start(spark: SparkSession, tail: Tail) -> StreamingQuery:
    if (directory := tail.directory) is not None:
        _forget_attempts(directory / CHECKPOINT)
    reader = spark.readStream.format("afflux").options(**tail.options)
    frame = (reader if tail.schema is None else reader.schema(tail.schema)).load()
    writer = frame.writeStream.option("checkpointLocation", f"{tail.out.rstrip('/')}/{CHECKPOINT}")
    if tail.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{tail.every_s:g} seconds")
    if tail.format == DELTA and not _knows_delta(spark):
        return _start_delta(spark, frame, writer, tail)
    if tail.partition_by:
        writer = writer.partitionBy(*tail.partition_by)
    return writer.format(tail.format).start(tail.out)


def _forget_attempts(checkpoint: Path) -> None:
    """Delete what a kill has left of the first batch, if none is in the log (rule 4)."""
    logs = [checkpoint / "offsets", checkpoint / "commits"]
    found = [path for log in logs if log.is_dir() for path in log.iterdir()]
    if all(path.name.startswith(".") and path.is_file() for path in found):
        for path in found:
            path.unlink(missing_ok=True)


def _knows_delta(spark: SparkSession) -> bool:
    """Return whether Spark has its own package for Delta, which then writes the table."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    sources: Any = spark.sparkContext._jvm
    for name in ("org", "apache", "spark", "sql", "execution", "datasources", "DataSource"):
        sources = getattr(sources, name)
    try:
        sources.lookupDataSource(DELTA, spark._jsparkSession.sessionState().conf())
    except (Py4JJavaError, PySparkException):
        return False
    return True


def _start_delta(spark: SparkSession, frame: DataFrame, writer: DataStreamWriter, tail: Tail) -> StreamingQuery:
    """Start a query whose Delta table is written by the package deltalake (delta.py)."""
    from afflux.spark import delta

    try:
        delta.prepare(tail.out, frame.schema, tail.partition_by)
    except delta.DeltaRefused as error:
        raise TableRefused(str(error)) from None
    spark.dataSource.register(delta.DeltaSink)
    options = {"path": delta.located(tail.out), "partitionBy": json.dumps(list(tail.partition_by))}
    return writer.format(delta.FORMAT).options(**options).start()


def _until_stopped(query: StreamingQuery, watched: _Watch, stops: Callable[[], int]) -> None:
    """Return after the query has ended, or when a stop permits to end it (rule 3)."""
    awaited: int | None = None
    while not query.awaitTermination(_CHECK_S):
        watched.look()
        if (requested := stops()) and awaited is None:
            awaited = watched.last + 1
        if requested > 1 or (awaited is not None and (watched.last >= awaited or not _busy(query))):
            return


def _busy(query: StreamingQuery) -> bool:
    """Return whether a batch runs. While the source waits for items no batch runs."""
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


class _Watch:
    """Reports the progress of a query."""

    def __init__(self, query: StreamingQuery, tail: Tail, report: Callable[[Batch | Stall], None]) -> None:
        self._query = query
        self._report = report
        self.last = -1
        "The last batch that has ended."
        self.summary = Summary(tail.out)
        credit = {name.lower(): text for name, text in tail.options.items()}.get("maxrowsperbatch")
        self._credit = None if credit is None else int(credit)
        self._log = tail.log
        self._since = time.monotonic()
        self._stall_s = _STALL_S
        self._latest: dict[str, Any] = {}

    def look(self) -> None:
        """Report the batches that have ended since the last time, or a stall."""
        for progress in self._query.recentProgress:
            source = progress["sources"][0]
            self._latest = _parsed(source["latestOffset"]) or self._latest
            if progress["batchId"] > self.last and progress["durationMs"].get("addBatch") is not None:
                self.last = progress["batchId"]
                self._ended(progress, source)
        waited = time.monotonic() - self._since
        if waited >= self._stall_s:
            self._stall_s *= 2
            self._report(Stall(seconds=waited, cause=self._cause()))

    def _ended(self, progress: Any, source: Any) -> None:
        self.summary.end = {shard: each["pos"] for shard, each in _shards(_parsed(source["endOffset"]))}
        if not (rows := progress["numInputRows"]):
            return
        self.summary.batches += 1
        self.summary.rows += rows
        self._since, self._stall_s = time.monotonic(), _STALL_S
        self._report(
            Batch(
                number=self.last,
                rows=rows,
                seconds=progress["durationMs"]["triggerExecution"] / 1000,
                credit=self._credit,
                lag=sum(each.get("lag", 0) for _, each in _shards(self._latest)),
                state=tuple(_states(self._latest)),
            )
        )

    def _cause(self) -> str:
        if outage := self._latest.get("reconnecting"):
            return f"the server is away: {outage}"
        if not self._latest and self.last < 0:
            doing = str(self._query.status["message"])
            if _ASKS in doing:
                return f"the query waits for the first answer of the server (see the log {self._log})"
            return f"Spark is starting the query: {doing}"
        if _busy(self._query):
            return (
                f"one is running; Spark or the table is slow, or a task waits for the server (see the log {self._log})"
            )
        return "the stream has no new items"


def _parsed(offset: Any) -> dict[str, Any]:
    """Return an offset of the source, which Spark passes as text or parsed."""
    parsed: dict[str, Any] = (json.loads(offset) if isinstance(offset, str) else offset) or {}
    return parsed


def _shards(offset: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, value) for name, value in offset.items() if isinstance(value, dict) and "pos" in value)


def _states(latest: Mapping[str, Any]) -> Iterator[str]:
    if outage := latest.get("reconnecting"):
        yield f"the server is away: {outage}"
    if outages := latest.get("reconnects"):
        yield f"{outages} reconnects"
    if full := [name for name, shard in _shards(latest) if shard.get("full")]:
        yield f"the journal is full: shard {', '.join(full)}"
