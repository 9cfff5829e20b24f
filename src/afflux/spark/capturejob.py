"""Decode captures into Parquet tables with a Spark job: index them, decode groups of flows, publish the tables.

A task writes its files itself, with pyarrow. Their names are in the task's result, and only files named in results
become part of the tables: what a repeated or a speculative task has written is removed (capture/output.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from afflux.capture.groups import Group
from afflux.capture.indexing import Job, run_job
from afflux.capture.output import Attempt, TableWriter, opened
from afflux.capture.parts import Part
from afflux.capture.places import CaptureFiles, captures_in
from afflux.capture.scratch import named_if_full
from afflux.capture.units import Decoding, Unit, units_of
from afflux.core.errors import Error
from afflux.spark.memory import give_back
from afflux.spark.tail import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DecodeFailed", "decode"]

_REPORT_S: Final = 2.0
"Seconds between two looks at the progress."
_REPEAT_S: Final = 10.0
"Seconds after which a line about the progress is repeated."
_MOST: Final = 100_000
_T = TypeVar("_T")
_R = TypeVar("_R")


class DecodeFailed(Error):
    """The job ended with an error; the text is its reason. The tables are as they were before."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Runs functions as tasks of Spark, and reports how far they are."""

    spark: SparkSession
    report: Callable[[str], None]

    def run(self, what: str, work: Callable[[_T], _R], inputs: Sequence[_T]) -> list[_R]:
        """Return the results of all inputs. Raises DecodeFailed."""
        from py4j.protocol import Py4JJavaError
        from pyspark import inheritable_thread_target
        from pyspark.errors import PySparkException

        if not inputs:
            return []
        context = self.spark.sparkContext
        found: list[list[_R]] = []
        failed: list[BaseException] = []

        def collect() -> None:
            try:
                slices = min(len(inputs), _MOST)
                found.append(context.parallelize(inputs, slices).map(work).collect())
            except BaseException as error:
                failed.append(error)

        group = f"afflux decode: {what}"
        context.setJobGroup(group, group, interruptOnCancel=True)
        thread = threading.Thread(target=inheritable_thread_target(self.spark)(collect), daemon=True)
        thread.start()
        progress = _Progress(self, what, group)
        try:
            while thread.is_alive():
                thread.join(_REPORT_S)
                progress.look()
        except BaseException:
            with suppress(Exception):  # of a JVM that has ended, too
                context.cancelJobGroup(group)
            raise
        if failed:
            error = failed[0]
            if isinstance(error, Py4JJavaError):
                raise DecodeFailed(reason_of(str(error.java_exception.getMessage()))) from None
            if isinstance(error, PySparkException):
                raise DecodeFailed(reason_of(str(error))) from None
            raise error
        return found[0]


@dataclass(slots=True)
class _Progress:
    """Reports how far a job is: when a task has ended, and now and then."""

    tasks: Tasks
    what: str
    group: str
    last: str = ""
    since: float = 0.0

    def look(self) -> None:
        """Report if there is news. Raises Py4JError if the JVM does not answer."""
        tracker = self.tasks.spark.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(self.group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                state = tracker.getStageInfo(stage)
                if state is not None and state.numActiveTasks:
                    self._say(f"{self.what}: {state.numCompletedTasks} of {state.numTasks} tasks")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if text != self.last or now - self.since >= _REPEAT_S:
            self.last, self.since = text, now
            self.tasks.report(text)


def decode(
    spark: SparkSession,
    paths: Sequence[str] | CaptureFiles,
    out: str,
    decoding: Decoding,
    report: Callable[[str], None],
    *,
    partition_by: Sequence[str] = (),
    index_dir: Path | None = None,
) -> dict[str, int]:
    """Decode captures into the tables of a directory; return the rows of each table.

    Args:
        spark: the session; its tasks must see the captures and the directory under the same paths.
        paths: see ``captures_in``; or what it has returned.
        out: the directory, which is replaced when all is decoded.
        decoding: what is decoded.
        report: is called with lines about the progress.
        partition_by: see ``TableWriter``.
        index_dir: a directory for the indexes.

    Raises:
        CaptureError: a file is no capture, or there is none.
        OutputRefused: the directory has other content.
        DecodeFailed: a task has failed, and so have its repetitions.
        OSError: the directory cannot be written.
    """
    files = paths if isinstance(paths, CaptureFiles) else captures_in(paths, report)
    jobs = Tasks(spark, report)

    def index(parts: Sequence[Job]) -> list[Part | None]:
        return jobs.run("index", run_job, parts)

    with opened(out, decoding) as output:
        units = units_of(files, decoding.limits, run=index, index_dir=index_dir)
        report(f"{len(files.plain) + len(files.compressed)} captures, {len(units)} tasks")
        work = partial(write_unit, str(output.made), decoding, tuple(partition_by))
        attempts = jobs.run("decode", work, sorted(units, key=_size, reverse=True))
        with named_if_full(out):
            output.publish(attempts, {"captures": [str(path) for one in files.captures for path in one]})
    for text in output.warnings:
        report(f"warning: {text}")
    return output.rows


def _size(unit: Unit) -> int:
    """Return about how long a unit takes: the longest ones begin first."""
    if isinstance(unit, tuple):
        group: Group = unit[0]
        return group.bytes
    return unit.stat().st_size if isinstance(unit, Path) else 0


def write_unit(made: str, decoding: Decoding, partition_by: Sequence[str], unit: Unit) -> Attempt:
    """Decode a unit into files of this attempt. Raises as ``Decoding.of``."""
    try:
        with named_if_full(made):
            return _written(TableWriter(Path(made), decoding, partition_by), unit)
    finally:
        give_back()


def _written(writer: TableWriter, unit: Unit) -> Attempt:
    return writer.take(writer.wanted.of(unit, dictionaries=writer.dictionaries))
