"""Rows become blocks and payloads of bounded size; a row that the peer cannot take is refused before it is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

import afflux  # noqa: E402
from afflux.core.limits import Limits  # noqa: E402
from afflux.protocols.rsocket.staging import Commit, Part, Stage, Staged  # noqa: E402
from afflux.spark import sending  # noqa: E402
from afflux.spark.outgoing import BLOCK_BYTES, RowTooLarge, blocks, payloads  # noqa: E402
from afflux.spark.receiving import receive  # noqa: E402
from afflux.spark.sinkoptions import SinkOptions  # noqa: E402

KEY = (b"q" * 16, 0, 0)
MOST = Limits.server().payload_bytes


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse({"uri": "tcp://127.0.0.1:1"} | more)


def batch(*sizes: int) -> Any:
    return pa.record_batch({"data": pa.array([bytes(size) for size in sizes], pa.binary())})


def rows_of(block: bytes) -> list[bytes]:
    found: list[bytes] = pa.ipc.open_stream(block).read_all().column("data").to_pylist()
    return found


@pytest.mark.parametrize("place", [0, 137, 9_999])
def test_a_large_row_among_small_ones_is_a_block_of_its_own(place: int) -> None:
    sizes = [10] * 10_000
    sizes[place] = MOST - 1024
    made = list(blocks(options(), [batch(*sizes)]))
    assert [len(row) for _, block in made for row in rows_of(block)] == sizes
    assert sum(rows for rows, _ in made) == len(sizes)
    large = [rows for rows, block in made if len(block) > 3 * BLOCK_BYTES]
    assert large == [1]
    assert len(made) < 80  # the small rows are still together


def test_blocks_fit_into_the_smallest_items() -> None:
    made = list(blocks(options(maxItemBytes="65536"), [batch(*[900] * 1_000)]))
    assert max(len(block) for _, block in made) < 65_536 - 512


@pytest.mark.parametrize("form", ["raw", "json", "columns"])
def test_a_row_above_the_limit_is_refused_with_its_size(form: str) -> None:
    made = blocks(options(format=form), [batch(10, MOST)])
    with pytest.raises(RowTooLarge) as raised:
        list(made)
    text = str(raised.value)
    assert f"gets up to {MOST:,} (maxItemBytes)" in text and "payload_bytes of the receiver" in text
    size = int(text.split("item of ")[1].split(" bytes")[0].replace(",", ""))
    assert MOST < size < 2 * MOST + 2048


def test_a_payload_above_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    given = options(delivery="at-least-once")
    (made,) = payloads(given, [batch(1000)], KEY)
    beside = len(made[0][0].metadata or b"")
    assert [*payloads(given, [batch(MOST - beside)], KEY)]
    with pytest.raises(RowTooLarge, match=rf"a row is an item of {MOST + 1:,} bytes, and tcp://127.0.0.1:1 gets"):
        list(payloads(given, [batch(MOST - beside + 1)], KEY))


def test_few_large_rows_are_converted_at_a_time() -> None:
    made = list(payloads(options(delivery="at-least-once"), [batch(*[1 << 20] * 8, *[1] * 600)], KEY))
    assert max(sum(len(payload.data) for payload, _ in some) for some in made) <= 2 << 20
    assert max(map(len, made)) <= 256 and len(made) < 40
    assert sum(map(len, made)) == 608


async def test_a_receiver_stores_a_row_of_the_largest_size_and_shows_nothing_of_a_refused_one(tmp_path: Path) -> None:
    async with receive(tmp_path / "table") as handler, afflux.serve("tcp://127.0.0.1:0", handler) as server:
        given = options(uri=server.uri)
        sizes = [10, MOST - 2048, 10]

        def write(number: int, *sizes: int) -> Staged:
            stage = Stage(query=KEY[0], batch=number, run=b"1" * 16, partition=0, attempt=1)
            return sending.stage(given, stage, (block for _, block in blocks(given, [batch(*sizes)])))

        assert (await asyncio.to_thread(write, 0, *sizes)).rows == 3
        with pytest.raises(RowTooLarge, match="a row is an item of"):
            await asyncio.to_thread(write, 1, 10, MOST)
        commit = Commit(query=KEY[0], batch=0, run=b"1" * 16, parts=(Part(0, 1, 3),))
        await asyncio.to_thread(sending.commit, given, commit)
    files = list((tmp_path / "table").rglob("*.parquet"))
    assert len(files) == 1
    assert [len(row) for row in pa.parquet.read_table(files[0]).column("data").to_pylist()] == sizes


async def test_a_receiver_with_a_smaller_limit_is_named(tmp_path: Path) -> None:
    limits = Limits.server(payload_bytes=1 << 20)
    async with (
        receive(tmp_path / "table") as handler,
        afflux.serve("tcp://127.0.0.1:0", handler, limits=limits) as server,
    ):
        given = options(uri=server.uri)
        stage = Stage(query=KEY[0], batch=0, run=b"1" * 16, partition=0, attempt=1)
        with pytest.raises(sending.WriteFailed) as raised:
            made = (block for _, block in blocks(given, [batch(2 << 20)]))
            await asyncio.to_thread(sending.stage, given, stage, made)
    assert "payload-too-large" in str(raised.value) and "maxItemBytes" in str(raised.value)
