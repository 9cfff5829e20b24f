"""Clients that connect again, and extensions of the protocol."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from random import Random

import pytest

import afflux
from afflux import Backoff, Payload
from afflux.protocols.rsocket.frames import ErrorFrame
from tests.aio.handlers import Demo, Waits

SOON = Backoff(first=0.001, most=0.001)


async def test_a_client_connects_again() -> None:
    """What was under way has failed; what comes later goes over the next connection."""
    waits = Waits()
    server = await afflux.serve("tcp://127.0.0.1:0", waits)
    uri = server.uri
    async with afflux.connect(uri, reconnect=SOON) as peer:
        asked = asyncio.ensure_future(peer.request(b"under way"))
        await waits.entered.get()
        await server.close()
        with pytest.raises(afflux.ConnectionClosed):
            await asked
        async with afflux.serve(uri, Demo()):
            assert (await peer.request(b"x")).data == b"x"
            assert [item.data async for item in peer.stream(b"3")] == [b"0", b"1", b"2"]
            assert not peer.closed


@pytest.mark.parametrize("verb", ["request", "fire", "push", "stream", "channel"])
async def test_each_verb_waits_for_the_next_connection(verb: str) -> None:
    demo = Demo()
    server = await afflux.serve("tcp://127.0.0.1:0", Demo())
    async with afflux.connect(server.uri, reconnect=Backoff(first=0.05, jitter=0.0)) as peer:
        await peer.request(b"")
        await server.close()
        await peer.wait_closed()
        async with afflux.serve(server.uri, demo):
            if verb == "request":
                assert (await peer.request(b"x")).data == b"x"
            elif verb == "fire":
                await peer.fire(b"x")
                assert (await demo.fired.get()).data == b"x"
            elif verb == "push":
                await peer.push(b"x")
                assert await demo.pushed.get() == b"x"
            elif verb == "stream":
                assert [item.data async for item in peer.stream(b"2")] == [b"0", b"1"]
            else:
                async with peer.channel([b"a", b"b"]) as items:
                    assert [item.data async for item in items] == [b"a", b"b"]


async def test_a_client_that_is_refused_again_and_again_uses_up_its_tries() -> None:
    """A refusal comes after the transport is there: it is one more try all the same, and not the first of new ones."""
    refused = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refused
        await reader.readuntil(b"asked")
        refused += 1
        writer.write(ErrorFrame(stream=0, code=3, data=b"full").encode(prefixed=True))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        patient = Backoff(first=0.001, most=0.001, tries=4)
        async with afflux.connect(f"tcp://127.0.0.1:{port}", reconnect=patient) as peer:
            for _ in range(9):
                with pytest.raises(afflux.SetupRefused, match="full"):
                    await peer.request(b"asked")
    assert refused == 5


async def test_the_handler_comes_along() -> None:
    class Asks:
        async def request(self, payload: Payload) -> bytes:
            return (await afflux.current_peer().request(b"back")).data

    server = await afflux.serve("tcp://127.0.0.1:0", Asks())
    async with afflux.connect(server.uri, handler=Demo(), reconnect=SOON) as peer:
        assert (await peer.request(b"")).data == b"back"
        await server.close()
        async with afflux.serve(server.uri, Asks()):
            assert (await peer.request(b"")).data == b"back"


async def test_patience_ends() -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Demo())
    async with afflux.connect(server.uri, reconnect=Backoff(patience=0.02)) as peer:
        await peer.request(b"")
        await server.close()
        await peer.wait_closed()
        with pytest.raises(afflux.ConnectFailed, match=r"did not come back within 0\.02 s"):
            await peer.request(b"")


async def test_the_end_of_patience_names_the_last_failure() -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Demo())
    async with afflux.connect(server.uri, reconnect=Backoff(first=0.001, most=0.001, patience=0.2)) as peer:
        await peer.request(b"")
        await server.close()
        await peer.wait_closed()
        with pytest.raises(
            afflux.ConnectFailed, match=r"within 0\.2 s: cannot connect to .*: refused: nothing listens"
        ):
            await peer.request(b"")


async def test_tries_end() -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Demo())
    async with afflux.connect(server.uri, reconnect=Backoff(first=0.001, most=0.001, tries=2)) as peer:
        await peer.request(b"")
        await server.close()
        await peer.wait_closed()
        for _ in range(2):  # each who asks gets an error of its own
            with pytest.raises(afflux.ConnectFailed, match="refused"):
                await peer.request(b"")


async def test_closing_ends_the_tries() -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Demo())
    peer = await afflux.connect(server.uri, reconnect=Backoff(first=5, most=5))
    await peer.request(b"")
    await server.close()
    await peer.wait_closed()
    asked = asyncio.ensure_future(peer.request(b""))
    await asyncio.sleep(0)
    await peer.close()
    with pytest.raises(afflux.ConnectionClosed):
        await asked
    with pytest.raises(afflux.ConnectionClosed):
        await peer.request(b"")


async def test_a_session_that_can_not_be_resumed_is_begun_anew() -> None:
    """Both together: resume if the server still knows the session, else connect again."""
    server = await afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True)
    limits = afflux.Limits.server(resume_rate=(1000, 0.0))
    async with afflux.connect(server.uri, resume=SOON, reconnect=SOON, limits=limits) as peer:
        await peer.request(b"1")
        await server.close()
        async with afflux.serve(server.uri, Demo(), resume=True):
            assert (await peer.request(b"2")).data == b"2"


def test_waits() -> None:
    assert list(Backoff(first=1, factor=2, most=5, jitter=0, tries=5).waits(Random(1))) == [1, 2, 4, 5, 5]
    shorter = list(Backoff(first=1, factor=1, most=1, jitter=0.5, tries=200).waits(Random(1)))
    assert 0.5 <= min(shorter) < 0.55 and 0.95 < max(shorter) <= 1.0


@pytest.mark.parametrize(
    "wrong", [{"first": -1}, {"first": 2, "most": 1}, {"factor": 0.5}, {"jitter": 2}, {"tries": 0}, {"patience": -1}]
)
def test_waits_that_can_not_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"invalid Backoff|tries must be 1 or more"):
        Backoff(**wrong)


async def test_extensions_both_ways(uri: str) -> None:
    """EXT frames that both sides know, with answers to match."""
    heard = asyncio.Queue[tuple[str, int, bytes]]()

    async def at_server(stream: int, body: bytes) -> None:
        await heard.put(("server", stream, body))
        await afflux.current_peer().extend(0x11, body.upper())

    def at_client(stream: int, body: bytes) -> None:
        heard.put_nowait(("client", stream, body))

    async with afflux.serve(uri, Demo(), extensions={0x10: at_server}) as server:
        async with afflux.connect(server.uri, extensions={0x11: at_client}) as peer:
            await peer.extend(0x10, b"hello", stream=7)
            assert await heard.get() == ("server", 7, b"hello")
            assert await heard.get() == ("client", 0, b"HELLO")
            await peer.extend(0x99, b"nobody knows it, and may skip it")
            assert (await peer.request(b"x")).data == b"x"
            await peer.extend(0x99, b"nobody knows it", ignore=False)
            with pytest.raises(afflux.ConnectionClosed, match="not supported"):
                await peer.request(b"x")


async def test_extensions_that_can_not_be(uri: str) -> None:
    async with afflux.serve(uri, Demo()) as server:
        async with afflux.connect(server.uri) as peer:
            with pytest.raises(afflux.LocalProtocolError, match="an extended type is"):
                await peer.extend(0, b"")
            with pytest.raises(afflux.LimitExceeded):
                await peer.extend(1, b"x" * peer.limits.frame_bytes)


async def test_an_extension_that_fails_harms_no_other(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(stream: int, body: bytes) -> None:
        raise RuntimeError("no")

    async with afflux.serve(uri, Demo(), extensions={1: broken}) as server:
        async with afflux.connect(server.uri) as peer:
            await peer.extend(1)
            assert (await peer.request(b"x")).data == b"x"
    assert "a handler raised: extension 1, stream 0, peer " in caplog.text
