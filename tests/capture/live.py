"""Capture what passes the loopback interface with dumpcap, as it passes. Contains no tests."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.capture.reading import followed

__all__ = ["Sniffer", "needs_dumpcap", "sniffing"]

DUMPCAP = shutil.which("dumpcap")
needs_dumpcap = pytest.mark.skipif(DUMPCAP is None, reason="dumpcap is not installed: apt-get install wireshark-common")
MARK = b"mark %d of a test of afflux"


class Sniffer:
    """The packets of one port so far, as pcapng. A datagram marks a moment: when it was captured, everything before
    it was."""

    def __init__(self, process: asyncio.subprocess.Process, marks: socket.socket) -> None:
        self._process = process
        self._marks = marks
        self._marked = 0
        self.data = b""

    async def read(self) -> bool:
        """Wait for more packets; return whether there were any."""
        assert self._process.stdout is not None
        more = await self._process.stdout.read(1 << 20)
        self.data += more
        return bool(more)

    async def until(self, test: Callable[[bytes], bool]) -> bytes:
        """Wait until the capture passes a test, and return it."""
        while not test(self.data):
            assert await self.read(), "dumpcap has ended"
        return self.data

    async def now(self) -> bytes:
        """Return the capture of everything that has passed so far."""
        self._marked += 1
        text = MARK % self._marked
        self._marks.sendto(text, self._marks.getsockname())
        return await self.until(lambda data: text in data)

    async def closed(self, connections: int = 1) -> bytes:
        """Return the capture when so many connections have ended."""

        def over(data: bytes) -> bool:
            return sum(one.connection.closed for one in followed(data).connections) >= connections

        return await self.until(over)


@asynccontextmanager
async def sniffing(port: int) -> AsyncIterator[Sniffer]:
    """Capture the TCP connections of a local port. Skips the test where that is not permitted."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marks:
        marks.bind(("127.0.0.1", 0))
        chosen = f"tcp port {port} or udp port {marks.getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            DUMPCAP or "", "-q", "-B", "64", "-i", "lo", "-f", chosen, "-w", "-",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        sniffer = Sniffer(process, marks)
        try:
            if not await sniffer.read():
                assert process.stderr is not None
                pytest.skip("dumpcap cannot capture: " + (await process.stderr.read()).decode()[-200:])
            yield sniffer
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()
