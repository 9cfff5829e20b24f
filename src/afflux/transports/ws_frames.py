"""Write whole binary messages and read the headers of WebSocket frames: the hot path. The ``websockets`` library
handles all other frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from secrets import token_bytes
from struct import Struct, iter_unpack
from typing import Any, Final

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask  # type: ignore[assignment,unused-ignore]

__all__ = ["BINARY", "MASKED", "apply_mask", "as_messages", "binary", "header", "whole"]

BINARY: Final = 0x82
"First byte of a binary message in one frame: FIN, no reserved bit, opcode 2."
MASKED: Final = 0x80
"In the second byte: the payload is masked, as every payload of a client is (RFC 6455, 5.3)."

_pack = Struct(">BBH").pack
_read = Struct(">HH").unpack_from
_read_three = Struct(">BH").unpack_from
_TABLE: Final = 1024
"Sizes below it have their headers and lengths in tables."
_HEADS: Final = [
    [bytes((BINARY, mask | size)) for size in range(126)]
    + [_pack(BINARY, mask | 126, size) for size in range(126, _TABLE)]
    for mask in (0, MASKED)
]
"The headers by size: of messages that are not masked, and of those that are, without the key."
_RUN: Final = 8
"Frames of one size that are handled together."


def binary(messages: Iterable[bytes | memoryview], *, masked: bool) -> list[bytes | memoryview]:
    """Return the pieces of ``messages``, each in one frame; masked with random keys."""
    pieces: list[bytes | memoryview] = []
    for message in messages:
        pieces.append(_head(len(message), MASKED if masked else 0))
        pieces.append(message)
    return _with_keys(pieces) if masked else pieces


def as_messages(data: bytes, width: int, own: int, *, masked: bool) -> tuple[list[bytes | memoryview], int]:
    """Return the pieces of the frames in ``data``, each in one message, and where an incomplete frame begins. An
    engine's frame begins with its length, ``width`` bytes that include ``own``."""
    pieces: list[bytes | memoryview] = []
    append, table, number = pieces.append, _HEADS[masked], int.from_bytes
    at, end = 0 if masked else _run_of_frames(data, width, own, pieces), len(data)
    while end - at >= width:
        start = at + width
        if width == 3:
            high, size = _read_three(data, at)
            size += (high << 16) - own
        else:
            size = number(data[at:start], "big") - own
        stop = start + size
        if stop > end:
            break
        append(table[size] if size < _TABLE else _head(size, MASKED if masked else 0))
        append(data[start:stop])
        at = stop
    return _with_keys(pieces) if masked else pieces, at


def _with_keys(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Mask the messages among the pieces, each with a random key, which follows the header."""
    masked: list[bytes | memoryview] = []
    keys = token_bytes(2 * len(pieces))
    for place in range(0, len(pieces), 2):
        key = keys[2 * place : 2 * place + 4]
        masked += pieces[place], key, apply_mask(pieces[place + 1], key)
    return masked


def _run_of_frames(data: bytes, width: int, own: int, pieces: list[bytes | memoryview]) -> int:
    """Append the pieces of the first frames if several have one length; return where they end."""
    if len(data) <= width:
        return 0
    size = int.from_bytes(data[:width], "big") - own
    stop = _equal(data, 0, width, width + size) * (width + size)
    if stop:
        _together(memoryview(data)[:stop], width, size, _head(size, 0), pieces)
    return stop


@cache
def lengths(width: int, own: int) -> list[bytes]:
    """Return the length fields of an engine's frames of 0, 1, ... bytes, for ``whole``."""
    return [(size + own).to_bytes(width, "big") for size in range(min(_TABLE, (1 << 8 * width) - own))]


def whole(
    data: bytes | bytearray, at: int, room: int, masked: int, width: int, own: int, found: list[bytes | bytearray]
) -> int:
    """Append the binary messages at ``at`` to ``found``, as frames of an engine. Return where something else begins: a
    frame that is incomplete, longer than ``room``, not a whole binary message, or not ``masked`` as it must be."""
    end, append, table = len(data), found.append, lengths(width, own)
    if not masked:
        at = _run_of_messages(data, at, room, width, own, found)
    short, long = (6, 8) if masked else (2, 4)
    empty = BINARY << 8 | masked
    while end - at >= 4:
        head, size = _read(data, at)
        head -= empty
        if head == 126:
            start = at + long
        elif 0 <= head < 126:
            start, size = at + short, head
        else:  # no binary message, a long one, or one that is not masked as it must be
            break
        stop = start + size
        if stop > end or size > room:
            break
        append(table[size] if size < _TABLE else (size + own).to_bytes(width, "big"))
        append(apply_mask(data[start:stop], data[start - 4 : start]) if masked else data[start:stop])
        at = stop
    return at


def _run_of_messages(
    data: bytes | bytearray, at: int, room: int, width: int, own: int, found: list[bytes | bytearray]
) -> int:
    """Append the messages at ``at`` if several have one size; return where they end."""
    if len(data) - at < 4 or data[at] != BINARY:
        return at
    start, size = header(data, at)
    if size > room:
        return at
    head = start - at
    if len(data) - at < _RUN * (head + size):
        return at
    stop = at + _equal(data, at, head, head + size) * (head + size)
    if stop > at:
        _together(memoryview(data)[at:stop], head, size, (size + own).to_bytes(width, "big"), found)
    return stop


def _equal(data: bytes | bytearray, at: int, head: int, stride: int) -> int:
    """Return how many frames of ``stride`` bytes at ``at`` follow each other with equal headers of ``head`` bytes; 0
    if they are too few to be handled together."""
    count = (len(data) - at) // stride
    for byte in range(at, at + head):
        if count < _RUN:
            return 0
        column = data[byte : at + count * stride : stride]
        count -= len(column.lstrip(column[:1]))
    return count if count >= _RUN else 0


def _together(frames: memoryview, head: int, size: int, new: bytes, pieces: list[Any]) -> None:
    """Append frames of one size with ``new`` headers instead of their old ones of ``head`` bytes."""
    pieces.append(new)
    pieces.append(new.join([message for (message,) in iter_unpack(f"{head}x{size}s", frames)]))


def _head(size: int, mask: int) -> bytes:
    """Return the header of a binary message, without the key."""
    if size < _TABLE:
        return _HEADS[mask == MASKED][size]
    if size < 0x10000:
        head: bytes = _pack(BINARY, mask | 126, size)
        return head
    return bytes((BINARY, mask | 127)) + size.to_bytes(8, "big")


def header(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the start of the payload of the frame at ``at``, after length and key, and its size. The payload of an
    incomplete header starts after the end of ``data``."""
    size = data[at + 1]
    start, length = at + 2, size & 0x7F
    if length >= 126:
        width = 2 if length == 126 else 8
        length = int.from_bytes(data[start : start + width], "big") if len(data) >= start + width else 0
        start += width
    return (start + 4 if size & MASKED else start), length
