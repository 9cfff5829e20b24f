"""Send the rows of one task to a peer within its credit, and commit batches. Needs no pyspark.

1. Rows come from a blocking iterator, which a thread of its own advances: keepalives are sent while Spark computes. At
   most two blocks of rows wait to be sent.
2. A peer makes progress when it takes a row or a block, or answers. If it does neither for ``writeTimeoutMs``, the task
   fails. The time that Spark needs for the next rows does not count.
3. Only COMMIT and ABORT, which are idempotent, are sent again from here. Spark repeats tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from afflux.core.errors import ConnectFailed, ConnectionClosed, Error, Rejected, Violation
from afflux.core.payload import Payload
from afflux.protocols.rsocket.staging import (
    Abort,
    Commit,
    Committed,
    Stage,
    Staged,
    Staging,
    staging_of,
)
from afflux.retry.backoff import Backoff
from afflux.spark.sinkoptions import SinkOptions

if TYPE_CHECKING:
    from afflux.aio.peer import Peer

__all__ = ["Row", "WriteFailed", "abort", "commit", "send_channel", "send_requests", "stage"]

Row = tuple[Payload, Any]
"A row with its metadata, and its key for ``orderBy``."
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_LOOK_S = 1.0
"Seconds between two looks at the progress of a peer."
_ABORT_S = 5.0
"Seconds to wait for the answer to ABORT, which is not needed."
_BACKOFF = Backoff(first=0.1, most=2.0)
_NOT_A_TABLE = (
    "the peer does not stage rows. Serve a table, with afflux serve --sink DIR or afflux.spark.receive, or accept "
    "duplicates with delivery=at-least-once"
)
_TOO_LARGE = "payload-too-large"
"The reason word of a peer for an item that is too large."
_RAISE = "make the rows smaller, or raise that limit of the receiver, and set maxItemBytes to it"

_log = logging.getLogger("afflux.spark")


class WriteFailed(Error):
    """Rows could not be written. The text contains the address, the cause and the option that matters."""


# -- tasks ----------------------------------------------------------------------------------------------------


def stage(options: SinkOptions, stage: Stage, blocks: Iterator[bytes]) -> Staged:
    """Stage a partition that has rows; ``blocks`` are Arrow IPC streams.

    Raises:
        WriteFailed: the peer is away, silent or refuses, or is not a table.
        Exception: any exception of ``blocks``.
    """

    async def work(peer: Peer, rows: AsyncIterator[bytes]) -> Staged:
        async with peer.channel(rows, metadata=[(stage.MIME, stage.encode())], route=options.route) as answers:
            async for answer in answers:
                found = _entry(answer)
                if not isinstance(found, Staged):
                    break
                return found
        raise WriteFailed(f"{options.target}: {_NOT_A_TABLE}")

    return asyncio.run(_send(options, blocks, work))


def send_channel(options: SinkOptions, rows: Iterator[list[Row]]) -> None:
    """Send a partition that has rows as the items of one channel, and wait until the peer completes it.

    Raises as :func:`stage`.
    """

    async def work(peer: Peer, rows: AsyncIterator[list[Row]]) -> None:
        async def payloads() -> AsyncIterator[list[Payload]]:
            async for some in rows:
                yield [payload for payload, _ in some]

        async with peer.channel(payloads()) as answers:
            async for _ in answers.batches():
                pass

    asyncio.run(_send(options, rows, work))


def send_requests(options: SinkOptions, rows: Iterator[list[Row]]) -> None:
    """Send a partition that has rows as requests, up to ``maxRequests`` concurrently, and wait for all answers.

    Raises as :func:`stage`.
    """

    async def work(peer: Peer, rows: AsyncIterator[list[Row]]) -> None:
        count = options.max_requests
        queues: list[asyncio.Queue[Payload | None]] = [
            asyncio.Queue(1 if options.order_by else count) for _ in range(count if options.order_by else 1)
        ]

        async def lane(queue: asyncio.Queue[Payload | None]) -> None:
            while (payload := await queue.get()) is not None:
                await peer.request(payload)
            queue.put_nowait(None)  # for the other lanes of this queue

        async with asyncio.TaskGroup() as lanes:
            for number in range(count):
                lanes.create_task(lane(queues[number % len(queues)]))
            async for some in rows:
                for payload, key in some:
                    await queues[hash(key) % len(queues)].put(payload)
            for queue in queues:
                await queue.put(None)

    asyncio.run(_send(options, rows, work))


async def _send(
    options: SinkOptions, rows: Iterator[_Item], work: Callable[[Peer, AsyncIterator[_Item]], Awaitable[_Result]]
) -> _Result:
    """Connect, and do ``work`` with the rows for as long as the peer makes progress."""
    with ThreadPoolExecutor(1, "afflux-rows") as thread:
        async with _connected(options) as peer:
            progress = _Progress(peer, options.write_timeout_ms / 1000)
            sending = asyncio.ensure_future(work(peer, progress.rows(_in_thread(thread, rows))))
            watching = asyncio.ensure_future(progress.watch())
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                watching.cancel()
                return await _explained(options, sending)
            sending.cancel()
            await asyncio.wait((sending,))
    text = f"{options.target} took no rows and answered nothing for {options.write_timeout_ms:,} ms (writeTimeoutMs)"
    raise WriteFailed(text)


async def _explained(options: SinkOptions, sending: asyncio.Future[_Result]) -> _Result:
    try:
        return await sending
    except ExceptionGroup as group:
        raise _failed(options, group.exceptions[0]) from None
    except Exception as error:
        raise _failed(options, error) from None


def _failed(options: SinkOptions, error: Exception) -> Exception:
    """Return the error with the address and the meaning; errors of the rows are returned unchanged."""
    if isinstance(error, WriteFailed) or not isinstance(error, Error):
        return error
    verb = "lost the connection" if isinstance(error, ConnectionClosed) else "refused the rows"
    hint = f"; {_RAISE}" if _TOO_LARGE in error.message else ""
    return WriteFailed(f"{options.target} {verb}: {error.message}{hint}", code=error.code, rule=error.rule)


async def _in_thread(thread: ThreadPoolExecutor, rows: Iterator[_Item]) -> AsyncIterator[_Item]:
    loop = asyncio.get_running_loop()
    while (item := await loop.run_in_executor(thread, next, rows, None)) is not None:
        yield item


@asynccontextmanager
async def _connected(options: SinkOptions) -> AsyncIterator[Peer]:
    """Connect, and try again for ``connectTimeoutMs``."""
    from afflux.aio.client import connect

    until = time.monotonic() + options.connect_timeout_ms / 1000
    waits = _BACKOFF.waits(Random())
    while True:
        try:
            peer = await connect(options.uri)
            break
        except ConnectFailed as error:
            if time.monotonic() > until:
                text = f"cannot connect to {options.uri} within {options.connect_timeout_ms:,} ms (connectTimeoutMs)"
                raise WriteFailed(f"{text}: {error.message}") from None
        await asyncio.sleep(next(waits))
    async with peer:
        yield peer


class _Progress:
    """Detects a peer that takes nothing and answers nothing."""

    def __init__(self, peer: Peer, within_s: float) -> None:
        self._peer = peer
        self._within_s = within_s
        self._waits_for_rows = False

    async def rows(self, rows: AsyncIterator[_Item]) -> AsyncIterator[_Item]:
        """Pass rows on. The time until the next ones does not count."""
        while True:
            self._waits_for_rows = True
            item = await anext(rows, None)
            self._waits_for_rows = False
            if item is None:
                return
            yield item

    async def watch(self) -> None:
        """Return when the peer has made no progress in time."""
        before, since = self._state(), time.monotonic()
        while (now := time.monotonic()) < since + self._within_s:
            await asyncio.sleep(min(_LOOK_S, self._within_s / 4))
            if self._waits_for_rows or self._state() != before:
                before, since = self._state(), now

    def _state(self) -> list[tuple[int, ...]]:
        return [(one.stream, one.sent, one.queued, one.received) for one in self._peer.streams()]


# -- the driver -----------------------------------------------------------------------------------------------


def commit(options: SinkOptions, commit: Commit) -> Committed:
    """Commit a batch; try again for ``commitTimeoutMs`` while the peer is away, silent or without room.

    Raises:
        WriteFailed: the peer refuses, or the time is over.
    """
    until = time.monotonic() + options.commit_timeout_ms / 1000
    waits = _BACKOFF.waits(Random())
    while True:
        try:
            answer = _entry(_ask(options, commit, max(0.1, until - time.monotonic())))
        except (ConnectionClosed, Rejected, TimeoutError) as error:
            if time.monotonic() > until:
                text = f"{options.target} did not commit within {options.commit_timeout_ms:,} ms (commitTimeoutMs)"
                raise WriteFailed(
                    f"{text}: {error}; the batch may be committed, and is recognized when repeated"
                ) from None
            _log.warning("%s: the commit of batch %d is tried again: %s", options.target, commit.batch, error)
            time.sleep(next(waits))
            continue
        except Error as error:
            text = f"{options.target} refused to commit batch {commit.batch}: {error.message}"
            raise WriteFailed(text, code=error.code, rule=error.rule) from None
        if not isinstance(answer, Committed):
            raise WriteFailed(f"{options.target}: {_NOT_A_TABLE}")
        return answer


def abort(options: SinkOptions, abort: Abort) -> None:
    """Let the peer drop what was staged. Without success the peer does so later."""
    try:
        _ask(options, abort, _ABORT_S)
    except (Error, TimeoutError) as error:
        _log.warning("%s: batch %d could not be aborted, which is harmless: %s", options.target, abort.batch, error)


def _ask(options: SinkOptions, entry: Commit | Abort, timeout: float) -> Payload:
    from afflux.sync import connect

    with connect(options.uri, timeout=timeout) as peer:
        return peer.request(metadata=[(entry.MIME, entry.encode())], route=options.route, timeout=timeout)


def _entry(answer: Payload) -> Staging | None:
    """Return the staging entry of an answer; None if there is none, or a malformed one."""
    try:
        return staging_of(answer.metadata)
    except Violation:
        return None
