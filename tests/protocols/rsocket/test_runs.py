"""What comes or goes many at a time: runs of items, of requests, of answers. One at a time would mean the same."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded
from afflux.core.ids import StreamIds
from afflux.core.limits import Limits
from afflux.core.payload import Payload, Run
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.lease import FixedLease
from tests.examples import share

from .playbook import setup


def served(*, limits: Limits | None = None, **terms: Any) -> Engine:
    """A server with a client."""
    engine = Engine("server", limits=limits or Limits.server(), **terms)
    engine.receive(setup().encode(prefixed=True), 0.0)
    return engine


def asking(*, limits: Limits | None = None) -> Engine:
    """A client that has heard from its server."""
    engine = Engine("client", limits=limits)
    engine.outgoing()
    engine.receive(frames.Keepalive(stream=0, respond=False, position=0, data=b"").encode(prefixed=True), 0.0)
    return engine


def request(stream: int, data: bytes = b"", metadata: bytes | None = None, **more: Any) -> bytes:
    return frames.RequestResponse(stream=stream, data=data, metadata=metadata, **more).encode(prefixed=True)


def item(stream: int, data: bytes, *, last: bool = False, metadata: bytes | None = None) -> bytes:
    frame = frames.PayloadFrame(stream=stream, next=True, complete=last, data=data, metadata=metadata)
    return frame.encode(prefixed=True)


def said(engine: Engine) -> list[Any]:
    """The frames that it wants to send."""
    data = b""
    while chunk := engine.outgoing():
        data += chunk
    found, position = [], 0
    while position < len(data):
        end = position + 3 + int.from_bytes(data[position : position + 3], "big")
        found.append(frames.decode(data, position + 3, end))
        position = end
    return found


# -- items --------------------------------------------------------------------------------------------------------


def received(wire: list[bytes], credit: int, step: int) -> list[ev.Event]:
    """What a client hears of its stream 1, one event for each item."""
    engine = asking()
    engine.open("stream", b"", credit=credit)
    data, heard = b"".join(wire), []
    for start in range(0, len(data), step):
        for event in engine.receive(data[start : start + step], 0.0):
            if isinstance(event, ev.Items):
                heard += [ev.Items(event.stream, [payload]) for payload in event.payloads]
                heard[-1].complete = event.complete
                engine.consumed(sum(map(len, event.payloads)), len(event.payloads))
            else:
                heard.append(event)
    return heard


SIZES = st.lists(st.tuples(st.sampled_from([0, 1, 1, 5, 300]), st.integers(1, 200)), min_size=1, max_size=6)


@pytest.mark.repetitive
@settings(max_examples=share(2), deadline=None)
@given(SIZES, st.integers(0, 3), st.integers(20, 5000))
@example([(1, 200), (5, 1), (1, 15), (1, 1)], 0, 100_000)
@example([(5, 8)], 0, 100_000)
@example([(5, 7), (300, 16), (0, 17)], 2, 100_000)
def test_runs_of_items_are_the_items(sizes: list[tuple[int, int]], odd: int, step: int) -> None:
    """Runs of every length and size, with items in between that are no part of one."""
    items = [bytes([number % 251]) * size for size, count in sizes for number in range(count)]
    wire = [
        item(1, data, metadata=b"m" if odd and not number % (50 * odd) else None) for number, data in enumerate(items)
    ]
    heard = received([*wire, item(1, b"end", last=True)], len(items) + 1, step)
    assert [event.payloads[0].data for event in heard if isinstance(event, ev.Items)] == [*items, b"end"]
    assert [getattr(event, "complete", None) for event in heard] == [False] * len(items) + [True]


@pytest.mark.parametrize("payload_bytes", [None, 1000], ids=["cut together", "one by one"])
@pytest.mark.parametrize("credit", [24, 25, 100, 300])
def test_items_of_changing_length_are_one_event(credit: int, payload_bytes: int | None) -> None:
    """As many as are owed: more are a violation, which ends the stream."""
    limits = Limits.server() if payload_bytes is None else Limits.server(payload_bytes=payload_bytes)
    engine = asking(limits=limits)
    engine.open("stream", b"", credit=credit)
    items = [b"%d" % number * (number % 50) for number in range(credit)]
    found = engine.receive(b"".join(item(1, data) for data in items), 0.0)
    payloads = [payload.data for event in found for payload in event.payloads]
    assert payloads == items
    if payload_bytes is None:
        assert found == [ev.Items(1, list(map(Payload, items)))]


def test_a_run_costs_one_event_and_no_objects() -> None:
    engine = asking()
    engine.open("stream", b"", credit=1000)
    (event,) = engine.receive(item(1, b"abc") * 500, 0.0)
    assert isinstance(event, ev.Items)
    assert isinstance(event.payloads, Run)
    assert event.payloads == [Payload(b"abc")] * 500


def test_a_run_of_another_stream_ends_it() -> None:
    engine = asking()
    for _ in range(2):
        engine.open("stream", b"", credit=1000)
    events = engine.receive(item(1, b"a") * 20 + item(3, b"b") * 20 + item(1, b"c") * 3, 0.0)
    assert [(event.stream, len(event.payloads)) for event in events if isinstance(event, ev.Items)] == [
        (1, 20),
        (3, 20),
        (1, 3),
    ]


def test_a_run_stops_at_the_credit() -> None:
    engine = asking()
    engine.open("stream", b"", credit=20)
    first, *rest = engine.receive(item(1, b"a") * 30, 0.0)
    assert isinstance(first, ev.Items)
    assert len(first.payloads) == 20
    assert [type(event) for event in rest if not isinstance(event, ev.Ignored)] == [ev.Failed]


def test_what_waits_does_not_keep_alive_what_does_not() -> None:
    engine = asking()
    for _ in range(2):
        engine.open("stream", b"", credit=1000)
    block = item(1, b"a") * 10 + item(3, bytes(1000)) * 50
    small, large = engine.receive(block, 0.0)
    assert isinstance(small, ev.Items)
    assert isinstance(large, ev.Items)
    assert isinstance(small.payloads, Run)
    assert isinstance(large.payloads, Run)
    assert len(small.payloads._block) == 100
    assert large.payloads._block is block


@pytest.mark.parametrize("sizes", [[5] * 40, [5] * 7 + [6] * 9 + [7], list(range(30))])
def test_columns_are_the_items(sizes: list[int]) -> None:
    engine = asking()
    engine.open("stream", b"", credit=1000, columnar=True)
    items = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
    (block,) = engine.receive(b"".join(item(1, data) for data in items), 0.0)
    assert isinstance(block, ev.Block)
    assert [block.buffer[start:end] for start, end in zip(block.starts, block.ends, strict=True)] == items


# -- requests -----------------------------------------------------------------------------------------------------


def test_requests_that_come_together_are_one_event() -> None:
    engine = served()
    (event,) = engine.receive(request(1, b"a") + request(3, b"b", b"m") + request(5), 0.0)
    assert event == ev.Requests([1, 3, 5], [Payload(b"a"), Payload(b"b", b"m"), Payload()], 3)
    assert list(ev.singly([event])) == [
        ev.Opened(1, "request", Payload(b"a"), 1, False),
        ev.Opened(3, "request", Payload(b"b", b"m"), 1, False),
        ev.Opened(5, "request", Payload(), 1, False),
    ]
    assert set(engine.stream_table.handlers | engine.stream_table.work.fires) == {1, 3, 5}
    assert engine.credit(3) == 1


@pytest.mark.parametrize(
    "odd",
    [
        request(2, b"even"),
        request(1, b"again"),
        request(5, b"part", follows=True),
        request(5, b"m")[:3] + b"\0\0\0\5" + (0x04 << 10 | 0x100).to_bytes(2, "big") + b"m",
        request(5, b"", b"m")[:9] + b"\0\0\7" + request(5, b"", b"m")[12:],
    ],
    ids=["parity", "in use", "fragment", "metadata cut", "metadata too long"],
)
def test_what_needs_a_closer_look_ends_a_run(odd: bytes) -> None:
    engine = served()
    events = list(ev.singly(engine.receive(request(1, b"a") + request(3, b"b") + odd + request(7, b"c"), 0.0)))
    opened = [event.stream for event in events if isinstance(event, ev.Opened)]
    assert opened[:2] == [1, 3]
    assert 5 not in opened
    assert any(isinstance(event, ev.Ignored | ev.Closed | ev.Failed) for event in events) or opened == [1, 3, 7]


def test_a_run_of_requests_ends_at_the_limit_of_streams() -> None:
    engine = served(limits=Limits.server(streams=1, pending_streams=2))
    events = list(ev.singly(engine.receive(b"".join(request(id) for id in range(1, 11, 2)), 0.0)))
    assert [event.stream for event in events if isinstance(event, ev.Opened)] == [1, 3, 5]
    assert [(frame.stream, frame.data) for frame in said(engine)] == [
        (7, b"too-many-streams: pending_streams=2"),
        (9, b"too-many-streams: pending_streams=2"),
    ]


def test_with_leases_each_request_is_looked_at() -> None:
    engine = Engine("server", lease=FixedLease(2, 10.0))
    engine.receive(setup(lease=True).encode(prefixed=True), 0.0)
    events = engine.receive(request(1) + request(3) + request(5), 0.0)
    assert [type(event) for event in events] == [ev.Opened, ev.Opened, ev.Ignored]


# -- answers ------------------------------------------------------------------------------------------------------


def test_requests_are_asked_and_answered_many_at_a_time() -> None:
    client, server = asking(), served()
    assert client.ask([Payload(b"a"), Payload(b"b", b"m"), Payload(bytes(5000)), Payload(b"d")]) == [1, 3, 5, 7]
    (asked,) = server.receive(client.outgoing(), 0.0)
    assert isinstance(asked, ev.Requests)
    assert asked.payloads == [Payload(b"a"), Payload(b"b", b"m"), Payload(bytes(5000)), Payload(b"d")]
    server.answer(asked.streams, asked.payloads)
    assert not (server.stream_table.handlers | server.stream_table.work.fires)
    events = list(ev.singly(client.receive(server.outgoing(), 0.0)))
    assert [(event.stream, event.payloads, event.complete) for event in events if isinstance(event, ev.Items)] == [
        (1, [Payload(b"a")], True),
        (3, [Payload(b"b", b"m")], True),
        (5, [Payload(bytes(5000))], True),
        (7, [Payload(b"d")], True),
    ]
    assert not client.streams()
    assert client.receive(frames.Cancel(stream=1).encode(prefixed=True), 0.0) == [
        ev.Ignored(1, "R-31", "CANCEL for an unknown stream", 1)
    ]


def test_a_run_of_answers_is_one_event() -> None:
    engine = asking()
    engine.ask([Payload()] * 3)
    events = engine.receive(item(1, b"x", last=True) + item(3, b"", last=True) + item(5, b"z", last=True), 0.0)
    assert events == [ev.Answers([1, 3, 5], [Payload(b"x"), Payload(), Payload(b"z")], 2)]


def test_an_answer_without_a_request_ends_a_run() -> None:
    engine = asking()
    engine.ask([Payload()] * 2)
    answers = item(1, b"x", last=True)
    events = engine.receive(answers + answers + item(3, b"y", last=True), 0.0)
    assert [type(event) for event in events] == [ev.Items, ev.Ignored, ev.Items]


def test_large_answers_are_cut_and_small_ones_overtake_none_of_their_own() -> None:
    server = served(mtu=1000)
    server.receive(b"".join(request(id) for id in (1, 3, 5)), 0.0)
    server.answer([1, 3, 5], [Payload(bytes(2500)), Payload(b"b"), Payload(bytes(50), bytes(20))])
    by_stream: dict[int, list[Any]] = {}
    for frame in said(server):
        by_stream.setdefault(frame.stream, []).append(frame)
    assert [len(found) for found in by_stream.values()] == [1, 1, 3] or sorted(by_stream) == [1, 3, 5]
    assert b"".join(frame.data for frame in by_stream[1]) == bytes(2500)
    assert [frame.complete for frame in by_stream[1]] == [False, False, True]
    assert (by_stream[5][0].metadata, by_stream[5][0].complete) == (bytes(20), True)


def test_many_answers_are_several_chunks() -> None:
    server = served(limits=Limits.server().replace(streams=10_000))
    ids = list(range(1, 401, 2))
    server.receive(b"".join(map(request, ids)), 0.0)
    server.answer(ids, [Payload(bytes(1000))] * len(ids))
    assert [frame.stream for frame in said(server)] == ids


def test_an_answer_to_an_ended_request_is_not_sent() -> None:
    server = served()
    server.receive(request(1) + request(3) + frames.Cancel(stream=1).encode(prefixed=True), 0.0)
    server.receive(frames.RequestStream(stream=5, initial_n=1, data=b"").encode(prefixed=True), 0.0)
    server.answer([1, 3, 5], [Payload(b"a"), Payload(b"b"), Payload(b"c")])
    assert [(frame.stream, frame.data) for frame in said(server)] == [(3, b"b")]
    assert not (server.stream_table.handlers | server.stream_table.work.fires)


def test_as_many_are_asked_as_there_are_ids() -> None:
    engine = asking()
    engine.stream_table.ids = StreamIds(1, 5)
    assert engine.ask([Payload()] * 5) == [1, 3, 5]
    with pytest.raises(LimitExceeded, match="stream ids are in use"):
        engine.ask([Payload()])


def test_an_id_that_comes_again_has_no_past() -> None:
    engine = asking()
    engine.stream_table.ids = StreamIds(1, 3)
    stream = engine.open("stream", b"", credit=1)
    engine.cancel(stream)
    assert engine.ask([Payload()] * 2) == [3, 1]
    said(engine)
    assert engine.receive(item(1, b"x", last=True), 0.0) == [ev.Items(1, [Payload(b"x")], True)]


def test_nothing_is_asked_when_it_is_over() -> None:
    engine = asking()
    engine.close(0.0)
    with pytest.raises(ConnectionClosed):
        engine.ask([Payload()])
