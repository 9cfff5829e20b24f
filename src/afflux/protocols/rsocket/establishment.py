"""Check a SETUP: the proposal of a client, and its acceptance by a server (sections 3.1 and 3.2)."""

from __future__ import annotations

from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.limits import Limits
from afflux.protocols.family.liveness import keepalive_refusal
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import Setup
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, OCTET_STREAM
from afflux.protocols.rsocket.resume import Sessions

__all__ = ["proposal", "refusal_of"]


def proposal(setup: Setup | None, limits: Limits) -> Setup:
    """Return the SETUP that a client sends; by default with composite metadata and octet-stream data.

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
    if refusal := keepalive_refusal(setup.keepalive_ms, Code.REJECTED_SETUP):
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
    """Return why a server cannot accept ``setup``, with the code of the refusal, or None.

    ``leases`` is whether the server grants leases, ``sessions`` its table of resumable sessions.
    """
    if setup.stream:
        return Violation("SETUP belongs on stream 0", rule="HS-03", code=Code.INVALID_SETUP)
    if (setup.major, setup.minor) != (1, 0):
        text = f"version {setup.major}.{setup.minor} is not spoken here, 1.0 is"
        return Violation(text, rule="R-16", code=Code.INVALID_SETUP)
    if not setup.keepalive_ms or not setup.lifetime_ms:
        return Violation("keepalive and lifetime are above 0", rule="R-17", code=Code.INVALID_SETUP)
    if refusal := keepalive_refusal(setup.keepalive_ms, Code.REJECTED_SETUP):
        return refusal
    if setup.token is not None and (refusal := _token_refusal(setup.token, limits, sessions)):
        return refusal
    if setup.lease and not leases:
        return Violation("leases are not supported", rule="HS-08", code=Code.UNSUPPORTED_SETUP)
    if len(setup.metadata or b"") > limits.connection_metadata_bytes:
        return Violation("metadata-too-large", rule="connection_metadata_bytes", code=Code.REJECTED_SETUP)
    return None


def _token_refusal(token: bytes, limits: Limits, sessions: Sessions | None) -> Violation | None:
    """Return why no session can be stored under ``token``, or None."""
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
