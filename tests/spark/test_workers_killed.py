"""SP-01: a worker that reads is killed before, while and after it receives each row of a small batch."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.protocols.rsocket.cursor import Head, Position, State, encode_entry, split_request, with_position
from tests.spark.conftest import beside, listening

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="finds workers by Linux's tables"),
]

from tests.spark.test_sink import connected_to  # noqa: E402

ROWS, EPOCH = 4, 7


class Deadly:
    """A stream of a few items by cursor, whose server kills the readers when some of the items have been requested."""

    def __init__(self) -> None:
        self.uri = ""
        self.strikes_at: int | None = None
        self.killed: set[int] = set()

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[afflux.Payload | bytes]:
        cursor, _ = split_request(payload.metadata)
        if isinstance(cursor, Head):
            state = State(shard=0, epoch=EPOCH, first=0, head=ROWS, time_us=0, sealed=True)
            yield afflux.Payload(b"", encode_entry(state))
            return
        for number in range(cursor.first, cursor.first + cursor.limit):  # type: ignore[union-attr]
            self._strike(number)
            position = with_position(Position(shard=0, epoch=EPOCH, offset=number, time_us=0), None)
            yield afflux.Payload(b"%d" % number, position)
        self._strike(ROWS)

    def _strike(self, number: int) -> None:
        if self.strikes_at == number:
            self.strikes_at = None
            for worker in connected_to(self.uri):
                os.kill(worker, signal.SIGKILL)
                self.killed.add(worker)


def test_a_worker_is_killed_at_each_row(spark: Any) -> None:
    deadly = Deadly()

    with beside(listening(deadly, credit=1)) as uri:
        deadly.uri = uri
        frame = spark.read.format("afflux").options(uri=uri, pollTimeoutMs=30_000).load()
        for number in range(ROWS + 1):
            deadly.strikes_at, before = number, len(deadly.killed)
            rows = frame.select("offset", "data").collect()
            assert [(row.offset, bytes(row.data)) for row in rows] == [(n, b"%d" % n) for n in range(ROWS)]
            assert len(deadly.killed) > before
