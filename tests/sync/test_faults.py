"""The blocking client in other threads and processes, with connections that are lost, and when it cancels much."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

import afflux
import afflux.sync
from afflux import Limits
from afflux.protocols.rsocket.engine import Engine
from afflux.sync import Peer
from tests.sync.serving import ENDLESS, Counting, CountingSessions, serving
from tests.sync.test_verbs import stranger


@pytest.fixture
def uri() -> Iterator[str]:
    with serving(Counting()) as uri:
        yield uri


@pytest.fixture
def peer(uri: str) -> Iterator[Peer]:
    with afflux.sync.connect(uri) as peer:
        yield peer


def in_thread(work: Callable[[], object]) -> BaseException | None:
    """Do it in another thread: what it raises."""
    found: list[BaseException | None] = [None]

    def run() -> None:
        try:
            work()
        except BaseException as error:
            found[0] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return found[0]


def nothing_is_left(peer: Peer) -> None:
    for _ in range(1000):
        if peer.request(b"live").data == b"0":
            return
    raise AssertionError("a handler is still at work")


# -- threads -------------------------------------------------------------------------------------------------------


def test_two_threads_cannot_use_a_connection_together(peer: Peer) -> None:
    verbs: dict[str, Callable[[], object]] = {
        "request": lambda: peer.request(b"x"),
        "fire": lambda: peer.fire(b"x"),
        "push": lambda: peer.push(b"x"),
        "stream": lambda: next(peer.stream(b"1 1")),
        "channel": lambda: next(peer.channel([b"x"])),
        "close": peer.close,
    }

    def source() -> Iterator[bytes]:
        for name, verb in verbs.items():
            error = in_thread(verb)
            assert isinstance(error, afflux.LocalProtocolError), name
            assert "another thread is using this connection" in str(error)
            yield name.encode()

    assert [item.data.decode() for item in peer.channel(source())] == list(verbs)
    assert peer.request(b"x").data == b"x"


def test_one_thread_after_the_other_may_use_a_connection(peer: Peer) -> None:
    for _ in range(3):
        assert in_thread(lambda: peer.request(b"x")) is None
        assert peer.request(b"y").data == b"y"


def test_an_interrupt_is_not_deferred_by_another_thread(uri: str) -> None:
    """Nobody waits for what a thread beside the main one does."""

    def work() -> None:
        with afflux.sync.connect(uri) as peer:
            for _ in range(100):
                assert peer.request(b"x").data == b"x"

    assert in_thread(work) is None


def test_a_stream_that_another_thread_collects_is_canceled(peer: Peer) -> None:
    """The collector of garbage runs anywhere, also while a verb is at work here."""

    class Ring:
        def __init__(self, stream: object) -> None:
            self.stream = stream
            self.ring = self

    def source() -> Iterator[bytes]:
        ring = Ring(peer.stream(b"%d 10" % ENDLESS))
        next(ring.stream)  # type: ignore[call-overload]
        gone = weakref.ref(ring)
        yield b"1"
        ring.ring = None  # type: ignore[assignment]
        held.append(ring)
        del ring
        assert in_thread(held.clear) is None
        assert gone() is None
        yield b"2"

    held: list[Ring] = []
    assert len(list(peer.channel(source()))) == 2
    nothing_is_left(peer)


def test_a_stream_that_is_collected_in_the_middle_of_the_engine_is_canceled_later(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage may be collected at any moment."""
    held = [peer.stream(b"%d 10" % ENDLESS)]
    next(held[0])
    receive, canceled, cancel = Engine.receive, [], Engine.cancel

    def collecting(self: Engine, data: bytes, now: float) -> object:
        if threading.current_thread() is threading.main_thread():
            held.clear()
            assert not canceled
        return receive(self, data, now)

    monkeypatch.setattr(Engine, "receive", collecting)
    monkeypatch.setattr(Engine, "cancel", lambda self, id: (canceled.append(id), cancel(self, id)))
    peer.request(b"x")
    assert canceled
    monkeypatch.undo()
    nothing_is_left(peer)


# -- processes -----------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> int:
    """Do it in a child: 0 if it was well."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_process_may_not_use_a_session() -> None:
    """What it says would go between the parent's words."""
    with (
        serving(CountingSessions(), "jmux+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri) as peer,
        peer.session(b"begin", timeout=5) as session,
    ):
        assert session.read() == b"begin"

        def child() -> None:
            for use in (lambda: session.write(b"x"), session.read, session.finish, session.acknowledge, peer.session):
                with pytest.raises(afflux.ConnectionClosed, match="connect again after a fork"):
                    use()
            session.abort()
            session.close()
            peer.close()

        assert in_child(child) == 0
        session.write(b"more")
        assert session.read() == b"more"
        session.finish()
        assert session.read_all() == b""


def test_a_child_process_that_a_source_makes_may_not_use_the_connection(peer: Peer) -> None:
    def child() -> None:
        with pytest.raises(afflux.ConnectionClosed, match="connect again after a fork"):
            peer.request(b"x")

    def source() -> Iterator[bytes]:
        yield b"%d" % in_child(child)

    assert [item.data for item in peer.channel(source())] == [b"0"]


# -- lost connections ----------------------------------------------------------------------------------------------


def hang_up(sock: socket.socket) -> None:
    """Read a little, and reset the connection."""
    sock.recv(1000)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


VERBS: dict[str, Callable[[Peer], object]] = {
    "request": lambda peer: peer.request(bytes(3_000_000)),
    "fire": lambda peer: [peer.fire(bytes(500_000)) for _ in range(100)],
    "stream": lambda peer: list(peer.stream(bytes(3_000_000))),
    "channel": lambda peer: list(peer.channel(bytes(500_000) for _ in range(100))),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_connection_that_is_lost_in_the_middle_of_a_write(verb: str) -> None:
    with stranger(hang_up) as uri:
        peer = afflux.sync.connect(uri)
        for _ in range(3):
            with pytest.raises(afflux.ConnectionClosed):
                VERBS[verb](peer)
        assert peer.closed
        peer.close()


def test_nothing_is_read_after_the_end() -> None:
    """A peer of another protocol goes on: its bytes are left to the system."""
    sent = []

    def http(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        sock.settimeout(0.1)
        try:
            while True:
                sent.append(sock.send(bytes(1 << 20)))
        except TimeoutError:
            pass

    with stranger(http) as uri:
        peer = afflux.sync.connect(uri)
        for _ in range(100):
            with pytest.raises(afflux.Error):
                peer.request(b"x")
            with pytest.raises(afflux.Error):
                list(peer.stream(b"x"))
        until = time.monotonic() + 30
        while time.monotonic() < until and len(sent) < 2:
            time.sleep(0)
        peer.close()
    assert sum(sent) < 64 << 20


def test_items_that_came_before_the_end_may_still_be_taken(uri: str) -> None:
    peer = afflux.sync.connect(uri)
    stream = peer.stream(b"200 10", credit=200)
    assert len(next(stream)) == 10
    while peer.request(b"live").data != b"0":
        pass
    peer.close()
    assert len(list(stream)) == 199


class Bug(BaseException):
    """What an engine must not raise."""


def test_an_engine_that_breaks_down_ends_the_connection(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what has come is done: nothing more can be right."""
    with afflux.sync.connect(uri) as peer:
        peer.request(b"x")
        stream = peer.stream(b"%d 1" % ENDLESS)
        next(stream)

        receive = Engine.receive

        def break_down(self: Engine, data: bytes, now: float) -> object:
            if threading.current_thread() is threading.main_thread():
                raise Bug
            return receive(self, data, now)

        monkeypatch.setattr(Engine, "receive", break_down)
        with pytest.raises(Bug):
            peer.request(b"y")
        monkeypatch.undo()
        for _ in range(2):
            with pytest.raises(afflux.ConnectionClosed, match="interrupted its engine"):
                peer.request(b"y")
            with pytest.raises(afflux.ConnectionClosed):
                list(stream)


def test_leaving_a_stream_of_a_closed_connection_writes_nothing(uri: str) -> None:
    """Its descriptor may be someone else's by then."""
    peer = afflux.sync.connect(uri)
    stream = peer.stream(b"1000 10", credit=64)
    next(stream)
    peer.close()
    with pytest.raises(afflux.ConnectionClosed):
        list(stream)
    stream.close()
    stream.request(5)


# -- cancels -------------------------------------------------------------------------------------------------------


def test_two_thousand_streams_that_are_canceled_in_a_row() -> None:
    """Endless ones, of which five items are taken, at the default limits of both sides."""
    with serving(Counting(), limits=Limits.server()) as uri, afflux.sync.connect(uri) as peer:
        for _ in range(2000):
            for i, _ in enumerate(peer.stream(b"%d 10" % ENDLESS)):
                if i == 4:
                    break
        nothing_is_left(peer)


@pytest.mark.parametrize("wire", ["rsocket", "reactivesocket", "rsio", "jmux"])
def test_the_client_waits_before_it_would_be_refused(wire: str) -> None:
    """A peer that takes 30 cancels, and 200 a second: 90 take 0.3 s at least, and all go well."""
    limits = Limits.server(cancel_bucket=(30, 200))
    handler = CountingSessions() if wire == "jmux" else Counting()

    def canceled(peer: Peer) -> None:
        if wire == "jmux":
            with peer.session(b"x") as session:
                assert session.read() == b"x"
        else:
            with peer.stream(b"%d 10" % ENDLESS) as items:
                next(items)

    with (
        serving(handler, f"{wire}+tcp://127.0.0.1:0", limits=limits) as uri,
        afflux.sync.connect(uri, limits=limits) as peer,
    ):
        begin = time.monotonic()
        for _ in range(90):
            canceled(peer)
        assert time.monotonic() - begin > 0.25
        assert not peer.closed


def test_many_streams_that_are_canceled_together_are_paced(uri: str) -> None:
    """As many as are open could be canceled at once."""
    limits = Limits.server(cancel_bucket=(100, 500))
    with serving(Counting(), limits=limits) as uri, afflux.sync.connect(uri, limits=limits) as peer:
        for _ in range(5):
            streams = [peer.stream(b"%d 10" % ENDLESS, credit=2) for _ in range(25)]
            for stream in streams:
                next(stream)
            for stream in streams:
                stream.cancel()
        nothing_is_left(peer)


def test_requests_that_time_out_are_paced() -> None:
    limits = Limits.server(cancel_bucket=(40, 1000))
    with serving(Counting(), limits=limits) as uri, afflux.sync.connect(uri, limits=limits) as peer:
        for _ in range(200):
            with pytest.raises(TimeoutError):
                peer.request(b"wait", timeout=0.001)
        while True:
            try:
                assert peer.request(b"x", timeout=5).data == b"x"
                break
            except TimeoutError:
                pass
        nothing_is_left(peer)


def test_pacing_ends_with_the_timeout() -> None:
    """Nothing was sent: the stream may be tried again."""
    limits = Limits.server(cancel_bucket=(1, 0))
    client = Limits.server(cancel_bucket=(1, 1))
    with serving(Counting(), limits=limits) as uri, afflux.sync.connect(uri, limits=client) as peer:
        with pytest.raises(TimeoutError):
            peer.request(b"wait", timeout=0.01)
        with pytest.raises(TimeoutError, match="too many streams were canceled"):
            peer.request(b"x", timeout=0.01)
        stream = peer.stream(b"3 1", timeout=0.01)
        with pytest.raises(TimeoutError, match="too many streams were canceled"):
            list(stream)
        peer.fire(b"x")
        assert peer.request(b"x", timeout=10).data == b"x"
        assert not peer.closed
