"""Host names are looked up in threads that hold up neither the program nor its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.transports.resolving import resolved, resolved_within

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]
MOST = 32


class Resolver:
    """A system's resolver that answers when it is told to."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked: list[str] = []
        self.asks: Callable[[], object] = lambda: None

    def getaddrinfo(self, host: str, *arguments: Any, flags: int, **keywords: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not numeric")
        self.asked.append(host)
        self.asks()
        self.answer.wait()
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return FOUND


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    found = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    yield found
    found.answer.set()
    for thread in threading.enumerate():
        if thread.name == "afflux-resolver":
            thread.join()  # its lookup would be the next test's


def test_a_resolver_that_hangs_holds_up_nothing(resolver: Resolver) -> None:
    async def program() -> None:
        await afflux.connect("tcp://some.host:7", timeout=0.01)

    with pytest.raises(afflux.ConnectFailed, match=r"tcp://some.host:7 did not answer within 0.01 s"):
        asyncio.run(program())
    assert resolver.asked == ["some.host"]
    assert not resolver.answer.is_set()


async def test_lookups_of_the_same_host_share_a_thread(resolver: Resolver) -> None:
    many = [asyncio.ensure_future(resolved("some.host", 1)) for _ in range(100)]
    await asyncio.sleep(0)
    many.pop().cancel()
    resolver.answer.set()
    assert await asyncio.gather(*many) == [FOUND] * 99
    assert resolver.asked == ["some.host"]


async def test_an_unknown_host_is_told_to_each(resolver: Resolver) -> None:
    resolver.answer.set()
    many = [asyncio.ensure_future(resolved("no.invalid", 1)) for _ in range(3)]
    for one in many:
        with pytest.raises(socket.gaierror, match="unknown"):
            await one


async def test_threads_are_bounded(resolver: Resolver) -> None:
    """The lookups beyond them begin when others have ended."""
    loop, full = asyncio.get_running_loop(), asyncio.Event()

    def count() -> None:
        if len(resolver.asked) >= MOST:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(full.set)

    resolver.asks = count
    many = [asyncio.ensure_future(resolved(f"host{number}", 1)) for number in range(MOST + 5)]
    await full.wait()
    assert len(resolver.asked) == MOST
    resolver.answer.set()
    assert await asyncio.gather(*many) == [FOUND] * len(many)
    assert len(resolver.asked) == MOST + 5


async def test_a_name_that_cannot_be_encoded_is_unknown() -> None:
    with pytest.raises(socket.gaierror, match="a part is empty or longer than 63 characters"):
        await resolved("a..b", 1)


@pytest.mark.parametrize("scheme", ["tcp", "ws", "tls", "wss"])
def test_the_blocking_side_waits_no_longer_than_its_timeout(scheme: str, resolver: Resolver) -> None:
    start = time.monotonic()
    with pytest.raises(afflux.ConnectFailed, match=rf"^{scheme}://some\.host:7/? did not answer within 0\.05 s$"):
        afflux.sync.connect(f"{scheme}://some.host:7", timeout=0.05)
    assert time.monotonic() - start < 30  # the resolver hangs for ever
    assert not resolver.answer.is_set()


def test_a_blocking_lookup_that_ends_leaves_no_thread(resolver: Resolver) -> None:
    """A program may fork afterwards."""
    before = threading.active_count()
    resolver.answer.set()
    assert resolved_within("some.host", 1, 30) == FOUND
    assert threading.active_count() == before
    with pytest.raises(socket.gaierror, match="unknown"):
        resolved_within("no.invalid", 1, 30)
    with pytest.raises(afflux.ConnectFailed, match=r"tcp://no\.invalid:7"):
        afflux.sync.connect("tcp://no.invalid:7")


def test_blocking_lookups_of_the_same_host_share_a_thread(resolver: Resolver) -> None:
    """Somebody who tries again and again does not start more and more threads."""
    for _ in range(MOST + 1):
        with pytest.raises(TimeoutError):
            resolved_within("some.host", 1, 0)
    assert resolver.asked == ["some.host"]
    for number in range(1, MOST):
        with pytest.raises(TimeoutError):
            resolved_within(f"host{number}", 1, 0)
    with pytest.raises(socket.gaierror, match="32 lookups of other hosts have not ended"):
        resolved_within("another", 1, 0)
    resolver.answer.set()
    assert resolved_within("some.host", 1, 30) == FOUND


def test_a_blocking_lookup_of_an_address_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", None)
    assert resolved_within("127.0.0.1", 1, 0)[0][4] == ("127.0.0.1", 1)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_lookup_of_the_parent_is_none_of_a_child(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError):
        resolved_within("some.host", 1, 0)
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(30)
            monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, flags, **__: numeric(flags))
            code = 0 if resolved_within("some.host", 1, 30) == FOUND else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def numeric(flags: int) -> Any:
    """What a resolver says that knows every name."""
    if flags & socket.AI_NUMERICHOST:
        raise socket.gaierror(socket.EAI_NONAME, "not numeric")
    return FOUND


def test_the_blocking_side_takes_the_first_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        places = [nobody.getsockname(), server.getsockname()]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr("afflux.transports.tcp.resolved_within", lambda *_: found)
        with afflux.sync.connect("tcp://some.host:7"):
            server.accept()[0].close()
        found.pop()
        with pytest.raises(afflux.ConnectFailed, match="refused"):
            afflux.sync.connect("tcp://some.host:7")
        found.clear()
        with pytest.raises(afflux.ConnectFailed, match="the host has no address"):
            afflux.sync.connect("tcp://some.host:7")
