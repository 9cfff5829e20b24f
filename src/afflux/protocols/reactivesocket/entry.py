"""How a driver gets an engine of ReactiveSocket, from the terms that all protocols share."""

from __future__ import annotations

from typing import Literal

from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.engine import DEFAULT_MTU, Engine
from afflux.protocols.reactivesocket.frames import Setup

__all__ = ["dialect", "make"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """An engine for one connection.

    Raises:
        LocalProtocolError: a setup that can not be.
    """
    return Engine(
        role,
        setup=_setup(terms) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        extensions=terms.extensions,
        dialect=terms.dialect,
    )


def dialect(text: str) -> Dialect:
    """What an address says of the peer's ways. Raises ValueError."""
    return Dialect.of(text)


def _setup(terms: Terms) -> Setup:
    """What a client asks for."""
    payload = terms.payload
    try:
        return Setup(
            keepalive_ms=round(terms.keepalive * 1000),
            lifetime_ms=round(terms.lifetime * 1000),
            metadata_mime=terms.metadata_mime or "message/x.rsocket.composite-metadata.v0",
            data_mime=terms.data_mime or "application/octet-stream",
            lease=terms.leases,
            metadata=None if payload is None else payload.metadata,
            data=b"" if payload is None else payload.data,
        )
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
