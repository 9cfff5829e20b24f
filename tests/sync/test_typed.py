"""Session types on live connections of a blocking program, on Limit-Stream and on channels of RSocket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.demo.responder import Responder
from afflux.demo.sum import SUM, Done, SumClient
from afflux.sessions import BlockingChan, SessionTypeError, SessionViolation, session_type
from tests.sync.serving import serving

WIRES = ("limit", "rsocket", "reactivesocket")


@pytest.fixture(params=WIRES)
def peer(request: pytest.FixtureRequest) -> Iterator[afflux.sync.Peer]:
    with (
        serving(Responder(), f"{request.param}+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri) as peer,
    ):
        yield peer


def summed(chan: BlockingChan[SumClient], *numbers: int) -> int:
    first, *others = numbers
    choice = chan.send(first)
    for number in others:
        choice = choice.choose(1).send(number)
    total, last = choice.choose(2).send(Done()).recv()
    last.end()
    return total


def test_the_example_of_the_specification(peer: afflux.sync.Peer) -> None:
    for _ in range(3):
        with peer.open(SUM, timeout=5) as chan:
            assert summed(chan, 1, 2) == 3
    with peer.open(SUM.server) as chan:
        assert summed(chan, *range(1000)) == 499_500
    assert peer.streams() == []


def test_own_mistakes_are_refused(peer: afflux.sync.Peer) -> None:
    with peer.open(SUM, timeout=5) as chan:
        wrong: Any = chan
        for step in (wrong.recv, wrong.offer, wrong.end, lambda: wrong.choose(1), lambda: wrong.send("1")):
            with pytest.raises(SessionTypeError, match=r"expects send int .state 0."):
                step()
        choice = chan.send(1)
        with pytest.raises(SessionTypeError, match="this endpoint was used"):
            chan.send(1)
        total, end = choice.choose(2).send(Done()).recv()
        end.end()
        assert total == 1
    session = peer.open(SUM)
    with session:
        pass
    with pytest.raises(afflux.LocalProtocolError, match="open another one"):
        session.__enter__()


def test_a_mistake_of_the_peer(peer: afflux.sync.Peer) -> None:
    text = session_type(
        {
            "name": "sum",
            "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "Done", 3], ["send", "string", 4], ["end"]],
            "types": {"Done": ["struct"]},
        }
    )
    with pytest.raises(SessionViolation) as caught, peer.open(text, timeout=5) as chan:
        chan.send(1).choose(2).send(()).recv()
    assert (caught.value.state, caught.value.expected) == (3, "recv string")


def test_a_timeout(peer: afflux.sync.Peer) -> None:
    slow = session_type({"name": "sum", "states": [["send", "int", 1], ["end"]], "types": {}})
    with peer.open(slow, timeout=0.05) as chan:
        with pytest.raises(TimeoutError):
            chan.recv()
        with pytest.raises(afflux.Error):
            chan.recv()
