"""The transports under test, and the tools of the check that each has to pass: test_check.py, test_check_verbs.py.

A new transport adds one line to KINDS. The raw check speaks in frames with a length of three bytes before them, as
RSocket does on TCP, so that a transport of messages can pass it as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import afflux
import afflux.sync
from afflux.core.limits import Limits
from afflux.transports.address import parse
from tests.transports.certificates import Certificates

PIECE = 60_000
"Bytes of a frame, when there is much to send."


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A transport, and what cannot be asked of it."""

    name: str
    uri: str
    "Where a server listens; {path} is the test's own folder."
    blocking: bool = True
    "It has a blocking side."
    sockets: bool = True
    "It goes over sockets: faults can be put in between."
    one_half: bool = True
    "One half can end while the other goes on."


KINDS = (
    Kind(name="mem", uri="mem://check", blocking=False, sockets=False),
    Kind(name="tcp", uri="tcp://127.0.0.1:0"),
    Kind(name="tls", uri="tls://127.0.0.1:0"),
    Kind(name="unix", uri="unix://{path}/check.sock"),
    Kind(name="ws", uri="ws://127.0.0.1:0/check", one_half=False),
    Kind(name="wss", uri="wss://127.0.0.1:0/check", one_half=False),
)


class Place:
    """A transport in one test: where to listen, and the certificates."""

    def __init__(self, kind: Kind, folder: Path, certificates: Certificates) -> None:
        self.kind = kind
        self.uri = kind.uri.format(path=folder)
        secure = parse(self.uri).carrier.secure
        self.to_serve = certificates.to_serve if secure else None
        self.to_connect = certificates.to_connect if secure else None

    def serve(self, handler: object, **more: Any) -> afflux.Server:
        """A server."""
        return afflux.serve(self.uri, handler, tls=self.to_serve, **more)

    def connect(self, uri: str, **more: Any) -> Any:
        """A client under asyncio."""
        return afflux.connect(uri, tls=self.to_connect, **more)

    def dial(self, uri: str, **more: Any) -> afflux.sync.Peer:
        """A blocking client."""
        return afflux.sync.connect(uri, tls=self.to_connect, **more)

    @asynccontextmanager
    async def pair(self) -> AsyncIterator[tuple[End, End]]:
        """A client's end and a server's end, connected."""
        client, server = End(), End()
        address = parse(self.uri)
        listener = await address.carrier.load().listen(address, Everyone(), lambda host: server, self.to_serve)
        try:
            await address.carrier.load().open(listener.address, lambda: client, self.to_connect)
            await server.until(lambda: "made" in server.told)
            yield client, server
        finally:
            listener.close()
            for end in (client, server):
                if "lost" not in end.told:
                    end.transport.abort()
                await end.until(lambda end=end: "lost" in end.told)  # type: ignore[misc] # of this turn


class Everyone:
    """Lets everyone in. See transports.base.Admission."""

    flush = 1.0
    reuse_port = False

    def exhausted(self, error: OSError) -> float:
        """Waits a second."""
        return 1.0

    def admit(self, host: str) -> str | None:
        """Yes."""
        return None

    def refuse_page(self, origins: list[str], hosts: list[str]) -> str | None:
        """No."""
        return None

    def last_words(self, reason: str) -> bytes:
        """Nobody is refused."""
        return b""

    def delay(self) -> float:
        """At once."""
        return 0.0


class End(asyncio.Protocol):
    """One end of a link: writes down what it is told."""

    def __init__(self) -> None:
        self.limits = Limits.server()
        self.transport: asyncio.Transport
        self.told: list[str] = []
        "made, eof, lost."
        self.frames: list[bytes] = []
        self.paused = False
        self.stays = False
        "Goes on when the other end has ended its half."
        self.breathes = False
        "Pauses after all input, and continues in the next turn. No end may come before."
        self._pausing = False
        self.error: Exception | None = None
        self._rest = b""
        self._changed = asyncio.Event()

    # What it is told.

    def held_below(self, size: int) -> None:
        pass

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._note("made")

    def data_received(self, data: bytes) -> None:
        assert data and "made" in self.told and "eof" not in self.told and "lost" not in self.told
        if self.breathes:
            self._pausing = True
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._continue)
        self._rest += data
        at = 0
        while len(self._rest) - at >= 3:
            end = at + 3 + int.from_bytes(self._rest[at : at + 3], "big")
            if end > len(self._rest):
                break
            self.frames.append(self._rest[at + 3 : end])
            at = end
        self._rest = self._rest[at:]
        self._changed.set()

    def _continue(self) -> None:
        self._pausing = False
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        assert not self._pausing
        self._note("eof")
        return self.stays

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._note("lost")

    def pause_writing(self) -> None:
        assert not self.paused
        self.paused = True
        self._changed.set()

    def resume_writing(self) -> None:
        assert self.paused
        self.paused = False
        self._changed.set()

    def _note(self, what: str) -> None:
        self.told.append(what)
        self._changed.set()

    # What a test does.

    def send(self, *frames: bytes) -> None:
        """Write frames."""
        for data in frames:
            self.transport.write(framed(data))

    async def send_slowly(self, frames: list[bytes]) -> None:
        """Write frames, no faster than the link takes them."""
        for data in frames:
            await self.until(lambda: not self.paused)
            self.send(data)
            await asyncio.sleep(0)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that this end is told."""
        while not happened():
            self._changed.clear()
            await self._changed.wait()


def framed(data: bytes) -> bytes:
    """Data behind its length."""
    return len(data).to_bytes(3, "big") + data


def numbered(count: int, size: int = PIECE) -> list[bytes]:
    """Frames that can be told from each other."""
    return [b"%d:" % i + bytes([i % 256]) * (size - len(b"%d:" % i)) for i in range(count)]


async def turns_until(happened: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    while not happened():
        await asyncio.sleep(0)
