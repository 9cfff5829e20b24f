"""Serve a handler inside a web framework, on the WebSockets of an ASGI server.

::

    app = Starlette(routes=[Mount("/rs", afflux.asgi.app(handler))])      # uvicorn module:app
    peer = await afflux.connect("ws://127.0.0.1:8000/rs/")     # Mount requires the slash

Notes:

1. The ASGI server handles TLS, the HTTP request and its limits, and the fragments of messages. Set its
   ``ws_max_size=`` (uvicorn), because it buffers a message before afflux can refuse it.
2. Back-pressure is preserved: messages are received only when afflux accepts input, and ``send`` is awaited. Under
   Uvicorn, with no middleware around ``send``, many messages are written in one step (transports/ws_uvicorn.py).
3. Limits count the clients of all WebSockets of an application together.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.aio.server import OnSetup, Server, serve
from afflux.core.autocredit import Kept
from afflux.core.errors import Error, LimitExceeded
from afflux.core.limits import Limits
from afflux.protocols.registry import PROTOCOLS, named
from afflux.transports.address import Address
from afflux.transports.strangers import refused_message
from afflux.transports.stream import BufferedTransport
from afflux.transports.ws_rules import (
    MESSAGE_TOO_BIG,
    NORMAL,
    POLICY,
    TRY_AGAIN_LATER,
    UNSUPPORTED_DATA,
    Refusal,
    chosen,
    closed_with,
    limited,
    text_message,
)
from afflux.transports.ws_uvicorn import writer_for

if TYPE_CHECKING:
    from afflux.aio.verbs import Extension
    from afflux.core.entry import ProtocolEntry
    from afflux.protocols.rsocket.lease import LeasePolicy
    from afflux.transports.reading import Receiver
    from afflux.transports.ws_uvicorn import Writer

__all__ = ["App", "app"]

_log = logging.getLogger("afflux")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """An ASGI application, created by ``app``."""

    def __init__(self, server: Server, protocol: str, path: str | None) -> None:
        self.server = server
        "The server with its connections and limits. It does not listen."
        self._entry = PROTOCOLS[protocol]
        self._path = path

    async def close(self, *, drain: bool | float = False) -> None:
        """Close every connection and wait for the handlers. The lifespan event of an ASGI server does so as well; a
        mounted application does not receive it."""
        await self.server.close(drain=drain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a WebSocket, an HTTP request (refused), or the lifespan of the ASGI server."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            status = 426 if self._serves_path(scope) else 404
            await _answer(send, "http", status, _TEXTS[status])
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        if not self._serves_path(scope):
            await _refuse(scope, send, 404, _TEXTS[404])
            return
        refused = self.server.refuse_page(_headers(scope, b"origin"), _headers(scope, b"host"))
        if refused is not None:
            await _refuse(scope, send, 403, refused)
            return
        try:
            subprotocol = chosen(self._entry.subprotocol, scope.get("subprotocols") or ())
        except Refusal as refusal:
            await _refuse(scope, send, 400, str(refusal))
            return
        while (seconds := self.server.delay()) > 0:
            await asyncio.sleep(seconds)
        try:
            receiver = self.server.attach(_host(scope), _uri(scope))
        except LimitExceeded as refusal:
            await _refuse(scope, send, 503, refusal.message)
            return
        bridge = _Bridge(scope, send, self._entry, self.server.limits)
        await bridge.run(receiver, receive, subprotocol)

    def _serves_path(self, scope: Scope) -> bool:
        """Whether the path is served; the prefix of a mounted application is ignored."""
        if self._path is None:
            return True
        path, root = str(scope["path"]), str(scope.get("root_path") or "")
        if root and path.startswith(root):
            path = path[len(root) :]
        return (path or "/") == self._path

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})


def app(
    handler: object,
    *,
    limits: Limits | None = None,
    on_setup: OnSetup | None = None,
    credit: Kept = DEFAULT_CREDIT,
    path: str | None = None,
    lease: LeasePolicy | None = None,
    resume: bool = False,
    extensions: Mapping[int | str, Extension] | None = None,
    protocol: str = "rsocket",
    origins: Iterable[str] | None = None,
) -> App:
    """Return an ASGI application that serves ``handler`` on WebSockets. Other HTTP requests get 426.

    A client may offer the subprotocol ``rsocket`` or none; a client that offers only others is refused (400).

    Args:
        handler, limits, on_setup, credit, lease, resume, extensions, origins: as for ``afflux.serve``.
        path: the served path, without the prefix of a mounted application; others get 404. None serves all paths.
        protocol: the protocol's name, as in an address.

    Raises:
        AddressError: the protocol is unknown.
        Unsupported: the protocol does not support an argument.
    """
    address = Address(protocol=named(protocol).name, transport="mem", host="asgi")
    server = serve(
        address,
        handler,
        limits=limits,
        on_setup=on_setup,
        credit=credit,
        lease=lease,
        resume=resume,
        extensions=extensions,
        origins=origins,
    )
    return App(server, protocol, path)


_TEXTS = {
    404: "nothing is served at this path",
    426: "this is a WebSocket: connect to it with a WebSocket client",
}


async def _answer(send: Send, kind: str, status: int, sentence: str) -> None:
    body = f"{sentence}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    if status == 426:
        headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


async def _refuse(scope: Scope, send: Send, status: int, sentence: str) -> None:
    """Refuse a WebSocket with the reason if the ASGI server supports it; otherwise it converts a close to a 403."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _answer(send, "websocket.http", status, sentence)
    else:
        code = TRY_AGAIN_LATER if status == 503 else POLICY
        await send({"type": "websocket.close", "code": code, "reason": sentence[:123]})


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for found, value in scope.get("headers") or () if found == name]


def _host(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _uri(scope: Scope) -> str:
    host, port = scope.get("server") or ("", None)
    shown = f"[{host}]" if ":" in str(host) else host
    return f"{scope.get('scheme', 'ws')}://{shown}{'' if port is None else f':{port}'}{scope['path']}"


class _Bridge(BufferedTransport):
    """A WebSocket of the ASGI server as an asyncio transport."""

    def __init__(self, scope: Scope, send: Send, entry: ProtocolEntry, limits: Limits) -> None:
        extra = {"peername": scope.get("client"), "asgi.scope": scope}
        super().__init__(high=limits.outbound_low_bytes, extra=extra)
        self._send = send
        self._protocol, self._framing = entry.name, entry.framing
        self._limits = limits
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._close = (NORMAL, "")
        self._finishing = False
        "True when no more frames are queued: the close follows them."
        # outbound
        self._writer = writer_for(send, entry.framing)
        "Writes frames together, if the ASGI server is known; None if each message needs a ``send``."
        self._frames: deque[bytes] = deque()
        "Messages; with a writer, whole frames of the engine."
        self._outbound = asyncio.Event()
        # inbound
        self._messages: list[bytes] = []
        self._size_in = 0
        self._first = True
        self._wanted = asyncio.Event()
        self._wanted.set()
        "Set while input is delivered."
        self._scheduled = False

    async def run(self, protocol: Receiver, receive: Receive, subprotocol: str | None) -> None:
        """Run as the transport of ``protocol`` until one side ends it."""
        self.protocol = protocol
        protocol.connection_made(self)
        tasks: list[asyncio.Task[None]] = []
        try:
            tasks = [asyncio.create_task(work) for work in (self._write(subprotocol), self._read(receive))]
            for task in tasks:
                task.add_done_callback(self._task_done)
            await self._ended.wait()
        finally:
            self.closing = self._finishing = True
            self._ended.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.protocol.connection_lost(self._error)

    # -- asyncio.Transport, called by the driver ----------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue whole frames."""
        if self._finishing:
            return
        data, writer = bytes(data), self._writer
        if writer is not None and not self._frames and writer.write(data):
            return
        frames = [data] if writer is not None else self._split(data)
        self._frames.extend(frames)
        self.unsent += sum(map(len, frames))
        self._outbound.set()
        self.check_full()

    def _split(self, data: bytes) -> list[bytes]:
        """Return the messages for whole frames."""
        return [data] if self._framing is None else list(map(bytes, self._framing.split(data)))

    def pause_reading(self) -> None:
        """Pause receiving."""
        super().pause_reading()
        self._wanted.clear()

    def resume_reading(self) -> None:
        """Resume receiving; buffered messages are delivered in a later turn of the loop."""
        self.reading = True
        self._wanted.set()
        self._deliver_soon()

    def write_eof(self) -> None:
        """Close after the queued frames. The ASGI server waits for the peer's close."""
        self._finishing = True
        self._outbound.set()

    def close(self) -> None:
        """Close after the queued frames, and discard further input."""
        self.closing = True
        self.write_eof()

    def abort(self) -> None:
        """Drop the queued frames. The ASGI server closes."""
        self.closing = self._finishing = True
        self._drop()
        self._ended.set()

    # -- outbound -----------------------------------------------------------------------------------------------

    async def _write(self, subprotocol: str | None) -> None:
        """Accept the WebSocket, send the queued frames, then the close."""
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol})
        for count in itertools.count(1):
            while not self._frames:
                if self._finishing:
                    code, reason = self._close
                    await self._send({"type": "websocket.close", "code": code, "reason": reason})
                    self._ended.set()
                    return
                self._outbound.clear()
                await self._outbound.wait()
            if self._writer is not None:
                await self._write_together(self._writer)
                continue
            frame = self._frames.popleft()
            await self._send({"type": "websocket.send", "bytes": frame})
            self.unsent -= len(frame)
            self.check_full()
            if count % self._limits.loop_frames == 0:
                await asyncio.sleep(0)

    async def _write_together(self, writer: Writer) -> None:
        """Write the first of the queue when the socket has room. It stays there until then, so that ``write`` does not
        overtake it."""
        await writer.room()
        if not self._frames:  # dropped meanwhile
            return
        frames = self._frames[0]
        if not writer.write(frames):  # the WebSocket is over: the ASGI server raises its error
            for message in self._split(frames):
                await self._send({"type": "websocket.send", "bytes": message})
        if self._frames:
            self._frames.popleft()
            self.unsent -= len(frames)
            self.check_full()
        await asyncio.sleep(0)

    def _drop(self) -> None:
        self._frames.clear()
        self.unsent = 0

    # -- inbound ------------------------------------------------------------------------------------------------

    async def _read(self, receive: Receive) -> None:
        """Receive while reading is not paused. The messages of one turn of the loop are delivered together."""
        limits = self._limits
        while True:
            await self._wanted.wait()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                await self._disconnected(message)
                return
            if not self._take(message.get("bytes")):
                return
            if len(self._messages) >= limits.loop_frames or self._size_in >= limits.loop_bytes:
                self._deliver()
                await asyncio.sleep(0)

    def _take(self, message: bytes | None) -> bool:
        """Buffer a message; return False after an error."""
        name = "first_frame_bytes" if self._first else "frame_bytes"
        if message is None:
            self._fail(UNSUPPORTED_DATA, text_message())
        elif self._first and (refused := refused_message(message, self._protocol)) is not None:
            reason, error = refused
            self._fail(POLICY, error, reason)
        elif (size := len(message) + (0 if self._framing is None else self._framing.own)) > getattr(self._limits, name):
            self._fail(MESSAGE_TOO_BIG, limited(name, self._limits, size))
        else:
            self._first = False
            self._messages.append(message if self._framing is None else self._framing.join(message))
            self._size_in += len(message)
            self._deliver_soon()
            return True
        return False

    def _deliver_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        """Pass the buffered messages to the driver."""
        self._scheduled = False
        if self._messages and self.reading:
            data = b"".join(self._messages)
            self._messages.clear()
            self._size_in = 0
            if not self.closing:
                self.protocol.data_received(data)

    async def _disconnected(self, message: Message) -> None:
        """Process the client's close after its messages."""
        while self._messages:
            await self._wanted.wait()
            self._deliver()
        self._error = closed_with(message.get("code") or 1005, message.get("reason") or "")
        if self._error is None and not self.closing:
            self.protocol.eof_received()
        self._ended.set()

    def _fail(self, code: int, error: Error, reason: str | None = None) -> None:
        """Close with an error, because the client broke a rule. ``reason``: what the client is told, if not the text of
        the error."""
        self._deliver()
        self._error = error
        self._close = (code, error.message if reason is None else reason)
        self.closing = self._finishing = True
        self._drop()
        self._outbound.set()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """End after the failure of a task. An OSError of the ASGI server means that the client has disconnected."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._ended.set()
            if not isinstance(error, OSError):
                _log.error("afflux: the ASGI server failed", exc_info=error)
