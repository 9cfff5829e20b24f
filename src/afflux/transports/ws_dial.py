"""Run a client's WebSocket without an event loop: the handshake, and a link on a link of TCP or TLS. ws_wire.py
translates the bytes.
"""

from __future__ import annotations

import select
from time import monotonic
from typing import Any

from afflux.core.errors import ConnectFailed, ConnectionClosed
from afflux.core.limits import Limits
from afflux.transports.address import Address
from afflux.transports.base import Link
from afflux.transports.durations import in_words
from afflux.transports.ws_client import ClientWire

__all__ = ["WebSocketDial", "handshake"]

_READ = 0x10000
_PIECE = 0x4000


def handshake(below: Link, address: Address, limits: Limits, timeout: float, until: float) -> WebSocketDial:
    """Open a WebSocket on ``below`` before the time ``until``; ``timeout`` is for the error text.

    Raises:
        ConnectFailed: the server refused, or did not answer in time.
    """
    link = WebSocketDial(below, ClientWire(address, limits, secure=address.carrier.secure), limits)
    poll = select.poll()
    poll.register(below, select.POLLIN)
    try:
        while not link.open_now():
            poll.modify(below, link.events(True, False))
            left = until - monotonic()
            if left <= 0:
                raise ConnectFailed(f"{address} did not open a WebSocket within {in_words(timeout)}{link.so_far}")
            poll.poll(left * 1000)
    except BaseException:
        link.close()
        raise
    return link


class WebSocketDial:
    """A WebSocket as a link."""

    def __init__(self, below: Link, wire: ClientWire, limits: Limits) -> None:
        self._below = below
        self._wire = wire
        self._limits = limits
        self._unsent = memoryview(b"")
        self._given = False
        "The argument of ``send`` is in ``_unsent``."
        self._found = b""
        self._held = b""
        self._ending = False
        self._since: float | None = None

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The server's certificate."""
        return self._below.certificate

    def open_now(self) -> bool:
        """Continue the handshake; return whether the WebSocket is open.

        Raises:
            ConnectFailed: the server refused.
        """
        try:
            self.flush()
            data = self._below.recv(_READ)
            if data:
                self._take(data)
            else:
                self._wire.receive_eof()
        except BlockingIOError:
            pass
        except ConnectFailed:
            raise
        except (OSError, ConnectionClosed):
            self._wire.receive_eof()
        if self._wire.error is not None:
            raise self._wire.error
        return self._wire.opened

    @property
    def so_far(self) -> str:
        """The text about an unfinished answer of the server."""
        return self._wire.so_far

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._below.fileno()

    def send(self, data: memoryview) -> int:
        """Send all of it, or raise BlockingIOError."""
        if self._wire.over:
            raise BrokenPipeError("the WebSocket is closed")
        if not self._given:
            self.flush()
            if self._unsent:
                raise BlockingIOError
            self._wire.send(bytes(data))
            self._given = True
        self.flush()
        if self._unsent:
            raise BlockingIOError
        self._given = False
        return len(data)

    def recv(self, size: int) -> bytes:
        """Return received messages with their lengths."""
        wire = self._wire
        while not self._found and not wire.over:
            if self._waiting:
                data, self._held = self._held, b""
                self._take(data)
            elif wire.stopped:
                raise BlockingIOError
            elif data := self._below.recv(size):
                self._take(data)
            else:
                wire.receive_eof()
        found, self._found = self._found, b""
        if not found and wire.error is not None and not self._ending:
            raise wire.error
        return found

    def pending(self) -> bool:
        """Whether input was read from the socket and not returned."""
        return bool(self._found) or self._wire.over or self._waiting

    def flush(self) -> None:
        """Write queued bytes."""
        while True:
            if not self._unsent:
                self._unsent = memoryview(self._wire.outgoing())
            if not self._unsent:
                return self._below.flush()
            try:
                self._unsent = self._unsent[self._below.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return None

    def events(self, reading: bool, writing: bool) -> int:
        """The events that the driver wants, and POLLOUT while bytes are queued."""
        full = bool(self._unsent)
        return self._below.events(reading and not (self._wire.stopped and full), writing or full)

    def end_writing(self) -> None:
        """Send the close. The peer's close ends ``recv``."""
        self._ending = True
        self._wire.close()
        self.flush()

    def close(self) -> None:
        """Close the socket."""
        self._below.close()

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _waiting(self) -> bool:
        """True when buffered input may be decoded: the answers to pings have left."""
        return (bool(self._held) or self._wire.stopped) and not self._unsent and not self._wire.over

    def _take(self, data: bytes) -> None:
        wire, at = self._wire, 0
        found: list[bytes | bytearray] = [self._found]
        while not wire.over and (wire.stopped or at < len(data)):
            if wire.stopped and self._unsent:
                break
            piece = b"" if wire.stopped else data[at : at + _PIECE]
            at += len(piece)
            wire.read(piece, found)
            self.flush()
        self._held = data[at:]
        self._found = b"".join(found)
        self._watch_message(new=any(found[1:]))

    def _watch_message(self, *, new: bool) -> None:
        """End the WebSocket when one message takes longer than ``frame_s``. ``new``: another message began."""
        if not self._wire.midway:
            self._since = None
        elif new or self._since is None:
            self._since = monotonic()
        elif monotonic() - self._since > self._limits.frame_s:
            self._wire.late()
            self.flush()
