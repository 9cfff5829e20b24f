"""Recognize the protocol of a connection from the first bytes of one side.

Each protocol's entry has a function ``recognize(start, client)``. ``start`` is the beginning of the first frame,
without a length prefix. The function returns True if this side of a connection begins like this, False if it does not,
and None if more bytes are needed. At most ``LOOK`` bytes are examined.

Two rules make the result independent of how the bytes are split:

1. A first frame with a length prefix has less than 64 KiB. ``01 00 00`` is therefore the hello of reactive-streams-io
   and never the length of a SETUP.
2. A function that has returned True or False returns the same for every longer ``start``.

A protocol is selected as soon as its function returns True, even if that of another one needs more bytes, because the
client may be waiting for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afflux.core.errors import RemoteProtocolError

if TYPE_CHECKING:
    from afflux.core.entry import ProtocolEntry
    from afflux.core.framing import LengthPrefix

__all__ = [
    *("LARGEST", "LOOK", "UNRECOGNIZED", "Recognition", "Recognize", "Unrecognized"),
    *("mismatch", "recognize", "refusal_text", "refused_by", "unknown"),
]

LOOK = 32
"Bytes of a first frame that are examined at most."
LARGEST = 0xFFFF
"The longest first frame that is recognized, in bytes without its length prefix."
UNRECOGNIZED = "unrecognized"
"The reason word for a connection that was not recognized."
_SHOWN = 8
"Bytes that an error shows."
_NAME = "([a-z][a-z-]{0,30}[a-z])"
_REFUSAL_BYTES = 512
"Bytes of an answer in which the text of a refusal is searched."


class Unrecognized(RemoteProtocolError):
    """The first bytes of a connection select no protocol."""


Recognize = Callable[[bytes, bool], bool | None]
"``recognize(start, client)``; ``client`` is whether the client sent the bytes."


@dataclass(frozen=True, slots=True)
class Recognition:
    """The result for the bytes received so far."""

    protocol: ProtocolEntry | None
    "The protocol, if the bytes decide."
    candidates: tuple[ProtocolEntry, ...]
    "All protocols that begin like this, those that are never guessed included."
    more: bool
    "More bytes are needed."


def recognize(
    entries: Iterable[ProtocolEntry], data: bytes, *, client: bool = True, message: bool = False
) -> Recognition:
    """Compare the first bytes of one side with the protocols ``entries``.

    Args:
        entries: the protocols to consider.
        data: the bytes received so far.
        client: whether the client sent them.
        message: ``data`` is the first message of a transport that preserves message boundaries, such as WebSocket. It
            has no length prefix, and is a whole frame in a protocol with frames.
    """
    verdicts = [(entry, _verdict(entry, data, client, message)) for entry in entries]
    candidates = tuple(entry for entry, verdict in verdicts if verdict)
    guessed = [entry for entry in candidates if not entry.unguessed]
    more = not guessed and any(verdict is None for _, verdict in verdicts)
    return Recognition(guessed[0] if len(guessed) == 1 else None, candidates, more)


def unknown(data: bytes, *, complete: bool = True) -> str:
    """Return a short text with the first bytes in hexadecimal, for an error. ``complete``: more would not help."""
    rest = " …" if len(data) > _SHOWN else ""
    return f"{'unknown' if complete else 'incomplete'} first bytes {data[:_SHOWN].hex(' ')}{rest}"


def mismatch(peer: str, expected: str) -> str:
    """Return the text of the error for a peer that speaks another protocol."""
    return f"the peer speaks {peer}, not {expected}"


def refusal_text(server: str, client: str) -> str:
    """Return the reason that a server gives to a client of another protocol. ``refused_by`` recognizes it."""
    return f"the server speaks {server}, not {client}"


def refused_by(answer: bytes, expected: str) -> str | None:
    """Return the name of the server's protocol, if its answer to a client of ``expected`` contains the text of
    ``refusal_text``; None otherwise. The client's name is not compared: the draft may have been taken for RSocket."""
    found = _REFUSAL.search(answer[:_REFUSAL_BYTES])
    name = None if found is None else found[1].decode()
    return None if name == expected else name


def _verdict(entry: ProtocolEntry, data: bytes, client: bool, message: bool) -> bool | None:
    if entry.recognize is None:
        return False
    start, whole = data, False
    if entry.framing is not None:
        if message:
            whole = True
        elif (found := _unframed(entry.framing, data)) is None:
            return False
        else:
            start, whole = found
    verdict = entry.recognize(start[:LOOK], client)
    return False if verdict is None and (whole or len(start) >= LOOK) else verdict


def _unframed(framing: LengthPrefix, data: bytes) -> tuple[bytes, bool] | None:
    """Return the received part of the first frame and whether it is complete; None if the length is implausible. The
    missing bytes of a length count as 0, its least value."""
    width = framing.width
    known = len(data) >= width
    size = framing.size(data[:width].ljust(width, b"\0"))
    if size > LARGEST or (known and size <= 0):
        return None
    start = data[width : width + size] if known else b""
    return start, known and len(start) == size


_REFUSAL = re.compile(refusal_text(_NAME, _NAME).encode())
