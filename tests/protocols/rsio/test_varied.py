"""Runs of elements that differ in length: cut together or taken one by one, they are the same."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core import events as ev
from afflux.protocols.rsio.codes import UNBOUNDED

from .playbook import Playbook, answer, client, item, subscribed

SAME = item(b"").encode()[:-1]
"Type and id of an element of the first subscription."
ELEMENTS = st.lists(
    st.integers(0, 300).map(bytes)
    | st.integers(120, 135).map(lambda size: b"y" * size)
    | st.sampled_from([b"", SAME, SAME * 40, SAME + b"\x03abc", b"z" * 4096, b"z" * 4097, b"z" * 20_000]),
    max_size=12,
)
"Few of them; a run repeats them."


def run(elements: list[bytes]) -> bytes:
    return b"".join(item(element).encode() for element in elements)


def fed(play: Playbook, stream: bytes, cuts: list[int]) -> list[ev.Event]:
    """The events of a stream that arrives in pieces."""
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [event for start, stop in pairwise(places) for event in play.engine.receive(stream[start:stop], 0.0)]


def elements_of(events: Iterable[ev.Event], stream: int = 1) -> list[bytes]:
    return [p.data for e in events if isinstance(e, ev.Items) and e.stream == stream for p in e.payloads]


@given(ELEMENTS, st.integers(1, 12), st.lists(st.integers(0, 1 << 18), max_size=4))
def test_any_run_in_any_pieces(elements: list[bytes], times: int, cuts: list[int]) -> None:
    whole = elements * times
    events = fed(subscribed(len(whole) + 1), run(whole), cuts)
    assert elements_of(events) == whole
    assert all(isinstance(event, ev.Items) for event in events)


@given(ELEMENTS, st.integers(1, 12), st.lists(st.integers(0, 1 << 18), max_size=4))
def test_as_spans_of_a_buffer(elements: list[bytes], times: int, cuts: list[int]) -> None:
    whole = elements * times
    play = client().do(lambda engine: engine.open("stream", b"p", credit=500, columnar=True)).forget()
    play >> answer()
    spans = []
    for block in fed(play, run(whole), cuts):
        assert isinstance(block, ev.Block)
        spans += [bytes(block.buffer[s:e]) for s, e in zip(block.starts, block.ends, strict=True)]
    assert spans == whole


RUNS = [
    [bytes(size) for size in range(200)],
    [b"x" * (size % 30) for size in range(25)] + [b"z" * 5_000] * 2 + [bytes(size) for size in range(60)],
    [b"x" * (size % 30) for size in range(40)] + [SAME * 40, SAME + b"\x03abc"] * 20,
    [b"x" * (size % 3) for size in range(24)],
    [b"x" * (size % 3) for size in range(24)] + [bytes(30_000)],
]


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("elements", RUNS)
def test_some_runs(elements: list[bytes], columnar: bool) -> None:
    """As the random ones above, for the coverage."""
    play = client().do(lambda engine: engine.open("stream", b"p", credit=500, columnar=columnar)).forget()
    play >> answer()
    found = []
    for event in play.engine.receive(run(elements), 0.0):
        if isinstance(event, ev.Block):
            found += [bytes(event.buffer[s:e]) for s, e in zip(event.starts, event.ends, strict=True)]
        else:
            assert isinstance(event, ev.Items)
            found += [item.data for item in event.payloads]
    assert found == elements


@pytest.mark.parametrize("demand", [23, 24, 25, 100, 199])
def test_no_more_than_the_demand_is_cut(demand: int) -> None:
    """R-27."""
    elements = [bytes(size) for size in range(200)]
    events = fed(subscribed(demand), run(elements), [])
    assert elements_of(events) == elements[:demand]
    assert next(event for event in events if isinstance(event, ev.Ignored)).price == 50


def test_demand_without_bound_is_never_used_up() -> None:
    """R-24."""
    play = subscribed(UNBOUNDED)
    assert len(elements_of(fed(play, run([bytes(size) for size in range(200)]), []))) == 200
    assert play.engine.streams()[0].outstanding == UNBOUNDED


def test_another_subscription_ends_a_run() -> None:
    play = subscribed(1000)
    play.engine.subscribe("q", 1000)
    play.forget() >> answer(2)
    mixed = [(1 + (place // 60) % 2, bytes(place % 250)) for place in range(400)]
    events = fed(play, b"".join(item(element, id).encode() for id, element in mixed), [])
    for id in (1, 2):
        assert elements_of(events, 2 * id - 1) == [element for one, element in mixed if one == id]


def test_a_run_is_not_taken_element_by_element() -> None:
    """Performance: no step of Python for each."""
    elements = [bytes(60 + size % 200) for size in range(10_000)]
    stream, play, steps = run(elements), subscribed(2 * len(elements)), 0
    play.engine.receive(stream, 0.0)  # tables are made at their first use

    def counted(_: object, event: str, __: object) -> None:
        nonlocal steps
        steps += event == "call"

    sys.setprofile(counted)
    try:
        events = play.engine.receive(stream, 0.0)
    finally:
        sys.setprofile(None)
    assert elements_of(events) == elements
    assert steps < len(elements) / 10
