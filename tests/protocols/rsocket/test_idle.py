"""Connections that do nothing, or nothing any more: what they forget, and what they let go."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from afflux.protocols.rsocket import Engine, frames
from tests.protocols.rsocket.playbook import Playbook, ev, ignored, position, requester, responder, resumable_server

pytestmark = pytest.mark.repetitive

ECHO = position(0)
LATE = frames.RequestN(stream=1, n=1)
"Free while it is known that stream 1 was there."


def ended(play: Playbook) -> Playbook:
    """A stream of the peer's has ended in order."""
    play >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    return play.do(lambda engine: engine.complete(1)) << frames.PayloadFrame


def heard(play: Playbook, now: float) -> Playbook:
    """A keepalive comes."""
    play.now = now
    return play >> ECHO


def test_endings_are_forgotten_after_a_lifetime_without_any() -> None:
    play = ended(responder())
    heard(play, 20.0)
    for now in (40.0, 80.0, 109.9):
        heard(play, now)
        play >> LATE << ignored(0, "SI-07")
    heard(play, 110.0)
    play >> LATE << ignored(1, "R-31")


def test_each_ending_begins_the_time_anew() -> None:
    play = ended(responder())
    heard(play, 20.0)
    heard(play, 100.0)
    play >> frames.RequestStream(stream=3, initial_n=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.complete(3)) << frames.PayloadFrame
    heard(play, 120.0)
    heard(play, 209.9)
    play >> LATE << ignored(0, "SI-07")
    heard(play, 210.0)
    play >> LATE << ignored(1, "R-31")


def test_what_this_side_gave_up_is_forgotten_too() -> None:
    play = requester().do(lambda engine: engine.open("stream", b"", credit=5)) << frames.RequestStream
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel
    item = frames.PayloadFrame(stream=1, next=True, data=b"x")
    play >> item << ignored(0, "SI-07")
    play.engine.tick(0.0)
    heard(play, 1.0)
    heard(play, 90.9)
    play >> item << ignored(0, "SI-07")
    heard(play, 91.0)
    play >> item << ignored(1, "R-31")


def test_a_session_that_can_be_resumed_forgets_nothing() -> None:
    """What it repeats may be late by as long as it was away."""
    play = ended(resumable_server())
    for now in (20.0, 110.0, 1000.0):
        heard(play, now)
    play >> LATE << ignored(0, "SI-07")


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("end", ["close", "eof", "drain", "refused", "abuse"])
@pytest.mark.parametrize("make", [responder, requester])
@pytest.mark.usefixtures("no_collector")
def test_an_engine_that_is_over_is_freed_without_the_collector(make: type[Playbook], end: str) -> None:
    before = engines()
    play = make()
    engine = play.engine
    match end:
        case "close":
            engine.close(0.0)
        case "eof":
            engine.receive_eof(0.0)
        case "drain":
            engine.close(0.0, drain=True)
            engine.tick(0.0)
        case "refused":
            engine.receive(frames.ErrorFrame(stream=0, code=0x101, data=b"").encode(prefixed=True), 0.0)
        case "abuse":
            engine.receive(frames.Keepalive(stream=0, respond=False, position=0, data=bytes(70_000)).encode(), 0.0)
            engine.receive(bytes.fromhex("00000600000000fc00"), 0.0)
    assert engine.closed
    assert engines() == before + 1
    del play, engine
    assert engines() == before


def engines() -> int:
    return sum(type(found) is Engine for found in gc.get_objects())
