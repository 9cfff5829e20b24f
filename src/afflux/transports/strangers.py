"""Name the protocol of a peer that does not speak the expected one, from its first bytes.

Bytes that may begin the expected protocol are left to its engine, and so are all bytes if it declares no recognition.
The engine also answers a client of no known protocol, so that the client can read why it is refused.
"""

from __future__ import annotations

from typing import Final

from afflux.core.recognition import recognize, unknown
from afflux.protocols.registry import PROTOCOLS, recognizable
from afflux.transports.base import foreign

__all__ = ["stranger"]

_LONGEST_LINE: Final = 512
"Bytes within which the first line of a protocol of text lines, such as SMTP or Redis, has to end."
_SHOWN: Final = 40
_LEAST_LINE: Final = 4


def stranger(data: bytes, expected: str, *, client: bool) -> str | None:
    """Return a sentence that names what the peer speaks instead of ``expected``; None if it may speak that.

    Args:
        data: the first bytes that have arrived.
        expected: the name of the protocol.
        client: whether the peer is the client.
    """
    if name := foreign(data):
        return f"the peer speaks {name}, not {expected}"
    own = PROTOCOLS.get(expected)
    if own is None or own.recognize is None:
        return None
    found = recognize((own,), data, client=client)
    if found.candidates or found.more:
        return None
    others = [other.name for other in recognize(recognizable(), data, client=client).candidates]
    if others:
        return f"the peer speaks {' or '.join(others)}, not {expected}"
    if client:
        return None  # its engine answers what belongs to no known protocol
    if own.refusal is not None and data[:1] == own.refusal("")[:1]:
        return None  # a server may refuse the connection before it begins
    if (line := _line(data)) is not None:
        return f'the peer speaks a protocol of text lines ("{line}"), not {expected}'
    if own.framing is None:  # both sides begin with fixed bytes
        return f"the peer does not speak {expected}: {unknown(data)}"
    return None


def _line(data: bytes) -> str | None:
    line, end, _ = data[:_LONGEST_LINE].partition(b"\n")
    text = line.rstrip(b"\r")
    if not end or len(text) < _LEAST_LINE or not all(0x20 <= byte < 0x7F for byte in text):
        return None
    return text[:_SHOWN].decode() + ("…" if len(text) > _SHOWN else "")
