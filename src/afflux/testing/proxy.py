"""Relay connections between a client and a server on real sockets, TCP or Unix, with faults.

The proxy does not interpret the bytes: TLS and WebSocket pass unchanged.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, Self

from afflux.calls.arguments import AsyncOnly
from afflux.testing.faults import FLAWLESS, Faults, Plan, Weather
from afflux.transports.address import parse

__all__ = ["Proxy", "Relay"]

_READ: Final = 0x4000
_AHEAD: Final = 64
"Pieces that are read and not written yet, in each direction."
_RESET: Final = struct.pack("ii", 1, 0)
"SO_LINGER that makes a close a reset."

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy(AsyncOnly):
    """Relay connections to the server at ``uri``, with faults::

        async with afflux.testing.Proxy(server.uri, to_client=Faults(cut_after=1000)) as proxy:
            async with afflux.connect(proxy.uri, resume=True) as peer: ...

    Args:
        uri: the address of the server; assign ``server`` to send further connections elsewhere.
        to_server, to_client: the faults of each direction.
        plan: returns both for each connection; called with the connection's number. Replaces the two.
        seed: seed of all random decisions; connections of the same number behave the same.
    """

    def __init__(
        self,
        uri: str,
        *,
        to_server: Faults = FLAWLESS,
        to_client: Faults = FLAWLESS,
        plan: Plan | None = None,
        seed: int = 0,
    ) -> None:
        self.server = uri
        "The address that connections are relayed to."
        self.uri = ""
        "The address of the proxy, for clients."
        self.reachable = True
        "Set it to False to close further connections immediately."
        self.relays: list[Relay] = []
        "The connections so far."
        self._plan: Plan = plan or (lambda number: (to_server, to_client))
        self._seed = seed
        self._listener: asyncio.Server
        self._folder: TemporaryDirectory[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        return len(self.relays)

    def hold(self) -> None:
        """Relay nothing, in either direction, until ``release``."""
        self._open.clear()

    def release(self) -> None:
        """Relay again."""
        self._open.set()

    def cut(self, *, reset: bool = False) -> None:
        """Break every connection; bytes in flight are lost. With ``reset`` both ends receive a reset."""
        for relay in self.relays:
            relay.cut(reset=reset)

    async def __aenter__(self) -> Self:
        address = parse(self.server, serving=True)
        if address.transport == "unix":
            self._folder = TemporaryDirectory()
            path = Path(self._folder.name, "proxy.sock")
            self._listener = await asyncio.start_unix_server(self._accept, path)
            self.uri = str(replace(address, path=str(path)))
        else:
            self._listener = await asyncio.start_server(self._accept, address.host, 0)
            self.uri = str(address.at(port=self._listener.sockets[0].getsockname()[1]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._listener.wait_closed()
        if self._folder is not None:
            self._folder.cleanup()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.relays)
        ways = [
            Weather(faults, Random(f"{self._seed} {number} {way}"))
            for way, faults in enumerate(self._plan(number) if self.reachable else (FLAWLESS, FLAWLESS))
        ]
        relay = Relay(number, writer)
        self.relays.append(relay)
        if not self.reachable:
            relay.cut()
            return
        try:
            far = await self._connect()
        except OSError:
            relay.cut()
            return
        relay.writers.append(far[1])
        for weather, source, target in zip(ways, (reader, far[0]), (far[1], writer), strict=True):
            self._start(relay, weather, source, target)

    async def _connect(self) -> _Streams:
        address = parse(self.server, serving=True)
        if address.transport == "unix":
            return await asyncio.open_unix_connection(address.path)
        return await asyncio.open_connection(address.host, address.port)

    def _start(
        self, relay: Relay, weather: Weather, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_AHEAD)
        for work in (_take(weather, source, pieces), self._give(relay, weather, pieces, target)):
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give(
        self,
        relay: Relay,
        weather: Weather,
        pieces: asyncio.Queue[tuple[float, bytes]],
        target: asyncio.StreamWriter,
    ) -> None:
        """Write each piece when it is due."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while True:
                due, data = await pieces.get()
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                await self._open.wait()
                if not data:
                    relay.ended.set()
                    break
                size, breaks = weather.arriving(len(data))
                target.write(data[:size])
                await target.drain()
                if breaks:
                    # Closed, not aborted: bytes that were relayed arrive.
                    target.close()
                    await target.wait_closed()
                    relay.cut()
                    return
            if not (weather.silent or target.is_closing()):
                target.write_eof()


class Relay:
    """One connection of a proxy."""

    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        "The number of the connection in its proxy, from 0."
        self.writers = [writer]
        self.ended = asyncio.Event()
        "Set when one of the two ends has closed the connection, or it was cut."

    def cut(self, *, reset: bool = False) -> None:
        """Break the connection; bytes in flight are lost. With ``reset`` both ends receive a reset."""
        self.ended.set()
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            if reset and sock is not None:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


async def _take(weather: Weather, source: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
    """Read, and decide how the bytes travel. A broken connection counts as an end."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await source.read(_READ):
            while data:
                size = weather.piece(len(data))
                await pieces.put((weather.due(size, loop.time()), data[:size]))
                data = data[size:]
    await pieces.put((weather.due(0, loop.time()), b""))
