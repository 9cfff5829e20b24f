"""Several streams in one query: what a user may ask for, what a batch has, and what a restart may change."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from afflux.core.errors import Invalid
from afflux.spark.declaring import OptionError
from afflux.spark.options import EARLIEST, LATEST, Options
from afflux.spark.reading import DataLost, Driver
from tests.spark.conftest import Link, asked, running

URI = "tcp://127.0.0.1:7000"
Start = Callable[..., Any]


# -- options -------------------------------------------------------------------------------------------------------


def test_each_stream_has_its_own_address_route_and_data() -> None:
    given = {"uri": URI, "route": "flights", "streams": '{"b": {"route": "trains"}, "a": "tcp://other:7000"}'}
    options = Options.parse(given | {"startingOffsets": '{"a": "latest"}'})
    one, other = options.each().values()
    assert (one.uri, one.route, one.starts) == ("tcp://other:7000", "flights", LATEST)
    assert (other.uri, other.route, other.starts) == (URI, "trains", EARLIEST)
    assert other.stream_name == f"stream b ({URI} route 'trains')"
    assert Options.parse({"streams": json.dumps({"a": URI})}).of("a").uri == URI


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"streams": "tcp://a:1,tcp://b:1"}, "option streams must be JSON such as"),
        ({"streams": "[]"}, "with 1 to 1024 streams"),
        ({"streams": "{}"}, "with 1 to 1024 streams"),
        ({"streams": '{"a": {"route": "x"}, "a": {"route": "y"}}'}, "a name is repeated"),
        ({"streams": '{"7": {"route": "x"}}'}, "the name '7' must have"),
        ({"streams": '{"a/b": {"route": "x"}}'}, "the name 'a/b' must have"),
        ({"streams": '{"a": 7}'}, "stream 'a' must be an address or an object of texts, not 7"),
        ({"streams": '{"a": {"route": 7}}'}, "must be an address or an object of texts"),
        ({"streams": '{"a": {"rout": "x"}}'}, "stream 'a': unknown option rout; did you mean route"),
        ({"streams": '{"a": "mem://here"}'}, "stream 'a': uri must be an RSocket address"),
        ({"streams": '{"a": {}, "b": {}}'}, "'a' and 'b' are the same stream"),
        ({"streams": '{"a": {}}', "startingOffsets": '{"b": "latest"}'}, "there is no stream 'b'"),
        ({"streams": '{"a": {}}', "startingOffsets": '{"0": 5}'}, "there is no stream 0"),
        ({"streams": '{"a": {}}', "startingOffsets": '{"a": "newest"}'}, "of stream 'a' it has 'newest'"),
        ({"startingOffsets": '{"a": "latest"}'}, "but streams is not set"),
    ],
)
def test_what_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Options.parse({"uri": URI} | given)


def test_a_stream_without_an_address() -> None:
    with pytest.raises(OptionError, match="stream 'b' has no uri, and the option uri is not set either"):
        Options.parse({"streams": '{"a": "tcp://h:1", "b": {"route": "x"}}'})


# -- the process that plans batches, without Spark ---------------------------------------------------------------


@pytest.fixture
def start(uri: str) -> Iterator[Start]:
    """Readers of micro-batches, closed after the test."""
    pytest.importorskip("pyspark")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from afflux.spark.source import AffluxSource

    readers: list[Any] = []

    def started(streams: dict[str, Any], **options: str) -> Any:
        given = {"uri": uri, "streams": json.dumps(streams), "pollTimeoutMs": "20"} | options
        readers.append(AffluxSource(given).streamReader(StructType([StructField("data", BinaryType())])))
        return readers[-1]

    yield started
    for reader in readers:
        reader.stop()


def on(count: int, **more: Any) -> dict[str, str]:
    """A stream of numbered items."""
    return {"requestData": asked(count=count, **more)}


def positions(offset: dict[str, Any]) -> dict[str, int]:
    return {key: mark["pos"] for key, mark in offset.items() if "/" in key}


def until(reader: Any, offset: dict[str, Any], wanted: dict[str, int]) -> dict[str, Any]:
    """Plan batches until all positions are reached."""
    for _ in range(1000):
        if positions(offset) == wanted:
            return offset
        offset = reader.latestOffset(offset)
    raise AssertionError(offset)


def spans(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    found = [part.value for part in reader.partitions(start, end)]
    return sorted((span.stream, span.first, span.end) for span in found)


def test_a_stream_that_is_new_begins_and_one_that_is_gone_is_data_loss(start: Start, caplog: Any) -> None:
    one = start({"a": on(300), "b": on(400)})
    begin = one.initialOffset()
    end = until(one, one.latestOffset(begin), {"a/0": 300, "b/0": 400})
    assert list(end) == ["a/0", "b/0"] and end["a/0"]["source"] != end["b/0"]["source"]

    with pytest.raises(DataLost, match=r"checkpoint has shard 0 of stream 'a' up to offset 300, which is not there"):
        start({"b": on(400), "c": on(50)}).latestOffset(end)

    lenient = start({"b": on(400), "c": on(50)}, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "afflux.spark"):
        after = lenient.latestOffset(end)
    assert "data loss accepted: the checkpoint has shard 0 of stream 'a'" in caplog.text
    assert after["c/0"]["from"] == 0 and "a/0" not in after
    first = spans(lenient, end, after)
    assert first == ([("c", 0, after["c/0"]["pos"])] if after["c/0"]["pos"] else [])
    assert spans(start({"b": on(400), "c": on(50)}), end, after) == first, "a restart repeats the batch exactly"
    last = until(lenient, after, {"b/0": 400, "c/0": 50})
    assert lenient.latestOffset(last) == last


def test_a_new_stream_begins_where_startingoffsets_says(start: Start) -> None:
    live = {"a": on(20, open=True)}
    end = until(one := start(live), one.latestOffset(one.initialOffset()), {"a/0": 20})
    again = start(live | {"b": on(30, open=True), "c": on(40)}, startingOffsets='{"b": "latest", "c": {"0": 15}}')
    until(other := start({"c": on(40)}), other.latestOffset(other.initialOffset()), {"c/0": 40})
    after = again.latestOffset(end)
    assert after["b/0"]["from"] <= after["b/0"]["pos"] and after["c/0"]["from"] == 15
    assert ("c", 15, 40) in spans(again, end, after)


def test_a_new_stream_under_spark_before_4_2(start: Start) -> None:
    """Spark then passes no start: the end of the first batch says where the new stream begins."""
    one = start({"a": on(20)})
    end = until(one, one.latestOffset(one.initialOffset()), {"a/0": 20})
    again = start({"a": on(20), "b": on(30)})
    while (after := again.latestOffset())["b/0"]["pos"] < 30:
        again._next = None
    assert spans(again, end, after) == [("b", 0, 30)]


def test_a_logged_batch_of_a_stream_that_is_gone(start: Start) -> None:
    one = start({"a": on(300), "b": on(400)})
    begin = one.initialOffset()
    end = until(one, one.latestOffset(begin), {"a/0": 300, "b/0": 400})
    first = end | {key: end[key] | {"from": 0} for key in end}
    with pytest.raises(DataLost, match="shard 0 of stream 'a' up to offset 300"):
        start({"b": on(400)}).partitions(begin, first)
    assert spans(start({"b": on(400)}, failOnDataLoss="false"), begin, first) == [("b", 0, 400)]


def test_a_checkpoint_of_one_stream_is_not_one_of_several(start: Start) -> None:
    logged = {"0": {"epoch": 7, "pos": 5, "source": "01234567"}}
    with pytest.raises(DataLost, match="shard 0 of the stream of the option uri up to offset 5"):
        start({"a": on(300)}).latestOffset(logged)
    with pytest.raises(Invalid, match="belongs to another source"):
        start({"a": on(300)}).latestOffset({"a/0": logged["0"]})
    with pytest.raises(Invalid, match="is not an offset of this source"):
        start({"a": on(300)}).latestOffset({"a/x": logged["0"]})


def test_a_server_that_is_away_does_not_hold_up_the_others(start: Start, link: Link, tmp_path: Path) -> None:
    live, far = on(100, open=True, every_ms=5), on(50, open=True)
    one = start({"near": live, "far": far | {"uri": link.uri}})
    end = one.latestOffset(one.initialOffset())
    while end["far/0"]["pos"] < 50 or end["near/0"]["pos"] < 100:
        end = one.latestOffset(end)
    link.proxy.reachable = False
    link.do(lambda: link.proxy.cut(reset=True))
    before = end["near/0"]["pos"]
    while "away" not in end or end["near/0"]["pos"] < before + 50:
        end = one.latestOffset(end)
    assert end["far/0"]["pos"] == 50
    report = one.reportLatestOffset()
    assert list(report["reconnecting"]) == ["far"] and "attempts in" in report["reconnecting"]["far"]
    link.proxy.reachable = True
    while "away" in end:
        end = one.latestOffset(end)
    assert one.reportLatestOffset()["reconnects"] == 1 and "reconnecting" not in one.reportLatestOffset()


def test_one_query_acknowledges_each_of_its_streams(start: Start) -> None:
    both = {"a": on(3000, size=301), "b": on(4000, size=302)}
    one = start(both, acknowledgeAs="billing")
    end = until(one, one.latestOffset(one.initialOffset()), {"a/0": 3000, "b/0": 4000})
    one.latestOffset(end)
    one.commit(end)
    one.latestOffset(end)
    other = start({"b": both["b"]}, acknowledgeAs="audit")
    again = other.latestOffset(other.initialOffset())
    with pytest.raises(Exception, match=r"acknowledgeAs=audit on stream b .*'billing'"):
        other.latestOffset(again)


def test_a_second_acknowledging_query_reads_nothing(start: Start) -> None:
    """SP-19."""
    stream = {"a": on(3000, size=304)}
    for name in ("billing", "audit"):
        reader = start(stream, acknowledgeAs=name)
        first = reader.latestOffset(reader.initialOffset())
        assert positions(first) == {"a/0": 0}
        assert not [part for part in reader.partitions(reader.initialOffset(), first) if part.value is not None]
        if name == "billing":
            assert positions(reader.latestOffset(first)) == {"a/0": 3000}
    with pytest.raises(Exception, match=r"acknowledgeAs=audit on stream a .*'billing'"):
        reader.latestOffset(first)


# -- in Spark ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_streams_of_two_servers_in_one_query(spark: Any, uri: str, tmp_path: Path) -> None:
    """Fair shares of the batches, a column that names the stream, and a restart with one more stream."""
    streams: dict[str, Any] = {"near": on(1000), "tagged": {"route": "tagged"} | on(90)}

    def run(streams: dict[str, Any]) -> list[dict[str, Any]]:
        given = {"uri": uri, "streams": json.dumps(streams), "maxRowsPerBatch": 600, "pollTimeoutMs": 30_000}
        frame = spark.readStream.format("afflux").options(**given).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        query.awaitTermination()
        return [each for each in query.recentProgress if each["numInputRows"]]

    with running(tmp_path / "far") as far:
        first, *_ = run(streams | {"far": {"uri": far} | on(500)})
        shares = positions(json.loads(first["sources"][0]["endOffset"]))
        assert shares == {"far/0": 255, "near/0": 255, "tagged/0": 90}
        run(streams | {"far": {"uri": far} | on(500), "more": on(70, size=9)})
    table = spark.read.parquet(str(tmp_path / "table"))
    assert [row.stream for row in table.select("stream").distinct().orderBy("stream").collect()] == [
        "far", "more", "near", "tagged"
    ]  # fmt: skip
    rows = sorted((row.stream, row.offset) for row in table.select("stream", "offset").collect())
    counts = {"far": 500, "more": 70, "near": 1000, "tagged": 90}
    assert rows == [(name, offset) for name, count in counts.items() for offset in range(count)]


def test_a_server_that_knows_no_shards(uri: str) -> None:
    with Driver(Options.parse({"uri": uri, "route": "lie-unsharded"})) as driver:
        assert list(driver.heads()) == [0]


@pytest.mark.spark
def test_all_shards_are_read(spark: Any, uri: str) -> None:
    frame = spark.read.format("afflux").options(uri=uri, route="lie-exact").load()
    assert frame.groupBy("partition").count().orderBy("partition").collect() == [(n, 100) for n in range(11)]
