"""Write tables as Parquet into a directory that is complete or not there: a run replaces the tables of the one before.

Rules:

1. Files are written into a directory beside the one that is asked for. At the end both change places at once. A process
   that is killed leaves the old tables as they were, and the next run removes what it has left.
2. Each attempt of a task has a directory of its own. Only the files of attempts that are named at the end are taken, so
   an attempt that is repeated or lost adds no rows.
3. A directory that has anything but tables of this version is refused.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from afflux.capture.order import warning
from afflux.capture.places import captures_in, local
from afflux.capture.schemas import TABLES
from afflux.capture.scratch import named_if_full, nearest, probe, replace_directory, scratch, sweep
from afflux.capture.units import Decoding
from afflux.capture.wording import undecoded
from afflux.core.errors import Invalid

__all__ = [
    "MARK",
    "Attempt",
    "Output",
    "OutputRefused",
    "TableWriter",
    "check_output",
    "opened",
    "other_version",
    "write_tables",
]

VERSION: Final = 1
"The version of the tables."
MARK: Final = "_afflux.json"
"The file that marks a directory with tables. Readers of Parquet skip names that begin with an underscore."
_ROW_GROUPS: Final = 256
"Writes into one file: its writer keeps what it knows of each row group until the file is closed."
_FLUSH_BYTES: Final = 0x200_0000
"Bytes of a table in memory after which they are written."


class OutputRefused(Invalid, ValueError):
    """The output cannot be replaced: a directory has other files or tables of another version, or a file is no page. Or
    a table cannot be distributed by a column, which has too many values."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt of a task has written."""

    directory: str
    rows: dict[str, int]
    "Rows by table."
    disordered: int = 0
    "Connections whose packets are not in the order of time."
    late: tuple[str, int] = ("", 0)
    "The file and the number of the first such packet."
    undecoded: int = 0
    "Connections that could not be decoded."
    begin: tuple[str, int] = ("", 0)
    "The file and the number of the first packet of these."


@dataclass(slots=True)
class Output:
    """A directory of tables in the making."""

    place: Path
    made: Path
    "Where attempts have their directories."
    decoding: Decoding
    rows: dict[str, int] = field(default_factory=dict)
    "The rows of each table, after ``publish``."
    warnings: list[str] = field(default_factory=list)
    "What is to be told, after ``publish``."

    def publish(self, attempts: Sequence[Attempt], about: Mapping[str, Any]) -> None:
        """Make the files of these attempts the tables of the directory. Raises OSError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        final = self.made / "final"
        for table in self.decoding.tables:
            (final / table).mkdir(parents=True)
            self.rows[table] = sum(attempt.rows.get(table, 0) for attempt in attempts)
        if disordered := [attempt for attempt in attempts if attempt.disordered]:
            connections = sum(attempt.disordered for attempt in disordered)
            self.warnings.append(warning(connections, *min(attempt.late for attempt in disordered)))
        if without := [attempt for attempt in attempts if attempt.undecoded]:
            connections = sum(attempt.undecoded for attempt in without)
            self.warnings.append(undecoded(connections, *min(attempt.begin for attempt in without)))
        for attempt in attempts:
            base = Path(attempt.directory)
            for path in sorted(base.rglob("*.parquet")):
                target = final / path.relative_to(base)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        for table in self.decoding.tables:
            if not self.rows[table]:
                empty = pa.Table.from_batches([], self.decoding.schema(table))
                pq.write_table(empty, final / table / "part-empty.parquet")
        mark = {"version": VERSION, "rows": self.rows} | dict(about)
        (final / MARK).write_text(json.dumps(mark, indent=1) + "\n")
        check(self.place)
        replace_directory(final, self.place)


@contextmanager
def opened(out: str, decoding: Decoding) -> Iterator[Output]:
    """Begin to write tables into a directory; ``Output.publish`` ends it.

    Raises:
        CaptureError: it is in an object store.
        OutputRefused: the directory cannot be replaced.
        OSError: the directory beside it cannot be written.
    """
    place = Path(local(out)).absolute()
    check(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{place.name}.tmp-"
    sweep(place.parent, prefix, place)
    with scratch(place.parent, prefix) as made:
        yield Output(place, made, decoding)


def check_output(out: str) -> None:
    """Check that tables can be written into a directory, before long work. Raises as ``opened``."""
    place = Path(local(out)).absolute()
    check(place)
    probe(nearest(place.parent))


def check(place: Path) -> None:
    """Raise OutputRefused if a directory cannot be replaced (rule 3)."""
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputRefused(f"{place} is a file: the tables need a directory", rule="output")
    names = {path.name for path in place.iterdir()}
    if names and MARK not in names:
        raise OutputRefused(f"{place} has files that are no capture tables: choose a new directory", rule="output")
    if others := sorted(names - {MARK, *TABLES}):
        raise OutputRefused(
            f"{place} also has {others[0]!r}, which would be lost: choose a new directory", rule="output"
        )
    if names and (text := other_version(place)) is not None:
        raise OutputRefused(f"{text}: choose a new directory, or remove that one", rule="output")


def other_version(place: Path) -> str | None:
    """Return what is wrong with the version of the tables in a directory, which has ``MARK``; None for nothing."""
    try:
        version = json.loads((place / MARK).read_text())["version"]
    except (ValueError, KeyError, TypeError):
        version = "unknown"
    if version == VERSION:
        return None
    return f"{place} has tables of version {version}, and this afflux reads and writes version {VERSION}"


class TableWriter:
    """Writes the tables of one attempt as Parquet files.

    Args:
        made: see ``Output.made``.
        decoding: what is written.
        partition_by: columns by whose values the files of a table are distributed, if it has them.
    """

    def __init__(self, made: Path, decoding: Decoding, partition_by: Sequence[str] = ()) -> None:
        self._directory = made / f"attempt-{uuid4().hex}"
        self._decoding = decoding
        self._partition_by = partition_by
        self._waiting: dict[str, list[Any]] = {}
        self._bytes: dict[str, int] = {}
        self._writers: dict[str, Any] = {}
        self._writes = Counter[str]()
        self._rows: dict[str, int] = {}
        self._disordered = self._undecoded = 0
        self._late = self._begin = ("", 0)
        self._thread = ThreadPoolExecutor(1, "afflux-tables")
        self._writing: Future[None] | None = None

    @property
    def wanted(self) -> Decoding:
        """What to decode: violations as well, because some are told."""
        return replace(self._decoding, tables=(*self._decoding.tables, "violations"))

    @property
    def dictionaries(self) -> bool:
        """Whether batches may have dictionary arrays, which are faster to write."""
        return not self._partition_by

    def take(self, found: Iterable[tuple[str, Any]]) -> Attempt:
        """Write all rows; remove the files if that fails. Raises OSError, and what ``found`` raises."""
        try:
            for table, batch in found:
                self.add(table, batch)
            return self.close()
        except BaseException:
            self.discard()
            raise

    def add(self, table: str, batch: Any) -> None:
        """Add rows. Raises OSError."""
        if table == "violations":
            self._note(batch)
        if table not in self._decoding.tables:
            return
        self._waiting.setdefault(table, []).append(batch)
        self._rows[table] = self._rows.get(table, 0) + len(batch)
        self._bytes[table] = self._bytes.get(table, 0) + batch.nbytes
        if self._bytes[table] >= _FLUSH_BYTES:
            self._flush(table)

    def _note(self, batch: Any) -> None:
        """Count connections whose packets are not in the order of time, and those that could not be decoded.
        ``pyarrow.compute`` would import pandas to compare a column with a word."""
        kinds, file, packet = batch["kind"].to_pylist(), batch["file"], batch["packet"]
        late = [row for row, kind in enumerate(kinds) if kind == "order"]
        if late and not self._disordered:
            self._late = file[late[0]].as_py(), packet[late[0]].as_py()
        self._disordered += len(late)
        without = [row for row, kind in enumerate(kinds) if kind == "undecoded" and batch["conn"][row].is_valid]
        if without:
            first = min((file[row].as_py(), packet[row].as_py() or 0) for row in without)
            self._begin = min(self._begin, first) if self._undecoded else first
        self._undecoded += len(without)

    def close(self) -> Attempt:
        """Write the rest. Raises OSError."""
        for table in list(self._waiting):
            self._flush(table)
        self._written()
        self._thread.shutdown()
        for writer in self._writers.values():
            writer.close()
        return Attempt(str(self._directory), self._rows, self._disordered, self._late, self._undecoded, self._begin)

    def discard(self) -> None:
        """Remove what was written."""
        self._thread.shutdown()
        for writer in self._writers.values():
            writer.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _flush(self, table: str) -> None:
        """Write the rows of a table beside the decoding of more; one write at a time."""
        batches, self._bytes[table] = self._waiting.pop(table, []), 0
        if batches:
            self._written()
            self._writing = self._thread.submit(self._write, table, batches)

    def _written(self) -> None:
        """Wait for the end of a write. Raises OSError."""
        if self._writing is not None:
            self._writing.result()

    def _write(self, table: str, batches: list[Any]) -> None:
        import pyarrow as pa

        rows = pa.Table.from_batches(batches).unify_dictionaries()
        columns = [name for name in self._partition_by if name in rows.schema.names]
        if columns:
            self._partitioned(table, rows, columns)
            return
        if table not in self._writers:
            self._writers[table] = self._writer(table, rows.schema)
        self._writers[table].write_table(rows)
        self._writes[table] += 1
        if self._writes[table] % _ROW_GROUPS == 0:
            self._writers.pop(table).close()

    def _writer(self, table: str, schema: Any) -> Any:
        """Begin a file of a table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        (self._directory / table).mkdir(parents=True, exist_ok=True)
        path = self._directory / table / f"part-{uuid4().hex}.parquet"
        plain = self._decoding.schema(table)
        texts = [one.name for one in plain if pa.types.is_string(one.type)]
        numbers = [one.name for one in plain if pa.types.is_primitive(one.type)]
        return pq.ParquetWriter(
            path, schema, use_dictionary=texts, write_statistics=numbers, compression="snappy", store_schema=False
        )

    def _partitioned(self, table: str, rows: Any, columns: Sequence[str]) -> None:
        import pyarrow as pa
        import pyarrow.dataset as ds

        try:
            ds.write_dataset(
                rows, self._directory / table, format="parquet", basename_template=f"part-{uuid4().hex}-{{i}}.parquet",
                partitioning=ds.partitioning(pa.schema([rows.schema.field(name) for name in columns]), flavor="hive"),
                existing_data_behavior="overwrite_or_ignore",
            )  # fmt: skip
        except pa.ArrowInvalid as error:  # more directories than it makes
            text = f"the table {table} cannot be distributed by {', '.join(columns)}: {error}"
            raise OutputRefused(text, rule="output") from None


def write_tables(
    paths: Sequence[str],
    out: str,
    decoding: Decoding | None = None,
    *,
    partition_by: Sequence[str] = (),
    report: Callable[[str], None] | None = None,
) -> dict[str, int]:
    """Decode captures into Parquet tables in this process; return the rows of each table.

    Args:
        paths: files, patterns and directories; see ``captures_in``.
        out: the directory of the tables, which a repeated call replaces.
        decoding: what is decoded; everything but the payload by default.
        partition_by: see ``TableWriter``.
        report: see ``captures_in``; it is also called with what is to be told at the end.

    Raises:
        CaptureError: a file is no capture, or there is none.
        OutputRefused: the directory has other content.
        OSError: a file cannot be read or written. The directory is then as it was before.
    """
    decoding = Decoding() if decoding is None else decoding
    files = captures_in(paths, report)
    with opened(out, decoding) as output, named_if_full(out):
        writer = TableWriter(output.made, decoding, partition_by)
        found = chain.from_iterable(
            (
                *(writer.wanted.files(capture, dictionaries=writer.dictionaries) for capture in files.captures),
                *map(writer.wanted.of, files.unreadable),
            )
        )
        output.publish([writer.take(found)], {"captures": [str(path) for one in files.captures for path in one]})
    if report is not None:
        for text in output.warnings:
            report(f"warning: {text}")
    return output.rows
