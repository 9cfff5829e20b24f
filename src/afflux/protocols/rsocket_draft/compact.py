"""Read and write compact types: a well-known number as one byte, any other name as text (2.3).

A compact type is an ``int`` from 0 to 0x7F, or a ``str`` of 1 to 128 ASCII characters. In frames it identifies
extensions, lease strategies and MIME types; a MIME type has its name in Python (``mime_of``, ``mime_bytes``).
"""

from __future__ import annotations

from typing import Any, Final

from afflux.core.errors import Violation
from afflux.protocols.rsocket.metadata.mime import MIME_IDS, mime_name

__all__ = ["MOST_TEXT", "CompactType", "compact_bytes", "mime_bytes", "mime_of", "mime_size", "read_compact"]

CompactType = int | str
"A well-known number, or a name."

MOST_TEXT: Final = 0x80
"The most characters of a name (R-11)."
_WELL_KNOWN: Final = 0x80
_BY_NUMBER: Final = {mime_name(id): id for id in range(0x80)}
"The numbers of MIME types by name; the name of a reserved number is the number as text."
_MIME_OCTETS: Final = {name: bytes((_WELL_KNOWN | id,)) for name, id in (_BY_NUMBER | MIME_IDS).items()}


def compact_bytes(value: CompactType, what: str = "a compact type") -> bytes:
    """Encode a compact type.

    Raises:
        Violation: a number above 0x7F, or a name that is not 1 to 128 ASCII characters (R-11).
    """
    if isinstance(value, int):
        if 0 <= value < _WELL_KNOWN:
            return bytes((_WELL_KNOWN | value,))
        raise Violation(f"{what} has a number from 0 to 127, not {value}", rule="R-11")
    if not 1 <= len(value) <= MOST_TEXT or not value.isascii():
        raise Violation(f"{what} has 1 to {MOST_TEXT} ASCII characters, not {value[:130]!r}", rule="R-11")
    return bytes((len(value) - 1,)) + value.encode("ascii")


def read_compact(frame: Any, what: str, buffer: bytes, at: int, start: int, end: int) -> tuple[CompactType, int]:
    """Return the compact type at ``at`` and where it ends. ``frame`` is the class of the frame at
    ``buffer[start:end]``, whose ``malformed`` makes the violation that is raised for bytes that are not one."""
    if at >= end:
        raise frame.malformed(f"{frame.NAME}: {what} is missing", buffer, start, end)
    first = buffer[at]
    at += 1
    if first & _WELL_KNOWN:
        return first & 0x7F, at
    stop = at + first + 1
    if stop > end:
        reason = f"{frame.NAME}: {what} of {first + 1} bytes where {end - at} are left"
        raise frame.malformed(reason, buffer, start, end)
    try:
        return str(buffer[at:stop], "ascii"), stop
    except UnicodeDecodeError:
        raise frame.malformed(f"{frame.NAME}: {what} is not ASCII", buffer, start, end) from None


def mime_of(frame: Any, name: str, buffer: bytes, at: int, start: int, end: int) -> tuple[str, int]:
    """Return the name of the MIME type at ``at`` and where it ends. Raises like ``read_compact``."""
    value, at = read_compact(frame, name, buffer, at, start, end)
    return mime_name(value) if isinstance(value, int) else value, at


def mime_bytes(name: str) -> bytes:
    """Encode a MIME type: a well-known name as its number. Raises like ``compact_bytes``."""
    return _MIME_OCTETS.get(name) or compact_bytes(name, "a MIME type")


def mime_size(name: str) -> int:
    """Return the size of an encoded MIME type."""
    return 1 if name in _MIME_OCTETS else 1 + len(name)
