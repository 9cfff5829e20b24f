"""Convert the terms that all protocols share to the SETUP of a member of the family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.terms import Terms

__all__ = ["proposal"]

S = TypeVar("S")


def proposal(kind: Callable[..., S], terms: Terms, **own: Any) -> S:
    """Return a client's SETUP. ``own`` has the fields of a single member.

    Raises:
        LocalProtocolError: the setup is invalid.
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
