"""Run TLS under asyncio: a protocol for the socket below, a transport for the driver above. See tls_session.py for TLS.

1. At a server the driver gets its transport when the socket is accepted; its writes wait for the handshake, and
   ``write_eof`` or ``close`` before the end of the handshake is ``abort``. At a client it gets it after the handshake.
2. ``write_eof`` sends a close_notify and ends the socket's half: reading continues.
3. A peer that ends without a close_notify has cut the connection: ``connection_lost`` without ``eof_received``.
4. A failed handshake sends an alert. A server gives the peer ``flush`` seconds to read it, because a close with unread
   input would discard it.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from afflux.core.errors import ConnectionClosed
from afflux.transports.reading import DISCARDED_BYTES, GONE, Receiver, end_half
from afflux.transports.stream import Layer
from afflux.transports.tls_session import Session

__all__ = ["SecureLink"]

_PIECE = 0x10000
"Bytes that are decrypted or encrypted in one step, so that the buffers between stay small."


class SecureLink(Layer):
    """One TLS connection, as the protocol object of its socket."""

    def __init__(
        self, session: Session, upper: Receiver, *, flush: float, ready: asyncio.Future[None] | None = None
    ) -> None:
        """``ready`` is a client's future: done when the handshake is over or has failed."""
        super().__init__(upper)
        self.session = session
        "The TLS of the connection."
        self._flush_s = flush
        self._ready = ready
        self._full = False
        self._paused_upper = False
        self._reported_end = False
        self._ended = False
        self._cut = False
        self._eof_waits = False
        "The socket has ended, and the driver accepts no input yet: it receives the end after it."
        self._connected = False
        self._high = _PIECE
        self._discarded = 0
        self._linger: asyncio.TimerHandle | None = None

    # -- from below: asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake on the socket."""
        self.raw = cast("asyncio.Transport", transport)
        self._connected = True
        if self._ready is None:
            self.make()
        self._shake()

    def buffer_updated(self, nbytes: int) -> None:
        """Process bytes that were read into the buffer. They are copied only as they are decrypted."""
        self.data_received(self.buffer(nbytes)[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Decrypt a read, and deliver it together."""
        if self._over:
            self._discard(len(data))
            return
        session = self.session
        found: list[bytes] = []
        with memoryview(data) as view:
            for start in range(0, len(view), _PIECE):
                session.feed(view[start : start + _PIECE])
                if not session.ready:
                    self._shake()
                if session.ready and self.reading:
                    found += session.parts()
        if session.ready and self.reading:
            self._deliver(b"".join(found))

    def eof_received(self) -> bool:
        """The socket has ended, after the input that has arrived. An orderly end sends a close_notify before."""
        session = self.session
        if not session.ready and session.failure is None:
            session.feed_eof()
            self._shake()
        if session.ready and not self._over:
            if self.reading:
                self._deliver(session.read())  # a pass may still be due
            if not self.reading and not self.closing:
                self._eof_waits = True
                return True
        if session.ended and not self.closing:
            return True  # only the peer's half has ended: the driver was notified, and decides
        self._cut = session.ready and not self.closing and session.failure is None
        self.closing = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed: report the reason."""
        if self._linger is not None:
            self._linger.cancel()
        session = self.session
        if not session.ready and session.failure is None and not self.closing:
            session.feed_eof()
            session.handshake()
        error: Exception | None = session.failure or exc
        if error is None and (self._cut or not (self.closing or session.ended)):
            error = ConnectionClosed("the peer cut the connection without ending TLS first", rule="TR-05")
        self.closing, self._connected = True, False
        upper, self.upper = self.upper, GONE
        if self.made or self._ready is None:
            upper.connection_lost(error)
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

    # -- from above: LayerTransport -------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; before the end of the handshake the data waits."""
        if self.closing or self._ended:
            return
        with memoryview(data) as view:
            for start in range(0, len(view), _PIECE):
                self.session.write(view[start : start + _PIECE])
                self._flush()
        self._check_room()
        if self.session.failure is not None:
            self._end_link()

    def write_eof(self) -> None:
        """End this half; input of the peer is still read."""
        if not self.session.ready:
            self.abort()
        elif not self.closing and not self._ended:
            self.session.end()
            self._flush()
            self._ended = True
            end_half(self.raw)
            self.pass_soon()

    def close(self) -> None:
        """Close when everything is written."""
        if not self.session.ready:
            self.abort()
        elif not self.closing:
            self.closing = True
            if not self._ended:
                self.session.end()
                self._flush()
            self.raw.close()

    def abort(self) -> None:
        """Close now."""
        self.closing = True
        if self._connected:
            self.raw.abort()

    def read(self, wanted: bool) -> None:
        """Start or stop delivering input. A handshake continues meanwhile."""
        if self.reading == wanted or self.closing:
            return
        self.reading = wanted
        if wanted:
            self.raw.resume_reading()
            self.pass_soon()
        elif self.session.ready:
            self.raw.pause_reading()

    @property
    def unsent(self) -> int:
        """Bytes that wait to be written, here and in the socket's buffer."""
        return self.session.unsent + super().unsent

    def set_limits(self, high: int | None, low: int | None) -> None:
        """Set the limits at which writing pauses and resumes."""
        self._high = _PIECE if high is None else high
        super().set_limits(high, low)

    def info(self, name: str, default: Any) -> Any:
        """Return ``peercert``, ``ssl_object``, or information of the socket's transport."""
        if name == "ssl_object":
            return self.session.tls
        return self.session.certificate if name == "peercert" else super().info(name, default)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        """Take a step of the handshake."""
        session = self.session
        if self.closing:
            return
        done = session.handshake()
        self._flush()
        if session.failure is not None:
            self._end_link()
        elif done:
            if self._ready is not None and not self._ready.done():
                self.make()
                self._ready.set_result(None)
            self._check_room()
            if not self.reading:
                self.raw.pause_reading()

    def _end_link(self) -> None:
        """End the link: TLS has failed, and the peer was sent an alert."""
        raw = self.raw
        if self._ready is not None or self.session.ready:
            raw.close()
        elif self._linger is None and not raw.is_closing():
            self._linger = self.loop.call_later(self._flush_s, raw.abort)
            end_half(raw)

    @property
    def _over(self) -> bool:
        """True when input is discarded: TLS has failed or the peer has ended it, or the driver has closed."""
        session = self.session
        return self.closing or session.failure is not None or session.ended

    def _discard(self, size: int) -> None:
        """Discard input after the end; reading stops after DISCARDED_BYTES."""
        self._discarded += size
        if self._discarded > DISCARDED_BYTES:
            self.raw.pause_reading()

    def _deliver(self, data: bytes) -> None:
        """Deliver decrypted bytes, and the end after them."""
        session = self.session
        if data:
            self.upper.data_received(data)
        if self.closing:
            return
        self._flush()
        self._check_room()
        if session.failure is not None:
            self._end_link()
        elif session.ended and self.reading and not self._reported_end:
            self._reported_end = True
            if not self.upper.eof_received():
                self.close()

    def next_pass(self) -> None:
        """Deliver bytes that have arrived while the driver accepted none."""
        if not self.session.ready or not self.reading or self.closing:
            return
        self._deliver(self.session.read())
        if self._eof_waits and not self.eof_received():
            self.raw.close()

    def _flush(self) -> None:
        data = self.session.outgoing()
        if data and not self._ended:
            self.raw.write(data)

    def _check_room(self) -> None:
        """Pause or resume the driver's writing, once."""
        full = self._full or self.session.unsent > self._high
        if self.made and full != self._paused_upper:
            self._paused_upper = full
            (self.upper.pause_writing if full else self.upper.resume_writing)()
