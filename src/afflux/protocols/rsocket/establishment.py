"""What a SETUP proposes and whether it is acceptable (sections 3.1 and 3.2). Nothing is sent or kept here."""

from __future__ import annotations

from typing import Any

from afflux.core.bucket import Bucket
from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.limits import REASONS, Limits
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import Setup
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, OCTET_STREAM
from afflux.protocols.rsocket.resume import Sessions

__all__ = ["keepalive_bucket", "keepalive_refusal", "lifetime_of", "proposal", "refusal_of"]

_LEAST_INTERVAL = 10
"Milliseconds between keepalives: a server refuses a SETUP that announces a shorter interval."


def proposal(setup: Setup | None, limits: Limits) -> Setup:
    """The SETUP that a client sends; composite metadata and octet-stream data unless it says otherwise.

    Raises:
        LocalProtocolError: a time of 0 (R-17), or a token that could be guessed (R-53).
    """
    if setup is None:
        return Setup(
            keepalive_ms=int(limits.keepalive_s * 1000),
            lifetime_ms=int(limits.lifetime_s * 1000),
            metadata_mime=COMPOSITE_MIME,
            data_mime=OCTET_STREAM,
        )
    if not setup.keepalive_ms or not setup.lifetime_ms:
        raise LocalProtocolError("keepalive and lifetime are above 0", rule="R-17")
    if refusal := keepalive_refusal(setup.keepalive_ms):
        raise LocalProtocolError(refusal.reason, rule=refusal.rule)
    least = limits.resume_token_bytes[0]
    if setup.token is not None and len(setup.token) < least:
        raise LocalProtocolError(
            f"a resume token has {least} random bytes or more, not {len(setup.token)}", rule="R-53"
        )
    return setup


def refusal_of(
    setup: Setup, limits: Limits, *, leases: bool = False, sessions: Sessions | None = None
) -> Violation | None:
    """Why a server can not accept ``setup``, with the code that says so, or None.

    ``leases`` is whether it grants leases, ``sessions`` where it keeps what can be resumed.
    """
    if setup.stream:
        return Violation("SETUP belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
    if (setup.major, setup.minor) != (1, 0):
        text = f"version {setup.major}.{setup.minor} is not spoken here, 1.0 is"
        return Violation(text, rule="R-16", code=Code.INVALID_SETUP)
    if not setup.keepalive_ms or not setup.lifetime_ms:
        return Violation("keepalive and lifetime are above 0", rule="R-17", code=Code.INVALID_SETUP)
    if refusal := keepalive_refusal(setup.keepalive_ms):
        return refusal
    if setup.token is not None and (refusal := _token_refusal(setup.token, limits, sessions)):
        return refusal
    if setup.lease and not leases:
        return Violation("leases are not supported", rule="HS-08", code=Code.UNSUPPORTED_SETUP)
    if len(setup.metadata or b"") > limits.connection_metadata_bytes:
        return Violation("metadata-too-large", rule="connection_metadata_bytes", code=Code.REJECTED_SETUP)
    return None


def _token_refusal(token: bytes, limits: Limits, sessions: Sessions | None) -> Violation | None:
    """Why no session can be kept under ``token``, or None."""
    reason, rule = "", "R-53"
    if not 0 < len(token) <= limits.resume_token_bytes[1]:
        reason = "bad-token"
    elif sessions is None:
        reason, rule = "resumption is not supported", "R-15"
    elif sessions.find(token) is not None:
        reason, rule = "the token is in use", "R-49"
    elif sessions.full:
        reason, rule = "too many sessions", "resume_sessions"
    return Violation(reason, rule=rule, code=Code.REJECTED_SETUP) if reason else None


def keepalive_refusal(interval_ms: int) -> Violation | None:
    """Why keepalives can not come so often, or None. What is accepted here is served later."""
    if not 0 < interval_ms < _LEAST_INTERVAL:
        return None
    text = f"{REASONS['keepalive_rate']}: a keepalive every {interval_ms} ms; {_LEAST_INTERVAL} ms or more is served"
    return Violation(text, rule="keepalive_rate", code=Code.REJECTED_SETUP)


def keepalive_bucket(setup: Any, lifetime: float, limits: Limits) -> Bucket:
    """How often keepalives may come on a connection that began with ``setup``: twice as often as announced, and at
    least as ``keepalive_rate`` says. The burst covers those of one lifetime of the client: it may have sent as many
    while this side, or the network, stood still."""
    least, burst = limits.keepalive_rate
    announced = 1000 / setup.keepalive_ms if setup.keepalive_ms else 0.0
    return Bucket(max(burst, announced * min(lifetime, limits.peer_lifetime_s[1])), max(least, 2 * announced))


def lifetime_of(setup: Setup, limits: Limits) -> float:
    """Seconds of silence after which a server gives the client up: clamped before it meets arithmetic (KA-04)."""
    low, high = limits.peer_lifetime_s
    return max(low, min(high, max(setup.lifetime_ms, 3 * setup.keepalive_ms) / 1000))
