"""Reading a cursor over a real connection: heads, ranges that are counted, and answers that no journal could give."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from afflux.core.errors import ApplicationError, ConnectFailed, Invalid, RemoteProtocolError
from afflux.journal.database import SqliteBackend
from afflux.protocols.rsocket.cursor import JOURNAL_FAILED, OFFSET_AHEAD, UNKNOWN_SHARD, Acknowledge
from afflux.spark.arrow import data_column
from afflux.spark.offsets import Mark, Span
from afflux.spark.options import Options
from afflux.spark.reading import DataLost, Driver, SpanReader
from tests.spark.conftest import asked, running
from tests.spark.serving import LIE_EPOCH, item

ITEMS = asked(count=1000, size=16)

Make = Callable[..., Options]
_opened: list[Driver] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every driver of a test is closed after it."""
    yield
    while _opened:
        _opened.pop().connection.close()


def drive(options: Options) -> Driver:
    """The driver's side of a read."""
    _opened.append(Driver(options))
    return _opened[-1]


@pytest.fixture
def options(uri: str) -> Make:
    """Options for the server, whose waits are long enough for any machine."""

    def make(**more: str) -> Options:
        return Options.parse({"uri": uri, "requestData": ITEMS, "pollTimeoutMs": "30000"} | more)

    return make


def whole(options: Options) -> Span:
    """All of a stream that ends."""
    state = drive(options).settled()[0]
    return Span(shard=0, epoch=state.epoch, first=state.first, end=state.head)


def rows(options: Options, span: Span) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, data and metadata of each item of the span, however they came."""
    found: list[tuple[int, bytes, bytes | None]] = []
    for chunk in SpanReader(options, span):
        items = list(zip(data_column(chunk).to_pylist(), chunk.metadata(), strict=True))
        assert len(items) == len(chunk)
        found += [(chunk.first + place, *each) for place, each in enumerate(items)]
    return found


def expected(route: str | None, numbers: range, size: int = 16) -> list[tuple[int, bytes, bytes | None]]:
    made = [(number, item(route, number, size)) for number in numbers]
    return [
        (number, each, None) if isinstance(each, bytes) else (number, each.data, each.metadata) for number, each in made
    ]


def lying(uri: str, route: str, **more: str) -> tuple[Options, Span]:
    options = Options.parse({"uri": uri, "route": f"lie-{route}"} | more)
    return options, Span(shard=0, epoch=LIE_EPOCH, first=20, end=60)


def test_a_damaged_block_is_reported_after_the_items_before_it(tmp_path: Path, caplog: Any) -> None:
    many = asked(count=4000, size=512)
    with running(tmp_path) as uri:
        options = Options.parse({"uri": uri, "requestData": many, "pollTimeoutMs": "30000"})
        span = whole(options)
    (path,) = tmp_path.glob("*.journal")
    SqliteBackend(path, key=None).close()
    content = path.read_bytes()
    # Pages of the file cut through some items: the last of these that is whole in one.
    places = [content.find(cast("bytes", item(None, number, 512))) for number in range(1601, 1701)]
    at = [place for place in places if place >= 0][-1] + 3
    path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
    found: list[int] = []
    with running(tmp_path) as uri, pytest.raises(ApplicationError, match=r"journal-damaged .* is wrong") as caught:
        for chunk in SpanReader(Options.parse({"uri": uri, "requestData": many}), span):
            found.append(len(chunk))
    assert caught.value.code == JOURNAL_FAILED
    assert 1 < sum(found) <= 1700
    assert "its items are requested instead" in caplog.text


@pytest.mark.parametrize("route", [None, "varied", "tagged", "older"])
@pytest.mark.parametrize(("first", "end"), [(0, 1000), (0, 1), (999, 1000), (250, 777)])
def test_a_range_is_read_exactly(options: Make, route: str | None, first: int, end: int) -> None:
    asked_for = options(**({"route": route} if route else {}))
    span = Span(shard=0, epoch=whole(asked_for).epoch, first=first, end=end)
    assert rows(asked_for, span) == expected(route, range(first, end))


def test_items_larger_than_any_block(options: Make) -> None:
    large = options(requestData=asked(count=5, size=2_000_000))
    assert rows(large, whole(large)) == expected(None, range(5), 2_000_000)


def test_more_than_the_window_of_credit(options: Make) -> None:
    many = options(requestData=asked(count=250_000, size=8))
    total = 0
    for chunk in SpanReader(many, whole(many)):
        assert chunk.first == total
        total += len(chunk)
    assert total == 250_000


def test_nothing_is_read_of_an_empty_range(options: Make) -> None:
    assert rows(options(), Span(shard=0, epoch=1, first=5, end=5)) == []


def test_where_a_new_query_starts(options: Make) -> None:
    epoch = whole(options()).epoch
    assert drive(options()).start() == {0: Mark(epoch, 0)}
    assert drive(options(startingOffsets="latest")).start() == {0: Mark(epoch, 1000)}
    assert drive(options(startingOffsets='{"0": 1000}')).start() == {0: Mark(epoch, 1000)}
    with pytest.raises(Invalid, match=r"has offset 1001 of shard 0 .*above the head 1000"):
        drive(options(startingOffsets='{"0": 1001}')).start()


def test_an_unknown_shard(options: Make) -> None:
    with pytest.raises(ApplicationError) as raised:
        drive(options(startingOffsets='{"1": 0}')).start()
    assert raised.value.code == UNKNOWN_SHARD


def test_a_long_poll_ends_when_there_is_news(options: Make) -> None:
    live = options(requestData=asked(count=500, open=True))
    driver = drive(live)
    epoch = driver.heads()[0].epoch
    seen = 0
    while seen < 500:
        state = driver.states({0: Mark(epoch, seen)}, wait_ms=30_000)[0]
        assert state.head > seen and not state.sealed
        seen = state.head


def test_a_long_poll_ends_without_news(options: Make) -> None:
    live = options(requestData=asked(count=3, open=True))
    driver = drive(live)
    epoch = driver.heads()[0].epoch
    seen = 0
    while seen < 3:
        seen = driver.states({0: Mark(epoch, seen)}, wait_ms=30_000)[0].head
    assert driver.states({0: Mark(epoch, 3)}, wait_ms=1)[0].head == 3


def test_a_poll_of_several_shards(uri: str) -> None:
    options = Options.parse({"uri": uri, "route": "lie-exact"})
    there = drive(options).states({0: Mark(LIE_EPOCH, 100), 5: Mark(LIE_EPOCH, 99)}, wait_ms=30_000)
    assert {shard: state.head for shard, state in there.items()} == {0: 100, 5: 100}
    assert drive(options).states({0: Mark(LIE_EPOCH, 100), 5: Mark(LIE_EPOCH, 100)}, wait_ms=2)[5].shard == 5


def test_how_large_items_are(options: Make) -> None:
    driver = drive(options())
    span = whole(options())
    assert driver.item_bytes([span]) == 16
    assert driver.item_bytes([Span(shard=0, epoch=span.epoch + 1, first=0, end=10)]) is None


def test_a_checkpoint_of_another_journal_names_both_positions(options: Make) -> None:
    driver, span = drive(options()), whole(options())
    marks = {0: Mark(span.epoch + 1, 123)}
    state = driver.states(marks)[0]
    with pytest.raises(DataLost, match=rf"epoch {span.epoch} .* 1000.* epoch {span.epoch + 1}, offset 123"):
        driver.behind_gap(marks[0], state)
    lenient = drive(options(failOnDataLoss="false"))
    assert lenient.behind_gap(marks[0], state) == Mark(span.epoch, 0)


def test_a_checkpoint_above_the_head_is_refused(options: Make) -> None:
    span = whole(options())
    for loss in ("true", "false"):
        with pytest.raises(ApplicationError, match=r"1001.*1000") as raised:
            drive(options(failOnDataLoss=loss)).states({0: Mark(span.epoch, 1001)})
        assert raised.value.code == OFFSET_AHEAD


def trimmed(make: Make, seed: int) -> tuple[Options, Span, int]:
    """A stream whose lower half was acknowledged: what is left of it starts at the last value."""
    options = make(requestData=asked(count=6000, size=200 + seed))
    span = whole(options)
    done = Acknowledge(epoch=span.epoch, offset=5000, owner=1, name="test")
    state = drive(options).states({0: Mark(span.epoch, 5000)}, acknowledge=[done])[0]
    assert 0 < state.first <= 5000
    return options, span, state.first


def test_what_was_trimmed_is_missed(options: Make) -> None:
    asked_for, span, first = trimmed(options, 1)
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} of shard 0 .*reaches to 5999"):
        rows(asked_for, span)
    state = drive(asked_for).heads()[0]
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} .* are missing: the first one left is {first}"):
        drive(asked_for).behind_gap(Mark(span.epoch, 0), state)


def test_what_was_trimmed_is_passed_over_when_that_is_allowed(options: Make, caplog: Any) -> None:
    asked_for, span, first = trimmed(options, 2)
    lenient = options(requestData=asked_for.request_data, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "afflux.spark"):
        assert rows(lenient, span) == expected(None, range(first, 6000), 202)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"offsets 0 to {first - 1} of shard 0" in caplog.text


def test_a_range_of_another_epoch(options: Make, caplog: Any) -> None:
    span = whole(options())
    other = Span(shard=0, epoch=span.epoch + 1, first=0, end=10)
    with pytest.raises(DataLost, match=f"offsets 0 to 9 .*epoch {other.epoch}.* at epoch {span.epoch} now"):
        rows(options(), other)
    assert rows(options(failOnDataLoss="false"), other) == []


def test_a_short_answer_names_what_is_missing(uri: str) -> None:
    with pytest.raises(DataLost, match=r"offsets 40 to 59 of shard 0 .*reaches to 59: the answer ended before them"):
        rows(*lying(uri, "short"))
    assert [row[0] for row in rows(*lying(uri, "short", failOnDataLoss="false"))] == list(range(20, 40))


def test_a_hole_in_an_answer(uri: str) -> None:
    with pytest.raises(DataLost, match=r"offsets 30 to 34 .*the answer left them out"):
        rows(*lying(uri, "gap"))
    offsets = [row[0] for row in rows(*lying(uri, "gap", failOnDataLoss="false"))]
    assert offsets == [*range(20, 30), *range(35, 60)]


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize(
    ("route", "why"),
    [
        ("back", "offset 0 was sent after 20"),
        ("epoch", f"epoch {LIE_EPOCH + 1}, offset 20 was sent"),
        ("bare", "does not support the cursor: the first item of an answer has no position"),
    ],
)
def test_an_answer_that_no_journal_could_give(uri: str, route: str, why: str, loss: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        rows(*lying(uri, route, failOnDataLoss=loss))


def test_more_items_than_asked_for_are_not_taken(uri: str) -> None:
    with pytest.raises((RemoteProtocolError, DataLost)):
        rows(*lying(uri, "long"))


def test_a_server_that_knows_no_cursor(uri: str) -> None:
    options = Options.parse({"uri": uri, "route": "plain"})
    with pytest.raises(RemoteProtocolError, match=r"route 'plain' does not support the cursor: .*--journal"):
        drive(options).start()


def test_no_server_is_there() -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
        drive(Options.parse({"uri": "tcp://127.0.0.1:1", "reconnectTimeoutMs": "0"})).start()
