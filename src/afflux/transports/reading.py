"""How a socket's bytes come in under asyncio: through one buffer for all connections of a loop. Nothing waits here.

A plain ``asyncio.Protocol`` is given up to 256 KiB in a fresh object for each read. The C library may take that much
from the system and give it back each time, which is half of the speed for items of 1 KiB. A buffer that is there
already costs nothing of that; and because what is read is done with before the loop turns to another socket, a loop
needs one buffer, not one for each of 10,000 connections. With 256 KiB items of 64 KiB come a third faster than with
64 KiB, four in a read, and those of 1 KiB by 14 %; with 512 KiB it is less again.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

__all__ = ["DISCARDED_BYTES", "GONE", "Receiver", "end_half"]

_READ_BYTES = 0x40000
DISCARDED_BYTES = 0x800000
"""Bytes that are read and thrown away once a connection is over. A peer that is still sending gets to read the last
words, because a close with unread input would reset the connection; this is more than the systems of both sides
buffer. Beyond it reading stops, so that a peer that sends on costs nothing."""

_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class Receiver(asyncio.BufferedProtocol):
    """What a transport talks to: a socket by way of the buffer, any other transport with ``data_received``."""

    __slots__ = ()

    _view: memoryview | None = None

    def buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        if (view := self._view) is None:
            # A subclass has a slot for it, or a dictionary.
            view = self._view = _view_of(asyncio.get_running_loop())  # type: ignore[misc]
        return view

    get_buffer = buffer
    "asyncio's name for it."

    def held_below(self, size: int) -> None:
        """The transport holds ``size`` received bytes that it cannot hand over yet."""

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        self.data_received(bytes(self.buffer(nbytes)[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        raise NotImplementedError


GONE = Receiver()
"Stands for the driver of a link that is over, so that the link and the driver do not hold each other."


def end_half(transport: asyncio.WriteTransport) -> None:
    """Write the end of this half, or abort the transport where that is too late: a peer that has reset the link makes
    asyncio raise OSError, and a transport that is closed makes uvloop raise RuntimeError."""
    try:
        transport.write_eof()
    except (OSError, RuntimeError):
        transport.abort()


def _view_of(loop: asyncio.AbstractEventLoop) -> memoryview:
    view = _buffers.get(loop)
    if view is None:
        view = _buffers[loop] = memoryview(bytearray(_READ_BYTES))
    return view
