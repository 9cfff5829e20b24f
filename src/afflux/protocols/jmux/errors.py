"""Define how a call fails, and whether it may have been processed. Jmux promises at most once: only a failure with
``may_have_been_processed = False`` is safe to retry. Details of messages are cut and decoded here too.
"""

from __future__ import annotations

from afflux.core.errors import Canceled, ConnectionClosed, LimitExceeded, Rejected, Violation
from afflux.core.limits import Limits
from afflux.core.texts import clean_text, cut

__all__ = [
    "LARGEST_DETAIL",
    "NoSession",
    "SessionAborted",
    "SessionLost",
    "SessionRejected",
    "detail_of",
    "encoded",
    "violation",
]

LARGEST_DETAIL = 0xFFFF
"Greatest length of a detail in bytes (R-15)."


class SessionRejected(Rejected):
    """The server has processed nothing of the call, or nothing of it was written: it is safe to retry."""


class NoSession(LimitExceeded):
    """No request was sent: every session is in use, or too much of earlier responses was not read. Open another
    connection."""

    may_have_been_processed = False


class SessionAborted(Canceled):
    """The session ended before its response; the call may have been processed, in part or as a whole."""


class SessionLost(ConnectionClosed):
    """The connection ended before the response did; the call may have been processed."""


def violation(reason: str, rule: str) -> Violation:
    """Return the error for a rule that the peer has broken."""
    return Violation(reason, rule=rule)


def encoded(text: str, limit: int) -> bytes:
    """Encode a detail as UTF-8 of at most ``limit`` bytes, cut at a character boundary (R-15, D-5)."""
    return cut(text, min(limit, LARGEST_DETAIL)).encode()


def detail_of(data: bytes, limits: Limits) -> str:
    """Decode a received detail: cut to ``error_text_bytes``, U+FFFD for bytes that are not UTF-8 (R-15, JA-11)."""
    return clean_text(data, limits.error_text_bytes[1])
