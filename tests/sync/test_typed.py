"""Session types on live connections of a blocking program, on Limit-Stream and on channels of RSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.demo.responder import Responder
from afflux.demo.sum import SUM, Done, SumClient
from afflux.sessions import BlockingChan, Monitored, SessionTypeError, SessionViolation, session_type
from afflux.sessions.monitor import CHOICE
from afflux.sync.flow import payloads_of
from tests.sync.serving import serving

WIRES = ("limit", "rsocket", "rsocket-draft", "reactivesocket")


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


# Items that the program writes itself


def steps(*parts: int) -> list[bytes]:
    """The items of a client of ``sum``."""
    notation = Monitored(SUM.client)
    return [*(notation.value(part) for part in parts), CHOICE + b"\x01", b"\x90"]


@pytest.fixture(params=["rsocket", "rsocket-draft", "reactivesocket"])
def other(request: pytest.FixtureRequest) -> Iterator[afflux.sync.Peer]:
    with (
        serving(Responder(), f"{request.param}+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri) as peer,
    ):
        yield peer


def test_a_channel_is_monitored(other: afflux.sync.Peer) -> None:
    with other.channel(steps(1, 2), route="sum", session=SUM, timeout=5) as items:
        assert [item.data for item in items] == [b"\x03"]
    with other.channel(steps(4), route="sum", session=SUM.server, timeout=5) as items:
        assert [payload.data for block in items.blocks() for payload in payloads_of(block)] == [b"\x04"]
    assert other.streams() == []


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ([b"\x01", b"\xa1x"], "a string"),
        ([b"\x01", b"\xd4\x00\x05"], "branch 6"),
        ([b"\x01"], "the end of the items"),
        ([b"\xc0"], "nil"),
    ],
)
def test_a_monitored_source_that_breaks_the_type(other: afflux.sync.Peer, source: list[bytes], seen: str) -> None:
    with pytest.raises(SessionTypeError, match=seen), other.channel(source, route="sum", session=SUM) as items:
        next(items)
    assert other.streams() == []


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("route", ["echo", "silence"])
def test_a_monitored_peer_that_breaks_the_type(route: str, columnar: bool) -> None:
    router = afflux.Router()

    @router.channel("echo")
    async def echo(items: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item

    @router.channel("silence")
    async def silence(items: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for _ in items:
            pass
        return
        yield

    with serving(router, "tcp://127.0.0.1:0") as uri, afflux.sync.connect(uri) as peer:
        items = peer.channel(steps(1, 2), route=route, session=SUM, timeout=5)
        with pytest.raises(SessionViolation) as caught:
            for _ in items.blocks() if columnar else items:
                raise AssertionError("no item is legal")
        assert caught.value.seen in ("a value", "the end")
        assert list(items) == []
        assert peer.streams() == []


def test_a_source_that_takes_turns_consumes_the_answers() -> None:
    """The type alternates; the source reads the answer before it continues."""
    turns = session_type(
        {"name": "turns", "states": [["recv", "int", 1], ["send", "int", 2], ["offer", 0, 3], ["end"]]} | {"types": {}}
    )
    router = afflux.Router()

    @router.session(turns)
    async def serve(chan: Any) -> None:
        branch = 1
        while branch == 1:
            number, chan = await chan.recv()
            chan = await chan.send(number + 1)
            branch, chan = await chan.offer()
        await chan.end()

    with serving(router, "tcp://127.0.0.1:0") as uri, afflux.sync.connect(uri) as peer:
        answers: list[bytes] = []

        def talk() -> Iterator[bytes]:
            for number in range(5):
                yield bytes((number,))
                answers.append(next(items).data)
            yield CHOICE + b"\x01"

        items = peer.channel(talk(), route="turns", session=turns, timeout=5)
        assert list(items) == []
        assert answers == [bytes((number + 1,)) for number in range(5)]


def test_limit_stream_checks_its_own_channels() -> None:
    with (
        serving(Responder(), "limit+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri) as peer,
        pytest.raises(afflux.Unsupported, match="use open"),
    ):
        peer.channel([], session=SUM)
