"""What all protocols share beyond their engines: TLS, what an address says to a listener, errors, setups, gates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.core.dissector import Dissector
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.demo.responder import Responder
from afflux.protocols.jmux import frames as jmux
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.registry import PROTOCOLS
from afflux.protocols.rsocket import frames as rsocket
from afflux.transports.address import parse
from tests.transports.certificates import Certificates

BUILT = list(PROTOCOLS)
JMUX = "jmux+tcp://127.0.0.1:0"
OLD = "reactivesocket+tcp://127.0.0.1:0"
RSIO = "rsio+tcp://127.0.0.1:0"
HELLO = bytes.fromhex("4a6d757801008000")
each = pytest.mark.parametrize("protocol", BUILT)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def talked(peer: afflux.Peer, protocol: str) -> None:
    """Small and large payloads come and go."""
    if protocol == "rsio":
        assert [len(item) async for item in peer.stream(b"count:40:10000")] == [10_000] * 40
    elif protocol == "limit":
        async with peer.channel([b"x" * 10_000] * 40) as items:
            assert [len(item) async for item in items] == [10_000] * 40
    else:
        for data in (b"", b"hello", bytes(range(256)) * 1500):
            assert (await peer.request(data)).data == data


def talked_blocking(peer: afflux.sync.Peer, protocol: str) -> None:
    if protocol == "rsio":
        assert [len(item) for item in peer.stream(b"count:40:10000")] == [10_000] * 40
    elif protocol == "limit":
        assert [len(item) for item in peer.channel([b"x" * 10_000] * 40)] == [10_000] * 40
    else:
        assert peer.request(b"x" * 300_000).data == b"x" * 300_000


# -- TLS ----------------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("transport", ["tls", "wss"])
async def test_tls(protocol: str, transport: str, certificates: Certificates) -> None:
    uri = f"{protocol}+{transport}://127.0.0.1:0"

    def blocking(uri: str) -> None:
        with afflux.sync.connect(uri, tls=certificates.to_connect) as peer:
            talked_blocking(peer, protocol)

    async with afflux.serve(uri, Responder(), tls=certificates.to_serve) as server:
        async with afflux.connect(server.uri, tls=certificates.to_connect) as peer:
            await talked(peer, protocol)
            assert peer.certificate is not None
        async with afflux.connect(f"{server.uri}?ca={certificates.ca}") as peer:
            await talked(peer, protocol)
        with pytest.raises(afflux.ConnectFailed, match="certificate"):
            await afflux.connect(server.uri, tls=afflux.Tls(ca=certificates.other_ca))
        await asyncio.to_thread(blocking, server.uri)


# -- what an address says to a listener -----------------------------------------------------------------------------


async def said(uri: str, *words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client of bytes that has said something."""
    address = parse(uri)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"".join(words))
    await writer.drain()
    return reader, writer


ASKING = {
    "rsocket": rsocket.Setup(stream=0).encode(prefixed=True)
    + rsocket.RequestResponse(stream=1, data=b"x" * 1000).encode(prefixed=True),
    "reactivesocket": old.Setup().encode(prefixed=True)
    + old.RequestResponse(stream=2, data=b"x" * 1000).encode(prefixed=True),
    "jmux": HELLO + jmux.Data(session=0, open=True, eof=True, data=b"x" * 1000).encode(),
}


def dissector_of(protocol: str) -> Dissector:
    make = PROTOCOLS[protocol].dissector
    assert make is not None
    return make(False, "none")


@pytest.mark.parametrize("protocol", ASKING)
async def test_the_frames_of_a_listener_are_as_small_as_its_address_states(protocol: str) -> None:
    async with afflux.serve(f"{protocol}+tcp://127.0.0.1:0?mtu=100", Responder()) as server:
        reader, writer = await said(server.uri, ASKING[protocol])
        frames, arrived = dissector_of(protocol), 0
        while arrived < 1000:
            for record in frames.feed(await reader.read(64)):
                assert record["length"] <= 104
                arrived += record["data_len"] or 0
        assert arrived == 1000
        writer.close()


async def test_a_listener_of_jmux_pings_as_often_as_its_address_states() -> None:
    async with afflux.serve(f"{JMUX}?keepalive=0.02", Responder()) as server:
        reader, writer = await said(server.uri, HELLO)
        await reader.readexactly(8)
        assert (await reader.readexactly(4))[0] == jmux.Ping.TYPE
        writer.close()


def test_without_options_a_listener_goes_by_its_limits() -> None:
    limits = Limits.server().replace(keepalive_s=7.0, lifetime_s=21.0)
    terms = afflux.serve(JMUX, Responder(), limits=limits)._terms
    assert (terms.keepalive, terms.lifetime, terms.mtu, terms.dialect, dict(terms.own)) == (7.0, 21.0, None, None, {})


# -- dialects of jmux -------------------------------------------------------------------------------------------------

ABORT_PARTIAL = jmux.Data(session=0, open=True, data=b"x").encode() + bytes.fromhex("22000000")
LAST_SESSION = bytes.fromhex("94ff0000")


@pytest.mark.parametrize(
    ("words", "saying", "answer"),
    [
        ("", ABORT_PARTIAL, 0x08),
        ("?dialect=lenient-partial", ABORT_PARTIAL, 0x20),
        ("?dialect=noop-data,ids-255", ABORT_PARTIAL, 0x08),
        ("", LAST_SESSION, 0x08),
        ("?dialect=lenient-partial", LAST_SESSION, 0x08),
        ("?dialect=lenient-partial,ids-255", LAST_SESSION, 0x8C),
    ],
)
async def test_a_dialect_of_jmux_at_a_listener(words: str, saying: bytes, answer: int) -> None:
    """Jmux I-11, I-14: Abort with partial from a client, and session 255."""
    async with afflux.serve(JMUX + words, Responder()) as server:
        reader, writer = await said(server.uri, HELLO, saying)
        assert (await reader.readexactly(9))[8] == answer
        writer.close()


async def test_a_dialect_of_jmux_at_a_client() -> None:
    async with afflux.serve(JMUX, Responder()) as server:
        async with afflux.connect(server.uri) as peer:
            engine: Any = peer._driver.engine
            await peer.request(b"x")
            with pytest.raises(afflux.LocalProtocolError, match="noop_data"):
                engine.byte_sessions.no_operation(b"data")
        async with afflux.connect(f"{server.uri}?dialect=noop-data") as peer:
            await peer.request(b"x")
            engine = peer._driver.engine
            engine.byte_sessions.no_operation(b"data")
            assert (await peer.request(b"on")).data == b"on"


async def test_how_long_jmux_waits_for_an_id() -> None:
    """Jmux R-21, D-7: 0 is not at all."""
    limits = Limits.tiny(sessions=1)
    async with afflux.serve(JMUX, Responder()) as server:
        async with afflux.connect(f"{server.uri}?max_wait_for_id=0", limits=limits) as peer:
            await peer.session(b"x")
            with pytest.raises(afflux.LimitExceeded):
                await peer.session(b"y")
        async with afflux.connect(f"{server.uri}?max_wait_for_id=60", limits=limits) as peer:
            first = await peer.session(b"x")
            second = await peer.session(b"y", finish=True)
            first.abort()
            assert await second.read_all() == b"y"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("dialect=java", "words of: noop-data, lenient-partial, ids-255"),
        ("dialect=", "words of: noop-data"),
        ("max_wait_for_id=-1", "seconds, from 0 and at most 86400"),
        ("max_wait_for_id=nan", "seconds, from 0 and at most 86400"),
    ],
)
def test_options_that_jmux_refuses(words: str, told: str) -> None:
    with pytest.raises(afflux.AddressError, match=told):
        parse(f"jmux+tcp://h:1?{words}")


@pytest.mark.parametrize(
    "words",
    ["jmux+tcp://h:1?dialect=noop-data%2Cids-255&max_wait_for_id=1.5", "reactivesocket+tcp://h:1?dialect=java"],
)
def test_a_dialect_is_written_as_it_was_read(words: str) -> None:
    assert str(parse(words)) == words
    assert parse(str(parse(words))) == parse(words)


# -- subscriptions ----------------------------------------------------------------------------------------------------


class Ticks:
    """A publisher of numbers."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for number in range(int(payload.data)):
            yield b"%d" % number


async def test_a_subscription_does_not_complete() -> None:
    """ReactiveSocket R-35: a REQUEST_SUB that the application completes is an error; a REQUEST_STREAM is none."""
    async with afflux.serve(OLD, Ticks()) as server, afflux.connect(server.uri) as peer:
        assert [item.data async for item in peer.stream(b"2")] == [b"0", b"1"]
        for subscribe in (peer.subscribe, peer.subscription):
            items = subscribe(b"2", metadata=b"m", credit=1)
            assert [(await anext(items)).data for _ in range(2)] == [b"0", b"1"]
            with pytest.raises(afflux.ApplicationError, match="a subscription does not complete"):
                await anext(items)


async def test_a_subscription_of_those_who_let_it_complete() -> None:
    async with afflux.serve(f"{OLD}?dialect=sub-complete", Ticks()) as server, afflux.connect(server.uri) as peer:
        assert [item.data async for item in peer.subscribe("2")] == [b"0", b"1"]


async def test_a_blocking_subscription() -> None:
    def blocking(uri: str) -> None:
        with afflux.sync.connect(uri) as peer:
            for subscribe in (peer.subscribe, peer.subscription):
                items = subscribe("3", credit=1)
                assert [next(items).data for _ in range(3)] == [b"0", b"1", b"2"]
                with pytest.raises(afflux.ApplicationError, match="a subscription does not complete"):
                    next(items)

    async with afflux.serve(OLD, Ticks()) as server:
        await asyncio.to_thread(blocking, server.uri)


async def test_what_is_offered_instead() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Ticks()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Unsupported, match='rsocket has no "subscribe"'):
            peer.subscription("x")
    async with afflux.serve(RSIO, Ticks()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Unsupported, match=r'rsio has no "fire"; it offers: stream, subscribe$'):
            await peer.fire(b"x")
    async with afflux.serve(JMUX, Responder()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Unsupported, match=r'jmux has no "stream"; it offers: request, session$'):
            peer.stream(b"x")


# -- errors ---------------------------------------------------------------------------------------------------------


class Fails:
    """Answers with an error, with the code that is asked for or with none."""

    async def request(self, payload: Payload) -> Payload:
        raise afflux.ApplicationError(int(payload.data or b"0") or None, "told to fail")

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        raise afflux.ApplicationError(message="told to fail")
        yield b""


@pytest.mark.parametrize(
    ("protocol", "asked", "code"),
    [
        ("rsocket", b"", 0x201),
        ("rsocket", b"769", 0x301),
        ("reactivesocket", b"", 0x21),
        ("reactivesocket", b"37", 0x25),
        ("reactivesocket", b"769", 0x21),
    ],
)
async def test_the_code_of_an_application_error(protocol: str, asked: bytes, code: int) -> None:
    """Without one it is the protocol's own."""
    async with (
        afflux.serve(f"{protocol}+tcp://127.0.0.1:0", Fails()) as server,
        afflux.connect(server.uri) as peer,
    ):
        with pytest.raises(afflux.ApplicationError, match="told to fail") as caught:
            await peer.request(asked)
        assert caught.value.code == code


async def test_errors_without_codes() -> None:
    assert afflux.ApplicationError().code is None
    async with afflux.serve(RSIO, Fails()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.ApplicationError, match="told to fail") as caught:
            await anext(peer.stream(b"x"))
        assert caught.value.code is None
    async with afflux.serve(JMUX, Fails()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Canceled, match="told to fail") as aborted:
            await peer.request(b"")
        assert aborted.value.code is None


@pytest.mark.parametrize("uri", [JMUX, RSIO])
@pytest.mark.parametrize("setup", [{"setup": b"x"}, {"data_mime": "text/plain"}, {"metadata_mime": "text/plain"}])
async def test_there_is_no_setup(uri: str, setup: Any) -> None:
    """What would not reach the peer is refused."""
    with pytest.raises(afflux.Unsupported, match="no setup"):
        await afflux.connect(uri, **setup)


# -- gates and middleware -------------------------------------------------------------------------------------------


class Both:
    """Sessions and streams."""

    async def session(self, session: Any) -> None:
        await session.write(await session.read_all())

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        yield payload.data

    def element_size(self, publisher: str) -> int:
        return len(publisher)


class Log(afflux.Middleware):
    """Remembers streams."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def stream(self, call: Any, next: Any) -> Any:
        self.seen.append(call.payload.data)
        return next(call)


async def test_middleware_lets_sessions_through() -> None:
    log = Log()
    handler = afflux.wrap(Both(), log)
    async with afflux.serve(JMUX, handler) as server, afflux.connect(server.uri) as peer:
        session = await afflux.wrap(peer, log).session(b"x", finish=True)
        assert await session.read_all() == b"x"
    async with afflux.serve(RSIO, handler) as server, afflux.connect(server.uri) as peer:
        assert [item.data async for item in peer.subscribe("four")] == [b"four"]
        assert log.seen == [b"four"]


async def test_a_gate_before_each_session() -> None:
    """Jmux has no metadata: the check has no credentials to go by, but the peer."""
    asked: list[Any] = []

    def check(credentials: Any, peer: afflux.Peer) -> Any:
        asked.append(credentials)
        return "somebody" if len(asked) == 1 else None

    async with (
        afflux.serve(JMUX, afflux.auth.per_request(Both(), check)) as server,
        afflux.connect(server.uri) as peer,
    ):
        async with await peer.session(b"x", finish=True) as session:
            assert await session.read_all() == b"x"
        async with await peer.session(b"x", finish=True) as session:
            with pytest.raises(afflux.Error, match=afflux.auth.REFUSED):
                await session.read_all()
    assert len(asked) == 2


async def test_a_gate_before_publishers() -> None:
    """rsio: at the setup, and at each subscription."""
    for says, told in (("somebody", None), (None, afflux.auth.REFUSED)):
        check = lambda credentials, peer, says=says: says  # noqa: E731
        gate = afflux.auth.at_setup(check)
        gated = afflux.auth.per_request(Both(), check)
        for handler, options in ((Both(), {"on_setup": gate}), (gated, {})):
            async with afflux.serve(RSIO, handler, **options) as server, afflux.connect(server.uri) as peer:
                items = peer.subscribe("four")
                if told is None:
                    assert (await anext(items)).data == b"four"
                else:
                    with pytest.raises(afflux.Error, match=told):
                        await anext(items)


def test_a_gate_has_the_sizes_of_its_handler() -> None:
    gated: Any = afflux.auth.per_request(Both(), lambda credentials, peer: True)
    assert gated.element_size("four") == 4
    assert not hasattr(afflux.auth.per_request(Ticks(), lambda credentials, peer: True), "element_size")
