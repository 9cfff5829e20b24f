"""Spark reads JetStream streams directly, without a relay: positions, data loss, acknowledgements, restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from afflux.core.errors import AddressError, ApplicationError, ConnectionClosed, Invalid
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.journal import Journal
from afflux.journal.jetstream import JetStreamBackend
from afflux.protocols.rsocket.cursor import EPOCH_CHANGED, OFFSET_AHEAD, READER_CONFLICT, Acknowledge, Head
from afflux.spark.offsets import Mark, Span
from afflux.spark.options import OptionError, Options
from afflux.spark.reading import DataLost, Driver, SpanReader
from tests.journal.nats import NatsServer, nats_server, needs_nats
from tests.spark.conftest import until

pytest.importorskip("pyspark")
pytestmark = needs_nats


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running


def item(offset: int) -> Payload:
    metadata = b"m%d" % offset if offset % 100 == 7 else None
    return Payload(b"%06d" % offset + b"x" * (offset % 50), metadata)


def written(uri: str, count: int, *, seal: bool = False, time_us: int = 0) -> None:
    """Append items in blocks of a few kilobytes."""
    with Journal(uri, block_bytes=4000) as journal:
        stop = journal.head + count
        for first in range(journal.head, stop, 333):
            journal.append([item(offset) for offset in range(first, min(stop, first + 333))], first)
            journal.commit()
        if seal:
            journal.seal()


def options(uri: str, **more: object) -> Options:
    return Options.parse({"uri": uri, "reconnectTimeoutMs": "0"} | {name: str(value) for name, value in more.items()})


def read(given: Options, first: int, end: int, epoch: int, shard: int = 0) -> list[Payload]:
    found: list[Payload] = []
    for chunk in SpanReader(given, Span(shard=shard, epoch=epoch, first=first, end=end)):
        assert chunk.first == first + len(found)
        if chunk.block is None:
            found += chunk.payloads
        else:
            found += chunk.block.payloads()  # type: ignore[union-attr] # blocks of a journal only
    return found


def test_the_address_is_an_option_of_the_source_only(nats: NatsServer) -> None:
    from afflux.spark.sinkoptions import SinkOptions

    assert "hunter2" not in options("nats://me:hunter2@host/ticks").stream_name
    with pytest.raises(AddressError, match="names its stream"):
        options("nats://host")
    with pytest.raises((OptionError, AddressError)):
        SinkOptions.parse({"uri": "nats://host/ticks"})
    written(nats.uri("routed"), 1)
    with Driver(options(nats.uri("routed"), route="ticks")) as driver, pytest.raises(Invalid, match="neither route"):
        driver.heads()


def test_any_range_is_read_exactly(nats: NatsServer) -> None:
    written(nats.uri("ranges"), 3000, seal=True)
    given = options(nats.uri("ranges"))
    with Driver(given) as driver:
        state = driver.heads()[0]
        assert (state.first, state.head, state.sealed) == (0, 3000, True)
        assert driver.item_bytes([Span(shard=0, epoch=state.epoch, first=0, end=3000)]) is not None
    for first, end in ((0, 3000), (0, 1), (2999, 3000), (1, 2), (500, 2500), (332, 334), (1234, 1235)):
        assert read(given, first, end, state.epoch) == [item(offset) for offset in range(first, end)]


def connections(server: NatsServer) -> int:
    """Return how many connections the server has ever had."""
    with urlopen(f"http://127.0.0.1:{server.monitor}/varz", timeout=10) as answer:
        return int(json.load(answer)["total_connections"])


def test_a_task_that_spark_holds_continues_over_another_connection(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is received while a task is held: after 10 s the server would close the connection."""
    written(nats.uri("held"), 1000, seal=True)
    given = options(nats.uri("held"))
    with Driver(given) as driver:
        epoch = driver.heads()[0].epoch
    before = connections(nats)
    assert read(given, 0, 1000, epoch) == [item(offset) for offset in range(1000)]
    assert connections(nats) == before + 1
    monkeypatch.setattr("afflux.spark.connection.STREAM_IDLE_S", 0.0)
    assert read(given, 0, 1000, epoch) == [item(offset) for offset in range(1000)]
    assert connections(nats) > before + 3
    assert not caplog.records


def test_large_blocks_that_are_requested_ahead_wait_in_the_network(nats: NatsServer) -> None:
    items = [b"%d" % number + b"x" * 900_000 for number in range(30)]
    with Journal(nats.uri("large")) as journal:
        for each in items:
            journal.append([each], 0)
            journal.commit()
        epoch = journal.epoch
    assert read(options(nats.uri("large")), 0, 30, epoch) == [Payload(each) for each in items]


def test_sizes_are_sampled_of_items_without_metadata(nats: NatsServer) -> None:
    with Journal(nats.uri("sampled")) as journal:
        journal.append([b"x" * 70] * 3000, 0)
    with Driver(options(nats.uri("sampled"))) as driver:
        span = Span(shard=0, epoch=driver.heads()[0].epoch, first=0, end=3000)
        assert driver.item_bytes([span]) == 70


def test_shards_are_the_streams_of_a_relay(nats: NatsServer) -> None:
    written(nats.uri("sharded"), 5)
    written(nats.uri("sharded-1"), 7)
    written(nats.uri("sharded-3"), 9)
    with Driver(options(nats.uri("sharded"))) as driver:
        states = driver.heads()
        assert {shard: state.head for shard, state in states.items()} == {0: 5, 1: 7}
        assert read(driver.options, 0, 7, states[1].epoch, shard=1) == [item(offset) for offset in range(7)]
    with Driver(options(nats.uri("nothing"))) as driver, pytest.raises(ApplicationError, match="there is no stream"):
        driver.heads()


def test_new_items_end_a_wait(nats: NatsServer) -> None:
    uri = nats.uri("waited")
    written(uri, 10)
    with Driver(options(uri)) as driver:
        marks = {0: Mark(driver.heads()[0].epoch, 10)}
        assert driver.states(marks, wait_ms=30)[0].head == 10
        writer = threading.Timer(0.1, written, [uri, 10])
        writer.start()
        assert driver.states(marks, wait_ms=30_000)[0].head >= 11
        writer.join()


def test_what_was_trimmed_or_created_again_is_data_loss(nats: NatsServer) -> None:
    uri = nats.uri("lost")
    written(uri, 3000)
    given = options(uri)
    with Driver(given) as driver:
        epoch = driver.heads()[0].epoch
        with Journal(uri) as journal:
            first = journal.trim(1500)
        assert 1000 < first <= 1500
        with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} .* are missing"):
            read(given, 0, 3000, epoch)
        lossy = options(uri, failOnDataLoss=False)
        chunks = list(SpanReader(lossy, Span(shard=0, epoch=epoch, first=0, end=3000)))
        assert chunks[0].first == first and sum(map(len, chunks)) == 3000 - first
        ahead = {0: Mark(epoch, 3001)}
        with pytest.raises(ApplicationError) as refused:
            driver.states(ahead)
        assert refused.value.code == OFFSET_AHEAD
        JetStreamBackend(uri).remove()
        written(uri, 20)
        state = driver.states({0: Mark(epoch, 3000)})[0]
        assert (state.epoch != epoch, state.head) == (True, 20)
        with pytest.raises(DataLost, match="journal was recreated"):
            driver.behind_gap(Mark(epoch, 3000), state)
        with pytest.raises(DataLost, match="the stream is at epoch"):
            read(given, 0, 10, epoch)
    with closing(SpanReader(given, Span(shard=0, epoch=epoch, first=0, end=10))._connection) as connection:
        with pytest.raises(ApplicationError) as refused:
            list(connection.peer().stream(cursor=Head(epoch=epoch)))
        assert refused.value.code == EPOCH_CHANGED


def test_acknowledgements_trim_and_another_reader_is_refused(nats: NatsServer) -> None:
    uri = nats.uri("acknowledged")
    written(uri, 3000)
    with Driver(options(uri)) as driver:
        epoch = driver.heads()[0].epoch
        marks = {0: Mark(epoch, 0)}
        first = Acknowledge(epoch=epoch, offset=0, owner=5, name="billing")
        assert driver.states(marks, acknowledge=[first])[0].first == 0
        done = Acknowledge(epoch=epoch, offset=2000, owner=5, name="billing")
        assert 1500 < driver.states(marks, acknowledge=[done])[0].first <= 2000
        everything = Acknowledge(epoch=epoch, offset=3000, owner=5, name="billing")
        state = driver.states(marks, acknowledge=[everything])[0]
        assert 2600 < state.first < state.head == 3000, "only the writer trims the last block"
        other = Acknowledge(epoch=epoch, offset=0, owner=6, name="billing")
        with pytest.raises(ApplicationError, match=r"another reader 'billing' does.*afflux journal nats://") as refused:
            driver.states(marks, acknowledge=[other])
        assert refused.value.code == READER_CONFLICT
    with Journal(uri) as journal:
        assert journal.reader is not None and journal.reader.owner == 5


def test_a_full_journal_shows(nats: NatsServer) -> None:
    uri = nats.uri("full")
    with Journal(uri, limits=Limits.server().replace(journal_bytes=200_000)) as journal, Driver(options(uri)) as driver:
        journal.append([b"x" * 1000] * 20, 0)
        journal.commit()
        assert not driver.heads()[0].full
        journal.append([b"x" * 1000] * 170, 0)
        journal.commit()
        assert driver.heads()[0].full
        journal.trim(190)
        assert not driver.heads()[0].full


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        written(server.uri("ticks"), 1000)
        patient = options(server.uri("ticks"), reconnectTimeoutMs=60_000)
        with Driver(patient) as driver:
            epoch = driver.heads()[0].epoch
            server.kill()
            with Driver(options(server.uri("ticks"))) as other, pytest.raises(ConnectionClosed):
                other.heads()
            starter = threading.Timer(0.3, server.start)
            starter.start()
            assert driver.heads()[0].head == 1000
            starter.join()
            reader = iter(SpanReader(patient, Span(shard=0, epoch=epoch, first=0, end=1000)))
            count = len(next(reader))
            server.kill()
            starter = threading.Timer(0.3, server.start)
            starter.start()
            assert count + sum(map(len, reader)) == 1000
            starter.join()


# -- in Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_batch_read_has_all_rows(spark: Any, nats: NatsServer) -> None:
    uri = nats.uri("batch")
    written(uri, 5000, seal=True)
    frame = spark.read.format("afflux").options(uri=uri, partitions=4, includeMetadata=True).load()
    rows = frame.selectExpr("offset", "cast(data as string) d", "cast(metadata as string) m").collect()
    assert [row.offset for row in rows] == list(range(5000))
    assert [row.d.encode() for row in rows] == [item(offset).data for offset in range(5000)]
    assert sum(row.m is not None for row in rows) == 50


@pytest.mark.spark
def test_a_query_continues_from_its_checkpoint_and_trims(spark: Any, nats: NatsServer, tmp_path: Path) -> None:
    uri = nats.uri("query")
    written(uri, 3000)

    def start(name: str, checkpoint: str) -> Any:
        frame = spark.readStream.format("afflux").options(
            uri=uri, maxRowsPerBatch=1000, pollTimeoutMs=50, acknowledgeAs="table"
        )
        writer = frame.load().writeStream.format("parquet").queryName(name)
        return writer.option("checkpointLocation", str(tmp_path / checkpoint)).start(str(tmp_path / "table"))

    def done(head: int) -> Any:
        return lambda progress: json.loads(progress["sources"][0]["endOffset"] or "{}").get("0", {}).get("pos") == head

    query = start("one", "checkpoint")
    until(query, done(3000))
    query.stop()
    written(uri, 2000)
    query = start("two", "checkpoint")
    until(query, done(5000))
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").select("offset").collect()
    assert [row.offset for row in rows] == list(range(5000))
    with closing(JetStreamBackend(uri, key=None, follow=True)) as backend:
        assert backend.heads.first > 2000
    query = start("three", "other")
    with pytest.raises(Exception, match="cannot acknowledge this stream"):
        query.awaitTermination()
