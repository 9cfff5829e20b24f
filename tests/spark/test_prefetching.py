"""Small batches, whose rows travel with their plan: the same rows, without a connection for each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Link, asked
from tests.spark.serving import item

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

ROWS = 1_500
DATA = asked(count=ROWS, size=24)


def source(spark: Any, uri: str, **more: object) -> Any:
    """Batches of 300 rows."""
    given = {"uri": uri, "requestData": DATA, "maxRowsPerBatch": 300, "pollTimeoutMs": 30_000} | more
    return spark.readStream.format("afflux").options(**given)


def finished(frame: Any, checkpoint: Path, write: Any) -> Any:
    """Run a query to the end of its stream."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(write).start()
    assert query.awaitTermination(90)
    return query


def test_small_batches_share_one_connection(spark: Any, link: Link, tmp_path: Path) -> None:
    found: list[tuple[int, Any]] = []
    before = link.proxy.connections
    frame = source(spark, link.uri, route="tagged", includeMetadata=True).load()
    finished(frame, tmp_path / "checkpoint", lambda rows, batch: found.extend((batch, row) for row in rows.collect()))
    assert link.proxy.connections == before + 1
    expected = [item("tagged", number, 24) for number in range(ROWS)]
    assert [(bytes(row.data), row.metadata and bytes(row.metadata), row.offset) for _, row in found] == [
        (payload.data, payload.metadata, number) for number, payload in enumerate(expected)
    ]
    assert {batch for batch, _ in found} >= set(range(ROWS // 300))
    assert len({row.timestamp for _, row in found}) > 0 and {row.partition for _, row in found} == {0}


def test_decoded_rows_and_malformed_ones(spark: Any, uri: str, tmp_path: Path) -> None:
    schema = "id INT, name STRING, _corrupt_record STRING"
    more = {"route": "json", "format": "json", "requestData": asked(count=900)}
    found: list[Any] = []
    frame = source(spark, uri, **more).schema(schema).load()
    finished(frame, tmp_path / "checkpoint", lambda rows, _: found.extend(rows.collect()))
    stored = spark.read.format("afflux").options(uri=uri, **more, pollTimeoutMs=30_000).schema(schema).load()
    assert found == stored.collect() and sum(row._corrupt_record is not None for row in found) == 9


def test_an_error_of_a_row_is_reported_by_a_task(spark: Any, uri: str, tmp_path: Path) -> None:
    more = {"route": "json", "format": "json", "mode": "failfast"}
    frame = source(spark, uri, **more).schema("id INT").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=r"offset 7\b"):
        query.awaitTermination(90)


def test_large_items_are_left_to_tasks(spark: Any, link: Link, tmp_path: Path) -> None:
    """A batch of 20 MB: more than the reader prefetches."""
    found: list[int] = []
    before = link.proxy.connections
    frame = source(spark, link.uri, requestData=asked(count=600, size=70_000)).load()
    finished(frame, tmp_path / "checkpoint", lambda rows, _: found.extend(row.offset for row in rows.collect()))
    assert found == list(range(600))
    assert link.proxy.connections > before + 1


def test_tasks_read_what_the_reader_could_not(link: Link) -> None:
    from afflux.spark.format import AffluxSource

    given = {"uri": link.uri, "requestData": DATA, "maxRowsPerBatch": "300", "pollTimeoutMs": "30000"}
    made = AffluxSource(given)
    reader = made.streamReader(_schema(made))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    def rows() -> list[int]:
        return [
            offset
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for offset in batch["offset"].to_pylist()
        ]

    assert rows() == list(range(300))
    assert [batch.num_rows for batch in reader.getCache(start, end)] == [300]
    link.do(link.proxy.cut)
    link.proxy.reachable = False
    parts = reader.partitions(start, end)
    assert list(reader.getCache(start, end)) == []
    link.proxy.reachable = True
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 300
    reader.stop()


@pytest.mark.long
def test_spark_frees_the_rows_of_old_batches(spark: Any, uri: str, tmp_path: Path) -> None:
    """Thirty batches of 2 MB: Spark stores a few of them at a time."""

    def free() -> int:
        rows = spark._jsc.sc().getExecutorMemoryStatus().valuesIterator()
        found = 0
        while rows.hasNext():
            found += rows.next()._2()
        return found

    least = [free()]
    frame = source(spark, uri, requestData=asked(count=3_000, size=20_000), maxRowsPerBatch=100).load()
    finished(frame, tmp_path / "checkpoint", lambda rows, _: (rows.count(), least.append(free())))
    assert len(least) > 30
    assert least[0] - min(least) < 20 << 20


def _schema(made: Any) -> Any:
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

    kinds = {"BINARY": BinaryType(), "INT": IntegerType(), "BIGINT": LongType(), "TIMESTAMP": TimestampType()}
    columns = [column.split(" ") for column in made.schema().split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in columns])


def test_rows_are_read_while_spark_logs_the_batch(link: Link) -> None:
    """The plan needs no server any more: its rows came after the report of the batch's end."""
    from afflux.spark.format import AffluxSource

    given = {"uri": link.uri, "requestData": DATA, "maxRowsPerBatch": "300", "pollTimeoutMs": "30000"}
    made = AffluxSource(given)
    reader = made.streamReader(_schema(made))
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.reportLatestOffset()
    reader.partitions(reader.initialOffset(), first)
    assert [batch.num_rows for batch in reader.getCache({}, first)] == [300]
    end = reader.latestOffset(first, reader.getDefaultReadLimit())
    reader.reportLatestOffset()
    reader.caught_up()
    link.do(link.proxy.cut)
    link.proxy.reachable = False
    reader.partitions(first, end)
    assert [offset for batch in reader.getCache(first, end) for offset in batch["offset"].to_pylist()] == [
        *range(300, 600)
    ]
    link.proxy.reachable = True
    reader.stop()
