"""Declare Limit-Stream: its row in the table of protocols, and how to make an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Unsupported
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.family.recognition import LETTERS, answer_begins, connection_begins
from afflux.protocols.limit.codes import Code
from afflux.protocols.limit.dissector import dissector
from afflux.protocols.limit.frames import Choose, End, ErrorFrame, Ext, PayloadFrame, Setup
from afflux.protocols.limit.meanings import MEANINGS

if TYPE_CHECKING:
    from afflux.protocols.limit.engine import Engine

__all__ = ["ENTRY", "make", "recognize", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """Return an engine for one connection.

    Raises:
        Unsupported: a setup payload was given.
    """
    from afflux.protocols.limit.engine import Engine

    if terms.payload is not None or terms.metadata_mime or terms.data_mime:
        raise Unsupported("a limit connection has no setup: each session has its own, with the channel's name")
    return Engine(role, limits=limits, decide=decide, now=now, channels=terms.channels, **terms.own)


def refusal(reason: str) -> bytes:
    """Return the bytes that refuse a connection before its SETUP arrives: ERROR[REJECTED_SETUP]."""
    return ErrorFrame(code=Code.REJECTED_SETUP, data=reason.encode()).encode(prefixed=True)


_CONNECTION: Final = (ErrorFrame.TYPE, End.TYPE, Ext.TYPE)
_MESSAGES: Final = (PayloadFrame.TYPE, Choose.TYPE, ErrorFrame.TYPE, Ext.TYPE)
_M: Final = 0x01
"The flag M in the first byte of type and flags."
_LENGTH: Final = slice(6, 7)
"The first byte of the length of a channel's name; 0 in a first frame below 64 KiB."
_NAME: Final = 9


def recognize(start: bytes, client: bool) -> bool | None:
    """Recognize a client's SETUP by the first letter of its channel's name, or the first frame of a server."""
    if not client:
        return answer_begins(start, _CONNECTION, (), _MESSAGES)
    if (found := connection_begins(start, (Setup.TYPE,))) is not True:
        return found
    if not start[4] & _M or start[_LENGTH] > b"\0":
        return False
    return None if len(start) <= _NAME else start[_NAME] >= LETTERS


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


# every transport of afflux is reliable and keeps the order of bytes. R-2: those with messages have one for each
# frame (``framing``). D-13: the version is not on the wire, so there is nothing to negotiate.
ENTRY: Final = ProtocolEntry(
    name="limit",
    make=make,
    verbs=("channel",),
    features=("open",),
    # D-5, R-18: both are off unless an address sets them.
    options=(("explicit_first_choice", _switch), ("reuse_ids", _switch)),
    framing=LengthPrefix(3),
    subprotocol="limit-stream",
    refusal=refusal,
    aliases=("limit-stream", "limitstream"),
    exit_codes={
        Code.APPLICATION_ERROR: 64,
        Code.INVALID_SETUP: 68,
        Code.REJECTED_SETUP: 70,
        Code.CONNECTION_ERROR: 72,
    },
    dissector=dissector,
    meanings=MEANINGS,
    recognize=recognize,
)
