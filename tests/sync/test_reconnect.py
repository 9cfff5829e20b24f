"""A blocking client whose connection has ended makes another when it is called; what it does not have has a reason."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Backoff
from afflux.sync.redial import renewed
from tests.sync.serving import Counting, CountingSessions, serving

FAST = Backoff(first=0.0, most=0.0, jitter=0.0, patience=10.0)


def test_a_call_after_the_end_makes_another_connection() -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri, reconnect=FAST)
        assert peer.request(b"one", timeout=10).data == b"one"
    with serving(Counting(), uri), peer:
        assert peer.request(b"two", timeout=10).data == b"two"
        assert not peer.closed
        assert len(list(peer.stream(b"3 1", timeout=10))) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda peer: list(peer.stream(b"3 1", timeout=10)),
        lambda peer: list(peer.channel([b"a", b"enough"], timeout=10)),
        lambda peer: peer.fire(b"x", timeout=10),
        lambda peer: peer.push(b"x", timeout=10),
        lambda peer: peer.extend(7, b"x", timeout=10),
    ],
    ids=["stream", "channel", "fire", "push", "extend"],
)
def test_each_call_does(call: Any) -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri, reconnect=FAST)
        peer.request(b"one", timeout=10)
    with serving(Counting(), uri), peer:
        call(peer)
        assert peer.request(b"two", timeout=10).data == b"two"


def test_sessions_of_bytes_do() -> None:
    with serving(CountingSessions(), "jmux+tcp://127.0.0.1:0") as uri:
        peer = afflux.sync.connect(uri, reconnect=FAST)
        peer.request(b"one", timeout=10)
    with serving(CountingSessions(), uri), peer:
        with peer.session(b"live", finish=True, timeout=10) as session:
            assert session.read() == b"0"


def test_what_a_peer_tells_makes_no_connection() -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri, reconnect=FAST)
        items = peer.stream(b"1000 1", credit=1)
        next(items)
    with pytest.raises(afflux.ConnectionClosed):
        list(items)
    assert peer.closed
    with serving(Counting(), uri), peer:
        assert (peer.closed, peer.suspended, peer.streams(), peer.lease) == (True, False, [], None)
        assert repr(peer).endswith(" closed>")
        assert peer.request(b"two", timeout=10).data == b"two"
        assert not peer.closed


def test_a_closed_peer_stays_closed() -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri, reconnect=FAST)
        peer.close()
        with pytest.raises(afflux.ConnectionClosed):
            peer.request(b"one")
        with afflux.sync.connect(uri) as plain:
            assert plain.request(b"one", timeout=10).data == b"one"


def test_without_reconnect_a_connection_that_is_over_stays_so() -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri)
    with serving(Counting(), uri), peer:
        for _ in range(2):
            with pytest.raises(afflux.ConnectionClosed):
                peer.request(b"one", timeout=10)


def test_a_session_that_is_over_is_followed_by_another() -> None:
    with serving(Counting(), resume=True) as uri:
        peer = afflux.sync.connect(uri, reconnect=FAST, resume=FAST, limits=afflux.Limits.server(resume_s=0.5))
        peer.request(b"one", timeout=10)
    with serving(Counting(), uri, resume=True), peer:
        answers = []
        while not answers:  # the session is refused by the new server, before a request or during it
            with contextlib.suppress(afflux.SetupRefused, afflux.ConnectionClosed):
                answers.append(peer.request(b"two", timeout=10).data)
        assert answers == [b"two"]


def test_a_child_process_makes_no_connection_of_its_parent() -> None:
    with serving(Counting()) as uri, afflux.sync.connect(uri, reconnect=FAST) as peer:
        child = os.fork()
        if not child:
            try:
                peer.request(b"one", timeout=10)
            except afflux.ConnectionClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_when_no_server_comes_back_nothing_was_sent() -> None:
    with serving(Counting()) as uri:
        peer = afflux.sync.connect(uri, reconnect=Backoff(first=0.0, tries=2, patience=10.0))
    with pytest.raises(afflux.ConnectFailed, match=r"did not come back within 10 s: .*refused") as caught:
        peer.request(b"one", timeout=10)
    assert caught.value.may_have_been_processed is False


def test_tries_end_with_the_patience() -> None:
    times: list[float] = []

    def fails(seconds: float) -> None:
        times.append(seconds)
        raise afflux.ConnectFailed("nobody there")

    with pytest.raises(afflux.ConnectFailed, match="within 0 s: nobody there"):
        renewed(fails, Backoff(first=5.0, patience=0.0), 10.0)
    assert times == [0.05]


@pytest.mark.parametrize("name", ["handler", "store", "extensions"])
def test_what_it_does_not_have_has_a_reason(name: str) -> None:
    wanted: Any = {name: object()}
    text = f"afflux.sync.connect has no {name}=: nothing runs between two calls, and .*; use afflux.connect"
    with pytest.raises(afflux.Unsupported, match=text):
        afflux.sync.connect("tcp://127.0.0.1:1", **wanted)


def test_the_defaults_of_the_asyncio_client_may_be_given() -> None:
    defaults: Any = {"handler": None, "store": None, "extensions": None}
    with pytest.raises(afflux.ConnectFailed, match="nothing listens there"):
        afflux.sync.connect("tcp://127.0.0.1:1", **defaults)


def test_an_unknown_argument_is_a_type_error() -> None:
    wanted: Any = {"reconect": True}
    with pytest.raises(TypeError, match='has no argument "reconect"'):
        afflux.sync.connect("tcp://127.0.0.1:1", **wanted)
