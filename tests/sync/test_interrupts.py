"""Exceptions out of handlers of signals, such as that of Ctrl-C: the connection goes on, and nothing is left over."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Limits
from afflux.transports import tcp
from afflux.transports.base import Link
from tests.sync.serving import ENDLESS, Counting, CountingSessions, serving
from tests.sync.test_sessions import LIMITS as RESUMING
from tests.sync.test_sessions import SOON, served

SMALL = Limits.tiny(cancel_bucket=(1_000_000, 1_000_000), ping_s=30, write_stall_s=30)
"256 KiB for all that waits here: what is left over from nine verbs is too much."
PART = 30_000

Verb = Callable[[afflux.sync.Peer], object]


def request(peer: afflux.sync.Peer) -> None:
    assert len(peer.request(b"give %d" % PART)) == PART


def large_request(peer: afflux.sync.Peer) -> None:
    assert len(peer.request(bytes(PART))) == PART


def fire(peer: afflux.sync.Peer) -> None:
    peer.fire(bytes(100))


def push(peer: afflux.sync.Peer) -> None:
    peer.push(bytes(100))


def stream(peer: afflux.sync.Peer) -> None:
    for i, _ in enumerate(peer.stream(b"%d 1000" % ENDLESS, credit=8)):
        if i == 10:
            break


def one_item(peer: afflux.sync.Peer) -> None:
    with peer.stream(b"%d 1000" % ENDLESS, credit=0) as items:
        items.request(3)
        next(items)


def whole_stream(peer: afflux.sync.Peer) -> None:
    assert sum(map(len, peer.stream(b"100 500"))) == 50_000


def blocks(peer: afflux.sync.Peer) -> None:
    for _ in peer.stream(b"%d 1000" % ENDLESS, credit=16).blocks():
        break


def channel(peer: afflux.sync.Peer) -> None:
    for i, _ in enumerate(peer.channel((bytes(1000) for _ in range(ENDLESS)), credit=8)):
        if i == 10:
            break


def session(peer: afflux.sync.Peer) -> None:
    with peer.session(bytes(1000)) as session:
        session.write(bytes(1000))
        got = 0
        while got < 2000:
            got += len(session.read())
        session.finish()
        assert session.read_all() == b""


def session_left(peer: afflux.sync.Peer) -> None:
    peer.session(bytes(5000)).read(1)


RSOCKET = [request, large_request, fire, push, stream, one_item, whole_stream, blocks, channel]
WIRES: list[tuple[str, Verb]] = [
    *(("rsocket", verb) for verb in RSOCKET),
    *(("reactivesocket", verb) for verb in (request, stream, blocks, channel)),
    *(("jmux", verb) for verb in (request, large_request, session, session_left)),
]
each = pytest.mark.parametrize(("wire", "verb"), WIRES, ids=lambda value: getattr(value, "__name__", value))
each_but_del = pytest.mark.parametrize(
    ("wire", "verb"), WIRES[:-1], ids=lambda value: getattr(value, "__name__", value)
)
"Python begins ``__del__`` once: what interrupts its first line has its way."


class Telling(Counting):
    """It tells when a handler begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)

    def begin(self) -> None:
        super().begin()
        self.begun.release()


class Interrupted(Exception):
    """What a handler of a signal raises."""


def is_usable(peer: afflux.sync.Peer) -> None:
    """Requests work, and no handler of the server is at work for a verb that was interrupted."""
    assert not peer.closed
    for _ in range(1000):
        if peer.request(b"live", timeout=30).data == b"0":
            return
    raise AssertionError("a handler is still at work")


@pytest.fixture
def connected(wire: str) -> Iterator[afflux.sync.Peer]:
    handler = CountingSessions() if wire == "jmux" else Counting()
    with (
        serving(handler, f"{wire}+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri, limits=SMALL) as peer,
    ):
        yield peer


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was raised where Python cannot raise it: a loop that is left closes its generator."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: found.append(what.exc_type))
    return found


class BreakingLink:
    """A link of which one call raises."""

    def __init__(self, link: Link, countdown: list[int]) -> None:
        self._link = link
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def send(self, data: memoryview) -> int:
        self._count()
        return self._link.send(data)

    def recv(self, size: int) -> bytes:
        self._count()
        return self._link.recv(size)

    def flush(self) -> None:
        self._count()
        self._link.flush()

    def _count(self) -> None:
        self._countdown[0] -= 1
        if not self._countdown[0]:
            raise KeyboardInterrupt


@each
def test_any_call_of_a_link_may_be_interrupted(
    wire: str, verb: Verb, monkeypatch: pytest.MonkeyPatch, unraisable: list[Any]
) -> None:
    countdown = [0]
    dial = tcp.Tcp.dial

    def broken(self: tcp.Tcp, *arguments: Any) -> Any:
        return BreakingLink(dial(self, *arguments), countdown)

    monkeypatch.setattr(tcp.Tcp, "dial", broken)
    handler = CountingSessions() if wire == "jmux" else Counting()
    with (
        serving(handler, f"{wire}+tcp://127.0.0.1:0") as uri,
        afflux.sync.connect(uri, limits=SMALL) as peer,
    ):
        verb(peer)
        for at in range(1, 200):
            countdown[0] = at
            try:
                verb(peer)
            except KeyboardInterrupt:
                pass
            if countdown[0] > 0:
                break
            is_usable(peer)
        else:
            raise AssertionError("it never ends")
        countdown[0] = 0
    assert set(unraisable) <= {KeyboardInterrupt}


def interrupted_at(line: int, work: Callable[[], object], number: int) -> bool:
    """Do it; before that line of afflux, counted as they come, a signal arrives. Whether there was one."""
    left = line

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if "/afflux/" not in name:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                signal.raise_signal(number)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return left <= 0


@each_but_del
def test_a_signal_may_come_at_any_line(
    wire: str, verb: Verb, connected: afflux.sync.Peer, unraisable: list[Any]
) -> None:
    """Every line at first, later fewer: loops come by the same ones again."""
    peer, before = connected, signal.getsignal(signal.SIGINT)
    verb(peer)
    line, come = 0, True
    while come:
        line += 1 + line // 100
        try:
            come = interrupted_at(line, lambda: verb(peer), signal.SIGINT)
        except KeyboardInterrupt:
            pass
        else:
            assert not come or unraisable == [KeyboardInterrupt], f"at line {line}: swallowed"
        unraisable.clear()
        assert signal.getsignal(signal.SIGINT) is before
        is_usable(peer)


def test_ctrl_c_in_a_process() -> None:
    """A real SIGINT while a request waits for an answer that the server has begun to make."""
    code = """
import sys
import afflux.sync

with afflux.sync.connect(sys.argv[1]) as peer:
    for _ in range(5):
        try:
            peer.request(b"wait")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    for _ in range(20):
        assert len(peer.request(b"give 1000000").data) == 1_000_000
    assert peer.request(b"live").data == b"0"
print("done")
"""
    server = Telling()
    with serving(server) as uri:
        with subprocess.Popen([sys.executable, "-c", code, uri], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(5):
                assert server.begun.acquire(timeout=30)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
            assert process.stdout.readline() == "done\n"
        assert process.returncode == 0


def test_a_request_that_times_out_leaves_nothing(connected_to_rsocket: afflux.sync.Peer) -> None:
    """Late answers take no budget: 64 of them would be eight times what a connection may hold."""
    peer = connected_to_rsocket
    for _ in range(64):
        try:
            peer.request(b"give %d" % PART, timeout=0)
        except TimeoutError:
            pass
    for _ in range(64):
        assert len(peer.request(b"give %d" % PART)) == PART
    is_usable(peer)


@pytest.fixture
def connected_to_rsocket() -> Iterator[afflux.sync.Peer]:
    with serving(Counting()) as uri, afflux.sync.connect(uri, limits=SMALL) as peer:
        yield peer


def test_any_handler_of_a_signal_may_raise(
    connected_to_rsocket: afflux.sync.Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(number: int, frame: object) -> None:
        raise Interrupted

    peer, before = connected_to_rsocket, signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, handler)
    try:
        for line in range(1, 300, 3):
            come = True
            try:
                come = interrupted_at(line, lambda: request(peer), signal.SIGUSR1)
            except Interrupted:
                pass
            else:
                assert not come
            assert signal.getsignal(signal.SIGUSR1) is handler
            is_usable(peer)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_does_not_raise_disturbs_nothing(connected_to_rsocket: afflux.sync.Peer) -> None:
    peer, seen, before = connected_to_rsocket, [], signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        for line in range(1, 300, 3):
            interrupted_at(line, lambda: request(peer), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert set(seen) == {signal.SIGUSR1}
    assert len(seen) > 50


@contextmanager
def handling(work: Callable[[], object], entered: threading.Semaphore, times: int = 1) -> Iterator[None]:
    """Each time that a handler of the server is entered, this thread does ``work`` in a handler of a signal."""
    before, main = signal.getsignal(signal.SIGUSR1), threading.get_ident()

    def send() -> None:
        for _ in range(times):
            assert entered.acquire(timeout=30)
            signal.pthread_kill(main, signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, lambda number, frame: work())
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_may_close_the_connection() -> None:
    """As a program does that is told to end while it waits."""
    server = Telling()
    with serving(server) as uri:
        peer = afflux.sync.connect(uri)
        with handling(peer.close, server.begun), pytest.raises(afflux.ConnectionClosed):
            peer.request(b"wait")
        assert peer.closed


def test_a_handler_may_use_the_connection() -> None:
    """It does so in the middle of a poll, and may read what that waits for."""

    class Late(Telling):
        async def request(self, payload: afflux.Payload) -> bytes:
            if payload.data == b"go":
                self.go.set()
                return b"gone"
            self.go = asyncio.Event()
            self.begin()
            self.live -= 1
            await self.go.wait()
            return b"at last"

    server, seen = Late(), []
    with (
        serving(server) as uri,
        afflux.sync.connect(uri) as peer,
        handling(lambda: seen.append(peer.request(b"go").data), server.begun, 5),
    ):
        for _ in range(5):
            assert peer.request(b"x", timeout=30).data == b"at last"
        assert seen == [b"gone"] * 5


def test_the_program_has_its_handlers_back(connected_to_rsocket: afflux.sync.Peer) -> None:
    peer, before = connected_to_rsocket, signal.getsignal(signal.SIGINT)
    inside = []

    def source() -> Iterator[bytes]:
        yield b"first"
        inside.append(signal.getsignal(signal.SIGINT))
        yield b"enough"

    assert len(list(peer.channel(source()))) == 2
    assert inside[0] is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(TimeoutError):
        peer.request(b"wait", timeout=0.01)
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, inside[0])  # a program that puts back what it has found in a source
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, inside[0])
        request(peer)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_source_may_be_interrupted(connected_to_rsocket: afflux.sync.Peer) -> None:
    """The peer hears that its channel is over, whatever verb was waiting."""
    peer = connected_to_rsocket

    def source() -> Iterator[bytes]:
        yield b"first"
        yield b"second"
        signal.raise_signal(signal.SIGINT)
        yield b"never"

    for first_of_all in (True, False):
        channel = peer.channel(source())
        assert first_of_all or next(channel).data == b"first"
        with pytest.raises(KeyboardInterrupt):
            list(channel) if first_of_all else request(peer)
        with pytest.raises(afflux.Canceled, match="interrupted"):
            list(channel)
        is_usable(peer)


def test_a_source_may_be_interrupted_before_its_first_item(connected_to_rsocket: afflux.sync.Peer) -> None:
    def source() -> Iterator[bytes]:
        signal.raise_signal(signal.SIGINT)
        yield b"never"

    channel = connected_to_rsocket.channel(source())
    with pytest.raises(KeyboardInterrupt):
        next(channel)
    for _ in range(2):
        with pytest.raises(afflux.Canceled, match="interrupted"):
            next(channel)
    is_usable(connected_to_rsocket)


def test_a_close_may_be_interrupted_anywhere(unraisable: list[Any]) -> None:
    """Either it has not begun, or the connection is closed."""
    with serving(Counting()) as uri:
        line, come = 0, True
        while come:
            line += 1 + line // 20
            peer = afflux.sync.connect(uri, limits=SMALL)
            request(peer)
            try:
                come = interrupted_at(line, peer.close, signal.SIGINT)
            except KeyboardInterrupt:
                pass
            else:
                assert not come
            if not peer.closed:
                request(peer)
            peer.close()
            assert peer.closed
    assert unraisable == []


INSIDE = """
import afflux.sync
with afflux.sync.connect({uri!r}) as peer:
    for _ in range(3):
        assert peer.request(b"x").data == b"x"
"""


def test_another_interpreter_has_no_signals() -> None:
    """Handlers cannot be set there."""
    interpreters = pytest.importorskip("_xxsubinterpreters", reason="it has another name here")
    with serving(Counting()) as uri:
        code = f"import sys; sys.path[:] = {sys.path!r}\n" + INSIDE.format(uri=uri)
        runs = "import sys, _xxsubinterpreters as i; i.run_string(i.create(), sys.argv[1])"
        process = subprocess.run([sys.executable, "-c", runs, code], capture_output=True, text=True, check=False)
    assert interpreters and process.returncode == 0, process.stderr


def test_a_signal_may_come_while_a_session_comes_back(unraisable: list[Any]) -> None:
    """The link is cut every few hundred bytes, and signals come at lines all over the way back."""
    large = bytes(range(256)) * 4
    with (
        served((900, 1500), resume=True) as (uri, (_, proxy)),
        afflux.sync.connect(uri, resume=SOON, limits=RESUMING, mtu=128) as peer,
    ):
        for line in range(1, 700, 31):
            come = True
            try:
                come = interrupted_at(line, lambda: peer.request(large, timeout=30), signal.SIGINT)
            except KeyboardInterrupt:
                pass
            else:
                assert not come
            assert peer.request(large, timeout=30).data == large
        assert [int(item.data) for item in peer.stream(b"30", credit=8)] == list(range(30))
        assert proxy.connections > 5
    # Connecting is not guarded: a socket that a signal leaves half made is closed by Python, which warns.
    assert set(unraisable) <= {ResourceWarning}
