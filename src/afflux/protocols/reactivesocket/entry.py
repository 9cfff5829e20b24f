"""How a driver gets an engine of ReactiveSocket, from the terms that all protocols share."""

from __future__ import annotations

from typing import Literal

from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.reactivesocket.codes import Code
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.engine import DEFAULT_MTU, Engine
from afflux.protocols.reactivesocket.frames import ErrorFrame, Setup
from afflux.protocols.rsocket.entry import proposal

__all__ = ["dialect", "make", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """An engine for one connection.

    Raises:
        LocalProtocolError: a setup that can not be.
    """
    return Engine(
        role,
        setup=proposal(Setup, terms) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        extensions=terms.extensions,
        dialect=terms.dialect,
    )


def refusal(reason: str) -> bytes:
    """What a listener sends to a connection that it does not take: ERROR[REJECTED_SETUP], before SETUP has come."""
    return ErrorFrame(stream=0, code=Code.REJECTED_SETUP, data=reason.encode()).encode(prefixed=True)


dialect = Dialect.of  # of the text in an address
