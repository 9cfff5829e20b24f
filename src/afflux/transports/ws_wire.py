"""Translate between an engine's bytes and WebSocket messages, without the socket. ws_link.py (asyncio) and ws_dial.py
(blocking) move the bytes and the time.

1. An engine's frames have length prefixes. Each is sent as one binary message without the length; the length is added
   to each message that arrives. A protocol that is one stream (``framing`` None) uses messages unchanged.
2. This module finds the boundaries of frames and reads whole binary messages itself (ws_frames.py). The ``websockets``
   library reads the handshake, fragments, pings, closes and illegal frames, one whole frame at a time.
3. No extension is offered, and none is accepted: nothing is inflated.
4. Input from the peer never raises. It sets ``over``, with an ``error`` unless it was an orderly end; bytes before it
   have been returned.
5. Input is bounded before it is buffered: the HTTP head and the first message by ``first_frame_bytes``, every message
   by ``frame_bytes`` and ``ws_fragments``, answers to pings by ``keepalive_echoes``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import CLOSED, OPEN
from websockets.server import ServerProtocol

from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Error, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.transports.address import Address
from afflux.transports.ws_frames import BINARY, MASKED, apply_mask, as_messages, binary, header, whole
from afflux.transports.ws_rules import (
    MESSAGE_TOO_BIG,
    NORMAL,
    POLICY,
    UNSUPPORTED_DATA,
    closed_with,
    limited,
    printable,
    text_message,
)

__all__ = ["Wire"]


class Wire:
    """The part of both ends after the handshake. The handshakes are in ws_server.py and ws_client.py."""

    def __init__(self, library: ClientProtocol | ServerProtocol, address: Address, limits: Limits) -> None:
        self.opened = False
        "The handshake has succeeded."
        self.recognized: str | None = None
        "The name of the client's protocol, if this end has recognized it."
        self.over = False
        "The engine gets no more input."
        self.error: Error | None = None
        "The reason of the end; None after an orderly end."
        self._hang_up = False
        self.stopped = False
        '``keepalive_echoes`` pings were answered: write the answers, then continue with ``read(b"", found)``.'
        self._library: ClientProtocol | ServerProtocol = library
        self.limits = limits
        "The bounds of the connection."
        self._frame_as(address.entry)
        self._masks = isinstance(library, ClientProtocol)
        self._ready: list[bytes | memoryview] = []
        self._part = b""
        self.first = False
        "The first message of a client has not arrived: ``first_frame_bytes`` bounds it."
        self._held = bytearray()
        self._needed = 0
        self._message: bytearray | None = None
        self._fragments = 0
        self._echoes = 0

    def _frame_as(self, protocol: ProtocolEntry) -> None:
        """Use the framing of a protocol."""
        framing = self._framing = protocol.framing
        self._join: Callable[[bytes], bytes] = bytes if framing is None else framing.join
        most = self.limits.frame_bytes
        self._most = most if framing is None else min(most - framing.own, framing.most)

    # -- writing ------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Queue an engine's bytes. Before the handshake and after a close they are dropped."""
        if self._library.state is OPEN and data:
            self._ready += self._library.data_to_send()
            self._ready += self._pieces(data)

    def _pieces(self, data: bytes) -> list[bytes | memoryview]:
        """Return the pieces of the messages for ``data``. Engines return whole frames; an incomplete one waits for its
        rest."""
        framing = self._framing
        if framing is None:
            return binary([data], masked=self._masks)
        if self._part:
            data, self._part = self._part + data, b""
        pieces, rest = as_messages(data, framing.width, framing.own, masked=self._masks)
        if rest < len(data):
            self._part = data[rest:]
        return pieces

    def close(self) -> None:
        """Queue an orderly close."""
        if self._library.state is OPEN:
            self._library.send_close(NORMAL)

    def outgoing(self) -> bytes:
        """Return the bytes to write now."""
        pieces: list[Any] = self._library.data_to_send()
        if pieces and not pieces[-1]:
            self._hang_up = True
        if self._ready:
            pieces, self._ready = self._ready + pieces, []
        return b"".join(pieces)

    def hang_up(self) -> bool:
        """Return True once, when this half of the link must be ended: ``outgoing`` has returned the last bytes."""
        due, self._hang_up = self._hang_up, False
        return due

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def midway(self) -> bool:
        """Whether a message has begun and not ended: call ``late`` when that takes longer than ``frame_s``."""
        return (self._message is not None or bool(self._held)) and not self.over and not self.stopped

    @property
    def pending(self) -> int:
        """Bytes of an incomplete message."""
        return len(self._held) + (0 if self._message is None else len(self._message))

    def read(self, data: bytes | memoryview, found: list[bytes | bytearray]) -> None:
        """Receive bytes of the network, and copy them; append the engine's bytes to ``found``. ``outgoing`` may return
        answers."""
        self.stopped, self._echoes = False, 0
        at = 0
        while self._held and not self.over and not self.stopped:
            missing = max(0, self._needed - len(self._held))
            self._held += data[at : at + missing]
            at += missing
            if len(self._held) < self._needed:
                return
            held, self._held = self._held, bytearray()
            self._keep(held, self._cut(held, found))
        rest = data[at:]
        if self.stopped:
            self._held += rest
        elif rest and not self.over:
            block = bytes(rest)
            self._keep(block, self._cut(block, found))

    def _keep(self, block: bytes | bytearray, at: int) -> None:
        """Buffer what has not been cut."""
        if at < len(block) and not self.over:
            self._held += memoryview(block)[at:]

    def receive_eof(self) -> None:
        """The network has ended."""
        if self._library.state is not CLOSED:
            self._library.receive_eof()
        self.over = True

    def forget(self) -> None:
        """Break reference cycles after the link is closed: the library, its parser (a generator) and the errors it
        raised refer to each other and would wait for the garbage collector."""
        library = self._library
        library.parser.close()
        for error in (library.parser_exc, library.handshake_exc):
            if error is not None:
                error.__traceback__ = None

    def late(self) -> None:
        """A message has taken longer than ``frame_s``."""
        self.fail(POLICY, limited("frame_s"))

    def fail(self, code: int, error: Error) -> None:
        """End with an error: the peer broke a rule. The peer gets the code and the message."""
        if not self.over:
            self.over = True
            self.error = error
            self._library.fail(code, error.message)

    # -- inside -------------------------------------------------------------------------------------------------

    def _cut(self, data: bytes | bytearray, found: list[bytes | bytearray]) -> int:
        """Take the whole frames in ``data``; return where the rest begins. Headers are checked before payloads
        arrive."""
        masked = 0 if self._masks else MASKED
        at, end, room = 0, len(data), self._room()
        self._needed = 2
        while end - at >= 2 and not self.over and not self.stopped:
            framing = self._framing
            if framing is not None and self._message is None and not self.first:
                at = whole(data, at, room, masked, framing.width, framing.own, found)
                if end - at < 2:
                    break
            start, size = header(data, at)
            stop = start + size
            if size > room:
                self._too_large(size)
            elif stop > end:
                self._needed = stop - at
                break
            elif data[at] == BINARY and data[at + 1] & MASKED == masked and self._message is None:
                payload = bytes(data[start:stop])
                if masked:
                    payload = apply_mask(payload, data[start - 4 : start])
                found.append(self._join(payload))
                if self.first:
                    self._begins(payload, found)
            else:
                self._other(bytes(data[at:stop]), found)
            room = self._room()
            at = stop
        return at

    def _begins(self, message: bytes, found: list[bytes | bytearray]) -> None:
        """The first message of a client is the last one in ``found``."""
        self.first = False

    def _room(self) -> int:
        """Return the largest payload that is allowed now."""
        most = self._most
        if self.first:
            most = min(most, self.limits.first_frame_bytes - (0 if self._framing is None else self._framing.own))
        return most if self._message is None else most - len(self._message)

    def _too_large(self, size: int) -> None:
        """Refuse a frame with ``size`` bytes more."""
        size += len(self._message or b"") + (0 if self._framing is None else self._framing.own)
        name = "first_frame_bytes" if self.first else "frame_bytes"
        self.fail(MESSAGE_TOO_BIG, limited(name, self.limits, size))

    def _other(self, frame: bytes, found: list[bytes | bytearray]) -> None:
        """Let the library read a frame that is not a whole binary message, or is illegal."""
        library = self._library
        library.receive_data(frame)
        for event in library.events_received():
            self._take(cast("Frame", event), found)
        if library.parser_exc is not None and not self.over:
            self.over = True
            words = printable(str(library.parser_exc), 128)
            self.error = RemoteProtocolError(f"the peer broke a rule of WebSocket: {words}", rule="ws")

    def _take(self, frame: Frame, found: list[bytes | bytearray]) -> None:
        opcode = frame.opcode
        if opcode is Opcode.BINARY or opcode is Opcode.CONT:
            self._fragment(frame, found)
        elif opcode is Opcode.TEXT:
            self.fail(UNSUPPORTED_DATA, text_message())
        elif opcode is Opcode.PING:
            self._echoes += 1
            self.stopped = self._echoes >= self.limits.keepalive_echoes
        elif opcode is Opcode.CLOSE:
            self._closed()

    def _fragment(self, frame: Frame, found: list[bytes | bytearray]) -> None:
        if self._message is None:
            self._message, self._fragments = bytearray(), 0
        self._fragments += 1
        if self._fragments > self.limits.ws_fragments:
            self.fail(MESSAGE_TOO_BIG, limited("ws_fragments", self.limits))
            return
        self._message += frame.data
        if frame.fin:
            message, self._message = bytes(self._message), None
            found.append(self._join(message))
            if self.first:
                self._begins(message, found)

    def _closed(self) -> None:
        """The peer closes, or answers this side's close."""
        self.over = True
        close = self._library.close_rcvd
        if close is not None and self._library.close_rcvd_then_sent:
            self.error = closed_with(close.code, close.reason)
