"""The blocking client against a server in another process: verbs, credit, time, fork, and the end."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import afflux
import afflux.sync
from afflux import Limits, Payload
from afflux.core.events import Block, Items

SERVER = """
import asyncio, sys
import afflux
from afflux import ApplicationError, Payload

class Demo:
    made = 0
    fired = []
    canceled = 0
    async def request(self, payload):
        if payload.data == b"made": return b"%d" % self.made
        if payload.data == b"fired": return b"%d" % len(self.fired)
        if payload.data == b"canceled": return b"%d" % self.canceled
        if payload.data == b"fail": raise ApplicationError(0x301, "mine")
        if payload.data == b"wait": await asyncio.Event().wait()
        if payload.data == b"call": return await afflux.current_peer().request(b"")
        if payload.data == b"cut": afflux.current_peer().cut()
        return payload
    async def fire(self, payload): self.fired.append(payload)
    async def push(self, metadata): self.fired.append(metadata)
    async def stream(self, payload):
        words = payload.data.split()
        try:
            for i in range(int(words[0])):
                self.made += 1
                item = b"%d" % i
                yield Payload(item, b"m") if words[1:] == [b"meta"] else item * int(words[1]) if words[1:] else item
            if words[0] == b"3": raise ApplicationError(0x302, "after three")
            if words[0] == b"1": await asyncio.Event().wait()
        except GeneratorExit:
            self.canceled += 1
        except asyncio.CancelledError:
            self.canceled += 1
            raise
    async def channel(self, items):
        async for item in items: yield item.data

async def main():
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as server:
        print(server.uri, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.stdout.close()
    assert process.wait(10) == 0


@pytest.fixture
def peer(uri: str) -> Iterator[afflux.sync.Peer]:
    with afflux.sync.connect(uri) as peer:
        yield peer


def number(peer: afflux.sync.Peer, of: str) -> int:
    return int(peer.request(of).data)


def test_importing_it_starts_nothing() -> None:
    code = """
import sys, threading
import afflux, afflux.sync
assert threading.active_count() == 1
assert "asyncio" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_request(peer: afflux.sync.Peer) -> None:
    assert peer.request(b"ping") == Payload(b"ping")
    assert peer.request(Payload(b"d", b"m")) == Payload(b"d", b"m")
    assert afflux.route_of(peer.request(b"x", route="a.b")) == "a.b"
    large = bytes(range(256)) * 8192
    assert peer.request(large).data == large


def test_errors(peer: afflux.sync.Peer) -> None:
    with pytest.raises(afflux.ApplicationError, match="mine") as caught:
        peer.request(b"fail")
    assert caught.value.code == 0x301
    items = iter(peer.stream(b"3"))
    assert [next(items).data for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(afflux.ApplicationError, match="after three"):
        next(items)


def test_fire_and_push(peer: afflux.sync.Peer) -> None:
    before = number(peer, "fired")
    for _ in range(5):
        peer.fire(b"line")
    peer.push(b"about")
    while number(peer, "fired") < before + 6:
        pass  # a push is not in line with requests


@pytest.mark.parametrize("credit", [1, 2, 3, 64, 256, 0x7FFFFFFF])
def test_stream(peer: afflux.sync.Peer, credit: int) -> None:
    assert [item.data for item in peer.stream(b"2000", credit=credit)] == [b"%d" % i for i in range(2000)]
    assert list(peer.stream(b"0", credit=credit)) == []


def test_items_with_metadata(peer: afflux.sync.Peer) -> None:
    assert list(peer.stream(b"4 meta")) == [Payload(b"%d" % i, b"m") for i in range(4)]


def text_of(event: Block | Items) -> list[bytes]:
    if isinstance(event, Items):
        return [payload.data for payload in event.payloads]
    return [event.buffer[start:end] for start, end in zip(event.starts, event.ends, strict=True)]


@pytest.mark.parametrize("credit", [1, 10, 1000, 100_000])
def test_blocks(peer: afflux.sync.Peer, credit: int) -> None:
    events = list(peer.stream(b"5000 20", credit=credit).blocks())
    assert [text for event in events for text in text_of(event)] == [b"%d" % i * 20 for i in range(5000)]
    assert any(isinstance(event, Block) for event in events)


def test_leaving_blocks_early_cancels(peer: afflux.sync.Peer) -> None:
    before = number(peer, "canceled")
    for _ in peer.stream(b"100000000").blocks():
        break
    peer.request(b"")
    assert number(peer, "canceled") == before + 1


def test_a_producer_makes_no_more_than_was_granted(peer: afflux.sync.Peer) -> None:
    before = number(peer, "made")
    stream = peer.stream(b"100000", credit=10)
    assert next(stream).data == b"0"
    assert number(peer, "made") - before == 11  # one ahead
    assert stream.limited_by() in ("application", "peer")
    stream.cancel()
    assert list(stream) == []
    assert stream.limited_by() == "ended"


def test_grants_by_hand(peer: afflux.sync.Peer) -> None:
    before = number(peer, "made")
    stream = peer.stream(b"100", credit=0)
    assert (stream.id, stream.limited_by()) == (None, "credit")
    stream.request(2)
    assert [next(stream).data, next(stream).data] == [b"0", b"1"]
    assert stream.limited_by() == "credit"
    stream.request(3)
    assert number(peer, "made") - before == 6
    assert [next(stream).data for _ in range(3)] == [b"2", b"3", b"4"]
    for n in (0, -1, 1 << 31):
        with pytest.raises(afflux.LocalProtocolError):
            stream.request(n)
    stream.request(1000)
    assert len(list(stream)) == 95


def test_leaving_the_loop_early_cancels(peer: afflux.sync.Peer) -> None:
    before = number(peer, "canceled")
    for item in peer.stream(b"100000000"):
        if item.data == b"700":
            break
    with peer.stream(b"100000000") as stream:
        next(stream)
    peer.request(b"")
    assert number(peer, "canceled") == before + 2


def test_streams_side_by_side(peer: afflux.sync.Peer) -> None:
    streams = [peer.stream(b"1000", credit=16) for _ in range(5)]
    for i in range(1000):
        assert {next(stream).data for stream in streams} == {b"%d" % i}
    assert peer.request(b"x") == Payload(b"x")


@pytest.mark.parametrize("credit", [1, 7, 256])
def test_channel(peer: afflux.sync.Peer, credit: int) -> None:
    sent = [b"%d" % i for i in range(3000)]
    assert [item.data for item in peer.channel(iter(sent), credit=credit)] == sent
    assert [item.data for item in peer.channel([b"one"], credit=credit)] == [b"one"]
    assert list(peer.channel([], credit=credit)) == []


def test_a_large_channel_goes_both_ways_without_a_jam(peer: afflux.sync.Peer) -> None:
    sent = (bytes(50_000) for _ in range(400))
    assert sum(len(item.data) for item in peer.channel(sent)) == 50_000 * 400


def test_a_source_that_fails(peer: afflux.sync.Peer) -> None:
    def source() -> Iterator[bytes]:
        yield b"1"
        yield b"2"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(peer.channel(source()))
    assert peer.request(b"x") == Payload(b"x")


def test_time_runs_out(peer: afflux.sync.Peer) -> None:
    before = number(peer, "canceled")
    with pytest.raises(TimeoutError, match=r"no answer within 0.02 s"):
        peer.request(b"wait", timeout=0.02)
    stream = peer.stream(b"1", timeout=0.02)
    assert next(stream).data == b"0"
    with pytest.raises(TimeoutError, match=r"no item within 0.02 s"):
        next(stream)
    peer.request(b"")
    assert number(peer, "canceled") == before + 1


def test_a_blocking_client_serves_nothing(peer: afflux.sync.Peer) -> None:
    with pytest.raises(afflux.Rejected, match="serves nothing"):
        peer.request(b"call")


def test_after_the_end(uri: str) -> None:
    peer = afflux.sync.connect(uri)
    stream = peer.stream(b"1")
    next(stream)
    assert not peer.closed
    with pytest.raises(afflux.ConnectionClosed):
        peer.request(b"cut")
    assert peer.closed
    with pytest.raises(afflux.ConnectionClosed):
        next(stream)
    for verb in (peer.request, peer.fire, peer.push, peer.stream, peer.channel):
        with pytest.raises(afflux.ConnectionClosed):
            verb(b"x")
    peer.close()
    peer.close()


def test_a_child_process_may_not_use_it(uri: str) -> None:
    with afflux.sync.connect(uri) as peer:
        stream = peer.stream(b"1000", credit=16)
        assert next(stream).data == b"0"
        pid = os.fork()
        if not pid:
            code = 1
            try:
                for use in (lambda: peer.request(b"x"), lambda: next(stream), lambda: peer.fire(b"x")):
                    try:
                        for _ in range(100):
                            use()
                    except afflux.ConnectionClosed as error:
                        if "connect again after a fork" not in str(error):
                            os._exit(2)
                    else:
                        os._exit(3)
                stream.cancel()
                peer.close()
                with afflux.sync.connect(uri) as mine:
                    code = 0 if mine.request(b"child").data == b"child" else 4
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [item.data for item in stream] == [b"%d" % i for i in range(1, 1000)]
        assert peer.request(b"parent") == Payload(b"parent")


@contextmanager
def stranger(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A TCP server that is no RSocket peer: one connection, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as sock:
                try:
                    talk(sock)
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_a_peer_that_speaks_something_else() -> None:
    def http(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        sock.recv(1000)

    with stranger(http) as uri, afflux.sync.connect(uri) as peer:
        with pytest.raises(afflux.RemoteProtocolError, match="the peer speaks HTTP, not rsocket"):
            peer.request(b"x")


def test_a_peer_that_hangs_up() -> None:
    with stranger(lambda sock: None) as uri, afflux.sync.connect(uri) as peer:
        with pytest.raises(afflux.ConnectionClosed):
            peer.request(b"x")


def test_a_peer_that_falls_silent() -> None:
    """SL-05."""
    with (
        stranger(lambda sock: [None for _ in iter(lambda: sock.recv(1000), b"")] and None) as uri,
        afflux.sync.connect(uri, keepalive=0.02, lifetime=0.1) as peer,
    ):
        with pytest.raises(afflux.ConnectionClosed, match="keepalive-timeout"):
            peer.request(b"x")


def test_a_peer_that_does_not_read() -> None:
    done = threading.Event()
    limits = Limits.server(write_stall_s=0.1)

    with (
        stranger(lambda sock: done.wait(10) and None) as uri,
        afflux.sync.connect(uri, limits=limits) as peer,
    ):
        with pytest.raises(afflux.ConnectionClosed, match="write-stall"):
            while True:
                peer.fire(bytes(100_000))
        done.set()


def test_fire_times_out_on_a_peer_that_does_not_read() -> None:
    done = threading.Event()
    with stranger(lambda sock: done.wait(10) and None) as uri:
        peer = afflux.sync.connect(uri, limits=Limits.server(flush_s=0.01))
        with pytest.raises(TimeoutError, match="reads nothing"):
            while True:
                peer.fire(bytes(100_000), timeout=0.05)
        start = time.monotonic()
        peer.close()
        assert time.monotonic() - start < 1
        done.set()


def test_keepalives_are_sent_while_a_call_waits(uri: str) -> None:
    with afflux.sync.connect(uri, keepalive=0.05, lifetime=0.2) as peer:
        with pytest.raises(TimeoutError):
            peer.request(b"wait", timeout=0.5)
        assert peer.request(b"x") == Payload(b"x")


def test_keepalives_are_sent_while_items_are_taken_slowly(uri: str) -> None:
    with afflux.sync.connect(uri, keepalive=0.05, lifetime=0.2) as peer:
        until = time.monotonic() + 0.5
        for i, _ in enumerate(peer.stream(b"1000000", credit=4)):
            if i % 500 == 0 and time.monotonic() > until:
                break
        assert peer.request(b"x") == Payload(b"x")


def test_no_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(afflux.ConnectFailed, match="refused: nothing listens there"):
            afflux.sync.connect(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    with pytest.raises(afflux.ConnectFailed, match="unknown host name"):
        afflux.sync.connect("tcp://no-such-host.invalid:7000")


def test_mem_has_no_blocking_side() -> None:
    with pytest.raises(afflux.Unsupported, match="no blocking side"):
        afflux.sync.connect("mem://x")


def test_a_port_that_does_not_answer() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        with pytest.raises(afflux.ConnectFailed, match=r"did not answer within 0.1 s"):
            afflux.sync.connect(f"tcp://127.0.0.1:{address[1]}", timeout=0.1)
        for filler in fillers:
            filler.close()
