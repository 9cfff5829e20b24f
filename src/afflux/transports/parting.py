"""Tell refused connections why, without keeping them. Which connections are refused is the server's decision.

A close while input is unread resets a connection, and the peer loses what it was sent. So the words are written in one
write, this half is ended, and the input is read and dropped until the peer has closed. That takes ``seconds`` at most,
and ``MOST`` connections at a time: beyond that the oldest is closed to make room.
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
"The most bytes that are read from one: a peer that sends more is not reading."


class Parting:
    """The refused connections of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[socket.socket, asyncio.TimerHandle] = {}
        self._unread: dict[socket.socket, int] = {}

    def tell(self, sock: socket.socket, words: bytes, seconds: float) -> None:
        """Write ``words`` and close; without words, close at once."""
        try:
            sock.setblocking(False)
            if not words or sock.send(words) < len(words):
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
        """Drop what the peer has sent."""
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
