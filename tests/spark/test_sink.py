"""Writing with ``format("afflux")`` from a real Spark session, to our receiver and to other peers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.protocols.rsocket.staging import Key, staging_of
from tests.examples import short
from tests.spark.conftest import HERE, Link, beside, listening
from tests.spark.querying import query

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402

from afflux.core.errors import Invalid  # noqa: E402
from afflux.spark.format import AffluxFormat  # noqa: E402
from afflux.spark.outgoing import check_schema  # noqa: E402
from afflux.spark.sinkoptions import SinkOptions  # noqa: E402

DATA = StructType([StructField("data", BinaryType())])


class Receiving:
    """The receiver of sinking.py, which can be stopped at a point, killed, and started again at the same address."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.uri = "tcp://127.0.0.1:0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(HERE / "sinking.py"), self.uri, str(self.directory)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.uri = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop_at(self, point: str) -> None:
        """Stop at a point from now on; "" lets go what has stopped."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{point}\n")
        self.process.stdin.flush()
        self.until(f"stops at {point}".strip())

    def until(self, point: str) -> None:
        while (line := self.line()) != point:
            assert line, f"the receiver has ended before {point}"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def restart(self) -> None:
        """Kill it, and start one that stops nowhere."""
        self.kill()
        self.start()


@pytest.fixture
def receiving(tmp_path: Path) -> Iterator[Receiving]:
    made = Receiving(tmp_path / "received")
    yield made
    made.kill()


def numbers(spark: Any, count: int, partitions: int = 2) -> Any:
    return spark.range(0, count, 1, partitions)


def raw(frame: Any) -> Any:
    return frame.selectExpr("cast(cast(id as string) as binary) data")


def write(frame: Any, uri: str, **options: object) -> None:
    frame.write.format("afflux").options(**{"uri": uri} | options).mode("append").save()


def rows(directory: Path, column: str = "data") -> list[Any]:
    import pyarrow.dataset as ds

    found = ds.dataset(directory, format="parquet", partitioning="hive")
    return list(found.to_table(columns=[column]).column(column).to_pylist()) if found.files else []


def wanted(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


def said(work: Callable[[], object]) -> str:
    """The text of the error of a write."""
    with pytest.raises(Exception) as caught:
        work()
    return str(caught.value)


# -- to our receiver -----------------------------------------------------------------------------------------------


def test_a_batch_write_appears_once_and_whole(spark: Any, receiving: Receiving) -> None:
    write(raw(numbers(spark, 5000)), receiving.uri)
    assert Counter(rows(receiving.directory)) == wanted(5000)
    (batch,) = receiving.directory.glob("query=*/batch=*")
    assert len([*batch.iterdir()]) == 2
    write(raw(numbers(spark, 10)), receiving.uri)
    assert len(rows(receiving.directory)) == 5010


def test_a_named_write_happens_once(spark: Any, receiving: Receiving) -> None:
    for _ in range(2):
        write(raw(numbers(spark, 10)), receiving.uri, writeId="monday")
    assert Counter(rows(receiving.directory)) == wanted(10)


def test_nothing_to_write(spark: Any, receiving: Receiving) -> None:
    write(raw(numbers(spark, 0)), receiving.uri)
    assert rows(receiving.directory) == []


def test_rows_of_a_partition_keep_their_order(spark: Any, receiving: Receiving) -> None:
    write(raw(numbers(spark, 3000, 1)), receiving.uri)
    assert rows(receiving.directory) == [b"%d" % number for number in range(3000)]


def test_columns_with_their_types(spark: Any, receiving: Receiving) -> None:
    frame = numbers(spark, 3, 1).selectExpr(
        "id", "cast(id as decimal(5,2)) price", "timestamp '2013-01-01 05:15:00Z' at", "array(map('a', id)) more"
    )
    write(frame, receiving.uri, format="columns")
    back = spark.read.parquet(str(receiving.directory)).select(*frame.columns)
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert back.orderBy("id").collect() == frame.collect()
    text = said(lambda: write(raw(numbers(spark, 3, 1)), receiving.uri))
    assert "the columns are not those of the table: missing id int64" in text


def test_json_of_all_columns(spark: Any, receiving: Receiving) -> None:
    from pyspark.sql.functions import struct, to_json

    frame = numbers(spark, 4, 1).selectExpr(
        "id", "if(id = 1, null, 'a \"b\" ü') s", "id / 3 as d", "cast('NaN' as double) n", "cast(id as decimal(9,3)) p",
        "timestamp '2013-01-01 05:15:00.25Z' t", "date '2013-01-01' day", "cast('xyz' as binary) b", "id > 1 as yes",
        "named_struct('x', id, 'y', cast(null as int)) st", "map('k', cast(null as int)) m", "array(id, null) l",
    )  # fmt: skip
    write(frame, receiving.uri, format="json")
    expected = frame.select(to_json(struct("*"), {"timeZone": "UTC"}).alias("json")).collect()
    assert [json.loads(row) for row in rows(receiving.directory)] == [json.loads(row.json) for row in expected]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"writeTimeout": 5}, "unknown option writetimeout; did you mean writeTimeoutMs"),
        ({"delivery": "maybe"}, "option delivery must be exactly-once or at-least-once"),
        ({"verb": "request"}, "verb=request requires delivery=at-least-once"),
        ({"orderBy": "data"}, "orderBy requires verb=request"),
        ({"delivery": "at-least-once", "format": "columns"}, "format=columns requires delivery=exactly-once"),
        ({"delivery": "at-least-once", "writeId": "a"}, "writeId requires delivery=exactly-once"),
        ({"delivery": "at-least-once", "verb": "request", "orderBy": "key"}, "orderBy=key: the columns are data"),
    ],
)
def test_options_are_refused(options: dict[str, object], why: str) -> None:
    given = {"uri": "tcp://127.0.0.1:1"} | {name: str(value) for name, value in options.items()}
    with pytest.raises(Invalid, match=re.escape(why)):
        AffluxFormat(given).writer(DATA, overwrite=False)


def test_errors_come_through_spark(spark: Any) -> None:
    """Of options, and of a task."""
    frame, nowhere = raw(numbers(spark, 1)), "tcp://127.0.0.1:1"
    why = "option delivery must be exactly-once or at-least-once"
    assert why in said(lambda: write(frame, nowhere, delivery="maybe"))
    why = f"cannot connect to {nowhere} within 0 ms"
    assert why in said(lambda: write(frame, nowhere, connectTimeoutMs=0))


def test_schemas_and_modes_are_refused(spark: Any) -> None:
    frame = numbers(spark, 1)
    assert "format=raw requires a column data; the columns are id" in said(lambda: write(frame, "tcp://127.0.0.1:1"))
    with_more = raw(frame).selectExpr("data", "1 as more")
    assert "not column more: format=json sends all columns" in said(lambda: write(with_more, "tcp://127.0.0.1:1"))
    typed = frame.selectExpr("id as data")
    assert "column data must be BINARY or STRING, not BIGINT" in said(lambda: write(typed, "tcp://127.0.0.1:1"))
    writer = raw(frame).write.format("afflux").option("uri", "tcp://127.0.0.1:1")
    assert 'format("afflux") appends' in said(lambda: writer.mode("overwrite").save())


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("Query", "bigint", "column Query: the folders of the table have a column of that name"),
        ("batch", "string", "column batch: the folders"),
        ("a", "interval day to second", "column a: format=columns cannot store the type INTERVAL"),
        ("a", "time(6)", "the type TIME; cast it, for example to STRING"),
        ("a", "array<variant>", "the type VARIANT"),
        ("a", "struct<x:int,y:map<string,interval year>>", "the type INTERVAL"),
    ],
)
def test_columns_that_a_receiver_cannot_store(name: str, kind: str, why: str) -> None:
    options = SinkOptions.parse({"uri": "tcp://h:1", "format": "columns"})
    check_schema(options, [("id", "struct<time:timestamp,variant:int>")])
    with pytest.raises(Invalid, match=why):
        check_schema(options, [("id", "bigint"), (name, kind)])


# -- streams -------------------------------------------------------------------------------------------------------


class Lines:
    """Text files with numbers, each a batch, and the checkpoint of a query."""

    def __init__(self, directory: Path) -> None:
        self.input, self.checkpoint = directory / "input", directory / "checkpoint"
        self.input.mkdir()
        self.count = 0

    def add(self, rows: int) -> None:
        text = "".join(f"{number}\n" for number in range(self.count, self.count + rows))
        (self.input / f"{self.count:06}.txt").write_text(text)
        self.count += rows

    def write(self, spark: Any, uri: str, **options: object) -> None:
        query(spark, str(self.input), str(self.checkpoint), uri, **options).awaitTermination()

    def repeat_the_last_batch(self) -> None:
        """Leave the checkpoint as a crash after the sink's commit does: without the entry in Spark's commit log."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink()


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path)


def test_a_stream_is_written_batch_by_batch(spark: Any, receiving: Receiving, lines: Lines) -> None:
    for rows_of_batch in (10, 20):
        lines.add(rows_of_batch)
    lines.write(spark, receiving.uri)
    assert Counter(rows(receiving.directory)) == wanted(30)
    (directory,) = receiving.directory.glob("query=*")
    assert sorted(path.name for path in directory.iterdir()) == ["batch=0", "batch=1"]
    lines.add(5)
    lines.repeat_the_last_batch()
    lines.write(spark, receiving.uri)
    assert Counter(rows(receiving.directory)) == wanted(35)
    assert sorted(path.name for path in directory.iterdir()) == ["batch=0", "batch=1", "batch=2"]


def test_output_modes_and_options_of_streams_are_refused(spark: Any, lines: Lines) -> None:
    lines.add(1)
    assert "writeId is not possible for a stream" in said(lambda: lines.write(spark, "tcp://127.0.0.1:1", writeId="a"))
    counts = spark.readStream.format("text").load(str(lines.input)).selectExpr("cast(value as binary) data")
    writer = counts.groupBy("data").count().select("data").writeStream.format("afflux")
    writer = writer.options(uri="tcp://127.0.0.1:1", checkpointLocation=str(lines.checkpoint / "complete"))
    complete = writer.trigger(availableNow=True).outputMode("complete")
    assert 'format("afflux") appends' in said(lambda: complete.start().awaitTermination())


# -- kills ---------------------------------------------------------------------------------------------------------


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do ``work`` in a thread beside the block; its error is raised at the end. Spark stays in the main thread."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]


def connected_to(uri: str) -> set[int]:
    """The Python workers of Spark that have a connection to the address (Linux)."""
    port = f":{int(uri.rpartition(':')[2]):04X}"
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in table if row[2].endswith(port)}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            own = b"pyspark" in (process / "cmdline").read_bytes()
            if own and sockets & {os.readlink(path) for path in (process / "fd").iterdir()}:
                found.add(int(process.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="finds workers by Linux's tables")
def test_a_worker_killed_while_it_stages(spark: Any, receiving: Receiving) -> None:
    killed: set[int] = set()

    def kill_workers() -> None:
        receiving.until("staging")
        receiving.until("staging")
        killed.update(connected_to(receiving.uri))
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
        receiving.stop_at("")

    receiving.stop_at("staging")
    with meanwhile(kill_workers):
        write(raw(numbers(spark, 5000)), receiving.uri)
    assert len(killed) == 2
    assert Counter(rows(receiving.directory)) == wanted(5000)


@pytest.mark.parametrize("point", short(["staging", "committing", "committed"], smoke=["committing"]))
def test_a_receiver_killed(spark: Any, receiving: Receiving, point: str) -> None:
    """SP-18, with ``committed``: the answer to the commit is lost."""

    def kill_receiver() -> None:
        receiving.until(point)
        receiving.restart()

    receiving.stop_at(point)
    with meanwhile(kill_receiver):
        write(raw(numbers(spark, 5000)), receiving.uri)
    assert Counter(rows(receiving.directory)) == wanted(5000)


# -- other peers ---------------------------------------------------------------------------------------------------


class Other:
    """A peer that knows nothing of staging; ``mode`` says what it does with rows."""

    def __init__(self) -> None:
        self.mode = "takes"
        self.seen: list[afflux.Payload] = []
        self.cut: Callable[[], None] = lambda: None
        self.open = self.most = 0
        self.by_key: Counter[bytes] = Counter()

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        if self.mode == "silent":
            await asyncio.Event().wait()
        if self.mode == "refuses":
            raise afflux.Rejected("no rows today")
        async for item in items:
            self.seen.append(item)
            if self.mode == "slow":
                await asyncio.sleep(0.1)  # its pace: the test is about time, and waits for nothing else
            if self.mode == "closes" and len(self.seen) == 5:
                self.cut()
                await asyncio.Event().wait()
            if self.mode == "fails once" and len(self.seen) == 5:
                self.mode = "takes"
                raise afflux.ApplicationError(message="the disk is on fire")
        yield b"thanks"

    async def request(self, payload: afflux.Payload) -> bytes:
        key = payload.data[:1]
        self.open += 1
        self.by_key[key] += 1
        self.most = max(self.most, self.open)
        alone = self.by_key[key] == 1
        await asyncio.sleep(0)
        self.open -= 1
        self.by_key[key] -= 1
        self.seen.append(payload)
        return b"alone" if alone else b"together"


@pytest.fixture
def other() -> Iterator[tuple[Other, str]]:
    """A peer in a thread of its own, and its address."""
    handler = Other()
    with beside(listening(handler, credit=8)) as uri:
        yield handler, uri


def keys(seen: list[afflux.Payload]) -> list[tuple[int, int]]:
    """Partition and sequence of the rows."""
    found = [staging_of(payload.metadata) for payload in seen]
    assert all(isinstance(key, Key) for key in found)
    assert len({(key.query, key.batch) for key in found if isinstance(key, Key)}) == 1
    return [(key.partition, key.sequence) for key in found if isinstance(key, Key)]


AT_LEAST = {"delivery": "at-least-once"}


def test_another_peer_gets_rows_with_keys_in_order(spark: Any, other: tuple[Other, str]) -> None:
    handler, uri = other
    frame = raw(numbers(spark, 300, 1)).selectExpr("data", "if(data = '7', cast('' as binary), null) metadata")
    write(frame, uri, route="rows", **AT_LEAST)
    assert [payload.data for payload in handler.seen] == [b"%d" % number for number in range(300)]
    assert keys(handler.seen) == [(0, number) for number in range(300)]
    assert [afflux.route_of(payload) for payload in handler.seen[:2]] == ["rows", None]


def test_a_row_that_is_sent_again_has_the_same_key(spark: Any, other: tuple[Other, str]) -> None:
    handler, uri = other
    handler.mode = "fails once"
    write(raw(numbers(spark, 20, 1)), uri, **AT_LEAST)
    assert len(handler.seen) == 25
    by_key = dict(zip(keys(handler.seen), [payload.data for payload in handler.seen], strict=True))
    assert by_key == {(0, number): b"%d" % number for number in range(20)}


def test_requests_with_equal_keys_follow_each_other(spark: Any, other: tuple[Other, str]) -> None:
    handler, uri = other
    frame = numbers(spark, 200, 1).selectExpr("concat(id % 4, ' ', id) data", "id % 4 as device")
    write(frame, uri, verb="request", orderBy="device", maxRequests=16, route="rows", **AT_LEAST)
    assert sorted(keys(handler.seen)) == [(0, number) for number in range(200)]
    for device in range(4):
        own = [int(payload.data.split()[1]) for payload in handler.seen if payload.data.startswith(b"%d" % device)]
        assert own == list(range(device, 200, 4))
    assert {afflux.route_of(payload) for payload in handler.seen} == {"rows"}
    assert 1 < handler.most <= 16


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("silent", "took no rows and answered nothing for 300 ms (writeTimeoutMs)"),
        ("refuses", "refused the rows: no rows today"),
    ],
)
def test_a_peer_that_does_not_take_rows(other: tuple[Other, str], delivery: str, mode: str, why: str) -> None:
    """SP-17."""
    handler, uri = other
    handler.mode = mode
    assert f"{uri} {why}" in said(lambda: a_task(uri, delivery=delivery, writeTimeoutMs="300"))


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_closes_the_connection(other: tuple[Other, str], reset: bool) -> None:
    """SP-17."""
    handler, uri = other
    link = Link(uri)

    def cut() -> None:
        link.do(lambda: link.proxy.cut(reset=reset))

    handler.mode, handler.cut = "closes", lambda: threading.Thread(target=cut).start()
    text = said(lambda: a_task(link.uri, **AT_LEAST))
    assert f"{link.uri} lost the connection: " in text
    assert len(handler.seen) < 20
    link.close()


def test_a_slow_peer_makes_progress_and_is_waited_for(other: tuple[Other, str]) -> None:
    """SP-17: all rows together need longer than the time limit."""
    handler, uri = other
    handler.mode = "slow"
    a_task(uri, **AT_LEAST, writeTimeoutMs="1500")
    assert len(handler.seen) == 20


def test_a_peer_that_does_not_stage(other: tuple[Other, str]) -> None:
    _, uri = other
    text = said(lambda: a_task(uri))
    assert f"{uri}: the peer does not stage rows" in text and "delivery=at-least-once" in text


def a_task(uri: str, **options: str) -> object:
    """Do what a task does with rows, in this process."""
    import pyarrow as pa

    writer = AffluxFormat({"uri": uri} | options).writer(DATA, overwrite=False)
    return writer.write(iter([pa.record_batch({"data": [b"%d" % number for number in range(20)]})]))
