"""A short stream arrives as one event, and leaves as one run of frames. Frame by frame would mean the same."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames
from tests.examples import share

from .test_runs import asking, item, said, served

DATAS = st.lists(st.sampled_from([b"", b"d", b"data" * 20, bytes(5000)]), min_size=1, max_size=30)


def stream_of(datas: list[bytes]) -> bytes:
    """The frames of stream 1: items, the last of which completes it."""
    return b"".join(item(1, data, last=place == len(datas)) for place, data in enumerate(datas, 1))


def opened(credit: int, *, limits: Limits | None = None) -> Engine:
    engine = asking(limits=limits)
    engine.open("stream", b"", credit=credit)
    return engine


def serving(credit: int) -> Engine:
    engine = served()
    request = frames.RequestStream(stream=1, initial_n=credit, data=b"")
    engine.receive(request.encode(prefixed=True), 0.0)
    return engine


def test_items_and_the_end_are_one_event() -> None:
    engine = opened(9)
    [event] = engine.receive(stream_of([b"a", b"bb", b"ccc"]), 0.0)
    assert event == ev.Items(1, [Payload(b"a"), Payload(b"bb"), Payload(b"ccc")], True)
    assert not engine.streams()


@pytest.mark.repetitive
@settings(max_examples=share(2), deadline=None)
@given(DATAS, st.integers(1, 6000))
@example([b"a"], 6000)
@example([b"a"], 9)
@example([b""], 6000)
def test_the_end_is_the_same_in_reads_of_any_size(datas: list[bytes], step: int) -> None:
    engine, wire, events = opened(len(datas)), stream_of(datas), list[ev.Event]()
    for start in range(0, len(wire), step):
        events += engine.receive(wire[start : start + step], 0.0)
    found = [event for event in events if isinstance(event, ev.Items)]
    assert [payload.data for event in found for payload in event.payloads] == datas
    assert [event.complete for event in found] == [False] * (len(found) - 1) + [True]
    assert len(found) == len(events)
    assert not engine.streams()


def test_a_last_item_beyond_the_credit_fails_the_stream() -> None:
    engine = opened(2)
    items, failed = engine.receive(stream_of([b"a", b"b", b"c"]), 0.0)[0::2]
    assert items == ev.Items(1, [Payload(b"a"), Payload(b"b")])
    assert isinstance(failed, ev.Failed)


def test_a_last_item_that_is_too_large_fails_the_stream_after_the_items_before() -> None:
    engine = opened(9, limits=Limits.server().replace(payload_bytes=100))
    items, failed = engine.receive(stream_of([b"a", bytes(101)]), 0.0)
    assert items == ev.Items(1, [Payload(b"a")])
    assert isinstance(failed, ev.Failed)


def test_the_last_item_of_a_channel_ends_one_half() -> None:
    engine = served()
    channel = frames.RequestChannel(stream=1, initial_n=5, complete=False, data=b"0")
    engine.receive(channel.encode(prefixed=True), 0.0)
    engine.request(1, 9)
    assert engine.receive(stream_of([b"1", b"2"]), 0.0) == [ev.Items(1, [Payload(b"1"), Payload(b"2")], True)]
    engine.send(1, [b"3"], complete=True)
    assert not engine.streams()


@pytest.mark.repetitive
@settings(max_examples=share(2), deadline=None)
@given(DATAS)
@example([b"a", b"bb", b"ccc", b"dddd"])
def test_a_completed_run_is_sent_as_one_frame_at_a_time_would_be(datas: list[bytes]) -> None:
    together, alone = serving(len(datas)), serving(len(datas))
    together.send(1, datas, complete=True)
    for place, data in enumerate(datas, 1):
        alone.send(1, [data], complete=place == len(datas))
    assert said(together) == said(alone)
    assert not together.streams()
