"""What a query acknowledges: nothing by default, with ``acknowledgeAs`` what Spark has committed, never too early."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from afflux.core.errors import Invalid
from afflux.protocols.rsocket.cursor import Acknowledge, State
from afflux.spark.acknowledging import Acknowledger
from afflux.spark.offsets import Mark
from afflux.spark.options import Options
from afflux.spark.reading import Driver
from tests.spark.conftest import asked, running

pytest.importorskip("pyspark")

A, B = Mark(7, 100), Mark(7, 250)


def state(head: int, *, full: bool = False) -> dict[int, State]:
    return {0: State(epoch=7, first=0, head=head, time_us=0, full=full)}


def test_without_a_name_nothing_is_acknowledged_and_the_offset_has_no_reader() -> None:
    one = Acknowledger(None)
    one.start({})
    assert one.requests({0: A}) == {}
    one.commit({0: A})
    assert one.requests({0: B}) == {}
    assert one.end({"0": {}}, {0: B}, {0: B}, state(250, full=True)) == {"0": {}}


def test_a_query_registers_when_its_owner_is_in_the_checkpoint_and_acknowledges_what_is_committed() -> None:
    one = Acknowledger("billing")
    one.start({})
    assert one.requests({0: A}) == {}
    first = one.end({}, {0: A}, {0: B}, state(250))
    owner = first["reader"]["owner"]
    assert 0 < owner < 1 << 63
    one.start(first)
    [registering] = one.requests({0: B}).values()
    assert registering == Acknowledge(epoch=7, offset=0, owner=owner, name="billing")
    assert one.requests({0: B}) == {0: registering}, "it was not sent"
    one.sent({0: registering})
    assert one.requests({0: B}) == {}
    one.commit({0: A})
    [done] = one.requests({0: B}).values()
    assert done == Acknowledge(epoch=7, offset=100, owner=owner, name="billing")
    one.sent({0: done})
    assert one.requests({0: B}) == {}
    assert one.end({}, {0: B}, {0: B}, state(250)) == first
    assert one.requests({0: Mark(8, 0)}) == {0: Acknowledge(epoch=8, offset=0, owner=owner, name="billing")}


def test_another_process_of_the_same_query_has_the_same_owner_and_another_query_has_not() -> None:
    one, other = Acknowledger("billing"), Acknowledger("billing")
    for each in (one, other):
        each.start({})
    first = one.end({}, {0: A}, {0: A}, state(100))
    assert first["reader"]["owner"] != other.end({}, {0: A}, {0: A}, state(100))["reader"]["owner"]
    again = Acknowledger("billing")
    again.start(first)
    assert [each.owner for each in again.requests({0: A}).values()] == [first["reader"]["owner"]]
    without = Acknowledger(None)
    without.start(first)
    assert without.requests({0: A}) == {}
    assert without.end({}, {0: A}, {0: B}, state(250)) == first, "the owner stays in the checkpoint"


def test_a_full_journal_gets_an_empty_batch_until_all_is_committed() -> None:
    one = Acknowledger("billing")
    one.start({"reader": {"owner": 5, "turn": 0}})
    assert one.end({}, {0: A}, {0: B}, state(250, full=True))["reader"]["turn"] == 0, "there are items"
    assert one.end({}, {0: B}, {0: B}, state(250))["reader"]["turn"] == 0, "there is room"
    assert one.end({}, {0: B}, {0: B}, state(250, full=True))["reader"]["turn"] == 1
    one.commit({0: A})
    assert one.end({}, {0: B}, {0: B}, state(250, full=True))["reader"]["turn"] == 2
    one.commit({0: B})
    assert one.end({}, {0: B}, {0: B}, state(250, full=True))["reader"]["turn"] == 2


@pytest.mark.parametrize("value", [None, {}, 5, {"owner": 0, "turn": 0}, {"owner": "1", "turn": 0}, {"owner": 1}])
def test_a_damaged_reader_in_the_checkpoint_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match="the checkpoint is damaged: its reader is"):
        Acknowledger("billing").start({"reader": value})


# -- in Spark ----------------------------------------------------------------------------------------------------

Start = Callable[..., Any]


def frame(spark: Any, uri: object, data: str, **options: object) -> Any:
    named = {"uri": uri, "requestData": data, "pollTimeoutMs": 50} | options
    return spark.readStream.format("afflux").options(**named).load()


def lowest(uri: str, data: str) -> int:
    with Driver(Options.parse({"uri": uri, "requestData": data})) as driver:
        return driver.heads()[0].first


@pytest.fixture
def start(spark: Any, uri: str, tmp_path: Path) -> Start:
    """Start a query into a table in memory; its checkpoint has the name of the table."""

    def started(data: str, name: str, **options: object) -> Any:
        named = {"uri": uri} | options
        writer = frame(spark, data=data, **named).writeStream.format("memory").queryName(name)
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    return started


def until(query: Any, done: Callable[[], bool]) -> None:
    """Let a query run until something holds, or until it ends."""
    while not done():
        query.processAllAvailable()
        assert query.exception() is None


def failed(query: Any) -> str:
    with pytest.raises(Exception, match="cannot acknowledge") as raised:
        query.awaitTermination()
    return str(raised.value)


@pytest.mark.spark
def test_reading_trims_nothing_by_default(spark: Any, uri: str, start: Start, tmp_path: Path) -> None:
    """A query, an explorer, two loads of one stream in one query, and a batch read, one after the other."""
    data = asked(count=9000, size=301, open=True)
    query = start(data, "plain", maxRowsPerBatch=3000)
    until(query, lambda: spark.table("plain").count() == 9000)
    explorer = start(data, "explorer")
    until(explorer, lambda: spark.table("explorer").count() == 9000)
    query.stop()
    explorer.stop()
    both = frame(spark, uri, data, maxRowsPerBatch=4000).union(frame(spark, uri, data))
    writer = both.writeStream.format("memory").queryName("both").option("checkpointLocation", str(tmp_path / "both"))
    query = writer.start()
    until(query, lambda: spark.table("both").count() == 18_000)
    query.stop()
    options = {"uri": uri, "requestData": data, "pollTimeoutMs": 50}
    assert spark.read.format("afflux").options(**options).load().count() == 9000
    assert lowest(uri, data) == 0
    with pytest.raises(Exception, match="acknowledgeAs is not possible for a batch read"):
        spark.read.format("afflux").options(**options | {"acknowledgeAs": "x"}).load().count()


@pytest.mark.spark
def test_one_named_query_is_acknowledged_and_others_are_refused(
    spark: Any, uri: str, start: Start, tmp_path: Path
) -> None:
    data = asked(count=9000, size=300, open=True)
    query = start(data, "named", maxRowsPerBatch=1500, acknowledgeAs="billing")
    until(query, lambda: spark.table("named").count() == 9000)
    first = lowest(uri, data)
    starts = [each["sources"][0]["startOffset"] for each in query.recentProgress if each["numInputRows"]]
    assert 0 < first <= json.loads(starts[-1])["0"]["pos"], "the last batch is followed by no other in the log"
    same = failed(start(data, "same", acknowledgeAs="billing", startingOffsets=json.dumps({"0": first})))
    assert "acknowledgeAs=billing" in same and "another reader 'billing' does" in same
    other = failed(start(data, "other", acknowledgeAs="audit", startingOffsets=json.dumps({"0": first})))
    assert "'audit'" in other and "its reader is 'billing'" in other
    assert query.isActive and lowest(uri, data) == first
    query.stop()
    sink = frame(spark, uri, data, acknowledgeAs="billing").writeStream.format("noop")
    again = sink.option("checkpointLocation", str(tmp_path / "named")).start()
    again.processAllAvailable()
    assert again.isActive
    again.stop()


@pytest.mark.spark
def test_a_full_journal_that_was_read_is_trimmed_and_goes_on(spark: Any, tmp_path: Path, start: Start) -> None:
    """The journal has room for a fraction of the stream, and each batch takes all there is."""
    data = asked(count=20_000, size=300, open=True)
    with running(tmp_path / "small", str(2 << 20)) as uri:
        query = start(data, "full", uri=uri, acknowledgeAs="billing")
        until(query, lambda: spark.table("full").count() == 20_000)
        query.stop()
    offsets = sorted(row.offset for row in spark.table("full").select("offset").collect())
    assert offsets == list(range(20_000))
