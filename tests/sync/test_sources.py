"""Channels of the blocking client whose sources use connections themselves, fail, or are left behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

import afflux
import afflux.sync
from afflux import Limits
from afflux.sync import Peer
from tests.sync.serving import ENDLESS, Counting, serving

wires = pytest.mark.parametrize("wire", ["rsocket", "reactivesocket"])
credits = pytest.mark.parametrize("credit", [1, 3, 256])


@pytest.fixture
def wire() -> str:
    return "rsocket"


@pytest.fixture
def uri(wire: str) -> Iterator[str]:
    with serving(Counting(), f"{wire}+tcp://127.0.0.1:0") as uri:
        yield uri


@pytest.fixture
def peer(uri: str) -> Iterator[Peer]:
    with afflux.sync.connect(uri) as peer:
        yield peer


def taken(peer: Peer) -> int:
    return int(peer.request(b"taken").data)


def nothing_is_left(peer: Peer) -> None:
    for _ in range(1000):
        if peer.request(b"live").data == b"0":
            return
    raise AssertionError("a handler is still at work")


@wires
@credits
def test_a_source_may_make_requests(credit: int, peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        for i in range(50):
            yield peer.request(b"%d" % i, timeout=30).data

    assert [item.data for item in peer.channel(source(), credit=credit)] == [b"%d" % i for i in range(50)]
    nothing_is_left(peer)


@credits
def test_a_source_may_hand_on_a_stream(credit: int, peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        for item in peer.stream(b"700 10", credit=7):
            yield item.data

    assert [item.data for item in peer.channel(source(), credit=credit)] == [bytes(10)] * 700
    nothing_is_left(peer)


def test_a_source_may_be_a_channel(peer: Peer) -> None:
    """Of the same peer, three deep."""

    def through(items: Iterator[bytes]) -> Iterator[bytes]:
        for item in peer.channel(items, credit=5):
            yield item.data

    sent = [b"%d" % i for i in range(300)]
    assert list(through(through(through(iter(sent))))) == sent
    nothing_is_left(peer)


def test_a_source_may_use_every_verb(peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        for i in range(20):
            peer.fire(b"x")
            peer.push(b"x")
            yield b"%d" % i
            assert len(list(peer.stream(b"10 1"))) == 10

    assert len(list(peer.channel(source()))) == 20


def test_sources_of_two_channels_use_each_others_peers(uri: str) -> None:
    """Both channels are fed while one of the two waits."""
    with afflux.sync.connect(uri) as one, afflux.sync.connect(uri) as two:

        def source(other: Peer) -> Iterator[bytes]:
            for i in range(100):
                yield other.request(b"%d" % i, timeout=30).data

        expected = [b"%d" % i for i in range(100)]
        first, second = one.channel(source(two), credit=3), two.channel(source(one), credit=3)
        got = list(zip(first, second, strict=True))
        assert [(a.data, b.data) for a, b in got] == list(zip(expected, expected, strict=True))


def test_what_a_source_gave_leaves_before_it_waits(uri: str) -> None:
    """It asks over another connection whether the item has come."""
    with afflux.sync.connect(uri) as one, afflux.sync.connect(uri) as two:

        def source() -> Iterator[bytes]:
            for i in range(30):
                yield b"item"
                while taken(two) <= i:
                    pass

        assert len(list(one.channel(source()))) == 30


def test_two_sources_of_one_peer_make_requests(peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        for i in range(100):
            yield peer.request(b"%d" % i, timeout=30).data

    first, second = peer.channel(source(), credit=3), peer.channel(source(), credit=3)
    assert [a.data == b.data for a, b in zip(first, second, strict=True)] == [True] * 100


def test_a_source_may_make_a_request_for_its_first_item(peer: Peer) -> None:
    assert [i.data for i in peer.channel(peer.request(word).data for word in (b"1", b"2"))] == [b"1", b"2"]


def test_a_source_may_read_the_answers(peer: Peer) -> None:
    """It gives an item when the one before has come back."""
    seen: list[bytes] = []

    def source() -> Iterator[bytes]:
        yield b"0"
        for i in range(1, 10):
            seen.append(next(channel).data)
            yield b"%d" % i

    channel = peer.channel(source(), credit=0, timeout=30)
    channel.request(100)
    while len(seen) < 9:
        peer.request(b"x")
    assert seen == [b"%d" % i for i in range(9)]


def test_the_first_item_cannot_come_from_the_channel(peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        yield next(channel).data

    channel = peer.channel(source(), timeout=30)
    for _ in range(2):
        with pytest.raises(afflux.LocalProtocolError, match="first item"):
            next(channel)
    nothing_is_left(peer)


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_source_may_cancel_its_channel(at: int, peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        for i in range(100):
            if i == at:
                channel.cancel()
            yield b"%d" % i

    channel = peer.channel(source(), credit=1)
    assert len(list(channel)) <= at
    nothing_is_left(peer)


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_source_may_close_the_connection(at: int, peer: Peer) -> None:
    def source() -> Iterator[bytes]:
        for i in range(100):
            if i == at:
                peer.close()
            yield b"%d" % i

    channel = peer.channel(source(), credit=1)
    with pytest.raises(afflux.ConnectionClosed):
        list(channel)
    assert peer.closed


@wires
def test_a_source_is_left_when_iterating_ends(peer: Peer) -> None:
    """The peer has said enough: nothing more is sent, and its handler of the other half is not left waiting."""
    ended = []

    def source() -> Iterator[bytes]:
        try:
            yield b"enough"
            for _ in range(ENDLESS):
                yield b"more"
        finally:
            ended.append(True)

    assert [item.data for item in peer.channel(source())] == [b"enough"]
    assert ended == [True]
    before = taken(peer)
    for _ in range(10):
        assert taken(peer) == before
    nothing_is_left(peer)


@wires
def test_a_source_that_fails_after_the_peer_has_ended_its_half(peer: Peer) -> None:
    """The peer is told all the same."""

    def source() -> Iterator[bytes]:
        yield b"enough"
        peer.request(b"x")
        raise KeyError("mine")

    channel = peer.channel(source())
    assert next(channel).data == b"enough"
    for _ in range(20):
        peer.request(b"x")
    channel.close()
    nothing_is_left(peer)


def test_the_last_words_of_a_source_may_use_the_connection(peer: Peer) -> None:
    """A generator's ``finally`` runs when the peer cancels, but not in the middle of the news about it."""
    answers = []

    def source() -> Iterator[bytes]:
        try:
            for _ in range(ENDLESS):
                yield b"item"
        finally:
            answers.append(peer.request(b"last words").data)

    for _ in range(3):
        channel = peer.channel(source(), credit=2)
        assert next(channel).data == b"item"
        channel.cancel()
    with pytest.raises(KeyError):
        for _ in peer.channel(source()):
            raise KeyError
    gc.collect()
    assert answers == [b"last words"] * 4
    nothing_is_left(peer)


@pytest.mark.parametrize("way", ["break", "close", "del", "timeout", "exception", "blocks"])
def test_what_is_left_early_leaves_nothing(way: str, uri: str) -> None:
    """Items that have come and were not taken give their budget back, those in hand among them: 20 KB in each of 200
    streams, in 256 KiB."""
    limits = Limits.tiny(cancel_bucket=(1_000_000, 1_000_000))
    with afflux.sync.connect(uri, limits=limits) as peer:
        for _ in range(200):
            WAYS[way](peer)
        assert len(peer.request(b"give 50000", timeout=30)) == 50_000
        nothing_is_left(peer)


def left_by_break(peer: Peer) -> None:
    for _ in peer.stream(b"%d 10000" % ENDLESS, credit=4):
        break


def left_by_close(peer: Peer) -> None:
    stream = peer.stream(b"%d 10000" % ENDLESS, credit=4)
    next(stream)
    stream.close()


def left_by_del(peer: Peer) -> None:
    next(peer.stream(b"%d 10000" % ENDLESS, credit=4))


def left_by_timeout(peer: Peer) -> None:
    stream = peer.stream(b"%d 10000" % ENDLESS, credit=0, timeout=0)
    stream.request(1)
    with pytest.raises(TimeoutError):
        for _ in stream:
            pass


def left_by_exception(peer: Peer) -> None:
    with pytest.raises(KeyError):
        for _ in peer.stream(b"%d 10000" % ENDLESS, credit=4):
            raise KeyError


def left_by_blocks(peer: Peer) -> None:
    for _ in peer.stream(b"%d 10000" % ENDLESS, credit=4).blocks():
        break


WAYS: dict[str, Callable[[Peer], None]] = {
    name.removeprefix("left_by_"): way for name, way in list(globals().items()) if name.startswith("left_by_")
}


def test_streams_that_are_not_taken_do_not_hang_the_others(uri: str) -> None:
    """Their items fill the connection, and no one else is there to take them."""
    with afflux.sync.connect(uri, limits=Limits.tiny()) as peer:
        streams = [peer.stream(b"1000 5000", credit=64) for _ in range(3)]
        with pytest.raises(afflux.LimitExceeded, match="buffer-full"):
            for stream in streams:
                next(stream)
        for stream in streams:
            stream.close()
        assert len(peer.request(b"give 1000")) == 1000
        nothing_is_left(peer)


def test_many_streams_side_by_side_share_the_connection(uri: str) -> None:
    """Windows get smaller with what items weigh and with the number of streams."""
    with afflux.sync.connect(uri, limits=Limits.tiny(streams=64)) as peer:
        streams = [peer.stream(b"200 2000", credit=8) for _ in range(12)]
        for stream in streams:
            next(stream)
        for stream in reversed(streams):
            assert len(list(stream)) == 199
        nothing_is_left(peer)


def test_a_source_that_forgets_to_call(peer: Peer) -> None:
    with pytest.raises(TypeError, match=r"^a payload is bytes, text or afflux\.Payload, not function: call it$"):
        list(peer.channel([b"1", lambda: b"2"]))  # type: ignore[list-item]  # the mistake under test
    nothing_is_left(peer)
