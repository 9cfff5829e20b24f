"""Read the rows that ``afflux inspect`` was asked for, from captures or from a directory of tables."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from afflux.cli.exits import usage
from afflux.cli.inputs import existing
from afflux.cli.telling import tell
from afflux.core.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

    from afflux.capture.report.source import Directory
    from afflux.filters import Filter

__all__ = ["Rows", "Source", "captures", "directory", "first", "records"]

MOST_SELECTED: Final = 0x4_0000
"Streams that a filter may select, and routes that it may need: they are in memory."

_PLACES: Final = frozenset(("connections", "streams"))
"The tables that show whether a connection or a stream is there."

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Batches = Iterator[tuple[str, "pa.RecordBatch"]]
Source = Callable[[frozenset[str]], Batches]
"Yields the rows of some tables, with the name of the table, at each call from the beginning."


def captures(files: list[str], **options: Any) -> Source:
    """Return the tables of captures. Exits with a usage error if a file does not exist.

    Args:
        files: their names; ``-`` for stdin, which can be read only once. Copies are passed over, with a line on stderr.
        options: see ``afflux.capture.analyze``.
    """
    for name in files:
        if name != "-":
            existing(
                name, "FILE", regular=True, instead=f"; read it from stdin: afflux inspect - < {shlex.quote(name)}"
            )
    if len(files) > 1:
        from afflux.capture.places import distinct

        files = distinct(files, lambda text: tell(f"afflux: {text}", wrapped=True))

    def read(tables: frozenset[str]) -> Batches:
        from afflux.capture import analyze

        given: list[Any] = [sys.stdin.buffer if name == "-" else name for name in files]
        return analyze(given, tables=tables, **options)

    return read


def directory(path: Path) -> Directory:
    """Return the tables of a directory, with all columns. Exits with a usage error if it has none.

    Raises:
        CaptureError: it has tables of another version.
    """
    from afflux.capture.report.source import Directory, NoTables

    try:
        return Directory(path, whole=True)
    except NoTables as error:
        from afflux.capture.places import captures_among

        there = captures_among(path.iterdir())
        if found := there.plain or there.compressed:
            usage(
                f"FILE: the directory {path} has captures, and no tables: name files, such as {path / found[0].name}, "
                f"or make tables of all: afflux spark decode {shlex.quote(str(path))} --out DIR"
            )
        usage(f"FILE: {error.message}")


class NothingSelected(Error):
    """The connection, the stream or a frame that was asked for is not there."""


class Rows:
    """The rows that were asked for, read anew at each call.

    Args:
        source: the tables.
        conn: only this connection.
        stream: only streams with this id.
        where: only streams with a frame that this filter selects, and their connections. The source is read before.
        absent: tables that the source does not have.

    Raises:
        NothingSelected: no frame is selected.
    """

    def __init__(
        self,
        source: Source,
        *,
        conn: str | None,
        stream: int | None,
        where: Filter | None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self._source, self._conn, self._stream = source, conn, stream
        self.absent = absent
        "Tables that the source does not have."
        self._selected: tuple[pa.Array, pa.Array] | None = None
        "The keys of the selected streams, and their connections."
        self.broken = 0
        "Broken rules."
        self.torn = 0
        "Frames that are not whole in the capture."
        self.damaged: dict[str, str] = {}
        "Files that could not be read to their end, and why."
        self.disordered = 0
        "Connections whose packets are not in the order of time."
        self.late: tuple[str, int] = ("", 0)
        "The file and the number of the first such packet."
        for option, given, table in (("--conn", conn, "connections"), ("--stream", stream, "streams")):
            if given is not None:
                self.need(option, table)
        if where is not None:
            self.need("--where", "frames")
            if "route" in where.columns:
                self.need("--where with route", "streams")
            self._selected = self._select(where)

    def need(self, option: str, table: str) -> None:
        """Exit with a usage error if an option needs a table that is absent."""
        if table in self.absent:
            from afflux.capture.schemas import TABLES

            there = ", ".join(name for name in TABLES if name not in self.absent)
            usage(
                f"{option} needs the table {table}, and the directory has only {there}: decode the captures again, "
                f"with {table} among --tables or without --tables"
            )

    def of(self, tables: Iterable[str]) -> Batches:
        """Yield rows of some tables; each with the table's name.

        Raises:
            NothingSelected: the connection or the stream is not there. All rows were read then.
        """
        wanted = frozenset(tables)
        self.broken = self.torn = self.disordered = 0
        found, all_rows = Counter[str](), Counter[str]()
        selecting = _PLACES if self._conn is not None or self._stream is not None else frozenset[str]()
        for name, batch in self._source(wanted | {"violations"} | selecting):
            kept = self._filtered(batch)
            found[name] += len(kept)
            all_rows[name] += len(batch)
            if name == "violations":
                self._count(kept, batch)
            if name in wanted and len(kept):
                yield name, kept
        if selecting:
            self._check(found, all_rows)

    def _check(self, found: Counter[str], all_rows: Counter[str]) -> None:
        """Raise NothingSelected if the connection or the stream that was asked for is not there."""
        if self._conn is not None and not found["connections"]:
            raise self._nothing(f"no connection {self._conn} of {all_rows['connections']:,}")
        if self._stream is not None and not found.total() - found["connections"]:
            within = "" if self._conn is None else f" in {self._conn}"
            raise self._nothing(f"no stream {self._stream}{within} of {all_rows['streams']:,}")

    def _nothing(self, text: str) -> NothingSelected:
        error = NothingSelected(text)
        for name, damage in self.damaged.items():
            error.add_note(f"{name}: {damage}")
        return error

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow.compute as pc

        from afflux.capture.arrays import texts

        if self._conn is not None:
            batch = batch.filter(pc.is_in(batch["conn"], texts([self._conn])))
        if self._stream is not None and "stream" in batch.schema.names:
            batch = batch.filter(pc.equal(batch["stream"], self._stream))
        if self._selected is not None:
            streams, conns = self._selected
            by_stream = "stream" in batch.schema.names
            found = pc.is_in(_keys(batch), streams) if by_stream else pc.is_in(batch["conn"], conns)
            batch = batch.filter(found)
        return batch

    def _select(self, where: Filter) -> tuple[pa.Array, pa.Array]:
        """Return the keys of the streams with a frame that the filter selects, and the connections of these frames."""
        import pyarrow as pa
        import pyarrow.compute as pc

        routes = self._routes() if "route" in where.columns else None
        streams: set[str] = set()
        conns: set[str] = set()
        frames = 0
        for _, batch in self._source(frozenset({"frames"})):
            frames += len(batch)
            keys = _keys(batch)
            if routes is not None:
                batch = batch.append_column("route", pa.array(map(routes.get, keys.to_pylist()), pa.string()))
            mask = where.mask(batch)
            streams.update(pc.unique(keys.filter(mask)).to_pylist())
            conns.update(pc.unique(batch["conn"].filter(mask)).to_pylist())
            _check(len(streams))
        if not streams:
            raise NothingSelected(f"no frame that --where selects of {frames:,}")
        return pa.array(sorted(streams), pa.string()), pa.array(sorted(conns), pa.string())

    def _routes(self) -> dict[str, str]:
        """Return the routes of all streams that have one."""
        import pyarrow.compute as pc

        found: dict[str, str] = {}
        for _, batch in self._source(frozenset({"streams"})):
            known = batch.filter(pc.is_valid(batch["route"]))
            found.update(zip(_keys(known).to_pylist(), known["route"].to_pylist(), strict=True))
            _check(len(found))
        return found

    def _count(self, kept: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        from afflux.capture.schemas import NOT_WHOLE

        kinds = Counter(kept["kind"].to_pylist())
        self.broken += kinds["state"] + kinds["malformed"]
        self.torn += sum(kinds[kind] for kind in NOT_WHOLE)
        for row, kind in enumerate(batch["kind"].to_pylist()):
            if kind == "order":
                if not self.disordered:
                    self.late = batch["file"][row].as_py(), batch["packet"][row].as_py()
                self.disordered += 1
            elif kind == "damaged":
                rule, at, reason = (batch[name][row].as_py() for name in ("rule", "file_offset", "reason"))
                self.damaged[batch["file"][row].as_py()] = f"{rule} at byte {at}: {reason}"


def first(batches: Batches, limit: int | None) -> Batches:
    """Yield the first rows of each table. All are read: what is wrong with the capture may come last."""
    shown = Counter[str]()
    for name, batch in batches:
        kept = batch if limit is None else batch.slice(0, limit - shown[name])
        shown[name] += len(kept)
        if len(kept):
            yield name, kept


def records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as ``to_pylist`` does, which imports pandas for times: longer than a small capture
    takes."""
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*map(_values, batch.columns), strict=True)]


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    times = column.type == pa.timestamp("us", "UTC")
    values: list[Any] = (column.cast(pa.int64()) if times else column).to_pylist()
    if not times:
        return values
    return [None if time is None else _EPOCH + timedelta(microseconds=time) for time in values]


def _keys(batch: pa.RecordBatch) -> pa.Array:
    """Return a text for the stream of each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    streams = pc.fill_null(batch["stream"].cast(pa.string()), "")
    return pc.binary_join_element_wise(batch["conn"].cast(pa.string()), streams, " ")


def _check(streams: int) -> None:
    if streams > MOST_SELECTED:
        usage(f"--where needs more than {MOST_SELECTED:,} streams in memory: narrow it, or add --conn")
