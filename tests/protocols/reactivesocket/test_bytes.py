"""Bytes as they come: every split, every truncation, garbage, floods and what they may cost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core import events as ev
from afflux.core.errors import RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Engine, frames

from .playbook import Playbook, closed, error, ignored, responder, setup
from .test_frames import any_frame

TALK: tuple[frames.ReactiveSocketFrame, ...] = (
    setup(metadata=b"m", data=b"d"),
    frames.RequestResponse(stream=2, metadata=b"m", data=b"q"),
    frames.RequestResponse(stream=4, data=b"q"),
    frames.RequestStream(stream=6, initial_n=2),
    frames.RequestChannel(stream=8, initial_n=2, follows=True, metadata=b"m" * 60),
    frames.RequestChannel(stream=8, data=b"d" * 60),
    frames.RequestChannel(stream=8, complete=True),
    frames.Keepalive(respond=True, data=b"k"),
    frames.RequestN(stream=6, n=3),
    frames.Ext(extended_type=2, ignore=True, body=b"x"),
    frames.MetadataPush(metadata=b"p"),
    frames.Cancel(stream=6),
    frames.ErrorFrame(stream=0, code=0x11, data=b"end"),
)
BYTES = b"".join(frame.encode(prefixed=True) for frame in TALK)


def told(*pieces: bytes, role: Any = "server") -> list[str]:
    """What an engine tells, and says, about bytes in these pieces."""
    engine = Engine(role)
    events: list[ev.Event] = []
    sent = b""
    for piece in pieces:
        events += engine.receive(piece, 0.0)
        while data := engine.outgoing():
            sent += data
    return [*(repr(event) for event in ev.singly(events)), sent.hex()]


def test_every_split_tells_the_same() -> None:
    """FR-08."""
    whole = told(BYTES)
    assert len(whole) > 10
    for at in range(len(BYTES)):
        assert told(BYTES[:at], BYTES[at:]) == whole
    assert told(*(BYTES[at : at + 1] for at in range(len(BYTES)))) == whole


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(BYTES)), max_size=8))
def test_random_splits_tell_the_same(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(BYTES)]
    assert told(*(BYTES[a:b] for a, b in pairwise(places))) == told(BYTES)


def test_every_truncation_ends_once() -> None:
    """FR-06."""
    for at in range(len(BYTES)):
        engine = Engine("server")
        engine.receive(BYTES[:at], 0.0)
        events = engine.receive_eof(0.0)
        assert isinstance(events[-1], ev.Closed)
        assert engine.receive_eof(0.0) == []


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("filler", [b"\x00", b"\xff"])
def test_zeros_and_ones(role: Any, filler: bytes) -> None:
    """FR-09."""
    engine = Engine(role)
    events = engine.receive(filler * 100, 0.0)
    assert isinstance(events[-1], ev.Closed)
    assert engine.receive(filler, 0.0) == []


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["client", "server"]), st.lists(any_frame() | st.binary(max_size=40), max_size=20), st.booleans()
)
def test_nothing_a_peer_says_raises(role: Any, said: list[Any], first: bool) -> None:
    """FR-09: any frames in any order, and garbage between them; what is kept stays within its bound."""
    engine = Engine(role, limits=Limits.tiny())
    pieces = [setup().encode(prefixed=True)] if first else []
    pieces += [piece if isinstance(piece, bytes) else piece.encode(prefixed=True) for piece in said]
    for piece in pieces:
        for event in ev.singly(engine.receive(piece, 0.0)):
            if isinstance(event, ev.Opened) and event.verb != "fire":
                engine.send(event.stream, [b"a"] if event.credit else [], complete=True)
        engine.tick(0.0)
        while engine.outgoing():
            pass
    engine.receive_eof(0.0)
    assert engine.closed


def test_a_cancel_flood() -> None:
    """FL-01: request and cancel in a loop."""
    play = responder()
    data = b"".join(
        frames.RequestStream(stream=id, initial_n=1).encode(prefixed=True)
        + frames.Cancel(stream=id).encode(prefixed=True)
        for id in range(2, 404, 2)
    )
    engine = play.engine
    events = engine.receive(data, 0.0)
    assert sum(isinstance(event, ev.Opened) for event in events) == 201
    assert isinstance(events[-1], ev.Closed)
    assert events[-1].error is not None
    assert events[-1].error.rule == "cancel_bucket"


def test_a_flood_of_fire_and_forget() -> None:
    """FL-03: at most S handlers; the rest is dropped and charged."""
    most = Limits.server().streams
    play = responder() >> tuple(frames.RequestFnf(stream=id) for id in range(2, 2 * most + 4, 2))
    for _ in range(most):
        play << ev.Opened
    play << ignored(1)
    play.quiet()


def test_a_flood_of_credit() -> None:
    """FC-08: one integer, and a price for frames that nobody needs."""
    play = responder() >> frames.RequestStream(stream=2, initial_n=1) << ev.Opened
    play >> (frames.RequestN(stream=2, n=1),) * 8
    for _ in range(7):
        play << ev.Granted
    play << ignored(1) << ev.Granted


def test_a_flood_of_requests_whose_answers_nobody_reads() -> None:
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


def test_a_server_that_is_told_nonsense_says_so_once() -> None:
    play = Playbook(Engine("server")) >> b"GET / HTTP/1.1\r\n\r\n"
    play << error(0, 0x01, b"first-frame-too-large") << closed(RemoteProtocolError)
    play.quiet()
