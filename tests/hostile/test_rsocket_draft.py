"""Hostile peers of the extensible draft: what no conversation of tests/protocols/rsocket_draft tells; where the other
rows are told is in test_catalogue.py."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.protocols.rsocket_draft import Engine, Entry, frames, payloads
from tests.hostile import rsocket_draft_peer as peer
from tests.hostile.hoards import SERVER, TINY
from tests.hostile.rsocket_draft_peer import wired
from tests.protocols.rsocket_draft.pair import frames_of, plain, said


def prices(events: list[Any]) -> list[int]:
    return [event.price for event in events if isinstance(event, ev.Ignored)]


def errors(engine: Engine) -> list[tuple[int, int]]:
    """Stream and code of each ERROR that an engine sends."""
    return [(frame.stream, frame.code) for frame in frames_of(said(engine)) if isinstance(frame, frames.ErrorFrame)]


@pytest.mark.parametrize(
    ("length", "first"),
    [
        (b"\0\0\0", 0x001),
        (b"\0\0\5", 0x001),
        (b"\xff\xff\xff", 0x003),
        ((SERVER.frame_bytes + 1).to_bytes(3, "big"), 0x003),
    ],
)
@pytest.mark.parametrize("make", [peer.server, peer.stranger])
def test_FR_01_FR_02_lengths_out_of_bounds(make: Any, length: bytes, first: int) -> None:
    engine = make()
    said(engine)
    engine.receive(length + b"\0\0\0\0\x04\0", 0.0)
    assert engine.closed
    assert errors(engine) == [(0, 0x101 if make is peer.server else first)]


def test_FR_11_FR_12_unknown_types() -> None:
    engine = peer.server()
    assert prices(engine.receive(peer.raw(0x30, 0x200, 0, b"x"), 0.0)) == [1]
    engine.receive(peer.raw(0x30, 0, 0, b"x"), 0.0)
    assert engine.closed


@pytest.mark.parametrize(
    "first",
    [
        wired(frames.ExtChain(extensions=(payloads.ping_entry(b"", respond=True),))),
        wired(frames.RequestResponse(stream=1, data=b"x")),
        wired(frames.SetupOk()),
        wired(frames.Setup(stream=3)),
    ],
    ids=["EXT", "a request", "SETUP_OK", "SETUP on a stream"],
)
def test_HS_02_HS_03_other_first_frames(first: bytes) -> None:
    engine = peer.stranger()
    events = engine.receive(first + peer.HELLO, 0.0)
    assert not any(isinstance(event, ev.Established | ev.Opened) for event in events)
    assert errors(engine) == [(0, 0x001)]
    assert engine.closed


def test_HS_04_a_second_setup_changes_nothing() -> None:
    engine = peer.serving()
    for one in (peer.HELLO, peer.large_setup(), wired(frames.Setup(major=7)), wired(frames.Setup(ack=True))):
        assert prices(engine.receive(one, 0.0)) == [10]
    assert engine.credit(1) == 1
    assert said(engine) == b""


@pytest.mark.parametrize(("excess", "taken"), [(-1, True), (0, True), (1, False)])
def test_HS_12_the_first_frame_at_its_limit(excess: int, taken: bool) -> None:
    size = SERVER.first_frame_bytes + excess
    setup = wired(frames.Setup(data=bytes(size - frames.Setup().encoded_size)))
    engine = peer.stranger()
    events = engine.receive(setup if taken else setup[:9], 0.0)
    assert [type(event) for event in events] == [ev.Established if taken else ev.Closed]
    assert errors(engine) == ([] if taken else [(0, 0x003)])


def test_SI_01_a_request_on_a_busy_id_harms_nothing() -> None:
    engine = peer.serving()
    must = Entry("must")
    for kind in (frames.RequestResponse, frames.RequestFnf):
        assert prices(engine.receive(wired(kind(stream=1)), 0.0)) == [10]
        known = wired(kind(stream=1, extensions=(Entry("own", b"x", True),)))
        assert prices(engine.receive(known, 0.0)) == [10]
    assert engine.credit(1) == 1
    assert plain(engine.receive(wired(frames.RequestN(stream=3, n=1, extensions=(must,))), 0.0)) == []
    assert engine.credit(1) == 1


@pytest.mark.parametrize("entries", [(), (Entry("own", b"x", True),)], ids=["plain", "with an entry"])
def test_SI_03_the_wrong_parity(entries: tuple[Entry, ...]) -> None:
    engine = peer.server()
    for kind in (frames.RequestResponse, frames.RequestFnf):
        assert prices(engine.receive(wired(kind(stream=2, extensions=entries)), 0.0)) == [10]
    assert said(engine) == b""


@pytest.mark.parametrize("entries", [(), (Entry("own", b"x", True),)], ids=["plain", "with an entry"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_SI_16_streams(excess: int, entries: tuple[Entry, ...]) -> None:
    """At the limit the handlers run; one more is REJECTED."""
    most = TINY.streams + TINY.pending_streams
    engine = peer.server(TINY)
    events = engine.receive(
        wired(*[frames.RequestResponse(stream=2 * n + 1, extensions=entries) for n in range(most + excess)]), 0.0
    )
    assert len(plain(events)) == min(most, most + excess)
    assert errors(engine) == ([(2 * most + 1, 0x202)] if excess > 0 else [])


def test_FC_09_the_publisher_is_asked_for_what_fits() -> None:
    engine = peer.greedy()
    said(engine)
    sent = 0
    while engine.room(0) > 0:
        peer.publish(engine)
        sent += 4000
    assert SERVER.outbound_high_bytes // 2 < sent <= SERVER.outbound_high_bytes + 4000
    assert engine.wants_read


@pytest.mark.parametrize("respond", [True, False])
def test_KA_03_a_large_keepalive(respond: bool) -> None:
    most = SERVER.connection_metadata_bytes
    for size in (most, most + 1):
        engine = peer.server()
        engine.receive(wired(frames.ExtChain(extensions=(payloads.ping_entry(bytes(size), respond=respond),))), 0.0)
        assert engine.closed is (size > most)


@pytest.mark.parametrize("count", [1, 20])
def test_EX_01_a_length_that_lies_after_many_that_do_not(count: int) -> None:
    """The short path finds it too, alone and after frames whose entries begin alike."""
    engine = peer.server()
    good = [frames.RequestResponse(stream=2 * n + 1, extensions=(Entry("own", b"xx", True),)) for n in range(count)]
    for lie in (b"\0\0\x03", b"\0\xff\xff", b"\xff\xff\xff"):
        engine = peer.server()
        bad = peer.raw(0x04, 0x200, 2 * count + 1, b"\x02own\x40" + lie + b"xx")
        events = engine.receive(wired(*good) + bad, 0.0)
        assert sum(isinstance(event, ev.Opened) for event in ev.singly(events)) == count
        assert errors(engine) == [(0, 0x101)]


def test_EX_02_many_entries_that_must_be_understood_count_as_cancels() -> None:
    engine = peer.server()
    for n in range(SERVER.most_cancels + 2):
        engine.receive(wired(frames.RequestResponse(stream=2 * n + 1, extensions=(Entry("must"),))), 0.0)
        said(engine)
    assert engine.closed


def test_EX_04_skipped_entries_leave_nothing() -> None:
    engine = peer.server()
    skipped = (Entry("x", bytes(3000), True),) * 20
    (opened,) = plain(engine.receive(wired(frames.RequestResponse(stream=1, extensions=skipped, data=b"x")), 0.0))
    assert opened.payload == peer.Payload(b"x")
    assert prices(engine.receive(wired(frames.ExtChain(extensions=skipped)), 0.0)) == [1] * 20


def test_items_with_long_entries_fill_the_memory_of_a_connection() -> None:
    """DR-4: what waits with its entries does not exceed the budget by much, and reading goes on when it is consumed."""
    engine = peer.HOARD.make(TINY)
    source = peer.HOARD.source(engine)
    taken = 0
    while engine.wants_read:
        taken += sum(len(event.payloads) for event in engine.receive(next(source), 0.0) if isinstance(event, ev.Items))
    assert taken * 2500 < 1.1 * TINY.connection_bytes
    engine.consumed(taken * 2, taken)
    assert engine.wants_read
