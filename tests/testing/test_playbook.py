"""Conversations fail where an engine does something else than the line says."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.payload import Payload
from afflux.protocols.rsocket import frames
from afflux.testing.playbook import Begins
from tests.protocols.rsocket.playbook import Mode, Playbook, responder

ASKS = frames.RequestResponse(stream=1, data=b"x")
MODES: tuple[Mode, ...] = ("whole", "bytewise")


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation(mode: Mode) -> None:
    play = responder(mode) >> ASKS << (ev.Opened, {"verb": "request", "payload.data": b"x"})
    play.do(lambda engine: engine.send(1, [Payload(b"y")], complete=True))
    play << frames.PayloadFrame(stream=1, next=True, complete=True, data=b"y")
    play.quiet()


def test_nothing_may_be_left_over() -> None:
    play = responder() >> ASKS
    with pytest.raises(AssertionError, match=r"not expected: events \[Opened"):
        play.at(1.0)
    play.forget().quiet()


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (ev.Completed, r"expected <class '.*Completed'>\n +got Opened"),
        ((ev.Opened, {"payload.data": b"z"}), "got Opened"),
        (frames.Keepalive, "expected .*, but nothing came; events"),
    ],
)
def test_something_else_came(expected: object, text: str) -> None:
    play: Playbook = responder() >> ASKS
    with pytest.raises(AssertionError, match=text):
        play << expected


def test_a_reason_may_be_followed_by_its_limit() -> None:
    assert Begins(b"too-large") == b"too-large: payload_bytes=1"
    assert Begins(b"too-large") == b"too-large"
    assert Begins(b"too-large") != b"too-large-1"
    assert hash(Begins(b"a")) == hash(b"a")
