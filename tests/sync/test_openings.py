"""Streams, channels and sessions of the blocking client whose opening fails, and what becomes of them."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import FixedLease, Limits
from afflux.sync import ItemStream, Peer
from tests.sync.serving import Counting, CountingSessions, serving


def opened(kind: str, peer: Peer) -> ItemStream:
    if kind == "stream":
        return peer.stream(b"3 1", timeout=5)
    if kind == "by hand":
        return peer.stream(b"3 1", credit=0, timeout=5)
    return peer.channel(iter([b"1", b"2", b"3"]), timeout=5)


USES: dict[str, Callable[[ItemStream], object]] = {
    "next": next,
    "list": list,
    "blocks": lambda stream: list(stream.blocks()),
    "request": lambda stream: stream.request(3),
}
kinds = pytest.mark.parametrize("kind", ["stream", "by hand", "channel"])
uses = pytest.mark.parametrize("use", [use for use in USES if use != "request"])


class Granting(Counting):
    """It grants a lease for five requests when it is told to."""

    async def push(self, metadata: bytes) -> None:
        afflux.current_peer().grant(5, 600.0)


@pytest.fixture
def spent() -> Iterator[Peer]:
    """A peer whose lease is used up."""
    with (
        serving(Granting(), lease=FixedLease(1, 600.0)) as uri,
        afflux.sync.connect(uri, lease=True) as peer,
    ):
        peer.request(b"")
        yield peer


@kinds
@uses
def test_a_stream_without_a_lease_fails_each_time(kind: str, use: str, spent: Peer) -> None:
    stream = opened(kind, spent)
    if kind == "by hand":
        with pytest.raises(afflux.LeaseExpired):
            stream.request(3)
    for _ in range(3):
        with pytest.raises(afflux.LeaseExpired):
            USES[use](stream)
    stream.cancel()
    assert list(stream) == []


@kinds
@pytest.mark.parametrize("use", ["next", "list"])
def test_a_stream_that_had_no_lease_opens_when_there_is_one(kind: str, use: str, spent: Peer) -> None:
    """Each try reads what has come, and a lease may be among it."""
    stream = opened(kind, spent)
    with pytest.raises(afflux.LeaseExpired):
        stream.request(1) if kind == "by hand" else USES[use](stream)
    assert stream.id is None
    spent.push(b"grant")
    if kind == "by hand":
        until_there_is_a_lease(lambda: stream.request(2))  # beside the one that was asked for before
    items = until_there_is_a_lease(lambda: USES[use](stream))
    assert len(items) == (1 if use == "next" else 3)  # type: ignore[arg-type]
    assert spent.request(b"x").data == b"x"


def until_there_is_a_lease(work: Callable[[], object]) -> object:
    while True:
        try:
            return work()
        except afflux.LeaseExpired:
            pass


@kinds
@uses
def test_a_stream_on_a_connection_that_is_over_fails_each_time(kind: str, use: str) -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri)
        stream = opened(kind, peer)
        peer.close()
        for _ in range(3):
            with pytest.raises(afflux.ConnectionClosed) as caught:
                USES[use](stream)
            assert not caught.value.may_have_been_processed


@uses
def test_a_source_that_fails_at_its_first_item_fails_each_time(use: str) -> None:
    def source() -> Iterator[bytes]:
        raise KeyError("mine")
        yield b"never"

    with serving(Counting()) as uri, afflux.sync.connect(uri) as peer:
        channel = peer.channel(source(), timeout=5)
        for _ in range(3):
            with pytest.raises(KeyError, match="mine"):
                USES[use](channel)
        assert peer.request(b"x").data == b"x"


@kinds
def test_a_stream_that_was_canceled_before_its_first_use_is_empty(kind: str) -> None:
    with serving(Counting()) as uri, afflux.sync.connect(uri) as peer:
        stream = opened(kind, peer)
        stream.cancel()
        assert list(stream) == list(stream.blocks()) == []
        assert stream.limited_by() == "ended"
        with pytest.raises(StopIteration):
            next(stream)
        with opened(kind, peer) as stream:
            pass
        assert list(stream) == []


def test_a_session_that_does_not_fit_leaves_room_for_others() -> None:
    with (
        serving(CountingSessions(), "jmux+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri, limits=Limits.server(sessions=2, streams=2)) as peer,
    ):
        with peer.session(b"1", timeout=5) as one, peer.session(b"2", timeout=5) as two:
            for _ in range(3):
                with pytest.raises(afflux.LimitExceeded):
                    peer.session(b"3", timeout=5)
            assert one.read() + two.read() == b"12"
            one.finish()
            assert one.read() == b""
            assert peer.request(b"x", timeout=5).data == b"x"


def test_a_session_whose_first_bytes_do_not_go_is_given_up() -> None:
    """It would keep its id."""
    with (
        serving(CountingSessions(), "jmux+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri, limits=Limits.server(sessions=1)) as peer,
    ):
        for _ in range(3):
            with pytest.raises(TypeError):
                peer.session([b"no", b"bytes"], finish=True, timeout=5)  # type: ignore[arg-type]
        assert peer.request(b"x", timeout=5).data == b"x"


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"a": 1}, 7, print])
def test_what_is_no_source_of_items(wrong: Any) -> None:
    """Text would be sent letter by letter."""
    with (
        serving(Counting()) as uri,
        afflux.sync.connect(uri) as peer,
        pytest.raises(TypeError, match="items come from a generator or a list, not from"),
    ):
        list(peer.channel(wrong))


def test_a_grant_by_hand_beside_the_largest_window() -> None:
    """One frame carries no more than 2^31-1."""
    with serving(Counting()) as uri, afflux.sync.connect(uri) as peer:
        stream = peer.stream(b"3 1", credit=0x7FFFFFFF)
        stream.request(0x7FFFFFFF)
        assert len(list(stream)) == 3
