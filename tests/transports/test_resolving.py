"""Host names are looked up in threads that hold up neither the program nor its end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import afflux
from afflux.transports.resolving import resolved

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
    with pytest.raises(socket.gaierror, match="not a host name"):
        await resolved("a..b", 1)
