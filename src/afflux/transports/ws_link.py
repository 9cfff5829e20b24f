"""Run a WebSocket under asyncio: a protocol for the socket (or TLS) below, a transport for the driver above. ws_wire.py
translates the bytes.

1. One read is one pass: its messages are delivered together. A read that would take longer than ``loop_ms`` takes
   several passes, each in a turn of its own, and reading pauses meanwhile.
2. Back-pressure passes through: a driver that pauses reading pauses the socket; the socket's buffer is the write
   buffer.
3. The end is reported when everything before it has been delivered: an orderly close as the end of a stream, any other
   as a lost connection, with its reason.
4. A close is sent, and the peer's answer awaited for at most ``flush_s``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import cast

from afflux.core.errors import ConnectFailed, Error
from afflux.core.limits import Limits
from afflux.transports.clock import clock_of
from afflux.transports.reading import DISCARDED_BYTES, GONE, Receiver, end_half
from afflux.transports.stream import Layer
from afflux.transports.ws_wire import Wire

__all__ = ["WebSocketLink"]

_PIECE = 0x4000
"Bytes that are decoded between two checks of the clock. Of large messages, which are decoded fast, _LARGE are."
_LARGE = 0x10000
_FAST = 16
"A piece is decoded fast if it takes less than this part of ``loop_ms``."


class End(IntEnum):
    """How much of a link has ended."""

    OPEN = 0
    HALF = 1
    "The peer has ended its half."
    LOST = 2
    "The link is closed."


class MessageTimer:
    """Ends a link on which one message takes longer than ``frame_s``. Time in which the driver does not read does not
    count. The timer refers to the link only while it runs, so a closed link is freed immediately."""

    __slots__ = ("_begun", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._begun = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, midway: bool, new: bool, expired: Callable[[], None]) -> None:
        """Start, restart (``new``: another message began) or stop the timer. ``expired`` is called at its end."""
        if not midway:
            self.cancel()
            return
        if new or self._timer is None:
            self._begun = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._check, expired)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, expired: Callable[[], None]) -> None:
        left = self._begun + self._seconds - self._loop.time()
        self._timer = None
        if left > 0:
            self._timer = self._loop.call_later(left, self._check, expired)
        else:
            expired()


class WebSocketLink(Layer):
    """The protocol object of the socket. At a client ``opened`` is done when the WebSocket is open or has failed; a
    server has none, and its driver gets the transport immediately."""

    def __init__(self, wire: Wire, upper: Receiver, limits: Limits, opened: asyncio.Future[None] | None = None) -> None:
        super().__init__(upper)
        self._wire = wire
        self._now = clock_of(self.loop)
        self._limits = limits
        self._opened = opened
        self._before: list[bytes] = []
        self._input = b""
        "Bytes that were read and not decoded."
        self._blocked = False
        self._paused = False
        self._closed = False
        "The close was sent, or never will be."
        self._below = End.OPEN
        "The end that the socket has reported."
        self._above = End.OPEN
        "The end that was reported to the driver."
        self._exc: Exception | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._message = MessageTimer(limits.frame_s)
        self._discarded = 0

    # -- from below: asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin on the socket."""
        self.raw = cast("asyncio.Transport", transport)
        if self._opened is None:
            self.make()
        self._write_out()

    def buffer_updated(self, nbytes: int) -> None:
        """Process bytes that were read into the buffer. They are copied only as they are decoded."""
        self.data_received(self.buffer(nbytes)[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Decode one read, or buffer it; discard it when the WebSocket is over."""
        if self._wire.over or self._closed:
            self._discarded += len(data)
            self._check_reading()
            if self._wire.over:
                return
        if self._input or not (self.reading or self.closing):
            self._input += data
        else:
            self._take(data)

    def eof_received(self) -> bool:
        """The peer has ended its half."""
        self._below = End.HALF
        self._step()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._below = End.LOST
        self._blocked = False
        self._exc = exc
        if exc is not None and not self.reading:
            self._input, self.reading = b"", True
        self._message.cancel()
        if self._linger is not None:
            self._linger.cancel()
        self._step()

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._blocked = True
        if self.made:
            self.upper.pause_writing()

    def resume_writing(self) -> None:
        """The socket's buffer has room again; answers to pings have left."""
        self._blocked = False
        if self.made:
            self.upper.resume_writing()
        self.pass_soon()

    # -- from above: LayerTransport -------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole frames with their lengths. At a server they wait for the end of the handshake."""
        if not self._wire.opened:
            self._before.append(bytes(data))
        elif not self._closed:
            self._wire.send(bytes(data))
            self._write_out()

    def read(self, wanted: bool) -> None:
        """Start or stop delivering input."""
        self.reading = wanted
        if wanted:
            self.pass_soon()
        else:
            self._message.cancel()
        self._check_reading()

    def write_eof(self) -> None:
        """Send the close, once, and read until the peer answers it; before the handshake it is ``abort``."""
        if self._closed:
            self._check_reading()
            return
        self._closed = True
        if not self._wire.opened:
            self.abort()
            return
        self._wire.close()
        self._write_out()
        self._wait_for_peer()

    def close(self) -> None:
        """Send the close and wait at most ``flush_s`` for the peer's; before the handshake it is ``abort``."""
        self.closing = True
        self.write_eof()

    def abort(self) -> None:
        """Close the link immediately; the driver gets ``connection_lost`` in a later turn."""
        self._closed = self.closing = self.reading = True
        self._input = b""
        self.raw.abort()
        self.pass_soon()

    # -- inside -------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Connect the driver to its transport."""
        super().make()
        if self._blocked:
            self.upper.pause_writing()

    def _take(self, data: bytes | memoryview) -> None:
        """Decode input, for at most ``loop_ms``."""
        wire, at = self._wire, 0
        found: list[bytes | bytearray] = []
        most = self._limits.loop_ms / 1000
        begun, spent, size = self._now(), 0.0, _PIECE
        while not wire.over and (wire.stopped or at < len(data)):
            if self._echoing or (found and spent >= most):
                break
            piece = b"" if wire.stopped else data[at : at + size]
            at += len(piece)
            wire.read(piece, found)
            if wire.stopped:
                self._write_out()
            spent = self._now() - begun
            size = _LARGE if spent * _FAST < most else _PIECE
        self._write_out()
        self._input = b"" if wire.over else bytes(data[at:])
        if wire.opened and (not self.made or self._before):
            self._open()
        payload = b"".join(found)
        if payload and not self.closing:
            self.recognized = wire.recognized
            self.upper.data_received(payload)
        self.upper.held_below(len(self._input) + wire.pending)
        midway = self._wire.midway and self.reading and self._below is not End.LOST
        self._message.watch(midway, bool(payload), self._late)
        self._step()

    def _open(self) -> None:
        """Begin to deliver: the WebSocket is open."""
        if self._opened is not None and not self.made:
            if self._opened.done():
                return
            self._opened.set_result(None)
            self.make()
        before, self._before = self._before, []
        for data in before:
            self.write(data)

    def next_pass(self) -> None:
        """Decode buffered input, in a turn of its own."""
        if self._more:
            data, self._input = self._input, b""
            self._take(data)
        else:
            self._step()

    def _step(self) -> None:
        """After any change: report the end when it is due, and pause or resume reading."""
        if self._more:
            self.pass_soon()
        elif not self._input and not self._echoing:
            if self._below is not End.OPEN and not self._wire.over:
                self._wire.receive_eof()
                self._write_out()
            if self.reading or self.closing:
                self._report_end()
        self._check_reading()

    def _report_end(self) -> None:
        wire = self._wire
        if wire.over and self._above is End.OPEN:
            self._above = End.HALF
            if self.made and wire.error is None and not self._exc and not self.closing:
                self.upper.eof_received()
                self._closed = self.closing = True
            if self._below is not End.LOST:
                self._wait_for_peer()
        if self._opened is not None and not self._opened.done() and (wire.over or self._below is End.LOST):
            self._opened.set_exception(_failure(self._exc, wire.error))
        if self._below is End.LOST and self._above is not End.LOST:
            self._above, self.closing = End.LOST, True
            # The reason: afflux's error from below, else the error of the WebSocket.
            why = self._exc if isinstance(self._exc, Error) else wire.error or self._exc
            upper, self.upper = self.upper, GONE
            self._exc = None
            wire.forget()
            if self.made:
                upper.connection_lost(why)

    def _write_out(self) -> None:
        """Write the bytes that the wire has queued."""
        data = self._wire.outgoing()
        if self.raw.is_closing():
            return
        if data:
            self.raw.write(data)
        if self._wire.hang_up():
            if self.raw.can_write_eof():
                end_half(self.raw)
            else:
                self.raw.close()

    def _wait_for_peer(self) -> None:
        """Wait at most ``flush_s`` until the peer has closed its side."""
        if self._linger is None and self._below is not End.LOST:
            self._linger = self.loop.call_later(self._limits.flush_s, self.raw.abort)
        self._check_reading()

    @property
    def _more(self) -> bool:
        """True when buffered input may be decoded now."""
        some = bool(self._input) or (self._wire.stopped and not self._wire.over)
        return some and (self.reading or self.closing) and not self._echoing

    @property
    def _echoing(self) -> bool:
        """True while answers to pings wait for the peer to read them."""
        return self._blocked and self._wire.stopped

    def _check_reading(self) -> None:
        """Pause or resume reading below."""
        pause = bool(self._input) or not (self.reading or self.closing or self._above is not End.OPEN) or self._echoing
        pause = pause or self._discarded > DISCARDED_BYTES
        if pause != self._paused and self._below is not End.LOST:
            self._paused = pause
            if pause:
                self.raw.pause_reading()
            else:
                self.raw.resume_reading()

    def _late(self) -> None:
        self._wire.late()
        self._write_out()
        self._step()


def _failure(below: Exception | None, error: Error | None) -> Exception:
    """Return the reason why a client could not connect: the error from below, or the error of the WebSocket."""
    if isinstance(below, ConnectFailed) or error is None:
        return below or ConnectFailed("the connection was closed during the handshake")
    return error
