"""Name the protocol of a peer that does not speak the expected one, from its first bytes.

Bytes that may begin the expected protocol are left to its engine, and so are all bytes if it declares no recognition.
The engine also answers a client of no known protocol, so that the client can read why it is refused. A client of a
known protocol is answered in that protocol, with a text that names both; ``stranger`` reads it at the client.
"""

from __future__ import annotations

from typing import Final

from afflux.core.errors import RemoteProtocolError
from afflux.core.recognition import mismatch, recognize, refusal_text, refused_by, unknown
from afflux.core.texts import one_of
from afflux.protocols.registry import PROTOCOLS, recognizable
from afflux.transports.address import Address, did_you_mean
from afflux.transports.base import foreign

__all__ = ["answer_to", "refused_message", "stranger", "stranger_at"]

_LONGEST_LINE: Final = 512
"Bytes within which the first line of a protocol of text lines, such as SMTP or Redis, has to end."
_SHOWN: Final = 40
_LEAST_LINE: Final = 4


def stranger_at(address: Address, data: bytes, *, client: bool) -> str | None:
    """Do as ``stranger`` for the protocol of an address, and for bytes as its transport delivers them: with the length
    prefix that a message does not have on the wire."""
    framing, messages = address.entry.framing, address.carrier.messages
    if messages and framing is not None:
        data = bytes(next(framing.split(data), b""))
    text = stranger(data, address.protocol, client=client, message=messages)
    return text if text is None or client else text + did_you_mean(foreign(data), address)


def answer_to(data: bytes, expected: str, *, message: bool = False) -> tuple[str, bytes | None]:
    """Return why a server of ``expected`` refuses the client that sent ``data``, which ``stranger`` does not take for
    one of that protocol, and the bytes that tell it to the client.

    The text is empty, and the bytes are None, if no protocol is recognized, or none that can be refused.
    """
    other = recognize(recognizable(), data, message=message).protocol
    if other is None:
        return "", None
    text = refusal_text(expected, other.name)
    return text, None if other.refusal is None else other.refusal(text)


def refused_message(message: bytes, expected: str) -> tuple[str, RemoteProtocolError] | None:
    """Return why a server of ``expected`` refuses the client that sent this first message, and the server's own error;
    None if the engine is to have the message."""
    text = stranger(message, expected, client=True, message=True)
    reason, _ = ("", None) if text is None else answer_to(message, expected, message=True)
    return (reason, RemoteProtocolError.of_handshake(text)) if text and reason else None


def stranger(data: bytes, expected: str, *, client: bool, message: bool = False) -> str | None:
    """Return a sentence that names what the peer speaks instead of ``expected``; None if it may speak that.

    Args:
        data: the first bytes that have arrived.
        expected: the name of the protocol.
        client: whether the peer is the client.
        message: ``data`` is the first message of a transport that preserves message boundaries.
    """
    if name := foreign(data) or (None if client else refused_by(data, expected)):
        return mismatch(name, expected)
    own = PROTOCOLS.get(expected)
    if own is None or own.recognize is None:
        return None
    found = recognize((own,), data, client=client, message=message)
    if found.candidates or found.more:
        return None
    others = [other.name for other in recognize(recognizable(), data, client=client, message=message).candidates]
    if others:
        return mismatch(one_of(others), expected)
    if client:
        return None  # its engine answers what belongs to no known protocol
    if own.refusal is not None and data[:1] == own.refusal("")[:1]:
        return None  # a server may refuse the connection before it begins
    if (line := _line(data)) is not None:
        return mismatch(f'a protocol of text lines ("{line}")', expected)
    if own.framing is None:  # both sides begin with fixed bytes
        return f"the peer does not speak {expected}: {unknown(data)}"
    return None


def _line(data: bytes) -> str | None:
    line, end, _ = data[:_LONGEST_LINE].partition(b"\n")
    text = line.rstrip(b"\r")
    if not end or len(text) < _LEAST_LINE or not all(0x20 <= byte < 0x7F for byte in text):
        return None
    return text[:_SHOWN].decode() + ("…" if len(text) > _SHOWN else "")
