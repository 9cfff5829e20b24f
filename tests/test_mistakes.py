"""Mistakes in a program: what is told of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import prometheus
from afflux.broker import Address, Broker
from afflux.journal import Journal, Journalled, Retention
from afflux.middleware import Limit, Metrics
from afflux.otel import Tracing, observer
from afflux.testing import Faults

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


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a time of a Backoff": (
        lambda: afflux.Backoff(first="1"),  # type: ignore[arg-type]
        TypeError,
        "invalid Backoff: first= is a number, not '1'",
    ),
    "the tries of a Backoff": (
        lambda: afflux.Backoff(tries=2.5),  # type: ignore[arg-type]
        TypeError,
        "invalid Backoff: tries= is a whole number or None, not 2.5",
    ),
    "a Backoff below 0": (
        lambda: afflux.Backoff(first=-1),
        ValueError,
        "invalid Backoff: first= is 0 seconds or more, not -1",
    ),
    "a Backoff that shrinks": (
        lambda: afflux.Backoff(first=2, most=1),
        ValueError,
        "invalid Backoff: most= is first=2 seconds or more, not 1",
    ),
    "a Backoff of no number": (
        lambda: afflux.Backoff(patience=float("nan")),
        ValueError,
        "invalid Backoff: patience= is 0 seconds or more, not nan",
    ),
    "a bearer token": (
        lambda: afflux.Bearer(5),  # type: ignore[arg-type]
        TypeError,
        "a token is text, not int",
    ),
    "a password": (
        lambda: afflux.Simple("ann", None),  # type: ignore[arg-type]
        TypeError,
        "a password is text, not NoneType",
    ),
    "tokens": (
        lambda: afflux.auth.verify_token(["t1", "t2"]),  # type: ignore[arg-type]
        TypeError,
        'tokens are text, or a mapping of tokens to principals, such as {"token of ann": "ann"}',
    ),
    "a check": (
        lambda: afflux.auth.at_setup({"token": "ann"}),  # type: ignore[arg-type]
        TypeError,
        "check is a function of the credentials and the peer, such as afflux.auth.verify_token(…), "
        "not {'token': 'ann'}",
    ),
    "what a relay reads": (
        lambda: afflux.relay(5, journal="j", listen=URI),  # type: ignore[arg-type]
        TypeError,
        "origins is an address, an afflux.Origin, or a list of them, not 5",
    ),
    "the address of a pool": (
        lambda: afflux.Pool(5),  # type: ignore[arg-type]
        TypeError,
        'uri is an address, such as "jmux+tcp://host:7000", not 5',
    ),
    "the size of a pool": (
        lambda: afflux.Pool("jmux+tcp://h:1", most="4"),  # type: ignore[arg-type]
        TypeError,
        "most= is a whole number of connections, not '4'",
    ),
    "a password to hash": (
        lambda: afflux.auth.hash_password(5),  # type: ignore[arg-type]
        TypeError,
        "password is text, not 5",
    ),
    "a file of TLS": (
        lambda: afflux.Tls(ca=5),  # type: ignore[arg-type]
        TypeError,
        "ca= is the path of a file, not int",
    ),
    "the tags of a broker": (
        lambda: Address("weather"),  # type: ignore[arg-type]
        TypeError,
        'tags are names with values, such as {"ServiceName": "weather"}, not \'weather\'',
    ),
    "an observer": (
        lambda: Metrics(5),  # type: ignore[arg-type]
        TypeError,
        "observer is a function of an Observation, not 5",
    ),
    "the path of a journal": (
        lambda: Journal(5),  # type: ignore[arg-type]
        TypeError,
        "path is the path of a file, or a Backend, not 5",
    ),
    "what a journal keeps": (
        lambda: Retention(seconds="24h"),  # type: ignore[arg-type]
        TypeError,
        "Retention: seconds= is a number of seconds, not '24h'",
    ),
    "the handler of a journal": (
        lambda: Journalled(Echo, "j"),
        TypeError,
        "a handler is an object, not its class: pass Echo(), not Echo",
    ),
    "the peer outside of a handler": (
        afflux.current_peer,
        LookupError,
        "no handler runs here: current_peer() is the peer whose request a handler answers",
    ),
    "the timeout of a route": (
        lambda: afflux.Router().request("a", timeout="5")(Echo().request),  # type: ignore[arg-type]
        TypeError,
        "timeout= is a number of seconds, not '5'",
    ),
    "a delay below 0": (lambda: Faults(delay=-1), ValueError, "delay= is a number of seconds, 0 or more, not -1"),
    "a delay without end": (
        lambda: Faults(jitter=float("inf")),
        ValueError,
        "jitter= is a number of seconds, 0 or more, not inf",
    ),
    "a delay in words": (
        lambda: Faults(delay="1s"),  # type: ignore[arg-type]
        TypeError,
        "delay= is a number of seconds, not '1s'",
    ),
    "no rate": (
        lambda: Faults(rate=0),
        ValueError,
        "rate= is a number of bytes per second, above 0, or None, not 0",
    ),
    "slices below 0": (lambda: Faults(slices=-1), ValueError, "slices= is a number of bytes, 0 or more, not -1"),
    "half a byte": (
        lambda: Faults(cut_after=0.5),  # type: ignore[arg-type]
        TypeError,
        "cut_after= is a whole number of bytes, not 0.5",
    ),
    "routes below 1": (lambda: Broker(routes=-1), ValueError, "routes must be 1 or more, not -1"),
    "no receivers": (lambda: Broker(receivers=0), ValueError, "receivers must be 1 or more, not 0"),
    "credit in words": (
        lambda: Broker(credit="auto"),  # type: ignore[arg-type]
        TypeError,
        "credit is a whole number, 1 or more, not 'auto'",
    ),
    "a Limit of nothing": (
        Limit,
        TypeError,
        "Limit needs a limit: give concurrent=, such as 100, or rate=, such as (10, 5), or both",
    ),
    "a rate in words": (
        lambda: Limit(rate=("10", 5)),  # type: ignore[arg-type]
        ValueError,
        "rate must be (burst, calls per second), at least (1, 0), not ('10', 5)",
    ),
    "a lease of a rate in words": (
        lambda: afflux.RateLease("5", 3),  # type: ignore[arg-type]
        TypeError,
        "a rate is a number of requests per second, not '5'",
    ),
    "a lease of an endless rate": (
        lambda: afflux.RateLease(float("inf"), 3),
        ValueError,
        "a rate is 0 or more a second, and finite, not inf",
    ),
    "a lease that permits nothing": (
        lambda: afflux.RateLease(5, 0),
        ValueError,
        "a burst of 0 permits no request, ever: give burst=1 or more",
    ),
    "tracing to a number": (
        lambda: Tracing(5),  # type: ignore[arg-type]
        TypeError,
        "tracer_provider= is a TracerProvider of OpenTelemetry, not 5",
    ),
    "metrics to a number": (
        lambda: observer(5),  # type: ignore[arg-type]
        TypeError,
        "meter_provider= is a MeterProvider of OpenTelemetry, not 5",
    ),
    "a registry that is a number": (
        lambda: prometheus.observer(5),  # type: ignore[arg-type]
        TypeError,
        "registry= is a CollectorRegistry of prometheus_client, not 5",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_refused_where_it_is_given(what: str) -> None:
    make, kind, text = WRONG[what]
    with pytest.raises(kind) as refused:
        make()
    assert str(refused.value) == text


LOST = "a connection without requests would be lost after 10 s, before its first keepalive"


@pytest.mark.parametrize("connect", [afflux.connect, afflux.sync.connect])
@pytest.mark.parametrize(
    ("uri", "options", "keepalive"),
    [
        ("tcp://h:1", {"lifetime": 10}, "20"),
        ("tcp://h:1", {"keepalive": 10, "lifetime": 10}, "10"),
        ("tcp://h:1?lifetime=10", {}, "20"),
        ("tcp://h:1?keepalive=12", {"lifetime": 10}, "12"),
    ],
)
def test_a_lifetime_without_a_keepalive(
    connect: Callable[..., object], uri: str, options: dict[str, float], keepalive: str
) -> None:
    with pytest.raises(afflux.AddressError) as refused:
        connect(uri, **options)
    assert str(refused.value) == f"keepalive={keepalive} is not below lifetime=10: {LOST}"


async def test_on_setup_that_is_not_async(caplog: pytest.LogCaptureFixture) -> None:
    def allow(setup: object, peer: afflux.Peer) -> bool:
        return False

    async with afflux.serve(URI, Echo(), on_setup=allow) as server, afflux.connect(server.uri) as peer:  # type: ignore[arg-type]
        with caplog.at_level(logging.ERROR, "afflux"), pytest.raises(afflux.SetupRefused):
            await peer.request(b"")
    assert 'on_setup is an async function, and this one is not: write "async def"' in caplog.text


async def test_a_server_shows_that_it_was_not_awaited() -> None:
    server = afflux.serve(URI, Echo())
    assert repr(server) == f'<Server {URI}: not started; await it, or use "async with">'
    async with server:
        assert repr(server) == f"<Server {server.uri}, 0 connections>"
    assert repr(server).endswith(": closed>")


def test_one_item_is_not_a_list_of_items(tmp_path: Path) -> None:
    """Text has characters, which would be stored one by one."""
    with Journal(tmp_path / "x.journal") as journal:
        for one in ("abc", b"abc", afflux.Payload(b"abc")):
            with pytest.raises(TypeError, match=r"^items come from a generator or a list, not from "):
                journal.append(one, 0)  # type: ignore[arg-type]
        assert journal.append(["abc"], 0) == (0, 1)


async def numbers() -> AsyncIterator[str]:
    yield "1"


BLOCKING: dict[str, tuple[Callable[[afflux.sync.Peer], object], type[Exception], str]] = {
    "the timeout of a request": (
        lambda peer: peer.request(b"", timeout="5"),  # type: ignore[arg-type]
        TypeError,
        "timeout= is a number of seconds, not '5'",
    ),
    "the timeout of a stream": (
        lambda peer: peer.stream(b"", timeout="5"),  # type: ignore[arg-type]
        TypeError,
        "timeout= is a number of seconds, not '5'",
    ),
    "the timeout of a channel": (
        lambda peer: peer.channel([b""], timeout="5"),  # type: ignore[arg-type]
        TypeError,
        "timeout= is a number of seconds, not '5'",
    ),
    "an asynchronous source": (
        lambda peer: peer.channel(numbers()),  # type: ignore[arg-type]
        TypeError,
        "items come from a generator or a list, not from async_generator: afflux.sync calls nothing async",
    ),
    "an item without credit": (
        lambda peer: next(peer.stream(b"", credit=0)),
        afflux.LocalProtocolError,
        "credit=0 grants nothing by itself: call request(n) before the first item",
    ),
}


@pytest.mark.parametrize("what", BLOCKING)
async def test_mistakes_with_a_blocking_connection(what: str) -> None:
    use, kind, text = BLOCKING[what]

    def mistake(uri: str) -> str:
        with afflux.sync.connect(uri) as peer, pytest.raises(kind) as refused:
            use(peer)
        return str(refused.value)

    async with afflux.serve(URI, Echo()) as server:
        assert await asyncio.to_thread(mistake, server.uri) == text


class NoArgument:
    async def request(self) -> bytes:
        return b""


class TwoArguments:
    async def stream(self, payload: afflux.Payload, count: int) -> AsyncIterator[bytes]:
        yield payload.data * count


@pytest.mark.parametrize("handler", [NoArgument(), TwoArguments()])
def test_a_method_that_cannot_be_called_with_a_payload(handler: object) -> None:
    with pytest.raises(TypeError, match=r" is called with one argument: the payload, or the items of a channel$"):
        afflux.serve(URI, handler)


async def test_the_next_item_without_await() -> None:
    async with afflux.serve(URI, Echo()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(TypeError, match=r'^ItemStream is asynchronous: write "await anext\(items\)", in an async'):
            next(peer.stream(b""))  # type: ignore[call-overload]  # the mistake


async def test_a_closed_server_is_not_started_again() -> None:
    server = await afflux.serve(URI, Echo())
    await server.close()
    with pytest.raises(afflux.LocalProtocolError, match=r"^this server is closed: afflux\.serve makes another one$"):
        await server
    with pytest.raises(afflux.LocalProtocolError, match=r"^this server is closed"):
        async with server:
            pass


@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_a_timeout_below_0(seconds: float) -> None:
    def mistake(uri: str) -> None:
        with afflux.sync.connect(uri) as peer:
            for use in (peer.request, peer.fire, peer.stream):
                with pytest.raises(ValueError, match=r"^timeout= is a number of seconds, 0 or more, not (-1|nan)$"):
                    use(b"", timeout=seconds)

    async with afflux.serve(URI, Echo()) as server:
        await asyncio.to_thread(mistake, server.uri)


async def test_a_blocking_call_in_the_loop_of_its_server() -> None:
    """The server cannot answer while the call waits."""
    told = r"the event loop of this thread waits meanwhile: a server in it cannot answer \(use afflux\.connect\)$"
    async with afflux.serve(URI, Echo()) as server:
        peer = afflux.sync.connect(server.uri)
        with pytest.raises(TimeoutError, match=r"^no answer within 0\.05 s; " + told):
            peer.request(b"", timeout=0.05)
        peer.close()
