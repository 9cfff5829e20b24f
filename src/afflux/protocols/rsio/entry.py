"""Declare reactive-streams-io: its row in the table of protocols, and how to make an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from afflux.core.entry import ProtocolEntry, size
from afflux.core.errors import Unsupported
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.rsio.dialect import Dialect
from afflux.protocols.rsio.dissector import dissector
from afflux.protocols.rsio.frames import Goodbye
from afflux.protocols.rsio.meanings import MEANINGS

if TYPE_CHECKING:
    from afflux.protocols.rsio.engine import Engine

__all__ = ["ENTRY", "make", "recognize", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """Return an engine for one connection.

    Raises:
        Unsupported: a setup payload was given.
    """
    from afflux.protocols.rsio.engine import DEFAULT_MTU, Engine

    if terms.payload is not None or terms.metadata_mime or terms.data_mime:
        raise Unsupported("reactive-streams-io has no setup: a client sends its version and extensions only")
    mtu, extensions = terms.mtu or DEFAULT_MTU, (terms.dialect or Dialect()).extensions
    return Engine(role, limits=limits, decide=decide, now=now, mtu=mtu, extensions=extensions, sizes=terms.sizes)


def refusal(reason: str) -> bytes:
    """Return bytes that refuse a connection: goodbye without a hello, so that the client can conclude that nothing was
    processed."""
    return Goodbye(reason=reason).encode()


def recognize(start: bytes, client: bool) -> bool | None:
    """Recognize the hello of either side: its type, and version 0, each one byte."""
    hello = b"\x01\x00" if client else b"\x02\x00"
    if not hello.startswith(start[:2]):
        return False
    return True if len(start) >= 2 else None


ENTRY: Final = ProtocolEntry(
    name="rsio",
    make=make,
    verbs=("stream",),
    options=(("mtu", size), ("dialect", Dialect.of)),
    features=("subscribe",),
    refusal=refusal,
    aliases=("reactive-streams-io",),
    dissector=dissector,
    meanings=MEANINGS,
    recognize=recognize,
)
