"""One WebSocket under asyncio: a transport for the driver above, a protocol for the socket (or TLS) below. What the
bytes mean is ws_wire.py's.

1. One read is one pass: the messages of a read go up together. A read that would take longer than ``loop_ms`` is
   several, each in a turn of its own, and reading waits meanwhile.
2. Back-pressure goes through: who pauses above pauses the socket; the socket's buffer is the write buffer.
3. The end is told above when everything before it has been taken: an orderly close as the end of a stream, any other
   as a connection that is lost, with its reason.
4. A close is said, and the peer's answer awaited ``flush_s`` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from afflux.core.errors import ConnectFailed, Error
from afflux.core.limits import Limits
from afflux.transports.clock import clock_of
from afflux.transports.reading import DISCARDED_BYTES, GONE, Receiver, end_half
from afflux.transports.ws_wire import Wire

__all__ = ["WebSocketLink", "WebSocketTransport"]

_PIECE = 0x4000
"So much is taken between two looks at the clock."


class WebSocketTransport(asyncio.Transport):
    """What the driver writes to and pauses."""

    def __init__(self, link: WebSocketLink) -> None:
        super().__init__()
        self._link = link
        self._raw = link.raw

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write frames, as they stand in a stream; at a server, before the handshake, they wait for it."""
        self._link.write(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces, which are whole frames together."""
        self._link.write(b"".join(list_of_data))

    def unsent(self) -> int:
        """Bytes that the socket has not taken."""
        return self._raw.get_write_buffer_size()

    get_write_buffer_size = unsent
    "asyncio's name for it."

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to pause and to resume writing."""
        self._raw.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        """Take nothing for now."""
        self._link.read(False)

    def resume_reading(self) -> None:
        """Take what comes."""
        self._link.read(True)

    def is_reading(self) -> bool:
        """Whether it takes what comes."""
        return self._link.reading and not self.is_closing()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be. A link whose end the driver has not been told is not."""
        return self._link.deaf

    def can_write_eof(self) -> bool:
        """Yes: a close is the end of what this side says."""
        return True

    def write_eof(self) -> None:
        """Say the close, and go on reading until the peer answers it; before the handshake it is ``abort``."""
        self._link.close()

    def close(self) -> None:
        """Say the close and wait for the peer's, ``flush_s`` at most; before the handshake it is ``abort``."""
        self._link.deaf = True
        self._link.close()

    def abort(self) -> None:
        """Cut the link."""
        self._link.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another driver takes over."""
        self._link.upper = cast("Receiver", protocol)

    def known(self, name: str, default: Any = None) -> Any:
        """What the link below knows of itself."""
        return self._raw.get_extra_info(name, default)

    get_extra_info = known
    "asyncio's name for it."


class WebSocketLink(Receiver):  # long: asyncio's six callbacks from below, and what the transport calls
    """What the socket talks to. At a client ``opened`` is done when the WebSocket is open, or has failed; a server has
    none, and its driver gets the transport at once."""

    def __init__(self, wire: Wire, upper: Receiver, limits: Limits, opened: asyncio.Future[None] | None = None) -> None:
        self.raw: asyncio.Transport
        "The transport below."
        self.upper = upper
        "The driver."
        self.reading = True
        "The driver takes what comes."
        self.deaf = False
        "The driver is done: what comes is of no use to anyone."
        self._loop = asyncio.get_running_loop()
        self._wire = wire
        self._limits = limits
        self._opened = opened
        self._made = False
        self._before: list[bytes] = []
        self._held = b""
        self._reported = 0
        self._stepping = False
        self._blocked = False
        self._paused = False
        self._closing = False
        self._hung_up = False
        self._heard_end = False
        self._told_over = False
        self._lost = False
        self._exc: Exception | None = None
        self._told_lost = False
        self._linger: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._begun = 0.0
        self._discarded = 0

    # -- from below: asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self.raw = cast("asyncio.Transport", transport)
        if self._opened is None:
            self._make()
        self._write_out()

    def buffer_updated(self, nbytes: int) -> None:
        """A read, which is not looked at when the WebSocket is over."""
        if self._wire.over:
            self._discard(nbytes)
        else:
            super().buffer_updated(nbytes)

    def data_received(self, data: bytes) -> None:
        """A read."""
        if self._wire.over or self._closing:
            self._discard(len(data))
            if self._wire.over:
                return
        if self._held or not (self.reading or self.deaf):
            self._held += data
        else:
            self._take(data)

    def eof_received(self) -> bool:
        """The peer has ended its half."""
        self._heard_end = True
        self._step()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._lost = self._heard_end = True
        self._blocked = False
        self._exc = exc
        if exc is not None and not self.reading:
            self._held, self.reading = b"", True
        for timer in (self._linger, self._late):
            if timer is not None:
                timer.cancel()
        self._step()

    def pause_writing(self) -> None:
        """The socket holds enough."""
        self._blocked = True
        if self._made:
            self.upper.pause_writing()

    def resume_writing(self) -> None:
        """The socket has room again, and has taken the answers to pings."""
        self._blocked = False
        if self._made:
            self.upper.resume_writing()
        self._step_soon()

    # -- from above: WebSocketTransport -------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Frames to send."""
        if not self._wire.opened:
            self._before.append(data)
        elif not self._closing:
            self._wire.send(data)
            self._write_out()

    def read(self, wanted: bool) -> None:
        """Whether the driver takes what comes."""
        self.reading = wanted
        if wanted:
            self._step_soon()
        else:
            self._watch_message()
        self._check_reading()

    def close(self) -> None:
        """Say the close."""
        if self._closing:
            self._check_reading()
            return
        self._closing = True
        if not self._wire.opened:
            self.abort()
            return
        self._wire.close()
        self._write_out()
        self._wait_for_peer()

    def abort(self) -> None:
        """Cut the link; who is above hears it in a later turn."""
        self._closing = self.deaf = self.reading = True
        self._held = b""
        self.raw.abort()
        self._step_soon()

    # -- inside -------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        """Give the driver its transport."""
        self._made = True
        self.upper.connection_made(WebSocketTransport(self))
        if self._blocked:
            self.upper.pause_writing()

    def _take(self, data: bytes) -> None:
        """One pass over the input, as far as it may go in this turn."""
        wire, at = self._wire, 0
        found: list[bytes] = []
        now = clock_of(asyncio.get_running_loop())
        until = now() + self._limits.loop_ms / 1000
        while not wire.over and (wire.stopped or at < len(data)):
            if self._echoing or (found and now() >= until):
                break
            piece = b"" if wire.stopped else data[at : at + _PIECE]
            at += len(piece)
            found.append(wire.receive(piece))
            self._write_out()
        self._held = b"" if wire.over else data[at:]
        if wire.opened and (not self._made or self._before):
            self._open()
        payload = b"".join(found)
        if payload and not self.deaf:
            self.upper.data_received(payload)
        if (held := len(self._held) + wire.pending) != self._reported:
            self._reported = held
            self.upper.held_below(held)
        self._watch_message(new=bool(payload))
        self._step()

    def _open(self) -> None:
        """The WebSocket is open."""
        if self._opened is not None and not self._made:
            if self._opened.done():
                return
            self._opened.set_result(None)
            self._make()
        before, self._before = self._before, []
        for data in before:
            self.write(data)

    def _step_soon(self) -> None:
        if not self._stepping:
            self._stepping = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """What was held, in a turn of its own."""
        self._stepping = False
        if self._more:
            held, self._held = self._held, b""
            self._take(held)
        else:
            self._step()

    def _step(self) -> None:
        """After anything: tell the end when it is time, read on or do not."""
        if self._more:
            self._step_soon()
        elif not self._held and not self._echoing:
            if self._heard_end and not self._wire.over:
                self._wire.receive_eof()
                self._write_out()
            if self.reading or self.deaf:
                self._tell_the_end()
        self._check_reading()

    def _tell_the_end(self) -> None:
        wire = self._wire
        if wire.over and not self._told_over:
            self._told_over = True
            if self._made and wire.error is None and not self._exc and not self.deaf:
                self.upper.eof_received()
                self._closing = self.deaf = True
            if not self._lost:
                self._wait_for_peer()
        if self._opened is not None and not self._opened.done() and (wire.over or self._lost):
            self._opened.set_exception(self._failure())
        if self._lost and not self._told_lost:
            self._told_lost = self.deaf = True
            why, upper = self._why(), self.upper
            self._exc, self.upper = None, GONE
            self._wire.forget()
            if self._made:
                upper.connection_lost(why)

    def _why(self) -> Exception | None:
        """The error from below, if it is one worth telling, or the one that the peer's words make."""
        return self._exc if isinstance(self._exc, Error) else self._wire.error or self._exc

    def _failure(self) -> Exception:
        """Why a client could not connect."""
        if isinstance(self._exc, ConnectFailed) or self._wire.error is None:
            return self._exc or ConnectFailed("the connection was closed during the handshake")
        return self._wire.error

    def _write_out(self) -> None:
        """Hand on what the wire has to say."""
        data = self._wire.outgoing()
        if self.raw.is_closing():
            return
        if data:
            self.raw.write(data)
        if self._wire.hung_up and not self._hung_up:
            self._hung_up = True
            if self.raw.can_write_eof():
                end_half(self.raw)
            else:
                self.raw.close()

    def _wait_for_peer(self) -> None:
        """Everything is said. The peer has ``flush_s`` to close its side."""
        if self._linger is None and not self._lost:
            self._linger = self._loop.call_later(self._limits.flush_s, self.raw.abort)
        self._check_reading()

    @property
    def _more(self) -> bool:
        """Something is held that may be taken."""
        some = bool(self._held) or (self._wire.stopped and not self._wire.over)
        return some and (self.reading or self.deaf) and not self._echoing

    @property
    def _echoing(self) -> bool:
        """Enough answers to pings wait for the peer to read them."""
        return self._blocked and self._wire.stopped

    def _discard(self, size: int) -> None:
        """Count what comes after the close: the peer's own close is awaited, but not behind input without end."""
        self._discarded += size
        self._check_reading()

    def _check_reading(self) -> None:
        """Read below what may be taken here."""
        pause = bool(self._held) or not (self.reading or self.deaf or self._told_over) or self._echoing
        pause = pause or self._discarded > DISCARDED_BYTES
        if pause != self._paused and not self._lost:
            self._paused = pause
            if pause:
                self.raw.pause_reading()
            else:
                self.raw.resume_reading()

    def _watch_message(self, *, new: bool = False) -> None:
        """A message that has begun has ``frame_s`` to end, not counting the time in which nobody here reads. ``new``:
        another one has ended meanwhile."""
        if not (self._wire.midway and self.reading) or self._lost:
            if self._late is not None:
                self._late.cancel()
                self._late = None
            return
        if new or self._late is None:
            self._begun = self._loop.time()
        if self._late is None:
            self._late = self._loop.call_later(self._limits.frame_s, self._look_again)

    def _look_again(self) -> None:
        left = self._begun + self._limits.frame_s - self._loop.time()
        self._late = None
        if left > 0:
            self._late = self._loop.call_later(left, self._look_again)
            return
        self._wire.late()
        self._write_out()
        self._step()
