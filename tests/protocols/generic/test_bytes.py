"""Bytes as they come, at every protocol: every split, every truncation, every flipped bit, garbage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afflux.core import events as ev
from afflux.core.errors import Error
from afflux.core.limits import Limits
from tests.examples import share

from .every import WIRES
from .wires import ROLES, Role, Talk, Wire, flat, id_of, names, said, told

pytestmark = pytest.mark.repetitive

TALKS = [(wire, talk) for wire in WIRES for talk in wire.talks]
IDS = [f"{wire.name}-{talk.name}" for wire, talk in TALKS]
BOTH = [(wire, role) for wire in WIRES for role in ROLES]
BOTH_IDS = [f"{wire.name}-{role}" for wire, role in BOTH]
TINY = Limits.tiny()


@pytest.mark.parametrize(("wire", "talk"), TALKS, ids=IDS)
def test_events_of_a_conversation(wire: Wire, talk: Talk) -> None:
    engine, events = talk.begin(wire)
    assert names(events + engine.receive(talk.data, 0.0)) == talk.heard


@pytest.mark.parametrize("wire", WIRES, ids=id_of)
def test_both_sides_have_conversations(wire: Wire) -> None:
    assert {talk.role for talk in wire.talks} == set(ROLES)


@pytest.mark.parametrize(("wire", "talk"), TALKS, ids=IDS)
def test_every_split_gives_the_same_events(wire: Wire, talk: Talk) -> None:
    """FR-08: in two pieces, and byte by byte."""
    whole = told(wire, talk, ())
    for cut in range(len(talk.data) + 1):
        assert told(wire, talk, [cut]) == whole
    assert told(wire, talk, range(len(talk.data))) == whole


@pytest.mark.parametrize(("wire", "talk"), TALKS, ids=IDS)
@settings(max_examples=share(0.4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_random_splits_give_the_same_events(wire: Wire, talk: Talk, draw: st.DataObject) -> None:
    cuts = draw.draw(st.lists(st.integers(0, len(talk.data)), max_size=12))
    assert told(wire, talk, cuts) == told(wire, talk, ())


@pytest.mark.parametrize(("wire", "talk"), TALKS, ids=IDS)
def test_every_truncation_ends_in_order(wire: Wire, talk: Talk) -> None:
    """FR-06: no half item is told, each stream ends once, then comes Closed."""
    whole, _ = told(wire, talk, ())
    for size in range(len(talk.data)):
        engine, events = talk.begin(wire)
        events += engine.receive(talk.data[:size], 0.0)
        before = flat(events)
        assert before == whole[: len(before)]
        events += over(engine)
        assert isinstance(events[-1], ev.Closed)
        once(events)


def over(engine: Any) -> list[Any]:
    """The transport ends, in both directions: a side that may go on after the peer's end is told of both."""
    events = engine.receive_eof(0.0)
    if not engine.closed:
        events += engine.receive_eof(0.0)
    assert engine.closed
    assert engine.receive_eof(1.0) == engine.receive(b"more", 1.0) == engine.tick(1.0) == []
    return list(events)


def once(events: list[Any]) -> None:
    """Closed comes once, and each stream fails at most once."""
    assert sum(isinstance(event, ev.Closed) for event in events) == 1
    failed = [event.stream for event in events if isinstance(event, ev.Failed)]
    assert len(failed) == len(set(failed))


@pytest.mark.parametrize(("wire", "talk"), TALKS, ids=IDS)
def test_every_flipped_bit_has_a_documented_outcome(wire: Wire, talk: Talk) -> None:
    """FR-29: no crash, no hang, one end."""
    for place in range(len(talk.data) * 8):
        flipped = bytearray(talk.data)
        flipped[place // 8] ^= 1 << place % 8
        engine, events = talk.begin(wire, TINY)
        events += engine.receive(bytes(flipped), 0.0)
        said(engine)
        once(events if engine.closed else events + over(engine))


@pytest.mark.parametrize(("wire", "role"), BOTH, ids=BOTH_IDS)
@pytest.mark.parametrize("greeted", [False, True], ids=["stranger", "established"])
@pytest.mark.parametrize("octet", [0x00, 0x01, 0x07, 0x80, 0xFF])
def test_constant_garbage(wire: Wire, role: Role, greeted: bool, octet: int) -> None:
    """FR-09: it ends the connection, or waits for a frame of at most the largest size."""
    engine = wire.established(role, TINY) if greeted else wire.make(role, limits=TINY)
    events: list[Any] = []
    for _ in range(32):
        events += engine.receive(bytes([octet]) * 0x1000, 0.0)
        said(engine)
    if not (greeted and octet in wire.idle):
        events += engine.tick(TINY.frame_s + 1)
        events += [] if engine.closed else engine.tick(engine.deadline or 0.0)
        assert engine.closed
    once(events if engine.closed else events + over(engine))


@pytest.mark.parametrize(("wire", "role"), BOTH, ids=BOTH_IDS)
@settings(max_examples=share(1.5), deadline=None)
@given(draw=st.data())
def test_no_bytes_of_a_peer_raise(wire: Wire, role: Role, draw: st.DataObject) -> None:
    """FR-09: lines of conversations in any order, pieces of them, garbage between them, an application that answers."""
    lines = sorted({line for talk in wire.talks for line in talk.said})
    line = st.sampled_from(lines)
    piece = st.tuples(line, st.integers(0, 99), st.integers(0, 255)).map(lambda drawn: spoiled(*drawn))
    engine = wire.make(role, limits=TINY)
    if draw.draw(st.booleans()):
        engine.receive(wire.hello(role), 0.0)
    if draw.draw(st.booleans()) and wire.verbs[role]:
        try:
            engine.open(wire.verbs[role][0], b"000001", credit=1 if wire.grants else 0)
        except Error:
            pass  # a stranger may have to wait
    events: list[Any] = []
    for data in draw.draw(st.lists(line | piece | st.binary(max_size=60), max_size=20)):
        heard = list(ev.singly(engine.receive(data, 0.0)))
        for event in heard:
            if isinstance(event, ev.Opened) and not engine.closed:
                if event.verb == "request":
                    engine.send(event.stream, [b"answer"], complete=True)
                engine.release(event.stream)
        events += heard
        events += engine.tick(0.0)
        said(engine)
    once(events if engine.closed else events + over(engine))


def spoiled(line: bytes, place: int, octet: int) -> bytes:
    """A line with another byte somewhere, or without its end."""
    if octet & 1:
        return line[: place % len(line)]
    return line[: place % len(line)] + bytes([octet]) + line[place % len(line) + 1 :]


@pytest.mark.parametrize(("wire", "role"), BOTH, ids=BOTH_IDS)
@given(data=st.binary(max_size=300), greeted=st.booleans(), step=st.integers(1, 40))
def test_garbage_never_raises(wire: Wire, role: Role, data: bytes, greeted: bool, step: int) -> None:
    engine = wire.established(role, TINY) if greeted else wire.make(role, limits=TINY)
    events: list[Any] = []
    for start in range(0, len(data), step):
        events += engine.receive(data[start : start + step], 0.0)
    once(events if engine.closed else events + over(engine))
