"""The extensible draft of RSocket over real sockets: resumption of single streams, acknowledged setup, entries.

Rule numbers are draft's.
"""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Backoff, Limits, Payload
from afflux.protocols.rsocket_draft import Entry, ExtendedPayload, resumable
from afflux.testing import Faults, Plan, Proxy
from tests.aio.handlers import Demo

URI = "rsocket-draft+tcp://127.0.0.1:0"
LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.001, most=0.001, jitter=0.0)
OWN = Entry("own", b"1", True)


def cut(*after: tuple[int | None, int | None]) -> Plan:
    """Cut each of the first connections after some bytes, to the server or to the client."""
    ends = (*after, *[(None, None)] * 1000)
    return lambda number: (Faults(cut_after=ends[number][0]), Faults(cut_after=ends[number][1]))


def asking(uri: str) -> str:
    """The address, with an acknowledged setup."""
    return f"{uri}?ack=yes"


async def test_a_stream_that_opted_in_survives_cuts() -> None:
    """R-41: no item is lost, none comes twice."""
    async with afflux.serve(URI, Demo(), resume=True, limits=LIMITS) as server:
        cuts = [(None, size) for size in range(150, 900, 61)] + [(size, None) for size in range(200, 600, 97)]
        async with Proxy(server.uri, plan=cut(*cuts)) as proxy:
            async with afflux.connect(asking(proxy.uri), resume=SOON, limits=LIMITS) as peer:
                items = [int(item.data) async for item in peer.stream(resumable(b"500"), credit=4)]
                assert items == list(range(500))
                assert proxy.connections > 5
                assert len(server.connections) == 1


async def test_a_stream_that_did_not_opt_in_ends_with_its_transport() -> None:
    """R-40."""

    class Ticks(Demo):
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            yield b"first"
            if payload.data == b"plain":
                await asyncio.Event().wait()
            await self.fired.get()
            yield b"second"

    ticks = Ticks()
    async with afflux.serve(URI, ticks, resume=True, limits=LIMITS) as server:
        async with afflux.connect(asking(server.uri), resume=SOON, limits=LIMITS) as peer:
            plain, kept = peer.stream(b"plain"), peer.stream(resumable(b"kept"))
            assert [(await anext(plain)).data, (await anext(kept)).data] == [b"first"] * 2
            peer.cut()
            with pytest.raises(afflux.Rejected) as caught:
                await anext(plain)
            assert caught.value.rule == "R-40"
            await peer.fire(b"go on")
            assert (await anext(kept)).data == b"second"


async def test_R_21_a_setup_that_is_acknowledged() -> None:
    async with afflux.serve(URI, Demo()) as server, afflux.connect(asking(server.uri)) as peer:
        assert await peer.request(b"x") == Payload(b"x")
        assert server.connections[0].setup.ack


async def test_R_23_D_15_a_server_that_does_not_acknowledge() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        uri = f"rsocket-draft+tcp://127.0.0.1:{port}?ack=yes"
        async with afflux.connect(uri, limits=Limits.server(handshake_s=0.05)) as peer:
            with pytest.raises(afflux.Error, match="handshake-timeout"):
                await peer.request(b"x")


@pytest.mark.parametrize("options", ["", "?ack=yes"])
async def test_entries_on_EXT(options: str) -> None:
    """R-9; an entry that is sent before SETUP_OK waits for it, as requests do."""
    told: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def own(stream: int, body: bytes) -> None:
        await told.put((stream, body))

    async with afflux.serve(URI, Demo(), extensions={"own": own, 7: own}) as server:
        async with afflux.connect(server.uri + options) as peer:
            await peer.extend(OWN)
            await peer.extend(7, b"extended type", stream=3)
            assert [await told.get(), await told.get()] == [(0, b"1"), (3, b"extended type")]
            with pytest.raises(afflux.LocalProtocolError) as caught:
                await peer.extend(OWN, b"body")
            assert caught.value.rule == "R-9"
            with pytest.raises(afflux.LimitExceeded):
                await peer.extend(Entry("own", bytes(peer.limits.frame_bytes), True))
            assert await peer.request(b"x") == Payload(b"x")


async def test_items_with_entries_reach_the_program() -> None:
    class Tagged(Demo):
        async def stream(self, payload: Payload) -> AsyncIterator[Any]:
            for number in range(300):
                yield ExtendedPayload(b"%03d" % number, entries=(OWN, Entry("own", b"2", True)))

    known: Any = {"own": lambda stream, body: None}
    async with afflux.serve(URI, Tagged()) as server, afflux.connect(server.uri, extensions=known) as peer:
        items: list[Any] = [item async for item in peer.stream(b"")]
        assert [int(item.data) for item in items] == list(range(300))
        assert {len(item.entries) for item in items} == {2}


async def test_sessions_of_the_draft_cannot_be_stored(tmp_path: Path) -> None:
    """The error names what works."""
    path = tmp_path / "sessions"
    for make in (
        lambda: afflux.connect(URI, resume=True, store=path),
        lambda: afflux.serve(URI, Demo(), resume=True, store=path),
    ):
        with pytest.raises(afflux.Unsupported, match=r'rsocket-draft has no "store".*resume=True without store='):
            make()
    assert not path.exists()
