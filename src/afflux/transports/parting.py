"""Send refused connections the reason, and close them.

A close with unread input resets a connection, and the peer loses the reason. So the reason is sent in one write, this
half is ended, and input is discarded until the peer has closed, for at most ``seconds``. At most ``MOST`` connections
are open at a time: one more closes the oldest.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

__all__ = ["MOST", "Parting"]

MOST: Final = 64
"Refused connections that are open at a time."
_PIECE: Final = 0x10000
"Bytes that are discarded of one connection at most: a peer that sends more does not read."


class Parting:
    """The refused connections of one listener that are still open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[socket.socket, asyncio.TimerHandle] = {}
        self._unread: dict[socket.socket, int] = {}

    def refuse(self, sock: socket.socket, reason: bytes, seconds: float) -> None:
        """Write ``reason`` and close; close immediately if it is empty."""
        try:
            sock.setblocking(False)
            if not reason or sock.send(reason) < len(reason):
                sock.close()
                return
            sock.shutdown(socket.SHUT_WR)
        except OSError:  # the peer has gone
            sock.close()
            return
        if len(self._open) >= MOST:
            self._close(next(iter(self._open)))
        self._open[sock] = self._loop.call_later(seconds, self._close, sock)
        self._unread[sock] = _PIECE
        self._loop.add_reader(sock.fileno(), self._read, sock)

    def close(self) -> None:
        """Close all."""
        for sock in list(self._open):
            self._close(sock)

    def _read(self, sock: socket.socket) -> None:
        """Discard input of the peer."""
        try:
            dropped = len(sock.recv(_PIECE))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            dropped = 0
        self._unread[sock] -= dropped
        if not dropped or self._unread[sock] <= 0:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self._open.pop(sock).cancel()
        del self._unread[sock]
        self._loop.remove_reader(sock.fileno())
        sock.close()
