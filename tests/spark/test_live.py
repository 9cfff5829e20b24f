"""Queries on live streams: how they start, what they do while the server is away, and what their progress reports."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any

import pytest

import afflux
from afflux.journal import Journalled
from tests.spark.conftest import PATIENCE_S, Link, asked, beside, running, until
from tests.spark.serving import Front, Numbers, item

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

LIVE = asked(count=500, open=True, every_ms=5)

Start = Callable[..., Any]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of this module alone, because live streams do not end before their server."""
    with running(tmp_path_factory.mktemp("live")) as address:
        yield address


@pytest.fixture
def start(spark: Any, uri: str, tmp_path: Path) -> Iterator[Start]:
    """Start a query that writes nothing; its checkpoint has the given name."""
    queries = []

    def started(name: str, **options: object) -> Any:
        named = {"uri": uri, "requestData": LIVE, "pollTimeoutMs": 50} | options
        writer = spark.readStream.format("afflux").options(**named).load().writeStream.format("noop")
        queries.append(writer.option("checkpointLocation", str(tmp_path / name)).start())
        return queries[-1]

    yield started
    for query in queries:
        query.stop()


def source(progress: dict[str, Any], offset: str = "endOffset") -> dict[str, Any]:
    text = dict(progress["sources"][0])[offset]
    return dict(json.loads(text)) if text and text != "null" else {}


def with_rows(progress: dict[str, Any]) -> bool:
    return bool(progress["numInputRows"])


def consecutive(query: Any) -> None:
    """The batches of a query are without gap, and each has the rows of its range."""
    last = None
    for progress in query.recentProgress:
        start, end = source(progress, "startOffset"), source(progress)
        if start:
            assert last is None or start == last
            assert progress["numInputRows"] == end["0"]["pos"] - start["0"]["pos"]
        last = end


def test_queries_start_at_the_head_of_a_live_stream_and_start_again(start: Start) -> None:
    names = [f"latest-{number}" for number in range(3)]
    begins: list[int] = []
    for name in names:
        query = start(name, startingOffsets="latest")
        until(query, with_rows)
        query.stop()
        consecutive(query)
        first = query.recentProgress[0]
        assert first["numInputRows"] == 0 and source(first)["0"]["from"] == source(first)["0"]["pos"]
        begins.append(source(first)["0"]["pos"])
    assert sorted(set(begins)) == begins
    for name in names[:1]:
        query = start(name, startingOffsets="latest")
        until(query, with_rows)
        query.stop()
        consecutive(query)


def test_the_first_answer_is_the_durable_one(start: Start, tmp_path: Path) -> None:
    """The first batch was logged and has failed: the next start repeats it from where it began."""
    for name in ("latest", "earliest"):
        query = start(name, startingOffsets=name)
        until(query, with_rows)
        query.stop()
        logged = json.loads((tmp_path / name / "offsets" / "0").read_text().splitlines()[-1])
        shutil.rmtree(tmp_path / name / "commits")
        for batch in (tmp_path / name / "offsets").iterdir():
            if batch.name not in ("0", ".0.crc"):
                batch.unlink()
        query = start(name, startingOffsets=name)
        until(query, lambda progress: progress["batchId"] == 1 and with_rows(progress))
        query.stop()
        first, second = (next(p for p in query.recentProgress if p["batchId"] == batch) for batch in (0, 1))
        assert first["numInputRows"] == logged["0"]["pos"] - logged["0"]["from"]
        assert logged["0"]["from"] == 0 if name == "earliest" else logged["0"]["from"] == logged["0"]["pos"]
        assert source(second, "startOffset") == logged


def test_a_restarted_server_does_not_end_a_query(spark: Any, tmp_path: Path) -> None:
    """Twice the server is killed in the middle of batches and comes back: no row is lost, and none comes twice."""
    with running(tmp_path / "journals") as at:
        frame = spark.readStream.format("afflux").options(uri=at, requestData=LIVE, pollTimeoutMs=50).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "table"))
        end = until(query, with_rows)
    for _ in range(2):
        more = source(end)["0"]["pos"] + 100
        with running(tmp_path / "journals", at=at):
            end = until(query, lambda progress, more=more: source(progress)["0"]["pos"] >= more)  # type: ignore[misc]
    query.stop()
    consecutive(query)
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [(row.offset, bytes(row.data)) for row in rows] == [(n, item(None, n, 16)) for n in range(len(rows))]


def test_the_progress_says_that_the_server_is_away_and_that_it_is_back(start: Start, tmp_path: Path) -> None:
    with running(tmp_path / "journals") as at:
        query = start("said", uri=at, requestData=asked(count=500, open=True))
        until(query, lambda progress: source(progress)["0"]["pos"] == 500)
    away = until(query, lambda progress: "away" in source(progress))
    assert "3 attempts in" in source(away, "latestOffset")["reconnecting"] and not with_rows(away)
    with running(tmp_path / "journals", at=at):
        back = until(query, lambda progress: source(progress, "latestOffset").get("reconnects") == 1)
        assert "reconnecting" not in source(back, "latestOffset") and not with_rows(back)
        query.stop()
    assert "away" not in source(back)


def test_a_server_that_does_not_come_back_ends_the_query(start: Start, tmp_path: Path) -> None:
    with running(tmp_path / "journals") as at:
        query = start("away", uri=at, reconnectTimeoutMs=300)
        until(query, with_rows)
    with pytest.raises(Exception, match=r"reconnectTimeoutMs has passed: \d+ attempts"):
        query.awaitTermination()


def test_what_cannot_be_mended_ends_the_query_at_once(start: Start) -> None:
    for route, text in (("plain", "does not support the cursor"), ("refused", 'no route "refused"')):
        query = start(route, route=route)
        with pytest.raises(Exception, match=text):
            query.awaitTermination()


def test_a_sink_that_holds_a_task_for_longer_than_a_connection_lives(spark: Any, link: Link) -> None:
    near = f"{link.uri}?keepalive=0.2&lifetime=0.6"
    data = asked(count=4_000, size=10_000)
    frame = spark.read.format("afflux").options(uri=near, requestData=data, pollTimeoutMs=30_000).load()
    with socket.create_server(("127.0.0.1", 0)) as gates:
        address = gates.getsockname()

        def slowly(rows: Any) -> Any:
            for place, row in enumerate(rows):
                if place in (0, 2_000):
                    with socket.create_connection(address) as gate:
                        gate.recv(1)
                yield row.offset

        def hold() -> None:
            for _ in range(2):
                gate, _ = gates.accept()
                link.until_ended()
                gate.close()

        holding = Thread(target=hold)
        holding.start()
        before = link.proxy.connections
        offsets = frame.select("offset", "data").rdd.mapPartitions(slowly).collect()
        holding.join()
    assert offsets == list(range(4_000))
    assert link.proxy.connections >= before + 3


class Counted(Front):
    """A server that counts requests."""

    def __init__(self, journalled: Journalled) -> None:
        super().__init__(journalled)
        self.requests = Semaphore(0)

    def stream(self, payload: afflux.Payload) -> Any:
        self.requests.release()
        return super().stream(payload)


def test_an_idle_query_has_one_connection_and_its_progress_shows_the_lag(start: Start, tmp_path: Path) -> None:
    counted: list[Counted] = []

    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        async with Journalled(Numbers(), tmp_path / "journals", limits=afflux.Limits.server()) as journalled:
            counted.append(Counted(journalled))
            async with afflux.serve("tcp://127.0.0.1:0", counted[0]) as server:
                yield server.uri

    with beside(serving()) as uri:
        link = Link(uri)
        query = start("idle", uri=link.uri, requestData=asked(count=2500, open=True), maxRowsPerBatch=1000)
        until(query, lambda progress: source(progress)["0"]["pos"] == 2500)
        for progress in query.recentProgress:
            heads = source(progress, "latestOffset")["0"]
            assert heads["lag"] == heads["pos"] - source(progress)["0"]["pos"]
        assert max(source(progress, "latestOffset")["0"]["lag"] for progress in query.recentProgress) > 0
        before = link.proxy.connections
        while counted[0].requests.acquire(blocking=False):
            pass
        for _ in range(20):
            assert counted[0].requests.acquire(timeout=PATIENCE_S)
        assert link.proxy.connections == before
        query.stop()
        link.close()


def test_a_part_of_a_stream_is_called_a_part(uri: str, caplog: Any) -> None:
    from afflux.spark.source import AffluxSource

    for more, said in (({"open": True}, True), ({}, False)):
        given = {"uri": uri, "requestData": asked(count=321, **more), "pollTimeoutMs": "200"}
        reader = AffluxSource(given).reader(_raw())
        caplog.clear()
        with caplog.at_level(logging.WARNING, "afflux.spark"):
            reader.partitions()
        assert ("partial result: " in caplog.text and "has not ended" in caplog.text) is said


def test_sql_reads_tables_that_are_declared_in_sql(spark: Any, uri: str) -> None:
    given = f"OPTIONS (uri '{uri}', requestData '{asked(count=30)}', pollTimeoutMs '30000')"
    for table, create in (
        ("numbers", f"CREATE TABLE numbers USING afflux {given} COMMENT 'numbers' TBLPROPERTIES ('team' = 'a')"),
        ("looks", f"CREATE TEMPORARY VIEW looks USING afflux {given}"),
    ):
        spark.sql(create)
        rows = spark.sql(f"SELECT offset, CAST(data AS STRING) AS text FROM {table} WHERE offset >= 28").collect()
        assert [(row.offset, row.text) for row in rows] == [(28, "28".ljust(16, ".")), (29, "29".ljust(16, "."))]
    query = spark.readStream.table("numbers").writeStream.format("memory").queryName("streamed")
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("streamed").count() == 30
    for drop in ("TABLE numbers", "VIEW looks"):
        spark.sql(f"DROP {drop}")


def test_options_in_sql_are_checked(spark: Any, uri: str) -> None:
    with pytest.raises(Exception, match="unknown option rout; did you mean route"):
        spark.sql(f"CREATE TABLE wrong USING afflux OPTIONS (uri '{uri}', rout 'x')")
    with pytest.raises(Exception, match=r"option uri is missing: .*; in SQL, write OPTIONS and no columns"):
        spark.sql("CREATE TABLE wrong USING afflux")
    spark.sql(f"CREATE TABLE declared (offset BIGINT) USING afflux OPTIONS (uri '{uri}')")
    with pytest.raises(Exception, match=r"option uri is missing.*; in SQL, write OPTIONS and no columns"):
        spark.sql("SELECT * FROM declared").collect()
    spark.sql("DROP TABLE declared")


def test_sql_that_writes_says_what_works_instead(spark: Any, uri: str) -> None:
    instead = (
        r'INSERT INTO and CREATE TABLE \.\.\. AS SELECT cannot write to afflux.* use df\.write\.format\("afflux"\)'
    )
    options = f"USING afflux OPTIONS (uri '{uri}', format 'columns')"
    for create in (f"CREATE TABLE made {options} AS SELECT 1 AS number", f"CREATE TABLE made {options}"):
        with pytest.raises(Exception, match=instead):
            spark.sql(create)
    spark.sql(f"CREATE TABLE declared (number INT) {options}")
    with pytest.raises(Exception, match=instead):
        spark.sql("INSERT INTO declared VALUES (1)")
    spark.sql("DROP TABLE declared")


def test_arrow_functions_need_no_other_package(spark: Any, uri: str) -> None:
    def sizes(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    frame = spark.read.format("afflux").options(uri=uri, requestData=asked(count=70), pollTimeoutMs=30_000).load()
    assert sum(row["rows"] for row in frame.mapInArrow(sizes, "rows BIGINT").collect()) == 70


def test_an_executor_without_the_package_names_the_remedy(spark: Any, uri: str, tmp_path: Path) -> None:
    """The Python of this query's workers has no afflux; that of its planner has."""
    (tmp_path / "afflux.py").write_text("raise ModuleNotFoundError(\"No module named 'afflux'\", name='afflux')\n")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *pyspark.worker*|*pyspark.daemon) export PYTHONPATH={tmp_path}:$PYTHONPATH;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    frame = spark.read.format("afflux").options(uri=uri, requestData=asked(count=3), pollTimeoutMs=30_000).load()
    spark.conf.set("spark.sql.execution.pyspark.python", str(python))
    try:
        with pytest.raises(Exception, match="Install it in the Python of every executor") as raised:
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.python")
    assert "No module named 'afflux'" in str(raised.value) and sys.executable in str(raised.value)


def test_spark_before_4_2_passes_no_start(uri: str) -> None:
    """Its ``latestOffset`` has no arguments; the reader continues from the last end that it knows."""
    from afflux.spark.source import AffluxSource

    for starting, first in (("earliest", 0), ("latest", 700)):
        given = {"uri": uri, "requestData": asked(count=700, open=True, size=20 + first), "maxRowsPerBatch": "300"}
        given |= {"pollTimeoutMs": "100", "startingOffsets": starting}
        reader = AffluxSource(given).streamReader(_raw())
        while reader.latestOffset()["0"]["pos"] < 700:
            pass
        end = reader.latestOffset()
        assert sum(len(part.value or ()) for part in reader.partitions(reader.initialOffset(), end)) == 700 - first
        assert reader.latestOffset() == end
        again = AffluxSource(given).streamReader(_raw())
        again.partitions(reader.initialOffset(), end | {"0": end["0"] | {"pos": 100}})
        assert again.latestOffset()["0"]["pos"] == 400
        for each in (reader, again):
            each.stop()


def _raw() -> Any:
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField("data", BinaryType())])
