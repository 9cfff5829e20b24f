"""Recognize TLS, and read the messages of its handshake that matter: hellos, encrypted extensions.

A ClientHello shows the server's name and the protocols offered; together with the answer of the server it selects the
keys. Nothing is decrypted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from struct import unpack_from
from typing import Final

from afflux.capture.names import printable

__all__ = [
    "CLIENT_HELLO", "ENCRYPTED_EXTENSIONS", "FINISHED", "KEY_UPDATE", "SERVER_HELLO", "TLS13", "VERSIONS", "Answer",
    "Hello", "Messages", "answer", "begins", "extensions", "hello", "names_of", "offer",
]  # fmt: skip

CLIENT_HELLO: Final = 1
SERVER_HELLO: Final = 2
ENCRYPTED_EXTENSIONS: Final = 8
FINISHED: Final = 20
KEY_UPDATE: Final = 24
TLS13: Final = 0x0304
VERSIONS: Final = {0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", TLS13: "TLS 1.3"}
_HANDSHAKE = 0x16
_SERVER_NAME, ALPN, EARLY_DATA, _SUPPORTED_VERSIONS = 0, 16, 42, 43
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"The random of a server that asks for another ClientHello (RFC 8446, 4.1.3)."
_LARGEST = 0x1_0000
"Bytes of a message that is read; longer ones are passed over."
_READ = frozenset((CLIENT_HELLO, SERVER_HELLO, ENCRYPTED_EXTENSIONS, KEY_UPDATE))


@dataclass(frozen=True, slots=True)
class Hello:
    """The readable part of a ClientHello."""

    name: str = ""
    "The server's name (SNI); empty if it is missing."
    protocols: tuple[str, ...] = ()
    "The protocols offered (ALPN)."
    random: bytes = b""
    "The client random; empty if it is missing."
    early: bool = False
    "The client may send data before the server's answer (0-RTT)."

    def __str__(self) -> str:
        shown = [f"server name {self.name}"] if self.name else []
        if self.protocols:
            shown.append(f"ALPN {', '.join(self.protocols)}")
        return "; ".join(shown)


@dataclass(frozen=True, slots=True)
class Answer:
    """The readable part of a ServerHello."""

    version: int
    random: bytes
    suite: int
    "The number of the cipher suite."
    retry: bool
    "The server asks for another ClientHello."
    compressed: bool
    protocol: str
    "The protocol selected (ALPN), in TLS 1.2."


def begins(start: bytes) -> bool:
    """Return whether these first bytes of a side are a TLS handshake record."""
    return len(start) >= 3 and start[0] == _HANDSHAKE and start[1] == 3 and start[2] <= 4


def hello(start: bytes) -> Hello:
    """Return what the ClientHello in these first bytes shows; a hello that is cut off or wrong shows nothing."""
    body = start[5 : 5 + int.from_bytes(start[3:5], "big")]
    return offer(body[4:]) if body[:1] == bytes((CLIENT_HELLO,)) else Hello()


def offer(body: bytes) -> Hello:
    """Return what the body of a ClientHello shows; one that is cut off or wrong shows nothing."""
    try:
        at = 34
        at += 1 + body[at]
        at += 2 + unpack_from(">H", body, at)[0]
        found = extensions(body, at + 1 + body[at])
    except (struct.error, IndexError):
        return Hello()
    name = found.get(_SERVER_NAME, b"")
    return Hello(
        name=printable(name[5:]),
        protocols=names_of(found.get(ALPN, b"")),
        random=body[2:34],
        early=EARLY_DATA in found,
    )


def answer(body: bytes) -> Answer | None:
    """Return what the body of a ServerHello shows; None if it is wrong."""
    try:
        version, random, at = unpack_from(">H", body)[0], body[2:34], 35 + body[34]
        suite, compression = unpack_from(">HB", body, at)
        found = extensions(body, at + 3)
    except (struct.error, IndexError):
        return None
    chosen = found.get(_SUPPORTED_VERSIONS, b"")
    return Answer(
        version=int.from_bytes(chosen, "big") if len(chosen) == 2 else version,
        random=random,
        suite=suite,
        retry=random == _RETRY,
        compressed=compression != 0,
        protocol=next(iter(names_of(found.get(ALPN, b""))), ""),
    )


def extensions(body: bytes, at: int) -> dict[int, bytes]:
    """Return the extensions whose length is at ``at``. One that is cut off ends them."""
    found: dict[int, bytes] = {}
    if at + 2 > len(body):
        return found
    end = min(len(body), at + 2 + unpack_from(">H", body, at)[0])
    at += 2
    while at + 4 <= end:
        kind, size = unpack_from(">HH", body, at)
        found.setdefault(kind, body[at + 4 : min(at + 4 + size, end)])
        at += 4 + size
    return found


def names_of(value: bytes) -> tuple[str, ...]:
    """Return the names in an ALPN extension."""
    names, at = [], 2
    while at < len(value):
        names.append(printable(value[at + 1 : at + 1 + value[at]]))
        at += 1 + value[at]
    return tuple(names)


class Messages:
    """The handshake messages of one side, which may be split over records."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add the content of a record; yield the type and the body of each message that is complete. The body is empty
        if nothing reads the type, or if it is longer than 64 KiB: it is not buffered."""
        passed = min(self._missing, len(data))
        self._missing -= passed
        self._held += data[passed:]
        held, at = self._held, 0
        while len(held) - at >= 4:
            kind, size = held[at], int.from_bytes(held[at + 1 : at + 4], "big")
            stop = at + 4 + size
            if kind in _READ and size <= _LARGEST:
                if stop > len(held):
                    break
                yield kind, bytes(held[at + 4 : stop])
            else:
                yield kind, b""
            self._missing = max(0, stop - len(held))
            at = min(stop, len(held))
        del held[:at]
