"""Write many messages to a WebSocket of Uvicorn in one step.

An ASGI server sends one message for each ``send``. Uvicorn's costs more than the rest of an item: it builds a frame by
the ``websockets`` library and writes it by itself. Where ``send`` is the method of Uvicorn's default implementation,
without a middleware around it, this module writes the frames of all messages to its transport together, with its flow
control.

The attributes that are used here are no documented interface of Uvicorn. ``writer_for`` checks them, and returns None
for another server, another implementation, a wrapped ``send``, or a connection with compression: the caller then uses
``send``.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from afflux.core.framing import LengthPrefix

__all__ = ["Writer", "writer_for"]

_MODULE = "uvicorn.protocols.websockets.websockets_sansio_impl"


class Writer:
    """Writes to one WebSocket."""

    __slots__ = ("_as_messages", "_binary", "_framing", "_library", "_open", "_server", "_transport")

    def __init__(self, server: Any, framing: LengthPrefix | None) -> None:
        # Imported here, because an ASGI application runs without the library as well.
        from websockets.protocol import State

        from afflux.transports.ws_frames import as_messages, binary

        self._as_messages, self._binary, self._open = as_messages, binary, State.OPEN
        self._server = server
        self._library = server.conn
        self._transport: asyncio.WriteTransport = server.transport
        self._framing = framing

    def write(self, data: bytes) -> bool:
        """Write an engine's whole frames, each as one message. Return False, without writing, before the WebSocket is
        accepted, after its end, and while the socket's buffer is full."""
        server, library, framing = self._server, self._library, self._framing
        if library.state is not self._open or server.close_sent or server.disconnected:
            return False
        if not server.writable.is_set() or self._transport.is_closing():
            return False
        pieces = library.data_to_send()
        if framing is None:
            pieces += self._binary([data], masked=False)
        else:
            pieces += self._as_messages(data, framing.width, framing.own, masked=False)[0]
        self._transport.write(b"".join(pieces))
        return True

    async def room(self) -> None:
        """Wait until the socket's buffer has room."""
        await self._server.writable.wait()


def writer_for(send: object, framing: LengthPrefix | None) -> Writer | None:
    """Return a writer for the WebSocket whose ``send`` this is; None if only ``send`` itself can be used."""
    kind = getattr(sys.modules.get(_MODULE), "WebSocketsSansIOProtocol", None)
    method, server = getattr(kind, "send", None), getattr(send, "__self__", None)
    if kind is None or type(server) is not kind or getattr(send, "__func__", None) is not method:
        return None
    try:
        return Writer(server, framing) if _fits(server) else None
    except (AttributeError, ImportError):
        return None


def _fits(server: Any) -> bool:
    """Whether the attributes are those of the known versions, and no extension changes the frames."""
    from websockets.server import ServerProtocol

    flags = (server.close_sent, server.disconnected)
    return (
        isinstance(server.conn, ServerProtocol)
        and not server.conn.extensions
        and callable(server.transport.write)  # uvloop's is no subclass of asyncio's
        and isinstance(server.writable, asyncio.Event)
        and all(isinstance(flag, bool) for flag in flags)
    )
