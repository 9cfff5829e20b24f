"""What the progress of a query shows of its credit and its stalls, and what observations add to it."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.spark.stalls import Stalls
from tests.spark.conftest import Link, asked, until


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_second_has_its_cause() -> None:
    clock = Clock()
    stalls = Stalls(clock)

    def batch(seconds: float, *, runs: float = 0.0, **answer: Any) -> dict[str, float]:
        stalls.asked()
        clock.now += seconds
        stalls.answered(**{"rows": 0, "lag": 0, "away": False, "full": False} | answer)
        clock.now += runs
        return stalls.report()

    assert batch(1, rows=5) == {}
    assert batch(2) == {"source": 2}
    assert batch(3, away=True) == {"source": 2, "away": 3}
    assert batch(0, rows=5, lag=7, runs=4) == {"source": 2, "away": 3}
    assert batch(0, rows=7, runs=5) == {"source": 2, "away": 3, "spark": 4}
    assert batch(0, rows=5, full=True, runs=6) == {"source": 2, "away": 3, "spark": 4}
    assert batch(1) == {"source": 3, "away": 3, "spark": 4, "full": 7}
    assert batch(1) == {"source": 4, "away": 3, "spark": 4, "full": 7}


def reader(uri: str, **options: str) -> Any:
    """A reader of micro-batches, as Spark creates it."""
    pytest.importorskip("pyspark")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from afflux.spark.source import AffluxSource

    return AffluxSource({"uri": uri} | options).streamReader(StructType([StructField("data", BinaryType())]))


def test_the_progress_has_the_credit_of_the_tasks_and_the_stalls(uri: str) -> None:
    one = reader(uri, requestData=asked(count=2500, open=True), maxRowsPerBatch="1000", pollTimeoutMs="50")
    end, credits, stalls = one.initialOffset(), [], {}
    while end.get("0", {}).get("pos") != 2500 or "source" not in stalls:
        start, end = end, one.latestOffset(end)
        report = one.reportLatestOffset()
        tasks = [part.value for part in one.partitions(start, end)]
        assert report["0"]["credit"] == sum(len(span) for span in tasks if span is not None)
        credits.append(report["0"]["credit"])
        stalls = report.get("stalls", {})
    assert max(credits) == 1000 and credits[-1] == 0 and sum(credits) == 2500
    assert stalls["source"] >= 0.05 and stalls["spark"] > 0
    one.stop()


def test_a_server_that_is_away_is_a_stall(link: Link) -> None:
    one = reader(link.uri, requestData=asked(count=30, open=True, size=40), pollTimeoutMs="20")
    end = one.initialOffset()
    while end.get("0", {}).get("pos") != 30:
        end = one.latestOffset(end)
    assert "away" not in one.reportLatestOffset().get("stalls", {})
    link.proxy.reachable = False
    link.do(lambda: link.proxy.cut(reset=True))
    while "reconnecting" not in one.reportLatestOffset():
        end = one.latestOffset(end)
    assert one.reportLatestOffset()["stalls"]["away"] > 0
    one.stop()


@pytest.mark.spark
def test_observations_count_the_rows_of_a_query_and_of_a_batch_read(spark: Any, uri: str, tmp_path: Any) -> None:
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit, max

    data = asked(count=300)
    figures = count(lit(1)).alias("rows"), max("offset").alias("last")
    observed = Observation("part")
    stored = spark.read.format("afflux").options(uri=uri, requestData=data, pollTimeoutMs=30_000).load()
    stored.observe(observed, *figures).write.format("noop").mode("overwrite").save()
    assert observed.get == {"rows": 300, "last": 299}
    live = spark.readStream.format("afflux").options(uri=uri, requestData=data, maxRowsPerBatch=200).load()
    writer = live.observe("batch", *figures).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        shown = until(query, lambda progress: progress["numInputRows"] == 100)
        assert shown["observedMetrics"]["batch"].asDict() == {"rows": 100, "last": 299}
        assert '"credit":100' in shown["sources"][0]["latestOffset"].replace(" ", "")
        assert '"stalls"' in shown["sources"][0]["latestOffset"]
    finally:
        query.stop()
