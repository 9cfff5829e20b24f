"""Receive batches of rows from writers that stage them (docs/staging.md), into a table of Parquet files.

``receive(directory)`` is a handler with the verbs ``channel`` (STAGE) and ``request`` (COMMIT, ABORT). A few threads
write the files. A block is requested from the peer when there is room for it: the window of the channel and the
buffers of table.py bound the memory, the limits ``staged_bytes`` and ``staging_parts`` the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from afflux.core.errors import ApplicationError, Invalid, MissingExtra, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.files import FileError
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.staging import (
    SINK_FAILED,
    Abort,
    Commit,
    Committed,
    Stage,
    Staged,
    Staging,
    encode_staging,
    staging_of,
)
from afflux.spark.table import STALE_S, Table, storage_error

__all__ = ["Receiver", "receive"]

_log = logging.getLogger("afflux.spark")
_Result = TypeVar("_Result")


def receive(directory: str | Path, *, limits: Limits | None = None, stale_s: float = STALE_S) -> Receiver:
    """Return a handler that stores the rows of ``df.write`` and ``df.writeStream`` with ``format("afflux")``.

    Each batch appears in ``directory`` exactly once, at once and durably, as ``query=<id>/batch=<number>/*.parquet``;
    names that begin with ``_`` are the handler's own. Close it after the server::

        async with receive("table") as handler, afflux.serve(uri, handler):

    Args:
        directory: created if it is missing. One receiver at a time may use it.
        limits: ``staged_bytes`` bounds rows that are not committed, ``staging_parts`` the parts received concurrently.
        stale_s: seconds after which rows of a query that does not return are deleted.

    Raises:
        MissingExtra: pyarrow is not installed.
        TableLocked: another receiver uses the directory.
        NotATable: the directory has other files, which no receiver has written.
        TableError: the directory cannot be used.
    """
    if find_spec("pyarrow") is None:
        raise MissingExtra("storing rows (pyarrow)", "spark")
    return Receiver(Table(directory, limits=limits, stale_s=stale_s))


class Receiver:
    """The handler of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        "The directory with the batches."
        self._threads = ThreadPoolExecutor(4, "afflux-sink")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the parts that are being received, and release the directory. Idempotent."""
        await asyncio.get_running_loop().run_in_executor(None, self.table.close)
        self._threads.shutdown(wait=False)

    async def channel(self, items: Any) -> AsyncIterator[Payload]:
        """Answer STAGE: store the items, which are Arrow blocks, and answer STAGED when they are durable.

        Raises:
            Invalid: the request has no STAGE, or a block is malformed.
            ApplicationError: with one of the codes of :mod:`afflux.protocols.rsocket.staging`.
            Rejected: there is no room.
        """
        stage = self._entry(items.first)
        if not isinstance(stage, Stage):
            raise Invalid("a channel to a table begins with STAGE", code=Code.INVALID, rule="SK-7")
        part = await self._run(lambda: self.table.stage(stage))
        if part is None:
            yield _answer(Staged(rows=0, duplicate=True))
            return
        try:
            async for batch in items.batches():
                blocks = [payload.data for payload in batch]
                await self._run(lambda blocks=blocks: part.write(blocks))  # type: ignore[misc]
            yield _answer(await self._run(part.finish))
        finally:
            self._threads.submit(part.discard)

    async def request(self, payload: Payload) -> Payload:
        """Answer COMMIT and ABORT.

        Raises:
            Invalid: the request has neither.
            ApplicationError: with one of the codes of :mod:`afflux.protocols.rsocket.staging`.
            Rejected: the disk is full.
        """
        match self._entry(payload):
            case Commit() as commit:
                return _answer(await self._run(lambda: self.table.commit(commit)))
            case Abort() as abort:
                await self._run(lambda: self.table.abort(abort))
                return Payload()
        raise Invalid("a request to a table has COMMIT or ABORT", code=Code.INVALID, rule="SK-7")

    def _entry(self, payload: Payload | None) -> Staging | None:
        try:
            return staging_of(payload.metadata if payload else None, self.table.limits.composite_entries)
        except Violation as violation:
            raise Invalid(violation.reason, code=Code.INVALID, rule=violation.rule) from None

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        """Call ``work`` in a thread, and convert errors for the peer: without paths, which are logged."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except (FileError, OSError) as error:
            known = storage_error(self.table.directory, error) if isinstance(error, OSError) else error
            if not isinstance(known, FileError):
                raise known from None
            _log.error("%s", known)
            raise ApplicationError(SINK_FAILED, f"the rows could not be stored: {known.reason}") from None


def _answer(entry: Staged | Committed) -> Payload:
    return Payload(b"", encode_staging(entry))
