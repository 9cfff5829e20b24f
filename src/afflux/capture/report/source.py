"""Read capture tables for a report: from a directory of Parquet files, from a function that makes them, or once.

A report needs two passes. The first reads the small tables and selects the streams that the page shows in detail; the
second reads frames and credit. Does not decode captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from afflux.capture.errors import CaptureError
from afflux.capture.output import MARK, other_version
from afflux.capture.schemas import schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "DETAILS", "TABLES", "Batches", "Directory", "Source"]

Batch = tuple[str, "pa.RecordBatch"]
Batches = Iterable[Batch]
"Names of tables, each with some of its rows, as ``afflux.capture.analyze`` yields them."
Source = str | Path | Callable[[frozenset[str]], Batches] | Batches
"A directory with a Parquet table in each subdirectory; a function from names of tables to batches; or batches."

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "connections": (
        *("conn", "file", "protocol", "content", "client", "server", "opened", "closed", "closing", "closed_by"),
        *("announced_by", "one_way", "client_bytes", "server_bytes", "client_packets", "server_packets"),
        *("lost_bytes", "frames", "streams", "violations"),
    ),
    "streams": (
        *("conn", "stream", "protocol", "kind", "requester", "route", "history", "first", "last", "items_in"),
        *("items_out", "ended", "code", "stalls", "stalled_s", "longest_stall_s"),
    ),
    "stalls": (
        *("conn", "stream", "dir", "start", "stop", "seconds", "cause", "after_type", "after_dir", "after_offset"),
        *("resumed_by", "route"),
    ),
    "latencies": ("kind", "route", "first_s", "total_s"),
    "violations": (
        *("conn", "ts", "dir", "stream", "type", "offset", "rule", "reason", "expected", "kind", "file", "packet"),
    ),
    "credit": ("conn", "stream", "dir", "ts", "event", "n", "granted", "used", "balance"),
    "frames": ("conn", "ts", "dir", "stream", "type", "n", "length", "packet"),
}
"The columns of each table that a report reads."

TABLES: Final = frozenset(("connections", "streams", "stalls", "latencies", "violations"))
"The tables of the first pass."
DETAILS: Final = frozenset(("connections", "stalls", "frames", "credit"))
"The tables of the second pass."


class NoTables(CaptureError):
    """The directory contains none of the tables."""


class Directory:
    """The tables of a directory. A call yields the rows of some of them; those that are absent have none.

    Args:
        path: the directory.
        whole: read all columns of ``afflux.capture.schemas``, not only those of a report.

    Raises:
        NoTables: the directory contains none of the tables.
        CaptureError: it contains tables of another version.
    """

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._places = {name: place for name in COLUMNS if (place := _place(path, name)) is not None}
        self._whole = whole
        if not self._places:
            raise NoTables(
                f"{path}: no capture tables; expected a directory of Parquet files for each table, such as "
                f"{path}/streams, as afflux spark decode --out writes them"
            )
        if (path / MARK).exists() and (text := other_version(path)) is not None:
            raise CaptureError(f"{text}: decode the captures again")

    @property
    def absent(self) -> frozenset[str]:
        """The tables that the directory does not have."""
        return frozenset(COLUMNS) - self._places.keys()

    def __call__(self, tables: frozenset[str]) -> Iterator[Batch]:
        """Yield the rows of some tables, each with the name of its table. Raises CaptureError."""
        return _read({name: place for name, place in self._places.items() if name in tables}, self._whole)


def _place(path: Path, name: str) -> Path | None:
    """Return where the files of a table are; None for a directory without files as for no directory."""
    return next((place for place in (path / name, path / f"{name}.parquet") if _has_files(place)), None)


def _has_files(place: Path) -> bool:
    if not place.is_dir():
        return place.exists()
    return any(one.is_file() and not one.name.startswith((".", "_")) for one in place.rglob("*"))


def _read(places: Mapping[str, Path], whole: bool) -> Iterator[Batch]:
    for name, place in places.items():
        for batch in _batches(name, place, tuple(schema(name).names) if whole else COLUMNS[name]):
            yield name, batch


def _batches(name: str, place: Path, columns: tuple[str, ...]) -> Iterator[Any]:
    """Yield the rows of one table; files whose names begin with ``_`` or ``.`` are skipped.

    Raises:
        CaptureError: a file is damaged, or has not the columns of this version.
    """
    import pyarrow as pa
    from pyarrow import dataset

    try:
        table = dataset.dataset(place, format="parquet", partitioning="hive")
        if not table.files:
            return
        if missing := [column for column in columns if column not in table.schema.names]:
            raise CaptureError(
                f"{place}: the table has no column {missing[0]!r}; another version of afflux wrote it, "
                "so decode the capture again"
            )
        wanted = pa.schema([schema(name).field(column) for column in columns])
        for batch in table.to_batches(columns=list(columns), batch_size=1 << 16):
            yield batch.cast(wanted)
    except (pa.ArrowInvalid, OSError) as error:
        raise CaptureError(f"{place}: not readable as Parquet: {error}") from error
