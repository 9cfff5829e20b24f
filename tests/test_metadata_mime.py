"""What the metadata type of a connection means to everyone who writes or reads metadata there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.journal.serve import Journalled
from afflux.protocols.rsocket import cursor
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, ROUTING_MIME
from afflux.resume.recovery import replays_of

JSON = "application/json"
OTHERS = (JSON, "application/octet-stream", "text/plain", "application/x.unheard-of")
SAID = (b"", b"{}", b"\xff\xff", b"\x7f", b"\x04echo", bytes(300), b"\xfe\x00\x00\x05\x04echo")
WIRES = ("", "reactivesocket+")


def router() -> afflux.Router:
    """A router that says which of its routes was asked."""
    made = afflux.Router()

    @made.request("echo")
    async def echo(payload: afflux.Payload) -> bytes:
        return b"echo " + payload.data

    @made.request("places.{name}")
    async def places(payload: afflux.Payload, name: str) -> bytes:
        return name.encode()

    @made.request("type", codec=JSON)
    async def type_of(payload: Any, entries: afflux.Entries) -> list[str]:
        return [mime for mime, _ in entries]

    @made.stream("count")
    async def count(payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    @made.channel("back")
    async def back(items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data

    @made.request()
    async def without(payload: afflux.Payload) -> bytes:
        return b"no route"

    @made.fire()
    async def forget(payload: afflux.Payload) -> None:
        pass

    return made


class Mirror:
    """Answers with the metadata of a request."""

    async def request(self, payload: afflux.Payload) -> bytes:
        return b"none" if payload.metadata is None else payload.metadata


@pytest.fixture(params=WIRES)
def listen(request: pytest.FixtureRequest) -> str:
    return f"{request.param}tcp://127.0.0.1:0"


async def test_routing_metadata_is_the_route(listen: str) -> None:
    """message/x.rsocket.routing.v0 alone, as a client of another implementation sends it: the tags, and no header."""
    async with (
        afflux.serve(listen, router()) as server,
        afflux.connect(server.uri, metadata_mime=ROUTING_MIME) as peer,
    ):
        assert (await peer.request(b"x", metadata=b"\x04echo")).data == b"echo x"
        assert (await peer.request(b"x", metadata=b"\x04echo\x05other")).data == b"echo x"
        assert (await peer.request(b"x", metadata=b"\x09places.me")).data == b"me"
        assert (await peer.request(b"x")).data == b"no route"
        with pytest.raises(afflux.Invalid, match="cannot be read"):
            await peer.request(b"x", metadata=b"\x09echo")


@pytest.mark.parametrize("mime", OTHERS)
async def test_metadata_of_another_type_has_no_route(mime: str, listen: str) -> None:
    """It is never read as composite metadata, whatever is in it."""
    async with afflux.serve(listen, router()) as server, afflux.connect(server.uri, metadata_mime=mime) as peer:
        for said in SAID:
            assert (await peer.request(b"x", metadata=said)).data == b"no route"
    bare = afflux.Router()
    bare.request("echo")(lambda payload: payload)
    async with afflux.serve(listen, bare) as server, afflux.connect(server.uri, metadata_mime=mime) as peer:
        for said in SAID:
            with pytest.raises(afflux.Rejected):
                await peer.request(b"x", metadata=said)


async def test_what_a_client_announced_it_sends(listen: str) -> None:
    """connect(metadata_mime=…): route= is bare tags, an entry of that type goes without a header."""
    async with afflux.serve(listen, Mirror()) as server:
        async with afflux.connect(server.uri, metadata_mime=ROUTING_MIME) as peer:
            assert (await peer.request(route="echo")).data == b"\x04echo"
            assert (await peer.request(metadata=afflux.Route("a", "b"))).data == b"\x01a\x01b"
            assert (await peer.request(metadata=b"as it is")).data == b"as it is"
            assert (await peer.request()).data == b"none"
        async with afflux.connect(server.uri, metadata_mime=JSON) as peer:
            assert (await peer.request(metadata=[(JSON, b"{}")])).data == b"{}"
            assert (await peer.request(metadata=b"[]")).data == b"[]"
        for mime in (None, COMPOSITE_MIME):
            async with afflux.connect(server.uri, metadata_mime=mime) as peer:
                assert (await peer.request(route="echo")).data == b"\xfe\x00\x00\x05\x04echo"


async def test_every_verb_follows_the_type(listen: str) -> None:
    async with (
        afflux.serve(listen, router()) as server,
        afflux.connect(server.uri, metadata_mime=ROUTING_MIME) as peer,
    ):
        assert (await peer.request(b"x", route="echo")).data == b"echo x"
        await peer.fire(b"x", route="nobody")
        assert [item.data async for item in peer.stream(route="count")] == [b"1", b"2"]
        assert [item.data async for item in peer.channel([b"a", b"b"], route="back")] == [b"a", b"b"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"route": "echo"}, "a route"),
    ({"cursor": cursor.Read(shard=0, epoch=0, first=0, limit=1)}, "a cursor"),
    ({"metadata": afflux.Bearer("secret")}, "an entry of type message/x.rsocket.authentication.v0"),
    ({"route": "echo", "metadata": b"more"}, "a route and separate bytes"),
    ({"metadata": [(JSON, b"1"), (JSON, b"2")]}, "an entry of type application/json and an entry of"),
    ({"metadata": []}, "which cannot contain"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
async def test_a_type_that_cannot_store_it_raises(given: dict[str, Any], words: str, listen: str) -> None:
    """A LocalProtocolError that names the type; nothing is sent."""
    async with afflux.serve(listen, Mirror()) as server, afflux.connect(server.uri, metadata_mime=JSON) as peer:
        for ask in (
            lambda: peer.request(b"", **given),
            lambda: peer.fire(b"", **given),
            lambda: anext(aiter(peer.stream(b"", **given))),
            lambda: anext(aiter(peer.channel([b""], **given))),
        ):
            with pytest.raises(afflux.LocalProtocolError, match=JSON) as caught:
                await ask()
            assert words in str(caught.value)
        assert (await peer.request()).data == b"none"


async def test_a_route_that_can_not_be_written() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Mirror()) as server,
        afflux.connect(server.uri, metadata_mime=ROUTING_MIME) as peer,
    ):
        with pytest.raises(afflux.LocalProtocolError, match="255"):
            await peer.request(route="x" * 256)
        with pytest.raises(afflux.LocalProtocolError, match="a cursor"):
            await peer.request(route="x", cursor=WRONG[1][0]["cursor"])


async def test_the_blocking_client_follows_the_type(listen: str) -> None:
    def talk(uri: str) -> None:
        with afflux.sync.connect(uri, metadata_mime=ROUTING_MIME) as peer:
            assert peer.request(b"x", route="echo").data == b"echo x"
            peer.fire(b"x", route="nobody")
            assert [item.data for item in peer.stream(route="count")] == [b"1", b"2"]
            assert [item.data for item in peer.channel([b"a", b"b"], route="back")] == [b"a", b"b"]
        with afflux.sync.connect(uri, metadata_mime=JSON) as peer:
            for said in SAID:
                assert peer.request(b"x", metadata=said).data == b"no route"
            for given, words in WRONG:
                for ask in (
                    lambda given=given: peer.request(b"", **given),
                    lambda given=given: peer.fire(b"", **given),
                    lambda given=given: next(iter(peer.stream(b"", **given))),
                    lambda given=given: next(iter(peer.channel([b""], **given))),
                ):
                    with pytest.raises(afflux.LocalProtocolError, match=JSON) as caught:
                        ask()
                    assert words in str(caught.value)

    async with afflux.serve(listen, router()) as server:
        await asyncio.to_thread(talk, server.uri)


async def test_what_a_server_asks_its_client_follows_the_type() -> None:
    """The type is the connection's, in both directions."""
    asked: list[bytes] = []

    class Back:
        async def request(self, payload: afflux.Payload) -> bytes:
            asked.append((await afflux.current_peer().request(b"x", route="echo")).data)
            return b""

    async with (
        afflux.serve("tcp://127.0.0.1:0", Back()) as server,
        afflux.connect(server.uri, metadata_mime=ROUTING_MIME, handler=router()) as peer,
    ):
        await peer.request()
    assert asked == [b"echo x"]


async def test_an_answer_names_its_type_only_where_metadata_can() -> None:
    """RSocket R-57 needs composite metadata; on another connection the data goes alone."""
    async with afflux.serve("tcp://127.0.0.1:0", router()) as server:
        async with afflux.connect(server.uri, metadata_mime=ROUTING_MIME) as peer:
            assert await peer.request(b"null", route="type") == afflux.Payload(b'["%s"]' % ROUTING_MIME.encode())
        async with afflux.connect(server.uri) as peer:
            assert afflux.entries(await peer.request(b"null", route="type")).mime_type == JSON


@pytest.mark.parametrize("protocol", ["jmux", "rsio"])
async def test_a_protocol_without_metadata_has_typed_handlers(protocol: str) -> None:
    made = afflux.Router()

    @made.request(codec=JSON)
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    @made.stream(codec=JSON)
    async def count(most: str) -> AsyncIterator[int]:
        for number in range(len(most)):
            yield number

    async with afflux.serve(f"{protocol}+mem://typed", made) as server, afflux.connect(server.uri) as peer:
        if protocol == "jmux":
            assert (await peer.request(b"[1, 2]")).data == b"3"
        else:
            assert [item.data async for item in peer.stream(b'"ab"')] == [b"0", b"1"]


async def test_middleware_knows_the_route() -> None:
    seen: list[Any] = []

    class See(afflux.Middleware):
        async def request(self, call: Any, following: Any) -> Any:
            seen.append(call.route)
            return await following(call)

    async with afflux.serve("tcp://127.0.0.1:0", afflux.wrap(router(), See())) as server:
        async with afflux.connect(server.uri, metadata_mime=ROUTING_MIME) as peer:
            await peer.request(b"x", route="echo")
        async with afflux.connect(server.uri, metadata_mime=JSON) as peer:
            await peer.request(b"x", metadata=b"{}")
    assert seen == ["echo", None]


def test_outside_of_handlers_the_type_is_stated() -> None:
    assert afflux.route_of(afflux.Payload(b"", b"\x04echo"), ROUTING_MIME) == "echo"
    assert afflux.route_of(afflux.Payload(b"", b"\x04echo"), JSON) is None
    assert afflux.route_of(afflux.Payload(b"", b"\xfe\x00\x00\x05\x04echo")) == "echo"


def test_which_handlers_begin_again_is_known_by_the_type() -> None:
    made = afflux.Router()

    @made.stream("again")
    async def again(payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b""

    again.replays = True  # type: ignore[attr-defined]  # how a function says so
    replays = replays_of(made)
    assert replays("stream", afflux.Payload(b"", b"\x05again"), ROUTING_MIME)
    assert not replays("stream", afflux.Payload(b"", b"\x05again"), JSON)
    assert replays("stream", afflux.Payload(b"", afflux.compose(route="again")), None)


async def test_a_cursor_is_an_entry_of_composite_metadata_only(tmp_path: Path) -> None:
    """Bytes that look like one are metadata of the connection's type: the inner handler answers."""
    looks = cursor.encode_entry(cursor.Read(shard=7, epoch=0, first=0, limit=1))
    made = afflux.Router()

    @made.stream()
    async def numbers(payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield b"inner"

    async with Journalled(made, tmp_path) as handler, afflux.serve("tcp://127.0.0.1:0", handler) as server:
        async with afflux.connect(server.uri, metadata_mime="application/octet-stream") as peer:
            assert [item.data async for item in peer.stream(metadata=looks)] == [b"inner"]
        async with afflux.connect(server.uri) as peer:
            with pytest.raises(afflux.ApplicationError, match="shard 7"):
                [item async for item in peer.stream(metadata=looks)]
