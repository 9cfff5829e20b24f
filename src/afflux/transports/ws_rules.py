"""Decide what both ends of a WebSocket must agree on: the subprotocol and the meaning of close codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from afflux.core.errors import ConnectionClosed, RemoteProtocolError
from afflux.core.limits import REASONS, Limits, oversize, reached
from afflux.core.recognition import refusal_text
from afflux.protocols.registry import PROTOCOLS

__all__ = [
    "GOING_AWAY",
    "MESSAGE_TOO_BIG",
    "NORMAL",
    "POLICY",
    "TRY_AGAIN_LATER",
    "UNSUPPORTED_DATA",
    "Refusal",
    "chosen",
    "closed_with",
    "limited",
    "printable",
    "text_message",
]

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
POLICY: Final = 1008
MESSAGE_TOO_BIG: Final = 1009
TRY_AGAIN_LATER: Final = 1013

_IN_ORDER = frozenset((NORMAL, 1005))
"Close codes of an orderly end: 1000, or none."

_NAMES: Final = {
    GOING_AWAY: "going away",
    1002: "protocol error",
    UNSUPPORTED_DATA: "unsupported data",
    1006: "no close frame",
    1007: "invalid data",
    POLICY: "policy violation",
    MESSAGE_TOO_BIG: "message too big",
    1010: "an extension is missing",
    1011: "internal error",
    1012: "service restart",
    TRY_AGAIN_LATER: "try again later",
    1014: "bad gateway",
}


class Refusal(ValueError):
    """The reason why a client is refused; its text is sent to the client."""


def chosen(wanted: str | None, offered: Iterable[str]) -> str | None:
    """Return the subprotocol that a server selects.

    A client that offers none is accepted, because clients of other implementations offer none. A client that offers
    only others is refused.

    Raises:
        Refusal: the client offers only others.
    """
    names = list(offered)
    if wanted is None or not names:
        return None
    if wanted in names:
        return wanted
    known = {entry.subprotocol: entry.name for entry in PROTOCOLS.values() if entry.subprotocol}
    if names[0] in known:
        raise Refusal(refusal_text(known.get(wanted, wanted), known[names[0]]))
    raise Refusal(f'the subprotocol here is "{wanted}", and the client offers {printable(", ".join(names), 64)}')


def closed_with(code: int, reason: str) -> ConnectionClosed | None:
    """Return the error for the peer's close; None for an orderly end."""
    if code in _IN_ORDER:
        return None
    words = printable(reason, 128) or _NAMES.get(code, "")
    return ConnectionClosed(f"the peer closed the WebSocket: {code}{f' ({words})' if words else ''}", rule="ws-close")


def text_message() -> RemoteProtocolError:
    """Return the error for a text message."""
    return RemoteProtocolError("text-message: frames travel in binary messages", rule="ws-text")


def limited(name: str, limits: Limits | None = None, size: int | None = None) -> RemoteProtocolError:
    """Return the error for a limit that the peer reached, with a frame of ``size`` bytes; its text is the reason in the
    close frame."""
    if limits is None:
        return RemoteProtocolError(REASONS[name], rule=name)
    text = reached(limits, name) if size is None else oversize(limits, name, size)
    return RemoteProtocolError(text, rule=name, too_large=name == "frame_bytes")


def printable(text: str, most: int) -> str:
    """Return a peer's text with unprintable characters replaced."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])
