"""Remember the last batch and the last runs of each query that writes into a table, durably. See table.py."""

from __future__ import annotations

import json
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from afflux.core.errors import ApplicationError
from afflux.files import FileError
from afflux.protocols.rsocket.staging import RUN_SUPERSEDED

__all__ = ["NotATable", "Queries", "Query", "TableError", "TableLocked", "as_uuid", "replace_file", "sync_directory"]

MOST_QUERIES = 10_000
"Queries whose last batch is remembered after the user has deleted their directories."
_CACHED = 1_024
_RUNS = 8


class TableError(FileError):
    """A table cannot be opened, read or written."""

    word = "sink"


class NotATable(TableError, ValueError):
    """The directory has other files, which the receiver has not written."""

    word = "sink-foreign"


class TableLocked(TableError):
    """Another receiver has the table open."""

    word = "sink-locked"


@dataclass(slots=True)
class Query:
    """The state of one query."""

    last: int = -1
    "The last committed batch; -1 before the first."
    runs: list[bytes] = field(default_factory=list)
    "Its last runs; the last one may stage and commit."


class Queries:
    """The queries of one table. The caller has the table's mutex.

    Args:
        directory: the table.
        own: the receiver's own directory in it.
        drop: deletes staged parts.
    """

    def __init__(self, directory: Path, own: Path, drop: Callable[[Path], None]) -> None:
        self._directory = directory
        self._own = own
        self._drop = drop
        self._known: OrderedDict[bytes, Query] = OrderedDict()
        notes = sorted((own / "committed").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in notes[MOST_QUERIES:]:
            path.unlink()

    def visible(self, id: bytes) -> Path:
        """Return the directory of the committed batches of a query."""
        return self._directory / f"query={as_uuid(id)}"

    def staged(self, id: bytes, run: bytes) -> Path:
        """Return the directory of the staged batches of a run."""
        return self._own / "staging" / id.hex() / run.hex()

    def enter(self, id: bytes, run: bytes) -> Query:
        """Return the state of a query, and make ``run`` its current run."""
        query = self._known.get(id)
        if query is None:
            query = self._known[id] = self._recall(id)
            if len(self._known) > _CACHED:
                self._known.popitem(last=False)
        self._known.move_to_end(id)
        if query.runs and query.runs[-1] == run:
            return query
        if run in query.runs:
            text = f"run {as_uuid(run)} of query {as_uuid(id)} is over: run {as_uuid(query.runs[-1])} has begun since"
            raise ApplicationError(RUN_SUPERSEDED, text)
        for old in (self._own / "staging" / id.hex()).glob("*"):
            if old.name != run.hex():
                self._drop(old)
        query.runs = [*query.runs, run][-_RUNS:]
        return query

    def _recall(self, id: bytes) -> Query:
        """Read what is known of a query from the disk (rule 2)."""
        query = Query()
        file = self._own / "committed" / id.hex()
        with suppress(FileNotFoundError):
            try:
                known = json.loads(file.read_text())
                query = Query(int(known["batch"]), [bytes.fromhex(run) for run in known["runs"]])
            except (ValueError, KeyError, TypeError):
                raise TableError(self._directory, f"{file.name} in _afflux/committed is damaged") from None
        noted = query.last
        for path in self.visible(id).glob("batch=*"):
            with suppress(ValueError):
                query.last = max(query.last, int(path.name.removeprefix("batch=")))
        if query.last > noted:
            self.note(id, query)
        for path in (self._own / "staging" / id.hex()).glob("*"):
            if (run := bytes.fromhex(path.name)) not in query.runs:
                query.runs.append(run)
        return query

    def note(self, id: bytes, query: Query) -> None:
        """Write the state of a query to the disk."""
        known = {"batch": query.last, "runs": [run.hex() for run in query.runs]}
        replace_file(self._own / "committed" / id.hex(), json.dumps(known).encode())


def as_uuid(id: bytes) -> str:
    """Return the id of a query or a run as text."""
    return str(uuid.UUID(bytes=id))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a small file, durably."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if os.name == "nt":  # Windows cannot open directories; NTFS journals renames
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
