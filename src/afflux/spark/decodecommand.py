"""Run ``afflux spark decode`` (cli/spark.py): with a session of Spark, or in this process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from afflux.capture.indexing import check_places
from afflux.capture.output import check_output, write_tables
from afflux.capture.places import CaptureFiles, captures_in
from afflux.capture.report import ready, title_of, write
from afflux.capture.schemas import TABLES
from afflux.capture.units import Decoding
from afflux.spark.captureoptions import CaptureOptions
from afflux.spark.declaring import OptionError

__all__ = ["HERE", "Asked", "run"]

HERE = "none"
"The master that stands for this process, without Spark."
_AGAIN: Final = "the tables are as they were before: run the command again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command was asked for."""

    paths: Sequence[str]
    out: str
    tables: str | None
    "Names with commas; None for all."
    options: Mapping[str, str]
    'Options of ``format("afflux-capture")``.'
    partition_by: Sequence[str]
    index_dir: Path | None
    html: Path | None
    "The file of a report about the tables."
    master: str
    conf: Mapping[str, str]


def run(asked: Asked, report: Callable[[str], None]) -> dict[str, Any]:
    """Decode, write the report, and return the result of the command.

    Raises:
        OptionError: an option is invalid.
        CaptureError, OutputRefused, DecodeFailed, OSError: see ``capturejob.decode``.
        MissingExtra: a report was asked for, and the extra ``report`` is missing.
    """
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupted)
    decoding = _decoding(asked)
    if asked.html is not None:
        ready(asked.html)
    if asked.master == HERE:
        rows = write_tables(asked.paths, asked.out, decoding, partition_by=asked.partition_by, report=report)
    else:
        rows = _with_spark(asked, _checked(asked, report), decoding, report)
    if asked.html is not None:
        size = write(asked.out, asked.html, title=title_of(asked.paths))
        report(f"report written: {asked.html}, {size:,} bytes")
    return {"out": asked.out, "rows": rows, "seconds": round(time.monotonic() - begun, 1)}


def _interrupted(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _checked(asked: Asked, report: Callable[[str], None]) -> CaptureFiles:
    """Return the captures. Raises before Spark starts what would end the job after that: a path that is no capture, an
    output that cannot be replaced, a directory that cannot be written."""
    files = captures_in(asked.paths, report)
    check_output(asked.out)
    check_places(files.plain, asked.index_dir)
    return files


def _with_spark(asked: Asked, files: CaptureFiles, decoding: Decoding, report: Callable[[str], None]) -> dict[str, int]:
    from afflux.spark.capturejob import decode
    from afflux.spark.leaving import session_of

    report(f"starting Spark on {asked.master}")
    with session_of("afflux spark decode", asked.master, _AGAIN, **asked.conf) as session:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler would only cancel the job
        report(f"Spark {session.version} on {asked.master}: {', '.join(asked.paths)} into {asked.out}")
        return decode(
            session, files, asked.out, decoding, report, partition_by=asked.partition_by,
            index_dir=asked.index_dir,
        )  # fmt: skip


def _decoding(asked: Asked) -> Decoding:
    made = CaptureOptions.parse(dict(asked.options) | {"paths": '["."]'}).decoding
    names = tuple(TABLES) if asked.tables is None else tuple(name.strip() for name in asked.tables.split(","))
    for name in names:
        if name not in TABLES:
            raise OptionError(f"--tables: there is no table {name!r}; there are {', '.join(TABLES)}")
    if made.where is not None and "frames" not in names:
        raise OptionError("--where selects rows of the table frames, which is not among --tables")
    for column in asked.partition_by:
        kinds = [one.type for name in names for one in TABLES[name] if one.name == column]
        if not kinds:
            raise OptionError(f"--partition-by: none of the tables has a column {column!r}")
        if "<" in kinds[0]:
            raise OptionError(f"--partition-by: {column!r} is {kinds[0]}: directories need a single value")
    return replace(made, tables=tuple(name for name in TABLES if name in names))
