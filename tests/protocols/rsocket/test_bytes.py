"""Bytes as they come, where RSocket has its own way of being wrong; the rest is in tests/protocols/generic."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.protocols.rsocket import Engine, frames
from tests.examples import share

from .playbook import requester, responder, setup


@pytest.mark.repetitive
@settings(max_examples=share(3), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 63), st.integers(0, 0x3FF), st.binary(max_size=80)), max_size=30
    )
)
def test_framed_garbage_never_raises(said: list[tuple[int, int, int, bytes]]) -> None:
    """Frames whose header is sound and whose rest is not."""
    for play in (responder(), requester()):
        engine = play.engine
        live = engine.open("channel", b"x", credit=3)
        for stream, kind, flags, body in said:
            head = (6 + len(body)).to_bytes(3, "big") + stream.to_bytes(4, "big")
            engine.receive(head + (kind << 10 | flags).to_bytes(2, "big") + body, 0.0)
            engine.credit(live)
        while engine.outgoing(100):
            pass
        engine.tick(1000.0)
        engine.tick(1001.0)  # a look that came so late asks once more first (TM-03)
        assert engine.closed


def test_bytes_one_by_one_cost_the_same_each() -> None:
    """FR-05: a frame of the largest size, dribbled, is not copied again and again."""
    frame = frames.RequestFnf(stream=1, data=bytes(Limits.server().payload_bytes)).encode(prefixed=True)
    engine = Engine("server")
    engine.receive(setup().encode(prefixed=True), 0.0)
    assert engine.receive(frame[:3], 0.0) == []
    held = engine.inbound.buffer
    for position in range(3, 3000):
        engine.receive(frame[position : position + 1], 0.0)
    assert held.pending == 3000
    events = engine.receive(frame[3000:], 0.0)
    assert [type(event) for event in events] == [ev.Opened]
