"""Recognize TLS, and read what a ClientHello shows before encryption: the server's name and the protocols offered.

Nothing is decrypted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from struct import unpack_from

__all__ = ["Hello", "begins", "hello"]

_HANDSHAKE, _CLIENT_HELLO = 0x16, 0x01
_SERVER_NAME, _ALPN = 0, 16


@dataclass(frozen=True, slots=True)
class Hello:
    """The readable part of a ClientHello."""

    name: str
    "The server's name (SNI); empty if it is missing."
    protocols: tuple[str, ...]
    "The protocols offered (ALPN)."

    def __str__(self) -> str:
        shown = [f"server name {self.name}"] if self.name else []
        if self.protocols:
            shown.append(f"ALPN {', '.join(self.protocols)}")
        return "; ".join(shown)


def begins(start: bytes) -> bool:
    """Return whether these first bytes of a side are a TLS handshake record."""
    return len(start) >= 3 and start[0] == _HANDSHAKE and start[1] == 3 and start[2] <= 4


def hello(start: bytes) -> Hello:
    """Return what the ClientHello in these first bytes shows; a hello that is cut off or wrong shows nothing."""
    try:
        return _read(start)
    except (struct.error, IndexError):
        return Hello("", ())


def _read(start: bytes) -> Hello:
    body = start[5 : 5 + int.from_bytes(start[3:5], "big")]
    if body[0] != _CLIENT_HELLO:
        return Hello("", ())
    at = 4 + 2 + 32
    at += 1 + body[at]
    at += 2 + unpack_from(">H", body, at)[0]
    at += 1 + body[at]
    end = min(len(body), at + 2 + unpack_from(">H", body, at)[0])
    at += 2
    name, protocols = "", []
    while at + 4 <= end:
        kind, size = unpack_from(">HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if kind == _SERVER_NAME and len(value) > 5:
            name = _printable(value[5:])
        elif kind == _ALPN:
            here = 2
            while here < len(value):
                protocols.append(_printable(value[here + 1 : here + 1 + value[here]]))
                here += 1 + value[here]
        at += 4 + size
    return Hello(name, tuple(protocols))


def _printable(text: bytes) -> str:
    return "".join(chr(byte) if 0x21 <= byte <= 0x7E else "?" for byte in text[:255])
