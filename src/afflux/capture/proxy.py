"""Relay connections to a server and record what passes: the bytes inside TLS too, because the proxy ends it.

The proxy reads no further than the slower side takes, so back-pressure passes through. A side that takes no more has a
closed window in the recording. A connection that breaks ends alone. A recording that raises ends the proxy.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from afflux.capture.recording import LARGEST, Host, Line, Recording
from afflux.core.errors import AddressError, BindFailed, ConnectFailed
from afflux.core.limits import Limits
from afflux.transports import unix
from afflux.transports.address import Address, parse
from afflux.transports.security import client_context, public, refusal, server_context, server_name
from afflux.transports.tcp import why_not

__all__ = ["RecordingProxy"]

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_BREAKS = (OSError, RuntimeError)
"What a connection raises when it has broken: uvloop's closed transports raise RuntimeError."
_LOCAL = "127.0.0.1"
_LAST_PORT = 0xFFFF


class RecordingProxy:
    """Listen at one address, relay each connection to another, and record it::

        async with RecordingProxy("tcp://127.0.0.1:0", "tls://broker:7000", recording) as proxy: ...

    WebSocket addresses are relayed as bytes, with their handshake. TLS of each side is that of its address.

    Args:
        listen: the address to listen on.
        to: the address of the server.
        recording: takes the packets.
        limits: see ``connections`` and ``handshake_s``.
        report: is called with the reason if the server cannot be connected to, once for the same reason in succession.

    Raises:
        AddressError: an address is wrong, or its transport cannot be relayed.
    """

    def __init__(
        self, listen: str, to: str, recording: Recording, *, limits: Limits | None = None,
        report: Callable[[str], object] | None = None,
    ) -> None:  # fmt: skip
        self._listen, self._to = (_relayable(parse(uri, serving=True)) for uri in (listen, to))
        self._to.check_port()
        self._recording = recording
        self._limits = Limits.server() if limits is None else limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server
        self._report, self._reported = report, ""
        self.connections = 0
        "Connections so far."
        self.unconnected = 0
        "Those for which the server could not be connected to."
        self.uri = ""
        "The address that clients connect to."
        self.failed: asyncio.Future[None]
        "Fails when the recording fails: the proxy is of no use any more."

    async def __aenter__(self) -> Self:
        self.failed = asyncio.get_running_loop().create_future()
        address = self._listen
        if self._to.carrier.secure:
            client_context(None, self._to)  # a wrong one is told now
        options: dict[str, Any] = {"limit": LARGEST}
        if address.carrier.secure:
            options |= {"ssl": server_context(None, address), "ssl_handshake_timeout": self._limits.handshake_s}
        try:
            if address.transport == "unix":
                self._listener = await asyncio.start_unix_server(self._accept, sock=unix.bound(address), **options)
            else:
                self._listener = await asyncio.start_server(self._accept, address.host, address.port, **options)
                address = replace(address, port=self._listener.sockets[0].getsockname()[1])
        except OSError as error:
            text = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or error
            if address.transport == "unix":
                text = unix.why_not(error, address.path)
            raise BindFailed(f"cannot listen on {address}: {text}") from error
        self.uri = str(public(address))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.failed.done():
            self.failed.exception()
        else:
            self.failed.cancel()
        if self._listen.transport == "unix":
            Path(self._listen.path).unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._limits.connections or self.failed.done():
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._relay((reader, writer), self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _relay(self, near: _Streams, number: int) -> None:
        """Relay one connection. Raises only if the recording fails."""
        far: _Streams | None = None
        client = _end(near[1], "peername", 1_024 + number % (_LAST_PORT - 1_023))
        try:
            far = await self._connect()
        except ConnectFailed as error:
            self._refused(error.message, client)
            near[1].transport.abort()
            return
        try:
            server = _end(far[1], "peername", 1)
            name = self._to.host if self._to.host != server[0] else ""
            line = self._recording.connect(client, server, time.time_ns(), name=name, comment=self._comment())
            self._reported = ""
            await self._both(near, far, line)
        finally:
            for _, writer in (near, far):
                writer.close()

    def _refused(self, reason: str, client: Host) -> None:
        """Report and record that there is no connection to the server."""
        self.unconnected += 1
        if self._report is not None and reason != self._reported:
            self._report(reason)
        self._reported = reason
        line = self._recording.connect(client, (_LOCAL, self._to.port or 1), time.time_ns(), comment=reason)
        line.reset(False, time.time_ns())

    async def _both(self, near: _Streams, far: _Streams, line: Line) -> None:
        """Relay both directions until both have ended or one has failed."""
        create = asyncio.get_running_loop().create_task
        ways = [create(self._one(True, near[0], far[1], line)), create(self._one(False, far[0], near[1], line))]
        try:
            for way in asyncio.as_completed(ways):
                if not await way:
                    break
        finally:
            for _, writer in (near, far):
                if any(not way.done() for way in ways):
                    writer.transport.abort()
            for task in ways:
                task.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _one(self, client: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> bool:
        """Relay one direction; return whether it has ended in order."""
        try:
            while data := await _read(reader, client):
                line.data(client, data, time.time_ns())
                await _write(writer, data, not client, line)
        except _Broken as broken:
            line.reset(broken.client, time.time_ns())
            return False
        line.end(client, time.time_ns())
        with suppress(*_BREAKS):
            if writer.can_write_eof():
                writer.write_eof()
            else:
                writer.close()
        return True

    async def _connect(self) -> _Streams:
        """Connect to the server. Raises ConnectFailed."""
        address, options = self._to, dict[str, Any](limit=LARGEST)
        name = ""
        if address.carrier.secure:
            name = server_name(None, address)
            options |= {"ssl": client_context(None, address), "server_hostname": name}
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                if address.transport == "unix":
                    return await asyncio.open_unix_connection(address.path, **options)
                return await asyncio.open_connection(address.host, address.port, **options)
        except TimeoutError as error:
            raise ConnectFailed(f"no connection to {address} within {self._limits.handshake_s} s") from error
        except OSError as error:
            if type(error).__module__ == "ssl":
                raise refusal(error, address, name) from error
            raise ConnectFailed(why_not(address, error)) from error

    def _comment(self) -> str:
        plain = [side for side, one in (("client", self._listen), ("server", self._to)) if one.carrier.secure]
        removed = f"; TLS with the {' and the '.join(plain)} removed" if plain else ""
        return f"recorded between {public(self._listen)} and {self._to}{removed}"


class _Broken(Exception):
    """The connection of one side has broken."""

    def __init__(self, client: bool) -> None:
        super().__init__()
        self.client = client


async def _read(reader: asyncio.StreamReader, client: bool) -> bytes:
    """Return bytes that one side has sent; none at their end. Raises _Broken."""
    try:
        return await reader.read(LARGEST)
    except _BREAKS as error:
        raise _Broken(client) from error


async def _write(writer: asyncio.StreamWriter, data: bytes, client: bool, line: Line) -> None:
    """Write to one side, and record that its window is closed while it takes no more. Raises _Broken."""
    try:
        writer.write(data)
        waits = await _waits(writer)
    except _BREAKS as error:
        raise _Broken(client) from error
    if waits:
        line.window(client, False, time.time_ns())
    try:
        await writer.drain()
    except _BREAKS as error:
        raise _Broken(client) from error
    if waits:
        line.window(client, True, time.time_ns())


async def _waits(writer: asyncio.StreamWriter) -> bool:
    """Return whether more bytes wait for the other end than ``drain`` lets pass. Loops write at their next turn."""
    most = writer.transport.get_write_buffer_limits()[1]
    if writer.transport.get_write_buffer_size() > most:
        await asyncio.sleep(0)
    return writer.transport.get_write_buffer_size() > most


def _relayable(address: Address) -> Address:
    if address.transport == "mem":
        raise AddressError("a proxy relays between processes: mem addresses are within one")
    return address


def _end(writer: asyncio.StreamWriter, what: str, port: int) -> Host:
    """Return an end of a connection; a local one with ``port`` if it has no address, such as a Unix socket."""
    name = writer.get_extra_info(what)
    return (name[0], name[1]) if isinstance(name, tuple) and len(name) >= 2 else (_LOCAL, port)
