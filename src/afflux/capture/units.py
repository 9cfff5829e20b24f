"""Decode captures into tables: what the readers and the writers of tables on Spark and in one process share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from afflux.capture.ahead import KeyLogs, ahead
from afflux.capture.ciphers import needed
from afflux.capture.errors import CaptureError
from afflux.capture.groups import Group, groups_of
from afflux.capture.indexing import PART_BYTES, FileIndex, Run, index_of
from afflux.capture.packets import NO_TIME
from afflux.capture.places import CaptureFiles, Unreadable
from afflux.capture.reading import Capture
from afflux.capture.reassembly import Overlap
from afflux.capture.schemas import TABLES, schema
from afflux.capture.secrets import Secrets, key_log
from afflux.capture.skipping import lost
from afflux.capture.source import SHRUNK
from afflux.capture.tables import CHUNK, STALL, Analysis
from afflux.core.errors import Invalid
from afflux.core.limits import Limits
from afflux.protocols.registry import named, recognizable

if TYPE_CHECKING:
    import pyarrow as pa

    from afflux.filters import Filter

__all__ = ["Decoding", "Tail", "Unit", "units_of"]


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a capture whose flows are decoded apart."""

    time: int
    "The time of the last packet, in nanoseconds."
    file: str
    "The file with it."


Unit = tuple[Group, Tail] | Path | FileIndex | Unreadable
"""What one task decodes: a group of flows, a compressed capture, what a file has that cannot be decoded, or a file that
cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How captures are decoded. Sent to tasks.

    Raises:
        Invalid: there is no such table, or a stall takes no time.
    """

    tables: tuple[str, ...] = tuple(TABLES)
    "The tables that are wanted."
    payload: bool = False
    "``frames`` has metadata and data."
    protocol: str | None = None
    "The only protocol that is recognized; None: all."
    ports: Mapping[int, str] = field(default_factory=dict)
    "The protocol of a server's port, used where the first bytes decide nothing."
    where: Filter | None = None
    "Selects rows of ``frames``."
    stall_s: float = STALL
    "Seconds without an item that are a stall."
    keylog: str | None = None
    "A file with the secrets that decrypt TLS. Those in a capture are used as well if one task decodes all of it."
    overlap: Overlap = "first"
    "Which copy of repeated bytes counts; see ``Flows``."
    limits: Limits = field(default_factory=Limits.server)

    def __post_init__(self) -> None:
        for table in self.tables:
            if table not in TABLES:
                raise Invalid(f"there is no table {table!r}; there are {', '.join(TABLES)}", rule="table")
        if not self.stall_s > 0:
            raise Invalid(f"a stall takes more than 0 seconds, not {self.stall_s}", rule="stall")

    def schema(self, table: str) -> pa.Schema:
        """Return the schema of a table."""
        return schema(table, payload=self.payload)

    def of(self, unit: Unit, *, dictionaries: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of a unit, with the names of their tables. ``dictionaries``: see ``Analysis``.

        Raises:
            CaptureError: a capture has become shorter, or is none.
            OSError: a file cannot be read.
        """
        if isinstance(unit, Path):
            yield from self.files([unit], dictionaries=dictionaries)
        elif isinstance(unit, Unreadable):
            analysis = self._analysis(None, dictionaries)
            analysis.until(NO_TIME, str(unit.path))
            yield from analysis.damaged(0, "unreadable", unit.reason).items()
        elif isinstance(unit, FileIndex):
            analysis = self._analysis(None, dictionaries)
            analysis.until(unit.last_time, unit.path)
            if unit.problem is not None:
                yield from analysis.damaged(unit.problem.offset, unit.problem.word, unit.problem.text).items()
            yield from analysis.skipped(unit.skipped, unit.first_skipped).items()
        else:
            yield from self._group(*unit, dictionaries)

    def files(self, paths: Sequence[Path], *, dictionaries: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of the files of one capture, which are in the order of their packets. ``dictionaries``: see
        ``Analysis``.

        Raises:
            CaptureError: a file is no capture, or has become shorter while it was read.
            OSError: a file cannot be read.
        """
        secrets = self._secrets() or Secrets(self.limits)
        analysis = self._analysis(secrets, dictionaries)
        for path in paths:
            analysis.file = str(path)
            with path.open("rb") as file:
                logs = KeyLogs(self.limits)
                capture = Capture(file, limits=self.limits, chunk=CHUNK, secrets=logs)
                for packets, found in ahead(capture, analysis.batches.network, logs, secrets):
                    yield from self._selected(analysis.take(packets, found))
            if capture.problem is not None:
                problem = capture.problem
                if problem.word == SHRUNK:
                    raise CaptureError(f"{path}: {problem.text}")
                yield from analysis.damaged(problem.offset, problem.word, problem.text).items()
            yield from analysis.passed().items()
        yield from self._selected(analysis.end())
        yield from analysis.passed().items()

    def _group(self, group: Group, tail: Tail, dictionaries: bool) -> Iterator[tuple[str, pa.RecordBatch]]:
        analysis = self._analysis(self._secrets(), dictionaries)
        for batch in group.batches():
            analysis.file = batch.file
            yield from self._selected(analysis.take(batch.packets, batch.segments))
        analysis.until(tail.time, tail.file)
        yield from self._selected(analysis.end())

    def _analysis(self, secrets: Secrets | None, dictionaries: bool) -> Analysis:
        return Analysis(
            self.limits,
            recognizable() if self.protocol is None else (named(self.protocol),),
            ports={port: named(name) for port, name in self.ports.items()},
            tables=self.tables,
            payload=self.payload,
            stall_s=self.stall_s,
            secrets=secrets,
            overlap=self.overlap,
            dictionaries=dictionaries and self.where is None,
        )

    def _secrets(self) -> Secrets | None:
        """Return the secrets of the key log. Raises what ``key_log`` does, and MissingExtra without the library that
        decrypts."""
        if self.keylog is None:
            return None
        needed()
        return key_log(self.keylog, self.limits)

    def _selected(self, found: Mapping[str, pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for table, batch in found.items():
            chosen = batch
            if table == "frames" and self.where is not None:
                chosen = batch.filter(self.where.mask(batch))
            if len(chosen):
                yield table, chosen


def units_of(
    files: CaptureFiles,
    limits: Limits,
    *,
    run: Run | None = None,
    index_dir: Path | None = None,
    part_bytes: int = PART_BYTES,
    count: int | None = None,
) -> list[Unit]:
    """Index captures, and return what can be decoded apart.

    Args:
        files: the captures.
        limits: the bounds of a capture.
        run: see ``index_of``, like ``index_dir`` and ``part_bytes``.
        index_dir: a directory for the indexes.
        part_bytes: bytes of a part of a file.
        count: see ``groups_of``.

    Raises:
        CaptureError: there is no place for an index.
        OSError: a file cannot be read, or an index not be written.
    """
    indexes = [index_of(path, limits, run=run, index_dir=index_dir, part_bytes=part_bytes) for path in files.plain]
    with_packets = [index for index in indexes if index.packets]
    tail = Tail(with_packets[-1].last_time if with_packets else NO_TIME, indexes[-1].path if indexes else "")
    damaged = [
        replace(index, parts=[])
        for index in indexes
        if index.problem is not None or any(lost(index.skipped, index.first_skipped))
    ]
    return [*((group, tail) for group in groups_of(indexes, count)), *files.compressed, *damaged, *files.unreadable]
