"""Input after the end of a connection is thrown away at no cost, and the peer can read why the connection is over."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import afflux
from afflux import Limits
from afflux.transports.address import parse
from afflux.transports.mem import pair
from afflux.transports.reading import Receiver
from afflux.transports.ws_frames import binary
from tests.aio.handlers import Demo
from tests.transports.certificates import Certificates

MIB = 1 << 20
BLOB = b"\0\0\x40" + bytes(MIB - 3)
LIMITS = Limits.server(flush_s=0.5)
SHORT = Limits.server(flush_s=0.1)
WIRES = ("rsocket", "jmux", "reactivesocket", "rsio")
CARRIERS = ("tcp", "unix", "tls", "ws", "wss", "mem")
WORDS = {"tcp": b"GET / HTTP/1.1\r\n\r\n", "ws": b"\xff" * 100}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once: keys take time."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Attacker(Receiver):
    """Says something that ends the connection, and sends blobs behind it for as long as they are taken."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.heard = b""
        self.sent = 0
        self.lost = False
        self.full = False
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self._changed.set()

    def eof_received(self) -> bool:
        self._changed.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._changed.set()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._changed.set()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that it is told."""
        while not happened():
            self._changed.clear()
            await self._changed.wait()

    async def flood(self, blob: bytes, total: int) -> None:
        """Send blobs until the link is lost."""
        while self.sent < total and not self.lost:
            self.transport.write(blob)
            self.sent += len(blob)
            await asyncio.sleep(0)
            await self.until(lambda: not self.full or self.lost)


class Scene:
    """A server, and how to reach it without our own client."""

    def __init__(
        self, wire: str, carrier: str, folder: Path, certificates: Certificates, limits: Limits = LIMITS
    ) -> None:
        place = {"unix": f"{folder}/s", "mem": "end"}.get(carrier, "127.0.0.1:0")
        self.carrier = carrier
        secure = certificates.to_serve if carrier in ("tls", "wss") else None
        self.server = afflux.serve(f"{wire}+{carrier}://{place}", Demo(), tls=secure, limits=limits)
        self._ca = certificates.ca

    async def attacker(self) -> Attacker:
        """One who is connected, and may send bytes of the wire."""
        attacker, loop, address = Attacker(), asyncio.get_running_loop(), parse(self.server.uri)
        if self.carrier == "mem":
            driver = self.server.attach("", "mem://end")
            assert driver is not None
            pair(attacker, driver)
        elif self.carrier == "unix":
            await loop.create_unix_connection(lambda: attacker, address.path)
        else:
            tls = ssl.create_default_context(cafile=self._ca) if self.carrier in ("tls", "wss") else None
            await loop.create_connection(lambda: attacker, address.host, address.port, ssl=tls)
        if self.carrier in ("ws", "wss"):
            attacker.transport.write(UPGRADE)
            await attacker.until(lambda: b"\r\n\r\n" in attacker.heard)
            attacker.heard = b""
        return attacker

    def worded(self, data: bytes) -> bytes:
        """Bytes as the carrier has them."""
        if self.carrier in ("ws", "wss"):
            return b"".join(binary([memoryview(data)], masked=True))
        return data


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    return str(request.param)


@pytest.mark.parametrize("wire", WIRES)
async def test_input_after_the_end_is_not_kept(
    wire: str, carrier: str, tmp_path: Path, certificates: Certificates
) -> None:
    scene = Scene(wire, carrier, tmp_path, certificates, SHORT)
    async with scene.server:
        attacker = await scene.attacker()
        blob = scene.worded(BLOB)
        tracemalloc.start()
        try:
            attacker.transport.write(scene.worded(WORDS.get(carrier, WORDS["ws"])))
            await attacker.flood(blob, 64 * MIB)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Of what is kept, the attacker's own buffers are the larger part: a blob, and its copy under TLS.
        assert peak < 8 * MIB
        if wire != "rsio":  # which waits for the peer's goodbye, and reads what comes before it
            assert attacker.sent < 48 * MIB, "reading goes on, though nobody needs what is read"
        attacker.transport.abort()
        await attacker.until(lambda: attacker.lost)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_peer_that_sends_on_can_read_why_it_is_over(
    wire: str, carrier: str, tmp_path: Path, certificates: Certificates
) -> None:
    scene = Scene(wire, carrier, tmp_path, certificates)
    async with scene.server:
        attacker = await scene.attacker()
        attacker.transport.pause_reading()
        attacker.transport.write(scene.worded(WORDS["ws"]))
        await attacker.flood(scene.worded(BLOB), 4 * MIB)
        attacker.transport.resume_reading()
        await attacker.until(lambda: bool(attacker.heard))
        attacker.transport.abort()
        await attacker.until(lambda: attacker.lost)
