"""One connection, kept and opened again: failures that a retry mends, and those that it does not. No Spark here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any

import pytest

from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectFailed,
    ConnectionClosed,
    Error,
    Invalid,
    LimitExceeded,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
)
from afflux.protocols.rsocket.cursor import Head
from afflux.spark.connection import Away, Connection, mendable
from afflux.spark.offsets import Mark, Span
from afflux.spark.options import Options
from afflux.spark.reading import DataLost, Driver, SpanReader
from tests.spark.conftest import Link, asked, running

COUNT = 60_000
"Items of the stream: more than a task has in flight."
ITEMS = asked(count=COUNT, size=100)
SHORT = "?keepalive=0.2&lifetime=0.6"
"Options of an address: a silent side is lost after 0.6 s."


def options(uri: str, **more: str) -> Options:
    return Options.parse({"uri": uri, "requestData": ITEMS, "pollTimeoutMs": "30000"} | more)


def whole(asked_for: Options) -> Span:
    with Driver(asked_for) as driver:
        state = driver.settled()[0]
    return Span(shard=0, epoch=state.epoch, first=state.first, end=state.head)


def offsets(reader: SpanReader, each: Any = None) -> Iterator[int]:
    """The offsets of all items; ``each`` is called with the place after each chunk."""
    for chunk in reader:
        yield from range(chunk.first, chunk.first + len(chunk))
        if each is not None:
            each(reader.place)


def with_cause(error: Error, cause: Exception) -> Error:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ConnectionClosed("the peer closed the connection"), True),
        (ConnectFailed("connection refused"), True),
        (TimeoutError("no item within 5 s"), True),
        (Canceled("canceled"), True),
        (SetupRefused("the server is closing"), True),
        (Rejected("the journals are being closed"), True),
        (Rejected("journal-locked x.journal: another process has it open"), True),
        (ConnectFailed.of_handshake("cannot connect: the server closed the connection without an answer"), True),
        (ConnectFailed.of_handshake("cannot connect: the server answered HTTP 503 Service Unavailable"), True),
        (ConnectFailed.of_handshake("cannot connect: the server answered HTTP 403 Forbidden"), False),
        (with_cause(ConnectFailed("no TLS"), SSLCertVerificationError()), False),
        (SetupRefused("not authenticated"), False),
        (Rejected("not authenticated"), False),
        (Rejected('no route "x" for stream'), False),
        (DataLost("offsets are missing"), False),
        (ApplicationError(0x301, "no"), False),
        (RemoteProtocolError("wrong"), False),
        (LimitExceeded("buffer-full"), False),
        (Invalid("no"), False),
    ],
)
def test_what_a_retry_can_mend(error: Exception, wanted: bool) -> None:
    assert mendable(error) is wanted


@pytest.mark.parametrize("reset", [True, False])
def test_a_task_goes_on_where_it_was_cut_off(link: Link, reset: bool, caplog: Any) -> None:
    """SP-10."""
    asked_for = options(link.uri)
    span = whole(asked_for)
    left = [45_000, 30_000, 5_000]

    def cut(place: int) -> None:
        if left and place >= left[-1]:
            left.pop()
            link.do(lambda: link.proxy.cut(reset=reset))

    before = link.proxy.connections
    with caplog.at_level(logging.WARNING, "afflux.spark"):
        assert list(offsets(SpanReader(asked_for, span), cut)) == list(range(COUNT))
    assert link.proxy.connections > before + 1
    assert "the task of shard 0" in caplog.text and "has lost the server, and tries again" in caplog.text
    assert "is connected again after 1 attempts" in caplog.text


def test_a_task_of_which_nothing_is_heard_goes_on(link: Link) -> None:
    asked_for = options(link.uri + SHORT)
    span = whole(asked_for)
    held: list[int] = []

    def hold(place: int) -> None:
        if not held:
            held.append(place)
            link.do(link.proxy.hold)

    def release(error: Exception) -> None:
        link.do(link.proxy.release)
        failed(error)

    reader = SpanReader(asked_for, span)
    failed = reader._connection.failed
    reader._connection.failed = release  # type: ignore[method-assign] # the link is released when it counts as lost
    assert list(offsets(reader, hold)) == list(range(COUNT))
    assert held


def test_spark_may_hold_a_task_for_longer_than_a_connection_lives(link: Link, caplog: Any) -> None:
    asked_for = options(link.uri + SHORT, reconnectTimeoutMs="0")
    span = whole(asked_for)
    holds = [12_000, 4_000]

    def hold(place: int) -> None:
        if holds and place >= holds[-1]:
            holds.pop()
            link.until_ended()

    before = link.proxy.connections
    with caplog.at_level(logging.WARNING, "afflux.spark"):
        assert list(offsets(SpanReader(asked_for, span), hold)) == list(range(COUNT))
    assert link.proxy.connections == before + 3
    assert not caplog.text


def test_a_short_hold_keeps_the_connection(link: Link) -> None:
    asked_for = options(link.uri)
    span = whole(asked_for)
    before = link.proxy.connections
    assert list(offsets(SpanReader(asked_for, span), lambda place: None)) == list(range(COUNT))
    assert link.proxy.connections == before + 1


def test_zero_fails_immediately(link: Link) -> None:
    asked_for = options(link.uri, reconnectTimeoutMs="0")
    span = whole(asked_for)
    with pytest.raises(ConnectionClosed):
        list(offsets(SpanReader(asked_for, span), lambda place: link.do(link.proxy.cut)))


def test_the_time_is_over(link: Link, caplog: Any) -> None:
    asked_for = options(link.uri, reconnectTimeoutMs="300")
    link.proxy.reachable = False
    with (
        caplog.at_level(logging.WARNING, "afflux.spark"),
        pytest.raises(ConnectionClosed, match=r"\(reconnectTimeoutMs has passed: \d+ attempts\)"),
        Driver(asked_for) as driver,
    ):
        driver.heads()
    assert "the reader has lost the server, and tries again for up to 0.3 s: " in caplog.text


def test_requests_share_a_connection(link: Link) -> None:
    with Driver(options(link.uri)) as driver:
        state = driver.settled()[0]
        for _ in range(5):
            driver.states({0: Mark(state.epoch, 10)}, wait_ms=10)
            driver.item_bytes([Span(shard=0, epoch=state.epoch, first=0, end=100)])
    assert link.proxy.connections == 1


def test_a_connection_that_ended_unused_is_no_outage(link: Link, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "afflux.spark"), Driver(options(link.uri, reconnectTimeoutMs="0")) as driver:
        driver.heads()
        link.do(link.proxy.cut)
        driver.heads()
    assert link.proxy.connections == 2 and not caplog.text and not driver.connection.reconnects


def test_a_connection_that_was_not_used_for_long_is_replaced(link: Link) -> None:
    """Before the server ends it, and also when the server has ended it."""
    now = [100.0]
    connection = Connection(options(link.uri), "a test", clock=lambda: now[0])
    with closing(connection):
        for seconds, connections in ((0.0, 1), (15.0, 1), (15.1, 2), (0.0, 2)):
            now[0] += seconds
            assert connection.call(lambda peer: len(list(peer.stream(ITEMS.encode(), cursor=Head(shard=0))))) == 1
            assert link.proxy.connections == connections
    with Driver(options(link.uri + SHORT, reconnectTimeoutMs="0")) as driver:
        driver.heads()
        link.until_ended()
        driver.heads()
    assert link.proxy.connections == 4


def test_who_does_not_want_to_wait_is_told(tmp_path: Path) -> None:
    with running(tmp_path / "j") as at:
        driver = Driver(options(at))
        epoch = driver.settled()[0].epoch
    with driver:
        for attempt in (1, 2):
            with pytest.raises(Away):
                driver.states({0: Mark(epoch, 5)}, patient=False)
            assert driver.connection.outage is not None and driver.connection.outage.attempts == attempt
        with running(tmp_path / "j", at=at):
            assert driver.states({0: Mark(epoch, 5)})[0].head == COUNT
    assert driver.connection.outage is None and driver.connection.reconnects == 1


@pytest.mark.parametrize("terms", ["", "?keepalive=5", SHORT])
def test_the_address_may_set_the_keepalive(terms: str) -> None:
    connection = Connection(options(f"tcp://127.0.0.1:7000{terms}"), "a test")
    assert connection.idle_s == {"": 15, "?keepalive=5": 45, SHORT: 0.3}[terms]
