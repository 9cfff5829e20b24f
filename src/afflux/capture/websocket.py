"""Take the messages out of one side of a WebSocket, as they were captured (RFC 6455, RFC 7692).

Reads the upgrade, fragments and compressed messages, within limits. Does not judge the peer: a frame that cannot be
read ends the side with a reason.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from afflux.core.limits import Limits, reached

__all__ = ["Head", "Message", "Messages", "head_of"]

_CONTINUATION, _TEXT, _BINARY, _CONTROL = 0, 1, 2, 8
_COMPRESSED = 0x40
_TAIL = b"\x00\x00\xff\xff"
"What a sender removed from the end of a compressed message (RFC 7692, 7.2.1)."


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an HTTP request or answer."""

    size: int
    "Its bytes, with the empty line."
    line: str
    "The first line."
    fields: dict[str, str]
    "The header fields, by lower-case name; values of one name are joined by commas."

    @property
    def upgrades(self) -> bool:
        """Whether it asks for, or answers, an upgrade to WebSocket."""
        return self.fields.get("upgrade", "").lower() == "websocket"

    @property
    def accepts(self) -> bool:
        """Whether it is the answer that switches protocols."""
        return self.upgrades and re.match(r"HTTP/1\.1 101\b", self.line) is not None

    def deflates(self, client: bool) -> tuple[bool, bool]:
        """Return whether this answer permits one side to compress, and whether each message is separate."""
        for offer in self.fields.get("sec-websocket-extensions", "").split(","):
            name, *parameters = (part.strip().lower() for part in offer.split(";"))
            if name == "permessage-deflate":
                side = "client" if client else "server"
                return True, f"{side}_no_context_takeover" in parameters
        return False, False


def head_of(data: bytes) -> Head | None:
    """Return the HTTP head that ``data`` begins with; None if it is not complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    line, *lines = data[:end].decode("latin-1").split("\r\n")
    fields: dict[str, str] = {}
    for text in lines:
        name, _, value = text.partition(":")
        name, value = name.strip().lower(), value.strip()
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    return Head(end + 4, line, fields)


@dataclass(frozen=True, slots=True)
class Message:
    """A message with data."""

    data: bytes
    "The payload, unmasked and inflated."
    start: int
    "The position of the payload in the direction; of the first fragment's."
    end: int
    "The position after the message."


class Messages:
    """The messages of one side.

    Args:
        limits: see ``frame_bytes`` and ``ws_fragments``.
        position: where the first frame begins in the direction.
        deflate: whether messages may be compressed, and whether each is compressed separately.
    """

    def __init__(self, limits: Limits, position: int, deflate: tuple[bool, bool] = (False, False)) -> None:
        self._limits = limits
        self._position = position
        self._held = bytearray()
        self._parts: list[bytes] = []
        self._fragments = 0
        self._size = 0
        self._start = 0
        self._compressed = False
        self._deflate, self._anew = deflate
        self._inflate: Any = None
        self.over = ""
        "Why no more messages can be read; empty if they can. ``closed`` after a close frame."

    @property
    def buffered(self) -> int:
        """Bytes of incomplete messages."""
        return len(self._held) + self._size

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add bytes of the direction; yield the messages that are complete. Only one exists at a time, because a
        compressed one may be a thousand times as large as its bytes."""
        if self.over:
            return
        held = self._held
        held += data
        found: list[Message] = []
        at = 0
        while size := self._frame(held, at, found):
            at += size
            while found:
                yield found.pop()
        del held[:at]
        self._position += at
        self._clear()

    def _clear(self) -> None:
        """Free the buffer when no more messages can be read."""
        if self.over:
            self._held.clear()

    def _frame(self, held: bytearray, at: int, found: list[Message]) -> int:
        """Read one frame; return its size, 0 if it is incomplete."""
        if self.over or len(held) - at < 2:
            return 0
        first, second = held[at], held[at + 1]
        start, size = at + 2, second & 0x7F
        if size >= 126:
            width = 2 if size == 126 else 8
            start += width
            if len(held) < start:
                return 0
            size = int.from_bytes(held[at + 2 : start], "big")
        masked = bool(second & 0x80)
        start += 4 * masked
        if self._size + size > self._limits.frame_bytes:
            self.over = reached(self._limits, "frame_bytes")
            return 0
        if len(held) < start + size:
            return 0
        payload = bytes(held[start : start + size])
        if masked:
            payload = unmasked(payload, bytes(held[start - 4 : start]))
        self._take(first, payload, self._position + start, found)
        return start + size - at

    def _take(self, first: int, payload: bytes, at: int, found: list[Message]) -> None:
        opcode = first & 0x0F
        if opcode >= _CONTROL:
            self.over = "closed" if opcode == _CONTROL else ""
            return
        wrong = (opcode == _CONTINUATION) != bool(self._fragments) or first & 0x30 or opcode > _BINARY
        if wrong or (first & _COMPRESSED and (self._fragments or not self._deflate)):
            self.over = f"an illegal WebSocket frame: 0x{first:02x}"
            return
        if not self._fragments:
            self._start, self._compressed = at, bool(first & _COMPRESSED)
        self._fragments += 1
        self._parts.append(payload)
        self._size += len(payload)
        if self._fragments > self._limits.ws_fragments:
            self.over = reached(self._limits, "ws_fragments")
        elif first & 0x80:
            data = b"".join(self._parts)
            self._parts, self._fragments, self._size = [], 0, 0
            if self._compressed:
                data = self._inflated(data)
            if not self.over:
                found.append(Message(data, self._start, at + len(payload)))

    def _inflated(self, data: bytes) -> bytes:
        if self._inflate is None or self._anew:
            self._inflate = zlib.decompressobj(wbits=-15)
        most = self._limits.frame_bytes
        try:
            made: bytes = self._inflate.decompress(data + _TAIL, most + 1)
        except zlib.error as error:
            self.over = f"a compressed message cannot be read: {error}"
            return b""
        if len(made) > most:
            self.over = reached(self._limits, "frame_bytes")
        return made


def unmasked(payload: bytes, key: bytes) -> bytes:
    """Remove the mask of a client's frame."""
    mask = np.frombuffer((key * (len(payload) // 4 + 1))[: len(payload)], np.uint8)
    return bytes(np.frombuffer(payload, np.uint8) ^ mask)
