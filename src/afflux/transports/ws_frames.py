"""Write whole binary messages and read the headers of WebSocket frames: the hot path. The ``websockets`` library
handles all other frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_bytes
from struct import Struct
from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask  # type: ignore[assignment,unused-ignore]

__all__ = ["BINARY", "MASKED", "apply_mask", "binary", "header"]

BINARY: Final = 0x82
"First byte of a binary message in one frame: FIN, no reserved bit, opcode 2."
MASKED: Final = 0x80
"In the second byte: the payload is masked, as every payload of a client is (RFC 6455, 5.3)."

_pack = Struct(">BBH").pack
_SHORT: Final = [bytes((BINARY, size)) for size in range(126)]
_SHORT_MASKED: Final = [bytes((BINARY, MASKED | size)) for size in range(126)]


def binary(messages: Iterable[memoryview], *, masked: bool) -> list[bytes | memoryview]:
    """Return the pieces of ``messages``, each in one frame; masked with random keys."""
    pieces: list[bytes | memoryview] = []
    if not masked:
        for message in messages:
            size = len(message)
            pieces.append(_SHORT[size] if size < 126 else _long(size, 0))
            pieces.append(message)
        return pieces
    whole = list(messages)
    keys = token_bytes(4 * len(whole))
    for number, message in enumerate(whole):
        size = len(message)
        key = keys[4 * number : 4 * number + 4]
        pieces.append(_SHORT_MASKED[size] if size < 126 else _long(size, MASKED))
        pieces.append(key)
        pieces.append(apply_mask(message, key))
    return pieces


def _long(size: int, mask: int) -> bytes:
    if size < 0x10000:
        head: bytes = _pack(BINARY, mask | 126, size)
        return head
    return bytes((BINARY, mask | 127)) + size.to_bytes(8, "big")


def header(data: bytes, at: int) -> tuple[int, int]:
    """Return the start of the payload of the frame at ``at``, after length and key, and its size. The payload of an
    incomplete header starts after the end of ``data``."""
    size = data[at + 1]
    start, length = at + 2, size & 0x7F
    if length >= 126:
        width = 2 if length == 126 else 8
        length = int.from_bytes(data[start : start + width], "big") if len(data) >= start + width else 0
        start += width
    return (start + 4 if size & MASKED else start), length
