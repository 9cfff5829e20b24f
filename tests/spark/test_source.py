"""``format("afflux")`` in a real Spark session, against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import asked, running
from tests.spark.serving import TIME_US, item

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from afflux.core.errors import Error  # noqa: E402
from afflux.spark.format import AffluxFormat  # noqa: E402

limited = pytest.mark.skipif(
    tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2), reason="Spark before 4.2 passes no limits to sources"
)
Load = Callable[..., Any]
Run = Callable[..., Any]


@pytest.fixture
def batch(spark: Any, uri: str) -> Load:
    """A batch read that waits until the stream has ended."""

    def load(schema: str | None = None, **options: object) -> Any:
        reader = spark.read.format("afflux")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**{"uri": uri, "pollTimeoutMs": 30_000} | options).load()

    return load


@pytest.fixture
def run(spark: Any, uri: str, tmp_path: Path) -> Run:
    """A query over all there is now, into Parquet; a second call goes on from the checkpoint of the first."""

    def start(frame: Any = None, **options: object) -> Any:
        if frame is None:
            frame = streaming(spark, **{"uri": uri} | options)
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        query.awaitTermination()
        return query

    return start


def streaming(spark: Any, **options: object) -> Any:
    return spark.readStream.format("afflux").options(**{"pollTimeoutMs": 30_000} | options).load()


def table(spark: Any, tmp_path: Path) -> list[Any]:
    return list(spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect())


def said(raised: Any) -> str:
    """The text of an error that came through Spark."""
    return str(raised.value)


# -- batch -----------------------------------------------------------------------------------------------------


def test_all_columns_of_a_batch_read(batch: Load) -> None:
    frame = batch(requestData=asked(count=3000, size=20), partitions=3)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields] == [
        "data binary",
        "metadata binary",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
    ]
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(3000))
    assert [bytes(row.data) for row in rows] == [item(None, number, 20) for number in range(3000)]
    assert {row.metadata for row in rows} == {None} and {row.partition for row in rows} == {0}
    assert all(row.timestamp is not None for row in rows)


def test_metadata_when_it_is_asked_for(batch: Load) -> None:
    rows = batch(route="tagged", requestData=asked(count=9), includeMetadata=True).orderBy("offset").collect()
    wanted = [b"tag 0", b"", None, b"tag 3", b"", None, b"tag 6", b"", None]
    assert [None if row.metadata is None else bytes(row.metadata) for row in rows] == wanted
    assert all(row.metadata is None for row in batch(route="tagged", requestData=asked(count=9)).collect())


def test_a_selection_of_the_columns(batch: Load) -> None:
    frame = batch("offset BIGINT, data BINARY", requestData=asked(count=50), startingOffsets='{"0": 40}')
    assert [(row.offset, bytes(row.data)) for row in frame.orderBy("offset").collect()] == [
        (number, item(None, number, 16)) for number in range(40, 50)
    ]


def test_the_time_is_when_the_item_was_stored(batch: Load) -> None:
    (row,) = batch(route="lie-exact", startingOffsets='{"0": 99}').selectExpr("unix_micros(timestamp) t").collect()
    assert row.t == TIME_US


def test_an_empty_stream(batch: Load) -> None:
    assert batch(requestData=asked(count=0)).count() == 0


def test_json_into_columns(batch: Load) -> None:
    frame = batch(
        "id INT, name STRING, _corrupt_record STRING", format="json", route="json", requestData=asked(count=250)
    )
    rows = frame.collect()
    assert sorted(row.id for row in rows if row.id is not None) == [n for n in range(250) if n % 100 != 7]
    assert all(row.name == f"n{row.id}" for row in rows if row.id is not None)
    assert [row._corrupt_record for row in rows if row.id is None] == ['{"id": "bad"}'] * 3


def test_json_fails_fast(batch: Load, uri: str) -> None:
    frame = batch("id INT", format="json", mode="failfast", route="json", requestData=asked(count=50))
    with pytest.raises(Exception, match="BadRow") as raised:
        frame.collect()
    assert f"{uri} route 'json', offset 7:" in said(raised)


# -- what is refused on the driver -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"maxRowPerBatch": "5"}, "unknown option maxrowperbatch; did you mean maxRowsPerBatch"),
        ({"partitions": "1000000"}, "option partitions must be a whole number from 1 to 1024"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss must be true or false"),
        ({"uri": "nonsense://x"}, "nonsense"),
        ({"format": "json"}, "format=json requires a schema"),
        ({"format": "msgpack"}, "format=msgpack requires a schema"),
    ],
)
def test_options_are_refused_when_loading(options: dict[str, str], why: str) -> None:
    with pytest.raises(Error, match=why):
        AffluxFormat({"uri": "tcp://127.0.0.1:1"} | options).schema()


def test_an_option_that_is_refused_is_named_by_spark(batch: Load) -> None:
    with pytest.raises(Exception, match="unknown option maxrowperbatch; did you mean maxRowsPerBatch"):
        batch(maxRowPerBatch=5)


def test_schemas_are_refused(batch: Load) -> None:
    with pytest.raises(Exception, match="column carrier STRING is not one of"):
        batch("carrier STRING").collect()
    with pytest.raises(Exception, match="column m: keys of a JSON object are text"):
        batch("m MAP<INT, INT>", format="json").collect()


def test_no_server_is_there(batch: Load) -> None:
    with pytest.raises(Exception, match=r"ConnectFailed: .*127\.0\.0\.1:1"):
        batch(uri="tcp://127.0.0.1:1", reconnectTimeoutMs=0).collect()


def test_a_server_without_a_cursor(batch: Load) -> None:
    with pytest.raises(Exception, match="does not support the cursor"):
        batch(route="plain").collect()


# -- streaming ---------------------------------------------------------------------------------------------------


@limited
def test_available_now_in_batches(spark: Any, run: Run, tmp_path: Path) -> None:
    query = run(requestData=asked(count=1050), maxRowsPerBatch=300, partitions=2)
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in batches] == [300, 300, 300, 150]
    end = json.loads(batches[-1]["sources"][0]["endOffset"])
    assert list(end) == ["0"] and end["0"]["pos"] == 1050 and end["0"]["epoch"] > 0
    rows = table(spark, tmp_path)
    assert [(row.offset, bytes(row.data)) for row in rows] == [(n, item(None, n, 16)) for n in range(1050)]
    assert run(requestData=asked(count=1050)).recentProgress[-1]["numInputRows"] == 0
    assert len(table(spark, tmp_path)) == 1050


@limited
def test_shards_share_a_batch_fairly(spark: Any, run: Run, tmp_path: Path) -> None:
    query = run(route="lie-exact", startingOffsets='{"0": 90, "2": 20, "10": 50}', maxRowsPerBatch=60)
    ends = [json.loads(each["sources"][0]["endOffset"]) for each in query.recentProgress if each["numInputRows"]]
    assert [{shard: mark["pos"] for shard, mark in end.items()} for end in ends] == [
        {"0": 100, "10": 75, "2": 45},
        {"0": 100, "10": 100, "2": 80},
        {"0": 100, "10": 100, "2": 100},
    ]
    assert sorted((row.partition, row.offset) for row in table(spark, tmp_path)) == [
        *((0, offset) for offset in range(90, 100)),
        *((2, offset) for offset in range(20, 100)),
        *((10, offset) for offset in range(50, 100)),
    ]


@limited
def test_batches_by_bytes(run: Run) -> None:
    query = run(requestData=asked(count=1000, size=100), maxBytesPerBatch=40_000)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [
        400,
        400,
        200,
    ]


def test_a_read_that_fails_is_done_again(batch: Load) -> None:
    rows = batch(route="lie-flaky").orderBy("offset").collect()
    assert [(row.offset, bytes(row.data)) for row in rows] == [(n, b"%d" % n) for n in range(100)]


@pytest.mark.parametrize("daemon", [False, True])
def test_killed_workers_are_replaced(batch: Load, tmp_path: Path, daemon: bool) -> None:
    """SP-01, SP-21."""
    mark = str(tmp_path / "killed")

    def kill_once(rows: Any) -> Any:
        """Kill all Python workers after the first row: those that read, their daemon, this one."""
        import os
        import signal

        for row in rows:
            yield row.offset
            if not os.path.exists(mark):
                open(mark, "x").close()
                victims = [os.getppid()] if daemon else []
                for name in filter(str.isdigit, os.listdir("/proc")):
                    with open(f"/proc/{name}/stat") as stat:
                        if int(stat.read().rpartition(") ")[2].split()[1]) == os.getppid():
                            victims.insert(0, int(name))
                for victim in sorted(victims, key=lambda each: each == os.getpid()):
                    os.kill(victim, signal.SIGKILL)

    frame = batch(requestData=asked(count=200_000, size=16), partitions=2)
    offsets = frame.select("offset").rdd.mapPartitions(kill_once).collect()
    assert sorted(offsets) == list(range(200_000))
    assert (tmp_path / "killed").exists()


def test_another_journal_is_refused_or_gone_on_with(spark: Any, uri: str, run: Run, tmp_path: Path) -> None:
    data = asked(count=600)
    run(requestData=data)
    with running(tmp_path / "other") as other:
        with pytest.raises(Exception, match="DataLost") as raised:
            run(uri=other, requestData=data)
        assert "the checkpoint is at epoch" in said(raised) and "offset 600" in said(raised)
        assert len(table(spark, tmp_path)) == 600
        run(uri=other, requestData=data, failOnDataLoss=False)
    assert [row.offset for row in table(spark, tmp_path)] == sorted(2 * list(range(600)))


def test_another_stream_s_checkpoint_is_refused(run: Run) -> None:
    run(requestData=asked(count=10))
    for loss in (True, False):
        with pytest.raises(Exception, match="this checkpoint belongs to another source"):
            run(requestData=asked(count=11), failOnDataLoss=loss)


def test_a_gap_is_refused_or_passed_over(spark: Any, uri: str, run: Run, tmp_path: Path) -> None:
    from afflux.protocols.rsocket.cursor import Acknowledge
    from afflux.spark.offsets import Mark
    from afflux.spark.options import Options
    from afflux.spark.reading import Driver

    data = asked(count=6000, size=400)
    run(streaming(spark, uri=uri, requestData=data).limit(1))  # the checkpoint stands at the head of the first batch
    with Driver(Options.parse({"uri": uri, "requestData": data})) as driver:
        epoch = driver.heads()[0].epoch
        done = Acknowledge(epoch=epoch, offset=5000, owner=1, name="test")
        first = driver.states({0: Mark(epoch, 5000)}, acknowledge=[done])[0].first
    named = {"requestData": data, "startingOffsets": '{"0": 5}'}
    frame = streaming(spark, uri=uri, **named)
    checkpoint = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "gap"))
    with pytest.raises(Exception, match=f"offsets 5 to {first - 1} of shard 0 .* are missing"):
        checkpoint.trigger(availableNow=True).start().awaitTermination()
    lenient = streaming(spark, uri=uri, **named, failOnDataLoss=False)
    writer = lenient.writeStream.format("memory").queryName("gap").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "lenient")).start().awaitTermination()
    assert sorted(row.offset for row in spark.table("gap").collect()) == list(range(first, 6000))


def test_a_short_answer_fails_the_query(run: Run) -> None:
    with pytest.raises(Exception, match="DataLost: offsets 50 to 99 of shard 0"):
        run(route="lie-short")
