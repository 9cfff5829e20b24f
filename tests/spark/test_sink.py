"""Writing with ``format("afflux")`` from a real Spark session, to our receiver and to other peers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark


class Receiving:
    """``afflux serve --sink`` in a process of its own, which can be killed and started again at the same address."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.uri = "tcp://127.0.0.1:0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "afflux", "serve", self.uri, "--sink", str(self.directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.uri = self.process.stdout.readline().split()[1]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


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
        ({"connectTimeoutMs": 0}, "cannot connect to tcp://127.0.0.1:1 within 0 ms"),
    ],
)
def test_options_are_refused(spark: Any, options: dict[str, object], why: str) -> None:
    assert why in said(lambda: write(raw(numbers(spark, 1)), "tcp://127.0.0.1:1", **options))


def test_schemas_and_modes_are_refused(spark: Any) -> None:
    frame = numbers(spark, 1)
    assert "format=raw requires a column data; the columns are id" in said(lambda: write(frame, "tcp://127.0.0.1:1"))
    with_more = raw(frame).selectExpr("data", "1 as more")
    assert "not column more: format=json sends all columns" in said(lambda: write(with_more, "tcp://127.0.0.1:1"))
    typed = frame.selectExpr("id as data")
    assert "column data must be BINARY or STRING, not BIGINT" in said(lambda: write(typed, "tcp://127.0.0.1:1"))
    writer = raw(frame).write.format("afflux").option("uri", "tcp://127.0.0.1:1")
    assert 'format("afflux") appends' in said(lambda: writer.mode("overwrite").save())
