"""Declare Jmux, the multiplexing protocol of Jini ERI: its row in the table of protocols, and how to make an engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from afflux.core.entry import ProtocolEntry, seconds, size
from afflux.core.errors import Unsupported
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.jmux.dialect import Dialect
from afflux.protocols.jmux.dissector import dissector
from afflux.protocols.jmux.frames import MAGIC, ServerConnectionHeader, Shutdown
from afflux.protocols.jmux.meanings import MEANINGS

if TYPE_CHECKING:
    from afflux.protocols.jmux.engine import Engine

__all__ = ["ENTRY", "make", "recognize", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """Return an engine for one connection.

    Raises:
        Unsupported: a setup payload or a decision is requested.
    """
    from afflux.protocols.jmux.engine import DEFAULT_FRAGMENT, Engine

    if decide or terms.payload is not None or terms.metadata_mime or terms.data_mime:
        raise Unsupported("a jmux connection has no setup: there is nothing to send with it, and nothing to decide by")
    return Engine(
        role,
        limits=limits,
        now=now,
        sessions="session" in terms.handled,
        fragment=terms.mtu or DEFAULT_FRAGMENT,
        max_wait_for_id=terms.own.get("max_wait_for_id", limits.abort_answer_s),
        ping_interval=terms.keepalive,
        dialect=terms.dialect,
    )


def refusal(reason: str) -> bytes:
    """Return bytes that refuse a connection: the header, then Shutdown. Nothing was processed (R-30): retry is safe."""
    return ServerConnectionHeader(initial_ration=1).encode() + Shutdown(detail=reason.encode()).encode()


def recognize(start: bytes, client: bool) -> bool | None:
    """Recognize the header, with which both sides begin (R-1, R-2). The version is left to the engine."""
    if not MAGIC.startswith(start[: len(MAGIC)]):
        return False
    return True if len(start) >= len(MAGIC) else None


ENTRY: Final = ProtocolEntry(
    name="jmux",
    make=make,
    verbs=("request",),
    options=(
        ("keepalive", seconds),
        ("mtu", partial(size, most=0xFFFF)),
        ("max_wait_for_id", partial(seconds, zero=True)),
        ("dialect", Dialect.of),
    ),
    features=("session",),
    refusal=refusal,
    dissector=dissector,
    meanings=MEANINGS,
    recognize=recognize,
)
