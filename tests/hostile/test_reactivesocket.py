"""Hostile ReactiveSocket peers: what no conversation of tests/protocols/reactivesocket tells; where the other rows are
told is in test_catalogue.py."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import RemoteProtocolError
from afflux.core.payload import Payload
from afflux.protocols.reactivesocket import Engine, frames
from tests.hostile.hoards import SERVER, TINY, drained
from tests.hostile.reactivesocket_peer import large_setup
from tests.protocols.reactivesocket.playbook import (
    Playbook,
    closed,
    error,
    ignored,
    raw,
    requester,
    responder,
    setup,
)

STREAM = frames.RequestStream(stream=2, initial_n=1)
REQUEST = frames.RequestResponse(stream=2)


def test_HS_04_a_second_setup_changes_nothing() -> None:
    """However large, and whatever it asks for."""
    play = responder() >> REQUEST << ev.Opened
    for said in (setup(lifetime_ms=1), large_setup(), setup(stream=2), setup(lease=True, version=7)):
        play >> said
        assert isinstance(play.events.popleft(), ev.Ignored)
    play.at(50.0).quiet()
    play.do(lambda engine: engine.send(2, [b"a"])) << frames.Response(stream=2, complete=True, data=b"a")


@pytest.mark.parametrize(("excess", "taken"), [(-1, True), (0, True), (1, False)])
def test_HS_12_the_first_frame_at_its_limit(excess: int, taken: bool) -> None:
    size = SERVER.first_frame_bytes + excess
    said = setup(data=bytes(size - 4 - setup().encoded_size)).encode(prefixed=True)
    assert int.from_bytes(said[:4], "big") == size
    play = Playbook(Engine("server"))
    if taken:
        play >> said << ev.Established
    else:
        play >> said[:6] << error(0, 0x03, b"first-frame-too-large") << closed(RemoteProtocolError)
    play.quiet()


def test_SI_01_a_request_on_a_busy_id_harms_nothing() -> None:
    play = responder() >> STREAM << ev.Opened
    for kind in (frames.RequestResponse, frames.RequestFnf):
        play >> kind(stream=2) << ignored(10, "R-36")
    play >> frames.RequestSub(stream=2, initial_n=9) << ignored(10, "R-36")
    assert play.engine.credit(2) == 1
    play.do(lambda engine: engine.send(2, [b"x"])) << frames.Response(stream=2, data=b"x")


@pytest.mark.parametrize("play", [requester, responder])
def test_SI_03_the_wrong_parity(play: Any) -> None:
    """A client's ids are even, a server's odd: dropped, charged, never answered."""
    wrong = 2 if play is requester else 3
    talk = play()
    for kind in (frames.RequestResponse, frames.RequestFnf):
        talk >> kind(stream=wrong) << ignored(10, "R-12")
    for counted in (frames.RequestStream, frames.RequestSub, frames.RequestChannel):
        talk >> counted(stream=wrong, initial_n=1) << ignored(10, "R-12")
    talk.quiet()


@pytest.mark.parametrize("credit", [1, 255, 256, 257, 5000])
def test_SI_07_what_was_under_way_when_we_canceled_is_free(credit: int) -> None:
    """256 frames, or all that the peer had credit for; one more costs."""
    play = requester().do(lambda engine: engine.open("stream", b"", credit=credit)) << frames.RequestStream
    play.do(lambda engine: engine.cancel(2)) << frames.Cancel(stream=2)
    free = max(SERVER.cancel_race_frames, credit)
    play >> tuple(frames.Response(stream=2, data=b"x") for _ in range(free))
    for _ in range(free):
        play << ignored(0)
    play >> frames.Response(stream=2) << ignored(1, "R-36")


@pytest.mark.parametrize("kind", ["request", "stream", "channel", "subscribe"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_SI_16_streams(kind: str, excess: int) -> None:
    """At the limit the handlers run; one more is REJECTED, which says that nothing was done, and costs a token."""
    made: dict[str, Any] = {
        "request": lambda id: frames.RequestResponse(stream=id),
        "stream": lambda id: frames.RequestStream(stream=id, initial_n=1),
        "channel": lambda id: frames.RequestChannel(stream=id, initial_n=1),
        "subscribe": lambda id: frames.RequestSub(stream=id, initial_n=1),
    }
    most = TINY.streams + TINY.pending_streams
    play = responder(limits=TINY)
    for n in range(most + excess):
        play >> made[kind](2 * n + 2)
        if n < most:
            play << ev.Opened
        else:
            play << ignored(1, "REJECTED") << error(2 * n + 2, 0x22, b"too-many-streams")
    play.quiet()


def test_SI_17_an_id_is_free_at_once() -> None:
    play = responder()
    for _ in range(3):
        play >> REQUEST << ev.Opened
        play.do(lambda engine: engine.send(2, [b"a"])) << frames.Response
        play.engine.release(2)
    play.quiet()


def test_FC_08_credit_at_and_above_its_budget() -> None:
    """Coalesced; beyond 5 + 2 x (streams + 10 x items) each frame costs a token."""
    play = responder() >> STREAM << ev.Opened
    budget = SERVER.credit_frames(1, 0)
    for n in range(budget + 3):
        play >> frames.RequestN(stream=2, n=1)
        if n >= budget:
            play << ignored(1, "credit_frames")
        play << ev.Granted
    assert play.engine.credit(2) == budget + 4
    play.quiet()


def test_FC_09_the_publisher_is_asked_for_what_fits() -> None:
    engine = (responder() >> frames.RequestStream(stream=2, initial_n=0x7FFFFFFF) << ev.Opened).engine
    sent = 0
    while engine.room(0) > 0:
        engine.send(2, [bytes(1000)])
        sent += 1000
    assert SERVER.outbound_high_bytes // 2 < sent <= SERVER.outbound_high_bytes + 1000
    assert engine.wants_read  # its CANCEL must get through
    engine.receive(frames.Cancel(stream=2).encode(prefixed=True), 0.0)
    drained(engine)
    engine.send(2, [bytes(1000)])
    assert not engine.queued


@pytest.mark.parametrize("length", [0, 1, 2, 3, 6, 0x7FFFFFFF, 0x80000003])
@pytest.mark.parametrize("kind", [0x01, 0x02, 0x04, 0x05, 0x08, 0x0A, 0x0B, 0x0C, 0x0D])
def test_FG_15_FG_16_a_metadata_length_that_lies(kind: int, length: int) -> None:
    """The frame is dropped, whatever it is; the connection lives, no handler runs, no slice is negative."""
    fixed = {0x01: bytes(14), 0x02: bytes(8), 0x0C: bytes(4)}.get(kind, b"")
    stream = 0 if kind in (0x01, 0x02, 0x0D) else 2
    play = responder() >> raw(kind, 0x4000, stream, fixed + length.to_bytes(4, "big") + b"m")
    play << ignored(10, "R-6")
    play >> REQUEST << ev.Opened
    play.quiet()


@pytest.mark.parametrize(("ttl", "requests"), [(0, 5), (5, 0), (0, 0)])
def test_LE_04_a_lease_of_nothing(ttl: int, requests: int) -> None:
    play = Playbook(Engine("client", setup=setup(lease=True))) << frames.Setup
    play >> frames.Lease(ttl_ms=ttl, requests=requests) << ev.Established << ev.Leased << frames.Lease
    with pytest.raises(Exception, match="lease"):
        play.engine.open("request", b"", now=1.0)
    play >> frames.Lease(ttl_ms=9000, requests=1) << ev.Leased
    play.do(lambda engine: engine.open("request", b"", now=1.0) and None) << frames.RequestResponse


def test_KA_02_echoes_stop_the_reading() -> None:
    """At most 16 wait; and who asks more often than ten times a second, beyond a burst, is cut off."""
    engine = responder().engine
    said = frames.Keepalive(respond=True, data=b"k").encode(prefixed=True)
    for count in range(SERVER.keepalive_echoes):
        assert engine.wants_read, count
        engine.receive(said, 0.0)
    assert not engine.wants_read
    drained(engine)
    assert engine.wants_read


def test_FL_01_a_handler_that_ignores_the_cancel_keeps_its_slot() -> None:
    play = responder(limits=TINY.replace(pending_streams=0))
    for n in range(TINY.streams):
        play >> frames.RequestStream(stream=2 * n + 2, initial_n=1) << ev.Opened
        play >> frames.Cancel(stream=2 * n + 2) << ev.Canceled
    play >> frames.RequestResponse(stream=998) << ignored(1, "REJECTED") << error(998, 0x22)
    play.do(lambda engine: engine.release(2)) >> frames.RequestResponse(stream=1000) << ev.Opened


@pytest.mark.parametrize("excess", [0, 1])
def test_FL_01_at_the_bucket(excess: int) -> None:
    play = responder()
    burst = SERVER.most_cancels
    for n in range(burst + excess):
        play >> frames.RequestStream(stream=2 * n + 2, initial_n=1) << ev.Opened
        play >> frames.Cancel(stream=2 * n + 2)
        if n == burst:
            play << ev.Failed << closed(RemoteProtocolError, rule="cancel_bucket") << error(0, 0x11, b"cancel-flood")
        else:
            play << ev.Canceled
        play.engine.release(2 * n + 2)
    play.quiet()


def test_FL_06_answers_that_are_not_read() -> None:
    """Reading stops above O and goes on when they have left."""
    engine = responder().engine
    id = 0
    while engine.wants_read:
        id += 2
        engine.receive(frames.RequestResponse(stream=id).encode(prefixed=True), 0.0)
        engine.answer([id], [Payload(bytes(100_000))])
    assert engine.queued <= SERVER.outbound_high_bytes + SERVER.payload_bytes + 110_000
    drained(engine)
    assert engine.wants_read and not engine.closed
