"""``afflux.spark.receive`` behind a real server: what it answers to rows, commits and nonsense."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.core.errors import ApplicationError, Error, Invalid, Rejected
from afflux.protocols.rsocket.staging import (
    NOT_STAGED,
    SINK_FAILED,
    STAGING_MIME,
    Abort,
    Commit,
    Committed,
    Part,
    Stage,
    Staged,
    staging_of,
)
from tests.spark.test_table import Q, block, visible

pytest.importorskip("pyarrow")

from afflux.spark import sending
from afflux.spark.receiving import Receiver, receive
from afflux.spark.sinkoptions import SinkOptions

RUN = b"1" * 16
STAGE = Stage(query=Q, batch=0, run=RUN, partition=0, attempt=1)
COMMIT = Commit(query=Q, batch=0, run=RUN, parts=(Part(0, 1, 2),))


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with receive(tmp_path / "table") as made:
        yield made


@pytest.fixture
async def peer(receiver: Receiver) -> AsyncIterator[afflux.Peer]:
    async with (
        afflux.serve("tcp://127.0.0.1:0", receiver) as server,
        afflux.connect(server.uri) as connected,
    ):
        yield connected


async def sent(peer: afflux.Peer, blocks: list[Any], entry: Any = STAGE) -> Any:
    metadata = None if entry is None else [(STAGING_MIME, entry.encode())]
    async with peer.channel(blocks, metadata=metadata) as answers:
        found = [staging_of(answer.metadata) async for answer in answers]
    assert len(found) == 1
    return found[0]


async def asked(peer: afflux.Peer, entry: Any) -> Any:
    answer = await peer.request(metadata=[(STAGING_MIME, entry.encode())] if entry else None)
    return staging_of(answer.metadata)


async def test_rows_are_staged_and_committed(peer: afflux.Peer, receiver: Receiver) -> None:
    assert await sent(peer, [block([b"a"]), block([b"b"])]) == Staged(rows=2)
    assert await asked(peer, COMMIT) == Committed(rows=2)
    assert await asked(peer, COMMIT) == Committed(rows=0, duplicate=True)
    assert visible(receiver.table) == [b"a", b"b"]


async def test_a_duplicate_is_answered_before_its_rows_are_sent(peer: afflux.Peer) -> None:
    await sent(peer, [block([b"a"]), block([b"b"])])
    await asked(peer, COMMIT)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield block([b"a"])

    async with peer.channel(endless(), metadata=[(STAGING_MIME, STAGE.encode())]) as answers:
        assert staging_of((await anext(answers)).metadata) == Staged(rows=0, duplicate=True)


async def test_an_abort_has_an_empty_answer(peer: afflux.Peer) -> None:
    await sent(peer, [block([b"a", b"b"])])
    assert await asked(peer, Abort(query=Q, batch=0, run=RUN)) is None
    with pytest.raises(ApplicationError) as caught:
        await asked(peer, COMMIT)
    assert caught.value.code == NOT_STAGED


@pytest.mark.parametrize(("entry", "rule"), [(None, "STAGE"), (COMMIT, "STAGE")])
async def test_a_channel_that_stages_nothing(peer: afflux.Peer, entry: Any, rule: str) -> None:
    with pytest.raises(Invalid, match=rule):
        await sent(peer, [block([b"a"])], entry)


@pytest.mark.parametrize("entry", [None, STAGE])
async def test_a_request_that_commits_nothing(peer: afflux.Peer, entry: Any) -> None:
    with pytest.raises(Invalid, match="COMMIT or ABORT"):
        await asked(peer, entry)


async def test_a_malformed_entry(peer: afflux.Peer) -> None:
    with pytest.raises(Invalid, match="staging kind 0x09"):
        await peer.request(metadata=[(STAGING_MIME, b"\x09")])


async def test_a_channel_that_fails_leaves_nothing(peer: afflux.Peer, receiver: Receiver) -> None:
    with pytest.raises(Invalid, match="Arrow"):
        await sent(peer, [block([b"a"]), b"garbage"])

    async def failing() -> AsyncIterator[bytes]:
        yield block([b"a"])
        raise ValueError("the task has failed")

    with pytest.raises(ValueError, match="the task has failed"):
        await sent(peer, failing())  # type: ignore[arg-type]
    await receiver.close()
    assert [*receiver.table.directory.glob("_afflux/partial/*")] == []
    assert receiver.table.staged_bytes == 0


async def test_errors_of_the_disk_reach_the_peer_without_paths(peer: afflux.Peer, receiver: Receiver) -> None:
    await sent(peer, [block([b"a", b"b"])])
    target = receiver.table.directory / f"query={uuid.UUID(bytes=Q)}"
    target.write_text("in the way")
    with pytest.raises(ApplicationError, match="could not be stored") as caught:
        await asked(peer, COMMIT)
    assert caught.value.code == SINK_FAILED
    assert str(receiver.table.directory) not in caught.value.message
    target.unlink()
    assert await asked(peer, COMMIT) == Committed(rows=2)


async def test_the_limits_are_answers(tmp_path: Path) -> None:
    limits = afflux.Limits.server(staging_parts=1)
    async with (
        receive(tmp_path, limits=limits) as handler,
        afflux.serve("tcp://127.0.0.1:0", handler) as server,
        afflux.connect(server.uri) as peer,
    ):
        held = handler.table.stage(STAGE)
        assert held is not None
        with pytest.raises(Rejected, match="too-many-parts"):
            await sent(peer, [block([b"a"])])
        held.discard()
        assert await sent(peer, [block([b"a"])]) == Staged(rows=1)


async def test_a_commit_of_many_partitions(peer: afflux.Peer) -> None:
    many = Commit(query=Q, batch=0, run=RUN, parts=tuple(Part(number, 1, 1) for number in range(16_384)))
    with pytest.raises(ApplicationError, match=r"partition 0 of batch 0 of query .* is not staged with 1 rows"):
        await asked(peer, many)


async def test_the_time_that_spark_needs_does_not_count(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """The rows pause for longer than writeTimeoutMs. Keepalives are sent meanwhile: a thread waits for the rows."""
    kept_alive = threading.Event()
    received = itertools.count(1)

    def seen(record: logging.LogRecord) -> bool:
        if re.search(" < .*KEEPALIVE", record.getMessage()) and next(received) == 60:  # 1.5 s: two each 50 ms
            kept_alive.set()
        return True

    def rows() -> Iterator[bytes]:
        yield block([b"a"])
        assert kept_alive.wait(60)
        yield block([b"b"])

    caplog.set_level(logging.DEBUG, "afflux.frames")
    caplog.handler.addFilter(seen)
    async with afflux.serve("tcp://127.0.0.1:0", receiver) as server:
        options = SinkOptions.parse({"uri": f"{server.uri}?keepalive=0.05", "writeTimeoutMs": "1000"})
        assert await asyncio.to_thread(sending.stage, options, STAGE, rows()) == Staged(rows=2)


async def test_a_directory_in_use(receiver: Receiver) -> None:
    with pytest.raises(Error, match="has it open"):
        receive(receiver.table.directory)
