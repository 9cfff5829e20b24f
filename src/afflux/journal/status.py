"""Look at the journals of a directory or of a cluster, also while a server has them open. Changes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from afflux.core.limits import Limits
from afflux.journal import files
from afflux.journal.address import StreamAddress, is_stream_address
from afflux.journal.errors import JournalError

if TYPE_CHECKING:
    from afflux.journal.jetstream import JetStreamBackend
    from afflux.journal.places import Streams

__all__ = ["Status", "inspect", "journals", "release"]

_FULL_BYTES = 0x10000
"A journal is called full if it has less room than this, because larger batches do not fit."


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A journal's file or stream."""

    path: str
    first: int | None = None
    "The lowest stored offset; None if the file cannot be read."
    head: int | None = None
    "The offset after the last stored item."
    size: int | None = None
    "Bytes that count for ``journal_bytes``."
    reader: str | None = None
    "The name of the reader whose acknowledgements trim it."
    state: str
    """``open`` (or not closed before a crash; always for a stream), ``closed``, or ``sealed``: no item follows."""
    problem: str | None = None
    "What is wrong: the journal or its disk is full, or the file cannot be read."


def journals(directory: Path) -> list[Path]:
    """Return the journals of a directory, by name."""
    return sorted(directory.glob("*.journal"))


def inspect(where: str | Path) -> Iterator[Status]:
    """Yield the status of each journal of a directory, or of an address ``nats://host/STREAM``.

    Raises:
        AddressError: the address is invalid.
        JournalError: the servers cannot be used.
    """
    if is_stream_address(where):
        with closing(_streams(where)) as place:
            for backend in place.followed():
                yield _stream_status(backend)
        return
    for path in journals(Path(where)):
        yield _status(path)


def release(where: str | Path, name: str) -> list[Path]:
    """Forget the reader ``name`` in all journals of a directory or an address; return those that had it.

    Raises:
        JournalLocked: a journal is open in another process: stop it first.
        JournalError: a journal cannot be written.
    """
    from afflux.journal.database import SqliteBackend

    released: list[Path] = []
    if is_stream_address(where):
        with closing(_streams(where)) as place:
            for stream in place.followed():
                if stream.heads.reader is not None and stream.heads.reader.name == name:
                    stream.register(None)
                    released.append(stream.path)
        return released
    for path in journals(Path(where)):
        with closing(SqliteBackend(path, key=None)) as backend:
            if backend.heads.reader is not None and backend.heads.reader.name == name:
                backend.register(None)
                released.append(path)
    return released


def _streams(where: str) -> Streams:
    from afflux.journal.places import Streams

    return Streams(StreamAddress.parse(where))


def _stream_status(backend: JetStreamBackend) -> Status:
    heads = backend.heads
    problem = "it is full: acknowledge items, keep less, or raise journal_bytes" if backend.is_full else None
    return Status(
        path=str(backend.address), first=heads.first, head=heads.head, size=heads.size,
        reader=None if heads.reader is None else heads.reader.name, state="sealed" if heads.sealed else "open",
        problem=problem,
    )  # fmt: skip


def _status(path: Path) -> Status:
    opened, limit = files.marked(path)
    state = "open" if opened else "closed"
    try:
        _check_header(path)
        wal = files.wal_bytes(path) > 0
        uri = f"file:{quote(str(path.absolute()))}?mode=ro{'' if wal else '&immutable=1'}"
        with files.KIND.errors(path), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as database:
            query = "SELECT first, head, bytes, sealed FROM state"
            first, head, size, sealed = database.execute(query).fetchone()
            known = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'reader'").fetchone()
            row = database.execute("SELECT name FROM reader").fetchone() if known else None
    except (JournalError, TypeError, ValueError) as error:
        reason = error.reason if isinstance(error, JournalError) else "its state is missing"
        return Status(path=str(path), state=state, problem=f"it cannot be read: {reason}")
    problem = None if sealed else _full(path, size, limit or Limits.server().journal_bytes)
    return Status(
        path=str(path), first=first, head=head, size=size, reader=None if row is None else row[0],
        state="sealed" if sealed else state, problem=problem,
    )  # fmt: skip


def _check_header(path: Path) -> None:
    with files.KIND.errors(path), path.open("rb") as file:
        header = file.read(100)
    files.KIND.check_header(path, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))


def _full(path: Path, size: int, journal_bytes: int) -> str | None:
    if shutil.disk_usage(path.parent).free < _FULL_BYTES:
        return "its disk is full: make room, or trim"
    if journal_bytes - size < _FULL_BYTES:
        return f"it is full (journal_bytes={journal_bytes}): acknowledge items, keep less, or raise journal_bytes"
    return None
