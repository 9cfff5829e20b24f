"""``afflux.asgi.app``: the same server inside a web framework, on the WebSockets of an ASGI server.

::

    app = Starlette(routes=[Mount("/rs", afflux.asgi.app(handler))])      # uvicorn module:app
    peer = await afflux.connect("ws://127.0.0.1:8000/rs/")     # the slash is the mount's

What to know:

1. TLS, the HTTP request and its limits, and the fragments of messages are the ASGI server's business. Give it
   ``ws_max_size=`` (uvicorn): it buffers a message before afflux can refuse it.
2. Back-pressure goes through: nothing is received while afflux takes nothing, and ``send`` is waited for.
3. The clients are those of one server: limits count them together, however many WebSockets bring them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.aio.server import OnSetup, Server, serve
from afflux.core.autocredit import Kept
from afflux.core.errors import Error, LimitExceeded
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.protocols.registry import PROTOCOLS, named
from afflux.transports.address import Address
from afflux.transports.ws_rules import (
    FOREIGN,
    MESSAGE_TOO_BIG,
    NORMAL,
    POLICY,
    TRY_AGAIN_LATER,
    UNSUPPORTED_DATA,
    Refusal,
    chosen,
    closed_with,
    comes_from,
    limited,
    text_message,
)

if TYPE_CHECKING:
    from afflux.aio.verbs import Extension
    from afflux.protocols.rsocket.lease import LeasePolicy
    from afflux.transports.reading import Receiver

__all__ = ["App", "app"]

_log = logging.getLogger("afflux")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """An ASGI application. Made by ``app``."""

    def __init__(self, server: Server, protocol: str, path: str | None) -> None:
        self.server = server
        "The server behind it: its connections, its limits. It listens nowhere."
        entry = PROTOCOLS[protocol]
        self._framing, self._subprotocol = entry.framing, entry.subprotocol
        self._path = path

    async def close(self, *, drain: bool | float = False) -> None:
        """Close every connection and wait for the handlers. An ASGI server does so by itself where it tells this
        application of its lifespan, which a mounted one is not."""
        await self.server.close(drain=drain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One WebSocket, one HTTP request (refused), or the lifespan of the ASGI server."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            status = 426 if self._here(scope) else 404
            await _answer(send, "http", status, _WORDS[status])
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        if not self._here(scope):
            await _refuse(scope, send, 404, _WORDS[404])
            return
        said = [value.decode("latin-1") for name, value in scope.get("headers") or () if name == b"origin"]
        if not comes_from(self.server.origins, said):
            await _refuse(scope, send, 403, FOREIGN)
            return
        try:
            subprotocol = chosen(self._subprotocol, scope.get("subprotocols") or ())
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
        bridge = _Bridge(scope, send, self._framing, self.server.limits)
        await bridge.run(receiver, receive, subprotocol)

    def _here(self, scope: Scope) -> bool:
        """Whether the path is the one that is served; what comes before a mounted application does not count."""
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
    extensions: Mapping[int, Extension] | None = None,
    protocol: str = "rsocket",
    origins: Iterable[str] | None = None,
) -> App:
    """An ASGI application that serves ``handler`` on WebSockets. Other HTTP requests get 426.

    A client may offer the subprotocol ``rsocket``, or none; one that offers only others is refused (400).

    Args:
        handler, limits, on_setup, credit, lease, resume, extensions, origins: as for ``afflux.serve``.
        path: the one path that is served, without what the application is mounted at; others get 404. None serves
            whatever arrives.
        protocol: the protocol's name, as in an address.

    Raises:
        AddressError: there is no such protocol.
        Unsupported: a protocol that is not built yet, or that lacks what is asked of it.
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


_WORDS = {
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
    """Say why, where the ASGI server can: else it makes a 403 of a close."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _answer(send, "websocket.http", status, sentence)
    else:
        code = TRY_AGAIN_LATER if status == 503 else POLICY
        await send({"type": "websocket.close", "code": code, "reason": sentence[:123]})


def _host(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _uri(scope: Scope) -> str:
    host, port = scope.get("server") or ("", None)
    shown = f"[{host}]" if ":" in str(host) else host
    return f"{scope.get('scheme', 'ws')}://{shown}{'' if port is None else f':{port}'}{scope['path']}"


class _Bridge(asyncio.Transport):  # long: asyncio's contract for a transport, and two loops
    """One WebSocket of the ASGI server as a transport."""

    def __init__(self, scope: Scope, send: Send, framing: LengthPrefix | None, limits: Limits) -> None:
        super().__init__({"peername": scope.get("client"), "asgi.scope": scope})
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._framing = framing
        self._limits = limits
        self._protocol: Receiver
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._close = (NORMAL, "")
        self._finishing = False
        self._deaf = False
        # out
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._high, self._low = limits.outbound_low_bytes, limits.outbound_low_bytes // 4
        self._told_to_pause = False
        self._something = asyncio.Event()
        # in
        self._messages: list[bytes] = []
        self._waiting = 0
        self._first = True
        self._open = asyncio.Event()
        self._open.set()
        self._delivering = False

    async def run(self, protocol: Receiver, receive: Receive, subprotocol: str | None) -> None:
        """Be the transport of ``protocol`` until one side ends it."""
        self._protocol = protocol
        protocol.connection_made(self)
        tasks: list[asyncio.Task[None]] = []
        try:
            tasks = [self._loop.create_task(work) for work in (self._write(subprotocol), self._read(receive))]
            for task in tasks:
                task.add_done_callback(self._over)
            await self._ended
        finally:
            self._deaf = self._finishing = True
            self._end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._protocol.connection_lost(self._error)

    # -- what the driver calls: asyncio.Transport ---------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue whole frames."""
        if self._finishing:
            return
        frames = [bytes(data)] if self._framing is None else list(map(bytes, self._framing.split(bytes(data))))
        self._frames.extend(frames)
        self._size += sum(map(len, frames))
        self._something.set()
        if self._size > self._high and not self._told_to_pause:
            self._told_to_pause = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Queue several pieces, which are whole frames together."""
        self.write(b"".join(list_of_data))

    def unsent(self) -> int:
        """Bytes that the ASGI server has not taken."""
        return self._size

    get_write_buffer_size = unsent
    "asyncio's name for it."

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause and to resume writing."""
        self._high = self._limits.outbound_low_bytes if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Receive nothing for now."""
        self._open.clear()

    def resume_reading(self) -> None:
        """Receive what comes; what has come already is delivered in a later turn of the loop."""
        self._open.set()
        self._deliver_soon()

    def is_reading(self) -> bool:
        """Whether it receives what comes."""
        return self._open.is_set() and not self._deaf

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._deaf

    def can_write_eof(self) -> bool:
        """Yes: a close is the end of what this side says."""
        return True

    def write_eof(self) -> None:
        """Close behind what is queued. The ASGI server waits for the peer's close."""
        self._finishing = True
        self._something.set()

    def close(self) -> None:
        """Close behind what is queued, and take nothing more."""
        self._deaf = True
        self.write_eof()

    def abort(self) -> None:
        """Give up what is queued. The ASGI server closes."""
        self._deaf = self._finishing = True
        self._drop()
        self._end()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another driver takes over."""
        self._protocol = cast("Receiver", protocol)

    # -- out ----------------------------------------------------------------------------------------------------

    async def _write(self, subprotocol: str | None) -> None:
        """Accept, send what is queued, then the close."""
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol})
        for count in itertools.count(1):
            while not self._frames:
                if self._finishing:
                    code, reason = self._close
                    await self._send({"type": "websocket.close", "code": code, "reason": reason})
                    self._end()
                    return
                self._something.clear()
                await self._something.wait()
            frame = self._frames.popleft()
            await self._send({"type": "websocket.send", "bytes": frame})
            self._size -= len(frame)
            if self._told_to_pause and self._size <= self._low:
                self._told_to_pause = False
                self._protocol.resume_writing()
            if count % self._limits.loop_frames == 0:
                await asyncio.sleep(0)

    def _drop(self) -> None:
        self._frames.clear()
        self._size = 0

    # -- in -----------------------------------------------------------------------------------------------------

    async def _read(self, receive: Receive) -> None:
        """Receive while the driver takes something. The messages of one turn go up together."""
        limits = self._limits
        while True:
            await self._open.wait()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                await self._disconnected(message)
                return
            if not self._take(message.get("bytes")):
                return
            if len(self._messages) >= limits.loop_frames or self._waiting >= limits.loop_bytes:
                self._deliver()
                await asyncio.sleep(0)

    def _take(self, message: bytes | None) -> bool:
        """One message; whether there may be more."""
        name = "first_frame_bytes" if self._first else "frame_bytes"
        if message is None:
            self._fail(UNSUPPORTED_DATA, text_message())
        elif len(message) + (0 if self._framing is None else self._framing.own) > getattr(self._limits, name):
            self._fail(MESSAGE_TOO_BIG, limited(name, self._limits))
        else:
            self._first = False
            self._messages.append(message if self._framing is None else self._framing.join(message))
            self._waiting += len(message)
            self._deliver_soon()
            return True
        return False

    def _deliver_soon(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """One pass of the driver."""
        self._delivering = False
        if self._messages and self._open.is_set():
            data = b"".join(self._messages)
            self._messages.clear()
            self._waiting = 0
            if not self._deaf:
                self._protocol.data_received(data)

    async def _disconnected(self, message: Message) -> None:
        """The client closes, behind what it has sent."""
        while self._messages:
            await self._open.wait()
            self._deliver()
        self._error = closed_with(message.get("code") or 1005, message.get("reason") or "")
        if self._error is None and not self._deaf:
            self._protocol.eof_received()
        self._end()

    def _fail(self, code: int, error: Error) -> None:
        """The client broke a rule: say so, and nothing else."""
        self._deliver()
        self._error = error
        self._close = (code, error.message)
        self._deaf = self._finishing = True
        self._drop()
        self._something.set()

    # -- the end ------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _over(self, task: asyncio.Task[None]) -> None:
        """A loop has ended. An OSError of the ASGI server means that the client is gone."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end()
            if not isinstance(error, OSError):
                _log.error("afflux: the ASGI server failed", exc_info=error)
