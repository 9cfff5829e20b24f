"""Declare ReactiveSocket of 2015: its entry in the table of protocols, and its engine factory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from afflux.core.entry import FIVE_VERBS, SHARED_OPTIONS, ProtocolEntry
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.family.terms import proposal
from afflux.protocols.reactivesocket.codes import Code
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.dissector import dissector
from afflux.protocols.reactivesocket.frames import ErrorFrame, Setup
from afflux.protocols.reactivesocket.meanings import MEANINGS

if TYPE_CHECKING:
    from afflux.protocols.reactivesocket.engine import Engine

__all__ = ["ENTRY", "make", "recognize", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """Build an engine for one connection.

    Raises:
        LocalProtocolError: the setup is invalid.
    """
    from afflux.protocols.reactivesocket.engine import DEFAULT_MTU, Engine

    return Engine(
        role,
        setup=proposal(Setup, terms) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        extensions=terms.extensions,
        place=terms.place,
        dialect=terms.dialect,
    )


def refusal(reason: str) -> bytes:
    """Return the bytes that refuse a connection before its SETUP arrives: ERROR[REJECTED_SETUP]."""
    return ErrorFrame(stream=0, code=Code.REJECTED_SETUP, data=reason.encode()).encode(prefixed=True)


_SETUP: Final = b"\x00\x01"
_METADATA_PUSH: Final = 0x000D


def recognize(start: bytes, client: bool) -> bool | None:
    """Recognize a client's SETUP on stream 0, or the first frame of a server, of any other type."""
    if not client:
        return None if len(start) < 2 else _SETUP < start[:2] <= _METADATA_PUSH.to_bytes(2, "big")
    if not _SETUP.startswith(start[:2]) or start[4:8].strip(b"\0"):
        return False
    return None if len(start) < 8 else True


ENTRY: Final = ProtocolEntry(
    name="reactivesocket",
    make=make,
    verbs=(*FIVE_VERBS, "subscribe"),
    options=(*SHARED_OPTIONS, ("dialect", Dialect.of)),
    features=("lease", "extensions", "subscribe"),
    framing=LengthPrefix(4, inclusive=True, reserved=0x80000000),
    refusal=refusal,
    exit_codes={
        Code.APPLICATION_ERROR: 64,
        Code.REJECTED: 65,
        Code.CANCELED: 66,
        Code.INVALID: 67,
        Code.INVALID_SETUP: 68,
        Code.UNSUPPORTED_SETUP: 69,
        Code.REJECTED_SETUP: 70,
        Code.CONNECTION_ERROR: 72,
    },
    dissector=dissector,
    meanings=MEANINGS,
    recognize=recognize,
)
