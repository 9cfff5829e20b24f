"""A handler that forgets an ``await`` or a call: the server's log states what is wrong and where, and the client learns
no more than of any other exception.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

import afflux
import afflux.sync

URI = "tcp://127.0.0.1:0"
AWAIT = "a payload is bytes, text or afflux.Payload, not coroutine: an await is missing"
CALL = "a payload is bytes, text or afflux.Payload, not function: call it"
ITEMS = "items come from a generator or a list, not from coroutine: an await is missing"


class Fetch:
    """``make`` returns coroutines that nothing awaits. They are closed at the end: Python would warn of each."""

    def __init__(self) -> None:
        self.made: list[Coroutine[Any, Any, bytes]] = []

    async def data(self) -> bytes:
        return b"x"

    def make(self) -> Coroutine[Any, Any, bytes]:
        self.made.append(self.data())
        return self.made[-1]


@pytest.fixture
def fetch() -> Iterator[Fetch]:
    made = Fetch()
    yield made
    for coroutine in made.made:
        coroutine.close()


async def asked(peer: Any, verb: str, route: str | None) -> None:
    """Call ``verb`` and read all that it answers."""
    match verb:
        case "request":
            await peer.request(b"", route=route)
        case "stream":
            async for _ in peer.stream(b"", route=route):
                pass
        case _:
            async for _ in peer.channel([b"1"], route=route):
                pass


def refused(error: afflux.ApplicationError, log: pytest.LogCaptureFixture, where: str, why: str) -> None:
    """The client has the text that it has of any exception, and the log has one record."""
    assert (error.code, error.message) == (0x201, "application error")
    (record,) = log.records
    assert re.fullmatch(rf"afflux: a handler raised: {where}, stream 1, peer 127\.0\.0\.1:\d+", record.getMessage())
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == why


def router(fetch: Fetch) -> afflux.Router:
    """Functions that forget. The name of each is its route."""
    made = afflux.Router()

    @made.request("answer")
    async def answer(payload: afflux.Payload) -> Any:
        return fetch.make()

    @made.request("function")
    async def function(payload: afflux.Payload) -> Any:
        return lambda: b"x"

    @made.request("encoded", codec="application/json")
    async def encoded(payload: afflux.Payload) -> Any:
        return fetch.make()

    @made.stream("items")
    async def items(payload: afflux.Payload) -> AsyncIterator[Any]:
        yield b"first"
        yield fetch.make()

    @made.stream("several")
    async def several(payload: afflux.Payload) -> AsyncIterator[Any]:
        yield [b"first", fetch.make()]

    @made.stream("plain")
    def plain(payload: afflux.Payload) -> Any:
        return [fetch.make()]

    @made.stream("encoded", codec="application/json")
    async def encoded_items(payload: afflux.Payload) -> AsyncIterator[Any]:
        yield fetch.make()

    @made.stream("whole")
    async def whole(payload: afflux.Payload) -> Any:
        return fetch.make()

    @made.channel("both")
    async def both(payloads: AsyncIterator[afflux.Payload]) -> AsyncIterator[Any]:
        async for _ in payloads:
            yield fetch.make()

    return made


@pytest.mark.parametrize(
    ("verb", "route", "why"),
    [
        ("request", "answer", AWAIT),
        ("request", "function", CALL),
        ("request", "encoded", AWAIT),
        ("stream", "items", AWAIT),
        ("stream", "several", AWAIT),
        ("stream", "plain", AWAIT),
        ("stream", "encoded", AWAIT),
        ("stream", "whole", ITEMS),
        ("channel", "both", AWAIT),
    ],
)
async def test_the_log_states_what_is_missing_and_where(
    verb: str, route: str, why: str, fetch: Fetch, caplog: pytest.LogCaptureFixture
) -> None:
    async with afflux.serve(URI, router(fetch)) as server, afflux.connect(server.uri) as peer:
        with caplog.at_level(logging.ERROR, "afflux"), pytest.raises(afflux.ApplicationError) as error:
            await asked(peer, verb, route)
    refused(error.value, caplog, f'{verb} of route "{route}"', why)


class Bare:
    """A handler without routes."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    async def request(self, payload: afflux.Payload) -> Any:
        return self._make()

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[Any]:
        yield self._make()


@pytest.mark.parametrize("verb", ["request", "stream"])
async def test_without_routes(verb: str, fetch: Fetch, caplog: pytest.LogCaptureFixture) -> None:
    async with afflux.serve(URI, Bare(fetch.make)) as server, afflux.connect(server.uri) as peer:
        with caplog.at_level(logging.ERROR, "afflux"), pytest.raises(afflux.ApplicationError) as error:
            await asked(peer, verb, None)
    refused(error.value, caplog, verb, AWAIT)


async def test_a_source_of_a_channel(fetch: Fetch) -> None:
    """The mistake is this side's: the caller is told."""
    async with afflux.serve(URI, Bare(fetch.make)) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(TypeError, match=f"^{AWAIT}$"):
            async for _ in peer.channel([fetch.make()]):
                pass
