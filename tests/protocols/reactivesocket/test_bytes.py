"""Floods, and what they may cost to the token; what holds for every protocol is in tests/protocols/generic."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Engine, frames

from .playbook import Playbook, closed, error, ignored, responder, setup


@pytest.mark.repetitive
def test_a_cancel_flood() -> None:
    """FL-01: request and cancel in a loop."""
    limits = Limits.server()
    play = responder(limits=limits)
    most = limits.most_cancels
    for id in range(2, 2 * most + 2, 2):
        play >> frames.RequestStream(stream=id, initial_n=1) << ev.Opened >> frames.Cancel(stream=id) << ev.Canceled
        play.engine.release(id)
        play.engine.consumed(0, 1)
    play >> frames.RequestStream(stream=90_000, initial_n=1) << ev.Opened >> frames.Cancel(stream=90_000)
    assert play.events.pop().error.rule == "cancel_bucket"


def test_cancels_of_what_has_not_begun_are_free() -> None:
    """``pending_streams``: a request that waits for a handler has cost nothing yet."""
    play = responder()
    data = b"".join(
        frames.RequestStream(stream=id, initial_n=1).encode(prefixed=True)
        + frames.Cancel(stream=id).encode(prefixed=True)
        for id in range(2, 10_002, 2)
    )
    engine = play.engine
    events = engine.receive(data, 0.0)
    assert sum(isinstance(event, ev.Opened) for event in events) == 5_000
    assert sum(isinstance(event, ev.Canceled) for event in events) == 5_000


def test_a_flood_of_fire_and_forget() -> None:
    """FL-03: none is lost and none counts as a stream; reading stops when they are all that a connection may hold."""
    limits = Limits.tiny()
    play = responder(limits=limits)
    engine, taken = play.engine, 0
    while engine.wants_read:
        taken += 1
        play >> frames.RequestFnf(stream=2 * taken) << ev.Opened
    assert limits.streams < taken <= limits.connection_bytes // limits.object_overhead_bytes + 1
    assert len(engine.stream_table.work.fires) == taken and not engine.stream_table.handlers
    play >> frames.RequestResponse(stream=2 * taken + 2) << ev.Opened
    play >> frames.RequestFnf(stream=2) << ignored(10)
    engine.consumed(0, 2)
    engine.release(2)
    assert engine.wants_read
    play >> frames.RequestFnf(stream=2) << ev.Opened
    play.quiet()


def test_a_flood_of_credit() -> None:
    """FC-08: one integer, and a price for frames that nobody needs."""
    play = responder() >> frames.RequestStream(stream=2, initial_n=1) << ev.Opened
    play >> (frames.RequestN(stream=2, n=1),) * 8
    for _ in range(7):
        play << ev.Granted
    play << ignored(1) << ev.Granted


def test_a_flood_of_requests_with_unread_answers() -> None:
    """FL-06: reading stops above O, and goes on when the answers have left."""
    engine = Playbook(Engine("server", limits=Limits.tiny())).engine
    engine.receive(setup().encode(prefixed=True), 0.0)
    taken = 0
    for id in range(2, 4000, 2):
        if not engine.wants_read:
            break
        engine.receive(frames.RequestResponse(stream=id).encode(prefixed=True), 0.0)
        engine.answer([id], [ev.Payload(bytes(4000))])
        taken += 1
    limits = Limits.tiny()
    assert 8 <= taken <= (limits.outbound_high_bytes + limits.payload_bytes) // 4000 + 1
    while engine.outgoing():
        pass
    assert engine.wants_read


def test_many_unfinished_payloads() -> None:
    """FG-03: the newest is refused."""
    limits = Limits.tiny()
    play = responder(limits=limits)
    for id in range(2, 2 * limits.partial_payloads + 2, 2):
        play >> frames.RequestChannel(stream=id, initial_n=1, follows=True, data=bytes(99))
    play >> frames.RequestChannel(stream=98, initial_n=1, follows=True, data=bytes(99))
    play << error(98, 0x22, b"too-many-partials")


def test_a_budget_that_is_full() -> None:
    """FG-03: reassembly shares the connection's budget."""
    limits = Limits.tiny()
    play = responder(limits=limits)
    part = bytes(limits.frame_bytes - 100)
    for id in (2, 4):
        play >> frames.RequestChannel(stream=id, initial_n=1, follows=True, data=part)
        play >> frames.RequestChannel(stream=id, follows=True, data=part[:60_000])
    play >> frames.RequestChannel(stream=6, initial_n=1, follows=True, data=part) << error(6, 0x22, b"buffer-full")


def test_a_server_reports_nonsense_once() -> None:
    play = Playbook(Engine("server")) >> b"GET / HTTP/1.1\r\n\r\n"
    play << error(0, 0x01, b"first-frame-too-large") << closed(RemoteProtocolError)
    play.quiet()
