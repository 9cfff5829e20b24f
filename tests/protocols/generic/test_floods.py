"""What a peer does without end, at every protocol: it is cut off, or this side stops reading; memory stays within what
the limits say."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from afflux.core import events as ev
from afflux.core.limits import Limits

from .every import WIRES
from .wires import Flood, Wire

pytestmark = pytest.mark.repetitive

FLOODS = [(wire, flood) for wire in WIRES for flood in wire.floods]
ENOUGH = 20_000
SLACK = 192 * 1024
"Objects of the engine, tables of ids, and what Python keeps beside each object."


@pytest.mark.parametrize(("wire", "flood"), FLOODS, ids=[f"{wire.name}-{flood.row}" for wire, flood in FLOODS])
def test_a_flood_comes_to_its_end(wire: Wire, flood: Flood) -> None:
    """The application holds every request and answers none."""
    limits = Limits.tiny().replace(**flood.limits)
    engine = wire.established(flood.role, limits)
    flood.first(engine)
    while engine.outgoing():
        pass
    gc.collect()
    tracemalloc.start()
    try:
        last, times = None, 0
        while engine.wants_read and not engine.closed and times < ENOUGH:
            for event in engine.receive(flood.unit(times), 0.0):
                last = event
                if flood.begins and isinstance(event, ev.Opened | ev.SessionOpened):
                    engine.begin(event.stream)
                    engine.consumed(0, 1)
            while flood.reads and engine.outgoing():
                pass
            times += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for event in engine.tick(limits.goodbye_s):  # who has said goodbye waits so long for an answer
        last = event
    assert ("closed" if engine.closed else "goes on" if engine.wants_read else "paused") == flood.ends, (times, last)
    if flood.ends == "closed":
        assert isinstance(last, ev.Closed)
        assert last.error is not None
        assert flood.rule in (last.error.rule, str(last.error)), last
    assert peak <= limits.connection_bytes + limits.outbound_high_bytes + limits.payload_bytes + SLACK


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_every_protocol_has_floods(wire: Wire) -> None:
    assert len(wire.floods) >= 4
    assert len({flood.row for flood in wire.floods}) == len(wire.floods)
