"""Mistakes in a program: what is told of each."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import afflux

URI = "tcp://127.0.0.1:0"


class Echo:
    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload


class Static:
    @staticmethod
    async def request(payload: afflux.Payload) -> bytes:
        return b"static"


class Answers:
    """Answers a request with whatever it was made with."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    async def request(self, payload: afflux.Payload) -> Any:
        return self._answer()


def test_a_class_is_no_handler() -> None:
    for function in (lambda: afflux.serve(URI, Echo), lambda: afflux.connect("tcp://h:1", handler=Echo)):
        with pytest.raises(TypeError, match=r"^a handler is an object, not its class: pass Echo\(\), not Echo$"):
            function()


async def test_a_class_whose_methods_need_no_object_is_a_handler() -> None:
    async with afflux.serve(URI, Static) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"")).data == b"static"


async def values() -> AsyncIterator[bytes]:
    yield b""


ENCODE = ": encode it, as json.dumps does, or give the route of an afflux.Router a codec"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (dict, f"not dict{ENCODE}"),
        (list, f"not list{ENCODE}"),
        (lambda: 5, f"not int{ENCODE}"),
        (values, "not async_generator: a method that yields several items is a stream or a channel"),
        (object, "not object"),
    ],
)
async def test_an_answer_that_is_no_payload(
    answer: Callable[[], Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with afflux.serve(URI, Answers(answer)) as server, afflux.connect(server.uri) as peer:
        with caplog.at_level(logging.ERROR, "afflux"), pytest.raises(afflux.ApplicationError):
            await peer.request(b"")
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[1] is not None
    assert str(record.exc_info[1]) == f"a payload is bytes, text or afflux.Payload, {told}"
    assert record.exc_info[1].__suppress_context__


async def test_a_forgotten_await_before_data() -> None:
    async def data() -> bytes:
        return b"x"

    async with afflux.serve(URI, Echo()) as server, afflux.connect(server.uri) as peer:
        forgotten = data()
        with pytest.raises(TypeError, match=r"not coroutine: an await is missing$"):
            await peer.request(forgotten)  # type: ignore[arg-type]
        forgotten.close()


def test_a_forgotten_await_of_the_connection() -> None:
    connecting = afflux.connect("tcp://h:1")
    with pytest.raises(AttributeError, match=r'it is not made yet; write "async with afflux\.connect\(…\) as peer"'):
        connecting.request(b"")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"has no 'nothing'$"):
        _ = connecting.nothing  # type: ignore[attr-defined]


async def test_a_push_is_bytes() -> None:
    told = r"^push sends metadata, which must be bytes, not str: write 'abc'\.encode\(\)$"
    async with afflux.serve(URI, Echo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(TypeError, match=told):
            await peer.push("abc")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"must be bytes, not dict$"):
            await peer.push({})  # type: ignore[arg-type]
        await peer.push(memoryview(b"abc"))  # type: ignore[arg-type]
        await peer.request(b"")


@pytest.mark.parametrize("route", ["prices.{a}.{a}", "{a}.{b}.{a}", "x.{a}.{a...}"])
def test_a_place_twice(route: str) -> None:
    router = afflux.Router()
    with pytest.raises(ValueError, match=r'has the place "a" twice: give each place its own name$'):
        router.request(route)(Echo().request)
