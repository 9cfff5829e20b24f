"""Items with metadata come and go many at a time. One at a time would mean the same."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.core.payload import Payload, Run
from afflux.protocols.rsocket import Engine, frames
from tests.examples import share

from .playbook import setup
from .test_runs import asking, item, said

MARKS = st.sampled_from([None, b"", b"m", b"0123456789"])
MANY = st.lists(st.tuples(MARKS, st.sampled_from([b"", b"d", b"data" * 5]), st.integers(1, 20)), min_size=1, max_size=6)


def heard(wire: bytes, credit: int, step: int) -> list[ev.Event]:
    """What a client hears of its stream 1, in reads of ``step`` bytes."""
    engine, events = asking(), list[ev.Event]()
    engine.open("stream", b"", credit=credit)
    for start in range(0, len(wire), step):
        events += engine.receive(wire[start : start + step], 0.0)
    return events


def items_of(events: list[ev.Event]) -> list[Payload]:
    return [payload for event in events if isinstance(event, ev.Items) for payload in event.payloads]


@pytest.mark.repetitive
@settings(max_examples=share(2), deadline=None)
@given(MANY, st.integers(10, 5000))
@example([(b"m", b"d", 20)], 10_000)
@example([(b"m", b"d", 7), (None, b"d", 7), (b"m", b"d", 9), (b"", b"d", 1)], 10_000)
def test_items_are_the_same_in_reads_of_any_size(many: list[tuple[bytes | None, bytes, int]], step: int) -> None:
    payloads = [Payload(data, mark) for mark, data, count in many for _ in range(count)]
    wire = b"".join(item(1, payload.data, metadata=payload.metadata) for payload in payloads)
    assert items_of(heard(wire, len(payloads), step)) == payloads


@pytest.mark.repetitive
@settings(max_examples=share(2), deadline=None)
@given(MANY, st.booleans(), st.sampled_from([0, 5000]))
@example([(b"m", b"d", 20)], True, 0)
def test_items_are_sent_as_they_are_one_at_a_time(
    many: list[tuple[bytes | None, bytes, int]], complete: bool, large: int
) -> None:
    payloads = [Payload(data, mark) for mark, data, count in many for _ in range(count)]
    payloads.insert(len(payloads) // 2, Payload(bytes(large), b"mark"))
    together, alone = (serving(len(payloads)) for _ in range(2))
    together.send(1, payloads, complete=complete)
    for number, payload in enumerate(payloads, 1):
        alone.send(1, [payload], complete=complete and number == len(payloads))
    assert said(together) == said(alone)


@pytest.mark.parametrize(
    "payloads",
    [
        [Payload(b"d", b"m")] * 20,
        [Payload(b"d")] * 20,
        [Payload(b"d", b"m")] * 10 + [Payload(b"d")] * 10,
        [Payload(b"d", b"m")] * 10 + [Payload(bytes(5000), b"mark")],
    ],
    ids=["marked", "plain", "mixed", "large"],
)
def test_items_of_a_kind_are_sent_as_they_are_one_at_a_time(payloads: list[Payload]) -> None:
    together, alone = (serving(len(payloads)) for _ in range(2))
    together.send(1, payloads)
    for payload in payloads:
        alone.send(1, [payload])
    assert said(together) == said(alone)


def test_items_of_several_types() -> None:
    together, alone = (serving(30) for _ in range(2))
    together.send(1, [b"d", Payload(b"d"), "d"] * 10)
    for _ in range(30):
        alone.send(1, [b"d"])
    assert said(together) == said(alone)


def serving(credit: int) -> Engine:
    """A server whose client waits for a stream."""
    engine = Engine("server")
    opening = frames.RequestStream(stream=1, initial_n=credit, data=b"")
    engine.receive(setup().encode(prefixed=True) + opening.encode(prefixed=True), 0.0)
    engine.outgoing()
    return engine


def test_a_run_of_one_size_costs_one_event_and_no_objects() -> None:
    (event,) = heard(item(1, b"abc", metadata=b"12") * 500, 1000, 1 << 20)
    assert isinstance(event, ev.Items)
    assert isinstance(event.payloads, Run)
    assert event.payloads == [Payload(b"abc", b"12")] * 500


def test_a_run_of_several_sizes_is_one_event() -> None:
    wire = b"".join(item(1, b"x" * (n % 3), metadata=b"m" * (n % 2) if n % 5 else None) for n in range(1, 100))
    (event,) = heard(wire, 1000, 1 << 20)
    assert isinstance(event, ev.Items)
    assert len(event.payloads) == 99


@pytest.mark.parametrize("size", [b"a", b"ab"])
def test_it_stops_at_the_credit(size: bytes) -> None:
    wire = item(1, b"a", metadata=b"m") * 15 + item(1, size, metadata=b"m") * 15
    events = heard(wire, 20, 1 << 20)
    assert len(items_of(events)) == 20
    assert [type(event) for event in events if not isinstance(event, ev.Items | ev.Ignored)] == [ev.Failed]


def test_of_another_stream_ends_it() -> None:
    engine = asking()
    for _ in range(2):
        engine.open("stream", b"", credit=1000)
    wire = item(1, b"a", metadata=b"m") * 3 + item(3, b"b", metadata=b"m") * 20 + item(1, b"c", metadata=b"m")
    events = engine.receive(wire, 0.0)
    assert [(event.stream, len(event.payloads)) for event in events if isinstance(event, ev.Items)] == [
        (1, 3),
        (3, 20),
        (1, 1),
    ]


def events_of(wires: list[bytes], limits: Limits | None = None) -> list[Any]:
    """What a client hears of stream 1, its violations included."""
    engine = Engine("client", limits=limits or Limits.server())
    engine.outgoing()
    engine.open("stream", b"", credit=100)
    return [event for wire in wires for event in engine.receive(wire, 0.0)]


def test_metadata_that_exceeds_its_frame_is_refused_as_it_is_alone() -> None:
    good = item(1, b"data", metadata=b"mark")
    wrong = bytearray(good)
    wrong[9:12] = (100).to_bytes(3, "big")
    together = events_of([good * 9 + bytes(wrong) + good])
    alone = events_of([*[good] * 9, bytes(wrong), good])
    assert items_of(together) == items_of(alone) == [Payload(b"data", b"mark")] * len(items_of(alone))
    assert [repr(event) for event in together if not isinstance(event, ev.Items)] == [
        repr(event) for event in alone if not isinstance(event, ev.Items)
    ]


def test_each_is_charged_until_it_is_consumed() -> None:
    engine = asking()
    engine.open("stream", b"", credit=100)
    engine.receive(item(1, b"data", metadata=b"mark") * 20 + item(1, b"", metadata=b"more"), 0.0)
    held = engine.stream_table.delivered
    assert held == 20 * 8 + 4
