"""TLS under asyncio: a transport for the driver above, a protocol for the socket below. The TLS is tls_session.py's.

1. At a server the driver is told at once that the connection is made; what it writes waits for the handshake, and
   ending or closing before that is aborting. At a client it is told after the handshake.
2. ``write_eof`` is a close_notify and the end of the socket's half: reading goes on.
3. A peer that ends without a close_notify has cut the connection: ``connection_lost`` without ``eof_received``.
4. Why a handshake failed goes out as an alert; a server gives the peer ``flush`` seconds to read it, because a
   close with unread input would take it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from afflux.core.errors import ConnectionClosed
from afflux.transports.reading import DISCARDED_BYTES, GONE, Receiver, end_half
from afflux.transports.tls_session import Session

__all__ = ["SecureTransport"]

_PIECE = 0x10000
"What is decrypted or encrypted at once, so that the buffers between stay small."


class SecureTransport(asyncio.Transport, Receiver):  # long: both of asyncio's contracts meet here
    """One TLS connection."""

    def __init__(
        self, session: Session, protocol: Receiver, *, flush: float, ready: asyncio.Future[None] | None = None
    ) -> None:
        """``ready`` is a client's: done when the connection is made, or failed."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._protocol = protocol
        self._flush_s = flush
        self._ready = ready
        self._raw: asyncio.Transport | None = None
        self._made = False
        self._reading = True
        self._resuming = False
        self._full = False
        self._told_to_pause = False
        self._told_the_end = False
        self._ended = False
        self._closing = False
        self._cut = False
        self._lost = False
        self._high = _PIECE
        self._discarded = 0
        self._linger: asyncio.TimerHandle | None = None

    # -- asyncio.Protocol: what the socket tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._raw = cast("asyncio.Transport", transport)
        if self._ready is None:
            self._make()
        self._shake()

    def buffer_updated(self, nbytes: int) -> None:
        """Something was read."""
        if self._over:
            self._discard(nbytes)
        else:
            super().buffer_updated(nbytes)

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        if self._over:
            self._discard(len(data))
            return
        with memoryview(data) as view:
            for start in range(0, len(view), _PIECE):
                self._session.feed(view[start : start + _PIECE])
                if not self._session.ready:
                    self._shake()
                if self._session.ready and self._reading:
                    self._deliver()

    def eof_received(self) -> bool:
        """The socket gives nothing more. The end in order was a close_notify, before."""
        session = self._session
        if not session.ready and session.failure is None:
            session.feed_eof()
            self._shake()
        if session.ended and not self._closing:
            return True  # its half alone: the driver was told, and decides
        self._cut = session.ready and not self._closing and session.failure is None
        self._closing = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        if self._linger is not None:
            self._linger.cancel()
        session = self._session
        if not session.ready and session.failure is None and not self._closing:
            session.feed_eof()
            session.handshake()
        error: Exception | None = session.failure or exc
        if error is None and (self._cut or not (self._closing or session.ended)):
            error = ConnectionClosed("the peer cut the connection without ending TLS first", rule="TR-05")
        self._closing = self._lost = True
        protocol, self._protocol = self._protocol, GONE
        if self._made or self._ready is None:
            protocol.connection_lost(error)
        elif not self._ready.done():
            self._ready.set_exception(error or ConnectionClosed("the connection was closed during the handshake"))

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._full = True
        self._check_room()

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._full = False
        self._check_room()

    # -- asyncio.Transport: what the driver calls -----------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or keep for the end of the handshake."""
        if self._closing or self._ended:
            return
        with memoryview(data) as view:
            for start in range(0, len(view), _PIECE):
                self._session.write(view[start : start + _PIECE])
                self._flush()
        self._check_room()
        if self._session.failure is not None and self._raw is not None:
            self._give_up(self._raw)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Yes, unlike asyncio's own TLS."""
        return True

    def write_eof(self) -> None:
        """Nothing more will be written; what the peer still sends is read."""
        if not self._session.ready:
            self.abort()
        elif self._raw is not None and not self._closing and not self._ended:
            self._session.end()
            self._flush()
            self._ended = True
            end_half(self._raw)
            self._resume_soon()

    def close(self) -> None:
        """Close when everything is written."""
        if not self._session.ready:
            self.abort()
        elif self._raw is not None and not self._closing:
            self._closing = True
            if not self._ended:
                self._session.end()
                self._flush()
            self._raw.close()

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        if self._raw is not None and not self._lost:
            self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def pause_reading(self) -> None:
        """Take nothing for now. A handshake goes on."""
        if self._reading and self._raw is not None and not self._closing:
            self._reading = False
            if self._session.ready:
                self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Take what comes; what has come already is delivered in a later turn of the loop."""
        if not self._reading and self._raw is not None and not self._closing:
            self._reading = True
            self._raw.resume_reading()
            self._resume_soon()

    def is_reading(self) -> bool:
        """Whether it takes what comes."""
        return self._reading and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another driver takes over."""
        self._protocol = cast("Receiver", protocol)

    def unsent(self) -> int:
        """Bytes that wait to be written, here and in the socket's buffer."""
        raw = self._raw
        return self._session.unsent + (0 if raw is None else raw.get_write_buffer_size())

    get_write_buffer_size = unsent
    "asyncio's name for it."

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause and to resume writing."""
        self._high = _PIECE if high is None else high
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def extra_info(self, name: str, default: Any = None) -> Any:
        """``peercert``, ``ssl_object``, and what the socket's transport knows."""
        if name == "ssl_object":
            return self._session.tls
        if name == "peercert":
            return self._session.certificate
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    get_extra_info = extra_info
    "asyncio's name for it."

    # -- inside -----------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self._made = True
        self._protocol.connection_made(self)

    def _shake(self) -> None:
        """A step of the handshake."""
        session, raw = self._session, self._raw
        if raw is None or self._closing:
            return
        done = session.handshake()
        self._flush()
        if session.failure is not None:
            self._give_up(raw)
        elif done:
            if self._ready is not None and not self._ready.done():
                self._make()
                self._ready.set_result(None)
            self._check_room()
            if not self._reading:
                raw.pause_reading()

    def _give_up(self, raw: asyncio.Transport) -> None:
        """TLS has failed, and the peer was told why."""
        if self._ready is not None or self._session.ready:
            raw.close()
        elif self._linger is None and not raw.is_closing():
            self._linger = self._loop.call_later(self._flush_s, raw.abort)
            end_half(raw)

    @property
    def _over(self) -> bool:
        """What arrives now is of no use: TLS has failed or was ended by the peer, or the driver has closed."""
        session = self._session
        return self._closing or session.failure is not None or session.ended

    def _discard(self, size: int) -> None:
        """Throw away input after the end. A peer that goes on for too long is not read any more."""
        self._discarded += size
        if self._discarded > DISCARDED_BYTES and self._raw is not None:
            self._raw.pause_reading()

    def _deliver(self) -> None:
        """Hand over what can be read."""
        session, raw = self._session, self._raw
        data = session.read()
        if data:
            self._protocol.data_received(data)
        if raw is None or self._closing:
            return
        self._flush()
        self._check_room()
        if session.failure is not None:
            self._give_up(raw)
        elif session.ended and not self._told_the_end:
            self._told_the_end = True
            if not self._protocol.eof_received():
                self.close()

    def _resume_soon(self) -> None:
        if not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self._session.ready and self._reading and not self._closing:
            self._deliver()

    def _flush(self) -> None:
        data = self._session.outgoing()
        if data and self._raw is not None and not self._ended:
            self._raw.write(data)

    def _check_room(self) -> None:
        """Tell the driver to stop or to go on writing, once."""
        full = self._full or self._session.unsent > self._high
        if self._made and full != self._told_to_pause:
            self._told_to_pause = full
            (self._protocol.pause_writing if full else self._protocol.resume_writing)()
