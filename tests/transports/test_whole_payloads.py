"""Payloads in one frame, as other implementations send them, over every transport and by both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux.core.limits import Limits
from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, Kind, Place

MOST = Limits.server().payload_bytes
WIRES = ("rsocket", "reactivesocket")


class EchoOnce:
    async def request(self, payload: afflux.Payload) -> bytes:
        return payload.data


class Echo:
    async def request(self, payload: afflux.Payload) -> bytes:
        """The same, or of the size that is asked for."""
        return bytes(int(payload.data)) if len(payload.data) < 20 else payload.data

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield payload.data
        yield b"end"

    async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A wire whose ends cut no payload, as those of other implementations do not."""
    for name in WIRES:
        monkeypatch.setattr(f"afflux.protocols.{name}.engine.DEFAULT_MTU", 0xFFFFFF)
    return str(request.param)


def place(kind: Kind, wire: str, folder: Path, certificates: Certificates) -> Place:
    at = Place(kind, folder, certificates)
    if wire != "rsocket":
        at.uri = f"{wire}+{at.uri}"
    return at


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_asyncio(kind: Kind, wire: str, tmp_path: Path, certificates: Certificates) -> None:
    """limits.md, frame_bytes: a payload of P passes in each direction; of P + 1 it is refused, and nothing else is."""
    at = place(kind, wire, tmp_path, certificates)
    whole = bytes(range(256)) * (MOST // 256)
    async with at.serve(Echo()) as server, at.connect(server.uri) as peer:
        assert (await peer.request(whole)).data == whole
        items = [item.data async for item in peer.stream(whole)]
        assert items == [whole, b"end"]
        items = [item.data async for item in peer.channel([whole, b"2", whole])]
        assert items == [whole, b"2", whole]
        with pytest.raises(afflux.Rejected, match="payload-too-large"):
            await peer.request(whole + b"x")
        with pytest.raises(afflux.LimitExceeded, match="payload-too-large"):
            await peer.request(b"%d" % (MOST + 1))
        await peer.fire(whole + b"x")
        assert (await peer.request(b"5")).data == bytes(5)
        assert server.connections and not server.connections[0].closed


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.blocking], ids=lambda kind: kind.name)
async def test_blocking(kind: Kind, wire: str, tmp_path: Path, certificates: Certificates) -> None:
    """The same of a blocking client."""
    at = place(kind, wire, tmp_path, certificates)
    whole = bytes(range(256)) * (MOST // 256)

    def talk(uri: str) -> Any:
        with at.dial(uri) as peer:
            assert peer.request(whole).data == whole
            assert [item.data for item in peer.stream(whole)] == [whole, b"end"]
            assert [item.data for item in peer.channel([whole, b"2", whole])] == [whole, b"2", whole]
            with pytest.raises(afflux.Rejected, match="payload-too-large"):
                peer.request(whole + b"x")
            with pytest.raises(afflux.LimitExceeded, match="payload-too-large"):
                peer.request(b"%d" % (MOST + 1))
            return peer.request(b"5").data

    async with at.serve(Echo()) as server:
        assert await asyncio.to_thread(talk, server.uri) == bytes(5)


class Publishes:
    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        yield bytes(MOST)


@pytest.mark.parametrize("wire", ["jmux", "rsio"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_the_other_wires(kind: Kind, wire: str, tmp_path: Path, certificates: Certificates) -> None:
    """Payloads of P on the wires that have no frames of their own size, by both drivers."""
    at = place(kind, wire, tmp_path, certificates)
    whole = bytes(range(256)) * (MOST // 256)

    def talk(uri: str) -> bool:
        with at.dial(uri) as peer:
            if wire == "jmux":
                return peer.request(whole).data == whole
            return [item.data for item in peer.subscribe("all")] == [bytes(MOST)]

    async with at.serve(EchoOnce() if wire == "jmux" else Publishes()) as server, at.connect(server.uri) as peer:
        if wire == "jmux":
            assert (await peer.request(whole)).data == whole
        else:
            assert [item.data async for item in peer.subscribe("all")] == [bytes(MOST)]
        assert not kind.blocking or await asyncio.to_thread(talk, server.uri)
