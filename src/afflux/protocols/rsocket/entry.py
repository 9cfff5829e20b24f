"""Declare RSocket 1.0: its row in the table of protocols, and how to make an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from afflux.core.entry import FIVE_VERBS, SHARED_OPTIONS, ProtocolEntry
from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.dissector import dissector
from afflux.protocols.rsocket.engine import DEFAULT_MTU, Engine
from afflux.protocols.rsocket.frames import ErrorFrame, Setup

__all__ = ["ENTRY", "make", "proposal", "refusal"]

S = TypeVar("S")


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """An engine for one connection.

    Raises:
        LocalProtocolError: a setup that can not be.
    """
    return Engine(
        role,
        setup=proposal(Setup, terms, stream=0, token=terms.token) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        sessions=terms.sessions,
        extensions=terms.extensions,
    )


def refusal(reason: str) -> bytes:
    """What a listener sends to a connection that it does not take: ERROR[REJECTED_SETUP], before SETUP has come."""
    return ErrorFrame(stream=0, code=Code.REJECTED_SETUP, data=reason.encode()).encode(prefixed=True)


def proposal(kind: Callable[..., S], terms: Terms, **own: Any) -> S:
    """What a client asks for: a SETUP, here or in ReactiveSocket. ``own`` has the fields that only one of them has.

    Raises:
        LocalProtocolError: a setup that can not be.
    """
    payload = terms.payload
    try:
        return kind(
            keepalive_ms=round(terms.keepalive * 1000),
            lifetime_ms=round(terms.lifetime * 1000),
            metadata_mime=terms.metadata_mime or "message/x.rsocket.composite-metadata.v0",
            data_mime=terms.data_mime or "application/octet-stream",
            lease=terms.leases,
            metadata=None if payload is None else payload.metadata,
            data=b"" if payload is None else payload.data,
            **own,
        )
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None


ENTRY: Final = ProtocolEntry(
    name="rsocket",
    make=make,
    verbs=FIVE_VERBS,
    options=SHARED_OPTIONS,
    features=("lease", "resume", "extensions"),
    framing=LengthPrefix(3),
    subprotocol="rsocket",
    refusal=refusal,
    exit_codes={
        Code.APPLICATION_ERROR: 64,
        Code.REJECTED: 65,
        Code.CANCELED: 66,
        Code.INVALID: 67,
        Code.INVALID_SETUP: 68,
        Code.UNSUPPORTED_SETUP: 69,
        Code.REJECTED_SETUP: 70,
        Code.REJECTED_RESUME: 71,
        Code.CONNECTION_ERROR: 72,
        Code.CONNECTION_CLOSE: 73,
    },
    dissector=dissector,
)
